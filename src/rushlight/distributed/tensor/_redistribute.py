"""From one placement of a tensor to another: the collectives along the axes of a mesh.

Axes whose placement changes are undone from the last to the first, and made anew from the first to the last, as parts of
parts along one dim are nested in that order.  Terms that become parts are reduced and scattered at once; parts along one
dim become parts along another by one exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._interface.sharding import Part
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.c10d.observing import functional
from rushlight.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
    fits,
    nested,
    nesting,
)

__all__ = ["OPS", "global_shape", "redistribute", "redistribute_local_tensor", "reduce_along", "shard_of"]

OPS = {
    "sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "product": dist.ReduceOp.PRODUCT, "prod": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN,
}  # fmt: skip


def redistribute(
    local: Tensor, shape: Sequence[int], mesh: Any, before: Sequence[Placement], after: Sequence[Placement]
) -> Tensor:
    """The local tensor under the placements `after` of a tensor of a shape that is placed as `before`."""
    if tuple(before) == tuple(after) or mesh.get_coordinate() is None:  # outside of the mesh there are no elements
        return local
    if any(type(p) is _StridedShard for p in (*before, *after)):
        return _in_other_order(local, shape, mesh, before, after)
    held = list(before)
    todo = _axes_to_undo(before, after)
    for axis in reversed(todo):
        inner = _shape_at(shape, mesh, held, axis)
        here, there = held[axis], after[axis]
        if mesh.shape[axis] == 1:
            held[axis] = Replicate()
        elif isinstance(here, Partial):
            if isinstance(there, Shard) and here.reduce_op in ("sum", "avg") and _free(after, axis, held):
                local, held[axis] = _scatter_terms(local, inner, mesh, axis, here, there), there
            else:
                local, held[axis] = reduce_along(local, mesh, axis, here.reduce_op), Replicate()
        elif isinstance(here, Shard):
            if isinstance(there, Shard) and here.dim != there.dim and _free(after, axis, held):
                local, held[axis] = _exchange(local, inner, mesh, axis, here.dim, there.dim), there
            else:
                local, held[axis] = _gather(local, inner, mesh, axis, here.dim), Replicate()
    for axis, there in enumerate(after):
        if held[axis] == there:
            continue
        if isinstance(there, Shard):
            local = shard_of(local, there.dim, mesh, axis)
        elif isinstance(there, Partial) and mesh.shape[axis] > 1:
            local = _term(local, mesh, axis, there)
        held[axis] = there
    return local


class _Turned(NamedTuple):
    """A mesh with its axes in another order."""

    mesh: Any
    order: Sequence[int]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mesh.shape[a] for a in self.order)

    def get_coordinate(self) -> tuple[int, ...]:
        place = self.mesh.get_coordinate()
        return tuple(place[a] for a in self.order)

    def get_group(self, axis: int) -> Any:
        return self.mesh.get_group(self.order[axis])


def redistribute_local_tensor(local_tensor: Tensor, current_spec: Any, target_spec: Any, **settings: Any) -> Tensor:
    """A part of a tensor that lies as one `DTensorSpec` says, as another one says; both on one mesh.

    `async_op` and the like change nothing: the part is there.  NotImplementedError for two meshes.
    """
    if current_spec.mesh != target_spec.mesh:
        raise NotImplementedError("Cross device mesh comm not supported yet!")
    shape, mesh = current_spec.shape, current_spec.mesh
    return redistribute(local_tensor, shape, mesh, current_spec.placements, target_spec.placements)


def _in_other_order(
    local: Tensor, shape: Sequence[int], mesh: Any, before: Sequence[Placement], after: Sequence[Placement]
) -> Tensor:
    """`redistribute` where axes divide one dim in another order than that of the mesh."""
    for placements in (before, after):
        if nested(placements, nesting(placements), mesh.shape) != tuple(placements):
            raise NotImplementedError(
                f"parts {placements} of a mesh of {mesh.shape}: strided parts whose split factor is not the number of parts"
                " that later axes make are not built"
            )
    order = nesting(after) if fits(before, nesting(after)) else nesting(before)
    if not fits(after, order):
        middle = tuple(Replicate() if type(p) is _StridedShard else p for p in before)
        return redistribute(redistribute(local, shape, mesh, before, middle), shape, mesh, middle, after)
    plain: list[list[Placement]] = []
    for placements in (before, after):
        turned = [placements[a] for a in order]
        plain.append([Shard(p.dim) if isinstance(p, Shard) else p for p in turned])
    return redistribute(local, shape, _Turned(mesh, order), *plain)


def _axes_to_undo(before: Sequence[Placement], after: Sequence[Placement]) -> list[int]:
    """Axes whose placement changes, and those that divide further what a change of an earlier one undoes."""
    todo: list[int] = []
    for axis, (here, there) in enumerate(zip(before, after, strict=True)):
        dims = {p.dim for a in todo for p in (before[a], after[a]) if isinstance(p, Shard)}
        if here != there or (isinstance(here, Shard) and here.dim in dims):
            todo.append(axis)
    return todo


def _free(after: Sequence[Placement], axis: int, held: Sequence[Placement]) -> bool:
    """Whether an axis may take its final placement at once: no other axis divides the same dim."""
    dim = getattr(after[axis], "dim", None)
    others = [p for a, p in enumerate([*after, *held]) if a % len(after) != axis]
    return all(not (isinstance(p, Shard) and p.dim == dim) for p in others)


def _shape_at(shape: Sequence[int], mesh: Any, placements: Sequence[Placement], axis: int) -> list[int]:
    """The shape that axis number `axis` divides: that of the whole, divided by the axes before."""
    found = list(shape)
    for a, placement in enumerate(placements):
        if a != axis and isinstance(placement, Shard) and (a < axis or placement.dim != _dim_of(placements[axis])):
            found[placement.dim] = Part(mesh.shape[a], mesh.get_coordinate()[a]).length(found[placement.dim])
    return found


def _dim_of(placement: Placement) -> int | None:
    return placement.dim if isinstance(placement, Shard) else None


def global_shape(local: Sequence[int], mesh: Any, placements: Sequence[Placement]) -> list[int]:
    """The shape of a tensor whose parts are even."""
    shape = list(local)
    for axis, placement in enumerate(placements):
        if isinstance(placement, Shard):
            shape[placement.dim] *= mesh.shape[axis]
    return shape


def shard_of(whole: Tensor, dim: int, mesh: Any, axis: int) -> Tensor:
    """This process's part of a tensor, in memory of its own."""
    start, stop = Part(mesh.shape[axis], mesh.get_coordinate()[axis]).span(whole.shape[dim])
    return whole if stop - start == whole.shape[dim] else whole.narrow(dim, start, stop - start).contiguous()


