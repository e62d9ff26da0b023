"""Conditions of tensors that only decide whether an error is raised.

`if not valid.all(): raise ...` and `assert (x > 0).all()` do not end a trace: the way that raises is taken not to be
gone, and the program looks whether that was so.  Where it was not, the frame runs as it is, and raises what it raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._capture.bytecode import control, values
from rushlight._capture.bytecode.code import DecodedCode
from rushlight._capture.recording.element_numbers import ElementNumber
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.functorch.transformed import LEVELS

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["taken"]

LONGEST = 80  # instructions that make an error
# Instructions that may build an error's text: the beginnings of names of those that go on at the next one.
_STRAIGHT = (
    "LOAD_", "PUSH_NULL", "PRECALL", "CALL", "KW_NAMES", "FORMAT_", "CONVERT_", "BUILD_", "BINARY_", "COMPARE_", "CONTAINS_", "IS_OP", "UNARY_",
    "LIST_", "TUPLE_", "SET_", "DICT_", "COPY", "SWAP", "STORE_FAST", "NOP", "EXTENDED_ARG", "CACHE", "TO_BOOL", "MAKE_FUNCTION",
    "NOT_TAKEN",
)  # fmt: skip


def taken(tracer: Tracer, value: Tensor | ElementNumber) -> bool | None:
    """The truth of a recorded tensor or number by which a conditional jump, the instruction at hand, raises no error; None where
    neither or both ways raise, or another instruction asks.
    """
    frame = tracer.interpreters[-1].frames[-1]
    code: DecodedCode = frame.decoded
    following = frame.ip
    handler, target = code.program[following - 1]
    if handler is values.to_bool:  # from 3.13 on, before the jump
        handler, target = code.program[following]
        following += 1
    tensor = value.tensor if isinstance(value, ElementNumber) else value
    if handler not in (control.jump_if_true, control.jump_if_false) or tensor._spec.numel != 1 or LEVELS.stack:
        return None
    if tracer.rec.known_bytes(tensor._ptr, tensor._spec.dtype.itemsize) is not None:
        return None
    jumps, falls = raises(code, target), raises(code, following)
    if jumps is falls:
        return None
    held = (handler is control.jump_if_true) is falls
    if not tracer.rec.defers:
        text = _text_of_assert(code, following) if held and falls else None
        return None if text is None else tracer.asserted(value, text)
    tracer.native(_check, tracer.rec, tensor, held)
    return held


def _text_of_assert(code: DecodedCode, at: int) -> str | None:
    """The message in a graph of a failed `assert` whose error is raised from `at` on; None for other errors, and for texts
    that are made of values.
    """
    names = code.opnames
    if names[at] != "LOAD_ASSERTION_ERROR" and (names[at], code.raw_args[at]) != ("LOAD_COMMON_CONSTANT", 0):
        return None
    if names[at + 1] == "RAISE_VARARGS":
        return "assertion error"
    handler, text = code.program[at + 1]
    constant = handler is values.load_const and names[at + 2] in ("PRECALL", "CALL")
    return text if constant and type(text) is str else None


def raises(code: DecodedCode, at: int) -> bool:
    """Whether the instructions from `at` on raise an error, whatever the values are."""
    for name in code.opnames[at : at + LONGEST]:
        if name == "RAISE_VARARGS":
            return True
        if not name.startswith(_STRAIGHT):
            return False
    return False


def _check(recording: Any, value: Tensor, held: bool) -> None:
    """Let the program fail unless the truth of a tensor is `held`."""
    word = STATE.word
    STATE.word &= ~GRAD
    try:
        bad = value.detach().logical_not().reshape(())
        recording.check(bad if held else bad.logical_not())
    finally:
        STATE.word = word
