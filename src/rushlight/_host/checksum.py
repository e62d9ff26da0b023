"""CRC-32, as zip archives have it, at the speed of memory where the machine multiplies polynomials.

A message is a polynomial over two elements, its checksum the rest after division by P.  Any 128 bits of it can be moved
`n` bits on by two carry-less products with `x^n mod P`, which leaves the rest as it was; so the message is folded into
itself, several vectors at a time, until 16 bytes are left (Gopal, Ozturk, Guilford et al., "Fast CRC Computation for
Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).  `zlib` takes these 16 bytes and whatever did not fill a
step, and everything on machines without the instruction.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from rushlight._base.lazy import require
from rushlight._native import jit
from rushlight._native.compiled import compile_text
from rushlight._native.target import TargetDescription, host_target

__all__ = ["crc32", "fold_kernel", "fold_text", "fold_width", "joined"]

_POLYNOMIAL = 0x104C11DB7
_TURNED = (
    0xEDB88320  # the polynomial less its highest power, the other way round: as checksums are, whose highest bit is x^0
)
_SYMBOL = "rl_crc_fold"
_VECTORS = 4  # folded side by side: a product takes four steps, so that many are under way
_LEAST = 1 << 12  # bytes below which a call costs more than it gains


def crc32(data: Any, value: int = 0) -> int:
    """The checksum of bytes, going on from `value`: what `zlib.crc32` says."""
    size = len(data)
    if size < _LEAST or getattr(data, "readonly", True) or not fold_width(host_target()):
        return zlib.crc32(data, value)
    ctypes = require("ctypes")

    window = ctypes.c_char.from_buffer(data)  # held for the time of the call, for its address
    kernel, step = _kernel()
    whole = size - size % step
    rest = bytearray(16)
    held = ctypes.c_char.from_buffer(rest)
    ints = array("q", (1, 1, 0, 0, 0, 0, 0, 0, whole, ~value & 0xFFFFFFFF))
    bufs = array("Q", (ctypes.addressof(window), ctypes.addressof(held)))
    kernel(bufs.buffer_info()[0], ints.buffer_info()[0], 0)
    # zlib inverts the value before and after: all ones begin with a register of zeros.
    return zlib.crc32(data[whole:], zlib.crc32(rest, 0xFFFFFFFF))


def joined(first: int, second: int, size: int) -> int:
    """The checksum of two parts, one behind the other, from theirs; the second part has `size` bytes."""
    return _product(first, _moved(size)) ^ second


@lru_cache(maxsize=256)
def _moved(size: int) -> int:
    """x^(8 size) mod P, turned: what moves a checksum on by `size` bytes."""
    found, power = 1 << 31, 1 << 23  # 1, and x^8
    while size:
        if size & 1:
            found = _product(found, power)
        power, size = _product(power, power), size >> 1
    return found


def _product(a: int, b: int) -> int:
    """The product of two turned polynomials, mod P."""
    found = 0
    for place in range(31, -1, -1):
        if a >> place & 1:
            found ^= b
        b = b >> 1 ^ (_TURNED if b & 1 else 0)
    return found


def fold_width(target: TargetDescription) -> int:
    """Bytes of the vectors that can be multiplied as polynomials, 16 bytes each by each; 0 where there is no such
    instruction.
    """
    if target.arch == "x86_64":
        return target.vector_bytes if target.has("vpclmulqdq") else 16 if target.has("pclmulqdq") else 0
    return 16 if target.arch == "aarch64" and target.has("pmull") else 0


@cache
def _kernel() -> tuple[Callable[..., Any], int]:
    """The kernel of this machine, and how many bytes it takes at a step."""
    target = host_target()
    return fold_kernel(target.arch, fold_width(target))


def fold_kernel(arch: str, width: int) -> tuple[Callable[..., Any], int]:
    """The kernel for vectors of `width` bytes, called with the addresses of its two tables and 0, and how many bytes it
    takes at a step.
    """
    ctypes = require("ctypes")
    loaded = jit.load(compile_text(fold_text(arch, width)), [_SYMBOL])
    loaded.pin()  # it is kept as long as the process
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return call(loaded[_SYMBOL]), _VECTORS * width


# ***** the kernel *****


def _power(n: int) -> int:
    """x^n mod P, its bits turned round and moved up by one: the form in which it multiplies turned polynomials."""
    rest = 1
    for _ in range(n):
        rest <<= 1
        if rest >> 32:
            rest ^= _POLYNOMIAL
    return int(f"{rest:032b}"[::-1], 2) << 1


class _Text:
    """Collects lines; every value gets the next name."""

    def __init__(self, arch: str, width: int) -> None:
        self.arch, self.width, self.lanes = arch, width, width // 8
        self.vector = f"<{self.lanes} x i64>"
        self.lines: list[str] = []
        self._count = 0

    def let(self, line: str) -> str:
        """Name the value of an instruction."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {line}")
        return f"%v{self._count}"

    def product(self, a: str, constant: str, half: int, lanes: int) -> str:
        """The products of the lower (0) or upper (1) 64 bits of every 128."""
        vector = f"<{lanes} x i64>"
        if self.arch == "aarch64":
            x = self.let(f"extractelement {vector} {a}, i64 {half}")
            k = self.let(f"extractelement {vector} {constant}, i64 {half}")
            wide = self.let(f"call <16 x i8> @llvm.aarch64.neon.pmull64(i64 {x}, i64 {k})")
            return self.let(f"bitcast <16 x i8> {wide} to {vector}")
        suffix = {2: "", 4: ".256", 8: ".512"}[lanes]
        return self.let(
            f"call {vector} @llvm.x86.pclmulqdq{suffix}({vector} {a}, {vector} {constant}, i8 {0x11 * half})"
        )

    def fold(self, a: str, distance: int, onto: str, lanes: int) -> str:
        """`a`, moved on by `distance` bytes, added to what stands there."""
        vector = f"<{lanes} x i64>"
        low, high = _power(8 * distance + 32), _power(8 * distance - 32)
        constant = f"<{', '.join([f'i64 {low}, i64 {high}'] * (lanes // 2))}>"
        lower, upper = self.product(a, constant, 0, lanes), self.product(a, constant, 1, lanes)
        both = self.let(f"xor {vector} {lower}, {upper}")
        return self.let(f"xor {vector} {both}, {onto}")


