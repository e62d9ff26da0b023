"""Packing operands of matrix products into panels, in the native language.

A panel holds `width` rows of A, or columns of B, as words [k / group][width][group] (see
`_backends/cpu/microkernels/register_tile.py`); zeros pad the last panel and the last word.  Operands that are
contiguous along k or across it are moved in vectors; other strides element by element.
"""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.amx_tile import AmxTile
from rushlight._backends.cpu.microkernels.panels import Cast, Pairs, Panels
from rushlight._native import Type, extern, i64, load, memcpy, memset, native, prefetch, store, u8, u16, u32, u64
from rushlight._native.function import NativeFunction

__all__ = ["make_pack", "make_pack_a_amx", "make_pack_b_amx", "make_wide_pack"]

_RAW: dict[int, Type] = {1: u8, 2: u16, 4: u32, 8: u64, 16: u64}
_MOVER = "void(ptr, ptr, i64, i64, i64)"
LINE = 64  # bytes of a cache line
INTERLEAVE = 64  # words of a panel that are packed before those of the next one, which shares cache lines with it


def _make_gather(panels: Panels, width: int) -> NativeFunction:
    """`void(out, x, rows, first, depth, step, k_step)`: packs a panel's words from `first` on, element by element; the
    rest of `out` must be zero."""
    group, bytes_ = panels.group, panels.size // panels.group
    raw = _RAW[bytes_]

    @native("void(ptr, ptr, i64, i64, i64, i64, i64)", name=f"gather_{panels.size}_{group}_{width}")
    def gather(out, x, rows, first, depth, step, k_step):
        for k in range(first * group, depth):
            at = k // group * width * group + k % group
            for i in range(rows):
                if bytes_ == 16:
                    memcpy(out + 16 * (at + i), x + 16 * (i * step + k * k_step), 16)
                else:
                    store(raw, out, at + i * group, load(raw, x, i * step + k * k_step))

    return gather


def _make_lines(size: int, width: int, together: int) -> NativeFunction:
    """`void(out, x, depth, k_step)`: packs the panels whose rows share cache lines together, so that each line is read
    once."""

    @native("void(ptr, ptr, i64, i64)", name=f"lines_{size}_{width}")
    def lines(out, x, depth, k_step):
        apart = size * width * depth
        for _k in range(depth):
            to = out
            for i in range(together):
                memcpy(to, x + size * width * i, size * width)
                to += apart
            out += size * width
            x += size * k_step

    return lines


def make_pack(panels: Panels, width: int, before: int = 0) -> NativeFunction:
    """`void(out, x, count, depth, step, k_step)`: packs `count` rows of `depth` elements as panels of `width` rows.

    Rows are `step` elements apart, elements of a row `k_step`.  Panels of `depth / group` words (rounded up) are
    consecutive, with room for `before` more in front of each.
    """
    size, group, n, wide = panels.size, panels.group, panels.n, panels.wide
    bytes_ = size // group
    transpose, zipped, zipped_wide = (
        extern(symbol, _MOVER) for symbol in (panels.transpose_symbol, panels.zip_symbol, panels.wide_symbol)
    )
    tag = f"{size}_{group}_{n}_{width}{f'_{before}' if before else ''}"
    together = max(1, 2 * LINE // (size * width)) if group == 1 and not before else 1
    gather, lines = _make_gather(panels, width), _make_lines(size, width, together)

    @native("void(ptr, ptr, i64, i64, i64, i64, i64)", name=f"panel_{tag}")
    def panel(out, x, rows, words, depth, step, k_step):
        """One panel of up to `width` rows."""
        if rows < width:
            memset(out, 0, size * width * words)
        elif depth % group != 0:
            memset(out + size * width * (words - 1), 0, size * width)
        done: i64 = 0
        if k_step == 1 and rows >= n:
            done = depth // group // n * n
            if done > 0:
                for i in range(0, rows, n):
                    at = min(i, rows - n)
                    transpose(out + size * at, x + bytes_ * at * step, step, width, done)
        elif step == 1:
            if group == 1:
                done = depth
                if rows == width:
                    for k in range(depth):
                        memcpy(out + size * k * width, x + size * k * k_step, size * width)
                else:
                    for k in range(depth):
                        memcpy(out + size * k * width, x + size * k * k_step, size * rows)
            else:
                if rows >= n:
                    done = depth // group
                    if done > 0:
                        whole = rows // wide * wide
                        for i in range(0, whole, wide):
                            zipped_wide(out + size * i, x + bytes_ * i, k_step, width, done)
                        for i in range(whole, rows, n):
                            at = min(i, rows - n)
                            zipped(out + size * at, x + bytes_ * at, k_step, width, done)
        gather(out, x, rows, done, depth, step, k_step)

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"pack_{tag}")
    def pack(out, x, count, depth, step, k_step):
        words = (depth + group - 1) // group
        i: i64 = 0
        if together > 1 and step == 1:
            while count - i >= together * width:
                lines(out + size * i * words, x + bytes_ * i, depth, k_step)
                i += together * width
        span = words
        if group > 1 and step == 1:
            span = i64(INTERLEAVE)
        first: i64 = 0
        while first < words:
            some, part = min(span, words - first), x + bytes_ * first * group * k_step
            for j in range(i, count, width):
                to = out + size * (j * (words + before) + (before + first) * width)
                panel(
                    to,
                    part + bytes_ * j * step,
                    min(i64(width), count - j),
                    some,
                    min(some * group, depth - first * group),
                    step,
                    k_step,
                )
            first += some

    return pack


