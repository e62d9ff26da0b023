"""Where the temporaries of a program lie: in one stretch of memory, in which those that live at different times overlap.

The steps of a program run in order on one stream, so memory is free again behind the last step that touches it.

>>> from rushlight._backends.cuda.program.planning import placed
>>> placed([(0, 1, 300), (2, 3, 500), (1, 2, 100)])      # first step, last step, bytes
([0, 0, 512], 768)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rushlight._backends.cuda.program.steps import Memory, Step

__all__ = ["lifetimes", "placed"]

_ALIGNMENT = 256  # bytes


def lifetimes(steps: Sequence[Step], held: Iterable[Memory]) -> dict[Memory, tuple[int, int]]:
    """The first and the last step that touches each memory that a program has for itself: all but those in `held`."""
    outside, found = set(held), dict[Memory, tuple[int, int]]()
    for number, step in enumerate(steps):
        for memory in (*step.reads, *step.writes):
            if memory not in outside:
                found[memory] = (found.get(memory, (number,))[0], number)
    return found


def placed(lives: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """An offset for each (first step, last step, bytes), and the bytes of all: the largest first, each into the lowest
    gap that is free while it lives.
    """
    offsets, taken, total = [0] * len(lives), list[tuple[int, int, int, int]](), 0
    for k in sorted(range(len(lives)), key=lambda k: -lives[k][2]):
        first, last, nbytes = lives[k]
        size, at = -(-nbytes // _ALIGNMENT) * _ALIGNMENT, 0
        for begin, end, other_first, other_last in sorted(taken):
            if other_first <= last and first <= other_last:
                if begin >= at + size:
                    break
                at = max(at, end)
        offsets[k] = at
        taken.append((at, at + size, first, last))
        total = max(total, at + size)
    return offsets, total
