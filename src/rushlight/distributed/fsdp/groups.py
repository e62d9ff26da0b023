"""The parameters that a sharded module gathers and reduces together.

A group's parameters become one operation of autograd: its inputs are this process's parts, its outputs the whole tensors
that the module computes with.  So the reduction of the gradients is the operation's derivative, and runs when the last
of them is known.  Where memory is given back between forward and backward, what operators save of a whole parameter is a
note of it, and the first that is asked for gathers the group again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._interface.sharding import Part
from rushlight.autograd import Function
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.fsdp.policies import MixedPrecisionPolicy
from rushlight.distributed.tensor import DTensor, Replicate, Shard
from rushlight.nn import Module

__all__ = ["Group", "Managed"]


class Managed(NamedTuple):
    """A parameter of a group: where it is, and along which dim it is divided."""

    module: Module
    name: str
    dim: int


class Group:
    """Parameters that are gathered by one collective and whose gradients are reduced by one."""

    def __init__(self, managed: Sequence[Managed], mesh: Any, policy: MixedPrecisionPolicy, reshards: bool) -> None:
        self.managed, self.mesh, self.policy, self.reshards = list(managed), mesh, policy, reshards
        self.axis = mesh.ndim - 1
        self.part = Part(mesh.shape[self.axis], mesh.get_coordinate()[self.axis])
        self.syncs = self.reduces_all = True  # whether gradients are reduced, and among replicas
        self.factor: float | None = None  # what their sums are divided by
        self.held: list[Tensor] | None = None  # sums of whole gradients that were not reduced yet
        self.whole: list[Tensor] | None = None  # in forward: what the modules compute with
        self.again: list[Tensor] | None = None  # in backward: gathered once more
        self.pending: tuple[Any, Tensor, Tensor] | None = None  # a gathering that was begun ahead
        self.kept: list[Any] = []  # the parameters while others stand in their places

    @property
    def parameters(self) -> list[Any]:
        """The sharded parameters."""
        return self.kept or [m.module._parameters[m.name] for m in self.managed]

    # ***** gathering *****

    def _rows(self, x: Tensor, dim: int, extent: int) -> Tensor:
        """A part as rows of the length that every process has, filled up with zeros."""
        step = -(-extent // self.part.size)
        rows = x.movedim(dim, 0)
        if rows.shape[0] < step:
            rows = rushlight.cat([rows, rows.new_zeros((step - rows.shape[0], *rows.shape[1:]))])
        return rows.reshape(-1)

    def begin(self, parts: Sequence[Tensor] | None = None) -> None:
        """Begin to gather the parameters, unless that was begun."""
        if self.pending is not None:
            return
        parts = [p._local_tensor for p in self.parameters] if parts is None else parts
        dtype = self.policy.param_dtype
        with rushlight.no_grad():
            pieces = [
                self._rows(x if dtype is None else x.to(dtype), m.dim, p.shape[m.dim])
                for x, m, p in zip(parts, self.managed, self.parameters, strict=True)
            ]
            if len({x.dtype for x in pieces}) > 1:
                raise ValueError(
                    f"fully_shard: parameters of one group have one dtype, got {sorted({str(x.dtype) for x in pieces})};"
                    " shard their modules apart, or set param_dtype"
                )
            sent = rushlight.cat(pieces)
            got = sent.new_empty(self.part.size * sent.numel())
            work = dist.all_gather_into_tensor(got, sent, group=self.mesh.get_group(self.axis), async_op=True)
        self.pending = work, sent, got

    def gather(self, parts: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The whole parameters."""
        self.begin(parts)
        assert self.pending is not None
        work, sent, got = self.pending
        self.pending = None
        if work is not None:
            work.wait()
        with rushlight.no_grad():
            table, at, whole = got.view(self.part.size, sent.numel()), 0, []
            for m, p in zip(self.managed, self.parameters, strict=True):
                shape = list(p.shape)
                extent = shape.pop(m.dim)
                step = -(-extent // self.part.size)
                count = step * math.prod(shape)
                rows = table[:, at : at + count].reshape(self.part.size * step, *shape)[:extent]
                whole.append(rows.movedim(0, m.dim).contiguous())
                at += count
        return whole

    # ***** reducing *****

    def reduce(self, grads: Sequence[Tensor | None]) -> list[Any]:
        """This process's parts of the mean of everybody's gradients; None for all while they are only summed here."""
        shapes = [tuple(p.shape) for p in self.parameters]
        full = [
            rushlight.zeros(shape, dtype=p.dtype) if g is None else g
            for g, shape, p in zip(grads, shapes, self.parameters, strict=True)
        ]
        if self.held is not None:
            full = [a + b for a, b in zip(self.held, full, strict=True)]
            self.held = None
        if not self.syncs:
            self.held = full
            return [None] * len(full)
        dtype = self.policy.reduce_dtype or self.policy.param_dtype
        pieces, lengths = [], []
        for g, m, shape in zip(full, self.managed, shapes, strict=True):
            step = -(-shape[m.dim] // self.part.size)
            rows = (g if dtype is None else g.to(dtype)).movedim(m.dim, 0)
            if rows.shape[0] < step * self.part.size:
                rows = rushlight.cat([rows, rows.new_zeros((step * self.part.size - rows.shape[0], *rows.shape[1:]))])
            pieces.append(rows.reshape(self.part.size, -1))
            lengths.append(pieces[-1].shape[1])
        sent = rushlight.cat(pieces, 1).contiguous()
        mine = sent.new_empty(sent.shape[1])
        count = self.part.size
        dist.reduce_scatter_tensor(mine, sent.view(-1), dist.ReduceOp.SUM, group=self.mesh.get_group(self.axis))
        if self.axis and self.reduces_all:
            dist.all_reduce(mine, dist.ReduceOp.SUM, group=self.mesh.get_group(0))
            count *= self.mesh.shape[0]
        mine /= count if self.factor is None else self.factor
        made = []
        for x, m, p in zip(mine.split(lengths), self.managed, self.parameters, strict=True):
            rest = [n for d, n in enumerate(p.shape) if d != m.dim]
            rows = x.view(-1, *rest)[: self.part.length(p.shape[m.dim])] if math.prod(rest) else x.view(0, *rest)
            local = rows.movedim(0, m.dim).to(p.dtype).contiguous()
            made.append(DTensor(local, self.mesh, p.placements, p.shape, p.stride()))
        return made

    # ***** around a module's forward *****

    def enter(self) -> None:
        """Put whole parameters in the modules' places."""
        if self.kept:
            return
        parameters = self.parameters
        self.whole = list(_Gather.apply(self, *parameters))
        self.kept = parameters
        for m, x in zip(self.managed, self.whole, strict=True):
            m.module._parameters[m.name] = x

    def leave(self) -> None:
        """Put the sharded parameters back."""
        for m, p in zip(self.managed, self.kept, strict=False):
            m.module._parameters[m.name] = p
        self.kept, self.whole = [], None

    def pack(self, x: Tensor) -> Any:
        """What an operator saves: a note, where that shows a whole parameter."""
        if self.whole is None or not self.reshards:
            return x
        memory, start = x.untyped_storage().data_ptr(), x.storage_offset()
        for number, whole in enumerate(self.whole):
            offset = start - whole.storage_offset()
            if whole.untyped_storage().data_ptr() == memory and x.dtype is whole.dtype and 0 <= offset < whole.numel():
                return number, tuple(x.shape), tuple(x.stride()), offset
        return x

    def unpack(self, saved: Any) -> Tensor:
        """What an operator saved."""
        if isinstance(saved, Tensor):
            return saved
        number, shape, stride, offset = saved
        if self.again is None:
            self.again = self.gather()
        whole = self.again[number]
        return whole.as_strided(shape, stride, whole.storage_offset() + offset)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, group: Group, *parameters: Any) -> Any:
        ctx.group = group
        whole = group.gather([p._local_tensor for p in parameters])
        ctx.mark_non_differentiable(*[x for x, p in zip(whole, parameters, strict=True) if not p.requires_grad])
        ctx.set_materialize_grads(False)
        return tuple(whole)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        group: Group = ctx.group
        group.again = None
        return None, *group.reduce(grads)


def sharded(parameter: Any, mesh: Any, dim: int) -> Any:
    """A parameter as a `DTensor` whose part along the last axis of the mesh this process keeps."""
    from_here = (Replicate(),) * (mesh.ndim - 1) + (Shard(dim),)
    part = Part(mesh.shape[mesh.ndim - 1], mesh.get_coordinate()[mesh.ndim - 1])
    start, stop = part.span(parameter.shape[dim])
    local = parameter.detach().narrow(dim, start, stop - start).clone(memory_format=rushlight.contiguous_format)
    spread = DTensor(local, mesh, from_here, parameter.shape, parameter.stride())
    return rushlight.nn.Parameter(spread, parameter.requires_grad)
