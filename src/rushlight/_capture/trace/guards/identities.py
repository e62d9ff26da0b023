"""Conditions that objects which a trace told apart are not one object, and that tensors share memory as they did.

What came in once at two places is required to be one object when it comes in.  The reverse is required here, when the
trace ends: a trace that wrote to one of two objects, or compared them, holds for two only.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from rushlight._capture.trace.guards.sources import Reads, Source
from rushlight._engine.core.tensor import Tensor

__all__ = ["guard_identities", "guard_memory"]


def guard_memory(reads: Reads, inputs: Sequence[Tensor], sources: Sequence[Source]) -> list[Source]:
    """Require that inputs share memory as they did, and no others.  The sources of those that share none."""
    first: dict[int, tuple[Tensor, Source]] = {}
    for x, source in zip(inputs, sources, strict=True):
        found = first.setdefault(id(x._storage), (x, source))
        if found[0] is not x and not (source.is_constant and found[1].is_constant):
            variable = found[1].variable
            reads.check(
                source,
                f"{{}}._storage is {variable}._storage and {{}}._ptr - {variable}._ptr == {x._ptr - found[0]._ptr}",
            )
    apart = [source for _, source in first.values()]
    _require_apart(reads, apart, "._storage")
    return apart


def guard_identities(reads: Reads, came: Iterable[tuple[Any, Source]], apart: Collection[Source] = ()) -> None:
    """Require that objects which came in are as many at each call.  Tensors whose sources are `apart` are known to be."""
    groups: dict[Hashable, dict[Source, None]] = {}  # a source may have been asked for what it is seen as, too
    fixed: set[Source] = set()
    for value, source in came:
        groups.setdefault(_kind(value), {})[source] = None
        if source.is_constant or reads.is_required(source, value):
            fixed.add(source)
    known = set(apart)
    for sources in groups.values():
        if not (known.issuperset(sources) or fixed.issuperset(sources)):
            _require_apart(reads, [*sources])


def _kind(value: Any) -> Hashable:
    """A key of an object that other guards fix: objects with different keys cannot be one."""
    kind: Any = type(value)
    if kind is types.FunctionType:
        return kind, id(value.__code__), id(value.__globals__)
    return (kind, len(value)) if kind in (tuple, dict) else kind


def _require_apart(reads: Reads, sources: Sequence[Source], part: str = "") -> None:
    if len(sources) > 1 and not all(source.is_constant for source in sources):
        listed = ", ".join(f"id({reads.variable(source)}{part})" for source in sources)
        reads.check(sources[0], f"len({{{listed}}}) == {len(sources)}")
