"""Blocks of a matrix product, in the native language: packed into panels, multiplied tile by tile, sums converted to
elements of the result."""

from __future__ import annotations

from rushlight._backends.cpu.gemm.gemm_form import DEPTH, SUMS, WORDS, Form
from rushlight._backends.cpu.gemm.pack_native import make_pack, make_pack_a_amx, make_pack_b_amx, make_wide_pack
from rushlight._backends.cpu.microkernels.amx_tile import AmxTile
from rushlight._backends.cpu.microkernels.panels import Panels
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._native import Type, extern, i64, load, memcpy, native, prefetch, stack, store
from rushlight._native.function import NativeFunction

__all__ = ["make_converted", "make_direct", "make_finish", "make_macro", "make_packs", "make_transpose", "make_whole"]


def make_transpose(kind: str, real: Type, squares: Panels) -> NativeFunction:
    """Packs a panel whose elements are contiguous along k, transposing squares in registers."""
    size, n = real.itemsize, squares.n
    transpose_square = extern(squares.transpose_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, i64, i64, i64)", name=f"transpose_{kind}_{n}")
    def transpose(out, x, width, row, depth):
        """Pack `width` rows, `row` elements apart, of `depth` elements each, as a panel [k][width]; the last square may
        overlap the one before."""
        whole = depth // n * n
        if whole > 0:
            for i in range(0, width, n):
                at = min(i, width - n)
                transpose_square(out + size * at, x + size * at * row, row, width, whole)
                if whole < depth:
                    transpose_square(
                        out + size * ((depth - n) * width + at), x + size * (at * row + depth - n), row, width, n
                    )
            whole = depth
        for k in range(whole, depth):
            for i in range(width):
                store(real, out, k * width + i, load(real, x, i * row + k))

    return transpose


def make_packs(form: Form) -> tuple[NativeFunction, NativeFunction]:
    """The functions that pack A and B: `void(out, x, count, depth, step, k_step, aside)`."""
    packs = []
    for side, width, raw, cast in zip("ab", form.widths, form.raw, form.widen, strict=True):
        if cast is not None:
            packs.append(make_wide_pack(raw, cast, width))
            continue
        if isinstance(form.tile, RegisterTile):
            plain = make_pack(raw, width, form.before if side == "b" else 0)
        else:
            plain = make_pack_a_amx(form.tile) if side == "a" else make_pack_b_amx(form.tile)

        def wrap(plain: NativeFunction, side: str) -> NativeFunction:
            @native("void(ptr, ptr, i64, i64, i64, i64, ptr)", name=f"pack_{side}_{form.name}", inline=True)
            def pack(out, x, count, depth, step, k_step, aside):
                plain(out, x, count, depth, step, k_step)

            return pack

        packs.append(wrap(plain, side))
    return (_make_lifted(form, packs[0]), _make_begun(form, packs[1])) if form.offset else (packs[0], packs[1])


def _make_lifted(form: Form, pack: NativeFunction) -> NativeFunction:
    """The same for signed bytes of A and a tile that takes unsigned ones: 128 is added."""
    mr, group = form.tile.rows, form.tile.group

    @native("void(ptr, ptr, i64, i64, i64, i64, ptr)", name=f"lifted_{form.name}")
    def lifted(out, x, count, depth, step, k_step, aside):
        pack(out, x, count, depth, step, k_step, aside)
        words = (count + mr - 1) // mr * mr * ((depth + group - 1) // group)
        for i in range(words // 2):
            out.u64[i] = out.u64[i] ^ 0x8080808080808080
        if words % 2 != 0:
            out.u32[words - 1] = out.u32[words - 1] ^ 0x80808080

    return lifted


def _make_begun(form: Form, pack: NativeFunction) -> NativeFunction:
    """The same for columns of B: each panel begins with -128 times their sums."""
    ones, nr, group = form.ones, form.tile.columns, form.tile.group
    assert ones is not None
    summed = extern(ones.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, i64, i64, i64, i64, ptr)", name=f"begun_{form.name}")
    def begun(out, x, count, depth, step, k_step, aside):
        pack(out, x, count, depth, step, k_step, aside)
        high = stack(4 * DEPTH)
        words = (depth + group - 1) // group
        for i in range(words):
            high.u32[i] = 0x80808080
        for _j in range(0, count, nr):
            summed(high, out + 4 * nr, out, nr, words, 0)
            for i in range(nr):
                out.i32[i] = -out.i32[i]
            out = out + 4 * nr * (words + 1)

    return begun


LINE = 64  # bytes of a cache line


@native("void(ptr, i64)", inline=True)
def ahead(p, nbytes):
    """Ask for the lines of some memory that is read soon."""
    for i in range(0, nbytes, LINE):
        prefetch(p + i)


def _make_held(tile: RegisterTile | AmxTile, tiles: NativeFunction, arguments: int) -> NativeFunction:
    """`tiles`, a function of three addresses and so many numbers, with the tile registers of a `held` tile configured
    before and released after it."""
    if not isinstance(tile, AmxTile) or not tile.held:
        return tiles
    begin, end = (extern(symbol, "void()") for symbol in tile.bounds)
    if arguments == 5:

        @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64)", name=f"held_{tiles.symbol}")
        def held(a, b, out, row, words, rows, columns, add):
            begin()
            tiles(a, b, out, row, words, rows, columns, add)
            end()

        return held

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"held_{tiles.symbol}")
    def held_apart(a, b, c, c_row, c_col, words, rows, columns, add):
        begin()
        tiles(a, b, c, c_row, c_col, words, rows, columns, add)
        end()

    return held_apart


