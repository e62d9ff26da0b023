"""Bulk copies, barriers in memory and products of warpgroups in the twin: one legal order of what the hardware does at once.

The warps that copy run ahead as far as barriers let them, before each wait of those that multiply.  A copy lands when its
barrier is waited for, as late as it may; until then its bytes are unusable, and who reads them is reported.  So is a copy into
bytes that products may still read, and a wait that nothing ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rushlight._codegen.scalar import Val, reg_type

from ..form import Body, Instruction, Value
from ..group_products import GROUP, Side
from ..tile_maps import MAP_BYTES
from .group_products import wgmma_helper
from .group_runtime import ENTRY_BYTES, declare_group
from .plan import Step

if TYPE_CHECKING:
    from .printer import TwinPrinter

__all__ = ["GROUP_BLOCK", "print_roles"]


class GroupState:
    """Pointers to memory of the twin: barriers (32 bytes each), copies that have not landed, and what became of each 16 bytes."""

    def __init__(self, p: TwinPrinter, init: Instruction) -> None:
        declare_group(p.module)
        barriers = len(init.attributes["arrivals"])
        copies = [i for i in p.kernel.body.walk() if i.kind == "tile_copy"]
        self.barriers = p.reserve(32 * barriers)
        self.queue = p.reserve(64 + ENTRY_BYTES * len(copies) * (barriers // 2 + 1))
        self.chunk_bytes = (
            64 + p.kernel.shared
        )  # the open group of products and the last that is done, then 16 bytes for 16
        self.chunks = p.reserve(self.chunk_bytes)
        self.copiers: Copiers | None = None  # while instructions of the other warps are printed


def _state(p: TwinPrinter) -> GroupState:
    if p.group_state is None:
        init = next(i for i in p.kernel.body.walk() if i.kind == "mbarrier_init")
        p.group_state = GroupState(p, init)
    return p.group_state


def _wide(p: TwinPrinter, x: Value) -> Val:
    return p.scalars[x].to("i64")


def _mbarrier_init(p: TwinPrinter, i: Instruction) -> None:
    state = _state(p)
    p.line(f"store i64 0, ptr {state.queue}")
    p.line(f"call void @llvm.memset.p0.i64(ptr {state.chunks}, i8 0, i64 {state.chunk_bytes}, i1 false)")
    p.line(f"store i64 1, ptr {state.chunks}")
    for k, count in enumerate(i.attributes["arrivals"]):
        at = p.effect(f"getelementptr i8, ptr {state.barriers}, i64 {32 * k}")
        p.line(f"call void @rl.mbar.init(ptr {at}, i64 {count})")


def _barrier(p: TwinPrinter, x: Value) -> str:
    """The state of a barrier at a byte offset."""
    at = _wide(p, x) * 4
    return str(p.effect(f"getelementptr i8, ptr {_state(p).barriers}, i64 {at}"))


def _mbarrier_expect(p: TwinPrinter, i: Instruction) -> None:
    p.line(
        f"call void @rl.mbar.expect(ptr %ctx, ptr {_barrier(p, i.operands[0])}, i64 {i.attributes['bytes']}, ptr {p.where(i)})"
    )


def _mbarrier_arrive(p: TwinPrinter, i: Instruction) -> None:
    """All warps at once."""
    count = p.one.emit(f"select i1 {p.scalars[i.operands[1]]}, i64 {p.kernel.warps}, i64 0", "i64")
    p.line(f"call void @rl.mbar.arrive(ptr %ctx, ptr {_barrier(p, i.operands[0])}, i64 {count}, ptr {p.where(i)})")


def _mbarrier_wait(p: TwinPrinter, i: Instruction) -> None:
    state = _state(p)
    if state.copiers is not None:
        state.copiers.run_ahead()
    p.line(
        f"call void @rl.mbar.wait(ptr %ctx, ptr {_barrier(p, i.operands[0])}, i64 {_wide(p, i.operands[1])}, ptr {state.queue}, "
        f"ptr {state.chunks}, ptr {p.where(i)})"
    )


def _tile_copy(p: TwinPrinter, i: Instruction) -> None:
    state = _state(p)
    to = _wide(p, i.operands[0]) + i.attributes["buffer"].offset
    count = i.attributes.get("offsets", 0)
    ends = len(i.operands) - count
    places = [str(_wide(p, x)) for x in i.operands[2:ends]]
    last = [places.pop()] if count else []  # images are the last of the dims of windows
    places += ["0"] * (5 - len(places) - len(last)) + last
    offsets = p.one.const("i64", 0)
    for k, x in enumerate(i.operands[ends:]):
        offsets = offsets | _wide(p, x) * (1 << 16 * k)
    at = 8 * len(p.kernel.params) + MAP_BYTES * i.attributes["map"]
    record = p.effect(f"getelementptr i8, ptr %params, i64 {at}")
    p.line(
        f"call void @rl.tile.issue(ptr %ctx, ptr {state.queue}, ptr {state.chunks}, ptr {record}, {', '.join(f'i64 {x}' for x in places)}, "
        f"i64 {to}, i64 {i.attributes['bytes']}, ptr {_barrier(p, i.operands[1])}, ptr {p.where(i)}, i64 {offsets})"
    )


def _wgmma_commit(p: TwinPrinter, i: Instruction) -> None:
    at = _state(p).chunks
    old = p.effect(f"load i64, ptr {at}", "i64")
    p.line(f"store i64 {p.effect(f'add i64 {old}, 1', 'i64')}, ptr {at}")


def _wgmma_wait(p: TwinPrinter, i: Instruction) -> None:
    """Groups before the last `pending` ones that were closed are done."""
    at = _state(p).chunks
    open_group = p.effect(f"load i64, ptr {at}", "i64")
    done = p.effect(f"sub i64 {open_group}, {1 + i.attributes['pending']}", "i64")
    p.line(f"store i64 {done}, ptr {p.effect(f'getelementptr i8, ptr {at}, i64 8')}")
    p.places[i.result] = p.places[i.operands[0]]


def _descriptor(p: TwinPrinter, i: Instruction, slot: Val, side: Side, group: int) -> str:
    at = slot + (
        i.attributes["buffer"].offset + side.start + sum(a for k, a in enumerate(side.groups) if group >> k & 1)
    )
    low = (at & 0x3FFFF).lshr(4)
    return str(low | side.descriptor())


def _wgmma(p: TwinPrinter, i: Instruction) -> None:
    n, state, dtype = i.attributes["n"], _state(p), i.result.dtype
    a, b = (i.attributes[side] for side in "ab")
    helper = wgmma_helper(p.module, i.attributes["form"], n, (a.dense_k, b.dense_k), p.em.fma_hardware)
    held, target = i.operands[1], p.array(dtype, i.result.count)
    place = p.array(dtype, held.count)
    p.copy(held, place, dtype)
    slot = _wide(p, i.operands[0])
    counts = str(p.scalars[i.operands[2]]) if len(i.operands) > 2 else "true"
    for group in range(p.kernel.warps // GROUP):
        source, result = (p.address(x, dtype, str(GROUP * group), "0") for x in (place, target))
        first, second = (_descriptor(p, i, slot, side, group) for side in (a, b))
        p.line(
            f"call void {helper}(ptr %ctx, ptr {state.chunks}, i64 {first}, i64 {second}, ptr {source}, ptr {result}, i1 {counts}, "
            f"ptr {p.where(i)})"
        )
    p.places[i.result] = target


def _undefined(p: TwinPrinter, i: Instruction) -> None:
    p.places[i.result] = p.array(i.result.dtype, i.result.count)


def _nothing(p: TwinPrinter, i: Instruction) -> None:
    """Registers are what they are."""


GROUP_BLOCK = {
    "mbarrier_init": _mbarrier_init, "mbarrier_expect": _mbarrier_expect, "mbarrier_arrive": _mbarrier_arrive,
    "mbarrier_wait": _mbarrier_wait, "tile_copy": _tile_copy, "wgmma": _wgmma, "wgmma_fence": _nothing, "wgmma_commit": _wgmma_commit,
    "wgmma_wait": _wgmma_wait, "undefined": _undefined,
}  # fmt: skip


# ***** warps that copy, and warps that multiply *****


class Copiers:
    """The copying warps, whose loop is left and entered again: where they are lies in memory of the twin.

    Their body is a turn, or holds the one loop over turns, of each tile.
    """

    def __init__(self, p: TwinPrinter, i: Instruction, steps: Sequence[Step]) -> None:
        self.p, (low, high, step) = p, (p.scalars[x] for x in i.operands[:3])
        self.state, self.places = p.reserve(128), dict[Value, int]()
        self.body, self.steps, self.high, self.step = i.bodies[0], steps, high, step
        self.loop = next((k for k, s in enumerate(steps) if s.instructions[0].kind == "for"), None)
        self._put(self.body.params, [low, *(p.scalars[x] for x in i.operands[3 : 3 + i.attributes["carried"]])])
        if self.loop is not None:
            self._mark(False)

    def run_ahead(self) -> None:
        """Print turns for as long as their first waits would end at once."""
        p, state = self.p, _state(self.p)
        state.copiers = None
        again, inside, stop = (p.new_label(n) for n in ("ahead", "attempt", "stops"))
        p.jump(again)
        p.begin(again)
        with p.em.scope():
            self._get(self.body.params)
            p.line(f"br i1 {self._goes(self.body, self.high)}, label %{inside}, label %{stop}")
            p.begin(inside)
            if self.loop is None:
                self._turn(self.steps, stop)
                self._follow(self.body, self.step)
                p.jump(again)
            else:
                self._tile(self.loop, again, stop)
        p.begin(stop)
        state.copiers = self

    def _tile(self, at: int, again: str, stop: str) -> None:
        """A turn of a tile; the next tile where there is none."""
        p, step = self.p, self.steps[at]
        p.steps(self.steps[:at])
        (instruction,) = step.instructions
        turns, (low, high, by) = instruction.bodies[0], (p.scalars[x] for x in instruction.operands[:3])
        begin, go_on, attempt, leave = (p.new_label(n) for n in ("begins", "turn", "attempt", "leaves"))
        begun = p.effect(f"load i1, ptr {self._at(0)}", "i1")
        p.line(f"br i1 {begun}, label %{go_on}, label %{begin}")
        p.begin(begin)
        self._put(turns.params, [low, *(p.scalars[x] for x in instruction.operands[3:])])
        self._mark(True)
        p.jump(go_on)
        p.begin(go_on)
        self._get(turns.params)
        p.line(f"br i1 {self._goes(turns, high)}, label %{attempt}, label %{leave}")
        with p.em.scope():
            p.begin(attempt)
            self._turn(step.bodies[0], stop)
            self._follow(turns, by)
            p.jump(again)
        p.begin(leave)
        p.give(instruction.results, turns.params[1:])
        p.steps(self.steps[at + 1 :])
        self._mark(False)
        self._follow(self.body, self.step)
        p.jump(again)

    def _turn(self, steps: Sequence[Step], stop: str) -> None:
        """One turn; where its first wait would not end at once, it does not begin."""
        p, tried = self.p, False
        for step in steps:
            first = step.instructions[0]
            if first.kind == "mbarrier_wait" and not tried:
                tried, issue = True, p.new_label("issue")
                parity = _wide(p, first.operands[1])
                done = p.effect(f"call i1 @rl.mbar.test(ptr {_barrier(p, first.operands[0])}, i64 {parity})", "i1")
                p.line(f"br i1 {done}, label %{issue}, label %{stop}")
                p.begin(issue)
                continue
            if not tried and first.kind not in ("number", "pointwise"):
                raise NotImplementedError(f"{first.kind} in front of the wait with which a turn of copies begins")
            p.steps([step])

    # ***** where they are *****

    def _at(self, place: int) -> str:
        return str(self.p.effect(f"getelementptr i8, ptr {self.state}, i64 {8 * place}"))

    def _mark(self, begun: bool) -> None:
        """Say whether the turns of a tile have begun."""
        self.p.line(f"store i1 {int(begun)}, ptr {self._at(0)}")

    def _put(self, params: Sequence[Value], values: Sequence[Val]) -> None:
        for param, value in zip(params, values, strict=True):
            place = self.places.setdefault(param, 1 + len(self.places))
            self.p.line(f"store {value.type} {value}, ptr {self._at(place)}")

    def _get(self, params: Sequence[Value]) -> None:
        for param in params:
            type = reg_type(param.dtype)
            self.p.scalars[param] = self.p.effect(f"load {type}, ptr {self._at(self.places[param])}", type)

    def _goes(self, body: Body, high: Val) -> Val:
        index = body.params[0]
        return self.p.effect(
            f"icmp {'slt' if index.dtype.is_signed else 'ult'} {high.type} {self.p.scalars[index]}, {high}", "i1"
        )

    def _follow(self, body: Body, step: Val) -> None:
        """To the next turn of a body."""
        self._put(body.params, [self.p.scalars[body.params[0]] + step, *(self.p.scalars[x] for x in body.yielded)])


def print_roles(p: TwinPrinter, i: Instruction, bodies: Sequence[Sequence[Step]]) -> None:
    state, carried = _state(p), i.attributes["carried"]
    state.copiers = Copiers(p, i, bodies[0])
    p.loop(i.bodies[1], [*i.operands[:3], *i.operands[3 + carried :]], i.results, bodies[1])
    state.copiers = None
