"""Matrix products of our own: packing and blocking around a tile kernel, in the native language.

Blocks of A and B are packed into panels (BLIS's structure, see `_kernels/register_tile.py`).  There are two ways to run them.  `make_tiled` is for
one rectangle of C: it packs what it needs, into memory that it takes from a few blocks kept for the purpose, one for each thread that is at work.
`make_shared` is for large products, where many rectangles need the same operands: one kernel packs both into memory that the caller gives,
another multiplies.

Operands may be narrower than what is computed with (`Form`): they are converted while they are packed, and results are rounded once, from a
rectangle of sums that is still in a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rushlight._backends.cpu.blas_native import (
    A_COL,
    A_ROW,
    A_WORD,
    AFTER,
    ALPHA,
    ALPHA_IM,
    B_COL,
    B_ROW,
    BATCHES,
    BETA,
    BETA_IM,
    C_COL,
    C_ROW,
    TILE_M,
    TILE_N,
    TILES_N,
    K,
    M,
    N,
)
from rushlight._backends.cpu.epilogue_native import run_epilogue
from rushlight._backends.cpu.pack_native import make_pack, make_pack_a_amx, make_pack_b_amx, make_wide_pack
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._backends.native import (
    Type,
    extern,
    f32,
    f64,
    i32,
    i64,
    load,
    memcpy,
    native,
    ptr,
    stack,
    store,
)
from rushlight._backends.native.function import NativeFunction
from rushlight._kernels.amx_tile import AmxTile
from rushlight._kernels.panels import Cast, Pairs, Panels
from rushlight._kernels.register_tile import KINDS, RegisterTile
from rushlight._types import dtype as _dtypes

if TYPE_CHECKING:
    from rushlight._types.dtype import DType

__all__ = ["COLUMNS", "DEPTH", "ROWS", "Form", "block_of_depth", "make_shared", "make_tiled", "make_turned", "scratch_bytes"]

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")

DEPTH = 256  # words of k in one block: a panel of B stays in the first cache
ROWS = 192  # rows of A in one block: it stays in the second cache
COLUMNS = 512  # columns of B in one block

# kinds of tiles: bytes of a word, type of sums (see `register_tile.py`, `amx_tile.py`)
WORDS: dict[str, tuple[int, str]] = {kind: (row[1], row[2]) for kind, row in KINDS.items()}
WORDS |= {"amx_bf16": (64, "float"), "amx_i8": (64, "i32")}
AMX_DEPTH = 16  # words of k in one block where a word has 64 bytes
OPERANDS = {
    "amx_bf16": "bfloat16", "amx_i8": "int8", "f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "bf16": "bfloat16", "i16": "int16",
    "i8": "int8",
}  # fmt: skip
_SUMS: dict[str, Type] = {"float": f32, "double": f64, "i32": i32, "i64": i64}
_SUM_NAMES = {"float": "float32", "double": "float64", "i32": "int32", "i64": "int64"}


class Form:
    """A kind of product: A of dtype `source`, B of dtype `other` (default: the same), C of dtype `result`, computed by `tile`.

    What it needs beside the tile: `widen`, the conversions of A and of B (None: the tile takes them), with `raw`, the panels of what is
    converted; `narrow`, that of sums (None: they are C).  Complex numbers are `pair`s of real ones (see `Pairs`), and `conjugated` says which
    operands are read as conjugates.  `offset` says that the tile takes A without a sign and A has one: 128 is added to its
    elements, and what that adds to a column is taken off again.
    """

    __slots__ = ("conjugated", "narrow", "offset", "other", "pair", "raw", "result", "source", "tile", "widen")

    def __init__(
        self, source: DType, result: DType, tile: RegisterTile | AmxTile, other: DType | None = None, conjugated: tuple[bool, bool] = (False, False)
    ) -> None:
        self.source, self.result, self.tile = source, result, tile
        self.other, self.conjugated = other or source, conjugated
        self.pair = 2 if source.kind == "c" else 1
        n = 1 << min(tile.rows, tile.lanes, 8).bit_length() - 1
        if self.pair == 2:
            self.offset, self.narrow = False, None
            sides = (("a", tile.rows, conjugated[0]), ("b", tile.columns // 2, conjugated[1]))
            self.widen: list[Cast | Pairs | None] = [Pairs(source, side, width, tile.lanes, turned) for side, width, turned in sides]
            self.raw = [Panels(source.itemsize, 1, min(n, 64 // source.itemsize, 1 << width.bit_length() - 1)) for _, width, _ in sides]
            return
        taken, sums = _dtype(OPERANDS[tile.kind]), _dtype(_SUM_NAMES[WORDS[tile.kind][1]])
        unsigned = tile.instruction in ("vpdpbusd", "tdpbusd")
        self.offset = tile.instruction == "vpdpbusd" and source is taken
        held = [d is taken or (unsigned and i == 0) for i, d in enumerate((self.source, self.other))]
        self.widen = [None if h else Cast(d, taken, tile.lanes, tile.fma) for h, d in zip(held, (self.source, self.other), strict=True)]
        self.narrow = Cast(sums, result, tile.lanes, tile.fma) if sums is not result else None
        self.raw = [tile.panels if cast is None else Panels(cast.source.itemsize * tile.group, tile.group, n) for cast in self.widen]

    @property
    def widths(self) -> tuple[int, int]:
        """Rows of A and columns of B in one panel."""
        return self.tile.rows, self.tile.columns // self.pair

    @property
    def name(self) -> str:
        """Part of the symbols of its kernels."""
        operands = self.source.name if self.other is self.source else f"{self.source.name}_{self.other.name}"
        signs = "".join("c" if c else "n" for c in self.conjugated) if any(self.conjugated) else ""
        return f"{operands}{signs}_{self.result.name}_{self.tile.kind}_{self.tile.rows}x{self.tile.columns}"

    @property
    def key(self) -> str:
        """What its kernels depend on."""
        return " ".join([self.name, *(part.key for part in self.parts)])

    @property
    def parts(self) -> list[RegisterTile | AmxTile | Panels | Cast | Pairs]:
        """What defines the symbols that its kernels need (`text`, `symbols`)."""
        found: list[RegisterTile | AmxTile | Panels | Cast | Pairs | None] = [self.tile, *self.raw, *self.widen, self.narrow, self.ones]
        return [part for part in found if part is not None]

    @property
    def depth(self) -> int:
        """The most words of k in one block."""
        return DEPTH if isinstance(self.tile, RegisterTile) else AMX_DEPTH

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of a packed word, and of a sum."""
        size, sums = WORDS[self.tile.kind]
        return size, _SUMS[sums].itemsize

    @property
    def ones(self) -> RegisterTile | None:
        """The tile of one row that adds up the columns of B, where that is wanted."""
        t = self.tile
        return RegisterTile(t.kind, t.lanes, 1, t.vectors, t.fma, t.instruction) if self.offset else None


