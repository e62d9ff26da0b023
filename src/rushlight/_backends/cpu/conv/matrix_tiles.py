"""Convolutions by matrix tiles (Intel AMX): which ones use them, and their blocking, from sizes alone."""

from __future__ import annotations

from functools import cache
from math import inf

from rushlight._backends.cpu.conv.conv_choice import GRAIN, WANTED
from rushlight._backends.cpu.conv.conv_descriptor import POSITIONS
from rushlight._backends.cpu.conv.conv_native import ConvForm
from rushlight._backends.cpu.conv.matrix_sums_native import SumsForm
from rushlight._backends.cpu.conv.matrix_tiles_native import MatrixForm
from rushlight._backends.cpu.gemm.choice import amx_works
from rushlight._backends.cpu.gemm.gemm_form import AMX_DEPTH
from rushlight._backends.cpu.microkernels.amx_tile import PlacedAmxTile

__all__ = ["MATRIX_DEPTH", "MATRIX_GRAIN", "cut_for_tiles", "cut_sums", "matrix_forms"]

MATRIX_DEPTH = 144 * AMX_DEPTH
MATRIX_GRAIN = 1 << 27  # least multiplications in one chunk of the steps
_POSITIONS = 512  # rows of sums in one piece, about
_ROOM = 5 << 18  # bytes of a slab, weights and sums that a piece keeps in the L2 cache
_TILE = 100.0  # time of one word of a tile, in the unit of `conv_choice`: a step of a vector of the register tile
# Time of an element of the slab, or of a sum, where channels are apart, and where they are contiguous
_MOVE = (1.5, 0.5)


@cache
def matrix_forms(form: ConvForm) -> tuple[MatrixForm, ...]:
    """The forms with matrix tiles for operands and results of `form`, where the machine has tiles for them: for images
    of many positions, and for sums over positions."""
    if form.source != "bf16" or form.kind != "bf16" or not amx_works("amx_bf16"):
        return ()
    tile = PlacedAmxTile("amx_bf16", "tdpbf16ps")
    return MatrixForm(form, tile), SumsForm(form, tile)


