"""Products of matrices by a warp (`mma`), loads of their fragments (`ldmatrix`), products by a warpgroup (`wgmma`).

Which thread holds which element follows sections "Matrix Fragments" of the instruction set, in its words: the group of a lane is
lane / 4, its place in the group lane % 4.  Sums are made in float64, and rounded once; hardware keeps fewer bits on the way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from .arithmetic import float_of_bf16
from .control import sync
from .machine import Machine, Step, instruction
from .parser import Immediate, Instruction, PtxError, Vector
from .state import WARP, Block, Lanes

__all__ = ["GroupProducts", "decoded", "element_offsets", "swizzled"]

Array = Any
ITEM_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1}


@cache
def bytes_as_floats(exponent_bits: int) -> Array:
    """The 256 numbers of a format of eight bits: e4m3 has no infinities, and NaN where all bits are set; e5m2 is a cut half."""
    if exponent_bits == 5:
        return (np.arange(256).astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    out = np.zeros(256)
    for bits in range(256):
        exponent, fraction = bits >> 3 & 15, bits & 7
        value = fraction * 2.0**-9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10)
        out[bits] = np.nan if bits & 0x7F == 0x7F else -value if bits & 0x80 else value
    return out


def decoded(words: Array, kind: str) -> Array:
    """Numbers of a kind, as float64 (integers as int64), from their bits."""
    if kind == "f16":
        return words.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return float_of_bf16(words).astype(np.float64)
    if kind == "tf32":  # the lower 13 bits do not count
        return (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind in ("s8", "u8"):
        return words.view(np.int8 if kind == "s8" else np.uint8).astype(np.int64)
    return bytes_as_floats(4 if kind == "e4m3" else 5)[words]


def added(c: Array, product: Array) -> Array:
    """Accumulators and products: integers wrap, float32 rounds once."""
    if c.dtype == np.int32:
        return (c.astype(np.int64) + product).astype(np.int32)
    return (c.astype(np.float64) + product).astype(np.float32)


# ***** a warp *****


@cache
def fragment(matrix: str, each: int) -> tuple[Array, Array]:
    """Rows and columns of elements, by lane and by number; `each` elements lie in a register of 32 bits."""
    lane = np.arange(WARP)[:, None]
    group, place = lane >> 2, lane % 4
    if matrix == "c":
        i = np.arange(4)[None, :]
        return group + 8 * (i >> 1), place * 2 + (i & 1)
    i = np.arange((4 if matrix == "a" else 2) * each)[None, :]
    register, part = i // each, i % each
    if matrix == "a":  # registers: the upper rows, the lower rows, and both again for the second half of k
        return group + 8 * (register & 1), place * each + part + 4 * each * (register >> 1)
    return place * each + part + 4 * each * register, group + 0 * i


@instruction("mma.sync.aligned")
def mma(machine: Machine, i: Instruction) -> Step:
    shape, *rest = i.parts[3:]
    if rest[:2] != ["row", "col"] or len(rest) != 6:
        raise PtxError(f"the form {rest} is unknown")
    result, kind_a, kind_b, _ = rest[2:]
    size = ITEM_BYTES[kind_a]
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    if (m, n, k * size) != (16, 8, 32) and (m, n, k * size) != (16, 8, 64):
        raise PtxError(f"the shape {shape} is unknown")
    if (m, n, k * size) == (16, 8, 64) or result not in ("f32", "s32"):
        raise PtxError(f"the form {shape} {rest} is unknown")
    vectors = [x.items for x in i.operands if isinstance(x, Vector)]
    if [len(v) for v in vectors] != [4, 4, 2, 4]:
        raise PtxError("other numbers of registers than 4, 4, 2, 4")
    d, c = ([machine.source(x, result) for x in v] for v in (vectors[0], vectors[3]))
    a, b = ([machine.source(x, "b32") for x in v] for v in vectors[1:3])

    def gathered(registers: list[Array], lanes: Lanes, name: str, kind: str, rows: int, columns: int) -> Array:
        words = np.stack([r[lanes] for r in registers], -1).view(f"u{size}")
        numbers = decoded(words, kind).reshape(-1, WARP, words.shape[-1])
        out = np.zeros((len(numbers), rows, columns), numbers.dtype)
        out[:, *fragment(name, 4 // size)] = numbers
        return out

    def step(block: Block, lanes: Lanes) -> None:
        left, right = gathered(a, lanes, "a", kind_a, m, k), gathered(b, lanes, "b", kind_b, k, n)
        product = (left @ right)[:, *fragment("c", 1)].reshape(-1, 4)
        sums = added(np.stack([x[lanes] for x in c], -1), product)
        for number, register in enumerate(d):
            register[lanes] = sums[:, number]

    return sync(step)


@instruction("ldmatrix.sync.aligned.m8n8")
def ldmatrix(machine: Machine, i: Instruction) -> Step:
    """Matrices of 8 rows of 16 bytes; eight lanes each tell the rows of one.  A lane gets two neighbours of a row, or of a column."""
    count, transposed = int(i.parts[4][1:]), "trans" in i.parts
    if i.parts[-1] != "b16" or i.parts[-2] not in ("shared", "shared::cta"):
        raise PtxError("the form is unknown")
    targets = [machine.target(x, "b32") for x in i.operands[0].items]  # type: ignore[union-attr]
    address = machine.address(i.operands[1])
    lane = np.arange(WARP)
    row, column = (lane % 4 * 2, lane // 4) if transposed else (lane // 4, lane % 4 * 2)

    def step(block: Block, lanes: Lanes) -> None:
        numbers = block.numbers(lanes).reshape(-1, WARP)[:, : 8 * count]
        offsets = block.shared.places(address(lanes).reshape(-1, WARP)[:, : 8 * count].ravel(), 16)
        block.shared.loaded(numbers.ravel(), offsets, 16)
        rows = block.shared.bytes_of(offsets, 16).view(np.uint16).reshape(-1, count, 8, 8).astype(np.uint32)
        for k, target in enumerate(targets):
            second = rows[:, k, row + 1, column] if transposed else rows[:, k, row, column + 1]
            target[lanes] = (rows[:, k, row, column] | second << np.uint32(16)).ravel()

    return sync(step)


# ***** a warpgroup *****


@dataclass
class GroupProducts:
    """What a warpgroup's products in the background read and write: those that no group has yet, and the groups, the oldest first."""

    loose: list[tuple[Array, set[str]]] = field(default_factory=list)
    groups: list[list[tuple[Array, set[str]]]] = field(default_factory=list)
    fenced: bool = False
    touched: set[str] = field(default_factory=set)  # registers that other instructions used since the last fence

    def follow(self, name: str, other: str) -> None:
        """A register is a copy of another from now on."""
        for one in (*self.groups, self.loose):
            for _, names in one:
                if name in names:
                    names.add(other)


