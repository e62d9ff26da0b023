"""The order in which loop nests add: what decides the last bits of sums.

Two kernels whose orders are equal give equal sums of equal elements.  Places must be kept for it (`Policy.places`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rushlight._codegen.loops import Loop, Reduce, Scan, Section, Tile, blocked
from rushlight._schedule.expressions import Store
from rushlight._schedule.indexing import Div, Ix, Mod, Var

__all__ = ["orders_of"]


def orders_of(sections: Iterable[Section]) -> Iterator[tuple[Any, ...]]:
    """One entry for each reduction, scan and combining store of a kernel."""
    for section in sections:
        yield from _orders(section, section.body, ())


def _orders(section: Section, body: Sequence[Any], around: tuple[Var, ...]) -> Iterator[tuple[Any, ...]]:
    for statement in body:
        if isinstance(statement, Reduce):
            yield from _reduction(section, statement)
            yield from _orders(section, statement.stores, (*around, *statement.loops))
        elif isinstance(statement, Loop):
            yield from _orders(section, statement.body, around if statement.lanes else (*around, statement.var))
        elif isinstance(statement, Scan):
            yield ("scan", statement.var.size, statement.reverse, *((i.op, i.dtype.name) for i in statement.items))
            yield from _orders(section, statement.body, (*around, statement.var))
        elif isinstance(statement, Tile):
            yield from _orders(section, statement.body, (*around, statement.across))
        elif isinstance(statement, Store) and statement.combine is not None:
            sizes = tuple(v.size for v in around)
            yield "combine", statement.combine, statement.buffer.dtype.name, sizes, _cut(section, around)


def _reduction(section: Section, reduce: Reduce) -> Iterator[tuple[Any, ...]]:
    names = {v: f"l{k}" for k, v in enumerate(reduce.loops)}
    loops = tuple((v.size, blocked(v, reduce)) for v in reduce.loops)
    lanes = (section.width, section.unroll) if reduce.lanes else ()
    for item in reduce.items:
        place = None if item.place is None else _text(item.place, names)
        yield (
            "reduce",
            item.op,
            item.dtype.name,
            item.value.dtype.name,
            loops,
            lanes,
            _cut(section, reduce.loops),
            place,
        )


def _cut(section: Section, loops: Sequence[Var]) -> tuple[int, int] | None:
    """The loop of a reduction that is divided among pieces, and by how much."""
    split = section.split
    if split is None:
        return None
    return next(((k, split.chunk) for k, v in enumerate(loops) if v is split.var), None)


def _text(ix: Ix, names: dict[Any, str]) -> str:
    parts = []
    for atom, c in ix.terms:
        if type(atom) is Div or type(atom) is Mod:
            sign = "//" if type(atom) is Div else "%"
            parts.append(f"{c}*(({_text(atom.ix, names)}){sign}{atom.by})")
        else:
            parts.append(f"{c}*{names.get(atom, '?')}")
    return "+".join([*sorted(parts), str(ix.const)])
