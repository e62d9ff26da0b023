"""Loads, stores, atomics, and the copies of single threads in the background (`cp.async`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import arithmetic as a
from .machine import Machine, Step, instruction
from .memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BITS
from .parser import Address, Immediate, Instruction, Name, PtxError, Vector
from .state import Block, Lanes

Array = Any
SPACES = ("param", "global", "shared", "local", "const", "shared::cta")
IGNORED = {"volatile", "relaxed", "acquire", "release", "cta", "gpu", "sys", "nc", "unaligned", "weak"}


def access(i: Instruction) -> tuple[str, int, Any]:
    """The space of a load or store ("" is generic), how many numbers, and their type."""
    parts = i.parts[1:-1]
    (space,) = [p.removesuffix("::cta") for p in parts if p in SPACES] or [""]
    (count,) = [int(p[1:]) for p in parts if p in ("v2", "v4", "v8")] or [1]
    rest = set(parts) - {*SPACES, "v2", "v4", "v8"} - IGNORED
    if any(not p.startswith(("L1::", "L2::")) for p in rest):
        raise PtxError(f"the modifiers {sorted(rest)} are unknown")
    return space, count, np.dtype(a.DTYPES[i.type])


def items(operand: Any) -> tuple[Any, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


# ***** the bytes at addresses, by space *****


def read(machine: Machine, block: Block, lanes: Lanes, space: str, addresses: Array, width: int) -> Array:
    """`width` bytes at each address, a row each."""
    if space in ("global", "const"):
        offsets = machine.memory.places(addresses, width)
        machine.memory.seen(offsets)
        return machine.memory.bytes_of(offsets, width)
    if space == "shared":
        offsets = block.shared.places(addresses, width)
        block.shared.loaded(block.numbers(lanes), offsets, width)
        return block.shared.bytes_of(offsets, width)
    if space == "local":
        return block.local.load(block.numbers(lanes), addresses, f"V{width}").view(np.uint8).reshape(-1, width)
    if space == "param":
        return machine.params[addresses.astype(np.int64)[:, None] + np.arange(width)]
    out = np.zeros((len(addresses), width), np.uint8)
    for name, some, where in by_window(addresses):
        out[some] = read(machine, block, block.numbers(lanes)[some], name, where, width)
    return out


def write(machine: Machine, block: Block, lanes: Lanes, space: str, addresses: Array, rows: Array) -> None:
    width = rows.shape[1]
    if space == "global":
        offsets = machine.memory.places(addresses, width)
        machine.memory.data[offsets[:, None] + np.arange(width)] = rows
        machine.memory.written(offsets, width)
    elif space == "shared":
        offsets = block.shared.places(addresses, width)
        block.shared.stored(block.numbers(lanes), offsets, width, rows=rows)
        block.shared.data[offsets[:, None] + np.arange(width)] = rows
    elif space == "local":
        block.local.store(block.numbers(lanes), addresses, np.ascontiguousarray(rows).view(f"V{width}")[:, 0])
    elif space == "":
        for name, some, where in by_window(addresses):
            write(machine, block, block.numbers(lanes)[some], name, where, rows[some])
    else:
        raise PtxError(f"{space} memory cannot be written")


def by_window(addresses: Array) -> list[tuple[str, Array, Array]]:
    """Generic addresses by the space that they are in."""
    windows = {0: "global", SHARED_WINDOW: "shared", LOCAL_WINDOW: "local", PARAM_WINDOW: "param"}
    high = addresses >> np.uint64(WINDOW_BITS) << np.uint64(WINDOW_BITS)
    return [(windows[int(w)], np.flatnonzero(high == w), addresses[high == w] - w) for w in np.unique(high)]


# ***** loads and stores *****


@instruction("ld", "ldu")
def ld(machine: Machine, i: Instruction) -> Step:
    space, count, dtype = access(i)
    registers = [None if x == Name("_") else machine.register(x.text) for x in items(i.operands[0])]
    if len(registers) != count:
        raise PtxError(f"{len(registers)} registers for {count} numbers")
    formal = formal_of(machine, i.operands[1]) if space == "param" else None
    if formal is None:
        address, width = machine.address(i.operands[1]), count * dtype.itemsize

        def rows_of(block: Block, lanes: Lanes) -> Array:
            return read(machine, block, lanes, space, address(lanes), width)
    else:
        rows_of = formal_rows(*formal, count * dtype.itemsize)

    def step(block: Block, lanes: Lanes) -> None:
        numbers = np.ascontiguousarray(rows_of(block, lanes)).view(dtype)
        for k, register in enumerate(registers):
            if register is not None:
                register[lanes] = extended(numbers[:, k], register.dtype)

    return step


def extended(x: Array, dtype: Any) -> Array:
    """Numbers as bits of a register that may be wider."""
    if x.dtype.itemsize < dtype.itemsize:
        x = x.astype(f"{x.dtype.kind}{dtype.itemsize}")
    return x.view(dtype)


@instruction("st")
def st(machine: Machine, i: Instruction) -> Step:
    space, count, dtype = access(i)
    sources = [machine.source(x, i.type) for x in items(i.operands[1])]
    if len(sources) != count:
        raise PtxError(f"{len(sources)} registers for {count} numbers")
    formal = formal_of(machine, i.operands[0]) if space == "param" else None
    if formal is not None:
        array, offset = formal

        def keep(block: Block, lanes: Lanes) -> None:
            rows = np.stack([s[lanes] for s in sources], -1).view(np.uint8).reshape(-1, count * dtype.itemsize)
            array[lanes, offset : offset + count * dtype.itemsize] = rows

        return keep
    address = machine.address(i.operands[0])

    def step(block: Block, lanes: Lanes) -> None:
        rows = np.stack([s[lanes] for s in sources], -1).view(np.uint8).reshape(-1, count * dtype.itemsize)
        write(machine, block, lanes, space, address(lanes), rows)

    return step


def formal_of(machine: Machine, operand: Any) -> tuple[Array, int] | None:
    """The rows of a parameter of a function or a call, and the offset; None for parameters of the kernel."""
    if not isinstance(operand, Address) or not isinstance(operand.base, Name):
        return None
    for key in (f"{machine.function.name}/{operand.base.text}", operand.base.text):
        if key in machine.formal:
            return machine.formal[key], operand.offset
    return None


def formal_rows(array: Array, offset: int, width: int) -> Callable[[Block, Lanes], Array]:
    return lambda block, lanes: array[lanes, offset : offset + width]


# ***** atomics *****

_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum, "max": np.maximum,
    "exch": lambda old, new: new,
}  # fmt: skip


@instruction("atom", "red")
def atom(machine: Machine, i: Instruction) -> Step:
    """One thread after the other; in which order is nobody's to know."""
    is_red = i.parts[0] == "red"
    parts = i.parts[1:-1]
    (how,) = [p for p in parts if p in (*_COMBINE, "cas", "inc", "dec")]
    (space,) = [p.removesuffix("::cta") for p in parts if p in SPACES] or [""]
    semantics = set(parts) & {"relaxed", "acquire", "release", "acq_rel"}
    (scope,) = set(parts) & {"cta", "cluster", "gpu", "sys"} or {"gpu"}
    rest = set(parts) - {how, scope, *SPACES} - semantics - {"noftz"}
    if rest:
        raise PtxError(f"the modifiers {sorted(rest)} are unknown")
    operands = i.operands if is_red else i.operands[1:]
    into = None if is_red or i.operands[0] == Name("_") else machine.target(i.operands[0], i.type)
    address, values = machine.address(operands[0]), [machine.source(x, i.type) for x in operands[1:]]
    dtype = np.dtype(a.DTYPES[i.type])
    combine = combination(how, i.type)

    def step(block: Block, lanes: Lanes) -> None:
        numbers, addresses = block.numbers(lanes), address(lanes)
        where = space
        if not where:
            ((where, _, addresses),) = by_window(addresses)
        memory = block.shared if where == "shared" else machine.memory
        machine.memory.orders(semantics - {"acquire"}, scope)
        offsets = memory.places(addresses, dtype.itemsize)
        if where == "shared":
            block.shared.stored(numbers, offsets, dtype.itemsize, atomic=True)
        cells = memory.data.view(dtype)
        for t, at in zip(numbers, offsets // dtype.itemsize, strict=True):
            old = cells[at : at + 1].copy()
            cells[at : at + 1] = combine(old, *(v[t : t + 1] for v in values))
            if into is not None:
                into[t] = old[0]
        machine.memory.orders(semantics - {"release"}, scope)

    return step


def combination(how: str, type: str) -> Callable[..., Array]:
    if how == "cas":
        return lambda old, expected, new: np.where(old == expected, new, old)
    if type == "bf16":
        return lambda old, new: a.bf16_of(_COMBINE[how](a.float_of_bf16(old), a.float_of_bf16(new)))
    if how in ("min", "max") and type[0] == "f":
        return lambda old, new: (a.least if how == "min" else a.greatest)(old, new, False)
    if how in ("inc", "dec") or type.endswith("x2"):
        raise PtxError(f"atomics {how} of {type} are unknown")
    return _COMBINE[how]


# ***** copies in the background *****


class ThreadCopies:
    """Copies of one thread by `cp.async`: those that no group has yet, and the groups, the oldest first."""

    def __init__(self) -> None:
        self.loose: list[tuple[Array, Array]] = []
        self.groups: list[list[tuple[Array, Array]]] = []


def copies_of(block: Block) -> dict[int, ThreadCopies]:
    found: dict[int, ThreadCopies] = block.__dict__.setdefault("thread_copies", {})
    return found


@instruction("cp.async.ca.shared.global", "cp.async.cg.shared.global")
def cp_async(machine: Machine, i: Instruction) -> Step:
    """Bytes behind the size of the source are zeros.  They land when they are waited for, no sooner."""
    to, given = (machine.address(x) for x in i.operands[:2])
    (size,) = [x.bits for x in i.operands[2:3] if isinstance(x, Immediate)]
    if size not in ((16,) if "cg" in i.parts else (4, 8, 16)):
        raise PtxError(f"copies of {size} bytes do not exist")
    count = machine.source(i.operands[3], "u32") if len(i.operands) > 3 else None

    def step(block: Block, lanes: Lanes) -> None:
        numbers, targets = block.numbers(lanes), block.shared.places(to(lanes), size)
        counts = np.full(len(numbers), size) if count is None else count[lanes].astype(np.int64)
        if (counts > size).any():
            raise PtxError(f"a copy of {int(counts.max())} bytes into {size}")
        rows = np.zeros((len(numbers), size), np.uint8)
        addresses = given(lanes)
        if (addresses % size).any():
            raise PtxError(f"a copy of {size} bytes from an address that is not aligned")
        for n in np.unique(counts[counts > 0]):
            some = counts == n
            offsets = (addresses[some] - machine.memory.base).astype(np.int64)
            columns = offsets[:, None] + np.arange(n)
            if (
                (columns < 0).any()
                or (columns >= len(machine.memory.data)).any()
                or not machine.memory.valid[columns].all()
            ):
                raise PtxError(f"a copy from {int(addresses[some][0]):#x} is outside of global memory")
            rows[some, :n] = machine.memory.data[columns]
        places = targets[:, None] + np.arange(size)
        block.shared.stored(numbers, targets, size)
        block.shared.under_way[places] = True
        held = copies_of(block)
        for t, at, row in zip(numbers.tolist(), places, rows, strict=True):
            held.setdefault(t, ThreadCopies()).loose.append((at, row))

    return step


@instruction("cp.async.commit_group")
def cp_async_commit(machine: Machine, i: Instruction) -> Step:
    def step(block: Block, lanes: Lanes) -> None:
        held = copies_of(block)
        for t in block.numbers(lanes).tolist():
            copies = held.setdefault(t, ThreadCopies())
            copies.groups.append(copies.loose)
            copies.loose = []

    return step


@instruction("cp.async.wait_group", "cp.async.wait_all")
def cp_async_wait(machine: Machine, i: Instruction) -> Step:
    """All groups of the thread but the last few have landed; other threads know so behind a barrier."""
    if i.opcode == "cp.async.wait_all":
        raise PtxError("the instruction cp.async.wait_all is unknown")
    (pending,) = [x.bits for x in i.operands if isinstance(x, Immediate)]

    def step(block: Block, lanes: Lanes) -> None:
        held, shared = copies_of(block), block.shared
        for t in block.numbers(lanes).tolist():
            groups = held.setdefault(t, ThreadCopies()).groups
            done = groups[: len(groups) - pending] if pending < len(groups) else []
            del groups[: len(done)]
            for group in done:
                for at, row in group:
                    shared.data[at] = row
                    shared.under_way[at] = False
                    shared.writer[at], shared.written[at] = t, shared.epoch[t]

    return step