def swizzled(addresses: Array, bits: int) -> Array:
    """Swizzle<bits, 4, 3>: bits from 4 on are xored by those from 7 on."""
    return addresses ^ (addresses >> 7 & ((1 << bits) - 1)) << 4


@cache
def element_offsets(outer: int, k: int, size: int, dense_k: bool, bits: int, leading: int, stride: int) -> Array:
    """Bytes from the start of a matrix in shared memory to its elements [outer, k]: the canonical layouts, which are told in units of
    16 bytes.  `leading` and `stride` are the descriptor's offsets in bytes.
    """
    t, run = 16 // size, 1 << bits
    o, d = np.arange(outer)[:, None], np.arange(k)[None, :]
    if dense_k:
        within = o % 8 * run * 16 + o // 8 * stride
        return within + d * size if bits else within + d % t * size + d // t * leading
    if bits:  # ((T, run, m), (8, k)) : ((1, T, leading), (run T, stride))
        return o % t * size + o // t % run * 16 + o // (t * run) * leading + d % 8 * run * 16 + d // 8 * stride
    return o % t * size + o // t * stride + d % 8 * 16 + d // 8 * leading


def described(descriptor: int, outer: int, k: int, size: int, dense_k: bool) -> Array:
    """Addresses of the elements that a matrix descriptor means."""
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    if descriptor >> 49 & 7:
        raise PtxError("a base offset in a matrix descriptor is unknown")
    if descriptor >> 14 & 3 or descriptor >> 30 & 3 or descriptor >> 46 & 7 or descriptor >> 52 & 0x3FF:
        raise PtxError(f"bits outside of the fields of a matrix descriptor are set: {descriptor:#018x}")
    bits = (0, 3, 2, 1)[descriptor >> 62]
    return swizzled(start + element_offsets(outer, k, size, dense_k, bits, leading, stride), bits)


