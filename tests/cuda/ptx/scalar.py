"""Instructions on the registers of a thread: moves, arithmetic, comparisons, conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import arithmetic as a
from .machine import Machine, Step, instruction
from .parser import Immediate, Instruction, Name, PtxError, Vector
from .state import Block, Lanes

Array = Any
IGNORED = {"rn", "lo", "wrap"}  # what is so by itself


def applied(machine: Machine, i: Instruction, function: Callable[..., Array], to: str, *types: str) -> Step:
    """`function` of the operands behind the first; the last type holds for the rest."""
    into = machine.target(i.operands[0], to)
    given = i.operands[1:]
    sources = [machine.source(x, types[min(k, len(types) - 1)]) for k, x in enumerate(given)]
    if len(sources) == 1:
        (x,) = sources

        def one(block: Block, lanes: Lanes) -> None:
            into[lanes] = function(x[lanes])

        return one
    if len(sources) == 2:
        x, y = sources

        def two(block: Block, lanes: Lanes) -> None:
            into[lanes] = function(x[lanes], y[lanes])

        return two

    def many(block: Block, lanes: Lanes) -> None:
        into[lanes] = function(*(s[lanes] for s in sources))

    return many


def modifiers(i: Instruction, *known: str) -> set[str]:
    """What stands between the first part of an opcode and its type; PtxError for what is unknown."""
    found = set(i.parts[1:-1])
    if found - set(known) - IGNORED:
        raise PtxError(f"the modifiers {sorted(found - set(known))} are unknown")
    return found


def is_float(type: str) -> bool:
    return type[0] == "f" and type != "f16x2"


# ***** moves *****


@instruction("mov")
def mov(machine: Machine, i: Instruction) -> Step:
    to, given = i.operands
    if isinstance(to, Vector):
        return unpack(machine, to, machine.source(given, i.type))
    if isinstance(given, Vector):
        return pack(machine, machine.target(to, i.type), given)
    return applied(machine, i, lambda x: x, i.type, i.type)


def unpack(machine: Machine, to: Vector, given: Array) -> Step:
    """The parts of a word, the lowest first."""
    size = given.dtype.itemsize // len(to.items)
    targets = [machine.target(x, f"b{8 * size}") for x in to.items]

    def step(block: Block, lanes: Lanes) -> None:
        words = np.ascontiguousarray(given[lanes]).view(f"u{size}").reshape(-1, len(targets))
        for k, target in enumerate(targets):
            target[lanes] = words[:, k]

    return step


def pack(machine: Machine, into: Array, given: Vector) -> Step:
    size = into.dtype.itemsize // len(given.items)
    sources = [machine.source(x, f"b{8 * size}") for x in given.items]

    def step(block: Block, lanes: Lanes) -> None:
        into[lanes] = np.stack([s[lanes] for s in sources], -1).reshape(-1).view(into.dtype)

    return step


@instruction("selp")
def selp(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, lambda x, y, p: np.where(p, x, y), i.type, i.type, i.type, "pred")


@instruction("cvta")
def cvta(machine: Machine, i: Instruction) -> Step:
    """To a generic address of a space, or with `to` back."""
    from .memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW

    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW, "global": 0, "const": 0}
    add = np.uint64(window[i.parts[-2]])
    if "to" in i.parts:
        return applied(machine, i, lambda x: x - add, "u64", "u64")
    return applied(machine, i, lambda x: x + add, "u64", "u64")


# ***** integers and floating point *****


@instruction("add", "sub", "mul")
def products_and_sums(machine: Machine, i: Instruction) -> Step:
    how = modifiers(i, "hi", "wide", "cc")
    if "cc" in i.parts:
        return carried(machine, i)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[i.parts[0]]
    if i.type in ("f16x2", "bf16x2", "bf16"):
        return narrow(machine, i, function)
    if "hi" in how:
        return applied(machine, i, a.high_product, i.type, i.type)
    if "wide" in how:
        to = i.type[0] + {"16": "32", "32": "64"}[i.type[1:]]
        return applied(machine, i, a.wide_product, to, i.type)
    return applied(machine, i, function, i.type, i.type)


@instruction("addc", "subc")
def carried(machine: Machine, i: Instruction) -> Step:
    """Sums and differences of long numbers, word by word: `c` takes the carry (or borrow) of the one before, `.cc` leaves one."""
    modifiers(i, "cc")
    takes, leaves, less = i.parts[0].endswith("c"), "cc" in i.parts, i.parts[0].startswith("sub")
    type = "u" + i.type[1:]
    into, x, y = (machine.source(o, type) for o in i.operands)
    carry = machine.carry

    def step(block: Block, lanes: Lanes) -> None:
        left, right = x[lanes], y[lanes]
        more = carry[lanes].astype(left.dtype) if takes else left.dtype.type(0)
        part = left - right if less else left + right
        made = part - more if less else part + more
        if leaves:
            carry[lanes] = (left < right) | (part < more) if less else (part < left) | (made < part)
        into[lanes] = made

    return step


def narrow(machine: Machine, i: Instruction, function: Callable[..., Array]) -> Step:
    """Arithmetic of two numbers of 16 bits in a word, or of one bfloat16: by float32, which is exact before the last rounding."""

    def both(*words: Array) -> Array:
        halves = [np.ascontiguousarray(w).view(np.uint16) for w in words]
        if i.type == "f16x2":
            made = function(*(h.view(np.float16).astype(np.float32) for h in halves)).astype(np.float16)
        else:
            made = a.bf16_of(function(*(a.float_of_bf16(h) for h in halves)))
        return made.view(words[0].dtype)

    return applied(machine, i, both, i.type, i.type)


@instruction("mad")
def mad(machine: Machine, i: Instruction) -> Step:
    how = modifiers(i, "hi", "wide")
    if "wide" in how:
        to = i.type[0] + {"16": "32", "32": "64"}[i.type[1:]]
        return applied(machine, i, lambda x, y, z: a.wide_product(x, y) + z, to, i.type, i.type, to)
    if "hi" in how:
        return applied(machine, i, lambda x, y, z: a.high_product(x, y) + z, i.type, i.type)
    return applied(machine, i, lambda x, y, z: x * y + z, i.type, i.type)


@instruction("fma")
def fma(machine: Machine, i: Instruction) -> Step:
    modifiers(i)
    if i.type == "bf16":
        return applied(machine, i, a.fused_bf16, i.type, i.type)
    if i.type in ("f16x2", "bf16x2"):

        def both(*words: Array) -> Array:
            halves = [np.ascontiguousarray(w).view(np.uint16) for w in words]
            if i.type == "bf16x2":
                return a.fused_bf16(*halves).view(np.uint32)
            return a.fused(*(h.view(np.float16) for h in halves)).view(np.uint32)

        return applied(machine, i, both, i.type, i.type)
    return applied(machine, i, a.fused, i.type, i.type)


@instruction("div.rn", "div.s32", "div.u32", "div.s64", "div.u64", "div.s16", "div.u16")
def div(machine: Machine, i: Instruction) -> Step:
    modifiers(i)
    return applied(machine, i, np.divide if is_float(i.type) else a.quotient, i.type, i.type)


@instruction("rem")
def rem(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, a.remainder, i.type, i.type)


@instruction("rcp.rn")
def rcp(machine: Machine, i: Instruction) -> Step:
    one = a.DTYPES[i.type](1)
    return applied(machine, i, lambda x: one / x, i.type, i.type)


@instruction("sqrt.rn")
def sqrt(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, np.sqrt, i.type, i.type)


@instruction("abs")
def absolute(machine: Machine, i: Instruction) -> Step:
    modifiers(i)
    if i.type in ("bf16", "bf16x2", "f16x2"):
        mask = a.DTYPES[i.type](0x7FFF7FFF & (0xFFFF if i.type == "bf16" else 0xFFFFFFFF))
        return applied(machine, i, lambda x: x & mask, i.type, i.type)
    return applied(machine, i, np.abs, i.type, i.type)


@instruction("ex2.approx.ftz.f32")
def ex2(machine: Machine, i: Instruction) -> Step:
    """2**x, wrong by the 2**-22 that it may be wrong by, the sign by a bit of x; subnormal operands and results are 0."""

    def function(x: Array) -> Array:
        flushed = lambda y: np.where(np.abs(y) < np.finfo(np.float32).tiny, np.float32(0), y)
        away = np.where(x.view(np.uint32) & 1, 2.0**-22, -(2.0**-22))
        return flushed((np.exp2(flushed(x).astype(np.float64)) * (1 + away)).astype(np.float32))

    return applied(machine, i, function, "f32", "f32")


@instruction("neg")
def neg(machine: Machine, i: Instruction) -> Step:
    modifiers(i)
    if i.type in ("bf16", "bf16x2", "f16x2"):
        mask = a.DTYPES[i.type](0x80008000 & (0xFFFF if i.type == "bf16" else 0xFFFFFFFF))
        return applied(machine, i, lambda x: x ^ mask, i.type, i.type)
    return applied(machine, i, np.negative, i.type, i.type)


@instruction("min", "max")
def extremes(machine: Machine, i: Instruction) -> Step:
    how = modifiers(i, "NaN", "relu")
    least = i.parts[0] == "min"
    if i.type in ("f16x2", "bf16x2", "bf16"):
        return narrow(machine, i, lambda x, y: (a.least if least else a.greatest)(x, y, "NaN" in how))
    if is_float(i.type):
        return applied(machine, i, lambda x, y: (a.least if least else a.greatest)(x, y, "NaN" in how), i.type, i.type)
    function = np.minimum if least else np.maximum
    if "relu" in how:
        zero = a.DTYPES[i.type](0)
        return applied(machine, i, lambda x, y: np.maximum(function(x, y), zero), i.type, i.type)
    return applied(machine, i, function, i.type, i.type)


@instruction("copysign")
def copysign(machine: Machine, i: Instruction) -> Step:
    """The sign of the first, the value of the second."""
    return applied(machine, i, lambda x, y: np.copysign(y, x), i.type, i.type)


@instruction("testp")
def testp(machine: Machine, i: Instruction) -> Step:
    tiny = np.finfo(a.DTYPES[i.type]).tiny
    test = {
        "finite": np.isfinite, "infinite": np.isinf, "number": lambda x: ~np.isnan(x), "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= tiny), "subnormal": lambda x: (np.abs(x) < tiny) & (x != 0),
    }[i.parts[1]]  # fmt: skip
    return applied(machine, i, test, "pred", i.type)


# ***** bits *****


@instruction("and", "or", "xor")
def bitwise(machine: Machine, i: Instruction) -> Step:
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[i.parts[0]]
    return applied(machine, i, function, i.type, i.type)


@instruction("not")
def invert(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, np.invert, i.type, i.type)


@instruction("shl", "shr")
def shift(machine: Machine, i: Instruction) -> Step:
    function = a.shift_left if i.parts[0] == "shl" else a.shift_right
    by = i.operands[2]
    if isinstance(by, Immediate) and by.bits < 8 * np.dtype(a.DTYPES[i.type]).itemsize:
        amount = a.DTYPES[i.type](by.bits)
        plain = np.left_shift if i.parts[0] == "shl" else np.right_shift
        into, x = machine.target(i.operands[0], i.type), machine.source(i.operands[1], i.type)

        def step(block: Block, lanes: Lanes) -> None:
            into[lanes] = plain(x[lanes], amount)

        return step
    return applied(machine, i, function, i.type, i.type, "u32")


@instruction("shf")
def shf(machine: Machine, i: Instruction) -> Step:
    left, wrap = i.parts[1] == "l", i.parts[2] == "wrap"
    return applied(machine, i, lambda x, y, by: a.funnel(x, y, by, left, wrap), "u32", "u32")


@instruction("prmt.b32")
def prmt(machine: Machine, i: Instruction) -> Step:
    selector = i.operands[3]
    if not isinstance(selector, Immediate) or selector.bits & 0x8888:
        return applied(machine, i, a.permute, "u32", "u32")
    chosen = [selector.bits >> 4 * k & 7 for k in range(4)]
    into, *sources = (machine.source(x, "u32") for x in i.operands[:3])

    def step(block: Block, lanes: Lanes) -> None:
        words = [s[lanes] for s in sources]
        made = np.zeros(len(words[0]), np.uint32)
        for k, c in enumerate(chosen):
            made |= (words[c // 4] >> np.uint32(8 * (c % 4)) & np.uint32(0xFF)) << np.uint32(8 * k)
        into[lanes] = made

    return step


@instruction("bfe")
def bfe(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, a.extract_field, i.type, i.type, "u32")


@instruction("bfi")
def bfi(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, a.insert_field, i.type, i.type, i.type, "u32")


@instruction("popc")
def popc(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, a.count_ones, "u32", i.type)


@instruction("clz")
def clz(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, a.leading_zeros, "u32", i.type)


@instruction("bfind")
def bfind(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, lambda x: a.highest_bit(x, "shiftamt" in i.parts), "u32", i.type)


@instruction("brev")
def brev(machine: Machine, i: Instruction) -> Step:
    return applied(machine, i, a.reversed_bits, i.type, i.type)


@instruction("lop3.b32")
def lop3(machine: Machine, i: Instruction) -> Step:
    table = i.operands.pop()
    assert isinstance(table, Immediate)
    return applied(machine, i, lambda x, y, z: a.logic3(x, y, z, table.bits), "u32", "u32")


# ***** comparisons *****


@instruction("setp")
def setp(machine: Machine, i: Instruction) -> Step:
    how, *more = i.parts[1:-1]
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(more[0]) if more else None
    targets = i.operands[:1] if join is not None or len(i.operands) == 3 else i.operands[:2]
    rest = i.operands[len(targets) :]
    into = [machine.target(t, "pred") for t in targets]
    x, y = (machine.source(o, i.type) for o in rest[:2])
    third, inverted = None, False
    if join is not None:
        (name,) = rest[2:]
        assert isinstance(name, Name)
        inverted = name.text.startswith("!")
        third = machine.source(Name(name.text.lstrip("!")), "pred")

    def step(block: Block, lanes: Lanes) -> None:
        holds = a.compare(how, x[lanes], y[lanes])
        if len(into) > 1:
            into[1][lanes] = ~holds
        if third is not None:
            holds = join(holds, third[lanes] ^ inverted)
        into[0][lanes] = holds

    return step


# ***** conversions *****


@instruction("cvt")
def cvt(machine: Machine, i: Instruction) -> Step:
    to, given = i.parts[-2:]
    how = set(i.parts[1:-2])
    if to in ("f16x2", "bf16x2"):
        return pair(machine, i, to, given, how)
    x = machine.source(i.operands[1], given)
    function = conversion(to, given, how)
    name = i.operands[0]
    assert isinstance(name, Name)
    raw = machine.register(name.text)

    def step(block: Block, lanes: Lanes) -> None:
        made = function(x[lanes])
        if made.dtype.itemsize < raw.dtype.itemsize:  # extended to the register
            made = made.astype(f"{made.dtype.kind}{raw.dtype.itemsize}")
        raw[lanes] = made.view(raw.dtype)

    return step


def conversion(to: str, given: str, how: set[str]) -> Callable[[Array], Array]:
    """A function of numbers of a type to those of another."""
    dtype = a.DTYPES[to]
    round_integer = [h for h in how if h in ("rni", "rzi", "rmi", "rpi")]
    if how - {"rn", "sat", *round_integer}:
        raise PtxError(f"the modifiers {sorted(how)} are unknown")
    if given == "bf16":
        widened = conversion(to, "f32", how)
        return lambda x: widened(a.float_of_bf16(x))
    if to == "bf16":
        if given == "f64":
            return a.bf16_of_double
        return lambda x: a.bf16_of(x.astype(np.float32))
    if is_float(given) and not is_float(to):
        return lambda x: a.integers(x, dtype, round_integer[0])
    if is_float(given) and round_integer:
        rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[round_integer[0]]
        return lambda x: rounded(x).astype(dtype)
    if "sat" in how and is_float(to):
        return lambda x: np.where(np.isnan(x), 0, np.clip(x, 0, 1)).astype(dtype)
    if "sat" in how:
        info = np.iinfo(dtype)
        return lambda x: np.clip(x.astype(object), info.min, info.max).astype(dtype)
    return lambda x: x.astype(dtype)


def pair(machine: Machine, i: Instruction, to: str, given: str, how: set[str]) -> Step:
    """Two numbers to one word: the first is the upper half."""
    if given != "f32" or how != {"rn"}:
        raise PtxError("only cvt.rn from f32 makes pairs here")
    into = machine.target(i.operands[0], to)
    high, low = (machine.source(x, "f32") for x in i.operands[1:])
    narrowed = a.bf16_of if to == "bf16x2" else lambda x: x.astype(np.float16).view(np.uint16)

    def step(block: Block, lanes: Lanes) -> None:
        halves = [narrowed(x[lanes]) for x in (low, high)]
        into[lanes] = np.stack(halves, -1).reshape(-1).view(np.uint32)

    return step
