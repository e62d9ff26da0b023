"""Load imbalance: for each rank how long it computed, how long it waited in collectives, and for whom."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rushlight._interface.distributed import FLIGHT
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.watching.clocks import clock_offsets

__all__ = ["LoadBalance", "RankRow", "load_balance"]


class RankRow(NamedTuple):
    """One rank's times, in seconds.

    `wall` is the time of the block; `compute` what is left of it without `waiting` (in collectives, until the last rank had
    come), `transfer` (in collectives, after that) and `messages` (standing still in send and recv).  `awaited` is how long
    others waited for this rank, and `culprits` for how long it waited for each of the others.
    """

    rank: int
    wall: float
    compute: float
    waiting: float
    transfer: float
    messages: float
    awaited: float
    collectives: int
    nbytes: int
    culprits: dict[int, float]


class _Call(NamedTuple):
    """One collective as one rank saw it; times of the first rank's clock."""

    key: tuple[str, tuple[int, ...], int]
    nbytes: int
    began: float
    stood: float  # when the program began to stand still for it, 0: never
    blocked: float


class LoadBalance:
    """A block of a program on all ranks; `rows` and `table()` are there when it has ended, on every rank."""

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.rows: list[RankRow] = []
        self._kept: list[Any] = []
        self._began = 0.0

    def __enter__(self) -> LoadBalance:
        self._kept = []
        FLIGHT.taps.append(self._kept)
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        wall = time.monotonic() - self._began
        FLIGHT.taps = [tap for tap in FLIGHT.taps if tap is not self._kept]
        if kind is None:
            self._gather(wall, [operation for operation in self._kept if operation.done])

    def _gather(self, wall: float, operations: list[Any]) -> None:
        offset = clock_offsets(self.group)[dist.get_rank(self.group)]
        calls = [_call(o, offset) for o in operations if o.number]
        messages = sum(o.blocked for o in operations if not o.number)
        everybody: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(everybody, (wall, messages, [tuple(c) for c in calls]), group=self.group)
        ranks = dist.get_process_group_ranks(self.group)
        seen = {r: (w, m, [_Call(*c) for c in cs]) for r, (w, m, cs) in zip(ranks, everybody, strict=True)}
        self.rows = rank_rows(seen)

    def table(self) -> str:
        """The rows as text; times in milliseconds."""
        titles = (
            "rank",
            "wall",
            "compute",
            "waiting",
            "transfer",
            "messages",
            "others waited",
            "collectives",
            "MB",
            "waits for",
        )
        lines = [titles]
        for row in self.rows:
            times = (row.wall, row.compute, row.waiting, row.transfer, row.messages, row.awaited)
            culprits = sorted(row.culprits.items(), key=lambda item: -item[1])[:3]
            who = ", ".join(f"rank {rank} {1e3 * seconds:.1f}" for rank, seconds in culprits) or "-"
            numbers = [f"{1e3 * seconds:.1f}" for seconds in times]
            lines.append((str(row.rank), *numbers, str(row.collectives), f"{row.nbytes / 1e6:.2f}", who))  # type: ignore[arg-type]
        widths = [max(len(line[k]) for line in lines) for k in range(len(titles))]
        text = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([text[0], "  ".join("-" * w for w in widths), *text[1:]])

    __str__ = table


def load_balance(group: Any = None) -> LoadBalance:
    """A context in which every rank runs some steps; afterwards `print(balance.table())` says who waited for whom.

    Example: `with load_balance() as balance: train(steps=20)`
    """
    return LoadBalance(group)


def _call(operation: Any, offset: float) -> _Call:
    group = operation.group
    stood = operation.stood - offset if operation.stood else 0.0
    key = group.name, group.ranks, operation.number
    return _Call(key, operation.nbytes, operation.began - offset, stood, operation.blocked)


def rank_rows(seen: Mapping[int, tuple[float, float, Sequence[_Call]]]) -> list[RankRow]:
    """The rows of ranks from what each saw: seconds of the block, seconds in messages, collectives."""
    came: dict[Any, list[tuple[float, int]]] = defaultdict(list)
    for rank, (_, _, calls) in seen.items():
        for call in calls:
            came[call.key].append((call.began, rank))
    last = {key: max(arrivals) for key, arrivals in came.items()}
    culprits: dict[int, dict[int, float]] = {rank: defaultdict(float) for rank in seen}
    blocked: dict[int, float] = defaultdict(float)
    for rank, (_, _, calls) in seen.items():
        for call in calls:
            blocked[rank] += call.blocked
            arrived, who = last[call.key]
            if call.stood and who != rank:
                culprits[rank][who] += min(max(arrived - call.stood, 0.0), call.blocked)
    awaited: dict[int, float] = defaultdict(float)
    for own in culprits.values():
        for who, seconds in own.items():
            awaited[who] += seconds
    rows = []
    for rank, (wall, messages, calls) in sorted(seen.items()):
        waiting = sum(culprits[rank].values())
        transfer = blocked[rank] - waiting
        compute = max(wall - blocked[rank] - messages, 0.0)
        nbytes = sum(call.nbytes for call in calls)
        rows.append(
            RankRow(
                rank,
                wall,
                compute,
                waiting,
                transfer,
                messages,
                awaited[rank],
                len(calls),
                nbytes,
                dict(culprits[rank]),
            )
        )
    return rows
