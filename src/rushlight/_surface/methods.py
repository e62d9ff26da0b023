"""Tensor methods and functions that are not rows of the operator table: sizes, flags, autograd, properties."""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from rushlight._base.errors import warn_once
from rushlight._base.lazy import LazyModule
from rushlight._base.trace_marks import ADDRESS, ADDS_HOOK, breaks_trace, changes_later_calls, tells_offset
from rushlight._base.tracebacks import shorten
from rushlight._engine.autograd import api
from rushlight._engine.autograd.hooks import retain
from rushlight._engine.core import convert
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.integers import as_flag, as_int, as_ints, is_numpy_scalar, number_in_range, numpy_number
from rushlight._engine.core.memory import is_host_memory, own
from rushlight._engine.core.memory import is_pinned as memory_is_pinned
from rushlight._engine.core.state import FUNCTION_MODE, STATE, TRANSFORMS, clear_plans
from rushlight._engine.core.tensor import Tensor, check_unchanged, meta_of, plain_classes
from rushlight._engine.dispatch.plans.native_lookup import RUNS, make_cached, not_cacheable
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._ops.forms import forms
from rushlight._surface.registry import SPACES, composite, guarded
from rushlight._types.dtype import DType
from rushlight._types.formats import FORMATS, STRIDED, MemoryFormat
from rushlight._types.layout import Size, memory_order
from rushlight._types.layout import broadcast_shapes as common
from rushlight._types.promotion import number_dtype
from rushlight._types.promotion import result_type as promote
from rushlight._types.promotion import set_default_dtype as set_default

handles: Any = LazyModule("rushlight._base.handles")

__all__: list[str] = []


def method(function: Any) -> Any:
    """Put a plain function on Tensor under its own name."""
    setattr(Tensor, function.__name__, function)
    return function


def name_methods() -> None:
    """Let pickle find methods that are plain functions where they are: on the class."""
    functions = SPACES["torch"]
    for name, value in list(vars(Tensor).items()):
        if isinstance(value, FunctionType) and value.__module__.startswith("rushlight._"):
            word = value.__name__
            # A function of the package, which knows its place now
            shared = functions.made.get(word) is value and functions[word] is value
            if not shared:
                value.__module__, value.__qualname__ = "rushlight", f"Tensor.{name}"


def both(function: Any) -> Any:
    """A method that is also a function of the package; of the method, classes with a say have a form of their own that
    asks them.
    """
    setattr(Tensor, function.__name__, function)

    @functools.wraps(function)
    def public(input: Any, *args: Any, **kwargs: Any) -> Any:
        if (type(input) not in plain_classes or STATE.word & FUNCTION_MODE) and not isinstance(input, DispatchType):
            handled, made = HOOKS.override(shown[0], (input, *args), kwargs)
            if handled:
                return made
        return function(input, *args, **kwargs)

    shown = public.shown = [public]  # type: ignore[attr-defined]
    public.guards = FUNCTION_MODE, True  # type: ignore[attr-defined]
    SPACES["torch"].defer(function.__name__, lambda _: guarded(public), "")
    return function


# ***** what it is *****

_item = tuple.__getitem__


@method
@forms("(self: Tensor) -> Size", "(self: Tensor, dim: int) -> int")
def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or one of its sizes."""
    shape = self._spec.shape
    if dim is None:
        return shape
    if type(dim) is not int:
        dim = as_int("size", "dim", dim)
    try:
        return _item(shape, dim)
    except IndexError:
        n = len(shape)
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
            if n
            else "Dimension specified as 0 but tensor has no dimensions"
        ) from None


@method
@forms("(self: Tensor) -> tuple[int, ...]", "(self: Tensor, dim: int) -> int")
def stride(self: Tensor, dim: int | None = None) -> Any:
    """Steps between neighbours in each dim, in elements."""
    if dim is None:
        return self._spec.strides
    return self._spec.strides[dim + self._spec.ndim if dim < 0 else dim]


@method
def dim(self: Tensor) -> int:
    """Number of dims."""
    return self._spec.ndim


Tensor.ndimension = dim  # type: ignore[attr-defined]


@both
def numel(input: Tensor) -> int:
    """Number of elements."""
    return input._spec.numel


Tensor.nelement = numel  # type: ignore[attr-defined]


@method
def element_size(self: Tensor) -> int:
    """Bytes of one element."""
    return self._spec.dtype.itemsize


@method
@tells_offset
def storage_offset(self: Tensor) -> int:
    """Where the first element lies in the storage, in elements."""
    step = self._ptr - self._storage.ptr if self._storage is not None else 0
    return step and step // self._spec.dtype.itemsize


@method
@breaks_trace(ADDRESS)
def data_ptr(self: Tensor) -> int:
    """Address of the first element, where it may be written; 0 for tensors without memory."""
    if HOOKS.lazy_clones:
        own(self)
    return self._ptr if self._spec.numel else 0


_CONTIGUOUS = FORMATS["contiguous_format"]


@method
def is_contiguous(self: Tensor, memory_format: MemoryFormat = _CONTIGUOUS) -> bool:
    """Whether the elements lie in this order without gaps."""
    if memory_format is _CONTIGUOUS:
        return self._spec.contiguous
    return convert.is_in_format(self._spec, convert.format_name(memory_format))


@both
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating point one."""
    return input._spec.dtype.is_floating_point


