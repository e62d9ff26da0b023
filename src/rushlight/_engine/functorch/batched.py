"""Batched tensors: what `vmap` gives to the function that it runs.

A `BatchedTensor` shows one item of a batch; inside is the tensor with the batch in its first dim.  An operator on it is
the derived operator for the whole batch (`_engine.functorch.batched_operators`), so it is one kernel, views stay views
of the memory outside, and gradients flow on the tensors inside.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rushlight._engine.core.state import GRAD, STATE, new_plan_table
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.dispatch.plans.bind import bind, flatten
from rushlight._engine.dispatch_types.base import call_name, make_dispatch_tensor
from rushlight._engine.functorch.aliasing import Windows, families, join, link, without_grad
from rushlight._engine.functorch.batched_operators import batched_operator
from rushlight._engine.functorch.level_calls import are_looked_on, level_call
from rushlight._engine.functorch.transformed import (
    LEVELS,
    Level,
    Transformed,
    check_captured,
    rewrap,
    root,
    table_function,
    tensors_in,
)
from rushlight._types.layout import broadcast_shapes
from rushlight._types.promotion import can_cast
from rushlight._types.spec import Spec

__all__ = [
    "BatchedTensor",
    "batched",
    "for_all",
    "in_front",
    "kept",
    "levels_shared",
    "lifted",
    "peeled",
    "size_of_level",
]

NOT_BATCHED = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more elements than "
    "`self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. Please try to use out-of-place operators "
    "instead of inplace arithmetic. If said operator is being called inside the PyTorch framework, please file a bug report instead."
)


class BatchedTensor(Transformed):
    """One item of a batch; `value` holds all items along its first dim.

    `shared`: all items are known to be equal, because the tensor comes from an argument that a derivative repeated for
    each item.
    """

    __slots__ = ()

    backend = "FuncTorchBatched"
    level_name = "vmap"
    value: Tensor
    shared = False

    def over(self, *insides: Tensor) -> Any:
        (value,) = insides
        return batched(value, self.level)

    @property
    def inside(self) -> Tensor:
        return self.value

    @classmethod
    def operate(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not _reaches(level, args, kwargs):
            return make_function(Caller(op))(*args, **kwargs)
        if are_looked_on((args, kwargs)):
            return cls.as_one_call(level, op, args, kwargs)
        template, tensors, numbers = flatten(op, bind(op, op.schema.name, args, kwargs))
        function, wrap = _derived(op, template, tensors, level)
        values = [peeled(t, level) for t in tensors]
        given = [t if v is None else v for t, v in zip(tensors, values, strict=True)]
        made = function(given[0] if op.kind == "view" else given, *numbers)
        shared = all(is_shared(t, level) for t, v in zip(tensors, values, strict=True) if v is not None)
        items = tuple(
            [
                _item_of(m, level, op.kind == "view", shared)
                for m in (made if isinstance(made, (tuple, list)) else (made,))
            ]
        )
        first = tensors[0]
        if op.kind == "view" and isinstance(first, BatchedTensor) and first.level == level:
            link(first, items)
        if isinstance(made, (tuple, list)):
            return items if wrap is None else wrap(items)
        return items[0]

    @classmethod
    def as_one_call(cls, level: int, called: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        call, leaves = level_call(cls, called, args, kwargs, lambda x: peeled(x, level))
        shared = all(is_shared(x, level) for x in tensors_in((args, kwargs)) if peeled(x, level) is not None)
        made = rewrap(lambda x: batched(x, level, shared), call(*leaves))
        if call.operator.kind == "view" and isinstance(args[0], BatchedTensor) and args[0].level == level:
            link(args[0], tuple(tensors_in((made,))))
        return made

    @classmethod
    def under_level(cls, call: Any, leaves: Sequence[Any]) -> Any:
        size = next(x for x, marked in zip(leaves, call.mask, strict=True) if marked).shape[0]
        with Level("vmap", size) as level:
            given = [batched(x, level.number) if m else x for x, m in zip(leaves, call.mask, strict=True)]
            return rewrap(lambda x: in_front(x, level.number, size), call.with_leaves(given))

    @classmethod
    def in_place(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run an in-place operator as its out-of-place form and write the result through: views of the memory, and the
        graph, see it.
        """
        target, *rest = args
        check_captured(target, op.name + "_")
        _check_target(target, level, (rest, kwargs))
        made = cls.operate(level, op, (kept(target, rest), *rest), kwargs)
        check_result(made, target)
        target.copy_(made)
        return target

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        inner = "\n".join("    " + line for line in repr(self.value).split("\n"))
        return f"BatchedTensor(lvl={self.level}, bdim=0, value=\n{inner}\n)"


