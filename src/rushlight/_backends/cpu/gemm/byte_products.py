"""Products of bytes whose rows are windows, read in place: which blocks and pieces they are computed in.

A piece is a range of columns (output channels) and a range of rows (positions).  It packs its columns' weights once.
On processors with matrix tiles for bytes (Intel AMX) it packs the windows of one block after another, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.epilogue.constants import epilogue_words
from rushlight._backends.cpu.gemm.byte_products_native import (
    D,
    make_byte_product,
    make_dot_product,
    make_matrix_product,
)
from rushlight._backends.cpu.gemm.byte_windows import MOST_DIMS, WORD
from rushlight._backends.cpu.gemm.choice import amx_works
from rushlight._backends.cpu.launches import Launch, unlocks
from rushlight._backends.cpu.microkernels.amx_tile import PlacedAmxTile
from rushlight._backends.cpu.microkernels.byte_tile import ByteTile
from rushlight._backends.cpu.microkernels.dot_tile import DotTile, has_byte_dots
from rushlight._backends.cpu.microkernels.padded_rows import PaddedRows
from rushlight._backends.cpu.microkernels.panels import Panels
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime import stubs
from rushlight._native import jit
from rushlight._native.compiled import compile_named, compile_text
from rushlight._native.target import TargetDescription, host_target
from rushlight._types.layout import numel

__all__ = ["byte_product_call", "dot_tile"]

PANELS_BYTES = 160 << 10  # of packed weights of a piece: they stay in the L2 cache
PART_BYTES = 1 << 14  # of a panel in one part of the sum: it stays in the L1 cache
BLOCK = 96  # rows of a block of sums
CHUNK, CHUNKS = 192, 8  # rows of a piece, at least, and pieces of all rows, at most
TILES = (ByteTile("u7"), ByteTile("u7x2"), ByteTile("i16"))
DOTS = {64: DotTile(16), 32: DotTile(8)}  # by bytes of a vector
FEW = 32  # rows from which on weights are looked at
ROOM = 16  # words of a panel for each that may be set apart
MATRIX = PlacedAmxTile("amx_i8", "tdpbusd")
MATRIX_ROWS = 16  # least rows for matrix tiles
MATRIX_PANELS = 1 << 20  # bytes of packed weights of a piece by matrix tiles
MATRIX_BLOCK, MATRIX_BLOCKS = 192 << 10, (64, 512)  # bytes of packed windows in a block, and its least and most rows
MATRIX_PART = 16  # words of 64 bytes in one part of the sum
MATRIX_CHUNK = 512  # rows of a piece by matrix tiles, at least: its weights are packed once
IN_PLACE_WORDS, IN_PLACE_OUTS = 20, 128  # most words and columns of windows that matrix tiles read in place
LINE = 64
_PANELS, _LINES = Panels(4, 1, 8), Panels(4, 1, 16)  # of vectors, of matrix tiles: a cache line at once
_KERNELS: dict[str, Callable[..., Any]] = {}
_KEPT: list[Any] = []  # loaded code that the kernel calls


def dot_tile(target: TargetDescription) -> DotTile | None:
    """The tile around an instruction for four products of bytes; None on machines without it."""
    return DOTS[target.vector_bytes] if has_byte_dots(target) else None


def _kernel(symbol: str) -> Callable[..., Any]:
    if symbol not in _KERNELS:
        imports, dot = dict(_runtime.runtime().symbols), dot_tile(host_target())
        panels, tiles, make = _PANELS, TILES, lambda: make_byte_product(TILES, panels)
        if symbol == "rl_matrix_product":
            panels, tiles, make = _LINES, (MATRIX, PaddedRows(1)), lambda: make_matrix_product(MATRIX, panels)
        elif dot is not None:
            tiles, make = (dot,), lambda: make_dot_product(dot, panels)
        for part in (panels, *tiles):
            loaded = jit.load(compile_text(part.text), part.symbols)
            imports |= {name: loaded[name] for name in part.symbols}
            _KEPT.append(loaded)
        name = f"byte product {' '.join(tile.symbol for tile in tiles)}"
        loaded = jit.load(compile_named(name, lambda: [make()]), [symbol], imports)
        _KERNELS[symbol] = stubs.make_kernel_callable(loaded[symbol], symbol, loaded)
    return _KERNELS[symbol]


def _windows(x: tuple[int, ...], w: tuple[int, ...], params: dict[str, Any]) -> dict[str, int]:
    """What a descriptor says of the windows of x and of the weights."""
    n = len(params["size"])
    fill = (1,) * (MOST_DIMS - n)
    steps = [numel(x[d + 1 :]) for d in range(n + 1)]
    counts = (x[0], *fill, *params["positions"])
    moves = (steps[0], *fill, *(s * step for s, step in zip(steps[1:], params["stride"], strict=True)))
    taps = (*fill, *params["size"])[: MOST_DIMS - 1]
    gaps = (*fill, *(s * gap for s, gap in zip(steps[1:], params["dilation"], strict=True)))[: MOST_DIMS - 1]
    if counts[-1] == 1:  # the last dim are channels: lines are of positions before
        counts, moves = (counts[0], 1, *counts[1:-1]), (moves[0], 0, *moves[1:-1])
    return {
        "outs": w[0], "depth": w[1], "rows": numel(counts), "count_1": counts[1], "count_2": counts[2], "count_3": counts[3],
        "move_n": moves[0], "move_1": moves[1], "move_2": moves[2], "move_3": moves[3],
        "taps_1": taps[0], "taps_2": taps[1], "gap_1": gaps[0], "gap_2": gaps[1],
    }  # fmt: skip


def _cut_in_place(desc: dict[str, int], run: int) -> None:
    """Complete the descriptor of a product whose windows are read in place, in runs of `run` bytes."""
    dot, split = dot_tile(host_target()), 1
    columns = TILES[0].columns if dot is None else dot.columns
    part_words = PART_BYTES // (4 * columns)
    words = -(-run // WORD) * (WORD // 4)
    if run % WORD == 0 and words > part_words:
        split = next(d for d in range(2, words + 1) if words % (2 * d) == 0 and words // d <= part_words)
        run, words = run // split, words // split
    segments = desc["taps_1"] * desc["taps_2"] * split
    desc |= {"segments": segments, "split": split, "words": words, "run": run, "part": max(1, part_words // words)}
    desc |= {
        "block": BLOCK,
        "room": segments * words // ROOM if desc["rows"] >= FEW and dot is None else 0,
        "nbytes": 0,
    }
    _divide(desc, columns, PANELS_BYTES, CHUNK)


def _cut_for_matrix(desc: dict[str, int], run: int, nbytes: int) -> None:
    """Complete the descriptor of a product by matrix tiles.  x has `nbytes`, windows are runs of `run` of them.

    Windows are packed, unless they serve few columns, their runs are whole words, and lines of positions nearly fill
    tiles.
    """
    depth, wide, half = desc["depth"], desc["count_3"], MATRIX.rows // 2
    words = -(-depth // LINE)
    least, most = MATRIX_BLOCKS
    block = max(least, min(most, MATRIX_BLOCK // (LINE * words))) // MATRIX.rows * MATRIX.rows
    filled = 8 * wide >= 7 * (-(-wide // half) * half)
    in_place = run % LINE == 0 and words <= IN_PLACE_WORDS and desc["outs"] <= IN_PLACE_OUTS and filled
    if in_place and wide < block:
        block = block // wide * wide
    desc |= {"segments": 1, "split": 1, "words": LINE // 4 * words, "run": depth, "part": MATRIX_PART}
    desc |= {"block": block, "room": 0, "nbytes": nbytes if in_place else 0}
    _divide(desc, MATRIX.columns, MATRIX_PANELS, MATRIX_CHUNK)


def _divide(desc: dict[str, int], columns: int, nbytes: int, least: int) -> None:
    """Choose the pieces: of so many bytes of packed weights, in panels of `columns`, and of whole blocks of at least
    so many rows."""
    outs, rows, block = desc["outs"], desc["rows"], desc["block"]
    group = min(-(-outs // columns), max(1, nbytes // (4 * desc["segments"] * desc["words"] * columns))) * columns
    groups = -(-outs // group)
    group = -(-outs // (groups * columns)) * columns
    chunk = max(-(-least // block), -(-rows // (CHUNKS * block))) * block
    desc |= {"group": group, "groups": -(-outs // group), "chunk": chunk}


def byte_product_call(step: ExternStep) -> list[Launch]:
    """The kernel of a `window_dot`."""
    x, w = step.inputs
    desc = _windows(x.shape, w.shape, step.params)
    matrix = desc["rows"] >= MATRIX_ROWS and amx_works("amx_i8")
    if matrix:
        _cut_for_matrix(desc, step.params["size"][-1], numel(x.shape))
        symbol = "rl_matrix_product"
    else:
        _cut_in_place(desc, step.params["size"][-1])
        symbol = "rl_byte_product" if dot_tile(host_target()) is None else "rl_dot_product"
    desc |= {"operand": len(step.sizes), "epilogue": 8 * len(D) if step.epilogue is not None else 0}
    pieces, work = desc["groups"] * -(-desc["rows"] // desc["chunk"]), desc["rows"] * desc["outs"] * desc["depth"]
    head = [pieces, int(unlocks(work=work)), len(step.sizes), *step.sizes]
    ints = head + [0] * (8 - len(head)) + list(D.listed(desc))
    if step.epilogue is not None:
        ints += epilogue_words(len(step.sizes), 2, step.epilogue)
    return [Launch(_kernel(symbol), ints, range(2 + len(step.words)))]
