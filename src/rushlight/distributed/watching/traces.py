"""One trace of all ranks: a process row for each, and arrows from who came last to a collective to those that waited."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.watching.clocks import clock_offsets

__all__ = ["merge_trace_files", "merge_traces"]

Trace = dict[str, Any]


def merge_traces(prof: Any, path: str, group: Any = None) -> str | None:
    """Write the profiles of all ranks of a group as one trace; every rank calls it, the first writes and gets the path.

    `prof` is a profile that has ended (`torch.profiler.profile`).  Times are brought to the first rank's clock.  A name
    that ends in `.gz` is compressed.

    Example: `with profile() as prof: step()`, then `merge_traces(prof, "step.json.gz")`
    """
    with tempfile.TemporaryDirectory() as directory:
        own = os.path.join(directory, "trace.json")
        prof.export_chrome_trace(own)
        with open(own) as file:
            trace = json.load(file)
    offsets = clock_offsets(group)
    size, here = dist.get_world_size(group), dist.get_rank(group)
    traces: list[Any] | None = [None] * size if here == 0 else None
    dist.gather_object(trace, traces, group=group, group_dst=0)
    if traces is None:
        return None
    ranks = dist.get_process_group_ranks(group)
    _write(path, merged(dict(zip(ranks, traces, strict=True)), dict(zip(ranks, offsets, strict=True))))
    return path


def merge_trace_files(
    files: Mapping[int, str] | Sequence[str], path: str, offsets: Mapping[int, float] | None = None
) -> str:
    """The same for files that ranks have written: rank -> file, or files in the order of ranks.

    `offsets` are seconds to take off each rank's times; files of one machine need none.
    """
    by_rank = dict(files) if isinstance(files, Mapping) else dict(enumerate(files))
    _write(path, merged({rank: _read(file) for rank, file in by_rank.items()}, offsets or {}))
    return path


def _read(path: str) -> Trace:
    opened: Any = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    with opened as file:
        found: Trace = json.load(file)
    return found


def _write(path: str, trace: Trace) -> None:
    opened: Any = gzip.open(path, "wt") if path.endswith(".gz") else open(path, "w")
    with opened as file:
        json.dump(trace, file)


def merged(traces: Mapping[int, Trace], offsets: Mapping[int, float]) -> Trace:
    """One trace of those of several ranks."""
    rows: list[Any] = []
    collectives: dict[Any, list[tuple[int, Any]]] = defaultdict(list)
    for rank, trace in traces.items():
        rows += _headers(rank, trace)
        for row in trace["traceEvents"]:
            if row.get("name") in ("process_name", "process_labels", "process_sort_index") and row.get("ph") == "M":
                continue
            moved = _moved(row, rank, 1e6 * offsets.get(rank, 0.0))
            rows.append(moved)
            args = row.get("args") or {}
            if args.get("Seq"):
                key = args["Process Group Name"], args["Process Group Ranks"], args["Seq"], args["Collective name"]
                collectives[key].append((rank, moved))
    for number, (key, parts) in enumerate(sorted(collectives.items(), key=lambda item: str(item[0])), 1):
        rows += _arrows(parts, number << 16, f"{key[3]} #{key[2]}")
    first = next(iter(traces.values()))
    kept: Trace = {
        name: first[name] for name in ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds") if name in first
    }
    return {**kept, "ranks": sorted(traces), "traceEvents": rows}


def _headers(rank: int, trace: Trace) -> list[Any]:
    host = trace.get("host_name", "")
    start = min((row["ts"] for row in trace["traceEvents"] if "ts" in row), default=0)
    where = {"ph": "M", "ts": start, "pid": rank, "tid": 0}
    return [
        {"name": "process_name", "args": {"name": f"rank {rank}"}, **where},
        {"name": "process_labels", "args": {"labels": host}, **where},
        {"name": "process_sort_index", "args": {"sort_index": rank}, **where},
    ]


def _moved(row: Any, rank: int, microseconds: float) -> Any:
    """A row of a rank in the merged trace; ids of arrows are apart from those of other ranks."""
    moved = {**row, "pid": rank if isinstance(row.get("pid"), int) else f"rank {rank} {row.get('pid', '')}".strip()}
    if "ts" in row:
        moved["ts"] = row["ts"] - microseconds
    if "id" in row:
        moved["id"] = f"{rank}.{row['id']}"
    return moved


def _arrows(parts: list[tuple[int, Any]], number: int, name: str) -> list[Any]:
    """From the rank that came last to each that waited; and how long it did, in the rows of all."""
    last, came = max(parts, key=lambda part: float(part[1]["ts"]))
    rows: list[Any] = []
    for k, (rank, row) in enumerate(parts):
        row["args"] = {**row["args"], "Waited us": max(came["ts"] - row["ts"], 0.0), "Waited for rank": last}
        if rank == last:
            continue
        where = {"cat": "collective", "name": name, "id": number + k}
        until = min(max(came["ts"], row["ts"]), row["ts"] + row["dur"])
        rows.append({"ph": "s", "ts": came["ts"], "pid": last, "tid": came["tid"], **where})
        rows.append({"ph": "f", "bp": "e", "ts": until, "pid": rank, "tid": row["tid"], **where})
    return rows
