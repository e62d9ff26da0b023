"""The guard of a segment: whether all that its trace read is as it was, asked of native code.

The conditions in Python are the truth.  Once they have held, `Notes` writes the words behind them down, and as long as
none of these changes, nothing of it is asked in Python again.  When one did, the conditions are, and where they hold,
the words are noted anew.  What is found to be another object each time, as a dict with a counter in it, is looked up
from then on rather than noted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from rushlight._capture.trace.guards.asking import Conditions
from rushlight._capture.trace.guards.sources import Reads
from rushlight._capture.trace.guards.words import Notes, Unnoted
from rushlight._capture.trace.reports.events import COUNTERS, tell
from rushlight._capture.trace.segments.generated import functions
from rushlight._engine.dispatch.plans.native_plans import ready
from rushlight._host.dict_versions import dicts_are_watched
from rushlight._host.guard_native import GUARD_HEADER, SEARCH, SEGMENT_RUN
from rushlight._native.mutable_objects import supported

__all__ = ["Guard", "guarded", "native_find"]

_STRIKES = 2  # how often a word has to change, with few calls in between, to be noted no more
_FEW = 8  # calls
_SELDOM = 3  # calls
_PATIENCE = 12  # how often in a row noting may be of no use before it is tried less often
_LONGEST_WAIT = 4096  # calls


def guarded() -> Callable[[Any, Any], tuple[Any, ...] | None]:
    """The native function that asks a guard's table."""
    found: Callable[[Any, Any], tuple[Any, ...] | None] = ready().guarded
    return found


