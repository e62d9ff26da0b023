"""Opcodes of Python 3.11."""

from __future__ import annotations

import dis
from opcode import _nb_ops as _operators  # type: ignore[attr-defined]
from typing import Any

from rushlight._capture.bytecode import calls, control, generators, patterns, values
from rushlight._capture.bytecode.code import Raw
from rushlight._capture.bytecode.versions import Entry

# ***** decoders of arguments *****


def const(raw: Raw) -> Any:
    """A constant."""
    return raw.code.co_consts[raw.arg]


def name(raw: Raw) -> str:
    """A name."""
    return raw.code.co_names[raw.arg]


def ahead(raw: Raw) -> int:
    """An instruction further on."""
    return raw.place(raw.following + raw.arg)


def back(raw: Raw) -> int:
    """An instruction before."""
    return raw.place(raw.following - raw.arg)


def comparison(raw: Raw) -> str:
    """A comparison."""
    return dis.cmp_op[raw.arg]


def call_shape(raw: Raw) -> tuple[int, tuple[str, ...]]:
    """How many arguments, and the names of those by keyword: of the KW_NAMES before."""
    for _, _, opname, arg, _ in reversed(raw.found[max(raw.index - 2, 0) : raw.index]):
        if opname == "KW_NAMES":
            return raw.arg, raw.code.co_consts[arg]
        if opname != "PRECALL":
            break
    return raw.arg, ()


def unary(op: str) -> Entry:
    """A unary operator."""
    return values.unary, lambda raw: op


# ***** instructions whose handler depends on their argument *****


def load_global(it: Any, frame: Any, arg: tuple[bool, str]) -> None:
    """Push a global; first the mark of a call without `self`, where it is about to be called."""
    (values.load_global_to_call if arg[0] else values.load_global)(it, frame, arg[1])


def binary_op(it: Any, frame: Any, arg: str) -> None:
    """An operator, in place or not."""
    (values.inplace if arg[-1] == "=" else values.binary)(it, frame, arg)


