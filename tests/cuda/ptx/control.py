"""Branches, calls, barriers of threads and in memory, exchanges within a warp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .machine import Machine, Step, instruction
from .parser import Address, Immediate, Instruction, Name, PtxError, Vector
from .state import ASLEEP, AT_BARRIER, DONE, READY, WARP, Block, Lanes

Array = Any


def flow(step: Step) -> Step:
    """A step that says which instruction follows for these threads; None if the scheduler shall choose."""
    step.kind = "flow"  # type: ignore[attr-defined]
    return step


def sync(step: Step) -> Step:
    """A step of whole warps; False if they wait behind it."""
    step.kind = "sync"  # type: ignore[attr-defined]
    return step


# ***** branches and calls *****


def following(machine: Machine) -> int:
    return len(machine.program) + 1


@instruction("bra")
def bra(machine: Machine, i: Instruction) -> Step:
    (label,) = i.operands
    assert isinstance(label, Name)
    target, behind = machine.place(label.text), following(machine)
    if not i.guard:
        return flow(lambda block, lanes: target)
    guard, negated = machine.register(i.guard), i.negated

    def step(block: Block, lanes: Lanes) -> int | None:
        goes = guard[lanes] ^ negated
        if goes.all():
            return target
        if not goes.any():
            return behind
        if "uni" in i.parts:
            raise PtxError("bra.uni parts the threads")
        numbers = block.numbers(lanes)
        block.pc[numbers[goes]], block.pc[numbers[~goes]] = target, behind
        return None

    return flow(step)


@instruction("brx.idx")
def brx(machine: Machine, i: Instruction) -> Step:
    index, table = i.operands
    assert isinstance(table, Name)
    targets = np.array([machine.place(label) for label in machine.function.tables[table.text]])
    chosen = machine.source(index, "u32")

    def step(block: Block, lanes: Lanes) -> None:
        block.pc[lanes] = targets[chosen[lanes]]

    return flow(step)


@instruction("ret", "exit")
def ret(machine: Machine, i: Instruction) -> Step:
    leaves = machine.function.is_entry or i.parts[0] == "exit"
    behind = following(machine)
    guard = machine.register(i.guard) if i.guard else None

    def step(block: Block, lanes: Lanes) -> int | None:
        numbers = block.numbers(lanes)
        goes = np.ones(len(numbers), np.bool_) if guard is None else guard[lanes] ^ i.negated
        block.pc[numbers[~goes]] = behind
        numbers = numbers[goes]
        if leaves:
            block.status[numbers] = DONE
            for groups in block.open.values():
                if groups & set((numbers // 128).tolist()):
                    raise PtxError("a warpgroup ends while products of it are under way")
        else:
            block.pc[numbers] = block.back(numbers)
        return None

    return flow(step)


@instruction("trap")
def trap(machine: Machine, i: Instruction) -> Step:
    def step(block: Block, lanes: Lanes) -> None:
        raise PtxError("trap is executed")

    return step


@instruction("call")
def call(machine: Machine, i: Instruction) -> Step:
    """call (results), function, (parameters): what lies in the parameters is the function's, and back."""
    operands = list(i.operands)
    results = operands.pop(0).items if isinstance(operands[0], Vector) else ()  # type: ignore[union-attr]
    name = operands.pop(0)
    assert isinstance(name, Name)
    given = operands.pop(0).items if operands else ()  # type: ignore[union-attr]
    if name.text in ("vprintf", "__assertfail"):
        return said(machine, i, name.text)
    function, here = machine.module.functions[name.text], machine.function.name
    start, behind = machine.starts[name.text], following(machine)
    inward = [
        (machine.formal[p.name], machine.formal[f"{here}/{x.text}"])
        for p, x in zip(function.params, given, strict=True)
    ]  # type: ignore[union-attr]
    outward = [
        (machine.formal[f"{here}/{x.text}"], machine.formal[p.name])
        for p, x in zip(function.results, results, strict=True)
    ]  # type: ignore[union-attr]

    def step(block: Block, lanes: Lanes) -> int:
        for to, of in inward:
            to[lanes] = of[lanes]
        block.call(lanes, behind)
        return start

    # results are copied when the caller reads them: they lie in the function's own rows
    for to, of in outward:
        machine.formal[next(k for k, v in machine.formal.items() if v is to)] = of
    return flow(step)


def said(machine: Machine, i: Instruction, name: str) -> Step:
    """The driver's functions: messages are kept, a failed assertion is an error."""

    def step(block: Block, lanes: Lanes) -> None:
        machine.__dict__.setdefault("said", []).append((name, len(block.numbers(lanes))))
        if name == "__assertfail":
            raise PtxError("an assertion of the kernel failed")

    return step


# ***** barriers of threads *****


