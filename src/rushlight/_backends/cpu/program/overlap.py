"""Overlap: collectives begin as early as their operands are there, and are waited for where their results are read.

Launches that a collective does not need come behind it.  Then a collective with enough work behind it is divided into its
halves.  Collectives of one group keep their order: each takes what the one before gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["divided_collectives", "early", "overlapped"]

LEAST_BYTES = 1 << 16  # moved by the launches between both halves


def overlapped(launches: Sequence[Any], halves: Callable[[Any], tuple[Any, Any]]) -> list[Any]:
    """The launches of a program, in an order in which they can run; `halves(x)` are those of a collective.

    A launch has `reads` and `writes`: sets of keys of memory; `moved`, in bytes; and `halves`, of its `launch`.
    """
    if not any(x.launch.halves for x in launches):
        return list(launches)
    return divided_collectives(early(launches), halves)


def early(launches: Sequence[Any]) -> list[Any]:
    """The launches with what each collective needs, and no more, before it."""
    before = _before(launches)
    done = [False] * len(launches)
    order: list[int] = []
    for k in [*[k for k, x in enumerate(launches) if x.launch.halves], *range(len(launches))]:
        todo, needed = [k], set[int]()
        while todo:
            n = todo.pop()
            if not done[n]:
                done[n] = True
                needed.add(n)
                todo += before[n]
        order += sorted(needed)
    return [launches[k] for k in order]


def _before(launches: Sequence[Any]) -> list[set[int]]:
    """For each launch those that must run before it."""
    writers: dict[Any, int] = {}
    readers: dict[Any, list[int]] = {}
    before: list[set[int]] = []
    for k, x in enumerate(launches):
        found = {writers[key] for key in (*x.reads, *x.writes) if key in writers}
        for key in x.writes:
            found.update(readers.get(key, ()))
        before.append(found)
        for key in x.writes:
            writers[key], readers[key] = k, []
        for key in x.reads - x.writes:
            readers.setdefault(key, []).append(k)
    return before


def divided_collectives(launches: Sequence[Any], halves: Callable[[Any], tuple[Any, Any]]) -> list[Any]:
    """Each collective in its halves, the second one before the launch that reads the result or writes the operand."""
    ends: dict[int, list[Any]] = {}
    starts: dict[int, Any] = {}
    for k, x in enumerate(launches):
        if not x.launch.halves:
            continue
        start, finish = halves(x)
        at = next((n for n in range(k + 1, len(launches)) if _meet(finish, launches[n])), len(launches))
        if sum(each.moved for each in launches[k + 1 : at]) >= LEAST_BYTES:
            starts[k] = start
            ends.setdefault(at, []).append(finish)
    made: list[Any] = []
    for k, x in enumerate(launches):
        made += [*ends.get(k, ()), starts.get(k, x)]
    return made + ends.get(len(launches), [])


def _meet(finish: Any, other: Any) -> bool:
    """Whether a launch has to wait for the end of a collective."""
    return bool(other.reads & finish.writes or other.writes & (finish.reads | finish.writes))