def make_macro(form: Form) -> NativeFunction:
    """`void(a, b, c, c_row, c_col, words, rows, columns, add)`: all tiles of packed blocks, into sums."""
    tile, before = form.tile, form.before
    (size, sums), mr, nr = WORDS[tile.kind], tile.rows, tile.columns
    number = SUMS[sums]
    total = number.itemsize
    kernel, masked = extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)"), isinstance(tile, RegisterTile)
    prefetches = masked  # matrix tiles read whole lines, and are slower with it
    part = extern(
        tile.part_symbol if isinstance(tile, RegisterTile) else tile.symbol, "void(ptr, ptr, i64, i64, i64, i64)"
    )

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"edge_{tile.kind}_{mr}x{nr}")
    def edge(a, b, c, c_row, c_col, words, rows, columns, add):
        """A partial tile, or one with strided columns: computed in a buffer first."""
        aside = stack(total * mr * nr)
        kernel(a, b, aside, nr, words, 0)
        if masked:
            if c_col == 1:
                part(aside, c, c_row, rows, columns, add)
                rows = i64(0)
        for i in range(rows):
            for j in range(columns):
                x = load(number, aside, i * nr + j)
                if add != 0:
                    x = x + load(number, c, i * c_row + j * c_col)
                store(number, c, i * c_row + j * c_col, x)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"at_{tile.kind}_{mr}x{nr}", inline=True)
    def at(a, b, to, c_row, c_col, words, rows, columns, add):
        """The tile of a panel of A and one of B."""
        if c_col == 1 and rows >= mr and columns >= nr:
            kernel(a, b, to, c_row, words, add)
        else:
            edge(a, b, to, c_row, c_col, words, min(i64(mr), rows), min(i64(nr), columns), add)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"macro_{tile.kind}_{mr}x{nr}")
    def macro(a, b, c, c_row, c_col, words, rows, columns, add):
        a_step, b_step = size * mr * words, size * nr * (words + before)
        tall, wide = (rows + mr - 1) // mr, (columns + nr - 1) // nr
        # The larger operand is read once, and its next panel while the tiles of one are computed
        if tall * mr > wide * nr:
            some = (a_step // wide + LINE - 1) // LINE * LINE
            for i in range(tall):
                for j in range(wide):
                    if prefetches:
                        ahead(a + (i + 1) * a_step + j * some, min(some, (tall - 1 - i) * a_step - j * some))
                    to = c + total * (i * mr * c_row + j * nr * c_col)
                    at(a + i * a_step, b + j * b_step, to, c_row, c_col, words, rows - i * mr, columns - j * nr, add)
        else:
            some = (b_step // tall + LINE - 1) // LINE * LINE
            for j in range(wide):
                for i in range(tall):
                    if prefetches:
                        ahead(b + (j + 1) * b_step + i * some, min(some, (wide - 1 - j) * b_step - i * some))
                    to = c + total * (i * mr * c_row + j * nr * c_col)
                    at(a + i * a_step, b + j * b_step, to, c_row, c_col, words, rows - i * mr, columns - j * nr, add)

    return _make_held(tile, macro, 6)


def make_whole(tile: RegisterTile | AmxTile) -> NativeFunction:
    """`void(a, b, sums, row, words, rows, columns, add)`: the same into our own memory, where tiles may write beyond
    the block.

    The last panel, which writes beyond its rows, comes first: where rows are contiguous, later panels overwrite the
    excess.
    """
    (size, sums), mr, nr = WORDS[tile.kind], tile.rows, tile.columns
    total = SUMS[sums].itemsize
    kernel = extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64)", name=f"whole_{tile.kind}_{mr}x{nr}")
    def whole(a, b, out, row, words, rows, columns, add):
        panels = (columns + nr - 1) // nr
        for p in range(panels):
            j = (p + panels - 1) % panels * nr
            for i in range(0, rows, mr):
                kernel(a + size * i * words, b + size * j * words, out + total * (i * row + j), row, words, add)

    return _make_held(tile, whole, 5)


def make_direct(form: Form) -> NativeFunction:
    """`void(a, b, c, c_row, words, rows, columns)`: all tiles of packed blocks that hold all of k, rounded to elements
    of C."""
    tile, size = form.rounded, form.sizes[0]
    assert tile is not None
    mr, nr, element = tile.rows, tile.columns, form.result.itemsize
    kernel = extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64)", name=f"direct_{tile.kind}_{mr}x{nr}")
    def direct(a, b, c, c_row, words, rows, columns):
        aside = stack(element * mr * nr)
        for j in range(0, columns, nr):
            for i in range(0, rows, mr):
                pa, pb, to = a + size * i * words, b + size * j * words, c + element * (i * c_row + j)
                if rows - i >= mr and columns - j >= nr:
                    kernel(pa, pb, to, c_row, words, 0)
                else:
                    kernel(pa, pb, aside, nr, words, 0)
                    for r in range(min(i64(mr), rows - i)):
                        memcpy(to + element * r * c_row, aside + element * r * nr, element * min(i64(nr), columns - j))

    return direct


