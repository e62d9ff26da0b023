"""Opcodes of Python 3.13, as the differences from 3.12."""

from __future__ import annotations

import dis

from rushlight._capture.bytecode import calls, control, values
from rushlight._capture.bytecode.code import Raw
from rushlight._capture.bytecode.opcodes_312 import NOT_EXECUTED as NOT_EXECUTED_BEFORE
from rushlight._capture.bytecode.opcodes_312 import PSEUDO, past
from rushlight._capture.bytecode.opcodes_312 import TABLE as BEFORE
from rushlight._capture.bytecode.versions import Entry


def following_parts(raw: Raw) -> tuple[int, ...]:
    """Arguments of the SET_FUNCTION_ATTRIBUTE that follow."""
    flags = []
    for _, _, opname, arg, _ in raw.found[raw.index + 1 : raw.index + 6]:
        if opname != "SET_FUNCTION_ATTRIBUTE":
            break
        flags.append(arg)
    return tuple(flags)


REMOVED = {"FORMAT_VALUE", "KW_NAMES", "LOAD_CLOSURE"}
CHANGED: dict[str, Entry] = {
    "CALL": (calls.call, lambda raw: (raw.arg, ())), "CALL_KW": (calls.call_kw, None),
    # Another bit asks for the truth of the comparison; the instruction that follows asks for it, too.
    "COMPARE_OP": (values.compare, lambda raw: dis.cmp_op[raw.arg >> 5]),
    "CONVERT_VALUE": (values.convert_value, None), "FORMAT_SIMPLE": (values.format_simple, None),
    "FORMAT_WITH_SPEC": (values.format_with_spec, None),
    "FOR_ITER": (control.for_iter, past(2)),
    "LOAD_FAST_LOAD_FAST": (values.load_fast_load_fast, None), "STORE_FAST_LOAD_FAST": (values.store_fast_load_fast, None),
    "STORE_FAST_STORE_FAST": (values.store_fast_store_fast, None),
    "MAKE_FUNCTION": (calls.make_function_of_parts, following_parts), "SET_FUNCTION_ATTRIBUTE": (values.nop, None),
    "TO_BOOL": (values.to_bool, None),
}  # fmt: skip
TABLE: dict[str, Entry] = {opname: entry for opname, entry in BEFORE.items() if opname not in REMOVED} | CHANGED

NOT_EXECUTED = NOT_EXECUTED_BEFORE | {
    "ENTER_EXECUTOR": "of the optimizer: not in `co_code`",
    "EXIT_INIT_CHECK": "of the specializing interpreter",
    "LOAD_CLOSURE": PSEUDO,
}
"""Opcodes that no handler executes, with the reason."""
