"""The calls of recurrent layers' kernels: tile, sequences in a piece, and scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cpu.gemm.blas import host_tiles
from rushlight._backends.cpu.launches import Launch, unlocks
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.recurrent.recurrent_cells import backward_cell, forward_cell
from rushlight._backends.cpu.recurrent.recurrent_native import (
    DEPTH,
    LINE,
    Shape,
    make_backward,
    make_forward,
    make_pack_backward,
    make_pack_forward,
    make_shared_forward,
    make_sums,
)
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable
from rushlight._native import jit
from rushlight._native.compiled import compile_native, compile_text
from rushlight._prims.nn.recurrent_cell import GATES, SLOPES, Call, GradCall

__all__ = ["recurrence_call"]

_KINDS = {"float32": "f32", "float64": "f64"}
_MOST_PIECES = 32
_MOST_PARTS = 8  # of a step whose units are shared
_SHARED_BYTES = 1 << 18  # fewest bytes of a weight for which sharing pays
_LOADED: dict[str, Any] = {}
_TILES: dict[tuple[str, int], RegisterTile] = {}


def _tile(kind: str, batch: int) -> RegisterTile:
    """The tile for `batch` sequences: few rows for few sequences, so that several threads have pieces and no rows are
    wasted."""
    usual = host_tiles(kind)[-1]
    rows = next((n for most, n in ((1, 1), (4, 2), (8, 4)) if batch <= most), usual.rows)
    if rows == usual.rows < 8 and 1.1 * _rows_in_pairs(batch, 4) <= _rows_in_pairs(batch, rows):
        rows = 4
    if rows >= usual.rows:
        return usual
    key = (kind, rows)
    if key not in _TILES:
        registers = 16 if usual.rows * usual.vectors >= 16 else 8  # for sums
        _TILES[key] = RegisterTile(
            kind, usual.lanes, rows, min(registers // rows, 8 if registers == 16 else 4), usual.fma
        )
    return _TILES[key]


def _rows_in_pairs(batch: int, rows: int) -> int:
    """Rows that tiles of `rows` compute, in an even number of pieces: two threads take no less time for an odd number."""
    return -(-batch // (2 * rows)) * 2 * rows


class _Constants:
    """The constants of a call: the same descriptor for each of its kernels, after a head of their own."""

    __slots__ = ("nbytes", "parts", "pieces", "words")

    def __init__(self, call: Any, rows: int, shape: Shape, groups: int, keep: bool) -> None:
        """`rows`: of all steps together; `groups`: pieces of the packed weight."""
        way, gates, size = isinstance(call, Call), GATES[shape.mode], shape.real.itemsize
        batch, units = call.h.shape
        chunk = shape.rows * -(-batch // (shape.rows * _MOST_PIECES))
        self.pieces = -(-batch // chunk)
        high = -(-chunk // shape.rows) * shape.rows
        weights = _up(size * units * shape.columns * groups * (shape.panels if way else gates))
        second = _up(size * high * (units if way else DEPTH))  # offset of the rest of a piece's memory
        each = second + _up(size * (high * shape.panels * shape.columns if way else SLOPES[shape.mode] * units))
        enough = call.steps > 1 and size * units * units * gates >= _SHARED_BYTES
        self.parts = min(_MOST_PARTS, groups) if way and batch <= shape.rows and call.sizes is None and enough else 1
        if self.parts > 1:
            second = 2 * second  # the states before a step and after it; then each part's products
            each -= second // 2
        end = weights + (second + each * self.parts if self.parts > 1 else each * self.pieces)
        self.nbytes = end + LINE * (1 + self.parts)
        flags = int(call.reverse), int(call.sizes is not None), int(keep)
        self.words = [
            call.steps,
            batch,
            rows,
            units,
            chunk,
            *flags,
            weights,
            each,
            second,
            self.pieces,
            end,
            self.parts,
        ]

    def ints(self, pieces: int, work: int = 0, sizes: Sequence[int] = ()) -> list[int]:
        """Head and descriptor of a kernel."""
        head = [pieces, int(unlocks(work)), len(sizes), *sizes]
        return head + [0] * (8 - len(head)) + self.words


def recurrence_call(step: ExternStep) -> list[Launch]:
    """The kernels of a `recurrence` or `recurrence_grad`: one packs the weight and allocates the scratch memory of all."""
    kind = _KINDS.get(step.outputs[0].dtype.name)
    if kind is None:
        raise NotImplementedError(f"primitive {step.name!r} has no routine for {step.outputs[0].dtype.name}")
    way = step.name == "recurrence"
    mode, reverse = step.params["mode"], step.params["reverse"]
    extra = not way and step.params["extra"]
    call: Any = Call(step.inputs, mode, reverse) if way else GradCall(step.inputs, mode, reverse, extra)
    batch, units = call.h.shape
    shape = Shape(mode, kind, _tile(kind, batch), host_tiles(kind)[-1], extra, units if way else 0)
    groups = shape.groups(units) if way else -(-units // shape.columns)
    rows = step.outputs[0].shape[0]
    words = _Constants(call, rows, shape, groups, step.params.get("keep", True))
    ints = words.ints(max(words.pieces, words.parts), rows * units * units * GATES[mode], step.sizes)
    pack, main, other = _kernels(shape, way)
    operands = (-1, *range(len(step.inputs)))
    packing = Launch(pack, words.ints(groups, 0, [words.nbytes]), (int(way),), 0)
    if way:
        return [packing, Launch(other if words.parts > 1 else main, ints, operands)]
    return [packing, Launch(main, ints, operands), Launch(other, words.ints(1), (-4, -1))]


def _up(n: int) -> int:
    """`n` rounded up to whole cache lines."""
    return n + 63 & ~63


def _kernels(shape: Shape, way: bool) -> tuple[Callable[..., Any], ...]:
    """The kernels that pack the weight and that run the steps, and a third: forward (`way`) one that shares steps among
    threads, else one that adds the sums of the pieces."""
    key = f"{shape.name} {way}"
    if key not in _LOADED:
        imports = dict(_runtime.runtime().symbols)
        for part in (shape.transposer.panels, shape.tile.panels, shape.tile):
            symbols_of_text = _loaded_text(part.text, part.symbols)
            imports.update({name: symbols_of_text[name] for name in part.symbols})
        cell = shape.mode, shape.tile.kind, shape.lanes, shape.tile.fma
        symbol, text = forward_cell(*cell) if way else backward_cell(*cell, shape.extra)
        imports[symbol] = _loaded_text(text, [symbol])[symbol]
        makers = (
            (make_pack_forward, make_forward, make_shared_forward)
            if way
            else (make_pack_backward, make_backward, make_sums)
        )
        functions = [make(shape) for make in makers]
        loaded = jit.load(compile_native(functions), [f.symbol for f in functions], imports)
        _LOADED.setdefault(key, tuple(make_kernel_callable(loaded[f.symbol], f.symbol, loaded) for f in functions))
    return _LOADED[key]


def _loaded_text(text: str, names: Sequence[str]) -> Any:
    if text not in _LOADED:  # once: other kernels hold its addresses
        _LOADED.setdefault(text, jit.load(compile_text(text), names))
    return _LOADED[text]