def _check_target(target: Any, level: int, sources: Any) -> None:
    """RuntimeError if values that differ between items would be written to a tensor without the batch."""
    if is_uniform(level) or peeled(target, level) is not None and not is_shared(target, level):
        return
    if any(peeled(t, level) is not None and not is_shared(t, level) for t in tensors_in(sources)):
        raise RuntimeError(NOT_BATCHED)


def kept(target: Tensor, others: Sequence[Any]) -> Tensor:
    """The target of an in-place operator as an operand: a copy if a derivative may read it later."""
    recorded = STATE.word & GRAD and any(t.requires_grad for t in tensors_in((target, others)))
    return target.clone() if recorded else target


def check_result(made: Any, target: Tensor) -> None:
    """RuntimeError if the result of an in-place operator does not fit its target."""
    if made.shape != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(made.shape)}"
        )
    if not can_cast(made.dtype, target.dtype):
        raise RuntimeError(
            f"result type {made.dtype.scalar} can't be cast to the desired output type {target.dtype.scalar}"
        )


def batched(value: Tensor, level: int, shared: bool = False) -> Any:
    """The tensor whose items lie along the first dim of `value`.  Where `value` belongs to higher levels, those stay
    outside.
    """
    if isinstance(value, Transformed) and value.level > level:
        if isinstance(value, BatchedTensor):
            return batched(batched(value.value.transpose(0, 1), level, shared), value.level)
        return value.over(*[batched(part, level, shared) for part in value.insides])
    spec = value._spec
    made = make_dispatch_tensor(
        BatchedTensor, Spec.of(spec.dtype, spec.device, tuple(spec.shape)[1:], tuple(spec.strides)[1:])
    )
    made.value, made.level = value, level
    if shared:
        made.shared = True
    return made


def is_shared(x: Any, level: int) -> bool:
    """Whether a tensor that is batched at this level is known to be the same for all items."""
    if not isinstance(x, Transformed) or x.level < level:
        return True
    if x.level == level:
        return getattr(x, "shared", True)
    return all(is_shared(part, level) for part in x.insides)


def levels_shared(values: Sequence[Any]) -> list[int]:
    """The levels of running batches in which none of these tensors differs between items."""
    return [
        level.number
        for level in LEVELS.stack
        if level.kind == "vmap" and all(is_shared(x, level.number) for x in values)
    ]


def for_all(x: Any, levels: Sequence[int]) -> Any:
    """`x`, whose items are equal in the batches of these levels, without those batches.

    While a gradient is taken inside a batch, each item has its own argument, and gradients of one item must not reach
    another.  Then `x` stays batched and is marked `shared`.
    """
    last = max((level.number for level in LEVELS.stack if level.kind == "grad"), default=0)
    for level in levels:
        found = peeled(x, level)
        if found is not None and found.shape[0]:
            x = found[0] if level > last else batched(found, level, shared=True)
    return x


def peeled(x: Any, level: int) -> Any:
    """The tensor inside `x` at this level, with the batch as its first dim; None if `x` is not batched there."""
    if not isinstance(x, Transformed) or x.level < level:
        return None
    if x.level == level:
        return x.value if isinstance(x, BatchedTensor) else None
    if isinstance(x, BatchedTensor):
        found = peeled(x.value, level)
        return None if found is None else batched(found.transpose(0, 1), x.level)
    found = [part for part in (peeled(inside, level) for inside in x.insides) if part is not None]
    if not found:
        return None
    size = found[0].shape[0]
    return x.over(*[in_front(inside, level, size) for inside in x.insides])


def in_front(x: Tensor, level: int, size: int) -> Any:
    """`peeled`; a tensor without the batch is repeated."""
    found = peeled(x, level)
    return x.expand((size, *x.shape)) if found is None else found


def lifted(x: Tensor, level: int, size: int) -> Any:
    """`x` as a batched tensor of this level in all of its parts; parts without the batch are repeated."""
    if isinstance(x, Transformed) and x.level == level:
        return x
    if isinstance(x, Transformed) and x.level > level:
        if isinstance(x, BatchedTensor):
            return batched(lifted(x.value, level, size), x.level)
        return x.over(*[lifted(inside, level, size) for inside in x.insides])
    return batched(x.expand((size, *x.shape)), level, shared=True)


