"""Opcodes of Python 3.12, as the differences from 3.11."""

from __future__ import annotations

import dis
from typing import Any

from rushlight._capture.bytecode import calls, control, generators, values
from rushlight._capture.bytecode.code import Raw
from rushlight._capture.bytecode.opcodes_311 import TABLE as BEFORE
from rushlight._capture.bytecode.opcodes_311 import ahead, const, name
from rushlight._capture.bytecode.versions import Entry


def past(count: int) -> Any:
    """A decoder: an instruction so many places after the one further on."""

    def decode(raw: Raw) -> int:
        return ahead(raw) + count

    return decode


def return_const(it: Any, frame: Any, arg: Any) -> None:
    """Return a constant."""
    it.leave(arg)


def load_attr(it: Any, frame: Any, arg: tuple[bool, str]) -> None:
    """Push an attribute; first the mark of a call without `self`, where it is about to be called."""
    (values.load_method if arg[0] else values.load_attr)(it, frame, arg[1])


def _then_none(handler: Any) -> Any:
    def run(it: Any, frame: Any, arg: Any) -> None:
        handler(it, frame, arg)
        frame.stack.append(None)

    return run


def _positive(it: Any, frame: Any, arg: Any) -> None:
    values.unary(it, frame, "+")


INTRINSICS_1 = {
    1: _then_none(calls.print_expr), 2: _then_none(calls.import_star), 3: generators.stop_iteration_error, 4: generators.async_gen_wrap,
    5: _positive, 6: values.list_to_tuple,
}  # fmt: skip
INTRINSICS_2 = {1: control.prep_reraise_star}
"""Functions of the interpreter, by the number that CALL_INTRINSIC_1 and _2 have for them; the others CPython itself runs."""

REMOVED = {
    "ASYNC_GEN_WRAP", "IMPORT_STAR", "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "LIST_TO_TUPLE", "LOAD_CLASSDEREF", "LOAD_METHOD",
    "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_TRUE",
    "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_TRUE", "PRECALL",
    "PREP_RERAISE_STAR", "PRINT_EXPR", "UNARY_POSITIVE",
}  # fmt: skip
CHANGED: dict[str, Entry] = {
    "BINARY_SLICE": (values.load_slice, None), "STORE_SLICE": (values.store_slice, None),
    "CALL_INTRINSIC_1": (calls.intrinsic_1, lambda raw: (INTRINSICS_1.get(raw.arg), raw.arg)),
    "CALL_INTRINSIC_2": (calls.intrinsic_2, lambda raw: (INTRINSICS_2.get(raw.arg), raw.arg)),
    "CLEANUP_THROW": (generators.cleanup_throw, None), "SEND": (generators.send_kept, ahead), "END_SEND": (generators.end_send, None),
    "COMPARE_OP": (values.compare, lambda raw: dis.cmp_op[raw.arg >> 4]),
    "FOR_ITER": (control.for_iter, past(1)), "END_FOR": (values.nop, None),
    "LOAD_ATTR": (load_attr, lambda raw: (bool(raw.arg & 1), raw.code.co_names[raw.arg >> 1])),
    "LOAD_SUPER_ATTR": (calls.load_super_attr, lambda raw: (raw.code.co_names[raw.arg >> 2], bool(raw.arg & 1), bool(raw.arg & 2))),
    "LOAD_FAST_CHECK": (values.load_fast, None), "LOAD_FAST_AND_CLEAR": (values.load_fast_and_clear, None),
    "LOAD_LOCALS": (values.load_locals, None), "LOAD_FROM_DICT_OR_GLOBALS": (values.load_from_dict_or_globals, name),
    "LOAD_FROM_DICT_OR_DEREF": (values.load_from_dict_or_deref, None),
    "POP_JUMP_IF_FALSE": (control.jump_if_false, ahead), "POP_JUMP_IF_TRUE": (control.jump_if_true, ahead),
    "POP_JUMP_IF_NONE": (control.jump_if_none, ahead), "POP_JUMP_IF_NOT_NONE": (control.jump_if_not_none, ahead),
    "RETURN_CONST": (return_const, const),
}  # fmt: skip
TABLE: dict[str, Entry] = {opname: entry for opname, entry in BEFORE.items() if opname not in REMOVED} | CHANGED

PSEUDO = "only inside of the compiler"
NOT_EXECUTED = {
    "CACHE": "room for what the specializing interpreter learns: skipped when code is decoded",
    "EXTENDED_ARG": "high bits of the next argument: joined to it when code is decoded",
    "INTERPRETER_EXIT": "returns from the interpreter in C", "RESERVED": "never executed",
    **dict.fromkeys((
        "JUMP", "JUMP_NO_INTERRUPT", "LOAD_METHOD", "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_ATTR", "LOAD_ZERO_SUPER_METHOD", "POP_BLOCK",
        "SETUP_CLEANUP", "SETUP_FINALLY", "SETUP_WITH", "STORE_FAST_MAYBE_NULL",
    ), PSEUDO),
}  # fmt: skip
"""Opcodes that no handler executes, with the reason; those of `sys.monitoring` (INSTRUMENTED_...) are not in `co_code`."""
