"""Where ranks diverged: the first operation of every group that not all its ranks did alike."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Finding", "GroupKey", "analyse", "line_of"]

Entry = dict[str, Any]
# Operations whose ranks may have tensors of different sizes.
_UNEVEN = ("all_gather", "all_to_all", "gather", "scatter", "reduce_scatter", "ALLGATHER_coalesced")


class GroupKey(NamedTuple):
    """A group: ranks of one name may be several groups."""

    name: str
    ranks: tuple[int, ...]


class Finding(NamedTuple):
    """One thing that is wrong: what, in which group, at which number of its collectives (0: messages), who is to blame
    as far as that can be told, and the text.
    """

    kind: str  # "missing", "mismatch", "unfinished", "message", "no file"
    group: GroupKey
    number: int
    ranks: tuple[int, ...]
    text: str


def line_of(entry: Entry) -> str:
    """The user's line of an entry: the innermost outside of PyTorch."""
    frames = entry.get("frames") or []
    if not frames:
        return "an unknown line"
    frame = next((f for f in frames if "/torch/" not in f["filename"]), frames[0])
    return f"{frame['filename']}:{frame['line']} in {frame['name']}"


def _is_done(entry: Entry) -> bool:
    """PyTorch's group of the CPU says of operations that are done only that they are retired."""
    return entry["state"] == "completed" or bool(entry.get("retired"))


def _groups_of(file: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> ranks of the groups of a file.  PyTorch's group of the CPU leaves the name of the first one out."""
    found = {name: config["ranks"] for name, config in file["pg_config"].items()}
    unnamed = found.pop("", None)
    for entry in file["entries"]:
        found.setdefault(entry["process_group"][0], unnamed or [])
    return {name: tuple(ast.literal_eval(r) if isinstance(r, str) else r) for name, r in found.items()}


def _shown(entry: Entry) -> str:
    tensors = ", ".join(
        f"{d} {list(s)}" for d, s in zip(entry["input_dtypes"], entry["input_sizes"], strict=False) if d
    )
    reduction = f"({entry['reduction']})" if entry.get("reduction") else ""
    return f"{entry['profiling_name']}{reduction} {tensors or 'no tensors'}, {entry['state']}, at {line_of(entry)}"


def _alike(entry: Entry) -> tuple[Any, ...]:
    """Properties that must be equal on all ranks."""
    name = entry["profiling_name"].partition(":")[2]
    sizes = None if name in _UNEVEN else [list(s) for s in entry["input_sizes"]]
    return name, str(entry.get("reduction", "")), str(sizes), str(entry["input_dtypes"])


def analyse(files: Mapping[int, Mapping[str, Any]]) -> list[Finding]:
    """Diagnoses, group by group; none where all ranks did the same and all of it is done."""
    members: dict[GroupKey, dict[int, list[Entry]]] = {}
    for rank, file in files.items():
        for name, ranks in _groups_of(file).items():
            key = GroupKey(name, ranks)
            own = [e for e in file["entries"] if e["process_group"][0] == name]
            members.setdefault(key, {})[rank] = own
    findings: list[Finding] = []
    for key, by_rank in sorted(members.items(), key=lambda item: item[0].name):
        absent = [rank for rank in key.ranks if rank not in files]
        if absent:
            findings.append(Finding("no file", key, 0, tuple(absent), f"no file of ranks {absent}"))
        findings += _collectives(key, by_rank, files)
        findings += _messages(key, by_rank)
    return findings


def _collectives(key: GroupKey, by_rank: dict[int, list[Entry]], files: Mapping[int, Any]) -> list[Finding]:
    numbered = {rank: {e["collective_seq_id"]: e for e in own if not e["is_p2p"]} for rank, own in by_rank.items()}
    begun = {rank: rows for rank, rows in numbered.items() if rows}
    if not begun:
        return []
    first = max(min(rows) for rows in begun.values())  # before it a ring has forgotten some
    last = max(max(rows) for rows in begun.values())
    for number in range(first, last + 1):
        rows = {rank: numbered[rank][number] for rank in numbered if number in numbered[rank]}
        missing = tuple(rank for rank in numbered if rank not in rows)
        differing = _minority({rank: _alike(entry) for rank, entry in rows.items()})
        if differing:
            return [Finding("mismatch", key, number, differing, _several(rows, _shown))]
        if missing:
            return [Finding("missing", key, number, missing, _missing_text(missing, rows, by_rank, files))]
        unfinished = tuple(rank for rank, entry in rows.items() if not _is_done(entry))
        if unfinished:
            return [Finding("unfinished", key, number, unfinished, _several(rows, _shown))]
    return []


def _missing_text(missing: Sequence[int], rows: dict[int, Entry], by_rank: dict[int, list[Entry]], files: Any) -> str:
    lines = [_several(rows, _shown)]
    for rank in missing:
        own = by_rank[rank]
        last = f"its last operation there was #{_number(own[-1])} {_shown(own[-1])}" if own else "it did nothing there"
        doing = files[rank].get("doing", "")
        lines.append(f"  rank {rank} has not come; {last}" + (f"; when it wrote: {doing}" if doing else ""))
    return "\n".join(lines)


def _number(entry: Entry) -> int:
    return int(entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"])


def _several(rows: dict[int, Entry], text: Callable[[Entry], str]) -> str:
    """A line for all ranks with the same text."""
    together: dict[str, list[int]] = defaultdict(list)
    for rank, entry in rows.items():
        together[text(entry)].append(rank)
    return "\n".join(f"  ranks {ranks}: {shown}" for shown, ranks in together.items())


def _minority(values: dict[int, Any]) -> tuple[int, ...]:
    """The ranks that differ from most; all of them where there is no majority."""
    counted = Counter(values.values()).most_common()
    if len(counted) < 2:
        return ()
    if counted[0][1] == counted[1][1]:
        return tuple(values)
    return tuple(rank for rank, value in values.items() if value != counted[0][0])


def _messages(key: GroupKey, by_rank: dict[int, list[Entry]]) -> list[Finding]:
    """Messages that did not come to an end, and what their partners did."""
    findings = []
    for rank, own in by_rank.items():
        for entry in own:
            if entry["is_p2p"] and not _is_done(entry):
                text = f"  rank {rank}: message #{entry['p2p_seq_id']} {_shown(entry)}"
                findings.append(Finding("message", key, 0, (rank,), text))
                break
    return findings
