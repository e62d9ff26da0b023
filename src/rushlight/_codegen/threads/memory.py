"""Loads, stores and atomics of tiles, divided among threads.

Threads that hold the same elements all load them, and the first of them stores.  Scalars are loaded by all threads and
stored by one.
"""

from __future__ import annotations

from typing import Any

from rushlight._codegen.blocks import Op, Pointer
from rushlight._codegen.blocks import Value as TileValue

from .exchange import through_shared
from .form import Registers, Value
from .layout import Layout
from .lower import HANDLERS, Lowering

__all__: list[str] = []

HINTS = ("cache", "eviction", "volatile")


def _pointed(op: Op) -> Pointer:
    element = op.operands[0].type.element
    assert isinstance(element, Pointer)
    return element


def _hints(op: Op) -> dict[str, Any]:
    return {key: op.attributes[key] for key in HINTS if op.attributes.get(key)}


def _load(lo: Lowering, op: Op) -> None:
    dtype = _pointed(op).to
    if op.result.type.numel == 1:
        operands = [lo.uniform(v) for v in op.operands]
        lo.put(
            op.result,
            lo.b.emit("load", operands, [Registers(dtype, 1, True)], dtype=dtype, vector=1, **_hints(op)).result,
        )
        return
    layout = lo.layouts.access(op)
    operands = [lo.value(v, layout) for v in op.operands]
    vector = lo.layouts.vector(op, layout)
    made = lo.b.emit("load", operands, [Registers(dtype, layout.size)], dtype=dtype, vector=vector, **_hints(op))
    lo.give(op.result, made.result, layout)


def _first(lo: Lowering, layout: Layout, mask: Value | None) -> Value | None:
    """The mask for effects: only the first of the threads that hold the same."""
    return lo.b.both(mask, lo.b.only_where_zero(*layout.idle()))


def _one_thread(lo: Lowering, mask: Value | None) -> Value:
    """Whether this is the thread that acts for all."""
    zero = lo.b.only_where_zero(31, (1 << lo.warps.bit_length() - 1) - 1)
    found = lo.b.both(mask, zero)
    assert found is not None
    return found


def _effect(lo: Lowering, op: Op, values: int) -> tuple[list[Value], Layout | None]:
    """The operands of an effect (address and `values` more, then a mask), as registers, and their layout."""
    given, masks = op.operands[: 1 + values], op.operands[1 + values :]
    if op.operands[0].type.numel == 1:
        operands = [lo.b.spread(lo.uniform(v), 1) for v in given]
        return [*operands, _one_thread(lo, lo.uniform(masks[0]) if masks else None)], None
    layout = lo.layouts.access(op)
    operands = [lo.b.spread(lo.value(v, layout), layout.size) for v in given]
    mask = _first(lo, layout, lo.value(masks[0], layout) if masks else None)
    return operands + ([lo.b.spread(mask, layout.size)] if mask is not None else []), layout


def _store(lo: Lowering, op: Op) -> None:
    operands, layout = _effect(lo, op, 1)
    vector = 1 if layout is None else lo.layouts.vector(op, layout)
    lo.b.emit("store", operands, [], vector=vector, **_hints(op))


def _used(lo: Lowering, value: TileValue) -> bool:
    return any(value in op.operands for op in lo.source.body.walk())


def _atomic(lo: Lowering, op: Op) -> None:
    operands, layout = _effect(lo, op, 2 if op.kind == "atomic_cas" else 1)
    order, used = op.attributes.get("order", "acq_rel"), _used(lo, op.result)
    if layout is None and order != "relaxed":
        lo.b.emit("barrier", [], [])  # what all threads did before belongs to what the one thread publishes
    attributes: dict[str, Any] = {"order": order, "scope": op.attributes.get("scope", "gpu"), "used": used}
    if op.kind == "atomic":
        attributes["combine"] = op.attributes["combine"]
    made = lo.b.emit(op.kind, operands, [Registers(operands[1].dtype, operands[1].count)], **attributes).result
    if not used:
        return
    if layout is None:
        layout = Layout((), (-1,) * 5, (-1,) * (lo.warps.bit_length() - 1))
    if any(layout.idle()):  # one thread knows: tell the others
        made = through_shared(lo.b, made, layout, layout)
    lo.give(op.result, made, layout)


HANDLERS.update({"load": _load, "store": _store, "atomic": _atomic, "atomic_cas": _atomic})