def make_wide_pack(panels: Panels, cast: Cast | Pairs, width: int) -> NativeFunction:
    """The same for operands of another dtype: `panels` packs them, and `cast` converts the panels.

    `void(out, x, count, depth, step, k_step, aside)`; `aside` has room for one panel of the operand's dtype.
    """
    group, size = panels.group, cast.bytes if isinstance(cast, Pairs) else panels.group * cast.target.itemsize
    bytes_ = cast.source.itemsize
    pack = make_pack(panels, width)
    convert = extern(cast.symbol, "void(ptr, ptr, i64)")

    @native("void(ptr, ptr, i64, i64, i64, i64, ptr)", name=f"wide_{pack.symbol}_{cast.symbol}")
    def wide(out, x, count, depth, step, k_step, aside):
        words = (depth + group - 1) // group
        for i in range(0, count, width):
            pack(aside, x + bytes_ * i * step, min(i64(width), count - i), depth, step, k_step)
            convert(out, aside, words * width * group)
            out = out + size * width * words

    return wide


@native("void(ptr, ptr, i64)", inline=True)
def begin(to, x, nbytes):
    """Copy less than 64 bytes: in few moves, as a call for each row would take longer."""
    at: i64 = 0
    if nbytes & 32 != 0:
        memcpy(to, x, 32)
        at = i64(32)
    if nbytes & 16 != 0:
        memcpy(to + at, x + at, 16)
        at += 16
    if nbytes & 8 != 0:
        memcpy(to + at, x + at, 8)
        at += 8
    if nbytes & 4 != 0:
        memcpy(to + at, x + at, 4)
        at += 4
    if nbytes & 2 != 0:
        memcpy(to + at, x + at, 2)
        at += 2
    if nbytes & 1 != 0:
        memcpy(to + at, x + at, 1)


def make_pack_a_amx(tile: AmxTile) -> NativeFunction:
    """`void(out, x, count, depth, step, k_step)`: packs rows of A for an `AmxTile`, words of 64 bytes along k."""
    width, group, n = tile.rows, tile.group, tile.transposer.n
    bytes_ = 64 // group
    raw = _RAW[bytes_]
    transpose = extern(tile.transposer.transpose_symbol, _MOVER)

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"rows_{tile.symbol}")
    def pack(out, x, count, depth, step, k_step):
        for i in range(0, count, width):
            rows = min(i64(width), count - i)
            part = x + bytes_ * i * step
            for k in range(0, depth, group):
                steps = min(i64(group), depth - k)
                at = part + bytes_ * k * k_step
                if rows < width or steps < group:
                    memset(out, 0, 64 * width)
                if k_step == 1 and steps == group:
                    for r in range(rows):
                        memcpy(out + 64 * r, at + bytes_ * r * step, 64)
                elif k_step == 1:
                    for r in range(rows):
                        begin(out + 64 * r, at + bytes_ * r * step, bytes_ * steps)
                elif step == 1 and steps == group and rows == width:
                    for s in range(0, group, n):
                        for r in range(n):  # rows too far apart for the hardware prefetcher
                            prefetch(at + bytes_ * (group + s + r) * k_step)
                        transpose(out + bytes_ * s, at + bytes_ * s * k_step, k_step, group, width)
                else:
                    for r in range(rows):
                        for s in range(steps):
                            store(raw, out, r * group + s, load(raw, at, r * step + s * k_step))
                out = out + 64 * width

    return pack


def make_pack_b_amx(tile: AmxTile) -> NativeFunction:
    """The same for columns of B: adjacent pairs or fours, padded to whole words of 64 bytes."""
    width, group = tile.columns, tile.group
    bytes_ = 64 // group
    pair = tile.panels.group
    pairs = make_pack(tile.panels, width)

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"columns_{tile.symbol}")
    def pack(out, x, count, depth, step, k_step):
        words, packed_pairs = (depth + group - 1) // group, (depth + pair - 1) // pair
        for j in range(0, count, width):
            pairs(out, x + bytes_ * j * step, min(i64(width), count - j), depth, step, k_step)
            memset(out + 4 * width * packed_pairs, 0, 64 * width * words - 4 * width * packed_pairs)
            out = out + 64 * width * words

    return pack