def native_find(runs: list[Any], miss: Any, missed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`find(state)` as native code: what the first of `runs` gives that is not `miss`, else what `missed` gives.

    It holds none of them (see `NativeRun`): whoever calls it does.
    """
    runtime = ready()
    given = {"runs": id(runs), "miss": id(miss), "missed": id(missed)}
    words = array("q", [given[field.name] for field in SEARCH])
    address = words.buffer_info()[0]
    found: Callable[[Any], Any] = runtime.make_callable(address, b"find", (words,), -1, runtime.address("find_stub"))
    return found


class NativeRun:
    """A segment's `run` as native code: it does nothing but to call `program[0]`, and gives an item of what that gives,
    or all of them as a tuple (-1), or None (-2); or it calls a function with the items of the state (AS_IT_IS).  Where
    the program raises an exception, `again` is asked for the result.

    Collectors of garbage do not see what native functions hold, so `run` holds nothing; it always misses once this
    object, which holds it all, is gone.
    """

    __slots__ = ("_held", "_words", "run")

    def __init__(
        self, table: list[Any], program: list[Any], chosen: int, miss: Any, again: Callable[[Any], Any] | None
    ) -> None:
        runtime = ready()
        self._held = (table, program, again)
        given = {"table": id(table), "program": id(program), "chosen": chosen, "miss": id(miss), "again": id(again)}
        self._words = array("q", [given[field.name] for field in SEGMENT_RUN])
        address, stub = self._words.buffer_info()[0], runtime.address("segment_stub")
        self.run: Callable[[Any], Any] = runtime.make_callable(address, b"run", (self._words, miss), -1, stub)

    def __del__(self) -> None:
        self._words[0] = id(_NO_TABLE)


_NO_TABLE = [None]


class Guard:
    """`table[0]` is what `guarded` takes: the words, what they keep alive, and a function for conditions that stay in
    Python (None without); or None.

    `wanted` are the variables whose values the segment needs.
    """

    def __init__(self, reads: Reads, wanted: Sequence[str], space: dict[str, Any]) -> None:
        self.reads, self.wanted, self.space = reads, list(wanted), space
        self.table: list[tuple[bytes, list[Any], Callable[[Any], bool] | None] | None] = [None]
        self.reason = ""  # why there is no table
        self.checked: Conditions  # all conditions in Python; set by the segment
        self.notes = 0
        self._known: list[dict[Hashable, int]] = [{}]  # pins when it was noted last
        self._trees: dict[str, Any] = {}
        self._strikes: dict[Hashable, int] = {}
        self._moving: set[Hashable] = set()
        self._rests: dict[tuple[int, ...], Callable[[Any], bool]] = {}
        # A trace is not noted at its first call: much of what it sets up, as the state of an optimizer, is there only
        # after it.
        self._wait = 1
        self._useless = self._failed = 0
        if not supported() or not dicts_are_watched():
            self._give_up("this version of Python keeps no versions of dicts, and tells of no changes", 1 << 62)

    def like(self, other: Guard) -> None:
        """Share what was learned with the guard of another segment of the same trace: what moves there moves here.

        It is noted after a few calls: of many such segments most are called seldom.
        """
        self._trees, self._strikes, self._moving, self._known = (
            other._trees,
            other._strikes,
            other._moving,
            other._known,
        )
        self._wait = max(self._wait, _SELDOM)

    def passed(self, state: Sequence[Any]) -> None:
        """The conditions in Python hold: note the words behind them, or wait for a better time."""
        if self._wait:
            self._wait -= 1
            return
        before = self.hits()
        few = before < _FEW
        self._useless = self._useless + 1 if self.table[0] is not None and before == 0 else 0
        if self._useless > _PATIENCE:
            self._wait = min(1 << (self._useless - _PATIENCE), _LONGEST_WAIT)
        notes = self._noted(state)
        if few and self._strike(notes.pins):
            notes = self._noted(state)
        self._known[0] = notes.pins
        try:
            words = notes.table(self.wanted)
        except Unnoted as found:
            self._give_up(f"no words tell about {found}")
            return
        rest = self._rest(tuple(notes.left)) if notes.left else None
        table = (words, notes.held, rest)
        # Another thread may have changed something while the words were noted.  Conditions that hold now, and words
        # that stay as they are meanwhile, belong together.
        if self.checked(state) is None:
            return
        if guarded()(table, state) is None:  # something changed meanwhile, or something that shares a place with it
            self._failed += 1
            self._give_up("the words do not hold right after they were noted", min(1 << self._failed, _LONGEST_WAIT))
            return
        self.table[0], self.reason, self._failed = table, "", 0
        self.notes += 1
        count, left = len(words) // 8, len(notes.left)
        tell("guards", f"{count} words noted, {left} conditions in Python", words=count, left=left)

    def hits(self) -> int:
        """How often the words held since they were noted."""
        table = self.table[0]
        if table is None:
            return 0
        place = 8 * GUARD_HEADER.hits
        return int.from_bytes(table[0][place : place + 8], "little") - 1  # the first time they were only tried

    def _noted(self, state: Sequence[Any]) -> Notes:
        return Notes(self.reads.entries, self.space, state, self._moving, self._trees)

    def _strike(self, pins: dict[Hashable, int]) -> bool:
        """Count the words that changed since the last time; whether some of them are noted no more from now on."""
        moving = False
        for key, word in pins.items():
            if self._known[0].get(key, word) != word:
                self._strikes[key] = self._strikes.get(key, 0) + 1
                if self._strikes[key] >= _STRIKES:
                    self._moving.add(key)
                    moving = True
        return moving

    def _give_up(self, reason: str, wait: int = _LONGEST_WAIT) -> None:
        """Leave all conditions to Python for so many calls."""
        COUNTERS["guards"][reason] += 1
        tell("guards", f"conditions stay in Python: {reason}", reason=reason)
        self.reason, self.table[0], self._wait = reason, None, wait

    def _rest(self, left: tuple[int, ...]) -> Callable[[Any], bool]:
        """A function for the conditions that have these numbers."""
        found = self._rests.get(left)
        if found is None:
            lines = self.reads.lines_for(left, "return False")
            text = "\n".join(
                [
                    "def rest(s):",
                    "    try:",
                    *[f"        {x}" for x in lines],
                    "    except ERRORS: return False",
                    "    return True",
                ]
            )
            found = self._rests[left] = functions(text, dict(self.space), "rest of a guard")["rest"]
        return found
