"""Bulk copies, barriers in memory and products of warpgroups as LLVM text for NVPTX (sm_90a)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._codegen.scalar import Val, reg_type

from ..form import WARP, Instruction, ThreadKernel, Value
from ..warpgroups.find_products import GROUP, GROUP_FORMS, Side
from .memory import shared_address
from .warp import packed, unpacked

if TYPE_CHECKING:
    from .printer import NvptxPrinter

__all__ = ["HANDLERS", "launch_registers"]

# Registers of a block, and of a thread that copies: it gives the rest of its own to the others.
_REGISTERS, _COPYING = 65536, 40


def _asm(p: NvptxPrinter, text: str, constraints: str, *operands: str) -> None:
    p.line(f'call void asm sideeffect "{text}", "{constraints}"({", ".join(operands)})')


def _first_thread(p: NvptxPrinter, number: Val, of: int, act: Callable[[], None]) -> None:
    """Let the thread with this number alone act."""
    do, after = p.new_label("one"), p.new_label("all")
    p.line(f"br i1 {number.eq(of)}, label %{do}, label %{after}")
    p.begin(do)
    act()
    p.jump(after)
    p.begin(after)


# ***** barriers *****


def _mbarrier_init(p: NvptxPrinter, i: Instruction) -> None:
    def act() -> None:
        for k, count in enumerate(i.attributes["arrivals"]):
            at = shared_address(p, i, p.em.const("i32", 8 * k))
            _asm(p, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", f"i32 {at}", f"i32 {count}")
        _asm(p, "fence.mbarrier_init.release.cluster;", "~{memory}")

    with p.em.scope():
        _first_thread(p, p.thread(), 0, act)


def _mbarrier_expect(p: NvptxPrinter, i: Instruction) -> None:
    at = shared_address(p, i, p.of(i.operands[0], 1)[0])
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    _asm(p, text, "r,r,~{memory}", f"i32 {at}", f"i32 {i.attributes['bytes']}")


def _mbarrier_arrive(p: NvptxPrinter, i: Instruction) -> None:
    """By the first lane of each warp."""
    at = shared_address(p, i, p.of(i.operands[0], 1)[0])
    first = (p.thread() & WARP - 1).eq(0) & p.of(i.operands[1], 1)[0]
    _asm(p, "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b,~{memory}", f"i32 {at}", f"i1 {first}")


def _mbarrier_wait(p: NvptxPrinter, i: Instruction) -> None:
    at = shared_address(p, i, p.of(i.operands[0], 1)[0])
    parity = p.of(i.operands[1], 1)[0]
    again, after = p.new_label("wait"), p.new_label("waited")
    p.jump(again)
    p.begin(again)
    text = "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; selp.b32 $0, 1, 0, p; }"
    done = p.effect(f'call i32 asm sideeffect "{text}", "=r,r,r,~{{memory}}"(i32 {at}, i32 {parity})', "i32")
    p.line(f"br i1 {p.effect(f'icmp ne i32 {done}, 0', 'i1')}, label %{after}, label %{again}")
    p.begin(after)


def _tile_copy(p: NvptxPrinter, i: Instruction) -> None:
    at = shared_address(p, i, p.of(i.operands[0], 1)[0])
    barriers = i.attributes["barriers"].offset
    base = p.em.emit("ptrtoint ptr addrspace(3) @shared to i32", "i32")
    barrier = base + (p.of(i.operands[1], 1)[0] + barriers)
    places = [p.of(x, 1)[0] for x in i.operands[2:]]
    count = i.attributes.get("offsets", 0)
    places, offsets = places[: len(places) - count], [x.to("i16") for x in places[len(places) - count :]]
    n = len(places)
    listed = ", ".join(f"${k + 2}" for k in range(n))
    mode, more = "tile", ""
    if count:
        mode, more = "im2col", ", {" + ", ".join(f"${n + 3 + k}" for k in range(count)) + "}"
    text = f"cp.async.bulk.tensor.{n}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes [$0], [$1, {{{listed}}}], [${n + 2}]{more};"
    address = p.em.emit(f"ptrtoint ptr %map{i.attributes['map']} to i64", "i64")
    _asm(
        p,
        text,
        "r,l," + "r," * (n + 1) + "h," * count + "~{memory}",
        f"i32 {at}",
        f"i64 {address}",
        *(f"i32 {x}" for x in places),
        f"i32 {barrier}",
        *(f"i16 {x}" for x in offsets),
    )


# ***** products *****


def _plain(text: str) -> Callable[[NvptxPrinter, Instruction], None]:
    return lambda p, i: _asm(p, text, "~{memory}")


def _group(p: NvptxPrinter) -> Val:
    """The warpgroup's number, which the assembler sees to be equal in a warp."""
    name = p.declare("llvm.nvvm.shfl.sync.idx.i32", "i32(i32, i32, i32, i32)")
    return p.em.emit(f"call i32 {name}(i32 -1, i32 {p.thread().lshr(7)}, i32 0, i32 31)", "i32")


