"""Tables of opcodes, one a version of Python, and which of them was tested."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["COMPILED", "TESTED", "interpreted", "is_jump", "opcode_names", "supported", "table"]

TESTED = ((3, 11), (3, 12), (3, 13), (3, 14))
"""Versions on which the tests of every opcode ran."""
COMPILED = ((3, 11), (3, 12), (3, 13), (3, 14))
"""Versions on which the tests of compiled functions ran, too."""

Entry = tuple[Callable[..., None], Callable[..., Any] | None]


def supported() -> bool:
    """Whether functions can be compiled here: on a version of Python on which that was tested."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] in COMPILED


def interpreted() -> bool:
    """Whether functions can be interpreted here: on a version of Python whose table was tested."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] in TESTED


@cache
def table() -> dict[str, Entry]:
    """Name of the opcode to (handler, decoder of the argument) for the running version."""
    major, minor = sys.version_info[:2]
    module = import_module(f"rushlight._capture.bytecode.opcodes_{major}{minor}")
    found: dict[str, Entry] = module.TABLE
    return found


@cache
def opcode_names() -> list[str]:
    """Names of the opcodes by their number."""
    return list(dis.opname)


@cache
def is_jump(opname: str) -> bool:
    """Whether the decoded argument is the index of an instruction to go to."""
    number = dis.opmap[opname]
    return number in dis.hasjrel or number in dis.hasjabs
