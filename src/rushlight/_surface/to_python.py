"""Tensor methods that lead to Python and NumPy: numbers, lists, arrays, indexing, text, copies by `copy`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rushlight._base.errors import warn_once
from rushlight._base.lazy import LazyModule, require
from rushlight._base.tracebacks import shorten
from rushlight._engine.core import convert
from rushlight._engine.core.creation import MAX_DIMS, TO_A_NUMBER
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.memory import copy_storage, own
from rushlight._engine.core.state import FUNCTION_MODE, GRAD, STATE
from rushlight._engine.core.tensor import Tensor, alias, dispatch_classes, meta_of, plain_classes, take_state
from rushlight._engine.dispatch.override import as_subclass as retyped
from rushlight._engine.dispatch.override import handle, has_override
from rushlight._engine.dispatch.plans.native_lookup import RUNS
from rushlight._engine.indexing import indexing
from rushlight._ops.forms import forms
from rushlight._surface.methods import method
from rushlight._surface.registry import SPACES, composite
from rushlight._types.dtype import BY_NAME

printed: Any = LazyModule("rushlight._engine.core.describe")

__all__: list[str] = []


Tensor.item = convert.item  # type: ignore[attr-defined]
Tensor.tolist = convert.tolist  # type: ignore[attr-defined]
Tensor.numpy = convert.numpy_of  # type: ignore[attr-defined]


@method
@forms("(self: Tensor, dtype: Any = None, copy: bool | None = None) -> ndarray")
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    array = convert.numpy_of(self)
    return array if dtype is None else array.astype(dtype, copy=False)


@method
def __array_wrap__(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """Wrap the result of a NumPy function of a tensor: `np.sin(x)` is a tensor again."""
    if array.dtype == bool:
        array = array.astype("uint8")  # PyTorch's old choice for NumPy's comparisons, kept
    return SPACES["torch"]["from_numpy"](array)


_ITEMS = convert.ITEMS


def _scalar(self: Tensor, kind: type) -> Any:
    if self._spec.numel != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    value = convert.item(self)
    if isinstance(value, complex) and kind is not complex:
        if value.imag:
            raise RuntimeError(
                f"value cannot be converted to type {'double' if kind is float else 'int64_t'} without overflow"
            )
        value = value.real
    return kind(value)


@method
def __bool__(self: Tensor) -> bool:
    try:
        reader = _ITEMS.get(self._spec)  # as in `item`
        if reader is not None and self._ptr and RUNS.now is None:
            return bool(reader(self._ptr))
        if self._spec.numel != 1:
            word = "no values" if not self._spec.numel else "more than one value"
            raise RuntimeError(
                f"Boolean value of Tensor with {word} is ambiguous: its shape is {list(self._spec.shape)}; ask any() or all() of it"
            )
        return bool(convert.item(self))
    except BaseException as error:
        shorten(error)
        raise


@method
def __float__(self: Tensor) -> float:
    try:
        reader = _ITEMS.get(self._spec)
        if (
            reader is not None
            and self._ptr
            and RUNS.now is None
            and not self._rg
            and type(value := reader(self._ptr)) is float
        ):
            return value
        if (self._rg or self._node is not None) and STATE.word & GRAD:
            warn_once(TO_A_NUMBER)
        if self._spec.numel == 1 and type(value := convert.item(self)) is float:
            return value
        return float(_scalar(self, float))
    except BaseException as error:
        shorten(error)
        raise


@method
def __int__(self: Tensor) -> int:
    try:
        reader = _ITEMS.get(self._spec)
        if reader is not None and self._ptr and RUNS.now is None and type(value := reader(self._ptr)) is int:
            return value
        if self._spec.numel == 1 and type(value := convert.item(self)) is int:
            return value
        return int(_scalar(self, int))
    except BaseException as error:
        shorten(error)
        raise


@method
def __complex__(self: Tensor) -> complex:
    try:
        if (self._rg or self._node is not None) and STATE.word & GRAD:
            warn_once(TO_A_NUMBER)
        return complex(_scalar(self, complex))
    except BaseException as error:
        shorten(error)
        raise


@method
def __index__(self: Tensor) -> int:
    try:
        reader = _ITEMS.get(self._spec)
        if reader is not None and self._ptr and RUNS.now is None and type(value := reader(self._ptr)) is int:
            return value
        if self._spec.numel != 1 or not (self._spec.dtype.is_integer or self._spec.dtype is BY_NAME["bool"]):
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(convert.item(self))
    except BaseException as error:
        shorten(error)
        raise


@method
def __len__(self: Tensor) -> int:
    try:
        if not self._spec.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self._spec.shape[0]
    except BaseException as error:
        shorten(error)
        raise


@method
def __iter__(self: Tensor) -> Iterator[Tensor]:
    try:
        if not self._spec.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))
    except BaseException as error:
        shorten(error)
        raise


@method
def __contains__(self: Tensor, item: Any) -> bool:
    if isinstance(item, (Tensor, bool, int, float, complex)):
        return bool((self == item).any())  # type: ignore[attr-defined]
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(item)}.")


@composite("__getitem__", spaces=(), method=True, overridable=False, cached=("self", "index?"), shortcut=indexing.take)
@forms("(self: Tensor, index: Index) -> Tensor")
def __getitem__(self: Tensor, index: Any) -> Tensor:
    if type(self) not in plain_classes or STATE.word & FUNCTION_MODE:
        handled, made = handle(Tensor.__getitem__, (self, index), {})
        if handled:
            return made
    if type(index) not in _INDICES and _asks(index):
        handled, made = handle(Tensor.__getitem__, (self, index), {})
        if handled:
            return made
    return indexing.get_item(self, index)


@composite(
    "__setitem__", spaces=(), method=True, overridable=False, cached=("self", "index?", "value*"), shortcut=indexing.put
)
@forms("(self: Tensor, index: Index, value: Tensor | Scalar | Sequence[Any]) -> None")
def __setitem__(self: Tensor, index: Any, value: Any) -> None:
    if (
        type(self) not in plain_classes
        or isinstance(value, Tensor)
        and type(value) not in plain_classes
        or STATE.word & FUNCTION_MODE
    ):
        handled, _ = handle(Tensor.__setitem__, (self, index, value), {})
        if handled:
            return
    if _asks(index) or hasattr(type(value), "__torch_function__") and not isinstance(value, Tensor):
        handled, _ = handle(Tensor.__setitem__, (self, index, value), {})
        if handled:
            return
    indexing.set_item(self, index, value)


# Types that can only be indices.
_INDICES = frozenset((bool, int, slice, type(None), type(...), *plain_classes))


def _asks(index: Any) -> bool:
    """Whether an index, or the first thing in a list of indices, wants a say (`__torch_function__`)."""
    for item in index if type(index) is tuple else (index,):
        first, depth = item, 0
        while type(first) in (list, tuple) and first and depth < MAX_DIMS:  # a list may hold itself
            first, depth = first[0], depth + 1
        if type(first) not in _INDICES and hasattr(type(first), "__torch_function__") and has_override((item,), {}):
            return True
    return False


@method
def __delitem__(self: Tensor, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


@composite("index_put_", method=True, cached=("input", "indices?", "values?", "accumulate"))
@forms("(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor")
def index_put_(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Write (or add, with `accumulate`) values at the places that `input[indices]` would read; None in `indices` takes
    a whole dim.
    """
    return indexing.index_put_(input, indices, values, accumulate)