@both
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input._spec.dtype.is_complex


@both
def is_signed(input: Tensor) -> bool:
    """Whether the dtype holds negative numbers."""
    return input._spec.dtype.is_signed


@both
def is_nonzero(input: Tensor) -> bool:
    """The truth of a tensor with one element."""
    return bool(input)


@both
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are equal."""
    return input.shape == other.shape


@both
def is_conj(input: Tensor) -> bool:
    """Whether the memory holds the conjugates of the elements: true of `x.conj()` and of its views."""
    return input._spec.conj and input._spec.dtype.is_complex


@both
def is_neg(input: Tensor) -> bool:
    """Whether the memory holds the negatives of the elements: true of `x.conj().imag` and of its views."""
    return input._spec.conj and not input._spec.dtype.is_complex


@both
def is_inference(input: Tensor) -> bool:
    """Whether it was made in inference mode."""
    return input._autograd_meta is not None and input._autograd_meta.inference


@method
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same window on the same memory."""
    if HOOKS.lazy_clones:
        own(self)
    return self._ptr == tensor._ptr and self._spec is tensor._spec


@method
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the memory is pinned for an accelerator; False on other devices than the CPU."""
    return self._storage is not None and is_host_memory(self._spec) and memory_is_pinned(self._storage)


def _is_view(self: Tensor) -> bool:
    return self._autograd_meta is not None and self._autograd_meta.base is not None


def _is_zerotensor(self: Tensor) -> bool:
    """False: every tensor here has memory of its own."""
    return False


Tensor._is_view = _is_view  # type: ignore[attr-defined]
Tensor._is_zerotensor = _is_zerotensor  # type: ignore[attr-defined]

for _flag in (
    "is_sparse",
    "is_sparse_csr",
    "is_quantized",
    "is_mkldnn",
    "is_mps",
    "is_xpu",
    "is_nested",
    "is_vulkan",
    "is_ipu",
    "is_hpu",
    "is_maia",
    "is_mtia",
    "is_xla",
):
    setattr(Tensor, _flag, False)
Tensor.is_meta = property(lambda self: self._spec.device.type == "meta")  # type: ignore[attr-defined]
Tensor.is_cuda = property(lambda self: self._spec.device.type == "cuda")  # type: ignore[attr-defined]
Tensor.is_cpu = property(lambda self: self._spec.device.type == "cpu")  # type: ignore[attr-defined]
Tensor.layout = property(lambda self: STRIDED)  # type: ignore[attr-defined]
Tensor.retains_grad = property(lambda self: self._autograd_meta is not None and self._autograd_meta.retains)  # type: ignore[attr-defined]
Tensor.name = property(lambda self: self._autograd_meta.name if self._autograd_meta is not None else None)  # type: ignore[attr-defined]


@method
def dim_order(self: Tensor, *, ambiguity_check: bool | list[Any] = False) -> tuple[int, ...]:
    """Dims from outermost to innermost in memory.

    `ambiguity_check=True` refuses, with a RuntimeError, a tensor whose dims could as well be put in another order (dims
    of one element, dims that share a stride); a list of memory formats accepts one that is in exactly one of these
    formats.

    >>> import rushlight as torch
    >>> torch.empty(2, 3, 5, 7).to(memory_format=torch.channels_last).dim_order(ambiguity_check=True)
    (0, 2, 3, 1)
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(isinstance(each, MemoryFormat) for each in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    if ambiguity_check is not False and sum(self.is_contiguous(memory_format=each) for each in formats) != 1:
        if 1 in self._spec.shape or len(set(self._spec.strides)) < self._spec.ndim:
            raise RuntimeError(
                "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
            )
    return tuple(memory_order(self._spec.shape, self._spec.strides))


# ***** autograd *****


@method
@forms(
    "(self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Tensor | Sequence[Tensor] | None = None) -> None"
)
def backward(
    self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Add the gradient of this tensor with respect to the graph's leaves to their `.grad`."""
    try:
        api.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
    except BaseException as error:
        shorten(error)
        raise


@method
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set `requires_grad` in place."""
    active = TRANSFORMS.get("active")
    if active is not None and active():
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) inside of a function being "
            "transformed by a functorch transform. This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, "
            "hessian) or call requires_grad_() outside of a function being transformed instead."
        )
    if (
        requires_grad is self._rg
        and self._node is None
        and (not requires_grad or self._autograd_meta is None or not self._autograd_meta.creation)
    ):
        return self  # a leaf as it is
    wanted = as_flag("requires_grad_", "requires_grad", requires_grad)
    if wanted and not (self._spec.dtype.is_floating_point or self._spec.dtype.is_complex):
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    self.requires_grad = wanted
    return self


@method
def detach_(self: Tensor) -> Tensor:
    """Leave the graph in place."""
    if self._autograd_meta is not None and self._autograd_meta.base is not None:
        raise RuntimeError(
            "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and "
            "gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called on "
            "these gradients. To fix this error, please refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as the "
            "solution."
        )
    if self._node is not None and self._storage is not None:
        self._storage.relinked += 1  # nodes that saved it look where its history went
    self._node, self._rg = None, False
    if self._autograd_meta is not None:
        self._autograd_meta.output_nr = 0
    return self


@method
def retain_grad(self: Tensor) -> None:
    """Let this non-leaf keep its gradient."""
    if not self._rg:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    node = self._node
    if node is None:
        return
    if not meta_of(self).retains:
        retain(self)


@method
@forms("(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle")
@breaks_trace(ADDS_HOOK)
def register_hook(self: Tensor, hook: Any) -> Any:
    """`hook(grad)` runs when this tensor's gradient is ready and may replace it."""
    if not self._rg:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    meta = meta_of(self)
    if self._node is None:
        check_unchanged(self)
        if meta.hooks is None:
            meta.hooks = OrderedDict()
        target = meta.hooks
    else:
        extra = self._node._more()
        if extra.tensor_hooks is None:
            extra.tensor_hooks = {}
        target = extra.tensor_hooks.setdefault(meta.output_nr, OrderedDict())
    handle = handles.RemovableHandle(target)
    target[handle.id] = hook
    return handle


@method
@forms("(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle")
@breaks_trace(ADDS_HOOK)
def register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> Any:
    """`hook(tensor)` runs after the gradient was added to this leaf's `.grad`."""
    if not self._rg:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self._node is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    meta = meta_of(self)
    if meta.post_hooks is None:
        meta.post_hooks = OrderedDict()
    handle = handles.RemovableHandle(meta.post_hooks)
    meta.post_hooks[handle.id] = hook
    return handle


# ***** functions of the package *****


@composite("is_tensor", overridable=False)
def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


@composite("set_default_dtype", overridable=False)
@changes_later_calls
def set_default_dtype(d: DType) -> None:
    """Set the dtype that Python floats get."""
    set_default(d)
    SPACES["torch"]["Storage"] = SPACES["torch"][f"{d.scalar}Storage"]
    vars(sys.modules["rushlight"]).pop("Storage", None)  # the package keeps what it was asked for
    clear_plans()


@composite("result_type", overridable=False, cached=True)
@forms("(tensor: Tensor | Scalar, other: Tensor | Scalar) -> dtype")
def result_type(tensor: Any, other: Any) -> DType:
    """The dtype of an operation over two tensors or numbers."""
    tensors = [(t._spec.dtype, t._spec.ndim) for t in (tensor, other) if isinstance(t, Tensor)]
    numbers = [
        numpy_number(v) if is_numpy_scalar(v) else number_in_range(v)
        for v in (tensor, other)
        if not isinstance(v, Tensor)
    ]
    return promote(tensors, [number_dtype(v) for v in numbers])


@composite("broadcast_shapes", overridable=False)
@forms("(*shapes: int | Sequence[int]) -> Size")
def broadcast_shapes(*shapes: Sequence[int]) -> Size:
    """The common shape."""
    sizes = []
    for shape in shapes:
        if shape is None:
            continue
        if not isinstance(shape, (int, tuple, list)):
            raise RuntimeError(
                f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {type(shape).__name__}"
            )
        sizes.append((shape,) if isinstance(shape, int) else as_ints("broadcast_shapes", "shapes", shape))
        if any(n < 0 for n in sizes[-1]):
            raise ValueError(f"Attempting to broadcast a dimension with negative length! (shape {list(sizes[-1])})")
    held: tuple[int, ...] = ()
    for index, each in enumerate(sizes):
        for i in range(-1, -1 - min(len(held), len(each)), -1):
            if each[i] != held[i] and 1 not in (each[i], held[i]):
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {each[i]} at {i}! Mismatching argument at index {index} had {each}; "
                    f"but expected shape should be broadcastable to {list(held)}"
                )
        held = common(held, each)
    return Size(held)


def _warn_reduced(self: Tensor) -> Tensor:
    if not self._spec.ndim:
        not_cacheable()
        warn_once("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.")
    elif self._spec.ndim != 2:
        not_cacheable()
        warn_once(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an error in a future release. "
            "Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        )
    if RUNS.now is not None and self._spec.ndim == 2:
        return convert.call("permute", self, (1, 0))
    return self.permute(tuple(range(self._spec.ndim - 1, -1, -1)))


def _cached_property(name: str, get: Any) -> None:
    """A property that is a view: from its second reading on by plans that are kept.  It stays the same object:
    overrides know it by that.
    """

    def first(self: Tensor) -> Any:
        if made.fget is first:
            made.__init__(make_cached(get, ("self",)), doc=get.__doc__)  # type: ignore[misc]
        return get(self)

    made = property(first, doc=get.__doc__)
    setattr(Tensor, name, made)


_cached_property("T", _warn_reduced)


def _matrix_transpose(self: Tensor) -> Tensor:
    if not self._spec.ndim:
        not_cacheable()
        warn_once("Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases.")
    return _swap_last(self)


def _swap_last(self: Tensor) -> Tensor:
    if not self._spec.ndim:
        return self
    if self._spec.ndim < 2:
        raise RuntimeError(
            f"tensor.mT is only supported on matrices or batches of matrices. Got {self._spec.ndim}-D tensor."
        )
    if RUNS.now is not None:
        return convert.call("transpose", self, -2, -1)
    return self.transpose(-2, -1)


def _part(name: str) -> property:
    whole = name == "real"

    def get(self: Tensor) -> Tensor:
        if whole and type(self) is Tensor and not self._spec.dtype.is_complex:
            return self
        return SPACES["torch"][name](self)

    def put(self: Tensor, value: Any) -> None:
        convert.copy_(get(self), value)

    return property(get, put, doc=f"The {name} parts, as a view where the dtype is complex; assignment writes through.")


Tensor.real, Tensor.imag = _part("real"), _part("imag")  # type: ignore[attr-defined]
_cached_property("mT", _matrix_transpose)


def _transposed_conjugate(name: str) -> property:
    def get(self: Tensor) -> Tensor:
        ndim = self._spec.ndim
        if not ndim:
            warn_once(f"Tensor.{name} is deprecated on 0-D tensors. Consider using x.conj().")
        if name == "H" and ndim not in (0, 2):
            more = " For batches of matrices, consider using tensor.mH" if ndim > 2 else ""
            raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor.{more}")
        return _adjoint(self)

    return property(get)


def _adjoint(self: Tensor) -> Tensor:
    return _swap_last(self).conj() if self._spec.dtype.is_complex else _swap_last(self)


Tensor.H, Tensor.mH = _transposed_conjugate("H"), _transposed_conjugate("mH")  # type: ignore[attr-defined]
