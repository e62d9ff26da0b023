"""One micro-batch through a stage: computing and collectives as two queues, one beside the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rushlight.distributed.estimate.layouts import Layout, SpreadLayer, units_of
from rushlight.distributed.estimate.machine import Machine
from rushlight.distributed.estimate.work import Work

__all__ = ["Pass", "Stage"]


@dataclass
class Pass:
    """Seconds of one direction of one micro-batch: in all, computing, and all seconds of collectives by kind."""

    seconds: float = 0.0
    computing: float = 0.0
    collectives: dict[str, float] = field(default_factory=lambda: defaultdict(float))


class _Queues:
    """The clock of computing, and that of collectives that run beside it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.computed = self.moved = 0.0
        self.found = Pass()

    def compute(self, work: Work, spread: bool = False) -> None:
        """Compute."""
        seconds = self.machine.compute(work.flops, work.nbytes, work.calls, spread)
        self.computed += seconds
        self.found.computing += seconds

    def copy(self, nbytes: float) -> None:
        """Copy between tensors and the buffers of collectives: bytes are read and written."""
        self.compute(Work(0.0, 2 * nbytes, 0))

    def wait_for(self, kind: str, nbytes: float, size: int, stride: int) -> None:
        """A collective whose result is needed at once."""
        if size > 1 and nbytes:
            seconds = self.machine.seconds(kind, nbytes, size, stride)
            self.computed += seconds
            self.found.collectives[kind] += seconds

    def begin(self, kind: str, nbytes: float, size: int, stride: int, after: float) -> float:
        """A collective beside, not before `after`; when it ends.  What cannot hide takes time from computing."""
        if size == 1 or not nbytes:
            return after
        seconds = self.machine.seconds(kind, nbytes, size, stride)
        self.found.collectives[kind] += seconds
        self.computed += (1 - self.machine.overlap) * seconds
        self.moved = max(self.moved, after) + self.machine.overlap * seconds
        return self.moved

    def end(self) -> Pass:
        """Both queues are empty."""
        self.found.seconds = max(self.computed, self.moved)
        return self.found


@dataclass
class Stage:
    """Layers of one pipeline stage on one rank, for one micro-batch."""

    layers: Sequence[SpreadLayer]
    layout: Layout
    machine: Machine

    def __post_init__(self) -> None:
        self.units = units_of(self.layers)
        self.known: dict[tuple[str, bool], Pass] = {}

    @property
    def elements(self) -> int:
        """Parameters of this rank before data parallel ranks divide them."""
        return sum(spread.layer.elements for spread in self.layers)

    @property
    def nbytes(self) -> float:
        """Their bytes."""
        return float(sum(_bytes_of(spread) for spread in self.layers))

    @property
    def saved(self) -> float:
        """Bytes that one micro-batch keeps for backward."""
        if self.layout.checkpoint:
            return sum(next((s.layer.given for s in unit if s.layer.given), 0.0) for unit in self.units)
        return sum(spread.layer.saved for spread in self.layers)

    @property
    def saved_again(self) -> float:
        """Bytes that a checkpointed block keeps while it runs again."""
        if not self.layout.checkpoint:
            return 0.0
        return max(sum(spread.layer.saved for spread in unit) for unit in self.units)

    @property
    def made(self) -> float:
        """Bytes that go to the next stage."""
        return next((spread.layer.made for spread in reversed(self.layers) if spread.layer.made), 0.0)

    @property
    def largest_units(self) -> float:
        """Bytes of the two largest units: the one that computes and the one that is gathered ahead."""
        return float(sum(sorted((sum(map(_bytes_of, unit)) for unit in self.units), reverse=True)[:2]))

    def run(self, backward: bool, marked: bool) -> Pass:
        """One direction; `marked` is the first micro-batch in forward, the last in backward."""
        key = "backward" if backward else "forward", marked
        if key not in self.known:
            self.known[key] = self._backward(marked) if backward else self._forward(marked)
        return self.known[key]

    def _gathers(self, backward: bool, marked: bool) -> bool:
        shard = self.layout.shard
        return shard == "parameters" or (shard == "gradients" and not backward and marked)

    def _forward(self, first: bool) -> Pass:
        queues, layout = _Queues(self.machine), self.layout
        gathers, issued = self._gathers(False, first), 0.0
        for unit in self.units:
            if gathers:
                ready = queues.begin("all_gather", sum(map(_bytes_of, unit)), layout.dp, layout.tp, issued)
                queues.computed = max(queues.computed, ready)
                queues.copy(sum(map(_bytes_of, unit)))
            issued = queues.computed  # the next unit is gathered while this one computes
            for spread in unit:
                queues.compute(spread.layer.forward, spread.spread)
                queues.wait_for("all_reduce", spread.after_forward, layout.tp, 1)
        return queues.end()

    def _backward(self, last: bool) -> Pass:
        queues, layout = _Queues(self.machine), self.layout
        gathers, issued, bucket = self._gathers(True, last), 0.0, 0.0
        reduces = layout.shard in ("gradients", "parameters")
        for unit in reversed(self.units):
            nbytes = sum(map(_bytes_of, unit))
            if gathers:
                ready = queues.begin("all_gather", nbytes, layout.dp, layout.tp, issued)
                queues.computed = max(queues.computed, ready)
                queues.copy(nbytes)
            issued = queues.computed
            for spread in unit if layout.checkpoint else ():
                queues.compute(spread.layer.forward, spread.spread)
                queues.wait_for("all_reduce", spread.after_forward, layout.tp, 1)
            for spread in reversed(unit):
                queues.compute(spread.layer.backward, spread.spread)
                queues.wait_for("all_reduce", spread.after_backward, layout.tp, 1)
                if not reduces and last:
                    bucket += _bytes_of(spread)
                    if bucket >= layout.bucket_bytes:
                        queues.begin("all_reduce", bucket, layout.dp, layout.tp, queues.computed)
                        bucket = 0.0
            if layout.dp > 1 and (reduces or last):
                queues.copy(nbytes if reduces else 2 * nbytes)  # into a buffer; of buckets also back
            if reduces:
                queues.begin("reduce_scatter", nbytes, layout.dp, layout.tp, queues.computed)
        queues.begin("all_reduce", bucket, layout.dp, layout.tp, queues.computed)
        return queues.end()


def _bytes_of(spread: SpreadLayer) -> float:
    return float(spread.layer.elements * spread.layer.itemsize)
