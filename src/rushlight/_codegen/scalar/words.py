"""Words of four bytes: the primitive `dp4a`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .writer import lane_mask

if TYPE_CHECKING:
    from .writer import Val, Writer

__all__ = ["dp4a"]

# The instruction by lanes, where the machine has it (`ModuleText.byte_dots`).  Its operands are words in every LLVM.
_INSTRUCTIONS = {
    16: "llvm.x86.avx512.vpdpbusd.512",
    8: "llvm.x86.avx512.vpdpbusd.256",
    4: "llvm.x86.avx512.vpdpbusd.128",
}

_MOST = max(_INSTRUCTIONS)


def dp4a(a: Val, b: Val, c: Val) -> Val:
    """c plus the products of the four unsigned bytes of `a` with the four signed bytes of `b`."""
    em = a.em
    if em.width > _MOST and em.width % _MOST == 0 and em.module.byte_dots:
        parts = [[_lanes(v, start) for v in (a, b, c)] for start in range(0, em.width, _MOST)]
        return _joined([dp4a(*part) for part in parts], em)
    name = _INSTRUCTIONS.get(em.width)
    if name is not None and em.module.byte_dots:
        em.module.declarations.setdefault(f"@{name}", f"declare {a.vt} @{name}({a.vt}, {a.vt}, {a.vt})")
        return em.emit(f"call {a.vt} @{name}({a.vt} {c}, {a.vt} {a}, {a.vt} {b})", a.type)
    if em.width == 1:
        return sum(((a.lshr(8 * k) & 255) * ((b << (24 - 8 * k)) >> 24) for k in range(4)), start=c)
    return _by_halves(a, b) + c


def _lanes(x: Val, start: int) -> Val:
    """As many lanes as the widest instruction takes."""
    em = x.em.at(_MOST)
    return em.emit(f"shufflevector {x.vt} {x}, {x.vt} poison, {lane_mask(range(start, start + _MOST))}", x.type)


def _joined(parts: list[Val], em: Writer) -> Val:
    """One vector of neighbouring parts."""
    while len(parts) > 1:
        wide = em.at(2 * parts[0].em.width)
        mask = lane_mask(range(wide.width))
        parts = [
            wide.emit(f"shufflevector {x.vt} {x}, {y.vt} {y}, {mask}", x.type)
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _by_halves(a: Val, b: Val) -> Val:
    """The same of bytes that are widened to 16 bits: x86 multiplies such pairs and adds them (pmaddwd), without overflow."""
    em = a.em
    halves = em.at(2 * em.width)
    x, y = (halves.emit(f"bitcast {v.vt} {v} to {halves.vt('i16')}", "i16") for v in (a, b))
    even = _pairs(x & 255, (y << 8) >> 8)
    return even + _pairs(x.lshr(8), y >> 8)


def _pairs(x: Val, y: Val) -> Val:
    """Sums of two neighbouring products of integers of 16 bits, in 32 bits."""
    halves = x.em
    em, products = halves.at(halves.width // 2), x.to("i32") * y.to("i32")
    parts = []
    for first in range(2):
        mask = lane_mask(range(first, halves.width, 2))
        parts.append(em.emit(f"shufflevector {products.vt} {products}, {products.vt} poison, {mask}", "i32"))
    return parts[0] + parts[1]
