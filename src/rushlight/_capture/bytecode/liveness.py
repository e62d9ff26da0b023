"""Which fast locals may still be read: backward data flow over the instructions, along the edges of exceptions too."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from rushlight._capture.bytecode.versions import is_jump

if TYPE_CHECKING:
    from rushlight._capture.bytecode.code import DecodedCode

__all__ = ["liveness"]

READS = frozenset((
    "DELETE_DEREF", "DELETE_FAST", "LOAD_CLASSDEREF", "LOAD_CLOSURE", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_CHECK",
    "LOAD_FROM_DICT_OR_DEREF", "MAKE_CELL", "STORE_DEREF", "LOAD_FAST_BORROW",
))  # fmt: skip
WRITES = frozenset(("DELETE_FAST", "LOAD_FAST_AND_CLEAR", "MAKE_CELL", "STORE_FAST", "STORE_FAST_MAYBE_NULL"))
PAIRS_READ = frozenset(("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"))
LEAVES = frozenset((
    "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD", "RAISE_VARARGS", "RERAISE", "RETURN_CONST", "RETURN_VALUE",
))  # fmt: skip
LOOK_AT_FRAMES = frozenset(
    ("dir", "eval", "exec", "locals", "vars", "_getframe", "currentframe", "breakpoint", "set_trace")
)


def liveness(decoded: DecodedCode, code: CodeType) -> list[int]:
    """For each instruction a mask of the locals that may be read there or later, before they are written."""
    every = (1 << len(decoded.local_names)) - 1
    size = len(decoded.program)
    if LOOK_AT_FRAMES & set(code.co_names):
        return [every] * size
    always = 0
    if "super" in code.co_names and "__class__" in code.co_freevars:
        always = 1 | 1 << decoded.local_names.index("__class__")
    effects = [_effect(name, arg) for name, arg in zip(decoded.opnames, decoded.raw_args, strict=True)]
    jumps = [_target(decoded, index) for index in range(size)]
    live = [0] * size
    changed = True
    while changed:
        changed = False
        for index in range(size - 1, -1, -1):
            after = 0
            if decoded.opnames[index] not in LEAVES and index + 1 < size:
                after = live[index + 1]
            target = jumps[index]
            if target is not None:
                after |= live[target]
            reads, writes = effects[index]
            now = after & ~writes | reads | always
            catch = decoded.catches[index]
            if catch is not None:
                now |= live[catch.target]
            if now != live[index]:
                live[index] = now
                changed = True
    return live


def _effect(name: str, arg: int) -> tuple[int, int]:
    """Masks of what an instruction reads and writes."""
    if name in PAIRS_READ:
        return 1 << (arg >> 4) | 1 << (arg & 15), 0
    if name == "STORE_FAST_LOAD_FAST":
        store, load = 1 << (arg >> 4), 1 << (arg & 15)
        return load & ~store, store
    if name == "STORE_FAST_STORE_FAST":
        return 0, 1 << (arg >> 4) | 1 << (arg & 15)
    bit = 1 << arg if name in READS or name in WRITES else 0
    return (bit if name in READS else 0), (bit if name in WRITES else 0)


def _target(decoded: DecodedCode, index: int) -> int | None:
    return decoded.program[index][1] if is_jump(decoded.opnames[index]) else None
