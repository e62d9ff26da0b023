"""How programs call the kernels of recurrent layers: which tile, how many sequences in a piece, and the memory to work in."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cpu import jit
from rushlight._backends.cpu import runtime as _runtime
from rushlight._backends.cpu.blas import host_tiles
from rushlight._backends.cpu.recurrent_cells import backward_cell, forward_cell
from rushlight._backends.cpu.recurrent_native import (
    DEPTH,
    Shape,
    make_backward,
    make_forward,
    make_pack_backward,
    make_pack_forward,
)
from rushlight._backends.cpu.stubs import make_kernel_callable
from rushlight._kernels.program import ExternStep
from rushlight._kernels.register_tile import RegisterTile
from rushlight._prims.recurrent import GATES, Call, GradCall

__all__ = ["recurrence_call"]

_KINDS = {"float32": "f32", "float64": "f64"}
_MOST_PIECES = 32
_GIL_WORK = 1 << 21  # multiplications from which other Python threads may run meanwhile
_LOADED: dict[str, Any] = {}
_TILES: dict[tuple[str, int], RegisterTile] = {}


def _tile(kind: str, batch: int) -> RegisterTile:
    """The tile for this many sequences: few rows waste no multiplications where a few sequences are all there is."""
    usual = host_tiles(kind)[-1]
    if batch >= usual.rows or batch > 4:
        return usual
    rows = 1 if batch == 1 else 4
    key = (kind, rows)
    if key not in _TILES:
        many = usual.rows * usual.vectors >= 16  # registers enough
        vectors = (8 if rows == 1 else 4) if many else (4 if rows == 1 else 2)
        _TILES[key] = RegisterTile(kind, usual.lanes, rows, vectors, usual.fma)
    return _TILES[key]


def recurrence_call(step: ExternStep) -> tuple[Callable[..., Any], list[int] | None, Sequence[int]]:
    """The call of a `recurrence` or `recurrence_grad`."""
    kind = _KINDS.get(step.outputs[0].dtype.name)
    if kind is None:
        raise NotImplementedError(f"primitive {step.name!r} has no routine for {step.outputs[0].dtype.name}")
    way = step.name == "recurrence"
    mode, reverse = step.params["mode"], step.params["reverse"]
    call: Any = Call(step.inputs, mode, reverse) if way else GradCall(step.inputs, mode, reverse, False)
    batch, units = call.h.shape
    total = step.outputs[0].shape[0]
    shape = Shape(mode, kind, _tile(kind, batch), host_tiles(kind)[-1])
    tiles = -(-batch // shape.rows)
    chunk = shape.rows * -(-tiles // _MOST_PIECES)
    pieces = -(-batch // chunk)
    pack, main = _kernels(shape, way)
    size = shape.real.itemsize
    groups = shape.groups(units) if way else -(-units // shape.columns)
    weights = size * units * shape.columns * groups * (shape.panels if way else GATES[mode])
    rows = -(-chunk // shape.rows) * shape.rows
    product = _up(size * rows * (units if way else DEPTH))
    each = product + (_up(size * rows * shape.panels * shape.columns) if way else 0)
    weights = _up(weights)
    work = total * units * units * GATES[mode]
    words = [call.steps, batch, total, units, chunk, int(reverse), int(call.sizes is not None), int(step.params.get("keep", True)), weights, each, product]
    head = [pieces, int(work > _GIL_WORK), len(step.sizes), *step.sizes]
    ints = head + [0] * (8 - len(head)) + words
    packing = array("q", [groups, 0, 0, 0, 0, 0, 0, 0, *words])
    alloc, nbytes, place = _runtime.runtime().alloc, weights + each * pieces, packing.buffer_info()[0]
    at = 1 if way else 0  # of the weight

    def run(ints: int, *operands: Any) -> Any:
        memory = alloc(nbytes)
        pack(place, memory, operands[at])
        return main(ints, memory, *operands)

    run.keep = packing  # type: ignore[attr-defined]
    return run, ints, [o.place for o in step.inputs]


def _up(n: int) -> int:
    """A whole number of cache lines."""
    return n + 63 & ~63


def _kernels(shape: Shape, way: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The kernels that pack the weight, and that run through the steps (`way`: forward)."""
    key = f"{shape.name} {way}"
    if key not in _LOADED:
        imports = dict(_runtime.runtime().symbols)
        for tile in (shape.turner, shape.tile):
            names = [tile.symbol, tile.turn_symbol]
            found = _loaded_text(tile.text, names)
            imports.update({name: found[name] for name in names})
        symbol, text = (forward_cell if way else backward_cell)(shape.mode, shape.tile.kind, shape.lanes, shape.tile.fma)
        imports[symbol] = _loaded_text(text, [symbol])[symbol]
        functions = [make_pack_forward(shape), make_forward(shape)] if way else [make_pack_backward(shape), make_backward(shape)]
        loaded = jit.load(_runtime.compile_native(functions), [f.symbol for f in functions], imports)
        _LOADED.setdefault(key, tuple(make_kernel_callable(loaded[f.symbol], f.symbol, loaded) for f in functions))
    return _LOADED[key]  # type: ignore[no-any-return]


def _loaded_text(text: str, names: Sequence[str]) -> Any:
    if text not in _LOADED:  # once: other kernels hold its addresses alone
        _LOADED.setdefault(text, jit.load(_runtime.compile_text(text), names))
    return _LOADED[text]
