"""The copying warps in the twin: code that is left where it would wait, and entered again where it was left.

Where they are lies in memory of the twin.  `Copiers` are warps whose body is a loop; `Script` those whose body runs once and has
loops one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rushlight._codegen.scalar import Val, reg_type

from ..form import Body, Instruction, Value
from .plan import Step

if TYPE_CHECKING:
    from .printer import TwinPrinter

__all__ = ["Copiers", "Script", "barrier_at"]

_PLAIN = ("number", "pointwise")


def barrier_at(p: TwinPrinter, x: Value) -> str:
    """The state of a barrier at a byte offset."""
    at = p.scalars[x].to("i64") * 4
    return str(p.effect(f"getelementptr i8, ptr {p.group_state.barriers}, i64 {at}"))


class _Remembered:
    """Values in memory of the twin, by the number of their word; word 0 tells where the warps are."""

    def __init__(self, p: TwinPrinter, words: int) -> None:
        self.p, self.state, self.places = p, p.reserve(8 * (1 + words)), dict[Value, int]()

    def at(self, place: int) -> str:
        return str(self.p.effect(f"getelementptr i8, ptr {self.state}, i64 {8 * place}"))

    def put(self, params: Sequence[Value], values: Sequence[Val]) -> None:
        for param, value in zip(params, values, strict=True):
            place = self.places.setdefault(param, 1 + len(self.places))
            self.p.line(f"store {value.type} {value}, ptr {self.at(place)}")

    def get(self, params: Sequence[Value]) -> None:
        for param in params:
            type, place = reg_type(param.dtype), self.places.setdefault(param, 1 + len(self.places))
            self.p.scalars[param] = self.p.effect(f"load {type}, ptr {self.at(place)}", type)

    def goes(self, body: Body, high: Val) -> Val:
        index = body.params[0]
        return self.p.effect(
            f"icmp {'slt' if index.dtype.is_signed else 'ult'} {high.type} {self.p.scalars[index]}, {high}", "i1"
        )

    def follow(self, body: Body, step: Val) -> None:
        """To the next turn of a body."""
        self.put(body.params, [self.p.scalars[body.params[0]] + step, *(self.p.scalars[x] for x in body.yielded)])

    def stop_before(self, wait: Instruction, stop: str) -> None:
        """To a label where a wait would not end at once."""
        p, go_on = self.p, self.p.new_label("issue")
        parity = p.scalars[wait.operands[1]].to("i64")
        done = p.effect(f"call i1 @rl.mbar.test(ptr {barrier_at(p, wait.operands[0])}, i64 {parity})", "i1")
        p.line(f"br i1 {done}, label %{go_on}, label %{stop}")
        p.begin(go_on)


class Copiers:
    """Warps whose body is a turn, or holds the one loop over turns, of each tile."""

    def __init__(self, p: TwinPrinter, i: Instruction, steps: Sequence[Step]) -> None:
        self.p, (low, high, step) = p, (p.scalars[x] for x in i.operands[:3])
        self.memory = _Remembered(p, 15)
        self.body, self.steps, self.high, self.step = i.bodies[0], steps, high, step
        self.loop = next((k for k, s in enumerate(steps) if s.instructions[0].kind == "for"), None)
        self.memory.put(self.body.params, [low, *(p.scalars[x] for x in i.operands[3 : 3 + i.attributes["carried"]])])
        if self.loop is not None:
            self._mark(False)

    def run_ahead(self) -> None:
        """Print turns for as long as their first waits would end at once."""
        p, state = self.p, self.p.group_state
        state.copiers = None
        again, inside, stop = (p.new_label(n) for n in ("ahead", "attempt", "stops"))
        p.jump(again)
        p.begin(again)
        with p.em.scope():
            self.memory.get(self.body.params)
            p.line(f"br i1 {self.memory.goes(self.body, self.high)}, label %{inside}, label %{stop}")
            p.begin(inside)
            if self.loop is None:
                self._turn(self.steps, stop)
                self.memory.follow(self.body, self.step)
                p.jump(again)
            else:
                self._tile(self.loop, again, stop)
        p.begin(stop)
        state.copiers = self

    def _mark(self, begun: bool) -> None:
        """Say whether the turns of a tile have begun."""
        self.p.line(f"store i1 {int(begun)}, ptr {self.memory.at(0)}")

    def _tile(self, at: int, again: str, stop: str) -> None:
        """A turn of a tile; the next tile where there is none."""
        p, step = self.p, self.steps[at]
        p.steps(self.steps[:at])
        (instruction,) = step.instructions
        turns, (low, high, by) = instruction.bodies[0], (p.scalars[x] for x in instruction.operands[:3])
        begin, go_on, attempt, leave = (p.new_label(n) for n in ("begins", "turn", "attempt", "leaves"))
        begun = p.effect(f"load i1, ptr {self.memory.at(0)}", "i1")
        p.line(f"br i1 {begun}, label %{go_on}, label %{begin}")
        p.begin(begin)
        self.memory.put(turns.params, [low, *(p.scalars[x] for x in instruction.operands[3:])])
        self._mark(True)
        p.jump(go_on)
        p.begin(go_on)
        self.memory.get(turns.params)
        p.line(f"br i1 {self.memory.goes(turns, high)}, label %{attempt}, label %{leave}")
        with p.em.scope():
            p.begin(attempt)
            self._turn(step.bodies[0], stop)
            self.memory.follow(turns, by)
            p.jump(again)
        p.begin(leave)
        p.give(instruction.results, turns.params[1:])
        p.steps(self.steps[at + 1 :])
        self._mark(False)
        self.memory.follow(self.body, self.step)
        p.jump(again)

    def _turn(self, steps: Sequence[Step], stop: str) -> None:
        """One turn; where its first wait would not end at once, it does not begin."""
        p, tried = self.p, False
        for step in steps:
            first = step.instructions[0]
            if first.kind == "mbarrier_wait" and not tried:
                tried = True
                self.memory.stop_before(first, stop)
                continue
            if not tried and first.kind not in _PLAIN:
                raise NotImplementedError(f"{first.kind} in front of the wait with which a turn of copies begins")
            p.steps([step])


class Script:
    """Warps whose body runs once: first what waits for nothing, then loops, which may wait before any of their copies.

    Word 0 of the memory is the number of the piece that comes next: of the body's begin, then for each loop its begin and the
    pieces of a turn, each from a wait to the next.  What is only computed is computed anew in each piece.
    """

    def __init__(self, p: TwinPrinter, steps: Sequence[Step]) -> None:
        self.p, self.steps = p, steps
        self.loops = [s for s in steps if s.instructions[0].kind == "for"]
        bodies = [s.instructions[0].bodies[0] for s in self.loops]
        self.memory = _Remembered(p, sum(len(b.params) + len(b.yielded) for b in bodies))
        p.line(f"store i64 0, ptr {self.memory.at(0)}")

    def run_ahead(self) -> None:
        """Print all pieces, entered at the one that comes next, until one would wait or all are done."""
        p, state = self.p, self.p.group_state
        state.copiers = None
        again, stop = (p.new_label(n) for n in ("ahead", "stops"))
        pieces = self._pieces()
        labels = [p.new_label("piece") for _ in pieces]
        p.jump(again)
        p.begin(again)
        with p.em.scope():
            self.memory.get([v for s in self.loops for v in s.instructions[0].results])
            p.steps([s for s in self.steps if s.instructions[0].kind in _PLAIN])
            number = p.effect(f"load i64, ptr {self.memory.at(0)}", "i64")
            listed = " ".join(f"i64 {k}, label %{label}" for k, label in enumerate(labels))
            p.line(f"switch i64 {number}, label %{stop} [{listed}]")
            for label, piece in zip(labels, pieces, strict=True):
                p.begin(label)
                with p.em.scope():
                    piece(again, stop)
        p.begin(stop)
        state.copiers = self

    def _goto(self, number: int, again: str) -> None:
        self.p.line(f"store i64 {number}, ptr {self.memory.at(0)}")
        self.p.jump(again)

    def _pieces(self) -> list[Callable[[str, str], None]]:
        made: list[Callable[[str, str], None]] = [self._begin]
        for step in self.loops:
            parts = _parts(step.bodies[0])
            first = len(made) + 1
            made.append(partial(self._enter, step, first))
            for k, part in enumerate(parts):
                places = (first + k, first if k == len(parts) - 1 else first + k + 1, first + len(parts))
                made.append(partial(self._part, step, part, k == 0, places))
        return made

    def _begin(self, again: str, stop: str) -> None:
        self.p.steps([s for s in self.steps if s.instructions[0].kind not in (*_PLAIN, "for")])
        self._goto(1, again)

    def _enter(self, step: Step, following: int, again: str, stop: str) -> None:
        """The begin of a loop."""
        (loop,) = step.instructions
        self.memory.put(loop.bodies[0].params, [self.p.scalars[x] for x in (loop.operands[0], *loop.operands[3:])])
        self._goto(following, again)

    def _part(
        self, step: Step, part: Sequence[Step], is_first: bool, places: tuple[int, int, int], again: str, stop: str
    ) -> None:
        """A piece of a turn; `places` are its number, that of the next one, and that behind the loop."""
        p, (loop,) = self.p, step.instructions
        body, (_, following, behind) = loop.bodies[0], places
        self.memory.get(body.params)
        if is_first:
            goes, leave = p.new_label("turn"), p.new_label("leaves")
            p.line(f"br i1 {self.memory.goes(body, p.scalars[loop.operands[1]])}, label %{goes}, label %{leave}")
            p.begin(leave)
            self.memory.put(loop.results, [p.scalars[x] for x in body.params[1:]])
            self._goto(behind, again)
            p.begin(goes)
        p.steps([s for s in step.bodies[0] if s.instructions[0].kind in _PLAIN])
        self.memory.stop_before(part[0].instructions[0], stop)
        p.steps([s for s in part[1:] if s.instructions[0].kind not in _PLAIN])
        if following <= places[0]:
            self.memory.follow(body, p.scalars[loop.operands[2]])
        self._goto(following, again)


def _parts(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps of a turn, each part from a wait on."""
    parts: list[list[Step]] = []
    for step in steps:
        kind = step.instructions[0].kind
        if kind == "mbarrier_wait":
            parts.append([])
        if parts:
            parts[-1].append(step)
        elif kind not in _PLAIN:
            raise NotImplementedError(f"{kind} in front of the wait with which a turn of copies begins")
    return parts
