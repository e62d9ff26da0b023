"""Dual tensors: a value and its tangent, for forward mode.

An operator on them is the derived operator with tangents (`_engine.functorch.batched_operators`): value and tangent
come out of one graph.  Where an operator has a hand-written gradient, its transpose gives the tangent, so both modes
choose alike at corners.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from rushlight._engine.core.describe import describe
from rushlight._engine.core.state import new_plan_table
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.dispatch.plans.bind import bind, flatten
from rushlight._engine.dispatch_types.base import make_dispatch_tensor
from rushlight._engine.functorch.aliasing import Windows, join, leave, link, relatives, without_grad
from rushlight._engine.functorch.batched import BatchedTensor, batched, check_result, in_front, kept, peeled, widen
from rushlight._engine.functorch.batched_operators import tangent_operator
from rushlight._engine.functorch.level_calls import are_looked_on, level_call
from rushlight._engine.functorch.transformed import (
    LEVELS,
    Level,
    Transformed,
    check_captured,
    rewrap,
    table_function,
    tensors_in,
    top_level,
)
from rushlight._ops.table import Operator
from rushlight._types.spec import Spec

__all__ = ["DualTensor", "become_dual", "dual", "parts"]


class DualTensor(Transformed):
    """A value (`primal`) and its derivative along a direction (`tangent`)."""

    __slots__ = ()

    backend = "FuncTorchDual"
    level_name = "jvp"

    @classmethod
    def no_out(cls, name: str) -> Exception:
        """The error for `out=` in forward mode."""
        return NotImplementedError(
            f"Trying to use forward AD with {name}_out that does not support it because it is an out= function"
        )

    primal: Tensor
    tangent: Tensor

    def over(self, *insides: Tensor) -> Any:
        primal, tangent = insides
        return dual(primal, tangent, self.level)

    @property
    def inside(self) -> Tensor:
        return self.primal

    @property
    def insides(self) -> tuple[Tensor, ...]:
        return self.primal, self.tangent

    @classmethod
    def operate(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not any(parts(t, level) for t in tensors_in((args, kwargs))):
            return make_function(Caller(op))(*args, **kwargs)
        if op.kind == "view":
            return _view(level, op, args, kwargs)
        if are_looked_on((args, kwargs)):
            return cls.as_one_call(level, op, args, kwargs)
        template, tensors, numbers = flatten(op, bind(op, op.schema.name, args, kwargs))
        pairs = [parts(t, level) for t in tensors]
        function, moved, wrap = _derived(op, template, tensors, tuple(p is not None for p in pairs))
        given = [t if p is None else p[0] for t, p in zip(tensors, pairs, strict=True)]
        made = function([*given, *[p[1] for p in pairs if p is not None]], *numbers)
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        tangents = iter(results[len(moved) :])
        values = [_settled(r, given) for r in results[: len(moved)]]
        items = tuple(dual(r, next(tangents), level) if flag else r for r, flag in zip(values, moved))
        if op.schema.returns_list or len(items) > 1:
            return items if wrap is None else wrap(items)
        return items[0]

    @classmethod
    def as_one_call(cls, level: int, called: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tangents: list[Any] = []

        def primal(x: Any) -> Any:
            found = parts(x, level)
            if found is None:
                return None
            tangents.append(found[1])
            return found[0]

        call, leaves = level_call(cls, called, args, kwargs, primal)
        made = call(*leaves, *tangents)
        half = len(made) // 2
        items = [m if t is None else dual(m, t, level) for m, t in zip(made[:half], made[half:], strict=True)]
        if isinstance(called, Operator) and not called.schema.returns_list and half == 1:
            return items[0]
        wrap = Caller(called).result if isinstance(called, Operator) else None
        return tuple(items) if wrap is None else wrap(items)

    @classmethod
    def under_level(cls, call: Any, leaves: Sequence[Any]) -> Any:
        tangents = iter(leaves[len(call.mask) :])
        with Level("jvp") as level:
            given = [dual(x, next(tangents), level.number) if m else x for x, m in zip(leaves, call.mask, strict=False)]
            made = call.with_leaves(given)
            outs = [made] if isinstance(made, Tensor) else list(made)
            pairs = [parts(x, level.number) or (x, None) for x in outs]
        return (*[p for p, _ in pairs], *[t for _, t in pairs])

    @classmethod
    def in_place(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        target, *rest = args
        check_captured(target, op.name + "_")
        made = cls.operate(level, op, (kept(target, rest), *rest), kwargs)
        check_result(made, target)
        target.copy_(made)
        return target

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if not any(level.kind == "dual" and level.number == self.level for level in LEVELS.stack):
            inner = "\n".join("    " + line for line in repr(self.primal).split("\n"))
            return f"GradTrackingTensor(lvl={self.level}, value=\n{inner}\n)"
        return describe(self.primal, tangent=f"{self.tangent}")


def dual(primal: Tensor, tangent: Tensor, level: int) -> Any:
    """A dual tensor of a value and a tangent of the same shape.  Higher levels that they belong to stay outside."""
    top = top_level([primal, tangent])
    if top is not None and top.level > level:
        if isinstance(top, DualTensor):
            first, second = parts(primal, top.level), parts(tangent, top.level)
            first, second = first or (primal, _zeros(primal)), second or (tangent, _zeros(tangent))
            return dual(dual(first[0], second[0], level), dual(first[1], second[1], level), top.level)
        size = top.value.shape[0]
        return batched(dual(in_front(primal, top.level, size), in_front(tangent, top.level, size), level), top.level)
    made = make_dispatch_tensor(DualTensor, primal._spec)
    made.primal, made.tangent, made.level = primal, tangent, level
    if level <= len(LEVELS.stack) and LEVELS.stack[level - 1].kind == "dual":
        _remember(made)
    return made


def parts(x: Any, level: int) -> tuple[Any, Any] | None:
    """(primal, tangent) of `x` at this level, also inside higher levels; None if it has no tangent there."""
    if not isinstance(x, Transformed) or x.level < level:
        return None
    if isinstance(x, DualTensor):
        if x.level == level:
            return x.primal, x.tangent
        first, second = parts(x.primal, level), parts(x.tangent, level)
        if first is None and second is None:
            return None
        first, second = first or (x.primal, _zeros(x.primal)), second or (x.tangent, _zeros(x.tangent))
        return dual(first[0], second[0], x.level), dual(first[1], second[1], x.level)
    assert isinstance(x, BatchedTensor)
    found = parts(x.value, level)
    return None if found is None else (batched(found[0], x.level), batched(found[1], x.level))


def _zeros(x: Tensor) -> Tensor:
    return x.new_zeros(tuple(x.shape))


def _still(x: Tensor, shape: tuple[int, ...], like: Tensor) -> Any:
    """A tangent of zeros for `x`, batched as the tangent `like` is."""
    if isinstance(like, BatchedTensor):
        return batched(_still(x, (like.value.shape[0], *shape), like.value), like.level)
    return x.new_zeros(shape)


def _settled(value: Any, given: Sequence[Tensor]) -> Any:
    """A result without the batches that only tangents have: computed from `given`, it is equal for all of their items.

    So in-place operators may write to it, and write it to tensors without a batch.
    """
    while (
        isinstance(value, BatchedTensor) and value.value.shape[0] and all(peeled(t, value.level) is None for t in given)
    ):
        value = value.value[0]
    return value


def _view(level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The same view of the value and of the tangent, so that writes through it reach both."""
    function = make_function(Caller(op))

    def side(k: int) -> Any:
        def pick(t: Any) -> Any:
            found = parts(t, level)
            return t if found is None else found[k]

        return function(*rewrap(pick, tuple(args)), **rewrap(pick, dict(kwargs)))

    made = paired(side(0), side(1), level)
    if isinstance(args[0] if args else None, DualTensor) and args[0].level == level:
        link(args[0], made)
    return made


