"""Products of bytes whose rows are windows, read in place: which blocks and pieces they are computed in.

A piece is a range of columns (output channels) and a range of rows (positions).  It packs its columns' weights once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.epilogue.constants import epilogue_words
from rushlight._backends.cpu.gemm.byte_products_native import D, make_byte_product, make_dot_product
from rushlight._backends.cpu.gemm.byte_windows import MOST_DIMS, WORD
from rushlight._backends.cpu.launches import Launch, unlocks
from rushlight._backends.cpu.microkernels.byte_tile import ByteTile
from rushlight._backends.cpu.microkernels.dot_tile import DotTile, has_byte_dots
from rushlight._backends.cpu.microkernels.panels import Panels
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime import stubs
from rushlight._native import jit
from rushlight._native.compiled import compile_named, compile_text
from rushlight._native.function import NativeFunction
from rushlight._native.target import TargetDescription, host_target
from rushlight._types.layout import numel

__all__ = ["byte_product_call", "byte_product_ints", "dot_tile"]

PANELS_BYTES = 160 << 10  # of packed weights of a piece: they stay in the L2 cache
PART_BYTES = 1 << 14  # of a panel in one part of the sum: it stays in the L1 cache
BLOCK = 96  # rows of a block of sums
CHUNK, CHUNKS = 192, 8  # rows of a piece, at least, and pieces of all rows, at most
TILES = (ByteTile("u7"), ByteTile("u7x2"), ByteTile("i16"))
DOTS = {64: DotTile(16), 32: DotTile(8)}  # by bytes of a vector
FEW = 32  # rows from which on weights are looked at
ROOM = 16  # words of a panel for each that may be set apart
_PANELS = Panels(4, 1, 8)
_KERNEL: list[Callable[..., Any]] = []
_KEPT: list[Any] = []  # loaded code that the kernel calls


def dot_tile(target: TargetDescription) -> DotTile | None:
    """The tile around an instruction for four products of bytes; None on machines without it."""
    return DOTS[target.vector_bytes] if has_byte_dots(target) else None


def _kernel() -> Callable[..., Any]:
    if not _KERNEL:
        imports, dot = dict(_runtime.runtime().symbols), dot_tile(host_target())
        tiles = TILES if dot is None else (dot,)
        for part in (_PANELS, *tiles):
            loaded = jit.load(compile_text(part.text), part.symbols)
            imports |= {name: loaded[name] for name in part.symbols}
            _KEPT.append(loaded)

        def make() -> NativeFunction:
            return make_byte_product(TILES, _PANELS) if dot is None else make_dot_product(dot, _PANELS)

        name = f"byte product {' '.join(tile.symbol for tile in tiles)}"
        symbol = "rl_byte_product" if dot is None else "rl_dot_product"
        loaded = jit.load(compile_named(name, lambda: [make()]), [symbol], imports)
        _KERNEL.append(stubs.make_kernel_callable(loaded[symbol], symbol, loaded))
    return _KERNEL[0]


def byte_product_ints(
    x: tuple[int, ...], w: tuple[int, ...], params: dict[str, Any], sizes: list[int], after: int
) -> list[int]:
    """The constants of a call for operands of these shapes, without those of an epilogue."""
    n, dot = len(params["size"]), dot_tile(host_target())
    outs, depth = w
    columns = TILES[0].columns if dot is None else dot.columns
    part_words = PART_BYTES // (4 * columns)
    fill = (1,) * (MOST_DIMS - n)
    steps = [numel(x[d + 1 :]) for d in range(n + 1)]
    counts = (x[0], *fill, *params["positions"])
    moves = (steps[0], *fill, *(s * step for s, step in zip(steps[1:], params["stride"], strict=True)))
    taps = (*fill, *params["size"])[: MOST_DIMS - 1]
    gaps = (*fill, *(s * gap for s, gap in zip(steps[1:], params["dilation"], strict=True)))[: MOST_DIMS - 1]
    run, split = params["size"][-1], 1
    words = -(-run // WORD) * (WORD // 4)
    if run % WORD == 0 and words > part_words:
        split = next(d for d in range(2, words + 1) if words % (2 * d) == 0 and words // d <= part_words)
        run, words = run // split, words // split
    segments, rows = numel(taps) * split, numel(counts)
    group = min(-(-outs // columns), max(1, PANELS_BYTES // (4 * segments * words * columns))) * columns
    groups = -(-outs // group)
    group = -(-outs // (groups * columns)) * columns
    chunk = max(CHUNK, -(-rows // (CHUNKS * BLOCK)) * BLOCK)
    desc = {
        "outs": outs, "depth": depth, "rows": rows, "group": group, "groups": -(-outs // group), "chunk": chunk, "block": BLOCK,
        "segments": segments, "split": split, "words": words, "run": run, "part": max(1, part_words // words),
        "count_1": counts[1], "count_2": counts[2], "count_3": counts[3],
        "move_n": moves[0], "move_1": moves[1], "move_2": moves[2], "move_3": moves[3],
        "taps_1": taps[0], "taps_2": taps[1], "gap_1": gaps[0], "gap_2": gaps[1], "room": segments * words // ROOM if rows >= FEW and dot is None else 0,
        "operand": len(sizes), "epilogue": after,
    }  # fmt: skip
    pieces = desc["groups"] * -(-rows // chunk)
    head = [pieces, int(unlocks(work=rows * outs * depth)), len(sizes), *sizes]
    return head + [0] * (8 - len(head)) + list(D.listed(desc))


def byte_product_call(step: ExternStep) -> list[Launch]:
    """The kernel of a `window_dot`."""
    x, w = step.inputs
    has_epilogue = step.epilogue is not None
    ints = byte_product_ints(x.shape, w.shape, step.params, step.sizes, 8 * len(D) if has_epilogue else 0)
    if step.epilogue is not None:
        ints += epilogue_words(len(step.sizes), 2, step.epilogue)
    return [Launch(_kernel(), ints, range(2 + len(step.words)))]
