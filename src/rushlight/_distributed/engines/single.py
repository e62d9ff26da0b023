"""The engine of a group of one process: every collective is a copy.

A communicator's methods give the *steps* of an operation: Python functions to call, one after the other, or calls of an
engine as tuples of words (see `mpi`).  Here there are functions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._distributed.engines.buffers import Buffer, Reduction, array_at, copy_bytes, narrow, scale, widen

__all__ = ["SingleCommunicator", "Steps", "copies"]

Steps = list[Any]


class SingleCommunicator:
    """A group that consists of this process."""

    rank, size = 0, 1

    def all_reduce(self, x: Buffer, reduction: Reduction) -> Steps:
        """Reduce `x` in place."""
        return [lambda: _premultiply(x, reduction)] if reduction.factor is not None else []

    def reduce(self, x: Buffer, reduction: Reduction, root: int) -> Steps:
        """Reduce `x` in place, on `root`."""
        return self.all_reduce(x, reduction)

    def broadcast(self, x: Buffer, root: int) -> Steps:
        """Copy `x` of `root` to all."""
        return []

    def all_gather(self, x: Buffer, out: Sequence[Buffer], together: bool = False) -> Steps:
        """Copy every process's `x` to its place in `out`, on all."""
        return copies([x], out)

    def gather(self, x: Buffer, out: Sequence[Buffer] | None, root: int) -> Steps:
        """Copy every process's `x` to its place in `out`, on `root`."""
        return copies([x], out or ())

    def scatter(self, x: Buffer, parts: Sequence[Buffer] | None, root: int) -> Steps:
        """Copy this process's place in `root`'s `parts` to `x`."""
        return copies(parts or (), [x])

    def reduce_scatter(self, x: Buffer, parts: Sequence[Buffer], reduction: Reduction, together: bool = False) -> Steps:
        """Reduce this process's place in everybody's `parts` into `x`."""
        return [*copies(parts, [x]), *self.all_reduce(x, reduction)]

    def all_to_all(self, out: Sequence[Buffer], parts: Sequence[Buffer], together: bool = False) -> Steps:
        """Copy this process's place in everybody's `parts` to their places in `out`."""
        return copies(parts, out)

    def barrier(self) -> Steps:
        """Wait until all are here."""
        return []

    def send(self, x: Buffer, to: int, tag: int) -> Steps:
        """Send `x` to another process."""
        raise RuntimeError("send: a group of one process has nobody to send to")

    def receive(self, x: Buffer, source: int, tag: int) -> Steps:
        """Receive `x` from another process."""
        raise RuntimeError("recv: a group of one process has nobody to receive from")

    def subset(self, ranks: Sequence[int], tag: int) -> SingleCommunicator:
        """A communicator of some of the ranks."""
        return SingleCommunicator()

    def free(self) -> None:
        """Give up what the communicator holds."""


def copies(parts: Sequence[Buffer], out: Sequence[Buffer]) -> Steps:
    """Steps that copy each part to its place, where that is another one."""
    return [
        lambda part=part, place=place: copy_bytes(place.address, part.address, part.nbytes)
        for part, place in zip(parts, out, strict=True)
        if part.nbytes and part.address != place.address
    ]


def _premultiply(x: Buffer, reduction: Reduction) -> None:
    if x.count and x.dtype in ("float16", "bfloat16"):
        wide = widen(x)
        scale(wide, reduction.factor, 1)
        narrow(wide, x)
    elif x.count:
        scale(array_at(x), reduction.factor, 1)
