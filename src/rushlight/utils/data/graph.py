"""Of which pipes a pipe is made."""

from __future__ import annotations

from typing import Any

from rushlight.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]


def _sources(holder: Any, seen: set[int]) -> list[Any]:
    """The pipes that an object holds, in containers and attributes too."""
    found: list[Any] = []
    values = holder.values() if isinstance(holder, dict) else holder
    for value in values:
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (IterDataPipe, MapDataPipe)):
            found.append(value)
        elif isinstance(value, (list, tuple, set, dict)):
            found += _sources(value, seen)
        elif type(value).__module__.startswith(__package__ or "") and hasattr(value, "__dict__"):
            found += _sources(value.__dict__, seen)
    return found


def traverse_dps(datapipe: Any) -> dict[int, Any]:
    """The graph of pipes below one: `{id: (pipe, graph below it)}`."""
    return {id(datapipe): (datapipe, _below(datapipe, {id(datapipe)}))}


def _below(datapipe: Any, path: set[int]) -> dict[int, Any]:
    sources = [pipe for pipe in _sources(vars(datapipe), set()) if id(pipe) not in path]
    return {id(pipe): (pipe, _below(pipe, path | {id(pipe)})) for pipe in sources}


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> dict[int, Any]:
    """See `traverse_dps`."""
    return traverse_dps(datapipe)