def reduce_along(local: Tensor, mesh: Any, axis: int, kind: str) -> Tensor:
    """The reduction of every process's tensor along an axis, as a new tensor."""
    return local if mesh.shape[axis] == 1 else _reduced(local, mesh, axis, kind)


@functional("all_reduce")
def _reduced(local: Tensor, mesh: Any, axis: int, kind: str) -> Tensor:
    boolean = local.dtype is rushlight.bool
    made = local.to(rushlight.uint8) if boolean else local.clone(memory_format=rushlight.contiguous_format)
    dist.all_reduce(made, OPS[kind], group=mesh.get_group(axis))
    return made.to(rushlight.bool) if boolean else made


def _term(local: Tensor, mesh: Any, axis: int, there: Partial) -> Tensor:
    """This process's term of a tensor that it has whole."""
    if there.reduce_op in ("avg", "max", "min"):
        return local
    if mesh.get_coordinate()[axis] == 0:
        return local
    return rushlight.zeros_like(local) if there.reduce_op == "sum" else rushlight.ones_like(local)


@functional("all_gather_into_tensor")
def _gather(local: Tensor, shape: list[int], mesh: Any, axis: int, dim: int) -> Tensor:
    """The whole from parts along `dim`."""
    size, extent = mesh.shape[axis], shape[dim]
    step = -(-extent // size)
    rows = local.movedim(dim, 0).contiguous()
    if rows.shape[0] < step:
        rows = rushlight.cat([rows, rows.new_zeros((step - rows.shape[0], *rows.shape[1:]))])
    gathered = rows.new_empty((size * step, *rows.shape[1:]))
    dist.all_gather_into_tensor(gathered, rows, group=mesh.get_group(axis))
    whole = gathered if size * step == extent else gathered[:extent]
    return whole.movedim(0, dim).contiguous()


@functional("reduce_scatter_tensor")
def _scatter_terms(local: Tensor, shape: list[int], mesh: Any, axis: int, here: Partial, there: Shard) -> Tensor:
    """A part of the reduction of terms."""
    size, extent = mesh.shape[axis], shape[there.dim]
    step = -(-extent // size)
    rows = local.movedim(there.dim, 0).contiguous()
    if size * step > extent:
        rows = rushlight.cat([rows, rows.new_zeros((size * step - extent, *rows.shape[1:]))])
    mine = rows.new_empty((step, *rows.shape[1:]))
    dist.reduce_scatter_tensor(mine, rows, OPS[here.reduce_op], group=mesh.get_group(axis))
    part = Part(size, mesh.get_coordinate()[axis]).length(extent)
    return mine[:part].movedim(0, there.dim).contiguous()


@functional("all_to_all_single")
def _exchange(local: Tensor, shape: list[int], mesh: Any, axis: int, dim: int, to: int) -> Tensor:
    """Parts along `dim` as parts along `to`: every process sends each other one its share."""
    size, here = mesh.shape[axis], mesh.get_coordinate()[axis]
    parts = [Part(size, k) for k in range(size)]
    outgoing = [local.narrow(to, p.span(shape[to])[0], p.length(shape[to])).contiguous() for p in parts]
    incoming = []
    for p in parts:
        piece = list(local.shape)
        piece[dim], piece[to] = p.length(shape[dim]), parts[here].length(shape[to])
        incoming.append(local.new_empty(piece))
    sent = rushlight.cat([x.reshape(-1) for x in outgoing])
    got = local.new_empty((sum(x.numel() for x in incoming),))
    dist.all_to_all_single(
        got, sent, [x.numel() for x in incoming], [x.numel() for x in outgoing], group=mesh.get_group(axis)
    )
    pieces = got.split([x.numel() for x in incoming])
    return rushlight.cat([p.view(x.shape) for p, x in zip(pieces, incoming, strict=True)], dim)
