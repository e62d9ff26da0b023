"""Scans and scatters as stages of a group whose loops run in order.

A scan runs along its dim; all other dims are rows or lanes. A scatter copies its first operand and goes through the
indices in order. Only dims that the index does not touch are rows or lanes, so the result is the same for any number
of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rushlight._schedule.expressions import Item, Store
from rushlight._schedule.groups import Stage
from rushlight._schedule.indexing import ZERO, Ix, Var
from rushlight._schedule.inline import RUNTIME_ERROR, data_index
from rushlight._types.dtype import INT64
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._schedule.schedule import Sequential

__all__ = ["prepare"]

_SCANS = {"cumsum": "add", "cumprod": "mul", "cummax": "lastmax", "cummin": "lastmin"}
_COMBINE = {"set": None, "add": "add", "mul": "mul", "amax": "maximum", "amin": "minimum"}


def prepare(sequential: Sequential) -> None:
    """Add the stages of a scan or scatter to its group."""
    kind = sequential.node.prim.lower[0]
    if kind == "scan":
        _prepare_scan(sequential)
    elif kind == "scatter":
        _prepare_scatter(sequential)
    else:
        _prepare_index_put(sequential)


def _vars(shape: tuple[int, ...]) -> tuple[list[Ix], list[Var | None]]:
    dims = [Var(s, "d") if s != 1 else None for s in shape]
    return [ZERO if d is None else d.ix for d in dims], dims


def _prepare_scan(sequential: Sequential) -> None:
    node, group = sequential.node, sequential.group
    x, dim = node.inputs[0], node.params["dim"]
    index, dims = _vars(x.shape)
    value = group.inliner.element(x, index)
    b = group.builder
    stage = Stage([dims[dim]] if dims[dim] is not None else [])
    op = _SCANS[node.prim.name]
    if len(sequential.targets) == 1:
        item = Item(op, value, value.dtype)
        results = [b.ref(item)]
    else:
        item = Item(op, value, value.dtype, b.index(index[dim], INT64))
        results = [b.ref(item, 1), b.ref(item, 0)]
    if not stage.loops:  # a scan of a single element is that element
        results = [value, b.const(0, INT64)][: len(sequential.targets)]
    else:
        stage.items.append(item)
    stage.stores = [
        Store(t.buffer, t.offset(index), r if r.dtype is t.buffer.dtype else b.op("convert", (r,), t.buffer.dtype))
        for t, r in zip(sequential.targets, results, strict=True)
    ]
    group.stages = [stage]
    group.values = [d for k, d in enumerate(dims) if d is not None and k != dim]  # type: ignore[misc]


def _prepare_copy(sequential: Sequential) -> Stage:
    """The stage that copies the first operand to the result."""
    x, target = sequential.node.inputs[0], sequential.targets[0]
    index, dims = _vars(x.shape)
    stage = Stage([d for d in dims if d is not None])
    stage.stores = [Store(target.buffer, target.offset(index), sequential.group.inliner.element(x, index))]
    return stage


def _prepare_scatter(sequential: Sequential) -> None:
    node, group, target = sequential.node, sequential.group, sequential.targets[0]
    x, at, src = node.inputs
    dim = node.params["dim"]
    group.stages = [] if sequential.in_place else [_prepare_copy(sequential)]
    if numel(at.shape) == 0:
        group.values = []
        return
    index, dims = _vars(at.shape)
    value = group.inliner.element(src, index)
    place = list(index)
    place[dim] = data_index(group.inliner.element(at, index), x.shape[dim], dim, RUNTIME_ERROR)
    combine = _COMBINE[node.params["reduce"]]
    update = Stage([dims[dim]] if dims[dim] is not None else [])
    update.stores = [Store(target.buffer, target.offset(place), value, combine)]
    group.stages.append(update)
    group.values = [d for k, d in enumerate(dims) if d is not None and k != dim]  # type: ignore[misc]


def _prepare_index_put(sequential: Sequential) -> None:
    node, group, target = sequential.node, sequential.group, sequential.targets[0]
    x, values, *at = node.inputs
    group.stages = [] if sequential.in_place else [_prepare_copy(sequential)]
    group.values = []
    if numel(values.shape) == 0:
        return
    ndim = len(at[0].shape)
    index, dims = _vars(values.shape)
    where = [data_index(group.inliner.element(a, index[:ndim]), x.shape[k], k) for k, a in enumerate(at)]
    value = group.inliner.element(values, index)
    combine = "add" if node.params["accumulate"] else None
    update = Stage([d for d in dims[:ndim] if d is not None])
    update.stores = [Store(target.buffer, target.offset([*where, *index[ndim:]]), value, combine)]
    group.stages.append(update)
    group.values = [d for d in dims[ndim:] if d is not None]  # type: ignore[misc]
