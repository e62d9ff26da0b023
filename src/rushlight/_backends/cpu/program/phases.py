"""Phases of a program: stretches of waves between which memory is taken and given back.

A program that holds much for long gets its memory in several blocks: one for what is made in phase q and read last in
phase p.  A block is there from q to p, and a result from the phase that writes it first.  So memory of activations is
free again when the gradients of the layers before them need some.

In one phase all results are there from the beginning: what is read last before a result is written first may lie in its
memory.  That takes little more than several phases do, and fewer blocks of different sizes, each of which the pool
keeps for itself.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from rushlight._backends.cpu.program.arena import ALIGNMENT, free_place, planned

__all__ = ["Division", "divided"]

COUNTS = (4, 8, 16, 32, 64)  # phases to choose from
LEAST_BYTES = 1 << 23  # memory up to which one phase is enough
LEAST_SAVED = 0.97  # part of the memory of fewer phases that more may take
LEAST_PHASED = 0.75  # part of the memory of one phase with full results that several may take
LEAST_HOSTED = 1 << 12  # bytes of what lies in a result
MOST_HOSTED = 512  # buffers and results that are tried

Buffer = tuple[int, int, int]  # bytes, first wave, last wave


class Division(NamedTuple):
    """`ends` is the wave behind each phase; `blocks` are (bytes, first phase, last phase), the first there all the
    time; `places` says for each buffer its block (-1 - k: result k) and the offset in it; `results` in which phase each
    result is made; `most` is the greatest sum of blocks and results at a time.
    """

    ends: list[int]
    blocks: list[Buffer]
    places: list[tuple[int, int]]
    results: list[int]
    most: int

    @property
    def peak(self) -> int:
        """The greatest sum of blocks at a time."""
        return max(_at_a_time(self.blocks, len(self.ends)))


def divided(
    buffers: Sequence[Buffer], results: Sequence[tuple[int, int]], waves: int, known: int | None = None
) -> Division:
    """The division of a program with the least memory; `results` are (bytes, wave that writes it first).  Where the number
    of its phases is `known`, no others are tried.

    >>> forward, gradients = [(100, k, 7 - k) for k in range(4)], [(100, 4 + k) for k in range(4)]
    >>> divided(forward, gradients, 8).most  # too little for several phases
    912
    """
    if known is not None and 1 < known <= waves:
        return _with_ends(buffers, results, _ends(waves, known))
    whole = found = _with_ends(buffers, results, [waves])
    if found.most < LEAST_BYTES:
        return found
    if known == 1:
        return _in_results(buffers, results, whole)
    for count in COUNTS:
        if 2 * count > waves:
            break
        other = _with_ends(buffers, results, _ends(waves, count))
        if other.most < LEAST_SAVED * found.most:
            found = other
    one = _in_results(buffers, results, whole)
    return found if found.most < LEAST_PHASED * one.most else one


def _in_results(buffers: Sequence[Buffer], results: Sequence[tuple[int, int]], whole: Division) -> Division:
    """One phase, with large buffers in the memory of results that are written later."""
    sizes = sorted((-(-nbytes // ALIGNMENT) * ALIGNMENT, k) for k, (nbytes, _) in enumerate(results))[-MOST_HOSTED:]
    placed: dict[int, list[tuple[int, int, int, int]]] = {k: [] for _, k in sizes}
    hosted: dict[int, tuple[int, int]] = {}
    by_size = sorted(range(len(buffers)), key=lambda k: (-buffers[k][0], buffers[k][1]))
    for b in by_size[:MOST_HOSTED]:
        nbytes, first, last = buffers[b]
        if nbytes < LEAST_HOSTED:
            break
        for size, k in sizes[bisect_left(sizes, (nbytes, 0)) :]:
            if last < results[k][1]:
                at = free_place(placed[k], nbytes, first, last)
                if at + nbytes <= size:
                    hosted[b] = -1 - k, at
                    insort(placed[k], (at, -(-(at + nbytes) // ALIGNMENT) * ALIGNMENT, first, last))
                    break
    if not hosted:
        return whole
    rest = [k for k in range(len(buffers)) if k not in hosted]
    offsets, size = planned([buffers[k] for k in rest])
    places = hosted | {k: (0, at) for k, at in zip(rest, offsets, strict=True)}
    most = size + sum(nbytes for nbytes, _ in results)
    return whole._replace(blocks=[(size, 0, 0)], places=[places[k] for k in range(len(buffers))], most=most)


def _ends(waves: int, count: int) -> list[int]:
    """The waves behind phases of about one length."""
    return [waves * (k + 1) // count for k in range(count)]


def _with_ends(buffers: Sequence[Buffer], results: Sequence[tuple[int, int]], ends: list[int]) -> Division:
    """The division into phases that end there."""
    phase_of = [p for p, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)) for _ in range(begin, end)] or [
        0
    ]
    groups: dict[tuple[int, int], list[int]] = {(0, len(ends) - 1): []}
    for k, (_, first, last) in enumerate(buffers):
        last = min(last, len(phase_of) - 1)
        groups.setdefault((phase_of[first], phase_of[last]), []).append(k)
    blocks: list[Buffer] = []
    places = [(0, 0)] * len(buffers)
    for (first, last), inside in groups.items():
        offsets, size = planned([buffers[k] for k in inside])
        for k, offset in zip(inside, offsets, strict=True):
            places[k] = len(blocks), offset
        blocks.append((size, first, last))
    made = [phase_of[wave] for _, wave in results]
    held = _at_a_time(blocks, len(ends), zip([nbytes for nbytes, _ in results], made, strict=True))
    return Division(ends, blocks, places, made, max(held))


def _at_a_time(blocks: Sequence[Buffer], phases: int, results: Iterable[tuple[int, int]] = ()) -> list[int]:
    """The bytes that are there in each phase: of blocks, and of results (bytes, phase that makes it)."""
    change = [0] * (phases + 1)
    for nbytes, first, last in blocks:
        change[first] += nbytes
        change[last + 1] -= nbytes
    for nbytes, first in results:
        change[first] += nbytes
    return [*accumulate(change[:phases])]
