"""The parameters that a sharded module gathers and reduces together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import bump
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.fsdp.meshes import Axes
from rushlight.distributed.fsdp.parameters import BIG, Managed, aligned
from rushlight.distributed.fsdp.policies import MixedPrecisionPolicy
from rushlight.distributed.fsdp.reduction import Reduction

__all__ = ["Group"]


class Gathering(NamedTuple):
    """Collectives that were begun: what is waited for, and what they read and write."""

    works: list[Any]
    sent: list[Tensor]
    memory: Tensor
    packed: list[Managed]  # the parameters of the message
    got: Tensor | None  # the message from everybody


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
        self.pending: Gathering | None = None  # a gathering that was begun ahead
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
        # A group of small ones among big ones: what is sent alone need not be copied.
        self.big = {m for m in self.managed if m.even and m.numel * dtype.itemsize >= BIG}

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
        """Begin to gather the parameters, unless they are there or that was begun; without `ahead` wait for it.

        Big parameters go to their places at once, the others in one message.
        """
        if self.memory is not None or self.pending is not None:
            return
        self._look()
        with rushlight.no_grad():
            memory = self.managed[0].local.new_empty(self.total, dtype=self.dtype)
            sent, works = [], []
            apart = self._apart()
            for m, start in zip(self.managed, self.starts, strict=True):
                if m in apart:
                    sent.append(self._cast(m.rows()[0]))
                    target = memory[start : start + m.numel]
                    works.append(dist.all_gather_into_tensor(target, sent[-1], group=self.axes.group, async_op=ahead))
            packed = [m for m in self.managed if m not in apart]
            got = self._begin_message(packed, sent, works, ahead, backward) if packed else None
        self.pending = Gathering(works, sent, memory, packed, got)

    def _begin_message(
        self, packed: list[Managed], sent: list[Tensor], works: list[Any], ahead: bool, backward: bool
    ) -> Tensor:
        """Begin to gather small parameters together."""
        group = self.axes.group
        if backward and self.near is not None and self.near_part is not None:
            group, message = self.near[0], self.near_part
        else:
            pieces = [piece for m in packed for piece in m.rows()]
            message = self._cast(rushlight.cat(pieces) if len(pieces) > 1 else pieces[0])
        count = self.axes.part.size * sum(m.count for m in packed)
        if self.gatherer is not None:
            got: Tensor = self.gatherer.allocate((count,), dtype=message.dtype, device=message.device)
            works.append(self.gatherer(output_tensor=got, input_tensor=message, group=group, async_op=ahead))
        else:
            got = message.new_empty(count)
            works.append(dist.all_gather_into_tensor(got, message, group=group, async_op=ahead))
        sent.append(message)
        return got

    def whole_of(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The whole parameters from what each process has of them."""
        with rushlight.no_grad():
            memory = parts[0].new_empty(self.total, dtype=self.dtype)
            table: Any = None
            apart = self._apart()
            for m, start, part in zip(self.managed, self.starts, parts, strict=True):
                if m in apart:
                    sent = self._cast(m.pieces(part)[0])
                    dist.all_gather_into_tensor(memory[start : start + m.numel], sent, group=self.axes.group)
            packed = [m for m in self.managed if m not in apart]
            if packed:
                pieces = [x for m, part in zip(self.managed, parts, strict=True) if m in packed for x in m.pieces(part)]
                message = self._cast(rushlight.cat(pieces) if len(pieces) > 1 else pieces[0])
                table = message.new_empty(self.axes.part.size * sum(m.count for m in packed))
                dist.all_gather_into_tensor(table, message, group=self.axes.group)
                self._spread(memory, packed, table.view(self.axes.part.size, -1), False)
            return [m._view(memory, start) for m, start in zip(self.managed, self.starts, strict=True)]

    def _apart(self) -> set[Managed]:
        """Parameters that are gathered each by itself."""
        return set() if self.near is not None or self.gatherer is not None else self.big

    def _cast(self, x: Tensor) -> Tensor:
        return x if x.dtype is self.dtype else x.to(self.dtype)

    def _look(self) -> None:
        """Look at the parts that the modules have now; RuntimeError for such without memory."""
        if not self.placed:
            for m in self.managed:
                m.refresh()
        names = [m.name for m in self.managed if m.local.device.type == "meta"]
        if names:
            raise RuntimeError(
                "FSDP parameters should be materialized from meta device before training, but the following were still on"
                f" meta device: {names}\nCall module.to_empty(device) and initialize them, or load a state_dict with assign=True."
            )
        seen = tuple(m.local._version for m in self.managed)
        if seen != self.seen:
            self.seen, self.changed = seen, True

    def unshard(self, backward: bool = False) -> None:
        """Have the whole parameters."""
        if self.memory is not None:
            return
        self.begin(ahead=False, backward=backward)
        assert self.pending is not None
        works, _, memory, packed, got = self.pending
        self.pending = None
        for work in works:
            if work is not None:
                work.wait()
        if got is not None:
            with rushlight.no_grad():
                self._spread(memory, packed, got.view(self.axes.part.size, -1), not backward)
        self._show(memory)
        self.memory = memory
        if self.changed:  # autograd then notices that a parameter was changed between forward and backward
            self.changed = False
            for m in self.managed:
                bump(m.elements._storage)

    def _spread(self, memory: Tensor, packed: list[Managed], table: Tensor, forward: bool) -> None:
        """Small parameters from a message of everybody into their places."""
        at, starts = 0, dict(zip(self.managed, self.starts, strict=True))
        targets, sources = [], []
        for m in packed:
            for target, source in m.copies(memory, starts[m], table, at):
                targets.append(target)
                sources.append(source)
            at += m.count
        if targets:
            rushlight._foreach_copy_(targets, sources)
        if self.near is not None and forward:
            _, place, near = self.near
            rows = self.axes.part.size // near
            self.near_part = table[place * rows : (place + 1) * rows].reshape(-1).clone()

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
        for work in self.pending.works if self.pending is not None else ():
            if work is not None:
                work.wait()
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