def _descriptor(p: NvptxPrinter, i: Instruction, slot: Val, side: Side) -> Val:
    at = shared_address(p, i, slot)
    for bit, add in enumerate(side.groups):
        if add:
            at = at + (_group(p).lshr(bit) & 1) * add
    low = ((at + side.start) & 0x3FFFF).lshr(4).to("i64", signed=False)
    return low | side.descriptor()


def _wgmma(p: NvptxPrinter, i: Instruction) -> None:
    form, n = GROUP_FORMS[i.attributes["form"]], i.attributes["n"]
    slot, held = p.of(i.operands[0], 1)[0], p.of(i.operands[1], i.result.count)
    a, b = (i.attributes[side] for side in "ab")
    count, number = len(held), held[0].type
    listed = ", ".join(f"${k}" for k in range(count))
    more = "" if number == "i32" else ", 1, 1"
    if form.a.itemsize == 2:
        more += "".join(f", {int(not side.dense_k)}" for side in (a, b) if side is not None)
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{form.k}.{form.kinds}"
    if a is None:  # the left operand from registers, two numbers in each
        given = [f"i32 {x}" for x in packed(p, p.of(i.operands[3], i.operands[3].count), "i32")]
        left = "{" + ", ".join(f"${2 * count + k}" for k in range(len(given))) + "}"
    else:
        at = p.of(i.operands[3], 1)[0] if len(i.operands) > 3 else slot
        given, left = [f"i64 {_descriptor(p, i, at, a)}"], f"${2 * count}"
    right = f"${2 * count + len(given)}"
    given.append(f"i64 {_descriptor(p, i, slot, b)}")
    holds = "setp.eq.u32 p, 0, 0"
    counts = p.of(i.operands[2], 1)[0] if len(i.operands) > 2 else None
    if counts is not None and counts.name in ("true", "false"):
        holds = f"setp.{'eq' if counts.name == 'true' else 'ne'}.u32 p, 0, 0"
    elif counts is not None:
        holds = f"setp.ne.b32 p, ${2 * count + len(given)}, 0"
        given.append(f"i32 {counts.to('i32', signed=False)}")
    text = f"{{ .reg .pred p; {holds}; {name} {{{listed}}}, {left}, {right}, p{more}; }}"
    p.results(i, _tied(p, text, held, given))


def _undefined(p: NvptxPrinter, i: Instruction) -> None:
    p.results(i, [Val(p.em, "poison", reg_type(i.result.dtype))] * i.result.count)


def _tied(p: NvptxPrinter, text: str, held: list[Val], more: list[str]) -> list[Val]:
    """Assembly whose results are in the registers of the operands."""
    count = len(held)
    constraints = (
        [f"={'r' if x.type == 'i32' else 'f'}" for x in held]
        + [str(k) for k in range(count)]
        + ["lr"[x.startswith("i32")] for x in more]
        + ["~{memory}"]
    )
    operands = ", ".join([f"{x.type} {x}" for x in held] + more)
    result = "{" + ", ".join([x.type for x in held]) + "}" if count > 1 else held[0].type
    raw = p.effect(f'call {result} asm sideeffect "{text}", "{",".join(constraints)}"({operands})', held[0].type)
    if count == 1:
        return [raw]
    return [p.em.emit(f"extractvalue {result} {raw}, {k}", x.type) for k, x in enumerate(held)]


