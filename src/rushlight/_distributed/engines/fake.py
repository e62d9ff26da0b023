"""The engine of groups that pretend: one process runs as a rank of many, and nothing is sent.

What would come from other processes is this one's own: programs can be tried, and the cost of their Python measured,
without the others.  Results are wrong wherever the others' elements matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._distributed.engines.buffers import Buffer, Reduction
from rushlight._distributed.engines.single import SingleCommunicator, Steps, copies

__all__ = ["FakeCommunicator"]


class FakeCommunicator(SingleCommunicator):
    """A group of `size` processes of which this one is number `rank`, alone."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def all_reduce(self, x: Buffer, reduction: Reduction) -> Steps:
        """Leave `x` as it is."""
        return []

    def all_gather(self, x: Buffer, out: Sequence[Buffer], together: bool = False) -> Steps:
        """Copy `x` to every place."""
        return [step for place in out for step in copies([x], [place])]

    def gather(self, x: Buffer, out: Sequence[Buffer] | None, root: int) -> Steps:
        """Copy `x` to every place, on `root`."""
        return self.all_gather(x, out or ())

    def scatter(self, x: Buffer, parts: Sequence[Buffer] | None, root: int) -> Steps:
        """Copy this process's place in `parts` to `x`, on `root`."""
        return copies([parts[self.rank]], [x]) if parts else []

    def reduce_scatter(self, x: Buffer, parts: Sequence[Buffer], reduction: Reduction, together: bool = False) -> Steps:
        """Copy this process's place in `parts` to `x`."""
        return copies([parts[self.rank]], [x])

    def all_to_all(self, out: Sequence[Buffer], parts: Sequence[Buffer], together: bool = False) -> Steps:
        """Copy this process's parts to the places of the same numbers, where they have the same sizes."""
        return [
            step
            for part, place in zip(parts, out, strict=True)
            if part.nbytes == place.nbytes
            for step in copies([part], [place])
        ]

    def send(self, x: Buffer, to: int, tag: int) -> Steps:
        """Nothing."""
        return []

    def receive(self, x: Buffer, source: int, tag: int) -> Steps:
        """Nothing: `x` stays as it is."""
        return []

    def subset(self, ranks: Sequence[int], tag: int) -> FakeCommunicator:
        """Some of the ranks."""
        return FakeCommunicator(list(ranks).index(self.rank), len(ranks))