def _dtype(name: str) -> DType:
    found: DType = getattr(_dtypes, name.upper())
    return found


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def scratch_bytes(form: Form) -> tuple[int, int, int, int]:
    """Bytes of a packed block of A, one of B, a rectangle of sums, and a panel before its conversion."""
    tile = form.tile
    size, total = form.sizes
    rows, columns = _up(ROWS, tile.rows), _up(COLUMNS, tile.columns)
    sums = (2 * rows * columns + tile.columns) * total if form.narrow else 0
    raw = max(tile.rows, tile.columns) * DEPTH * tile.group * form.source.itemsize if any(form.widen) else 0
    return size * rows * form.depth, size * columns * form.depth, sums, _up(raw, 64)


def make_turned(kind: str, real: Type, tile: RegisterTile) -> NativeFunction:
    """Packs a panel whose elements lie along k: squares of them are turned in registers."""
    size, n = real.itemsize, tile.turned
    turn = extern(tile.turn_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, i64, i64, i64)", name=f"turned_{kind}_{tile.rows}")
    def turned(out, x, width, row, depth):
        """`width` rows, `row` elements apart, of `depth` elements each, as a panel [k][width]; the last squares may overlap those before."""
        whole = depth // n * n
        if whole > 0:
            for i in range(0, width, n):
                at = min(i, width - n)
                turn(out + size * at, x + size * at * row, row, width, whole)
                if whole < depth:
                    turn(out + size * ((depth - n) * width + at), x + size * (at * row + depth - n), row, width, n)
            whole = depth
        for k in range(whole, depth):
            for i in range(width):
                store(real, out, k * width + i, load(real, x, i * row + k))

    return turned