def paired(primals: Any, tangents: Any, level: int) -> Any:
    """Results and their tangents as dual tensors."""
    if isinstance(primals, Tensor):
        floats = primals.dtype.is_floating_point or primals.dtype.is_complex
        return dual(primals, tangents, level) if floats and tangents is not None else primals
    items = [paired(p, t, level) for p, t in zip(primals, tangents, strict=True)]
    return type(primals)(*items) if hasattr(primals, "_fields") else type(primals)(items)


def become_dual(x: Tensor, level: int, like: Tensor) -> None:
    """Give a tensor a tangent of zeros, in place, before a value with the tangent `like` is written to it.

    All views of the same memory get views of the same tangent.
    """
    worn = {id(made.primal) for made in [reference() for reference in MADE.values()] if made is not None}
    members = [m for m in relatives(x) if m is x or id(m) not in worn]
    windows = Windows(members)
    flat = without_grad(lambda: _still(x, (windows.span,), like))

    def contents(member: Tensor, held: Tensor) -> dict[str, Any]:
        return {"primal": held, "tangent": windows.shown(flat, held), "level": level}

    join(members, DualTensor, contents)
    for member in members:
        if LEVELS.stack[level - 1].kind == "dual":
            _remember(member)


def _follow(tangent: Tensor, like: Tensor) -> None:
    """Add to a tangent the batches of the tangent that is about to be written to it."""
    while isinstance(like, Transformed):
        if isinstance(like, BatchedTensor) and peeled(tangent, like.level) is None:
            widen(tangent, like.level, like.value.shape[0])
        like = like.below