@composite("index_put", method=True, cached=("input", "indices?", "values?", "accumulate"))
@forms("(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """`index_put_` on a copy: `input` stays as it is."""
    return indexing.index_put(input, indices, values, accumulate)


@method
def __repr__(self: Tensor, *, tensor_contents: Any = None) -> str:
    return printed.describe(self, tensor_contents)


@method
def __format__(self: Tensor, spec: str) -> str:
    if not self._spec.ndim and self._storage is not None and type(self) in plain_classes:
        return format(convert.item(self), spec)
    return object.__format__(self, spec)


@method
def __dir__(self: Tensor) -> list[str]:
    return sorted({*dir(type(self)), *self.__dict__})


@method
def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if self._node is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If you were attempting to "
            "deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001"
        )
    found = memo.get(id(self))
    if found is not None:
        return found
    if STATE.dispatch_modes:
        handled, made = HOOKS.below(__deepcopy__, (self, memo), {})
        if handled:
            return made
    if HOOKS.lazy_clones:
        own(self)  # memory is known again by its address
    storage = self._storage
    if storage is None and type(self) in dispatch_classes:
        made = _clone_of_wrapper(self)
    else:
        made = alias(convert.clone(self.detach()) if self._spec.conj else self)
    if self._spec.conj:
        storage = None  # the copy has memory of its own
    if storage is not None:
        copied = memo.get(("storage", id(storage)))  # type: ignore[call-overload]
        if copied is None:
            copied = copy_storage(storage)
            memo[("storage", id(storage))] = copied  # type: ignore[index]
        made._storage, made._ptr = copied, copied.ptr + (self._ptr - storage.ptr)
    if type(made) is not type(self):
        made = retyped(made, type(self))
    made._rg = self._rg
    memo[id(self)] = made
    if self._autograd_meta is not None and self._autograd_meta.grad is not None:
        meta_of(made).grad = __deepcopy__(self._autograd_meta.grad, memo)
    if state := self._state():
        take_state(made, require("copy").deepcopy(state, memo))
    return made


def _clone_of_wrapper(x: Tensor) -> Tensor:
    """A copy of a tensor without memory, which only its class can make."""
    word, STATE.word = STATE.word, STATE.word & ~GRAD
    try:
        made: Tensor = x.clone()
    finally:
        STATE.word = word
    if type(made) is not type(x):
        raise RuntimeError(
            "The default implementation of __deepcopy__() for wrapper subclasses only works for subclass types that "
            f"properly implement clone(): that of {type(x).__name__} returned a {type(made).__name__}"
        )
    return made


@method
def __copy__(self: Tensor) -> Tensor:
    made = retyped(alias(self), type(self)) if type(self) is not Tensor else alias(self)
    made._rg = self._rg
    take_state(made, self._state())
    return made