@cache
def accumulators(n: int) -> tuple[Array, Array]:
    """Rows and columns of the elements of m64nN, by register and by thread of the warpgroup."""
    thread, i = np.arange(128)[None, :], np.arange(n // 2)[:, None]
    lane = thread % WARP
    return thread // WARP * 16 + lane // 4 + 8 * (i >> 1 & 1), (i >> 2) * 8 + lane % 4 * 2 + (i & 1)


_INTEGER_COLUMNS = (8, 16, 24, *range(32, 257, 16))


@instruction("wgmma.mma_async.sync.aligned")
def wgmma(machine: Machine, i: Instruction) -> Step:
    shape, result, kind_a, kind_b = i.parts[4:]
    size = ITEM_BYTES[kind_a]
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    if m != 64 or k * size != 32 or n % 8 or not 8 <= n <= 256 or (result == "s32" and n not in _INTEGER_COLUMNS):
        raise PtxError(f"the shape {shape} is unknown")
    names = [f"{machine.function.name}/{x.text}" for x in i.operands[0].items]  # type: ignore[union-attr]
    registers = [machine.source(x, result) for x in i.operands[0].items]  # type: ignore[union-attr]
    if len(registers) != n // 2 or len(set(names)) != len(names):
        raise PtxError(f"{len(set(names))} accumulators instead of {n // 2}")
    left = i.operands[1]
    held = [] if not isinstance(left, Vector) else [machine.source(x, "b32") for x in left.items]
    held_names = {f"{machine.function.name}/{x.text}" for x in left.items} if isinstance(left, Vector) else set()
    if held_names & set(names) or len(held) not in (0, 4):
        raise PtxError("the left operand is no four registers besides the accumulators")
    sides = [
        (machine.source(x, "b64"), *of) for x, *of in ((left, kind_a, m), (i.operands[2], kind_b, n))[bool(held) :]
    ]
    keeps, *more = i.operands[3:]
    holds = machine.source(keeps, "pred")
    numbers = [x.bits for x in more if isinstance(x, Immediate)]
    if result == "s32":
        signs, transposed = [1, 1], [0, 0]
    else:
        signs, transposed = numbers[:2], numbers[2:] or [0, 0]
    # only operands of two bytes in shared memory say how they lie
    if signs != [1, 1] or len(numbers) != {"s32": 0}.get(result, 2 + len(sides) if size == 2 else 2):
        raise PtxError(f"the operands {numbers} behind the predicate are unknown")

    def step(block: Block, lanes: Lanes) -> None:
        for group in block.whole_groups(lanes).tolist():
            one_group(block, group)

    def one_group(block: Block, group: int) -> None:
        of = slice(128 * group, 128 * group + 128)
        products = products_of(block, group)
        already = {name for name in names if group in block.open.get(name, ())}
        if not products.fenced or (products.touched & (set(names) - already | held_names)):
            raise PtxError("registers of the products were used since the last wgmma.fence, or there was none")
        matrices = [left_of([x[of] for x in held], kind_a)] if held else []
        products.loose.append((np.zeros(0, np.int64), {*names, *held_names}))
        for (words, kind, outer), across in zip(sides, transposed[: len(sides)], strict=True):
            (word,) = set(words[of].tolist()) if len(set(words[of].tolist())) == 1 else (None,)
            if word is None:
                raise PtxError("the warps of a warpgroup give different matrix descriptors")
            places = described(word, outer, k, size, not across)
            touched = (places[..., None] + np.arange(size)).ravel()
            block.shared.read_by_products(touched)
            products.loose.append((touched, set(names)))
            matrices.append(decoded(np.ascontiguousarray(block.shared.data.view(f"u{size}")[places // size]), kind))
        product = (matrices[0] @ matrices[1].T)[accumulators(n)]
        keep = holds[of]
        if keep.any() != keep.all():
            raise PtxError("scale-d differs among the threads of a warpgroup")
        for number, register in enumerate(registers):
            before = register[of] if keep[0] else np.zeros(128, register.dtype)
            register[of] = added(before, product[number])
        for name in (*names, *held_names):
            block.open.setdefault(name, set()).add(group)

    return sync(step)


def left_of(registers: list[Array], kind: str) -> Array:
    """The left operand of m64 from four registers of each of 128 threads: a warp has 16 rows, as the operand a of `mma`."""
    words = np.stack(registers, -1).view(f"u{ITEM_BYTES[kind]}").reshape(4, WARP, -1)
    out = np.zeros((4, 16, 32 // ITEM_BYTES[kind]))
    out[:, *fragment("a", 4 // ITEM_BYTES[kind])] = decoded(np.ascontiguousarray(words), kind)
    return out.reshape(64, -1)


def products_of(block: Block, group: int) -> GroupProducts:
    found: GroupProducts = block.products.setdefault(group, GroupProducts())
    return found


@instruction("wgmma.fence.sync.aligned")
def wgmma_fence(machine: Machine, i: Instruction) -> Step:
    def step(block: Block, lanes: Lanes) -> None:
        for group in block.whole_groups(lanes).tolist():
            products = products_of(block, group)
            products.fenced, products.touched = True, set()

    return sync(step)


@instruction("wgmma.commit_group.sync.aligned")
def wgmma_commit(machine: Machine, i: Instruction) -> Step:
    def step(block: Block, lanes: Lanes) -> None:
        for group in block.whole_groups(lanes).tolist():
            products = products_of(block, group)
            products.groups.append(products.loose)
            products.loose = []

    return sync(step)


@instruction("wgmma.wait_group.sync.aligned")
def wgmma_wait(machine: Machine, i: Instruction) -> Step:
    """All groups of products but the last few are done."""
    (pending,) = (x.bits for x in i.operands if isinstance(x, Immediate))

    def step(block: Block, lanes: Lanes) -> None:
        for group in block.whole_groups(lanes).tolist():
            products = products_of(block, group)
            done = products.groups[: max(len(products.groups) - pending, 0)]
            del products.groups[: len(done)]
            for one in done:
                for touched, _ in one:
                    block.shared.being_read[touched] -= 1
            # registers of products that go on
            busy = {name for one in (*products.groups, products.loose) for _, names in one for name in names}
            if products.groups or products.loose:
                over = {name for one in done for _, names in one for name in names} - busy
            else:
                over = set(block.open)
            for name in [n for n in over if group in block.open.get(n, ())]:
                block.open[name].discard(group)
                if not block.open[name]:
                    del block.open[name]

    return sync(step)