def size_of_level(level: int) -> int:
    """How many items the batch of this level has."""
    return LEVELS.stack[level - 1].size


def is_uniform(level: int) -> bool:
    """Whether the batch of this level is one of tangents alone: see `Level`."""
    return level <= len(LEVELS.stack) and LEVELS.stack[level - 1].uniform


def _item_of(value: Any, level: int, view: bool, shared: bool) -> Any:
    """The batched tensor around a result.  A uniform batch stores one item for results without tangents."""
    dtype = value.dtype
    if not view and not (dtype.is_floating_point or dtype.is_complex) and is_uniform(level) and _same_in_all(value):
        return value[0]
    return batched(value, level, shared)


def _same_in_all(value: Any) -> bool:
    """Whether all items along the first dim are equal, in every batch."""
    if not value.shape[0]:
        return False
    value = without_grad(lambda: value.detach())
    differ = root((value != value[:1]) & ((value == value) | (value[:1] == value[:1])))
    return not differ.any().item()


def alike(level: int, values: Any) -> Any:
    """The arguments with each batch of a uniform level reduced to one item; None if items differ."""
    held = [v for v in (peeled(t, level) for t in tensors_in(values)) if v is not None]
    if not is_uniform(level) or not all(_same_in_all(v) for v in held):
        return None

    def one(t: Any) -> Any:
        found = peeled(t, level)
        return t if found is None else found[0]

    return rewrap(one, values)


def widen(x: Tensor, level: int, size: int, shared: bool = False) -> None:
    """Turn a tensor without a batch of this level into a batch of equal items, in place.

    All tensors over the same memory, views and detached ones, are turned too and show the same parts of the batch.
    """
    if isinstance(x, Transformed) and x.level > level:
        for inner in (x.value,) if isinstance(x, BatchedTensor) else (x.primal, x.tangent):
            if peeled(inner, level) is None:
                widen(inner, level, size, shared)
        return
    first, *others = families(x)
    windows = Windows([*first, *[member for family in others for member in family]])
    whole: list[Any] = []

    def contents(member: Tensor, held: Tensor) -> dict[str, Any]:
        if not whole:
            flat = windows.memory(held)
            whole.append(flat.expand((size, *flat.shape)).clone())
        return {"value": windows.shown(whole[0], held, 1), "level": level, "shared": shared}

    join(first, BatchedTensor, contents)
    whole[:] = [whole[0].detach()]
    for family in others:
        join(family, BatchedTensor, contents)


def _reaches(level: int, *values: Any) -> bool:
    return any(peeled(t, level) is not None for t in tensors_in(values))


_ROWS: dict[int, Any] = {}


def _derived(op: Any, template: tuple[Any, ...], tensors: Sequence[Tensor], level: int) -> tuple[Any, Any]:
    """(the derived operator as a function, the type of several results) for this kind of call."""
    mask = tuple(peeled(t, level) is not None for t in tensors)
    size = next(peeled(t, level) for t, flag in zip(tensors, mask) if flag).shape[0]
    table = _ROWS.get(id(op))
    if table is None:
        table = _ROWS[id(op)] = (op, new_plan_table())
    key = (template, mask, size, *[t._spec for t in tensors])
    found = table[1].get(key)
    if found is None:
        row = batched_operator(op, template, [t._spec for t in tensors], mask, size)
        found = table[1][key] = make_function(Caller(row)), Caller(op).result
    return found


# ***** what is not an operator of the table *****


