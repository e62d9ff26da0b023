"""The parameters that a sharded module gathers and reduces together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import bump
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.fsdp.meshes import Axes
from rushlight.distributed.fsdp.parameters import Managed, aligned
from rushlight.distributed.fsdp.policies import MixedPrecisionPolicy
from rushlight.distributed.fsdp.reduction import Reduction

__all__ = ["Group"]


class Group:
    """Parameters of one dtype that are gathered by one collective and whose gradients are reduced by one.

    Gathered parameters are views of one memory.  Giving it back means that nobody looks at it any more.
    """

    def __init__(self, managed: Sequence[Managed], axes: Axes, policy: MixedPrecisionPolicy) -> None:
        self.managed, self.axes, self.policy = list(managed), axes, policy
        self.near: tuple[Any, int, int] | None = (
            None  # where parts are between forward and backward: group, place, size
        )
        self.near_part: Tensor | None = None
        self.memory: Tensor | None = None
        self.nowhere: Tensor | None = None  # has the memory's size and no memory
        self.pending: tuple[Any, Tensor, Tensor] | None = None  # a gathering that was begun ahead
        self.placed = False
        self.gatherer: Any = None  # `set_custom_all_gather`
        self.reduction = Reduction(self)
        self.state: Any = None
        self.seen: tuple[Any, ...] = ()  # versions of the parts at the last gathering
        self.changed = False
        self.starts, at = [], 0
        dtype = self.dtype
        for m in self.managed:
            self.starts.append(at)
            at += aligned(m.numel, dtype.itemsize)
        self.total = at
        self.message = sum(m.count for m in self.managed)

    @property
    def dtype(self) -> Any:
        """Of the parameters that modules compute with."""
        return self.policy.param_dtype or self.managed[0].sharded.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all whole parameters."""
        return self.total * int(self.dtype.itemsize)

    # ***** gathering *****

    def begin(self, ahead: bool = True, backward: bool = False) -> None:
        """Begin to gather the parameters, unless they are there or that was begun; without `ahead` wait for it."""
        if self.memory is not None or self.pending is not None:
            return
        size = self.axes.part.size
        with rushlight.no_grad():
            if backward and self.near is not None and self.near_part is not None:
                group, _, _ = self.near
                sent = self.near_part
            else:
                sent, group = self._message(), self.axes.group
            count = size * self.message
            got = sent.new_empty(count) if self.gatherer is None else self._allocated(count, sent)
            if self.gatherer is not None:
                work = self.gatherer(output_tensor=got, input_tensor=sent, group=group, async_op=ahead)
            else:
                work = dist.all_gather_into_tensor(got, sent, group=group, async_op=ahead)
        self.pending = work, sent, got

    def _allocated(self, count: int, like: Tensor) -> Tensor:
        made: Tensor = self.gatherer.allocate((count,), dtype=like.dtype, device=like.device)
        return made

    def _message(self) -> Tensor:
        """The parts of this process, one behind the other."""
        pieces: list[Tensor] = []
        for m in self.managed:
            if not self.placed:
                m.refresh()
            pieces += m.rows()
        if pieces[0].device.type == "meta":
            names = ", ".join(m.name for m in self.managed)
            raise RuntimeError(
                "FSDP parameters should be materialized from meta device before training, but the following were still on"
                f" meta device: {names}. Call module.to_empty(device) and initialize them, or load a state_dict with assign=True."
            )
        seen = tuple(m.local._version for m in self.managed)
        if seen != self.seen:
            self.seen, self.changed = seen, True
        sent = rushlight.cat(pieces) if len(pieces) > 1 else pieces[0]
        return sent if sent.dtype is self.dtype else sent.to(self.dtype)

    def unshard(self, backward: bool = False) -> None:
        """Have the whole parameters."""
        if self.memory is not None:
            return
        self.begin(ahead=False, backward=backward)
        assert self.pending is not None
        work, sent, got = self.pending
        self.pending = None
        if work is not None:
            work.wait()
        size = self.axes.part.size
        with rushlight.no_grad():
            memory = sent.new_empty(self.total)
            table, at = got.view(size, self.message), 0
            targets, sources = [], []
            for m, start in zip(self.managed, self.starts, strict=True):
                for target, source in m.copies(memory, start, table, at):
                    targets.append(target)
                    sources.append(source)
                at += m.count
            if targets:
                rushlight._foreach_copy_(targets, sources)
            if self.near is not None and not backward:
                _, place, near = self.near
                rows = size // near
                self.near_part = table[place * rows : (place + 1) * rows].reshape(-1).clone()
        self._show(memory)
        self.memory = memory
        if self.changed:  # autograd then notices that a parameter was changed between forward and backward
            self.changed = False
            for m in self.managed:
                bump(m.elements._storage)

    def _show(self, memory: Tensor) -> None:
        with rushlight.no_grad():
            for m, start in zip(self.managed, self.starts, strict=True):
                m.show(memory, start, self._arrived)

    def reshard(self, keep_near: bool = False) -> None:
        """Give the whole parameters back, and put the sharded ones in their places."""
        self.restore()
        self.drop()
        if not keep_near:
            self.near_part = None
        if self.memory is None:
            return
        if self.nowhere is None:
            self.nowhere = self.memory.new_empty(self.total)
            self.nowhere.untyped_storage().resize_(0)
        self._show(self.nowhere)
        self.memory = None

    def drop(self) -> None:
        """Forget a gathering that was begun and is not needed."""
        if self.pending is not None and self.pending[0] is not None:
            self.pending[0].wait()
        self.pending = None

    # ***** places *****

    def place(self) -> None:
        """Put the whole parameters in the modules."""
        if not self.placed:
            self.placed = True
            for m in self.managed:
                m.place()

    def restore(self) -> None:
        """Put the sharded parameters in the modules."""
        if self.placed:
            self.placed = False
            for m in self.managed:
                m.restore()

    def _arrived(self, managed: Managed) -> None:
        """The gradient of a whole parameter is complete."""
        if self.reduction.arrived():
            self.state.ready(self)