def _make_packs(form: Form) -> tuple[NativeFunction, NativeFunction]:
    """What packs A and what packs B: `void(out, x, count, depth, step, k_step, aside)`."""
    made = []
    for side, width, raw, cast in zip("ab", form.widths, form.raw, form.widen, strict=True):
        if cast is not None:
            made.append(make_wide_pack(raw, cast, width))
            continue
        if isinstance(form.tile, RegisterTile):
            plain = make_pack(raw, width)
        else:
            plain = make_pack_a_amx(form.tile) if side == "a" else make_pack_b_amx(form.tile)

        def wrap(plain: NativeFunction, side: str) -> NativeFunction:
            @native("void(ptr, ptr, i64, i64, i64, i64, ptr)", name=f"pack_{side}_{form.name}", inline=True)
            def pack(out, x, count, depth, step, k_step, aside):
                plain(out, x, count, depth, step, k_step)

            return pack

        made.append(wrap(plain, side))
    return made[0], made[1]


def _make_macro(tile: RegisterTile | AmxTile) -> NativeFunction:
    """`void(a, b, c, c_row, c_col, words, rows, columns, add)`: all tiles of packed blocks, into sums."""
    (size, sums), mr, nr = WORDS[tile.kind], tile.rows, tile.columns
    number = _SUMS[sums]
    total = number.itemsize
    kernel = extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"edge_{tile.kind}_{mr}x{nr}")
    def edge(a, b, c, c_row, c_col, words, rows, columns, add):
        """A tile that is not whole, or of which the columns lie apart: computed aside."""
        aside = stack(total * mr * nr)
        kernel(a, b, aside, nr, words, 0)
        for i in range(rows):
            for j in range(columns):
                x = load(number, aside, i * nr + j)
                if add != 0:
                    x = x + load(number, c, i * c_row + j * c_col)
                store(number, c, i * c_row + j * c_col, x)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"macro_{tile.kind}_{mr}x{nr}")
    def macro(a, b, c, c_row, c_col, words, rows, columns, add):
        for j in range(0, columns, nr):
            for i in range(0, rows, mr):
                to = c + total * (i * c_row + j * c_col)
                if c_col == 1 and rows - i >= mr and columns - j >= nr:
                    kernel(a + size * i * words, b + size * j * words, to, c_row, words, add)
                else:
                    edge(a + size * i * words, b + size * j * words, to, c_row, c_col, words, min(i64(mr), rows - i), min(i64(nr), columns - j), add)

    return macro


def _make_whole(tile: RegisterTile | AmxTile) -> NativeFunction:
    """`void(a, b, sums, row, words, rows, columns, add)`: the same into memory of ours, where tiles may write more than is asked for.

    What the last panel writes beyond a row comes first: where rows follow each other at once, those that come later write over it.
    """
    (size, sums), mr, nr = WORDS[tile.kind], tile.rows, tile.columns
    total = _SUMS[sums].itemsize
    kernel = extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64)", name=f"whole_{tile.kind}_{mr}x{nr}")
    def whole(a, b, out, row, words, rows, columns, add):
        panels = (columns + nr - 1) // nr
        for p in range(panels):
            j = (p + panels - 1) % panels * nr
            for i in range(0, rows, mr):
                kernel(a + size * i * words, b + size * j * words, out + total * (i * row + j), row, words, add)

    return whole


def _make_finish(form: Form) -> NativeFunction:
    """`void(c, c_row, c_col, sums, row, rows, columns)`: sums, `row` apart, become elements of C."""
    assert form.narrow is not None
    cast, size, wide = form.narrow, form.result.itemsize, form.narrow.source.itemsize
    convert = extern(cast.symbol, "void(ptr, ptr, i64)")

    @native("void(ptr, i64, i64, ptr, i64, i64, i64)", name=f"finish_{form.name}")
    def finish(c, c_row, c_col, sums, row, rows, columns):
        if c_col == 1 and row == columns and c_row == columns:  # one run of memory: a call for each short row would cost more than its work
            convert(c, sums, rows * columns)
            rows = i64(0)
        for i in range(rows):
            if c_col == 1:
                convert(c + size * i * c_row, sums + wide * i * row, columns)
            else:
                for j in range(columns):
                    convert(c + size * (i * c_row + j * c_col), sums + wide * (i * row + j), 1)

    return finish


