"""The names that the results of a call are about to be given, read from the caller's bytecode."""

from __future__ import annotations

import dis
from types import FrameType

__all__ = ["assigned_names"]

_BETWEEN = ("CACHE", "PRECALL", "EXTENDED_ARG", "NOP")
_PAIRS = ("STORE_FAST_STORE_FAST",)  # one instruction for two variables


def assigned_names(frame: FrameType) -> list[str | None]:
    """The variables that the value of the call that runs in `frame` is assigned to; None for what is no variable, no
    items where there are none.
    """
    code = [step for step in dis.get_instructions(frame.f_code) if step.opname not in _BETWEEN]
    at = next((i for i, step in enumerate(code) if step.offset >= frame.f_lasti), len(code))
    after = code[at + 1 :] if at < len(code) and code[at].offset == frame.f_lasti else code[at:]
    if not after:
        return []
    if after[0].opname == "UNPACK_SEQUENCE":
        wanted, after = int(after[0].arg or 0), after[1:]
    elif after[0].opname.startswith("STORE_"):
        wanted = 1
    else:
        return []
    names: list[str | None] = []
    for step in after:
        if (
            len(names) >= wanted
            or not step.opname.startswith("STORE_")
            or step.opname in ("STORE_ATTR", "STORE_SUBSCR")
        ):
            break
        names += list(step.argval) if step.opname in _PAIRS else [step.argval]
    return (names + [None] * wanted)[:wanted]
