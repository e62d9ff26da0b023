"""Checks that a kernel of the block IR is well formed: every rule of `ops`, and that values are visible where they are used."""

from __future__ import annotations

from .ir import Kernel, Op, Region, Value
from .ops import OPS, BlockError

__all__ = ["BlockError", "verify"]


def verify(kernel: Kernel) -> None:
    """BlockError, with the operation and its line, for the first thing that does not fit."""
    for param in kernel.params:
        if param.type.shape:
            raise BlockError(f"kernel {kernel.name}: an argument is a scalar, not {param.type!r}")
    _region(kernel.body, set(kernel.params))
    if kernel.body.yielded:
        raise BlockError(f"kernel {kernel.name}: its body yields nothing")


def _region(region: Region, visible: set[Value]) -> None:
    visible = visible | set(region.params)
    if not region.ops or region.ops[-1].kind != "yield":
        raise BlockError("a region ends with yield")
    for op in region.ops:
        if op.kind == "yield" and op is not region.ops[-1]:
            raise _located(op, "yield stands in the middle of a region")
        _op(op, visible)
        visible.update(op.results)


def _op(op: Op, visible: set[Value]) -> None:
    record = OPS.get(op.kind)
    if record is None:
        raise _located(op, f"there is no operation {op.kind!r}")
    for value in op.operands:
        if value not in visible:
            raise _located(op, f"{value!r} is used where it is not visible")
    for region in op.regions:
        _region(region, visible)
    try:
        found = record.infer([v.type for v in op.operands], op.attributes, op.regions)
    except BlockError as error:
        raise _located(op, str(error)) from None
    if found != [v.type for v in op.results]:
        raise _located(op, f"{op.kind} gives {found}, and its results say {[v.type for v in op.results]}")


def _located(op: Op, what: str) -> BlockError:
    return BlockError(f"{op.line[0]}:{op.line[1]}: {what}" if op.line else what)
