"""Fourier transforms around the passes of `_backends/cpu/microkernels/fourier.py`, in the native language: sequences
moved into tiles, transformed and moved back.

There are four methods, each a kernel:

    lanes           a tile is so many sequences: for short ones, and for dims with other sequences adjacent in memory
    whole           one sequence is a matrix of n1 x n2 numbers ("four-step", Bailey, "FFTs in External or Hierarchical Memory", 1990): its
                    columns are transformed together, times factors, then its rows; all of it in a cache
    columns, rows   the two halves of that for long sequences, with memory between them
    chirp           any length by a convolution of a smooth one (Bluestein, "A Linear Filtering Approach to the Computation of Discrete
                    Fourier Transform", 1970)

Real sequences of even length are pairs of adjacent numbers, complex numbers of half the length; their transform is
split afterwards.  Unused lanes, and sequences that are strided in both directions, are gathered element by element.
"""

from __future__ import annotations

from typing import NamedTuple

from rushlight._backends.cpu.microkernels.fourier import FourierMoves
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import (
    NativeFunction,
    Type,
    Words,
    call_ptr,
    extern,
    f32,
    f64,
    i64,
    load,
    memcpy,
    memset,
    native,
    stack,
    store,
)

__all__ = [
    "CHIRP", "CHIRPS", "COLUMN_FACTORS", "COMPLEX", "FACTORS", "FILTER", "FULL", "HALVES", "LANES", "LANE_FACTORS", "MATRIX", "PAIRS", "PASSES",
    "ROOT_PAIRS", "ROOT_PARTS", "STRIDED", "TWIDDLES", "WHOLE", "make_fourier", "make_tables",
]  # fmt: skip

REAL: dict[str, Type] = {"f32": f32, "f64": f64}

# kind of the numbers: complex ones; pairs of real ones, forward and backward; real ones each as a complex number,
# forward and backward
COMPLEX, HALVES, PAIRS, FULL, STRIDED = range(5)
# tables; see `make_tables`
TWIDDLES, FACTORS, ROOT_PAIRS, ROOT_PARTS, CHIRPS, FILTER, LANE_FACTORS, COLUMN_FACTORS = range(8)

# adjacent in memory: other sequences, the elements of one, or neither
SEQUENCES, ELEMENTS, NEITHER = range(3)

# ints[8 + ...]; steps are in bytes.  `main` and `edge` are addresses of tile plans: the number of passes, then for each
# its function, m, s and twiddles.  `src_way`, `dst_way`: SEQUENCES, ELEMENTS or NEITHER.  `outer`: the number of dims
# that follow (size, step in the source, step in the result), the last one innermost
LANES = Words(
    """main edge kind inverse n count src_lane src_step dst_lane dst_step src_way dst_way twiddles tiles chunk
units scale outer""",
    first=8,
)
WHOLE = Words(
    "matrix kind inverse n1 n2 twiddles src_step dst_step rows chunk scale tile_chunk tile_pieces outer", first=8
)
# `n1 n2`: the matrix of the smooth length m; `chirp` and `filter` are n and m numbers
CHIRP = Words("matrix kind inverse n1 n2 n chirp filter twiddles src_step dst_step rows chunk scale outer", first=8)
# of a matrix: the tile plans of its columns and rows; factors for each tile of columns.  With `firsts` these are for
# each tile, and `factors` for all
MATRIX = Words("columns rows factors firsts")
PASSES = Words("function m s twiddles")  # of a tile plan, after their number

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")
sin, cos = extern("sin", "f64(f64)"), extern("cos", "f64(f64)")
STEP = "void(ptr, ptr, i64, ptr, ptr, i64, ptr, i64, i64, f64)"
EIGHTH = 0.78539816339744830961566084581987572  # pi / 4


# ***** tables *****


@native("void(i64, f64, f64, ptr)")
def put_root(part, x, y, out):
    """exp(-2 pi i k / n) in eighth `part` of the circle, from cosine and sine of its angle to the nearest multiple of
    pi / 2."""
    if (part + 1) // 2 % 2 == 1:
        x, y = y, x
    if part >= 2 and part < 6:
        x = -x
    if part < 4:
        y = -y
    out.f64[0], out.f64[1] = x, y


@native("void(i64, i64, ptr)")
def root(k, n, out):
    """exp(-2 pi i k / n), 0 <= k < n, from an angle below pi / 4: symmetric, and exact at the quarters."""
    part, rest = 8 * k // n, 8 * k % n
    if part % 2 == 1:
        rest = n - rest
    angle = EIGHTH * f64(rest) / f64(n)
    put_root(part, cos(angle), sin(angle), out)


