"""Attention as calls of programs: the layout of constants, and kernels for the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from struct import pack, unpack
from typing import Any

from rushlight._backends.cpu.attention.attention_grad_native import (
    GRAD_SLOTS,
    STRETCH,
    block_queries,
    make_attention_grad,
    make_collect,
)
from rushlight._backends.cpu.attention.attention_native import MASK_KINDS, SLOTS, Blocks, Parts, make_attention
from rushlight._backends.cpu.gemm.blas import host_tiles, part_addresses, part_ahead
from rushlight._backends.cpu.gemm.choice import amx_works
from rushlight._backends.cpu.launches import Launch, unlocks
from rushlight._backends.cpu.microkernels.amx_tile import AmxTile
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.program.steps import ExternStep, Operand
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable
from rushlight._native import jit
from rushlight._native.compiled import compile_named, native_ahead
from rushlight._types.dtype import BFLOAT16, BOOL, FLOAT64, DType
from rushlight._types.layout import numel

__all__ = ["attention_call", "attention_grad_call", "grad_division", "routine_address", "routine_ahead"]

_PIECES = 16  # wanted pieces, as long as they are worth it
_GRAD_PIECES = 8  # the same for the derivative, where more pieces a head take memory
_FEWEST = 128  # fewest keys of a head worth a piece of their own
_QUERIES = 512  # most queries in one piece: then packing the keys for each piece costs little
_KERNELS: dict[tuple[str, str, str], Callable[..., Any]] = {}
_LOADED: dict[str, Any] = {}


def _tile(dtype: DType) -> RegisterTile | AmxTile:
    """Matrix tiles where they work; else the register tile whose rows divide common widths, with an instruction for its
    words."""
    if dtype is BFLOAT16 and host_tiles("bf16")[-1].instruction:
        if amx_works("amx_bf16"):
            return AmxTile("amx_bf16", "tdpbf16ps", held=True)
        return host_tiles("bf16")[-1]
    return host_tiles("f64" if dtype is FLOAT64 else "f32")[-1]


def _kernel(which: str, dtype: DType) -> Callable[..., Any]:
    """The callable of a routine for operands of a dtype."""
    tile = _tile(dtype)
    key = which, dtype.name, tile.key
    kernel = _KERNELS.get(key)
    if kernel is None:
        address = routine_address(which, dtype, tile)
        kernel = _KERNELS[key] = make_kernel_callable(address, f"{which}_{dtype.name}")
    return kernel


def routine_address(which: str, dtype: DType, tile: RegisterTile | AmxTile) -> int:
    """The address of a routine ("attention", ...) around a tile."""
    parts = Parts(dtype, tile)
    key = " ".join([which, dtype.name, *(part.key for part in parts.needs)])
    if key not in _LOADED:
        imports = dict(_runtime.runtime().symbols)
        for part in parts.needs:
            imports.update(part_addresses(part))
        data = compile_named(key, lambda: [_ROUTINES[which](parts)], opt="quick")
        _LOADED.setdefault(key, jit.load(data, [f"rl_{which}"], imports))
    return int(_LOADED[key][f"rl_{which}"])


@cache
def routine_ahead(which: str, dtype: DType) -> None:
    """Let workers compile what `routine_address` will be asked for."""
    parts = Parts(dtype, _tile(dtype))
    for part in parts.needs:
        part_ahead(part)
    native_ahead([_ROUTINES[which](parts)], opt="quick")


def _lead(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[int]:
    """Rows (size, strides of each operand) of the leading dims; dims that are contiguous in all operands are merged."""
    rows: list[list[int]] = []
    for d, size in enumerate(shape):
        if size == 1:
            continue
        steps = [s[d] for s in strides]
        if rows and all(outer == inner * size for outer, inner in zip(rows[-1][1:], steps, strict=True)):
            rows[-1] = [rows[-1][0] * size, *steps]
        else:
            rows.append([size, *steps])
    return [len(rows), *[word for row in rows for word in row]]


def _head(pieces: int, work: int, sizes: Sequence[int]) -> list[int]:
    head = [pieces, int(unlocks(work)), len(sizes), *sizes]
    return head + [0] * (8 - len(head))


def _masking(mask: Operand | None, causal: bool) -> int:
    if mask is None:
        return MASK_KINDS["causal" if causal else "plain"]
    return MASK_KINDS["pick" if mask.dtype is BOOL else "add"]


def _scale(value: float) -> int:
    bits: int = unpack("<q", pack("<d", value))[0]
    return bits


def _strides(named: dict[str, Operand | None]) -> dict[str, int]:
    """The last two strides of each operand."""
    fields = {}
    for name, x in named.items():
        fields[f"{name}_row"], fields[f"{name}_col"] = x.strides[-2:] if x is not None else (0, 0)
    return fields


def attention_call(step: ExternStep) -> list[Launch]:
    """The kernel of `attention`."""
    q, k, v, *more = step.inputs
    named = {"q": q, "k": k, "v": v, "mask": more[0] if more else None, "out": step.outputs[0]}
    *batch, queries, width = q.shape
    keys, depth, heads = k.shape[-2], v.shape[-1], numel(batch)
    block = _QUERIES
    while block > 32 and heads * -(-queries // block) < _PIECES:
        block //= 2
    columns = _tile(q.dtype).columns
    block = -(-min(block, queries) // columns) * columns
    dims, *table = _lead(batch, [x.strides[:-2] if x is not None else (0,) * len(batch) for x in named.values()])
    row = {
        "queries": queries, "keys": keys, "width": width, "depth": depth, "scale": _scale(step.params["scale"]),
        "masking": _masking(named["mask"], step.params["causal"]), "block": block, "heads": heads, "dims": dims, **_strides(named),
    }  # fmt: skip
    work = heads * queries * keys * (width + depth)
    ints = [*_head(heads * -(-queries // block), work, step.sizes), *[row[name] for name in SLOTS], *table]
    return [Launch(_kernel("attention", q.dtype), ints, range(len(step.inputs)))]


def grad_division(q: Any, k: Any) -> tuple[int, int, bool]:
    """How the derivative divides the keys of a head: keys of a part, parts, and whether each part has sums of its own for
    the queries, which are added at the end.
    """
    heads, keys, steps = numel(q.shape[:-2]), k.shape[-2], Blocks(_tile(q.dtype)).steps
    wanted = max(1, min(-(-_GRAD_PIECES // heads), keys // _FEWEST))
    span = -(-keys // (wanted * steps)) * steps
    parts = -(-keys // span)
    return span, parts, parts > 1 or span > -(-STRETCH // steps) * steps


def attention_grad_call(step: ExternStep) -> list[Launch]:
    """The kernels of `attention_grad`: where keys are divided, one more adds the parts' sums for the queries."""
    ct, q, k, v, _, _, *more = step.inputs
    named = {"ct": ct, "q": q, "k": k, "v": v, "mask": more[0] if more else None}
    named |= dict(zip(("dq", "dk", "dv"), step.outputs, strict=True))
    *batch, queries, width = q.shape
    keys, depth, heads = k.shape[-2], v.shape[-1], numel(batch)
    tile = _tile(q.dtype)
    span, parts, own = grad_division(q, k)
    dims, *table = _lead(batch, [x.strides[:-2] if x is not None else (0,) * len(batch) for x in named.values()])
    row = {
        "queries": queries, "keys": keys, "width": width, "depth": depth, "scale": _scale(step.params["scale"]),
        "masking": _masking(named["mask"], step.params["causal"]), "span": span, "heads": heads, "dims": dims, "parts": parts, "own": int(own),
        "first": 3 + own, **_strides(named),
    }  # fmt: skip
    constants = [*[row[name] for name in GRAD_SLOTS], *table]
    work = heads * queries * keys * (width + depth)
    kernel, operands = _kernel("attention_grad", q.dtype), range(len(step.inputs))
    if not own:
        return [Launch(kernel, [*_head(parts * heads, work, step.sizes), *constants], operands)]
    room = (
        parts
        * heads
        * (-(-queries // tile.columns) * tile.columns)
        * (-(-width // tile.rows) * tile.rows)
        * q.dtype.wide.itemsize
    )
    ints = [*_head(parts * heads, work, [*step.sizes, room]), *constants]
    last = [*_head(heads * -(-queries // block_queries(tile.columns)), work, []), *constants]
    return [Launch(kernel, ints, operands, 3), Launch(_kernel("attention_collect", q.dtype), last, (-1, -4))]


_ROUTINES: dict[str, Callable[[Parts], Any]] = {
    "attention": make_attention,
    "attention_grad": make_attention_grad,
    "attention_collect": make_collect,
}