def _wgmma_wait(p: NvptxPrinter, i: Instruction) -> None:
    _through(p, i, f"wgmma.wait_group.sync.aligned {i.attributes['pending']};")


def _wgmma_fence(p: NvptxPrinter, i: Instruction) -> None:
    _through(p, i, "wgmma.fence.sync.aligned;")


def _through(p: NvptxPrinter, i: Instruction, text: str) -> None:
    """Assembly that all registers of the operands pass: what makes them stands before it, what reads them behind it."""
    words, shapes = list[Val](), list[tuple[Value, int, str]]()
    for value in i.operands:
        registers = p.of(value, value.count)
        kind = registers[0].type
        made = registers if kind in ("float", "i32") else packed(p, registers, "i32")
        words += made
        shapes.append((value, len(made), kind))
    if not words:
        _asm(p, text, "~{memory}")
        return
    out = _tied(p, text, words, [])
    for result, (value, count, kind) in zip(i.results, shapes, strict=True):
        part, out = out[:count], out[count:]
        p.values[result] = part if kind in ("float", "i32") else unpacked(p, part, kind, value.count)


# ***** warps that copy, and warps that multiply *****


def _roles(p: NvptxPrinter, i: Instruction) -> None:
    """Warps behind those of the form run the first body, by one thread, and end; the others run the second, and go on."""
    count, carried = p.kernel.warps * WARP, i.attributes.get("carried")
    copy, only, stop, multiply = (p.new_label(n) for n in ("copy", "copies", "stop", "multiply"))
    bounds, values = i.operands[:3], i.operands[3:]
    p.line(f"br i1 {p.thread().lt(count, False)}, label %{multiply}, label %{copy}")
    with p.em.scope():
        p.begin(copy)
        _give_registers(p, "dec", _COPYING)
        p.line(f"br i1 {p.thread().eq(count)}, label %{only}, label %{stop}")
        p.begin(only)
        if carried is None:
            p.body(i.bodies[0])
        else:
            p.loop(i.bodies[0], [*bounds, *values[:carried]])
        p.jump(stop)
        p.begin(stop)
        p.line("ret void")
    p.begin(multiply)
    _give_registers(p, "inc", _multiplying(p))
    p.barrier_threads = count
    if carried is None:
        p.body(i.bodies[1])
        made = [p.values[v] for v in i.bodies[1].yielded]
    else:
        made = p.loop(i.bodies[1], [*bounds, *values[carried:]])
    p.values.update(zip(i.results, made, strict=True))


def launch_registers(kernel: ThreadKernel) -> int:
    """How many registers a thread must begin with so that warps can give some to others; 0 where none do."""
    return _REGISTERS // kernel.threads // 8 * 8 if kernel.copiers and kernel.warps > GROUP else 0


def _multiplying(p: NvptxPrinter) -> int:
    """Registers of a thread that multiplies: what the others leave, in steps of 8."""
    groups, copiers = p.kernel.warps // GROUP, p.kernel.copiers // GROUP
    each = launch_registers(p.kernel)
    return min(240, (each * (groups + copiers) - _COPYING * copiers) // groups // 8 * 8)


def _give_registers(p: NvptxPrinter, how: str, count: int) -> None:
    if launch_registers(p.kernel):  # a block of 8 warps has enough without
        _asm(p, f"setmaxnreg.{how}.sync.aligned.u32 {count};", "")


HANDLERS: dict[str, Callable[[Any, Instruction], None]] = {
    "mbarrier_init": _mbarrier_init, "mbarrier_expect": _mbarrier_expect, "mbarrier_arrive": _mbarrier_arrive,
    "mbarrier_wait": _mbarrier_wait, "tile_copy": _tile_copy, "wgmma_fence": _wgmma_fence,
    "wgmma_commit": _plain("wgmma.commit_group.sync.aligned;"), "wgmma": _wgmma, "wgmma_wait": _wgmma_wait, "roles": _roles,
    "undefined": _undefined, "proxy_fence": _plain("fence.proxy.async.shared::cta;"),
}  # fmt: skip