def up(n: int, by: int) -> int:
    return -(-n // by)


def _even(total: int, most: int) -> int:
    """The size of equal blocks of at most `most`."""
    return up(total, up(total, max(most, 1))) if total else 1


def _slots(desc: dict[str, int], wide: int) -> int:
    """Positions from one row of results to the next."""
    return up((wide - 1) * desc["step_w"] + (desc["k_w"] - 1) * desc["gap_w"] + 1, desc["step_w"])


def _rows(desc: dict[str, int], tile: PlacedAmxTile, high: int, wide: int) -> int:
    """Rows of sums of a plane of results."""
    half = tile.rows // 2
    return up((high - 1) * _slots(desc, wide) + wide, half) * half


def _boxes(desc: dict[str, int], tile: PlacedAmxTile, most: int) -> None:
    """Choose boxes of whole images, of planes of one image, of whole rows, or of a part of a row."""
    n, d, h, w = (max(desc[letter], 1) for letter in "ndhw")
    block = {"block_n": 1, "block_d": 1, "block_h": h, "block_w": w}
    plane = _rows(desc, tile, h, w)
    if w > 2 * most:
        block |= {"block_h": 1, "block_w": up(_even(w, most), tile.rows) * tile.rows}
    elif plane > most:
        block["block_h"] = _even(h, most // _slots(desc, w))
    else:
        block["block_d"] = _even(d, most // plane)
        if block["block_d"] == d:
            block["block_n"] = _even(n, most // (plane * d))
    desc.update(block)


def _time(desc: dict[str, int], tile: PlacedAmxTile, words: int) -> float:
    """The estimated time of a convolution with this blocking."""
    n, d, h, w, o = (desc[f"block_{letter}"] for letter in "ndhwo")
    whole = {letter: max(desc[letter], 1) for letter in "ndhwo"}
    boxes = up(whole["n"], n) * up(whole["d"], d) * up(whole["w"], w)
    last = whole["h"] - whole["h"] // h * h
    rows = whole["h"] // h * _rows(desc, tile, h, w) + (_rows(desc, tile, last, w) if last else 0)
    blocks = up(whole["o"], o)
    columns = (blocks - 1) * up(o, tile.columns) + up(whole["o"] - (blocks - 1) * o, tile.columns)
    total, high = n * d * boxes * rows, up(whole["h"], h)
    slab = n * _slots(desc, w) * desc["step_w"] * up(desc["c"], tile.group) * tile.group
    for letter, size in zip("dh", (d, h), strict=True):
        slab *= (size - 1) * desc[f"step_{letter}"] + (desc[f"k_{letter}"] - 1) * desc[f"gap_{letter}"] + 1
    time = _TILE * (total // tile.rows) * columns * words
    time += _MOVE[desc["x_c"] == 1] * slab * boxes * high * blocks
    time += _MOVE[desc["y_o"] == 1] * total * columns * tile.columns
    depth = min(words, MATRIX_DEPTH // tile.group)
    held = 4 * n * d * _rows(desc, tile, h, w) * o + 2 * slab + 128 * depth * tile.columns
    if held > _ROOM:
        time *= 1.3
    pieces, work = desc["g"] * boxes * high * blocks, total * columns * tile.columns * words * tile.group
    return time * (1.0 + 0.05 * max(0.0, min(WANTED, work // (4 * GRAIN)) / pieces - 1.0))


def cut_for_tiles(desc: dict[str, int], tile: PlacedAmxTile) -> float:
    """Complete a convolution's descriptor, but for the parts of its steps, and return the estimated time."""
    desc.update(form=POSITIONS, images_inside=0, channels_inside=tile.group, taps_first=1)
    words = up(desc["c"], tile.group) * desc["k_d"] * desc["k_h"] * desc["k_w"]
    best: tuple[float, dict[str, int]] | None = None
    for most in (_POSITIONS, _POSITIONS // 2, _POSITIONS // 4):
        _boxes(desc, tile, most)
        count = 1
        while True:
            desc["block_o"] = max(
                min(up(_even(desc["o"], up(desc["o"], count)), tile.columns) * tile.columns, desc["o"]), 1
            )
            time = _time(desc, tile, max(words, 1))
            if best is None or time < best[0]:
                best = time, {f"block_{letter}": desc[f"block_{letter}"] for letter in "ndhwo"}
            if desc["block_o"] <= tile.columns or count >= 16:
                break
            count *= 2
    assert best is not None
    desc.update(best[1])
    return best[0]


# ***** gradients by the weights *****

_SUMS_STEPS = 1024  # steps in one part, about: the panels of both operands stay in the L2 cache
_SUMS_IMAGES, _SUMS_OUTS = 64, 256  # most images and output channels in one piece
_SUMS_ROOM = 5 << 17  # bytes of sums, and of a slab, in one piece


def cut_sums(desc: dict[str, int], tile: PlacedAmxTile) -> float:
    """The same for a gradient by the weights, with the parts of its steps; infinite for others."""
    whole_rows = desc["w_h"] == desc["k_w"] * desc["w_w"] or desc["k_h"] == 1
    planes = desc["k_d"] == desc["d"] == desc["in_d"] == 1
    many = desc["h"] * desc["w"] <= desc["k_h"] * desc["k_w"]
    if not (planes and whole_rows and many and desc["c"]) or desc["flip"]:
        return inf
    n, o, taps = max(desc["n"], 1), max(desc["o"], 1), desc["h"] * desc["w"]
    images, outs = _even(n, _SUMS_IMAGES), min(up(_even(o, _SUMS_OUTS), tile.columns) * tile.columns, o)
    while 4 * taps * images * outs > _SUMS_ROOM and max(images, outs) > tile.columns:
        if outs > images:
            outs = up(outs // 2, tile.columns) * tile.columns
        else:
            images = up(images // 2, tile.rows) * tile.rows
    desc.update(form=POSITIONS, images_inside=0, channels_inside=0, taps_first=0)
    desc.update(block_n=images, block_d=1, block_h=desc["h"], block_w=desc["w"], block_o=outs)
    most = max(min(_SUMS_STEPS, _SUMS_ROOM // (2 * images * desc["w"])), tile.group)
    parts = {"part_c": 1, "part_d": 1, "part_h": desc["k_h"], "part_w": desc["k_w"]}
    if desc["k_w"] > most:
        parts |= {"part_h": 1, "part_w": _even(desc["k_w"], most)}
    elif desc["k_h"] * desc["k_w"] > most:
        parts["part_h"] = _even(desc["k_h"], most // desc["k_w"])
    else:
        parts["part_c"] = _even(desc["c"], most // (desc["k_h"] * desc["k_w"]))
    desc.update(parts)
    count = 1
    for letter, key in zip("cdhw", ("c", "k_d", "k_h", "k_w"), strict=True):
        desc[f"parts_{letter}"] = max(up(desc[key], desc[f"part_{letter}"]), 1)
        count *= desc[f"parts_{letter}"]
    desc["chunk"], desc["chunks"] = count, 1
    words = count * desc["part_c"] * up(desc["part_h"] * desc["part_w"], tile.group)
    half, blocks_n, blocks_o = tile.rows // 2, up(n, images), up(o, outs)
    rows, columns = blocks_n * up(images, half) * half, blocks_o * up(outs, tile.columns)
    time = _TILE * rows * columns * words / tile.rows * taps
    time += _MOVE[1] * rows * blocks_o * words * tile.group * (desc["w"] + 1) / 2
    time += _MOVE[1] * blocks_n * columns * tile.columns * words * tile.group
    return time + 4.0 * rows * columns * tile.columns * taps