def make_converted(form: Form) -> NativeFunction:
    """`make_direct` for a held matrix tile: its sums are converted while they lie in the L1 cache."""
    tile, (size, total), cast = form.tile, form.sizes, form.narrow
    assert isinstance(tile, AmxTile) and cast is not None
    mr, nr, element = tile.rows, tile.columns, form.result.itemsize
    kernel, convert = (
        extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)"),
        extern(cast.symbol, "void(ptr, ptr, i64)"),
    )
    begin, end = (extern(symbol, "void()") for symbol in tile.bounds)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64)", name=f"converted_{form.name}")
    def converted(a, b, c, c_row, words, rows, columns):
        aside = stack(total * mr * nr)
        begin()
        for j in range(0, columns, nr):
            for i in range(0, rows, mr):
                kernel(a + size * i * words, b + size * j * words, aside, nr, words, 0)
                to = c + element * (i * c_row + j)
                for r in range(min(i64(mr), rows - i)):
                    convert(to + element * r * c_row, aside + total * r * nr, min(i64(nr), columns - j))
        end()

    return converted


def make_finish(form: Form) -> NativeFunction:
    """`void(c, c_row, c_col, sums, row, rows, columns)`: converts sums, `row` apart, to elements of C."""
    assert form.narrow is not None
    cast, size, wide = form.narrow, form.result.itemsize, form.narrow.source.itemsize
    convert = extern(cast.symbol, "void(ptr, ptr, i64)")

    @native("void(ptr, i64, i64, ptr, i64, i64, i64)", name=f"finish_{form.name}")
    def finish(c, c_row, c_col, sums, row, rows, columns):
        # Contiguous in both: one call, as a call for each short row would cost more than its work
        if c_col == 1 and row == columns and c_row == columns:
            convert(c, sums, rows * columns)
            rows = i64(0)
        for i in range(rows):
            if c_col == 1:
                convert(c + size * i * c_row, sums + wide * i * row, columns)
            else:
                for j in range(columns):
                    convert(c + size * (i * c_row + j * c_col), sums + wide * (i * row + j), 1)

    return finish