@instruction("bar.sync", "barrier.sync", "barrier.cta.sync", "bar.cta.sync")
def bar_sync(machine: Machine, i: Instruction) -> Step:
    """All threads of the block, or as many as the second operand says, wait for each other."""
    number = machine.source(i.operands[0], "u32")
    count = machine.source(i.operands[1], "u32") if len(i.operands) > 1 else None
    behind = following(machine)

    def step(block: Block, lanes: Lanes) -> bool:
        numbers = block.numbers(lanes)
        which = int(number[numbers[0]])
        takes = block.threads if count is None else int(count[numbers[0]])
        if which > 15 or takes % WARP or takes > block.threads:
            raise PtxError(f"barrier {which} of {takes} threads does not exist")
        waiting, before = block.arrived.get(which, (numbers[:0], takes))
        if before != takes:
            raise PtxError(f"barrier {which} is used for {before} threads and for {takes}")
        waiting = np.concatenate([waiting, numbers])
        block.pc[numbers] = behind
        block.status[numbers] = AT_BARRIER
        block.arrived[which] = waiting, takes
        if len(waiting) == takes:
            del block.arrived[which]
            block.status[waiting] = READY
            block.shared.epoch[waiting] += 1
            block.shared.warp_epoch[waiting] += 1
        elif len(waiting) > takes:
            raise PtxError(f"{len(waiting)} threads arrive at barrier {which} of {takes}")
        return False

    return sync(step)


@instruction("bar.warp.sync")
def bar_warp(machine: Machine, i: Instruction) -> Step:
    full_mask(i.operands[0])

    def step(block: Block, lanes: Lanes) -> None:
        block.shared.warp_epoch[lanes] += 1

    return sync(step)


def full_mask(operand: Any) -> None:
    if not isinstance(operand, Immediate) or operand.bits & 0xFFFFFFFF != 0xFFFFFFFF:
        raise PtxError(f"a mask of members other than all of the warp is unknown: {operand}")


# ***** exchanges within a warp *****


@instruction("shfl.sync")
def shfl(machine: Machine, i: Instruction) -> Step:
    """d takes a of another lane.  The clamp holds the last lane in its low bits, and which lanes are one segment in bits 8 to 12."""
    mode = i.parts[2]
    *targets, given, other, clamp, mask = i.operands
    full_mask(mask)
    into, x = machine.target(targets[0], "b32"), machine.source(given, "b32")
    inside = machine.target(targets[1], "pred") if len(targets) > 1 else None
    b, c = machine.source(other, "u32"), machine.source(clamp, "u32")

    def step(block: Block, lanes: Lanes) -> None:
        numbers = block.numbers(lanes)
        lane = (numbers % WARP).astype(np.int64)
        by, last = (b[lanes] & 31).astype(np.int64), (c[lanes] & 31).astype(np.int64)
        segment = (c[lanes] >> 8 & 31).astype(np.int64)
        highest, lowest = (lane & segment) | (last & ~segment & 31), lane & segment
        place = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": lowest | (by & ~segment & 31)}[mode]
        holds = place >= highest if mode == "up" else place <= highest
        place = np.where(holds, place, lane)
        into[lanes] = x[numbers - lane + place]
        if inside is not None:
            inside[lanes] = holds

    return sync(step)


@instruction("vote.sync", "activemask", "match", "redux.sync", "elect.sync")
def others(machine: Machine, i: Instruction) -> Step:
    raise PtxError(f"the instruction {i.opcode} is unknown")


# ***** barriers in memory *****


@dataclass
class MemoryBarrier:
    """An mbarrier object: a phase ends when all arrivals and all bytes that were announced have come."""

    arrivals: int
    pending: int
    made_by: int
    made_at: int
    bytes: int = 0
    phase: int = 0

    def settle(self, block: Block, address: int) -> None:
        """End the phase if nothing is missing, and wake who waits for it."""
        if self.pending or self.bytes:
            return
        self.phase += 1
        self.pending = self.arrivals
        for t, (at, phase) in list(block.sleeping.items()):
            if at == address and phase < self.phase:
                del block.sleeping[t]
                block.status[t] = READY


def barrier_at(block: Block, address: int, thread: int) -> MemoryBarrier:
    """PtxError if none is there, or the thread may not know of it yet."""
    found = block.shared.barriers.get(address)
    if found is None:
        raise PtxError(f"no mbarrier object was initialised at {address:#x}")
    if found.made_by != thread and block.shared.epoch[thread] <= found.made_at:
        raise PtxError(
            f"thread {thread} uses the mbarrier object at {address:#x} without a barrier behind its initialisation"
        )
    return found


def each(machine: Machine, i: Instruction, act: Callable[[Block, int, int], None], operand: int = 0) -> Step:
    """`act(block, thread, address)` thread by thread."""
    address = machine.address(i.operands[operand])

    def step(block: Block, lanes: Lanes) -> None:
        for t, at in zip(block.numbers(lanes).tolist(), address(lanes).tolist(), strict=True):
            act(block, t, at)

    return step


