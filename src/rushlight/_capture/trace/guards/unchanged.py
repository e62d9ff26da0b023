"""Looks at an object's dict and a few others, asked of native code while nothing in them changed.

    looks = Looks(truth, containers, [other], Net)
    looks.ask(looks.table, (held,)) is not None or looks(held)  # whether truth(held)

The function in Python is the truth.  Once it holds, the words behind it are noted, as a guard's are: versions of dicts
and of the dicts of classes, and that containers are empty.  While none of them changed, Python is not asked.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.trace.guards.guards import guarded
from rushlight._host.dict_versions import dicts_are_watched, version_place
from rushlight._host.guard_native import GUARD_HEADER, GUARD_OPS, REGISTERS, STATE
from rushlight._native.mutable_objects import CLASS_ORDER, CONTAINER_SIZE, class_dict, supported, word_at

__all__ = ["Looks"]

_FEW, _STRIKES = 8, 4  # words that held for so few calls, so often, are noted no more
_REGISTER = REGISTERS - 1


def _nothing(table: Any, state: Any) -> None:
    """Answer of a guard that watches no words yet."""


class Looks:
    """Whether `truth(held)`, which reads no more than the dicts `held` and `others`, whether the dicts that `containers(held)`
    gives are empty, and attributes of the class `kind`.

    `held` is not kept: it may be the dict of what keeps this.
    """

    __slots__ = ("_containers", "_kind", "_others", "_strikes", "_truth", "ask", "table")

    def __init__(
        self,
        truth: Callable[[dict[str, Any]], bool],
        containers: Callable[[dict[str, Any]], Sequence[dict[Any, Any]]],
        others: Sequence[dict[str, Any]],
        kind: type,
    ) -> None:
        self._truth, self._containers, self._others, self._kind = truth, containers, others, kind
        self.ask: Callable[[Any, Any], tuple[Any, ...] | None] = _nothing  # until words are noted
        self.table: tuple[bytes, tuple[Any, ...], None] | None = None
        self._strikes = 0 if supported() and dicts_are_watched() else _STRIKES

    def __call__(self, held: dict[str, Any]) -> bool:
        """Ask in Python, and note the words anew where the answer is yes."""
        noted, self.table = self.table, None
        if noted is not None:
            place = 8 * GUARD_HEADER.hits
            self._strikes += int.from_bytes(noted[0][place : place + 8], "little") < _FEW
        found = self._noted(held) if self._strikes < _STRIKES else None
        # The words were noted before: what changes from now on changes them.
        if not self._truth(held):
            return False
        self.table = found
        return True

    def _noted(self, held: dict[str, Any]) -> tuple[bytes, tuple[Any, ...], None] | None:
        """The words of now; None where there are none.  Those of what a dict holds follow that of the dict."""
        try:
            containers = self._containers(held)
        except KeyError:
            return None
        order = self._kind.__mro__
        spaces = [class_dict(each) for each in order if each is not object]
        if any(type(each) not in (dict, OrderedDict) for each in containers):
            return None
        places = [None if each is None else version_place(each) for each in (held, *self._others, *spaces)]
        pairs = [(place, word_at(place)) for place in places if place is not None]
        if len(pairs) < len(places):
            return None
        pairs += [(id(self._kind) + CLASS_ORDER, id(order)), *[(id(each) + CONTAINER_SIZE, 0) for each in containers]]
        self.ask = guarded()
        words = array("Q", [0] * len(GUARD_HEADER))
        words.extend((GUARD_OPS.load, STATE, 0, _REGISTER, GUARD_OPS.same, _REGISTER, id(held), 0))
        words.extend((GUARD_OPS.run, len(pairs), 0, 0, *[word for pair in pairs for word in pair]))
        words.extend((GUARD_OPS.end, 0, 0, 0))
        return words.tobytes(), (self._kind, order, *self._others), None