TABLE: dict[str, Entry] = {
    # stack and constants
    "NOP": (values.nop, None), "RESUME": (values.nop, None), "PRECALL": (values.nop, None), "KW_NAMES": (values.nop, None),
    "POP_TOP": (values.pop_top, None), "PUSH_NULL": (values.push_null, None), "COPY": (values.copy, None), "SWAP": (values.swap, None),
    "LOAD_CONST": (values.load_const, const), "LOAD_ASSERTION_ERROR": (values.load_assertion_error, None),
    # locals, cells, names
    "LOAD_FAST": (values.load_fast, None), "STORE_FAST": (values.store_fast, None), "DELETE_FAST": (values.delete_fast, None),
    "MAKE_CELL": (values.make_cell, None), "COPY_FREE_VARS": (values.copy_free_vars, None), "LOAD_CLOSURE": (values.load_closure, None),
    "LOAD_DEREF": (values.load_deref, None), "STORE_DEREF": (values.store_deref, None), "DELETE_DEREF": (values.delete_deref, None),
    "LOAD_CLASSDEREF": (values.load_classderef, None),
    "LOAD_GLOBAL": (load_global, lambda raw: (bool(raw.arg & 1), raw.code.co_names[raw.arg >> 1])),
    "STORE_GLOBAL": (values.store_global, name), "DELETE_GLOBAL": (values.delete_global, name),
    "LOAD_NAME": (values.load_name, name), "STORE_NAME": (values.store_name, name), "DELETE_NAME": (values.delete_name, name),
    "SETUP_ANNOTATIONS": (values.setup_annotations, None),
    # attributes, items, operators
    "LOAD_ATTR": (values.load_attr, name), "LOAD_METHOD": (values.load_method, name),
    "STORE_ATTR": (values.store_attr, name), "DELETE_ATTR": (values.delete_attr, name),
    "BINARY_SUBSCR": (values.load_item, None), "STORE_SUBSCR": (values.store_item, None), "DELETE_SUBSCR": (values.delete_item, None),
    "UNARY_POSITIVE": unary("+"), "UNARY_NEGATIVE": unary("-"), "UNARY_INVERT": unary("~"), "UNARY_NOT": (values.unary_not, None),
    "BINARY_OP": (binary_op, lambda raw: _operators[raw.arg][1]), "COMPARE_OP": (values.compare, comparison),
    "IS_OP": (values.same, None), "CONTAINS_OP": (values.contains, None),
    # displays, strings, unpacking
    "BUILD_TUPLE": (values.build_tuple, None), "BUILD_LIST": (values.build_list, None), "BUILD_SET": (values.build_set, None),
    "BUILD_MAP": (values.build_map, None), "BUILD_CONST_KEY_MAP": (values.build_const_key_map, None),
    "BUILD_STRING": (values.build_string, None), "BUILD_SLICE": (values.build_slice, None),
    "LIST_APPEND": (values.list_append, None), "SET_ADD": (values.set_add, None), "MAP_ADD": (values.map_add, None),
    "LIST_EXTEND": (values.list_extend, None), "LIST_TO_TUPLE": (values.list_to_tuple, None), "SET_UPDATE": (values.set_update, None),
    "DICT_UPDATE": (values.dict_update, None), "DICT_MERGE": (values.dict_merge, None),
    "FORMAT_VALUE": (values.format_value, None), "UNPACK_SEQUENCE": (values.unpack_sequence, None), "UNPACK_EX": (values.unpack_ex, None),
    # jumps and loops
    "JUMP_FORWARD": (control.jump, ahead), "JUMP_BACKWARD": (control.jump, back), "JUMP_BACKWARD_NO_INTERRUPT": (control.jump, back),
    "POP_JUMP_FORWARD_IF_FALSE": (control.jump_if_false, ahead), "POP_JUMP_BACKWARD_IF_FALSE": (control.jump_if_false, back),
    "POP_JUMP_FORWARD_IF_TRUE": (control.jump_if_true, ahead), "POP_JUMP_BACKWARD_IF_TRUE": (control.jump_if_true, back),
    "POP_JUMP_FORWARD_IF_NONE": (control.jump_if_none, ahead), "POP_JUMP_BACKWARD_IF_NONE": (control.jump_if_none, back),
    "POP_JUMP_FORWARD_IF_NOT_NONE": (control.jump_if_not_none, ahead), "POP_JUMP_BACKWARD_IF_NOT_NONE": (control.jump_if_not_none, back),
    "JUMP_IF_FALSE_OR_POP": (control.jump_if_false_or_pop, ahead), "JUMP_IF_TRUE_OR_POP": (control.jump_if_true_or_pop, ahead),
    "GET_ITER": (control.get_iter, None), "FOR_ITER": (control.for_iter, ahead), "RETURN_VALUE": (control.return_value, None),
    # exceptions and `with`
    "PUSH_EXC_INFO": (control.push_exc_info, None), "POP_EXCEPT": (control.pop_except, None),
    "CHECK_EXC_MATCH": (control.check_exc_match, None), "CHECK_EG_MATCH": (control.check_eg_match, None),
    "PREP_RERAISE_STAR": (control.prep_reraise_star, None), "RAISE_VARARGS": (control.raise_varargs, None),
    "RERAISE": (control.reraise, None), "BEFORE_WITH": (control.before_with, None), "WITH_EXCEPT_START": (control.with_except_start, None),
    # calls, functions, classes, imports
    "CALL": (calls.call, call_shape), "CALL_FUNCTION_EX": (calls.call_function_ex, None), "MAKE_FUNCTION": (calls.make_function, None),
    "LOAD_BUILD_CLASS": (calls.load_build_class, None), "IMPORT_NAME": (calls.import_name, name), "IMPORT_FROM": (calls.import_from, name),
    "IMPORT_STAR": (calls.import_star, None), "PRINT_EXPR": (calls.print_expr, None),
    # generators and coroutines
    "RETURN_GENERATOR": (generators.return_generator, None), "YIELD_VALUE": (generators.yield_value, None), "SEND": (generators.send, ahead),
    "GET_YIELD_FROM_ITER": (generators.get_yield_from_iter, None), "GET_AWAITABLE": (generators.get_awaitable, None),
    "BEFORE_ASYNC_WITH": (generators.before_async_with, None), "GET_AITER": (generators.get_aiter, None),
    "GET_ANEXT": (generators.get_anext, None), "END_ASYNC_FOR": (generators.end_async_for, None),
    "ASYNC_GEN_WRAP": (generators.async_gen_wrap, None),
    # match
    "GET_LEN": (patterns.get_len, None), "MATCH_MAPPING": (patterns.match_mapping, None), "MATCH_SEQUENCE": (patterns.match_sequence, None),
    "MATCH_KEYS": (patterns.match_keys, None), "MATCH_CLASS": (patterns.match_class, None),
}  # fmt: skip

NOT_EXECUTED = {
    "CACHE": "room for what the specializing interpreter learns: skipped when code is decoded",
    "EXTENDED_ARG": "high bits of the next argument: joined to it when code is decoded",
}
"""Opcodes that no handler executes, with the reason."""