@instruction("mbarrier.init")
def mbarrier_init(machine: Machine, i: Instruction) -> Step:
    count = machine.source(i.operands[1], "u32")

    def act(block: Block, thread: int, address: int) -> None:
        at = block.shared.places(np.array([address], np.uint64), 8)[0] + np.arange(8)
        if block.shared.holds_barrier[at].any():
            raise PtxError(f"an mbarrier object lies at {address:#x} already")
        if not 0 < int(count[thread]) < 1 << 20:
            raise PtxError(f"an mbarrier object takes 1 to 2^20 - 1 arrivals, not {int(count[thread])}")
        block.shared.stored(np.array([thread]), at[:1], 8)
        block.shared.holds_barrier[at] = True
        arrivals = int(count[thread])
        block.shared.barriers[address] = MemoryBarrier(arrivals, arrivals, thread, int(block.shared.epoch[thread]))

    return each(machine, i, act)


@instruction("mbarrier.arrive.expect_tx")
def mbarrier_expect(machine: Machine, i: Instruction) -> Step:
    """Announce bytes, and arrive."""
    count = machine.source(i.operands[2], "u32")
    sink(i)

    def act(block: Block, thread: int, address: int) -> None:
        found = barrier_at(block, address, thread)
        found.bytes += int(count[thread])
        if found.bytes >= 1 << 20:
            raise PtxError(f"{found.bytes} bytes are more than an mbarrier object can count")
        arrive(block, found, address)

    return each(machine, i, act, 1)


@instruction("mbarrier.arrive")
def mbarrier_arrive(machine: Machine, i: Instruction) -> Step:
    sink(i)
    return each(machine, i, lambda block, t, at: arrive(block, barrier_at(block, at, t), at), 1)


def sink(i: Instruction) -> None:
    if i.operands[0] != Name("_") or not isinstance(i.operands[1], Address):
        raise PtxError("the state of an mbarrier object is unknown")


def arrive(block: Block, found: MemoryBarrier, address: int) -> None:
    if not found.pending:
        raise PtxError(f"more arrivals at {address:#x} than the {found.arrivals} of a phase")
    found.pending -= 1
    found.settle(block, address)


@instruction("mbarrier.try_wait.parity", "mbarrier.test_wait.parity")
def mbarrier_wait(machine: Machine, i: Instruction) -> Step:
    """Whether the phase of a parity is over.  If not, the thread is told so: at once when it asks first, as if its time were over, then
    when the phase ends, until which it sleeps.
    """
    into, address = machine.target(i.operands[0], "pred"), machine.address(i.operands[1])
    parity, sleeps, behind = machine.source(i.operands[2], "u32"), "try_wait" in i.parts, following(machine)

    def step(block: Block, lanes: Lanes) -> int | None:
        awake = []
        for t, at in zip(block.numbers(lanes).tolist(), address(lanes).tolist(), strict=True):
            found = barrier_at(block, at, t)
            over = found.phase % 2 != int(parity[t])
            into[t] = over
            block.pc[t] = behind
            if over or not sleeps or block.asked.get(t) != (at, found.phase):
                block.asked[t] = at, found.phase
                awake.append(t)
            else:
                block.sleeping[t] = at, found.phase
                block.status[t] = ASLEEP
        return behind if len(awake) == len(block.numbers(lanes)) else None

    return flow(step)


@instruction("fence.proxy.async")
def fence_proxy(machine: Machine, i: Instruction) -> Step:
    return lambda block, lanes: block.shared.fence_proxy(block.numbers(lanes))


@instruction("fence.mbarrier_init.release.cluster")
def fence_mbarrier(machine: Machine, i: Instruction) -> Step:
    """What this thread initialised is known to the asynchronous proxy, too."""

    def step(block: Block, lanes: Lanes) -> None:
        for address, found in block.shared.barriers.items():
            if found.made_by in block.numbers(lanes):
                block.shared.unfenced[address : address + 8] = False

    return step


@instruction("fence.acq_rel", "fence.sc", "fence.acquire", "fence.release", "membar")
def fence(machine: Machine, i: Instruction) -> Step:
    """Orders what this thread, and what came before it, did in memory."""
    scope = {"gl": "gpu"}.get(i.parts[-1], i.parts[-1])
    semantics = {"acq_rel"} if i.parts[0] == "membar" else {i.parts[1]}
    return lambda block, lanes: machine.memory.orders(semantics, scope)


@instruction("setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32")
def setmaxnreg(machine: Machine, i: Instruction) -> Step:
    """Warpgroups give registers to each other; when the block ends, none may have had to wait for more than there are."""
    (count,) = (x.bits for x in i.operands if isinstance(x, Immediate))
    if not 24 <= count <= 256 or count % 8:
        raise PtxError(f"{count} registers: from 24 to 256, in steps of 8, are possible")
    start = machine.module.entry.directives.get("maxnreg")
    if start is None:
        raise PtxError("a kernel without .maxnreg")
    rises = "inc" in i.parts

    def step(block: Block, lanes: Lanes) -> None:
        for group in block.whole_groups(lanes).tolist():
            before = block.group_registers.get(group, start[0])
            if count != before and (count > before) != rises:
                raise PtxError(f"warpgroup {group} has {before} registers and asks for {count}")
            block.group_registers[group] = count

    return sync(step)
