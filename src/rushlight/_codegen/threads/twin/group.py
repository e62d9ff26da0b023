"""Bulk copies, barriers in memory and products of warpgroups in the twin: one legal order of what the hardware does at once.

The warps that copy run ahead as far as barriers let them, before each wait of those that multiply.  A copy lands when its
barrier is waited for, as late as it may; until then its bytes are unusable, and who reads them is reported.  So is a copy into
bytes that products may still read, and a wait that nothing ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rushlight._codegen.scalar import Val

from ..form import Instruction, Value
from ..tile_maps import MAP_BYTES
from ..warpgroups.find_products import GROUP, Side
from .copiers import Copiers, Script, barrier_at
from .group_products import wgmma_helper
from .group_runtime import ENTRY_BYTES, declare_group
from .plan import Step

if TYPE_CHECKING:
    from .printer import Place, TwinPrinter

__all__ = ["GROUP_BLOCK", "print_roles"]


class GroupState:
    """Pointers to memory of the twin: barriers (32 bytes each), copies that have not landed, and what became of each 16 bytes."""

    def __init__(self, p: TwinPrinter, init: Instruction) -> None:
        declare_group(p.module)
        barriers = len(init.attributes["arrivals"])
        copies = [i for i in p.kernel.body.walk() if i.kind == "tile_copy"]
        self.barriers = p.reserve(32 * barriers)
        self.queue = p.reserve(64 + ENTRY_BYTES * len(copies) * (barriers // 2 + 1))
        # The open group of products and the last that is done, then 16 bytes for 16
        self.chunk_bytes = 64 + p.kernel.shared
        self.chunks = p.reserve(self.chunk_bytes)
        self.copiers: Copiers | Script | None = None  # while instructions of the other warps are printed


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


def _mbarrier_expect(p: TwinPrinter, i: Instruction) -> None:
    p.line(
        f"call void @rl.mbar.expect(ptr %ctx, ptr {barrier_at(p, i.operands[0])}, i64 {i.attributes['bytes']}, ptr {p.where(i)})"
    )


def _mbarrier_arrive(p: TwinPrinter, i: Instruction) -> None:
    """All warps at once."""
    count = p.one.emit(f"select i1 {p.scalars[i.operands[1]]}, i64 {p.kernel.warps}, i64 0", "i64")
    p.line(f"call void @rl.mbar.arrive(ptr %ctx, ptr {barrier_at(p, i.operands[0])}, i64 {count}, ptr {p.where(i)})")


def _mbarrier_wait(p: TwinPrinter, i: Instruction) -> None:
    state = _state(p)
    if state.copiers is not None:
        state.copiers.run_ahead()
    p.line(
        f"call void @rl.mbar.wait(ptr %ctx, ptr {barrier_at(p, i.operands[0])}, i64 {_wide(p, i.operands[1])}, ptr {state.queue}, "
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
        f"i64 {to}, i64 {i.attributes['bytes']}, ptr {barrier_at(p, i.operands[1])}, ptr {p.where(i)}, i64 {offsets})"
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
    _same(p, i)


def _descriptor(p: TwinPrinter, i: Instruction, slot: Val, side: Side, group: int) -> str:
    at = slot + (
        i.attributes["buffer"].offset + side.start + sum(a for k, a in enumerate(side.groups) if group >> k & 1)
    )
    low = (at & 0x3FFFF).lshr(4)
    return str(low | side.descriptor())


def _wgmma(p: TwinPrinter, i: Instruction) -> None:
    n, state, dtype = i.attributes["n"], _state(p), i.result.dtype
    a, b = (i.attributes[side] for side in "ab")
    dense = (None if a is None else a.dense_k, b.dense_k)
    helper = wgmma_helper(p.module, i.attributes["form"], n, dense, p.em.fma_hardware)
    place, target = _copied(p, i.operands[1]), p.array(dtype, i.result.count)
    slot = _wide(p, i.operands[0])
    lies = _wide(p, i.operands[3]) if a is not None and len(i.operands) > 3 else slot
    fragment = _copied(p, i.operands[3]) if a is None else None
    counts = str(p.scalars[i.operands[2]]) if len(i.operands) > 2 else "true"
    for group in range(p.kernel.warps // GROUP):
        source, result = (p.address(x, dtype, str(GROUP * group), "0") for x in (place, target))
        if fragment is not None:
            first = f"ptr {p.address(fragment, i.operands[3].dtype, str(GROUP * group), '0')}"
        else:
            first = f"i64 {_descriptor(p, i, lies, a, group)}"
        second = _descriptor(p, i, slot, b, group)
        p.line(
            f"call void {helper}(ptr %ctx, ptr {state.chunks}, {first}, i64 {second}, ptr {source}, ptr {result}, i1 {counts}, "
            f"ptr {p.where(i)})"
        )
    p.places[i.result] = target


def _copied(p: TwinPrinter, value: Value) -> Place:
    """The registers of a value, all in order."""
    place = p.array(value.dtype, value.count)
    p.copy(value, place, value.dtype)
    return place


def _undefined(p: TwinPrinter, i: Instruction) -> None:
    p.places[i.result] = p.array(i.result.dtype, i.result.count)


def _same(p: TwinPrinter, i: Instruction) -> None:
    """Registers are what they are."""
    p.give(i.results, i.operands)


GROUP_BLOCK = {
    "mbarrier_init": _mbarrier_init, "mbarrier_expect": _mbarrier_expect, "mbarrier_arrive": _mbarrier_arrive,
    "mbarrier_wait": _mbarrier_wait, "tile_copy": _tile_copy, "wgmma": _wgmma, "wgmma_fence": _same, "wgmma_commit": _wgmma_commit,
    "wgmma_wait": _wgmma_wait, "undefined": _undefined, "proxy_fence": _same,
}  # fmt: skip


# ***** warps that copy, and warps that multiply *****


def print_roles(p: TwinPrinter, i: Instruction, bodies: Sequence[Sequence[Step]]) -> None:
    state, carried = _state(p), i.attributes.get("carried")
    if carried is None:
        state.copiers = Script(p, bodies[0])
        p.steps(bodies[1])
        p.give(i.results, i.bodies[1].yielded)
    else:
        state.copiers = Copiers(p, i, bodies[0])
        p.loop(i.bodies[1], [*i.operands[:3], *i.operands[3 + carried :]], i.results, bodies[1])
    state.copiers = None
