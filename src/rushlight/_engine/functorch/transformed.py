"""Levels of function transforms, and tensors that belong to one.

`vmap`, `jvp` and `grad` each open a level while they run a function.  A tensor that takes part in a level has a
dispatch type: batched (`_engine.functorch.batched`) or dual (`_engine.functorch.dual`), around a tensor of the
levels below.  A call is answered by the highest level among its arguments, which calls derived operators on what is
inside; so levels nest in any order.  `grad` needs no such type: a fresh alias of its argument is all that the ordinary
engine wants.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

from rushlight._engine.core.convert import parse_to
from rushlight._engine.core.state import STATE, TRANSFORMS, VMAP, inherit
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.dispatch.inplace_calls import InplaceCaller, make_inplace
from rushlight._engine.dispatch_types.base import DispatchType, call_name
from rushlight._engine.indexing.indexing import split_index
from rushlight._host.dispatch_words import BIRTH, LEAST_BIRTH
from rushlight._host.runtime import runtime
from rushlight._ops.table import OPERATORS
from rushlight._types.dtype import BOOL, INT64, UINT8

__all__ = [
    "LEVELS",
    "Level",
    "Transformed",
    "check_captured",
    "inplace_function",
    "is_inplace",
    "rewrap",
    "root",
    "table_function",
    "tensors_in",
    "told_to_change",
    "top_level",
]


class Level:
    """A running transform: its number and kind, and for a batch its size and how random numbers are drawn.

    A batch is `uniform` if only tangents are batched.  All values that the running function sees are then equal for all
    items, so it may read them, branch on them, and write them to tensors without a batch.

    A function that is being differentiated may change in place the tensors it makes and its arguments `given`; without
    `given` it may change any.
    """

    __slots__ = ("before", "born", "given", "kind", "number", "randomness", "size", "uniform")

    def __init__(
        self,
        kind: str,
        size: int = 0,
        randomness: str = "error",
        uniform: bool = False,
        *,
        given: Sequence[Any] | None = None,
    ) -> None:
        self.kind, self.size, self.randomness, self.number, self.uniform = kind, size, randomness, 0, uniform
        self.given, self.born = given, 0

    def __enter__(self) -> Level:
        LEVELS.stack.append(self)
        self.number, self.before = len(LEVELS.stack), STATE.word
        if self.kind in ("vmap", "program"):
            STATE.word |= VMAP
        if self.given is not None:
            words = runtime().words
            words[BIRTH] += 1
            self.born = words[LEAST_BIRTH] = words[BIRTH]
        return self

    def __exit__(self, *exc: object) -> None:
        LEVELS.stack.pop()
        if self.given is not None:
            self.given = ()
            runtime().words[LEAST_BIRTH] = next((level.born for level in reversed(LEVELS.stack) if level.born), 0)
        STATE.word = STATE.word & ~VMAP | self.before & VMAP


def _memories(x: Any) -> list[Any]:
    """The storages of all tensors inside `x`; those of a dual tensor include its tangent's."""
    return [held for part in x.insides for held in _memories(part)] if isinstance(x, Transformed) else [x._storage]


def check_captured(x: Any, name: str = "") -> None:
    """RuntimeError if a function that is being differentiated would change a tensor that it neither made nor got as an
    argument.

    The effect would depend on how often the function runs, and its derivative would have no place to go.
    """
    stack = LEVELS.stack
    level = next((level for level in reversed(stack) if level.born), None) if stack else None
    if level is None or STATE.told_to_change:
        return
    storage = root(x)._storage
    if (
        storage is None
        or storage.born >= level.born
        or any(storage is held for t in level.given or () for held in _memories(t))
    ):
        return
    if level.kind == "program":
        raise RuntimeError(
            f"the program that is being recorded changes a tensor that it was not given{f' (aten::{name})' if name else ''}; give it as an argument"
        )
    raise RuntimeError(
        f"During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation{f' (aten::{name})' if name else ''} "
        "that would mutate a captured Tensor. This is not supported; please rewrite the function being transformed to explicitly accept the mutated "
        "Tensor(s) as inputs."
    )


@contextlib.contextmanager
def told_to_change() -> Iterator[None]:
    """Within this context `check_captured` allows every in-place change."""
    STATE.told_to_change += 1
    try:
        yield
    finally:
        STATE.told_to_change -= 1


def root(x: Any) -> Tensor:
    """The tensor with memory at the bottom of a transformed one."""
    while isinstance(x, Transformed):
        x = x.below
    return x


class _Levels(threading.local):
    def __init__(self) -> None:
        self.stack: list[Level] = []


LEVELS = _Levels()
inherit(LEVELS)
TRANSFORMS["captured"] = check_captured


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors among nested arguments."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