# Living dual tensors of a `forward_ad` level, by identity; they become plain tensors when the level ends.
MADE: dict[int, Any] = {}


def _remember(x: Any) -> None:
    key = id(x)
    MADE[key] = weakref.ref(x, lambda _: MADE.pop(key, None))


def become_plain(level: int) -> None:
    """Remove the tangents of a level: its dual tensors become their values."""
    made = [
        found
        for found in [reference() for reference in MADE.values()]
        if found is not None and getattr(found, "level", None) == level
    ]
    MADE.clear()
    leave([(x, x.primal) for x in made if not isinstance(x.primal, Transformed)])


_ROWS: dict[int, Any] = {}


def _derived(
    op: Any, template: tuple[Any, ...], tensors: Sequence[Tensor], mask: tuple[bool, ...]
) -> tuple[Any, list[bool], Any]:
    """(the derived operator as a function, which results have tangents, the type of several results) for this kind of
    call.
    """
    floats = tuple(flag and (t.dtype.is_floating_point or t.dtype.is_complex) for t, flag in zip(tensors, mask))
    table = _ROWS.get(id(op))
    if table is None:
        table = _ROWS[id(op)] = (op, new_plan_table())
    specs = [t._spec for t in tensors]
    key = (template, mask, *specs)
    found = table[1].get(key)
    if found is None:
        row, moved = tangent_operator(op, template, [Spec.of(s.dtype, s.device, s.shape) for s in specs], floats)
        found = table[1][key] = make_function(Caller(row)), moved, Caller(op).result
    return found


# ***** what is not an operator of the table *****


