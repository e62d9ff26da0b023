"""How the gradients of a group become parts of their mean over all processes."""

from __future__ import annotations

from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight.distributed import distributed_c10d as dist

__all__ = ["Reduction"]


class Running(NamedTuple):
    """Reductions that were begun: what is waited for, what they read and write, and whose gradients they are."""

    works: list[Any]
    sent: list[Tensor]
    mine: list[Tensor]  # of the message, then of big parameters
    packed: list[int]
    apart: list[int]


class Reduction:
    """The gradients of a group between backward and the sharded parameters.

    Behind the elements of the gradients, the message to each process has a number for each parameter: how many
    processes had a gradient for it.  Where that is zero the sharded parameter gets none.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self.syncs = self.reduces_all = True  # whether gradients are reduced, and among replicas
        self.factor: float | None = None  # what their sums are divided by
        self.hook: Any = None  # `set_all_reduce_hook`
        self.scatterer: Any = None  # `set_custom_reduce_scatter`
        self.reducer: Any = None  # of `FullyShardedDataParallel.register_comm_hook`: also divides
        self.separate: Any = None  # a group of its own for reductions
        self.count = 0  # gradients that have come in this backward call
        self.held: dict[int, Tensor] = {}  # sums of whole gradients that were not reduced, by number
        self.partial: list[Tensor] = []  # reduced among those with parts, not yet among replicas
        self.running: Running | None = None

    @property
    def wanting(self) -> list[Any]:
        """The parameters that want gradients."""
        return [m for m in self.group.managed if m.sharded.requires_grad]

    def arrived(self) -> bool:
        """Count a gradient; whether it was the last."""
        self.count += 1
        if self.count < len(self.wanting):
            return False
        self.count = 0
        return True

    @property
    def dtype(self) -> Any:
        return self.group.policy.reduce_dtype or self.group.dtype

    @property
    def device(self) -> Any:
        """Where the whole parameters are, and their gradients."""
        return self.group.managed[0].sharded._local_tensor.device

    def launch(self, ahead: bool) -> bool:
        """Begin to reduce the gradients that there are; False where they only are summed."""
        self.count = 0
        wanting = self.wanting
        if not wanting:
            return False
        self.finish()
        with rushlight.no_grad():
            grads = [self._taken(k, m) for k, m in enumerate(wanting)]
            if not self.syncs:
                self.held = {k: g for k, g in enumerate(grads) if g is not None}
                return False
            apart = self._apart(wanting)
            packed = [k for k in range(len(wanting)) if k not in apart]
            flags = [g is not None for g in grads]
            sent = [self._message([wanting[k] for k in packed], [grads[k] for k in packed], flags)]
            sent += [self._alone(wanting[k], grads[k]) for k in apart]
            pairs = [self._scatter(x, ahead) for x in sent]
        self.running = Running([w for w, _ in pairs], sent, [mine for _, mine in pairs], packed, apart)
        return True

    def _apart(self, wanting: list[Any]) -> list[int]:
        """The numbers of parameters whose gradients are reduced each by itself."""
        plain = self.scatterer is None and self.reducer is None and self.hook is None
        big = self.group.big if plain and self.dtype is not rushlight.float16 else ()
        return [k for k, m in enumerate(wanting) if m in big]

    def _alone(self, m: Any, grad: Tensor | None) -> Tensor:
        """The gradient of a big parameter, a row for each process."""
        if grad is None:
            return rushlight.zeros((m.axes.part.size, m.count), dtype=self.dtype, device=self.device)
        return (grad if grad.dtype is self.dtype else grad.to(self.dtype)).reshape(m.axes.part.size, m.count)

    def _scatter(self, sent: Tensor, ahead: bool) -> tuple[Any, Tensor]:
        """Begin to reduce a message with a row for each process."""
        if self.reducer is not None:
            return None, self._by_reducer(sent)
        count, group = sent.shape[1], self.separate or self.group.axes.group
        if self.scatterer is not None:
            mine: Tensor = self.scatterer.allocate((count,), dtype=sent.dtype, device=sent.device)
            work = self.scatterer(
                output_tensor=mine, input_tensor=sent.view(-1), group=group, op=dist.ReduceOp.SUM, async_op=ahead
            )
            return work, mine
        mine = sent.new_empty(count)
        return dist.reduce_scatter_tensor(mine, sent.view(-1), group=group, async_op=ahead), mine

    def _by_reducer(self, sent: Tensor) -> Tensor:
        """Result of the hook for a message."""
        if self.group.axes.part.size == 1:
            self.reducer(sent[0])
            return sent[0]
        mine = sent.new_empty(sent.shape[1])
        self.reducer(sent.view(-1), mine)
        return mine

    def _taken(self, number: int, managed: Any) -> Tensor | None:
        """The gradient of a parameter with what was held of it, in the dtype of the reduction where sums are kept."""
        grad, held = managed.taken(), self.held.pop(number, None)
        if not self.syncs and grad is not None:
            grad = grad.to(self.dtype)
        if held is None or grad is None:
            return grad if held is None else held
        return held.add_(grad)

    def _message(self, wanting: list[Any], grads: list[Tensor | None], used: list[bool]) -> Tensor:
        """A row for each process: gradients of small parameters, and which of all parameters have one."""
        axes, dtype = self.group.axes, self.dtype
        like = next((g for g in grads if g is not None), None)
        pieces = []
        for m, g in zip(wanting, grads, strict=True):
            if g is None:
                kind = dtype if like is None else like.dtype
                pieces.append(rushlight.zeros((axes.part.size, m.count), dtype=kind, device=self.device))
            else:
                pieces.append(m.table(g))
        if any(p.dtype is not pieces[0].dtype for p in pieces):
            pieces = [p.to(dtype) for p in pieces]
        flags = rushlight.tensor([used], dtype=pieces[0].dtype if pieces else dtype, device=self.device)
        sent = rushlight.cat([*pieces, flags.expand(axes.part.size, -1)], 1)
        if sent.dtype is not dtype:
            sent = sent.to(dtype)
        if dtype is rushlight.float16:  # sums of many would leave the range of this dtype
            sent[:, : -len(used)] /= self._before()
        return sent

    def _divisor(self) -> float:
        axes = self.group.axes
        if self.reducer is not None:
            return 1.0
        return axes.part.size * axes.replicas if self.factor is None else self.factor

    def _before(self) -> float:
        """A power of two near the root of the divisor, by which half types are divided before they are summed."""
        factor = 1.0
        while self._divisor() % factor == 0 and self._divisor() / factor > factor:
            factor *= 2
        return factor

    def finish(self) -> None:
        """Wait for the reduction, and give the parameters their parts."""
        if self.running is None:
            return
        works, _, mine, packed, apart = self.running
        self.running = None
        for work in works:
            if work is not None:
                work.wait()
        axes = self.group.axes
        with rushlight.no_grad():
            for x, before in zip(mine, self.partial, strict=False):
                x += before
            self.partial = []
            if axes.replicas > 1 and self.reducer is None:
                if not self.reduces_all:
                    self.partial = mine
                    return
                for x in mine:
                    dist.all_reduce(x, group=axes.replica_group)
            if self.hook is not None:
                self.hook(mine[0])
            self._share_out(mine, packed, apart)

    def _share_out(self, mine: list[Tensor], packed: list[int], apart: list[int]) -> None:
        wanting = self.wanting
        used = mine[0][-len(wanting) :].tolist()
        for m, part, there in zip(wanting, self._divided(wanting, mine, packed, apart), used, strict=True):
            if there:
                m.receive(part)

    def _divided(self, wanting: list[Any], mine: list[Tensor], packed: list[int], apart: list[int]) -> list[Tensor]:
        """This process's part of each parameter's mean gradient, from sums, which are divided in place."""
        small = mine[0].split([*(wanting[k].count for k in packed), len(wanting)])[:-1]
        divisor = self._divisor() / (self._before() if mine[0].dtype is rushlight.float16 else 1.0)
        if divisor != 1.0:
            for x in mine:
                x /= divisor
        parts = dict(zip([*packed, *apart], [*small, *mine[1:]], strict=True))
        return [parts[k] for k in range(len(wanting))]

    def parts_of(self, wanting: list[Any], grads: list[Tensor]) -> list[Tensor]:
        """This process's parts of the mean gradients of some parameters, all of which have one: `launch` and `finish`
        without anything kept.
        """
        apart = self._apart(wanting)
        packed = [k for k in range(len(wanting)) if k not in apart]
        message = self._message([wanting[k] for k in packed], [grads[k] for k in packed], [True] * len(wanting))
        mine = [self._scatter(x, False)[1] for x in (message, *[self._alone(wanting[k], grads[k]) for k in apart])]
        if self.group.axes.replicas > 1:
            for x in mine:
                dist.all_reduce(x, group=self.group.axes.replica_group)
        return self._divided(wanting, mine, packed, apart)

    def forget(self) -> None:
        """Drop what was summed and what runs."""
        for work in self.running.works if self.running is not None else ():
            if work is not None:
                work.wait()
        self.running, self.partial, self.held, self.count = None, [], {}, 0
        for m in self.group.managed:
            m.taken()
