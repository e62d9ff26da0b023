"""Which condition of a segment does not hold: found by the line at which the function that asks for all of them ends.

Nothing is compiled for that but the conditions of one line, so a recompilation can say its reason at little cost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.trace.guards.sources import Reads, parts
from rushlight._capture.trace.segments.generated import functions

__all__ = ["first_failing"]


def first_failing(
    reads: Reads, checked: Callable[[Any], Any], state: Sequence[Any]
) -> tuple[bool, tuple[int, int, Any] | None]:
    """Whether it could be told, and what does not hold: the number of an entry, that of one of its conditions, and the
    value that it asks of.  `checked` is the function of `reads.lines()`.
    """
    if sys.getprofile() is not None:  # somebody else's
        return False, None
    ended = _ended(checked, state)
    if ended is None:
        return True, None
    line, values = ended
    at = line - checked.__code__.co_firstlineno - 2  # behind `def` and `try`
    groups = _groups(reads)
    if not 0 <= at < len(groups) or groups[at][0] == "load":
        return False, None  # a value is not there
    space = {**checked.__globals__, **values}
    for number in groups[at][1]:
        _, source, condition = reads.entries[number]
        for part, text in enumerate(parts(condition)):
            asked = text.replace("{}", source.variable)
            if not _holds(asked, space):
                return True, (number, part, _value(source.variable, space))
    return False, None


def _ended(checked: Callable[[Any], Any], state: Sequence[Any]) -> tuple[int, dict[str, Any]] | None:
    """The line and the variables where `checked` ends without a result; None where everything holds."""
    code = checked.__code__
    ended: list[tuple[int, dict[str, Any]]] = []

    def note(frame: Any, event: str, value: Any) -> None:
        if event == "return" and frame.f_code is code:
            ended.append((frame.f_lineno, dict(frame.f_locals)))

    sys.setprofile(note)
    try:
        found = checked(state)
    finally:
        sys.setprofile(None)
    return None if found is not None or not ended else ended[-1]


def _groups(reads: Reads) -> list[tuple[str, list[int]]]:
    """For each line of `Reads.lines` its entries."""
    groups: list[tuple[str, list[int]]] = []
    for number, (kind, _, _) in enumerate(reads.entries):
        if kind == "check" and groups and groups[-1][0] == "check":
            groups[-1][1].append(number)
        else:
            groups.append((kind, [number]))
    return groups


def _holds(text: str, space: dict[str, Any]) -> bool:
    try:
        return bool(_value(text, space))
    except Exception:
        return False


def _value(text: str, space: dict[str, Any]) -> Any:
    return functions(f"found = {text}", dict(space), "condition")["found"]