@DualTensor.implements("copy_")
def _copy(level: int, function: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    check_captured(x, "copy_")
    given = parts(source, level)
    held = parts(x, level)
    if held is None:
        if given is None or not (x.dtype.is_floating_point or x.dtype.is_complex):
            x.copy_(source if given is None else given[0])
            return x
        become_dual(x, level, given[1])
        held = x.primal, x.tangent
    if given is None:
        held[0].copy_(source)
        held[1].zero_()
    else:
        held[0].copy_(given[0])
        _follow(held[1], given[1])
        held[1].copy_(given[1])
    return x


@DualTensor.implements("__setitem__")
def _setitem(level: int, function: Any, x: Any, index: Any, value: Any) -> None:
    given = parts(value, level)
    if parts(x, level) is None and given is not None:
        become_dual(x, level, given[1])
    Transformed.handlers["__setitem__"](level, function, x, index, value)


@DualTensor.implements("detach", "data")
def _detach(level: int, function: Any, x: Any) -> Any:
    return x.primal.detach()


@DualTensor.implements("detach_")
def _detach_(level: int, function: Any, x: Any) -> Any:
    x.primal.detach_()
    x.tangent = _zeros(x.tangent)
    return x


@DualTensor.implements("requires_grad_")
def _requires_grad_(level: int, function: Any, x: Any, requires_grad: bool = True) -> Any:
    if any(each.kind != "dual" for each in LEVELS.stack):
        return Transformed.handlers["requires_grad_"](level, function, x, requires_grad)
    x.primal.requires_grad_(requires_grad)
    return x


@DualTensor.implements("zero_")
def _zero(level: int, function: Any, x: Any) -> Any:
    x.primal.zero_()
    x.tangent.zero_()
    return x


@DualTensor.implements("fill_")
def _fill(level: int, function: Any, x: Any, value: Any) -> Any:
    return x.copy_(value)


@DualTensor.implements(
    "item", "__float__", "__int__", "__complex__", "__index__", "__bool__", "is_nonzero", "__contains__", "equal", "allclose", "nonzero", "argwhere",
    "stride", "storage_offset", "is_contiguous", "dim_order", "tolist", "numpy", "numpy_of", "bincount", "histc",
)  # fmt: skip
def _by_value(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    """A handler for functions that look at the value alone."""

    def value(t: Any) -> Any:
        found = parts(t, level)
        return t if found is None else found[0]

    return function(*rewrap(value, tuple(args)), **rewrap(value, kwargs))


@DualTensor.implements("type")
def _type(level: int, function: Any, x: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    return x.primal.type() if dtype is None else x.to(dtype)


@DualTensor.implements("real", "imag")
def _part(level: int, function: Any, x: Any) -> Any:
    name = function.__name__
    made = dual(getattr(x.primal, name), getattr(x.tangent, name), level)
    link(x, made)
    return made


@DualTensor.implements("view_as_real", "view_as_complex")
def _pairs(level: int, function: Any, x: Any) -> Any:
    made = dual(function(x.primal), function(x.tangent), level)
    link(x, made)
    return made


@DualTensor.implements("as_strided")
def _as_strided(level: int, function: Any, x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """The same window of the tangent, which is copied to the layout of the value if it has another."""
    primal, tangent = x.primal, x.tangent
    if tangent.stride() != primal.stride():
        windows = Windows([primal])
        flat = without_grad(lambda: _still(primal, (windows.span,), tangent))
        tangent = windows.shown(flat, primal).copy_(tangent) if primal.numel() else tangent
    step = 0 if storage_offset is None else storage_offset - primal.storage_offset()
    made = dual(
        function(primal, size, stride, storage_offset),
        function(tangent, size, stride, tangent.storage_offset() + step),
        level,
    )
    link(x, made)
    return made


@DualTensor.implements("matrix_exp")
def _matrix_exp(level: int, function: Any, input: Any) -> Any:
    """exp([[A, E], [0, A]]) = [[exp A, its derivative along E], [0, exp A]] (Higham, "Functions of matrices", section
    3.2).
    """
    primal, tangent, n = input.primal, input.tangent, input.shape[-1]
    join = table_function("cat")
    whole = function(join([join([primal, tangent], -1), join([primal * 0, primal], -1)], -2))
    return dual(whole[..., :n, :n], whole[..., :n, n:], level)


@DualTensor.implements("masked_select")
def _masked_select(level: int, function: Any, x: Any, mask: Any) -> Any:
    found = parts(x, level)
    return function(x, mask) if found is None else dual(function(found[0], mask), function(found[1], mask), level)


__all__ += ["MADE", "become_plain", "paired"]