@native("void(i64, ptr)")
def put_roots(n, out):
    """The same for all k; if n is a multiple of 8 only an eighth is computed."""
    eighth = n // 8
    if n % 8 != 0:
        for k in range(n):
            root(i64(k), n, out + 16 * k)
        return
    eighths = out + 16 * n
    for k in range(eighth + 1):
        angle = EIGHTH * f64(8 * k) / f64(n)
        eighths.f64[2 * k], eighths.f64[2 * k + 1] = cos(angle), sin(angle)
    for part in range(8):
        for k in range(eighth):
            at = eighth - k if part % 2 == 1 else i64(k)
            put_root(part, eighths.f64[2 * at], eighths.f64[2 * at + 1], out + 16 * (part * eighth + k))


def make_tables(kind: str, lanes: int) -> NativeFunction:
    """`tables(out, what, n, a, b)` fills tables with n-th roots of unity:

    TWIDDLES:       the twiddles of a pass of radix `a`, n = a m: for each p < m roots p k, k = 1 .. a - 1
    FACTORS:        the factors of a matrix of a x b, n = a b: for each tile of columns and each row the roots
                    row * column, lane by lane
    ROOT_PAIRS:     n / 4 + 1 roots k, n = 2 h, each as a pair
    ROOT_PARTS:     the same, all real parts, then all imaginary ones
    CHIRPS:         `a` chirps: root k * k of n = 2 a
    FILTER:         their conjugates on both sides of 0 in a circle of `b` numbers
    LANE_FACTORS:   the factors of a matrix for all its tiles: for each row the roots row * lane, lane by lane
    COLUMN_FACTORS: those for each tile: the roots row * column of its first column
    """
    real = REAL[kind]

    @native("void(ptr, i64, f64, f64)", name=f"put_pair_{kind}")
    def put_pair(out, k, x, y):
        store(real, out, 2 * k, real(x))
        store(real, out, 2 * k + 1, real(y))

    @native("i64(ptr, i64, i64, i64, i64)", name=f"fourier_tables_{kind}x{lanes}")
    def tables(out, what, n, a, b):
        one = stack(16)
        if what == LANE_FACTORS:
            for row in range(a):
                for lane in range(lanes):
                    root(row * lane % n, n, one)
                    store(real, out, 2 * lanes * row + lane, real(one.f64[0]))
                    store(real, out, 2 * lanes * row + lane + lanes, real(one.f64[1]))
            return 0
        if what == COLUMN_FACTORS:
            for t in range((b + lanes - 1) // lanes):
                for row in range(a):
                    root(row * (t * lanes) % n, n, one)
                    put_pair(out, t * a + row, one.f64[0], one.f64[1])
            return 0
        slot = borrow(16 * (n + n // 8 + 1))
        if slot < 0:
            return 1
        roots = borrowed(slot)
        put_roots(n, roots)
        if what == TWIDDLES:
            for p in range(n // a):
                for k in range(1, a):
                    put_pair(out, p * (a - 1) + k - 1, roots.f64[2 * (p * k)], roots.f64[2 * (p * k) + 1])
        if what == FACTORS:
            for t in range((b + lanes - 1) // lanes):
                for row in range(a):
                    for lane in range(lanes):
                        k = row * (t * lanes + lane) % n
                        at = 2 * lanes * (t * a + row) + lane
                        store(real, out, at, real(roots.f64[2 * k]))
                        store(real, out, at + lanes, real(roots.f64[2 * k + 1]))
        count = n // 4 + 1
        if what == ROOT_PAIRS:
            for k in range(count):
                put_pair(out, i64(k), roots.f64[2 * k], roots.f64[2 * k + 1])
        if what == ROOT_PARTS:
            for k in range(count):
                store(real, out, k, real(roots.f64[2 * k]))
                store(real, out, count + k, real(roots.f64[2 * k + 1]))
        if what == CHIRPS:
            for k in range(a):
                put_pair(out, i64(k), roots.f64[2 * (k * k % n)], roots.f64[2 * (k * k % n) + 1])
        if what == FILTER:
            for k in range(b):
                put_pair(out, i64(k), 0.0, 0.0)
            for k in range(a):
                x, y = roots.f64[2 * (k * k % n)], -roots.f64[2 * (k * k % n) + 1]
                put_pair(out, i64(k), x, y)
                put_pair(out, (b - k) % b, x, y)
        give_back(slot)
        return 0

    return tables


# ***** one tile, one sequence *****


@native("void(ptr, ptr, ptr, i64, ptr, ptr, i64, ptr, ptr, ptr, f64)")
def run_tile(plan, src, src2, src_step, dst, dst2, dst_step, firsts, ping, pong, scale):
    """Run the passes of a plan; between them elements alternate between two tiles."""
    passes = plan.i64[0]
    here = src
    for i in range(passes):
        at = plan + 8 + 32 * i
        there = dst if i == passes - 1 else ping
        function, twiddles, m, s = at.ptr[PASSES.function], at.ptr[PASSES.twiddles], at.i64[PASSES.m], at.i64[PASSES.s]
        if i == passes - 1:
            twiddles = firsts
        call_ptr(STEP, function, here, src2, src_step, there, dst2, dst_step, twiddles, m, s, scale)
        here = there
        ping, pong = pong, ping


@native("void(ptr, ptr, i64, i64, i64, i64)")
def copy_rows(to, from_, n, nbytes, to_step, from_step):
    for k in range(n):
        a, b = to + k * to_step, from_ + k * from_step
        for j in range(nbytes // 8):
            a.i64[j] = b.i64[j]


# ***** what the kernels of one type are made of *****


class FourierForm:
    """The element type and the moves between memory and tiles that kernels are generated for."""

    __slots__ = ("item", "lanes", "moves", "name", "real", "size", "whole_bytes")

    def __init__(self, kind: str, moves: FourierMoves) -> None:
        self.real, self.lanes, self.moves, self.name = REAL[kind], moves.lanes, moves, f"{kind}x{moves.lanes}"
        self.size = self.real.itemsize
        # Bytes of a complex number, and of an element of a tile
        self.item, self.whole_bytes = 2 * self.size, 2 * self.size * self.lanes


class Elements(NamedTuple):
    """Moves of single sequences: to the complex numbers that are transformed, and back."""

    gather: NativeFunction
    scatter: NativeFunction


class Matrices(NamedTuple):
    """A sequence as a matrix: its columns, then its rows."""

    pairs_of: NativeFunction
    columns_of: NativeFunction
    rows_of: NativeFunction
    mid_bytes: NativeFunction
    room_bytes: NativeFunction
    matrix: NativeFunction


@native("i64(ptr, i64, i64, i64)", name="fourier_offset")
def offset(dims, count, number, which):
    """The offset of unit `number`: dims are triples (size, step, step)."""
    total: i64 = 0
    for k in range(count):
        at = dims + 24 * (count - 1 - k)
        total += number % at.i64[0] * at.i64[which]
        number = number // at.i64[0]
    return total


def _make_elements(form: FourierForm) -> Elements:
    """Gather and scatter of sequences."""
    real, name = form.real, form.name

    @native("void(ptr, ptr, i64, i64)", name=f"fourier_take_{name}", inline=True)
    def take(to, from_, inverse, plain):
        """Copy a complex number, parts exchanged where `inverse`; `plain`: the imaginary part is not read."""
        x, y = load(real, from_, 0), real(0)
        if plain == 0:
            y = load(real, from_, 1)
        if inverse != 0:
            x, y = y, x
        store(real, to, 0, x)
        store(real, to, 1, y)

    @native("void(ptr, ptr, i64, i64, i64, i64, i64)", name=f"fourier_gather_{name}")
    def gather(to, x, kind_, inverse, n, step, to_step):
        """Gather a sequence as the complex numbers that are transformed, `to_step` bytes apart."""
        if kind_ == COMPLEX:
            for k in range(n):
                take(to + k * to_step, x + k * step, inverse, 0)
        elif kind_ == HALVES:
            for k in range(n):
                store(real, to + k * to_step, 0, load(real, x + 2 * k * step, 0))
                store(real, to + k * to_step, 1, load(real, x + (2 * k + 1) * step, 0))
        elif kind_ == PAIRS:
            for k in range(n + 1):
                take(to + k * to_step, x + k * step, 0, 0)
        elif kind_ == FULL:
            for k in range(n):
                take(to + k * to_step, x + k * step, 0, 1)
        else:
            for k in range(n // 2 + 1):
                alone = i64(k == 0 or 2 * k == n)
                take(to + k * to_step, x + k * step, 1, alone)
                if alone == 0:
                    far = to + (n - k) * to_step
                    take(far, x + k * step, 1, 0)
                    store(real, far, 0, -load(real, far, 0))

    @native("void(ptr, ptr, i64, i64, i64, i64, i64)", name=f"fourier_scatter_{name}")
    def scatter(y, from_, kind_, inverse, n, step, from_step):
        """The inverse of `gather`."""
        if kind_ == COMPLEX:
            for k in range(n):
                take(y + k * step, from_ + k * from_step, inverse, 0)
        elif kind_ == HALVES:
            for k in range(n + 1):
                take(y + k * step, from_ + k * from_step, 0, 0)
        elif kind_ == PAIRS:
            for k in range(n):
                store(real, y + 2 * k * step, 0, load(real, from_ + k * from_step, 1))
                store(real, y + (2 * k + 1) * step, 0, load(real, from_ + k * from_step, 0))
        elif kind_ == FULL:
            for k in range(n // 2 + 1):
                take(y + k * step, from_ + k * from_step, 0, 0)
        else:
            for k in range(n):
                store(real, y + k * step, 0, load(real, from_ + k * from_step, 1))

    return Elements(gather, scatter)


# ***** lanes *****


def _make_full_tile(form: FourierForm) -> NativeFunction:
    whole_bytes, name = form.whole_bytes, form.name
    moves = form.moves
    rows_in, rows_in_swapped, rows_out, rows_out_swapped = (
        extern(moves.name(n), "void(ptr, i64, ptr, i64)" if "in" in n else "void(ptr, ptr, i64, i64)")
        for n in ("rows_in", "rows_in_swapped", "rows_out", "rows_out_swapped")
    )
    strided_in, strided_in_swapped, strided_out, strided_out_swapped = (
        extern(moves.name(n), "void(ptr, i64, i64, ptr, i64)" if "in" in n else "void(ptr, ptr, i64, i64, i64)")
        for n in ("strided_in", "strided_in_swapped", "strided_out", "strided_out_swapped")
    )
    halves_c, halves_s, pairs_c, pairs_s = (
        extern(moves.name(n), f"void(ptr, {order}, ptr, i64)")
        for n, order in (
            ("halves_C", "ptr, i64"),
            ("halves_S", "ptr, i64"),
            ("pairs_C", "i64, ptr"),
            ("pairs_S", "i64, ptr"),
        )
    )

    @native("void(ptr, ptr, ptr, ptr, i64)", name=f"fourier_tile_{name}")
    def full_tile(at, y, x, room, each):
        """Transform a tile with all lanes in use, from memory to memory."""
        n, what, swap = at.i64[LANES.n], at.i64[LANES.kind], at.i64[LANES.inverse] != 0
        ping, pong, gathered, results = room, room + each, room + 2 * each, room + 3 * each
        x_step, y_step, x_lane, y_lane = (
            at.i64[LANES.src_step],
            at.i64[LANES.dst_step],
            at.i64[LANES.src_lane],
            at.i64[LANES.dst_lane],
        )
        src, src2, src_step = x, x, x_step
        if what == HALVES:
            src2, src_step = x + x_step, 2 * x_step
        if at.i64[LANES.src_way] == ELEMENTS:
            src = gathered
            if what == PAIRS:
                rows_in(x, x_lane, results, n + 1)
                pairs_s(results, i64(whole_bytes), gathered, at.ptr[LANES.twiddles], n)
            elif swap:
                rows_in_swapped(x, x_lane, gathered, n)
            else:
                rows_in(x, x_lane, gathered, n)
        elif at.i64[LANES.src_way] == NEITHER:
            src = gathered
            if swap:
                strided_in_swapped(x, x_lane, x_step, gathered, n)
            else:
                strided_in(x, x_lane, x_step, gathered, n)
        elif what == PAIRS:
            src = gathered
            pairs_c(x, x_step, gathered, at.ptr[LANES.twiddles], n)
        dst, dst2, dst_step = y, y, y_step
        if what == PAIRS:  # parts were exchanged
            dst, dst2, dst_step = y + y_step, y, 2 * y_step
        if at.i64[LANES.dst_way] != SEQUENCES or what == HALVES:
            dst, dst_step = results, i64(whole_bytes)
        run_tile(at.ptr[LANES.main], src, src2, src_step, dst, dst2, dst_step, None, ping, pong, at.f64[LANES.scale])
        if what == HALVES:
            if at.i64[LANES.dst_way] == SEQUENCES:
                halves_c(results, y, y_step, at.ptr[LANES.twiddles], n)
                return
            halves_s(results, gathered, i64(whole_bytes), at.ptr[LANES.twiddles], n)
            rows_out(gathered, y, y_lane, n + 1)
        elif at.i64[LANES.dst_way] == ELEMENTS:
            if swap:
                rows_out_swapped(results, y, y_lane, n)
            else:
                rows_out(results, y, y_lane, n)
        elif at.i64[LANES.dst_way] == NEITHER:
            if swap:
                strided_out_swapped(results, y, y_lane, y_step, n)
            else:
                strided_out(results, y, y_lane, y_step, n)

    return full_tile


def _make_some_lanes(form: FourierForm, elements: Elements) -> NativeFunction:
    item, whole_bytes, name = form.item, form.whole_bytes, form.name
    halves_c = extern(form.moves.name("halves_C"), "void(ptr, ptr, i64, ptr, i64)")
    pairs_c = extern(form.moves.name("pairs_C"), "void(ptr, i64, ptr, ptr, i64)")
    gather, scatter = elements.gather, elements.scatter

    @native("void(ptr, ptr, ptr, i64, ptr, i64)", name=f"fourier_some_{name}")
    def some_lanes(at, y, x, count, room, each):
        """Transform a tile of some sequences, gathered and scattered."""
        n, what, swap = at.i64[LANES.n], at.i64[LANES.kind], at.i64[LANES.inverse]
        ping, pong, gathered, results = room, room + each, room + 2 * each, room + 3 * each
        for lane in range(count):
            gather(
                gathered + item * lane,
                x + lane * at.i64[LANES.src_lane],
                what,
                swap,
                n,
                at.i64[LANES.src_step],
                i64(whole_bytes),
            )
        src = gathered
        if what == PAIRS:
            src = results
            pairs_c(gathered, i64(whole_bytes), results, at.ptr[LANES.twiddles], n)
        dst = gathered if what == PAIRS else results
        run_tile(
            at.ptr[LANES.edge],
            src,
            src,
            i64(whole_bytes),
            dst,
            dst,
            i64(whole_bytes),
            None,
            ping,
            pong,
            at.f64[LANES.scale],
        )
        if what == HALVES:
            dst = gathered
            halves_c(results, gathered, i64(whole_bytes), at.ptr[LANES.twiddles], n)
        for lane in range(count):
            scatter(
                y + lane * at.i64[LANES.dst_lane],
                dst + item * lane,
                what,
                swap,
                n,
                at.i64[LANES.dst_step],
                i64(whole_bytes),
            )

    return some_lanes


def _make_lanes(form: FourierForm, elements: Elements) -> NativeFunction:
    """The kernel `lanes`: sequences in lanes."""
    lanes, whole_bytes, name = form.lanes, form.whole_bytes, form.name
    full_tile, some_lanes = _make_full_tile(form), _make_some_lanes(form, elements)

    @native("i32(ptr, ptr, i64)", name=f"rl_fourier_lanes_{name}")
    def lanes_kernel(bufs, ints, piece):
        tiles, count, chunk = ints.i64[LANES.tiles], ints.i64[LANES.count], ints.i64[LANES.chunk]
        dims, outer = ints + 8 * (LANES.outer + 1), ints.i64[LANES.outer]
        each = i64(whole_bytes * (lanes + 1)) + whole_bytes * ints.i64[LANES.n] + 192
        slot = borrow(4 * each)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        room = borrowed(slot)
        gathered = ints.i64[LANES.kind] != COMPLEX and (
            ints.i64[LANES.src_way] == NEITHER or ints.i64[LANES.dst_way] == NEITHER
        )
        if gathered or count < lanes:
            memset(room + 2 * each, 0, each)  # unused lanes must hold numbers
        for number in range(piece * chunk, min((piece + 1) * chunk, ints.i64[LANES.units])):
            unit, first = number // tiles, number % tiles * lanes
            x = bufs.ptr[1] + offset(dims, outer, unit, i64(1)) + first * ints.i64[LANES.src_lane]
            y = bufs.ptr[0] + offset(dims, outer, unit, i64(2)) + first * ints.i64[LANES.dst_lane]
            some = min(count - first, i64(lanes))
            if some < lanes or gathered:
                some_lanes(ints, y, x, some, room, each)
            else:
                full_tile(ints, y, x, room, each)
        give_back(slot)
        return 0

    return lanes_kernel


# ***** a sequence as a matrix *****


def _make_matrices(form: FourierForm) -> Matrices:
    """The steps of a sequence that is transformed as a matrix."""
    real, lanes, item, whole_bytes, name = form.real, form.lanes, form.item, form.whole_bytes, form.name
    transpose = extern(form.moves.name("transpose"), "void(ptr, i64, ptr, i64)")
    row_pairs = extern(form.moves.name("row_pairs"), "void(ptr, ptr, ptr, i64)")

    @native("void(ptr, ptr, ptr, i64)", name=f"fourier_pairs_of_{name}")
    def pairs_of(to, x, twiddles, n):
        """The pairs of a sequence from its half; imaginary parts of the first and the last number are ignored."""
        row_pairs(x, to, twiddles, n)
        low, high = load(real, x, 0), load(real, x, 2 * n)
        store(real, to, 0, low - high)
        store(real, to, 1, low + high)

    @native("i64(i64)", name=f"fourier_pitch_{name}")
    def pitch_of(n2):
        """Bytes between rows of tiles: not a multiple of a page's, which would share few cache sets."""
        tiles = (n2 + lanes - 1) // lanes
        return whole_bytes * (tiles + 1 if whole_bytes * tiles % 2048 == 0 else tiles)

    @native("void(ptr, ptr, ptr, i64, i64, ptr, i64, i64)", name=f"fourier_columns_of_{name}")
    def columns_of(plan, mid, x, n1, n2, room, begin, end):
        """Transform tiles of columns of the n1 x n2 numbers at x, times factors, to tiles [n1][n2 / lanes] at mid."""
        each, pitch = whole_bytes * n1 + 192, pitch_of(n2)
        for t in range(begin, end):
            src, step, count = x + i64(whole_bytes) * t, item * n2, min(n2 - lanes * t, i64(lanes))
            if count < lanes:
                copy_rows(room + 2 * each, src, n1, item * count, i64(whole_bytes), step)
                src, step = room + 2 * each, i64(whole_bytes)
            factors, firsts = plan.ptr[MATRIX.factors], plan.ptr[MATRIX.firsts]
            if firsts is None:
                factors += whole_bytes * n1 * t
            else:
                firsts += item * n1 * t
            run_tile(
                plan.ptr[MATRIX.columns],
                src,
                src,
                step,
                mid + i64(whole_bytes) * t,
                factors,
                pitch,
                firsts,
                room,
                room + each,
                1.0,
            )

    @native("void(ptr, ptr, ptr, i64, i64, ptr, i64, i64, f64)", name=f"fourier_rows_of_{name}")
    def rows_of(plan, y, mid, n1, n2, room, begin, end, scale):
        """Transform groups of rows of that to columns of the n2 x n1 numbers at y."""
        tiles, pitch = (n2 + lanes - 1) // lanes, pitch_of(n2)
        each = whole_bytes * lanes * tiles + 192
        gathered, results, passes = room + 2 * each, room + 3 * each, plan.ptr[MATRIX.rows]
        for g in range(begin, end):
            count = min(n1 - lanes * g, i64(lanes))
            transpose(mid + i64(lanes) * g * pitch, pitch, gathered, lanes * tiles)
            if count == lanes:
                run_tile(passes, gathered, y, 0, y + i64(whole_bytes) * g, y, item * n1, None, room, room + each, scale)
            else:
                run_tile(passes, gathered, y, 0, results, y, i64(whole_bytes), None, room, room + each, scale)
                copy_rows(y + i64(whole_bytes) * g, results, n2, item * count, item * n1, i64(whole_bytes))

    @native("i64(i64, i64)", name=f"fourier_mid_{name}")
    def mid_bytes(n1, n2):
        return (n1 + lanes - 1) // lanes * lanes * pitch_of(n2) + 64

    @native("i64(i64, i64)", name=f"fourier_room_{name}")
    def room_bytes(n1, n2):
        """Bytes of the tiles that columns and rows work in."""
        return 4 * (whole_bytes * (max(n1, n2) + lanes) + 192)

    @native("void(ptr, ptr, ptr, i64, i64, ptr, ptr, f64)", name=f"fourier_matrix_{name}")
    def matrix(plan, y, x, n1, n2, mid, room, scale):
        columns_of(plan, mid, x, n1, n2, room, i64(0), (n2 + lanes - 1) // lanes)
        rows_of(plan, y, mid, n1, n2, room, i64(0), (n1 + lanes - 1) // lanes, scale)

    return Matrices(pairs_of, columns_of, rows_of, mid_bytes, room_bytes, matrix)


def _make_whole(form: FourierForm, elements: Elements, matrices: Matrices) -> NativeFunction:
    """The kernel `whole`: a sequence in one piece."""
    real, size, item, name = form.real, form.size, form.item, form.name
    row_halves = extern(form.moves.name("row_halves"), "void(ptr, ptr, ptr, i64)")
    gather, scatter = elements.gather, elements.scatter
    pairs_of, mid_bytes, room_bytes, matrix = (
        matrices.pairs_of,
        matrices.mid_bytes,
        matrices.room_bytes,
        matrices.matrix,
    )

    @native("i32(ptr, ptr, i64)", name=f"rl_fourier_whole_{name}")
    def whole(bufs, ints, piece):
        n1, n2, what, chunk = ints.i64[WHOLE.n1], ints.i64[WHOLE.n2], ints.i64[WHOLE.kind], ints.i64[WHOLE.chunk]
        dims, outer, n = ints + 8 * (WHOLE.outer + 1), ints.i64[WHOLE.outer], n1 * n2
        inside, side = mid_bytes(n1, n2), room_bytes(n1, n2)
        line = (item * (n + 1) + 127) // 64 * 64
        slot = borrow(inside + side + 2 * line)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        mid = borrowed(slot)
        room = mid + inside
        gathered, results = room + side, room + side + line
        x_near, y_near = ints.i64[WHOLE.src_step] == item, ints.i64[WHOLE.dst_step] == item
        if what == HALVES:
            x_near = ints.i64[WHOLE.src_step] == size
        if what == PAIRS:
            y_near = ints.i64[WHOLE.dst_step] == size
        if what >= FULL:
            x_near, y_near = False, False
        for number in range(piece * chunk, min((piece + 1) * chunk, ints.i64[WHOLE.rows])):
            x = bufs.ptr[1] + offset(dims, outer, number, i64(1))
            y = bufs.ptr[0] + offset(dims, outer, number, i64(2))
            src, dst = x, y
            if not x_near:
                src = gathered
                gather(gathered, x, what, 0, n, ints.i64[WHOLE.src_step], i64(item))
            if what == PAIRS:
                pairs_of(results, src, ints.ptr[WHOLE.twiddles], n)
                src = results
            if what == HALVES or not y_near:
                dst = gathered if what == PAIRS else results
            matrix(ints.ptr[WHOLE.matrix], dst, src, n1, n2, mid, room, ints.f64[WHOLE.scale])
            if what == HALVES:
                memcpy(results + item * n, results, item)
                to = y if y_near else gathered
                row_halves(results, to, ints.ptr[WHOLE.twiddles], n)
                dst = to
            if not y_near:
                if what == PAIRS:
                    for k in range(2 * n):
                        store(real, y + k * ints.i64[WHOLE.dst_step], 0, load(real, dst, k))
                else:
                    scatter(y, dst, what, 0, n, ints.i64[WHOLE.dst_step], i64(item))
        give_back(slot)
        return 0

    return whole


def _make_shared(form: FourierForm, matrices: Matrices) -> tuple[NativeFunction, NativeFunction]:
    """The kernels `columns` and `rows`: a sequence in several pieces."""
    lanes, name = form.lanes, form.name
    columns_of, rows_of, mid_bytes, room_bytes = (
        matrices.columns_of,
        matrices.rows_of,
        matrices.mid_bytes,
        matrices.room_bytes,
    )

    @native("i32(ptr, ptr, i64)", name=f"rl_fourier_columns_{name}")
    def columns_kernel(bufs, ints, piece):
        n1, n2, pieces, chunk = (
            ints.i64[WHOLE.n1],
            ints.i64[WHOLE.n2],
            ints.i64[WHOLE.tile_pieces],
            ints.i64[WHOLE.tile_chunk],
        )
        number, part = piece // pieces, piece % pieces
        slot = borrow(room_bytes(n1, n2))
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        x = bufs.ptr[1] + offset(ints + 8 * (WHOLE.outer + 1), ints.i64[WHOLE.outer], number, i64(1))
        mid, end = bufs.ptr[0] + mid_bytes(n1, n2) * number, min((part + 1) * chunk, (n2 + lanes - 1) // lanes)
        columns_of(ints.ptr[WHOLE.matrix], mid, x, n1, n2, borrowed(slot), part * chunk, end)
        give_back(slot)
        return 0

    @native("i32(ptr, ptr, i64)", name=f"rl_fourier_rows_{name}")
    def rows_kernel(bufs, ints, piece):
        n1, n2, pieces, chunk = (
            ints.i64[WHOLE.n1],
            ints.i64[WHOLE.n2],
            ints.i64[WHOLE.tile_pieces],
            ints.i64[WHOLE.tile_chunk],
        )
        number, part = piece // pieces, piece % pieces
        slot = borrow(room_bytes(n1, n2))
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        y = bufs.ptr[0] + offset(ints + 8 * (WHOLE.outer + 1), ints.i64[WHOLE.outer], number, i64(2))
        mid, end = bufs.ptr[1] + mid_bytes(n1, n2) * number, min((part + 1) * chunk, (n1 + lanes - 1) // lanes)
        rows_of(ints.ptr[WHOLE.matrix], y, mid, n1, n2, borrowed(slot), part * chunk, end, ints.f64[WHOLE.scale])
        give_back(slot)
        return 0

    return columns_kernel, rows_kernel


# ***** any length *****


def _make_chirp(form: FourierForm, elements: Elements, matrices: Matrices) -> NativeFunction:
    """The kernel `chirp`: a convolution (Bluestein 1970)."""
    real, item, name = form.real, form.item, form.name
    row_halves = extern(form.moves.name("row_halves"), "void(ptr, ptr, ptr, i64)")
    gather, scatter = elements.gather, elements.scatter
    pairs_of, mid_bytes, room_bytes, matrix = (
        matrices.pairs_of,
        matrices.mid_bytes,
        matrices.room_bytes,
        matrices.matrix,
    )

    @native("void(ptr, ptr, ptr, i64)", name=f"fourier_times_{name}")
    def times(to, x, w, n):
        for k in range(n):
            a, b, c, d = load(real, x, 2 * k), load(real, x, 2 * k + 1), load(real, w, 2 * k), load(real, w, 2 * k + 1)
            store(real, to, 2 * k, a * c - b * d)
            store(real, to, 2 * k + 1, a * d + b * c)

    @native("void(ptr, ptr, ptr, i64)", name=f"fourier_times_swapped_{name}")
    def times_swapped(to, x, w, n):
        for k in range(n):
            a, b, c, d = load(real, x, 2 * k), load(real, x, 2 * k + 1), load(real, w, 2 * k), load(real, w, 2 * k + 1)
            store(real, to, 2 * k + 1, a * c - b * d)
            store(real, to, 2 * k, a * d + b * c)

    @native("i32(ptr, ptr, i64)", name=f"rl_fourier_chirp_{name}")
    def chirp(bufs, ints, piece):
        n1, n2, n, what, chunk = (
            ints.i64[CHIRP.n1],
            ints.i64[CHIRP.n2],
            ints.i64[CHIRP.n],
            ints.i64[CHIRP.kind],
            ints.i64[CHIRP.chunk],
        )
        dims, outer, m = ints + 8 * (CHIRP.outer + 1), ints.i64[CHIRP.outer], n1 * n2
        inside, side, line = mid_bytes(n1, n2), room_bytes(n1, n2), (item * m + 127) // 64 * 64
        slot = borrow(inside + side + 2 * line)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        mid = borrowed(slot)
        room = mid + inside
        gathered, results = room + side, room + side + line
        plan = ints.ptr[CHIRP.matrix]
        for number in range(piece * chunk, min((piece + 1) * chunk, ints.i64[CHIRP.rows])):
            x = bufs.ptr[1] + offset(dims, outer, number, i64(1))
            y = bufs.ptr[0] + offset(dims, outer, number, i64(2))
            gather(gathered, x, what, ints.i64[CHIRP.inverse], n, ints.i64[CHIRP.src_step], i64(item))
            source, done = gathered, gathered
            if what == PAIRS:
                source = results
                pairs_of(results, gathered, ints.ptr[CHIRP.twiddles], n)
            times(gathered, source, ints.ptr[CHIRP.chirp], n)
            memset(gathered + item * n, 0, item * (m - n))
            matrix(plan, results, gathered, n1, n2, mid, room, 1.0)
            times_swapped(results, results, ints.ptr[CHIRP.filter], m)
            matrix(plan, gathered, results, n1, n2, mid, room, ints.f64[CHIRP.scale])
            for k in range(n):
                a, b = load(real, gathered, 2 * k), load(real, gathered, 2 * k + 1)
                store(real, gathered, 2 * k, b)
                store(real, gathered, 2 * k + 1, a)
            times(gathered, gathered, ints.ptr[CHIRP.chirp], n)
            if what == HALVES:
                done = results
                memcpy(gathered + item * n, gathered, item)
                row_halves(gathered, results, ints.ptr[CHIRP.twiddles], n)
            scatter(y, done, what, ints.i64[CHIRP.inverse], n, ints.i64[CHIRP.dst_step], i64(item))
        give_back(slot)
        return 0

    return chirp


def make_fourier(kind: str, moves: FourierMoves) -> list[NativeFunction]:
    """The kernels `lanes`, `whole`, `columns`, `rows` and `chirp`, in this order.  bufs: result, x; for `columns`
    intermediate memory, x; for `rows` result, intermediate memory."""
    form = FourierForm(kind, moves)
    elements, matrices = _make_elements(form), _make_matrices(form)
    return [
        _make_lanes(form, elements),
        _make_whole(form, elements, matrices),
        *_make_shared(form, matrices),
        _make_chirp(form, elements, matrices),
    ]
