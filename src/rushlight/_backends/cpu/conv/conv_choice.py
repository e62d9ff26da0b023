"""The blocking of a convolution: the one with the least estimated time, in the native language.

The choice depends on the sizes alone and is made for each new set of them; natively it takes a few microseconds.  The
unit of time is one step of one vector of a tile.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from rushlight._backends.cpu.conv.conv_descriptor import LOW, NO_EPILOGUE, POSITION_ROWS, POSITIONS, W, filled_channels
from rushlight._backends.cpu.conv.winograd_native import DEPTH as TILE_DEPTH
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.microkernels.winograd import TAPS
from rushlight._backends.cpu.runtime.stubs import bind, bind_ahead
from rushlight._native import Words, f64, i64, native, stack

__all__ = [
    "DEPTH",
    "GRAIN",
    "PLACED_DEPTH",
    "WANTED",
    "choices_ahead",
    "choose_blocks",
    "choose_tiles",
    "tiles_cost",
    "tiles_together",
]

PLACED_DEPTH = 640  # steps in one part where windows are read in place, and panels of weights come from the L2 cache
DEPTH = 256  # steps in one part: a panel of windows stays in the L1 cache
GRAIN = 1 << 22  # least multiplications in one piece of a large convolution
WANTED = 16  # least pieces of large work, where it can be divided so
_POSITIONS = 512  # positions in one piece: it stays in the L2 cache with their sums
_ROOM = 3 << 18  # bytes of weights and sums that a piece keeps in the L2 cache, with a margin
_MOVE = 8  # time to move one vector into a panel
_OUTS = 256  # most output channels in one piece of Winograd tiles
_SLAB = 1 << 18  # input elements in one piece of Winograd tiles, about
_PANELS = 1 << 19  # elements of panels and sums in one piece of Winograd tiles, about

# The machine's register tiles: columns, lanes, rows of the first and of the last, whether there are two, steps in a
# packed word; and the only form to consider, or -1.
T = Words("columns lanes rows low several group only")


@native("i64(i64, i64)", inline=True)
def up(n, by):
    """`n / by`, rounded up."""
    return (n + by - 1) // by


@native("i64(i64, i64)")
def even(total, most):
    """The size of equal blocks of at most `most`."""
    if total == 0:
        return 1
    return up(total, up(total, max(most, 1)))


@native("i64(i64, i64, i64)")
def filled(n, width, rest):
    """The rows or columns of panels of `width` that hold n; a remainder of at most `rest` goes into a panel of `rest`."""
    left = n % width
    if left == 0:
        return n
    return n - left + (rest if left <= rest else width)


@native("f64(i64, i64, i64)")
def fill(n, width, rest):
    """The used fraction of such panels."""
    if n == 0:
        return 1.0
    return f64(n) / f64(filled(n, width, rest))


@native("i64(ptr)")
def multiplications(desc):
    steps = desc.i64[W.c] * desc.i64[W.k_d] * desc.i64[W.k_h] * desc.i64[W.k_w]
    return desc.i64[W.n] * desc.i64[W.g] * desc.i64[W.o] * desc.i64[W.d] * desc.i64[W.h] * desc.i64[W.w] * steps


@native("i64(ptr, i64, i64, ptr)")
def padded_positions(desc, width, rest, boxes):
    """The positions of all boxes of a group with their panels (see `filled`) filled up; `boxes` receives the number of
    boxes."""
    columns = desc.i64[W.block_n] * desc.i64[W.block_d] * desc.i64[W.block_h] * desc.i64[W.block_w]
    whole = i64(1)
    others = i64(1)
    last = columns  # positions of a box at the end, which may be partial along one dim
    for k in range(4):
        size = desc.i64[W.n] if k == 0 else desc.i64[W.d + k - 1]
        block = desc.i64[W.block_n + k]
        if size % block != 0:
            others = whole
            last = columns // block * (size % block)
        whole *= size // block
    if last == columns:
        others = 0
    boxes.i64[0] = whole + others
    return whole * filled(columns, width, rest) + others * filled(last, width, rest)


@native("f64(i64, i64)")
def few_pieces(work, pieces):
    """The slowdown of work that is cut into too few pieces."""
    return 1.0 + 0.05 * max(0.0, f64(min(WANTED, work // GRAIN)) / f64(pieces) - 1.0)


# ***** windows *****


@native("f64(ptr, ptr)")
def cost(desc, tile):
    """The estimated time of a convolution with this blocking."""
    form, width, inside = desc.i64[W.form], tile.i64[T.columns], desc.i64[W.images_inside]
    rows, rest = tile.i64[T.rows], tile.i64[T.low]
    if form % 2 == LOW:
        rows = tile.i64[T.low]
        rest = 0
    steps = max(filled_channels(desc, desc.i64[W.c]) * desc.i64[W.k_d] * desc.i64[W.k_h] * desc.i64[W.k_w], 1)
    depth = desc.i64[W.part_c] * desc.i64[W.part_d] * desc.i64[W.part_h] * desc.i64[W.part_w]
    placed, lanes = desc.i64[W.channels_inside] != 0, tile.i64[T.lanes]
    box_count = stack(8)
    outs = desc.i64[W.block_o]
    blocks = up(desc.i64[W.o], outs)
    left = desc.i64[W.o] - (blocks - 1) * outs
    if form < POSITIONS:
        padded = padded_positions(desc, width, 0, box_count)
        high = (blocks - 1) * filled(outs, rows, rest) + filled(left, rows, rest)
    else:
        padded = padded_positions(desc, rows, rest, box_count)
        one = lanes if placed else i64(0)  # one vector of channels for a remainder
        high = (blocks - 1) * filled(outs, width, one) + filled(left, width, one)
        width = tile.i64[T.rows] if form == POSITIONS else tile.i64[T.low]
    boxes = box_count.i64[0]
    moves = f64(0.0)
    if inside <= 1 and not placed:
        moves = f64(padded) / f64(min(min(desc.i64[W.n] if inside != 0 else desc.i64[W.w], lanes), width))
    slab = desc.i64[W.c] * desc.i64[W.block_n]
    for k in range(3):
        slab *= desc.i64[W.block_d + k] * desc.i64[W.step_d + k] + (desc.i64[W.k_d + k] - 1) * desc.i64[W.gap_d + k]
    time = f64(steps) * (f64(padded * high) / f64(lanes) + f64(_MOVE) * moves * f64(blocks) + f64(high * min(boxes, 3)))
    time += (2.0 if inside != 0 else 0.1 if placed else 0.5) * f64(slab) * f64(boxes) * f64(blocks)
    if (form < POSITIONS) == (desc.i64[W.y_o] == 1):  # results are written transposed
        time += f64(padded * high)
    if 4.0 * f64(min(high, outs)) * (f64(min(steps, depth)) + f64(padded) / f64(max(boxes, 1))) > f64(_ROOM):
        time *= 1.3
    pieces = max(desc.i64[W.g] * boxes * blocks, 1)
    work = multiplications(desc)
    chunks = max(min(min(WANTED // pieces, work // pieces // GRAIN), desc.i64[W.chunk] // 2), 1)
    if chunks > 1:
        time += f64(4 * chunks * desc.i64[W.n] * desc.i64[W.o] * desc.i64[W.d] * desc.i64[W.h] * desc.i64[W.w])
    return time * few_pieces(work, pieces * chunks)


@native("i64(i64, i64, i64, i64)")
def full(rows, w, width, most):
    """The number of rows of `w` positions, not far below the most, that fills panels of `width` best."""
    most = max(most // w, 1)
    best, best_fill = i64(1), i64(-1)
    for r in range(max(most // 2, 1), most + 1):
        used = rows // r * up(r * w, width) * width + up(rows % r * w, width) * width
        hundredths = (200 * rows * w + used) // (2 * used)  # compared to two digits
        if hundredths >= best_fill:
            best = r
            best_fill = hundredths
    return best


@native("void(ptr, i64, i64)")
def choose_box(desc, width, most):
    """Choose boxes of whole images, of whole rows of one image, or of a part of a row."""
    n, d, h, w = desc.i64[W.n], desc.i64[W.d], desc.i64[W.h], desc.i64[W.w]
    positions = d * h * w
    desc.i64[W.block_n], desc.i64[W.block_d], desc.i64[W.block_h], desc.i64[W.block_w] = (
        max(n, 1),
        max(d, 1),
        max(h, 1),
        max(w, 1),
    )
    if desc.i64[W.images_inside] != 0:
        unit = max(desc.i64[W.images_inside], 16)
        desc.i64[W.block_n] = min(up(even(n, max(most // max(positions, 1), unit)), unit) * unit, n)
        if desc.i64[W.block_n] * positions > 2 * most:
            desc.i64[W.block_d] = 1
            desc.i64[W.block_h] = even(h, max(most // (desc.i64[W.block_n] * w), 1))
        return
    if positions <= most:
        desc.i64[W.block_n] = even(n, most // max(positions, 1))
        return
    desc.i64[W.block_n] = 1
    if h * w <= most:
        desc.i64[W.block_d] = even(d, most // (h * w))
        return
    desc.i64[W.block_d] = 1
    if w <= most:
        desc.i64[W.block_h] = full(h, w, width, most)
    else:
        desc.i64[W.block_h] = 1
        desc.i64[W.block_w] = up(even(w, 2 * most), width) * width


@native("i64(ptr, i64)")
def low_form(tile, count):
    """1 where the tile with fewer rows is clearly fuller for `count` rows."""
    if tile.i64[T.several] == 0:
        return 0
    few, many = fill(count, tile.i64[T.low], 0), fill(count, tile.i64[T.rows], tile.i64[T.low])
    return 1 if few > 1.04 * many else 0


@native("f64(ptr, ptr)")
def cut_windows(desc, tile):
    """Choose form and blocks (form, images_inside, block_*) for given parts of the steps; return the estimated time."""
    wide, o, n = tile.i64[T.columns], desc.i64[W.o], desc.i64[W.n]
    lanes, positions = tile.i64[T.lanes], desc.i64[W.d] * desc.i64[W.h] * desc.i64[W.w]
    inside = i64(0)
    placed = desc.i64[W.channels_inside] != 0
    if (
        desc.i64[W.epilogue] == NO_EPILOGUE
        and not placed
        and desc.i64[W.w] < lanes
        and n >= max(2 * desc.i64[W.w], lanes // 2)
    ):
        inside = 1
    best, least = stack(8 * 8), stack(8)
    least.f64[0] = -1.0
    for by_positions in range(2):  # 0: channels are the rows of the tile
        form = 2 * by_positions + (
            low_form(tile, o) if by_positions == 0 else low_form(tile, min(positions * n, _POSITIONS))
        )
        if tile.i64[T.only] >= 0:
            form = tile.i64[T.only]
        if form // 2 != by_positions or (by_positions == 0 and (desc.i64[W.epilogue] == POSITION_ROWS or placed)):
            continue
        listed = inside != 0 and by_positions == 0 and tile.i64[T.group] == 1 and fill(n, wide, 0) > 0.8
        desc.i64[W.form] = form
        desc.i64[W.images_inside] = wide if listed else inside
        high = tile.i64[T.low] if form % 2 == LOW and tile.i64[T.several] != 0 else tile.i64[T.rows]
        width, unit = wide, high
        if by_positions == 1:
            width = high
            unit = wide
        most = i64(_POSITIONS)
        while most >= _POSITIONS // 4:
            choose_box(desc, width, most)
            count = i64(1)
            while True:
                desc.i64[W.block_o] = min(up(even(o, up(o, count)), unit) * unit, max(o, 1))
                time = cost(desc, tile)
                if least.f64[0] < 0.0 or time < least.f64[0]:
                    least.f64[0] = time
                    best.i64[0], best.i64[1] = form, desc.i64[W.images_inside]
                    for k in range(5):
                        best.i64[2 + k] = desc.i64[W.block_n + k]
                if desc.i64[W.block_o] <= unit or count >= 16:
                    break
                count *= 2
            most = most // 2
    desc.i64[W.form], desc.i64[W.images_inside] = best.i64[0], best.i64[1]
    for k in range(5):
        desc.i64[W.block_n + k] = best.i64[2 + k]
    return least.f64[0]


# ***** Winograd's tiles *****


@native("i64(ptr, i64)")
def together(desc, columns):
    """The number of panels of tiles that meet the weights at a time: several where the weights are read from outside
    the caches."""
    weights = TAPS * desc.i64[W.c] * desc.i64[W.block_o]
    return max(
        min(weights >> 16, _PANELS // (TAPS * columns * (desc.i64[W.block_o] + min(desc.i64[W.c], TILE_DEPTH)))), 1
    )


@native("f64(ptr, ptr)")
def cost_of_tiles(desc, tile):
    """The estimated time of one group."""
    box_count = stack(8)
    columns, high, c, w = tile.i64[T.columns], tile.i64[T.rows], desc.i64[W.c], desc.i64[W.w]
    padded = padded_positions(desc, columns, 0, box_count)
    boxes, outs = box_count.i64[0], desc.i64[W.block_o]
    blocks = up(desc.i64[W.o], outs)
    rows = (blocks - 1) * outs + up(desc.i64[W.o] - (blocks - 1) * outs, high) * high
    pixels = boxes * desc.i64[W.block_n] * 4 * (desc.i64[W.block_h] + 1) * (w + 1)
    steps = f64(TAPS * padded * c * rows + c * blocks * (128 * padded + 16 * pixels) + 128 * padded * desc.i64[W.o])
    pieces = desc.i64[W.g] * boxes * blocks * desc.i64[W.d]
    passes = f64(boxes) * max(f64(padded // boxes // columns) / f64(together(desc, columns)), 1.0)
    steps += passes * f64(TAPS * c * rows * 8)  # reading the weights
    return steps / f64(tile.i64[T.lanes]) * few_pieces(multiplications(desc), pieces)


@native("void(ptr, ptr)")
def cut_tiles(desc, tile):
    """Choose blocks of Winograd tiles: some rows of an image, or some images, with all channels in one slab."""
    row = desc.i64[W.c] * 2 * (desc.i64[W.w] + 1)
    rows = min(desc.i64[W.h], max(_SLAB // row, 4) // 2 - 1)
    images = min(desc.i64[W.n], _SLAB // (row * 2 * (desc.i64[W.h] + 1)))
    high, o = tile.i64[T.rows], desc.i64[W.o]
    best_n, best_h, best_o, best = i64(1), i64(1), i64(1), f64(-1.0)
    for k in range(1, rows + max(images, 1)):
        desc.i64[W.block_n], desc.i64[W.block_h] = i64(1), k
        if k > rows:
            desc.i64[W.block_n], desc.i64[W.block_h] = k - rows + 1, desc.i64[W.h]
        count = i64(1)
        while count <= 8:
            desc.i64[W.block_o] = up(even(o, min(up(o, count), _OUTS)), high) * high
            time = cost_of_tiles(desc, tile)
            if best < 0.0 or time < best:
                best = time
                best_n, best_h, best_o = desc.i64[W.block_n], desc.i64[W.block_h], desc.i64[W.block_o]
            count *= 2
    desc.i64[W.block_n], desc.i64[W.block_h], desc.i64[W.block_o] = best_n, best_h, best_o


# ***** what Python calls *****

_BLOCKS = ("form", "images_inside", "block_n", "block_d", "block_h", "block_w", "block_o")
_FIELD = {name: k for k, name in enumerate(W)}
_bound = cache(partial(bind, opt="quick"))  # called once for a plan: LLVM's passes would take longer than they save


def choices_ahead(winograd: bool) -> None:
    """Let workers compile what choices of blocks ask."""
    for function in (cut_tiles, cost_of_tiles, together) if winograd else (cut_windows,):
        bind_ahead(function, opt="quick")


def _ask(function: Any, desc: dict[str, int], *more: Any) -> tuple[array[int], Any]:
    fields = array("q", W.listed(desc))
    return fields, _bound(function)(
        fields.buffer_info()[0], *[m.buffer_info()[0] if isinstance(m, array) else m for m in more]
    )


def _about(tiles: Sequence[RegisterTile], only: int = -1) -> array[int]:
    first = tiles[0]
    return array("q", (first.columns, first.lanes, first.rows, tiles[-1].rows, int(len(tiles) > 1), first.group, only))


def choose_blocks(desc: dict[str, int], tiles: Sequence[RegisterTile], only: int = -1) -> float:
    """Complete a convolution's descriptor with form (or `only`) and blocks; return the estimated time."""
    fields, time = _ask(cut_windows, desc, _about(tiles, only))
    desc.update({name: fields[_FIELD[name]] for name in _BLOCKS})
    return float(time)


def choose_tiles(desc: dict[str, int], tile: RegisterTile) -> None:
    """Complete a descriptor that counts Winograd tiles with its blocks."""
    fields, _ = _ask(cut_tiles, desc, _about((tile,)))
    desc.update({name: fields[_FIELD[name]] for name in ("block_n", "block_h", "block_o")})


def tiles_cost(desc: dict[str, int], tile: RegisterTile) -> float:
    """The estimated time of one group with the blocks of `desc`."""
    return float(_ask(cost_of_tiles, desc, _about((tile,)))[1])


def tiles_together(desc: dict[str, int], tile: RegisterTile) -> int:
    """The number of panels of tiles that meet the weights at a time."""
    return int(_ask(together, desc, tile.columns)[1])