def fold_text(arch: str, width: int) -> str:
    """The kernel `i32 (ptr bufs, ptr ints, i64 piece)` as LLVM text.

    bufs: the data, and 16 bytes for what they are folded into; ints, behind the eight words of every call: the number
    of bytes, a multiple of four vectors of `width` bytes and not 0, and the register to begin with.
    """
    t = _Text(arch, width)
    vector, step = t.vector, _VECTORS * width
    t.lines += [
        "entry:",
        "  %data = load ptr, ptr %bufs",
        "  %outs = getelementptr ptr, ptr %bufs, i64 1",
        "  %out = load ptr, ptr %outs",
        "  %sizes = getelementptr i64, ptr %ints, i64 8",
        "  %size = load i64, ptr %sizes",
        "  %starts = getelementptr i64, ptr %ints, i64 9",
        "  %start = load i64, ptr %starts",
        "  %end = getelementptr i8, ptr %data, i64 %size",
    ]
    first = [_loaded(t, "%data", i) for i in range(_VECTORS)]
    begun = t.let(f"insertelement {vector} zeroinitializer, i64 %start, i64 0")
    first[0] = t.let(f"xor {vector} {first[0]}, {begun}")
    t.lines += [
        f"  %p0 = getelementptr i8, ptr %data, i64 {step}",
        "  br label %check",
        "check:",
        "  %p = phi ptr [%p0, %entry], [%p1, %body]",
    ]
    t.lines += [f"  %a{i} = phi {vector} [{first[i]}, %entry], [%b{i}, %body]" for i in range(_VECTORS)]
    t.lines += ["  %more = icmp ult ptr %p, %end", "  br i1 %more, label %body, label %after", "body:"]
    for i in range(_VECTORS):
        folded = t.fold(f"%a{i}", step, _loaded(t, "%p", i), t.lanes)
        t.lines.append(f"  %b{i} = xor {vector} {folded}, zeroinitializer")
    t.lines += [f"  %p1 = getelementptr i8, ptr %p, i64 {step}", "  br label %check", "after:"]
    total = "%a0"
    for i in range(1, _VECTORS):
        total = t.fold(total, width, f"%a{i}", t.lanes)
    pairs = [
        t.let(f"shufflevector {vector} {total}, {vector} poison, <2 x i32> <i32 {i}, i32 {i + 1}>")
        for i in range(0, t.lanes, 2)
    ]
    rest = pairs[0]
    for pair in pairs[1:]:
        rest = t.fold(rest, 16, pair, 2)
    t.lines += [f"  store <2 x i64> {rest}, ptr %out, align 1", "  ret i32 0"]
    return "\n".join(
        [*_declarations(arch), f"define i32 @{_SYMBOL}(ptr %bufs, ptr %ints, i64 %piece) {{", *t.lines, "}", ""]
    )


def _loaded(t: _Text, base: str, i: int) -> str:
    place = t.let(f"getelementptr i8, ptr {base}, i64 {i * t.width}")
    return t.let(f"load {t.vector}, ptr {place}, align 1")


def _declarations(arch: str) -> list[str]:
    if arch == "aarch64":
        return ["declare <16 x i8> @llvm.aarch64.neon.pmull64(i64, i64)"]
    forms = ((2, ""), (4, ".256"), (8, ".512"))
    return [f"declare <{n} x i64> @llvm.x86.pclmulqdq{suffix}(<{n} x i64>, <{n} x i64>, i8)" for n, suffix in forms]