def top_level(values: Any) -> Transformed | None:
    """The transformed tensor of the highest level among nested arguments."""
    found: Transformed | None = None
    for value in tensors_in(values):
        if isinstance(value, Transformed) and (found is None or value.level > found.level):
            found = value
    return found


def rewrap(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply `function` to every tensor among nested arguments."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        items = [rewrap(function, v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: rewrap(function, v) for k, v in value.items()}
    return value


_FUNCTIONS: dict[str, Any] = {}
_INPLACE: dict[str, Any] = {}


def table_function(name: str) -> Any:
    """An operator of the table as a function that dispatches on types of tensors."""
    if name not in _FUNCTIONS:
        _FUNCTIONS[name] = make_function(Caller(OPERATORS[name]))
    return _FUNCTIONS[name]


def inplace_function(name: str) -> Any:
    """The in-place form of an operator of the table, which dispatches on types of tensors."""
    if name not in _INPLACE:
        _INPLACE[name] = make_inplace(InplaceCaller(Caller(OPERATORS[name])))
    return _INPLACE[name]


def is_inplace(function: Any) -> bool:
    """Whether this is the in-place form of an operator."""
    op = getattr(function, "operator", None)
    return op is not None and function.__name__.endswith("_") and not op.public.endswith("_")


class Transformed(DispatchType):
    """Base of batched and dual tensors."""

    __slots__ = ()

    rank: ClassVar[int] = 100  # asked before the types that say how elements are stored
    above_modes: ClassVar[bool] = True
    level_name: ClassVar[str] = ""  # with which the names of calls at a level begin
    level: int

    def over(self, *insides: Tensor) -> Any:
        """A tensor of the same level with other tensors inside."""
        raise NotImplementedError(f"{type(self).__name__} holds no tensors that could be replaced")

    @classmethod
    def answer(cls, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        top = top_level((args, kwargs))
        assert top is not None
        return type(top).at_level(top.level, function, args, kwargs)

    @classmethod
    def at_level(cls, level: int, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a call on tensors of this level: by a handler, by the derived operator, or by a composite's body."""
        name = call_name(function)
        if hasattr(function, "with_leaves"):  # one call of a level above
            return cls.as_one_call(level, function, args, {})
        if "out" in kwargs and kwargs["out"] is None:
            kwargs = {k: v for k, v in kwargs.items() if k != "out"}
        for each in cls.__mro__:
            handler = each.__dict__.get("handlers", {}).get(name) if issubclass(each, DispatchType) else None
            if handler is not None:
                return handler(level, function, *args, **kwargs)
        op = getattr(function, "operator", None)
        if op is None:
            return cls.otherwise(function, name, args, kwargs)
        if kwargs.get("out") is not None:
            raise cls.no_out(name)
        return cls.in_place(level, op, args, kwargs) if is_inplace(function) else cls.operate(level, op, args, kwargs)

    @classmethod
    def no_out(cls, name: str) -> Exception:
        """The error for `out=` at this level."""
        return RuntimeError(
            f"Batching rule not implemented for aten::{name}.out; the fallback path doesn't work on out= or view ops."
        )

    @classmethod
    def operate(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An operator of the table."""
        raise NotImplementedError

    @classmethod
    def as_one_call(cls, level: int, called: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An operator of the table, or a call of a level above, as one call that dispatch modes see."""
        raise NotImplementedError(f"{cls.__name__} cannot be part of a call that a dispatch mode sees")

    @classmethod
    def under_level(cls, call: Any, leaves: Sequence[Any]) -> Any:
        """Run a call that dispatch modes have seen: open a level, and call the function in it."""
        raise NotImplementedError

    @classmethod
    def in_place(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The in-place form of an operator of the table."""
        raise NotImplementedError

    @property
    def inside(self) -> Tensor:
        """The tensor inside that takes part in the graph."""
        raise NotImplementedError

    @property
    def below(self) -> Tensor:
        """The tensor inside whose memory this one shows."""
        return self.inside

    @property
    def insides(self) -> tuple[Tensor, ...]:
        """All tensors directly inside this one."""
        return (self.below,)

    @property  # type: ignore[misc]
    def requires_grad(self) -> bool:
        return self.inside.requires_grad

    @property
    def is_leaf(self) -> bool:
        return self.inside.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self.inside.grad_fn


# ***** what holds for every level: functions that are made of others *****


@Transformed.implements("__getitem__")
def _getitem(level: int, function: Any, x: Any, index: Any) -> Any:
    items, tensors = split_index(x, _checked(index))
    if items:
        x = table_function("basic_index")(x, items)
    return table_function("index")(x, tuple(d for d, _ in tensors), [t for _, t in tensors]) if tensors else x


def _checked(index: Any) -> Any:
    """The index with its transformed tensors as int64; a mask would give every item a shape of its own."""
    if isinstance(index, tuple):
        return tuple(_checked(i) for i in index)
    if isinstance(index, Transformed):
        if index.dtype in (BOOL, UINT8):
            raise RuntimeError(
                "vmap: We do not support batching operators that can support dynamic shape. Attempting to batch over indexing with a boolean mask."
            )
        return index if index.dtype is INT64 else index.long()
    return index


@Transformed.implements("__setitem__")
def _setitem(level: int, function: Any, x: Any, index: Any, value: Any) -> None:
    items, tensors = split_index(x, _checked(index))
    target = table_function("basic_index")(x, items)
    if tensors:
        value = value if isinstance(value, Tensor) else x.new_full((), value)
        put = inplace_function("index_put_core")
        put(target, tuple(d for d, _ in tensors), [t for _, t in tensors], value.to(x.dtype), False)
        return
    while isinstance(value, Tensor) and value.ndim > target.ndim and value.shape[0] == 1:
        value = value.squeeze(0)
    target.copy_(value)


@Transformed.implements("index_put")
def _index_put(level: int, function: Any, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    items, tensors = split_index(x, _checked(tuple(slice(None) if i is None else i for i in indices)))
    if any(i != ("s", None, None, 1) for i in items):
        made = x.clone()
        made.index_put_(indices, values, accumulate)
        return made
    return table_function("index_put_core")(
        x, tuple(d for d, _ in tensors), [t for _, t in tensors], values, accumulate
    )


@Transformed.implements("index_put_")
def _index_put_(level: int, function: Any, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    items, tensors = split_index(x, _checked(tuple(slice(None) if i is None else i for i in indices)))
    target = table_function("basic_index")(x, items)
    inplace_function("index_put_core")(
        target, tuple(d for d, _ in tensors), [t for _, t in tensors], values, accumulate
    )
    return x


@Transformed.implements("clone")
def _clone(level: int, function: Any, x: Any, *, memory_format: Any = None) -> Any:
    return table_function("clone_core")(x)


@Transformed.implements("contiguous", "resolve_conj", "resolve_neg", "cpu", "__pos__", "positive")
def _itself(level: int, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


@Transformed.implements("masked_scatter")
def _masked_scatter(level: int, function: Any, input: Any, mask: Any, source: Any) -> Any:
    """`masked_scatter` without counting the set elements of the mask."""
    return table_function("masked_scatter_core")(input, mask, source)[0]


@Transformed.implements("__iter__")
def _iterate(level: int, function: Any, x: Any) -> Any:
    if not x.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(x.unbind(0))


@Transformed.implements("__rtruediv__", "__rdiv__")
def _divided(level: int, function: Any, x: Any, other: Any) -> Any:
    return x.reciprocal() * other


@Transformed.implements("__invert__")
def _invert(level: int, function: Any, x: Any) -> Any:
    return table_function("bitwise_not")(x)


@Transformed.implements("T")
def _t(level: int, function: Any, x: Any) -> Any:
    return x.permute(*range(x.ndim - 1, -1, -1))


@Transformed.implements("mT")
def _mt(level: int, function: Any, x: Any) -> Any:
    return x.transpose(-2, -1)


@Transformed.implements("H", "mH")
def _mh(level: int, function: Any, x: Any) -> Any:
    return x.transpose(-2, -1).conj()


@Transformed.implements("to")
def _to(level: int, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    dtype, _, _, copy, _ = parse_to(*args, **kwargs)
    if dtype is not None and dtype is not x.dtype:
        return table_function("to_dtype")(x, dtype)
    return table_function("clone_core")(x) if copy else x


@Transformed.implements("type_as")
def _type_as(level: int, function: Any, x: Any, other: Any) -> Any:
    return x.to(other.dtype)


@Transformed.implements("_type", "type")
def _type(level: int, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return function(x, *args, **kwargs)  # a name, or calls of `to`


@Transformed.implements("conj")
def _conj(level: int, function: Any, x: Any) -> Any:
    return table_function("conj_physical")(x) if x.dtype.is_complex else x


@Transformed.implements("requires_grad_")
def _requires_grad(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) inside of a function being "
        "transformed by a functorch transform. This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, "
        "jacfwd, hessian) or call requires_grad_() outside of a function being transformed instead."
    )


@Transformed.implements("backward")
def _backward(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    refuse_backward()


def refuse_backward() -> NoReturn:
    """Raise for a backward inside of a transform."""
    raise RuntimeError(
        "backward() called inside a functorch transform. This is not supported, please use functorch.grad or functorch.vjp instead or call "
        "backward() outside of functorch transforms."
    )


@Transformed.implements(
    "data_ptr", "numpy", "numpy_of", "tolist", "untyped_storage", "storage", "__array__", "__dlpack__"
)
def _no_memory(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
