"""Opcodes of Python 3.14, as the differences from 3.13."""

from __future__ import annotations

from opcode import _nb_ops as _operators  # type: ignore[attr-defined]
from typing import Any

from rushlight._capture.bytecode import calls, control, values
from rushlight._capture.bytecode.opcodes_312 import PSEUDO, past
from rushlight._capture.bytecode.opcodes_313 import NOT_EXECUTED as NOT_EXECUTED_BEFORE
from rushlight._capture.bytecode.opcodes_313 import TABLE as BEFORE
from rushlight._capture.bytecode.versions import Entry


def binary_op(it: Any, frame: Any, arg: str) -> None:
    """An operator, in place or not, or an item."""
    if arg == "[]":
        values.load_item(it, frame, None)
    else:
        (values.inplace if arg[-1] == "=" else values.binary)(it, frame, arg)


REMOVED = {
    "BEFORE_ASYNC_WITH", "BEFORE_WITH", "BINARY_SUBSCR", "BUILD_CONST_KEY_MAP", "LOAD_ASSERTION_ERROR", "RETURN_CONST",
}  # fmt: skip
CHANGED: dict[str, Entry] = {
    "BUILD_INTERPOLATION": (values.build_interpolation, None), "BUILD_TEMPLATE": (values.build_template, None),
    "BINARY_OP": (binary_op, lambda raw: _operators[raw.arg][1]), "CALL_FUNCTION_EX": (calls.call_function_ex, lambda raw: 1),
    "FOR_ITER": (control.for_iter_kept, past(1)), "POP_ITER": (values.pop_top, None),
    "LOAD_COMMON_CONSTANT": (values.load_common_constant, None), "LOAD_SMALL_INT": (values.load_const, None),
    "LOAD_FAST_BORROW": (values.load_fast, None), "LOAD_FAST_BORROW_LOAD_FAST_BORROW": (values.load_fast_load_fast, None),
    "LOAD_SPECIAL": (control.load_special, None), "WITH_EXCEPT_START": (control.with_except_start_self, None), "NOT_TAKEN": (values.nop, None),
}  # fmt: skip
TABLE: dict[str, Entry] = {opname: entry for opname, entry in BEFORE.items() if opname not in REMOVED} | CHANGED

GONE = {"LOAD_METHOD", "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_ATTR", "LOAD_ZERO_SUPER_METHOD"}
NOT_EXECUTED = {opname: reason for opname, reason in NOT_EXECUTED_BEFORE.items() if opname not in GONE} | {
    "ANNOTATIONS_PLACEHOLDER": PSEUDO,
    "JUMP_IF_FALSE": PSEUDO,
    "JUMP_IF_TRUE": PSEUDO,
}
"""Opcodes that no handler executes, with the reason."""