@BatchedTensor.implements("copy_")
def _copy(level: int, function: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    check_captured(x, "copy_")
    held = peeled(x, level)
    _check_target(x, level, (source,))
    if held is None:
        widen(x, level, size_of_level(level), is_shared(source, level))
        held = peeled(x, level)
    if not isinstance(source, Tensor):
        held.copy_(source)
        return x
    inner = peeled(source, level)
    if inner is None:
        held.copy_(source)
    else:
        wide = source.expand(x.shape)
        held.copy_(peeled(wide, level))
    return x


@BatchedTensor.implements("detach", "data")
def _detach(level: int, function: Any, x: Any) -> Any:
    return batched(x.value.detach(), level, x.shared)


@BatchedTensor.implements("zero_")
def _zero(level: int, function: Any, x: Any) -> Any:
    x.value.zero_()
    return x


@BatchedTensor.implements("fill_")
def _fill(level: int, function: Any, x: Any, value: Any) -> Any:
    return x.copy_(value)


def _of_one_item(handler: Any) -> Any:
    """A handler for functions that have no batched form: for a uniform batch they run on one item."""

    @functools.wraps(handler)
    def handle(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
        found = alike(level, (args, kwargs))
        return handler(level, function, *args, **kwargs) if found is None else function(*found[0], **found[1])

    return handle


@BatchedTensor.implements("item", "__float__", "__int__", "__complex__", "__index__")
@_of_one_item
def _item(level: int, function: Any, x: Any) -> Any:
    raise RuntimeError(
        "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please try to rewrite what "
        "you're doing with other operations. If error is occurring somewhere inside PyTorch internals, please file a bug report."
    )


@BatchedTensor.implements("__bool__", "is_nonzero", "__contains__", "equal", "allclose")
@_of_one_item
def _truth(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, please file an issue at "
        "https://github.com/pytorch/pytorch/issues ."
    )


@BatchedTensor.implements("nonzero", "unique", "unique_consecutive")
@_of_one_item
def _dynamic(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        f"vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over aten::{call_name(function)}. Please file an "
        "issue at https://github.com/pytorch/pytorch/issues if you need this feature."
    )


@BatchedTensor.implements("matrix_exp", "linalg_matrix_exp")
def _over_matrices(level: int, function: Any, input: Any) -> Any:
    """Pass the batch as one more leading dim to a function that takes any number of dims before its matrices."""
    return batched(function(input.value), level)


@BatchedTensor.implements(
    "histc", "histogram", "argwhere", "bincount", "combinations", "linspace", "logspace", "nonzero_static"
)
def _loop(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    return each_item(level, function, args, kwargs)


@BatchedTensor.implements("masked_select")
def _masked_select(level: int, function: Any, input: Any, mask: Any) -> Any:
    if peeled(mask, level) is None:
        shape = broadcast_shapes(input.shape, mask.shape)
        places = mask.expand(shape).reshape(-1).nonzero().reshape(-1)
        return input.expand(shape).reshape(-1)[places]
    raise RuntimeError(
        "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this because for each batch this would return a "
        "differently shaped Tensor. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this feature."
    )


@BatchedTensor.implements("stride", "storage_offset", "is_contiguous", "dim_order")
def _layout(level: int, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    strides = x._spec.strides
    name = call_name(function)
    if name == "stride":
        return strides if not args and not kwargs else strides[args[0] if args else kwargs["dim"]]
    return x._spec.contiguous if name == "is_contiguous" else x.value.storage_offset()


@BatchedTensor.implements("type")
def _type(level: int, function: Any, x: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    return x.value.type() if dtype is None else x.to(dtype)


@BatchedTensor.implements("view_as_real", "view_as_complex", "real", "imag")
def _parts(level: int, function: Any, x: Any) -> Any:
    name = call_name(function)
    made = batched(getattr(x.value, name) if name in ("real", "imag") else function(x.value), level)
    link(x, made)
    return made


@BatchedTensor.implements("as_strided")
def _as_strided(level: int, function: Any, x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    value = x.value
    made = batched(function(value, (value.shape[0], *size), (value.stride(0), *stride), storage_offset), level)
    link(x, made)
    return made


def each_item(level: int, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a function item by item, for functions that cannot take the whole batch; results are stacked."""
    size = size_of(level, args, kwargs)

    def at(k: int) -> Any:
        def pick(t: Any) -> Any:
            held = peeled(t, level)
            return t if held is None else held[k]

        return function(*rewrap(pick, tuple(args)), **rewrap(pick, kwargs))

    return stacked([at(k) for k in range(size)], level)


def size_of(level: int, *values: Any) -> int:
    """The size of the batch, taken from the tensors."""
    for t in tensors_in(values):
        held = peeled(t, level)
        if held is not None:
            return int(held.shape[0])
    return size_of_level(level)


def stacked(rows: list[Any], level: int) -> Any:
    """One batched result from the results of all items."""
    first = rows[0]
    if isinstance(first, Tensor):
        return batched(table_function("stack")(rows), level)
    if isinstance(first, (tuple, list)):
        items = [stacked([r[i] for r in rows], level) for i in range(len(first))]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    return first


__all__ += ["check_result", "each_item", "size_of", "stacked"]
