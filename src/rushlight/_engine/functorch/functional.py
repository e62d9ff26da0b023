"""Functional tensors: `functionalize` passes them to the function that it runs, so that no operator changes or shares
memory.

A `FunctionalTensor` holds a value that is replaced when the program changes it in place.  A view knows its parent and
how to make itself from it: writing to the view computes a new value of the parent, and reading the view after the
parent has changed makes it again.  The values inside take part only in operators that return new tensors (and, where
allowed, in views that are never written).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.core.describe import describe
from rushlight._engine.core.hooks import OPS
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.dispatch_types.base import call_name, make_dispatch_tensor
from rushlight._engine.functorch.batched import BatchedTensor, batched, check_result
from rushlight._engine.functorch.dual import dual
from rushlight._engine.functorch.transformed import LEVELS, Transformed, rewrap, table_function, tensors_in
from rushlight._types.dtype import BOOL, INT64, UINT8

__all__ = ["FunctionalTensor", "functional", "value_below", "value_of"]


class FunctionalTensor(Transformed):
    """A tensor whose in-place changes replace its value."""

    __slots__ = ()

    backend = "Functionalize"
    held: Any
    parent: FunctionalTensor | None
    remake: Callable[[Any], Any]  # from the parent's value to this one's
    version: int  # of the root: how often it was written
    seen: int  # the root's version when `held` was made

    @property
    def root(self) -> FunctionalTensor:
        """The base of this view; a tensor that is no view itself."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    @property
    def inside(self) -> Tensor:
        return value_of(self)

    def write(self, value: Any) -> None:
        """Replace the value of this tensor, and with it that of all tensors that share its memory."""
        if value.dtype is not self.dtype:
            value = table_function("to_dtype")(value, self.dtype)
        if self.parent is not None:
            self.parent.write(_scattered(value_of(self.parent), self.remake, value))
        root = self.root
        root.version += 1
        self.held, self.seen = value, root.version

    @classmethod
    def at_level(cls, level: int, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        out = kwargs.get("out")
        if out is not None:
            return _into(function, args, {k: v for k, v in kwargs.items() if k != "out"}, out)
        return super().at_level(level, function, args, kwargs)

    @classmethod
    def operate(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        function = make_function(Caller(op))
        if op.kind == "view" and isinstance(args[0] if args else None, FunctionalTensor):
            return _view(level, op, function, args, kwargs)
        return _run(level, function, args, kwargs)

    @classmethod
    def in_place(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        target = args[0]
        if not isinstance(target, FunctionalTensor):
            raise RuntimeError(
                f"functionalize: {op.name}_ would change a tensor from outside of the function with values from inside; pass that tensor as an argument"
            )
        made = _inner(level, make_function(Caller(op)), args, kwargs)
        check_result(made, target)
        target.write(made)
        return target

    @classmethod
    def otherwise(cls, function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        body = getattr(function, "__wrapped__", None)
        if body is not None and not hasattr(function, "touches_memory") and not hasattr(body, "reads_elements"):
            return body(*args, **kwargs)
        level = next(t.level for t in _functionals((args, kwargs)))
        if name.endswith("_") and not name.startswith("__") and isinstance(args[0], FunctionalTensor):
            fresh = table_function("clone_core")(value_of(args[0]))  # nobody else sees what is changed here
            _inner(level, function, (fresh, *args[1:]), kwargs)
            args[0].write(fresh)
            return args[0]
        return _run(level, function, args, kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"FunctionalTensor(lvl={self.level}, value=\n    {describe(value_of(self))})"


def functional(value: Any, level: int, parent: FunctionalTensor | None = None, remake: Any = None) -> Any:
    """A functional tensor of this level with this value, or a view of `parent`.  Higher levels that the value belongs
    to stay outside.
    """
    if isinstance(value, Transformed) and value.level >= level:
        return value if isinstance(value, FunctionalTensor) else _below(value, level, functional)
    made = make_dispatch_tensor(FunctionalTensor, value._spec)
    made.held, made.level, made.parent, made.remake, made.version = value, level, parent, remake, 0
    made.seen = made.root.version
    return made


def value_of(x: Any) -> Any:
    """The present value of a functional tensor; anything else as it is."""
    if not isinstance(x, FunctionalTensor):
        return x
    if x.parent is not None and x.seen != x.root.version:
        x.held, x.seen = x.remake(value_of(x.parent)), x.root.version
    return x.held


def value_below(x: Any, level: int) -> Any:
    """`x` with functional tensors of this level replaced by their values, also inside higher levels."""
    if isinstance(x, FunctionalTensor):
        return value_of(x) if x.level == level else x
    return _below(x, level, value_below) if isinstance(x, Transformed) and x.level > level else x


def _below(x: Any, level: int, change: Callable[[Any, int], Any]) -> Any:
    """A batched or dual tensor with `function` applied to the tensors inside."""
    if isinstance(x, BatchedTensor):
        return batched(change(x.value, level), x.level)
    return dual(change(x.primal, level), change(x.tangent, level), x.level)


def _functionals(values: Any) -> list[FunctionalTensor]:
    found: list[FunctionalTensor] = []
    rewrap(lambda t: found.append(t) if isinstance(t, FunctionalTensor) else None, list(values))
    return sorted(found, key=lambda t: -t.level)


def _inner(level: int, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run the call on the values inside."""

    def pick(t: Any) -> Any:
        return value_of(t) if isinstance(t, FunctionalTensor) and t.level == level else t

    return function(*rewrap(pick, tuple(args)), **rewrap(pick, dict(kwargs)))


def _run(level: int, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    given = {id(value_of(t)): t for t in _functionals((args, kwargs))}
    made = _inner(level, function, args, kwargs)
    return rewrap(lambda t: given[id(t)] if id(t) in given else functional(t, level), made)


def _into(function: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    """`out=`: the result becomes the value of the given tensor."""
    made = function(*args, **kwargs)
    pairs = zip(out, made, strict=True) if isinstance(out, (tuple, list)) else [(out, made)]
    for target, result in pairs:
        if not isinstance(target, FunctionalTensor):
            raise RuntimeError(
                "functionalize: a tensor from outside of the function was given as out=; pass it as an argument"
            )
        target.write(value_of(result))
        target._spec = value_of(result)._spec if target.parent is None else target._spec
    return out


def _view(level: int, op: Any, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A view as a functional tensor: its value, and the function that makes it again."""
    parent, copies = args[0], LEVELS.stack[level - 1].randomness == "copies"
    rest = rewrap(value_of, (tuple(args[1:]), dict(kwargs)))

    def whole(value: Any) -> Any:
        made = function(value, *rest[0], **rest[1])
        return rewrap(table_function("clone_core"), made) if copies else made

    seen = function(value_of(parent), *rest[0], **rest[1])
    if isinstance(seen, Tensor):
        return functional(whole(value_of(parent)) if copies else seen, level, parent, whole)
    parts = []
    for k, part in enumerate(seen):

        def one(value: Any, k: int = k) -> Any:
            return whole(value)[k]

        parts.append(functional(one(value_of(parent)) if copies else part, level, parent, one))
    return tuple(parts) if isinstance(seen, tuple) else parts


def _scattered(value: Any, remake: Callable[[Any], Any], part: Any) -> Any:
    """`value` with `part` written at the elements that a view shows."""
    word = STATE.word
    STATE.word = word & ~GRAD
    try:
        numbers = _count(value).reshape(tuple(value.shape))
        places = remake(numbers).reshape(-1)
    finally:
        STATE.word = word
    return table_function("scatter")(value.reshape(-1), 0, places, part.reshape(-1)).reshape(tuple(value.shape))


def _count(value: Any) -> Any:
    ones = OPS["zeros"]((value.numel(),), dtype=INT64, device=value.device) + 1
    return table_function("cumsum")(ones, 0) - 1


# ***** what is not an operator of the table *****


@FunctionalTensor.implements("copy_")
def _copy(level: int, function: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(x, FunctionalTensor):
        raise RuntimeError(
            "functionalize: copy_ would change a tensor from outside of the function; pass that tensor as an argument"
        )
    made = value_of(source)
    if not isinstance(made, Tensor):
        made = value_of(x).new_full((), made)
    x.write(table_function("clone_core")(made.to(x.dtype).expand(x.shape)))
    return x


@FunctionalTensor.implements("__getitem__")
def _getitem(level: int, function: Any, x: Any, index: Any) -> Any:
    if _by_mask(index) or not isinstance(x, FunctionalTensor):
        return _run(level, function, (x, index), {})
    return Transformed.handlers["__getitem__"](level, function, x, index)


@FunctionalTensor.implements("__setitem__")
def _setitem(level: int, function: Any, x: Any, index: Any, value: Any) -> None:
    if not isinstance(x, FunctionalTensor):
        raise RuntimeError(
            "functionalize: an assignment would change a tensor from outside of the function; pass that tensor as an argument"
        )
    if not _by_mask(index):
        Transformed.handlers["__setitem__"](level, function, x, index, value)
        return
    places = index if isinstance(index, tuple) else (index,)
    held = value_of(x)
    if all(isinstance(i, Tensor) for i in places):
        given = value_of(value) if isinstance(value, Tensor) else held.new_full((), value)
        x.write(held.index_put(tuple([value_of(i) for i in places]), given.to(x.dtype)))
        return
    fresh = table_function("clone_core")(held)  # nobody else sees what is changed here
    _inner(level, function, (fresh, index, value), {})
    x.write(fresh)


def _by_mask(index: Any) -> bool:
    return any(t.dtype in (BOOL, UINT8) for t in tensors_in(index if isinstance(index, tuple) else (index,)))


@FunctionalTensor.implements("zero_")
def _zero(level: int, function: Any, x: Any) -> Any:
    x.write(value_of(x).new_zeros(tuple(x.shape)))
    return x


@FunctionalTensor.implements("fill_")
def _fill(level: int, function: Any, x: Any, value: Any) -> Any:
    return x.copy_(value)


@FunctionalTensor.implements(
    "item",
    "__float__",
    "__int__",
    "__bool__",
    "__index__",
    "__complex__",
    "tolist",
    "numpy",
    "is_nonzero",
    "equal",
    "allclose",
)
def _read(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    return _inner(level, function, args, kwargs)


@FunctionalTensor.implements("stride", "storage_offset", "is_contiguous")
def _layout(level: int, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    name = call_name(function)
    if name == "stride":
        return x._spec.strides if not args and not kwargs else x._spec.strides[args[0] if args else kwargs["dim"]]
    return x._spec.contiguous if name == "is_contiguous" else 0