def block_of_depth(k: int, most: int, step: int) -> int:
    """`block_depth`, outside the native language."""
    count = max(1, -(-k // most))
    return min(most, _up(-(-k // count), step))


@native("i64(i64, i64, i64)")
def block_depth(k, most, step):
    """The length of blocks of k: as even as multiples of `step` can be, none longer than `most`; whole words but for the last one."""
    count = (k + most - 1) // most
    return min(most, ((k + count - 1) // count + step - 1) // step * step)


@native("i1(i64, i64, i64, i64, i64, i64, i64)")
def lies_turned(m, n, k, c_row, c_col, mr, nr):
    """Whether C transposed = B transposed @ A transposed is better: C lies that way round, or fills tiles much better so."""
    if c_col != 1:
        return c_row == 1
    plain = (m + mr - 1) // mr * mr * ((n + nr - 1) // nr * nr)
    turned = (n + mr - 1) // mr * mr * ((m + nr - 1) // nr * nr)
    return k >= 32 and turned * 5 < plain * 4


def make_tiled(forms: tuple[Form, ...], other: NativeFunction | None = None, least: int = 0) -> NativeFunction:
    """One rectangle of C by our own kernels: `i32(ints, c, a, b, m, n)`.

    `other` serves thin products and those of fewer than `least` multiplications, which packing does not pay for.

    The second form, if there is one, has a tile of fewer rows: it takes the products that fill the first one badly.  A last one, with a tile of
    one vector, takes those that fill it much better than the others.
    """
    nbytes = max(sum(scratch_bytes(form)) for form in forms)
    if len(forms) > 1 and forms[-1].tile.vectors == 1:
        return _make_narrower(forms, nbytes, other, least)
    first = _make_blocked(forms[0], nbytes, other, least)
    if len(forms) == 1:
        return first
    second = _make_blocked(forms[1], nbytes, other, least)
    high, low, nr = forms[0].tile.rows, forms[1].tile.rows, forms[0].tile.columns

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"chosen_{forms[0].name}")
    def chosen(ints, c, a, b, m, n):
        rows = n if lies_turned(m, n, ints.i64[K], ints.i64[C_ROW], ints.i64[C_COL], low, nr) else m
        if (rows + low - 1) // low * low * 31 < (rows + high - 1) // high * high * 30:
            return second(ints, c, a, b, m, n)
        return first(ints, c, a, b, m, n)

    return chosen


def _make_narrower(forms: tuple[Form, ...], nbytes: int, other: NativeFunction | None, least: int) -> NativeFunction:
    """The choice between the last form, which has a narrow tile, and the others."""
    usual, narrow = make_tiled(forms[:-1], other, least), _make_blocked(forms[-1], nbytes, other, least)
    pair = forms[0].pair
    high, wide, low, thin = forms[-2].tile.rows, forms[-2].tile.columns, forms[-1].tile.rows, forms[-1].tile.columns

    @native("i64(i64, i64, i64, i64)", name=f"padded_{forms[0].name}", inline=True)
    def padded(m, n, rows, columns):
        """Elements of the tiles that a result fills."""
        return (m + rows - 1) // rows * rows * ((pair * n + columns - 1) // columns * columns)

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"narrower_{forms[0].name}")
    def narrower(ints, c, a, b, m, n):
        filled = padded(m, n, low, thin)
        other_way = padded(n, m, high, wide)  # which costs more, as results are then written the other way round
        if filled * 20 < padded(m, n, high, wide) * 17 and (pair == 2 or filled <= other_way):
            return narrow(ints, c, a, b, m, n)
        return usual(ints, c, a, b, m, n)

    return narrower


def _make_scaled(form: Form) -> tuple[NativeFunction, NativeFunction]:
    """For alpha and beta: `void(p, n, x)`, n numbers beside each other times x, and the same for a matrix."""
    real = _SUMS[WORDS[form.tile.kind][1]]

    @native("void(ptr, i64, f64)", name=f"times_{form.name}")
    def times(p, n, x):
        for i in range(n):
            store(real, p, i, load(real, p, i) * real(x))

    @native("void(ptr, i64, i64, i64, i64, f64)", name=f"scaled_{form.name}")
    def scaled(c, rows, columns, c_row, c_col, x):
        for i in range(rows):
            for j in range(columns):
                store(real, c, i * c_row + j * c_col, load(real, c, i * c_row + j * c_col) * real(x))

    return times, scaled


def _make_declined(form: Form, least: int) -> NativeFunction:
    """`i1(ints, m, n)`: whether packing does not pay for a product of m x n, or it asks for what tiles of pairs do not do."""
    pair, least_m, least_n, thin = form.pair, 4, 8, 24
    if pair == 2:  # four real multiplications in one, and the library's small kernels are further from what is possible
        least, thin = least // 32, 12

    @native("i1(ptr, i64, i64)", name=f"declined_{form.name}", inline=True)
    def declined(ints, m, n):
        k = ints.i64[K]
        work = m * n * k
        if m < least_m or n < least_n or work < least or (work < 8 * least and min(min(m, n), k) < thin):
            return True
        if pair == 2:
            scaled = ints.f64[ALPHA] != 1.0 or ints.f64[ALPHA_IM] != 0.0 or ints.f64[BETA] != 0.0 or ints.f64[BETA_IM] != 0.0
            return ints.i64[C_COL] != 1 or scaled
        return False

    return declined


STRAIGHT = 4096  # elements of B up to which a product that packing does not pay for has it copied, rows one after another


def _make_straight(form: Form, nbytes: int, other: NativeFunction) -> NativeFunction:
    """`other`, with a small B that lies by columns brought to rows before: libraries have fast ways for small products of rows alone."""
    tile = form.tile
    if not isinstance(tile, RegisterTile) or form.pair == 2 or form.widen[1] is not None:
        return other
    size, least = form.sizes[0], tile.turned
    turned = make_turned(f"straight_{tile.kind}", _SUMS[WORDS[tile.kind][1]], tile)

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"straight_{form.name}")
    def straight(ints, c, a, b, m, n):
        k = ints.i64[K]
        if ints.i64[B_ROW] != 1 or ints.i64[B_COL] == 1 or m < 4 or min(n, k) < least or k * n > STRAIGHT:
            return other(ints, c, a, b, m, n)
        slot = borrow(max(i64(nbytes), size * k * n + 64))
        if slot < 0:
            return other(ints, c, a, b, m, n)
        words = stack(8 * BATCHES)
        memcpy(words, ints, 8 * BATCHES)
        words.i64[B_ROW], words.i64[B_COL] = n, i64(1)
        turned(borrowed(slot), b, n, ints.i64[B_COL], k)
        status = other(words, c, a, borrowed(slot), m, n)
        give_back(slot)
        return status

    return straight


def _make_blocked(form: Form, nbytes: int, other: NativeFunction | None, least: int) -> NativeFunction:
    """The same around one tile."""
    tile, own = form.tile, other is not None
    (_, total), e, group, mr, nr = form.sizes, form.source.itemsize, tile.group, tile.rows, tile.columns
    pair = form.pair
    pack_a, pack_b = _make_packs(form)
    macro, whole = _make_macro(tile), _make_whole(tile)
    plain = form.narrow is None
    finish = macro if plain else _make_finish(form)
    c_size = form.result.itemsize
    rows_max, columns_max, depth_max = _up(ROWS, mr), _up(COLUMNS, tile.columns) // pair, form.depth * group // pair
    a_bytes, b_bytes, sum_bytes, _ = scratch_bytes(form)
    span = 1 << 60 if plain else 2 * rows_max
    times, scaled = _make_scaled(form)
    declined, fallback = _make_declined(form, least), _make_straight(form, nbytes, other) if other is not None else macro

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"generated_{form.name}")
    def generated(ints, c, a, b, m, n):
        if own:
            if declined(ints, m, n):
                return fallback(ints, c, a, b, m, n)
        slot = borrow(nbytes)
        if slot < 0:
            if own:
                return fallback(ints, c, a, b, m, n)
            return 1
        k = ints.i64[K]
        a_row, a_col, b_row, b_col = ints.i64[A_ROW], ints.i64[A_COL], ints.i64[B_ROW], ints.i64[B_COL]
        c_row, c_col = ints.i64[C_ROW], ints.i64[C_COL]
        if pair == 1:
            if lies_turned(m, n, k, c_row, c_col, mr, nr):
                a, b, m, n = b, a, n, m
                a_row, a_col, b_row, b_col = b_col, b_row, a_col, a_row
                c_row, c_col = c_col, c_row
        pa = borrowed(slot)
        pb = pa + a_bytes
        sums = pb + b_bytes
        aside = sums + sum_bytes
        start: i64 = 0
        if plain:
            if ints.f64[BETA] != 0.0:
                start = 1
                if ints.f64[BETA] != 1.0:
                    scaled(c, m, n, c_row, c_col, ints.f64[BETA])
        depth = block_depth(k, depth_max, max(4, group))
        pitch: i64 = columns_max
        if c_col == 1 and c_row == n and n < columns_max:
            pitch = (n + nr - 1) // nr * nr
            if depth >= k:  # nothing is added to what tiles write beyond a row
                pitch = n
        for top in range(0, m, span):
            height = min(i64(span), m - top)
            for j in range(0, n, columns_max):
                columns = min(i64(columns_max), n - j)
                p: i64 = 0
                while p < k:
                    steps = min(depth, k - p)
                    words = (pair * steps + group - 1) // group
                    pack_b(pb, b + e * (p * b_row + j * b_col), columns, steps, b_col, b_row, aside)
                    for i in range(0, height, rows_max):
                        rows = min(i64(rows_max), height - i)
                        pack_a(pa, a + e * ((top + i) * a_row + p * a_col), rows, steps, a_row, a_col, aside)
                        if plain:
                            if ints.f64[ALPHA] != 1.0:
                                times(pa, (rows + mr - 1) // mr * mr * words, ints.f64[ALPHA])
                            to = c + c_size * ((top + i) * c_row + j * c_col)
                            macro(pa, pb, to, pair * c_row, c_col, words, rows, pair * columns, i64(p > 0 or start != 0))
                        else:
                            whole(pa, pb, sums + total * i * pitch, pitch, words, rows, columns, i64(p > 0))
                    p += depth
                if not plain:
                    finish(c + c_size * (top * c_row + j * c_col), c_row, c_col, sums, pitch, height, columns)
        give_back(slot)
        return 0

    return generated


# ***** large products: both operands packed once *****

# words after those of every product (no batches): length of a block of k, pieces that pack A; and for A, then for B: rows of A or columns of B in
# one piece of packing, elements of k in it, where the words of the prologue begin (0: the operand lies in memory), whether rows of its rectangles run
# along k
P_DEPTH, P_PIECES, P_CHUNK = BATCHES, BATCHES + 1, BATCHES + 2
P_REACH, P_BEFORE, P_ALONG = P_CHUNK + 2, P_CHUNK + 4, P_CHUNK + 6
P_WORDS = 10
# rows of A or columns of B that a prologue makes at once, about, where they run along k, and over how many blocks of k; elsewhere it is as many times
# as many rows of one block
MADE, SPAN = 16, 4


def _make_offset(form: Form) -> tuple[NativeFunction, NativeFunction]:
    """For tiles that take A without a sign: `void(a, words)` adds 128 to bytes, and `void(totals, b, columns, words, add)` notes -128 times the sums
    of the columns of packed panels, or adds it to what is there.
    """
    nr = form.tile.columns
    summed = extern(form.ones.symbol if form.ones is not None else form.tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")

    @native("void(ptr, i64)", name="lift")
    def lift(a, words):
        for i in range(words // 2):
            a.u64[i] = a.u64[i] ^ 0x8080808080808080
        if words % 2 != 0:
            a.u32[words - 1] = a.u32[words - 1] ^ 0x80808080

    @native("void(ptr, ptr, i64, i64, i64)", name="take_off")
    def take_off(totals, b, columns, words, add):
        high = stack(4 * DEPTH)
        found = stack(4 * nr)
        for i in range(words):
            high.u32[i] = 0x80808080
        for j in range(0, columns, nr):
            summed(high, b + 4 * j * words, found, nr, words, 0)
            for i in range(nr):
                totals.i32[j + i] = (totals.i32[j + i] if add != 0 else i32(0)) - found.i32[i]

    return lift, take_off


def make_shared(form: Form) -> tuple[NativeFunction, NativeFunction]:
    """Two kernels of the usual form: one packs A and B (`bufs`: packed, A, B), one multiplies (`bufs`: C, packed).

    Packed are first all of A, then all of B: blocks of `P_DEPTH` elements of k one after another, each of panels one after another; at the end what
    is to be added to columns, where the form has an `offset`.
    """
    (size, _), group, pair = form.sizes, form.tile.group, form.pair

    @native("i64(i64, i64)", inline=True)
    def a_packed(padded, k):
        """Bytes of all of A; what follows is read in whole vectors."""
        return (size * padded * ((pair * k + group - 1) // group) + 63) // 64 * 64

    return _make_shared_pack(form, a_packed), _make_shared_multiply(form, a_packed)


def _make_side(form: Form, side: int, pack: NativeFunction) -> NativeFunction:
    """`i32(bufs, ints, piece, out, padded, x, first, count, start, stop, aside)`: packs `count` rows of A (columns of B: `side` 1) from `first` on,
    elements `start` to `stop` of k, into blocks of `padded` rows.  What a prologue makes lies behind `aside` before.
    """
    size, group, width, itemsize = form.sizes[0], form.tile.group, form.widths[side], (form.source, form.other)[side].itemsize
    step_word, k_word = ((A_ROW, A_COL), (B_COL, B_ROW))[side]
    pair, twice = form.pair, form.pair if side else 1  # a complex number of B takes twice the room of one of A, and none has a prologue
    some, raw_bytes, tag = _up(MADE, width), scratch_bytes(form)[3], f"{'ab'[side]}_{form.name}"

    @native("i32(ptr, ptr, i64, ptr, i64, i64, i64, i64, i64, ptr)", name=f"made_{tag}")
    def pack_made(bufs, ints, piece, out, padded, first, count, start, stop, aside):
        depth, given = ints.i64[P_DEPTH], ints + 8 * ints.i64[P_BEFORE + side]
        along, made = ints.i64[P_ALONG + side] != 0, aside + raw_bytes
        chunk, reach, i = i64(SPAN * some), depth, i64(0)
        if along:
            chunk, reach = i64(some), SPAN * depth
        while i < count:
            rows, p = min(chunk, count - i), start
            while p < stop:
                steps, within, status = min(depth, stop - p), (p - start) % reach, i32(0)
                length = min(reach, stop - p + within)
                if along and within == 0:
                    status = run_epilogue(bufs, given, piece, made, length, 0, first + i, p, rows, length)
                elif within == 0:
                    status = run_epilogue(bufs, given, piece, made, rows, 0, p, first + i, length, rows)
                if status != 0:
                    return status
                words = (steps + group - 1) // group
                to = out + size * (p // group * padded + (first + i) * words)
                if along:
                    pack(to, made + itemsize * within, rows, steps, length, 1, aside)
                else:
                    pack(to, made, rows, steps, 1, rows, aside)
                p += depth
            i += chunk
        return 0

    @native("i32(ptr, ptr, i64, ptr, i64, ptr, i64, i64, i64, i64, ptr)", name=f"side_{tag}")
    def pack_side(bufs, ints, piece, out, padded, x, first, count, start, stop, aside):
        if ints.i64[P_BEFORE + side] != 0:
            return pack_made(bufs, ints, piece, out, padded, first, count, start, stop, aside)
        depth, step, k_step = ints.i64[P_DEPTH], ints.i64[step_word], ints.i64[k_word]
        p = start
        while p < stop:
            words = (pair * min(depth, stop - p) + group - 1) // group
            to = out + size * (pair * p // group * padded + twice * first * words)
            pack(to, x + itemsize * (first * step + p * k_step), count, min(depth, stop - p), step, k_step, aside)
            p += depth
        return 0

    return pack_side


def _make_shifted(form: Form) -> NativeFunction:
    """`void(out, ints, padded, first, count, is_b)`: what an `offset` asks for once rows or columns are packed.

    It is added to the elements of A, and columns of B are summed.
    """
    size, group, mr = form.sizes[0], form.tile.group, form.tile.rows
    lift, take_off = _make_offset(form)

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"shifted_{form.name}")
    def shifted(out, ints, padded, first, count, is_b):
        k, depth = ints.i64[K], ints.i64[P_DEPTH]
        p: i64 = 0
        while p < k:
            words = (min(depth, k - p) + group - 1) // group
            to = out + size * (p // group * padded + first * words)
            if is_b != 0:
                take_off(out + size * (padded * ((k + group - 1) // group) + first), to, count, words, i64(p > 0))
            else:
                lift(to, (count + mr - 1) // mr * mr * words)
            p += depth

    return shifted


def _make_shared_pack(form: Form, a_packed: NativeFunction) -> NativeFunction:
    """The kernel that packs: first pieces of A, then pieces of B."""
    mr, nr, pair, offset = form.tile.rows, form.tile.columns, form.pair, form.offset
    a_side, b_side = (_make_side(form, side, pack) for side, pack in enumerate(_make_packs(form)))
    raw_bytes = scratch_bytes(form)[3]
    made_bytes = _up(MADE, max(form.widths)) * SPAN * form.depth * form.tile.group * max(form.source.itemsize, form.other.itemsize)
    shifted = _make_shifted(form)

    @native("i32(ptr, ptr, i64)", name="rl_pack")
    def pack(bufs, ints, piece):
        k, m, n = ints.i64[K], ints.i64[M], ints.i64[N]
        is_b = i64(piece >= ints.i64[P_PIECES])
        slot: i64 = -1
        aside: ptr = None
        if raw_bytes > 0 or ints.i64[P_BEFORE + is_b] != 0:
            slot = borrow(raw_bytes + made_bytes)
            if slot < 0:
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            aside = borrowed(slot)
        out, padded, total, place = bufs.ptr[0], (m + mr - 1) // mr * mr, m, piece
        if is_b != 0:
            out, padded, total, place = out + a_packed(padded, k), (pair * n + nr - 1) // nr * nr, n, piece - ints.i64[P_PIECES]
        chunk, reach = ints.i64[P_CHUNK + is_b], ints.i64[P_REACH + is_b]
        chunks = (total + chunk - 1) // chunk
        first, start = place % chunks * chunk, place // chunks * reach
        count, stop = min(chunk, total - first), min(k, start + reach)
        status: i32 = 0
        if is_b != 0:
            status = b_side(bufs, ints, piece, out, padded, bufs.ptr[2], first, count, start, stop, aside)
        else:
            status = a_side(bufs, ints, piece, out, padded, bufs.ptr[1], first, count, start, stop, aside)
        if offset:
            shifted(out, ints, padded, first, count, is_b)
        if slot >= 0:
            give_back(slot)
        return status

    return pack


def _make_shared_multiply(form: Form, a_packed: NativeFunction) -> NativeFunction:
    """The kernel that multiplies: a piece is a rectangle of C."""
    tile = form.tile
    (size, _), group, mr, nr = form.sizes, tile.group, tile.rows, tile.columns
    macro = _make_macro(tile)
    plain = form.narrow is None
    finish = macro if plain else _make_finish(form)
    c_size, offset = form.result.itemsize, form.offset
    sum_bytes, raw_bytes = scratch_bytes(form)[2:]
    columns_max, pair = _up(COLUMNS, nr), form.pair

    @native("i32(ptr, ptr, i64)", name="rl_multiply")
    def multiply(bufs, ints, piece):
        k, depth, m, n = ints.i64[K], ints.i64[P_DEPTH], ints.i64[M], ints.i64[N]
        c_row, c_col = ints.i64[C_ROW], ints.i64[C_COL]
        row = piece // ints.i64[TILES_N] * ints.i64[TILE_M]
        column = piece % ints.i64[TILES_N] * ints.i64[TILE_N]
        rows, columns = min(ints.i64[TILE_M], m - row), min(ints.i64[TILE_N], n - column)
        m_padded, n_padded = (m + mr - 1) // mr * mr, (pair * n + nr - 1) // nr * nr
        a = bufs.ptr[ints.i64[A_WORD]]
        b = a + a_packed(m_padded, k)
        c = bufs.ptr[0] + c_size * (row * c_row + column * c_col)
        slot: i64 = 0
        to, to_row, to_col = c, c_row, c_col
        after = ints.i64[AFTER] != 0
        if not plain or after:
            slot = borrow(max(sum_bytes + raw_bytes, c_size * rows * columns_max))
            if slot < 0:
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            to, to_row, to_col = borrowed(slot), i64(columns_max), i64(1)
        p: i64 = 0
        while p < k:
            words = (pair * min(depth, k - p) + group - 1) // group
            pa = a + size * (pair * p // group * m_padded + row * words)
            pb = b + size * (pair * p // group * n_padded + pair * column * words)
            if offset:
                if p == 0:
                    totals = b + size * (n_padded * ((k + group - 1) // group) + column)
                    for i in range(rows):
                        if to_col == 1:
                            memcpy(to + 4 * i * to_row, totals, 4 * columns)
                        else:
                            for j in range(columns):
                                to.i32[i * to_row + j * to_col] = totals.i32[j]
                macro(pa, pb, to, to_row, to_col, words, rows, columns, 1)
            else:
                macro(pa, pb, to, pair * to_row, to_col, words, rows, pair * columns, i64(p > 0))
            p += depth
        status: i32 = 0
        if after:
            status = run_epilogue(bufs, ints + 8 * ints.i64[AFTER], piece, to, to_row, 0, row, column, rows, columns)
        elif not plain:
            finish(c, c_row, c_col, to, to_row, rows, columns)
        if after or not plain:
            give_back(slot)
        return status

    return multiply
