"""Convolutions by Winograd's method as native calls: which ones use it, and their blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from rushlight._backends.cpu.conv.conv import (
    SHORT,
    Work,
    call_ints,
    choose_parts,
    conv_form,
    conv_symbols,
    multiplications,
    packing_launches,
)
from rushlight._backends.cpu.conv.conv_choice import choices_ahead, choose_tiles, tiles_cost, tiles_together
from rushlight._backends.cpu.conv.conv_descriptor import CHANNELS, POSITION_ROWS, POSITIONS, W_BYTES, W, epilogue_layout
from rushlight._backends.cpu.conv.conv_native import ConvForm
from rushlight._backends.cpu.conv.winograd_native import MORE, make_winograd, make_winograd_weights
from rushlight._backends.cpu.epilogue.constants import epilogue_words
from rushlight._backends.cpu.gemm.blas import part_addresses, part_ahead
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.microkernels.winograd import TAPS, Winograd
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime import stubs
from rushlight._base.knobs import Knob
from rushlight._native import jit
from rushlight._native.compiled import compile_named, native_ahead

__all__ = ["WINOGRAD", "winograd_ahead", "winograd_call"]

WINOGRAD: Knob[bool] = Knob(
    "winograd",
    env="RUSHLIGHT_WINOGRAD",
    planned=True,
    kind=bool,
    default=True,
    doc="Whether convolutions of float32 by kernels of 3 x 3 may go by Winograd's method, where it should be faster.",
)

_PLAIN = 1.3  # time of a plain convolution relative to its multiplications
_LOADED: dict[str, jit.Loaded | jit.Image] = {}
_KERNELS: dict[str, Callable[..., Any]] = {}


def winograd_call(step: ExternStep, form: ConvForm | None = None) -> list[Launch] | None:
    """The kernels of a `conv_windows`; None where a plain convolution is faster."""
    x, w, *more = step.inputs
    y = step.outputs[0]
    form = form or conv_form(SHORT[x.dtype.name], SHORT[step.params["dtype"].name])
    if not WINOGRAD.get() or form.name != "f32_f32_f32" or max(step.params["spread"]) > 1:
        return None
    (desc,) = Work(x, w, y, more[0] if more else None, step.params).phases()
    after: list[int] = []
    if step.epilogue is not None:
        after = epilogue_words(len(step.sizes), len(step.inputs), step.epilogue)
        desc |= {"epilogue": epilogue_layout(step.epilogue), "operand": len(step.sizes)}
    if not _fits(desc):
        return None
    tile = _tile(desc["o"], form)
    tiles = _cut(desc, tile)
    if not worth(desc, tiles, tile):
        return None
    channels, panels = desc["c"], -(-desc["o"] // tile.rows)
    each = (4 * channels * tile.rows + 127) // 64 * 64
    transform, convolve, address = _kernels(form, tile)
    operands = range(len(step.inputs) + len(step.words))
    first = [desc["g"] * panels, 1, 1, desc["g"] * TAPS * panels * each, 0, 0, 0, 0, *W.listed(desc)]
    desc["epilogue_at"] = W_BYTES + 8 * len(MORE)
    extra = address, tile.rows, tiles_together(tiles, tile), len(step.sizes) + len(operands)
    second = [*call_ints([tiles], step.sizes), *W.listed(desc), *extra, *after]
    stays = desc if step.params.get("pinned", -1) == 1 else None
    return packing_launches((transform, convolve), first, second, (*operands, -1), stays)


def _fits(desc: dict[str, int]) -> bool:
    """Whether the kernel is 3 x 3 without stride or dilation."""
    plain = all(desc[f"{what}_{letter}"] == 1 for what in ("step", "gap") for letter in "dhw")
    return plain and (desc["k_d"], desc["k_h"], desc["k_w"]) == (1, 3, 3) and min(desc["h"], desc["w"]) > 1


@cache
def _tile(outs: int, form: ConvForm) -> RegisterTile:
    """The register tile whose rows the output channels fill best, with a small cost for each row that is read."""
    first = form.tiles[0]
    rows = min(range(first.rows, first.rows // 2, -1), key=lambda rows: -(-outs // rows) * rows * (1 + 0.3 / rows))
    return first.sized(rows, first.vectors)


def _cut(desc: dict[str, int], tile: RegisterTile) -> dict[str, int]:
    """The descriptor in Winograd tiles; that of the plain convolution is cut the same way."""
    tiles = dict(desc)
    for letter in "hw":
        tiles |= {letter: -(-desc[letter] // 2), f"k_{letter}": 4, f"step_{letter}": 2}
    for letter, size in zip("cdhw", (desc["c"], 1, 4, 4), strict=True):
        tiles |= {f"part_{letter}": size, f"parts_{letter}": 1}
    tiles |= {
        "form": CHANNELS,
        "images_inside": 0,
        "chunk": 1,
        "chunks": 1,
        "flip": 0,
        "taps_first": 0,
        "block_d": 1,
        "block_w": tiles["w"],
    }
    choose_tiles(tiles, tile)
    for letter in "ndhwo":
        tiles[f"blocks_{letter}"] = -(-tiles[letter] // tiles[f"block_{letter}"])
    choose_parts(desc)
    for letter, times in zip("ndhwo", (1, 1, 2, 2, 1), strict=True):
        desc |= {f"block_{letter}": times * tiles[f"block_{letter}"], f"blocks_{letter}": tiles[f"blocks_{letter}"]}
    # positions as rows where the epilogue takes them so
    desc |= {
        "form": POSITIONS if desc["epilogue"] == POSITION_ROWS else CHANNELS,
        "images_inside": 0,
        "pieces": tiles["blocks_o"] * tiles["g"],
    }
    for letter in "ndhw":
        desc["pieces"] *= tiles[f"blocks_{letter}"]
    return tiles


def worth(desc: dict[str, int], tiles: dict[str, int], tile: RegisterTile) -> bool:
    """Whether it should be faster than a plain convolution by a tenth or more."""
    plain = _PLAIN * multiplications(desc) / tile.lanes
    weights = 320 * desc["g"] * desc["c"] * desc["o"] / tile.lanes
    return plain > 1.1 * (desc["g"] * tiles_cost(tiles, tile) + weights)


@cache
def _kernels(form: ConvForm, tile: RegisterTile) -> tuple[Callable[..., Any], Callable[..., Any], int]:
    """The callables that transform weights and that convolve, and the address of the tile."""
    symbols = dict(conv_symbols(form))
    for part in (Winograd(tile.lanes, tile.rows), tile, tile.panels):
        symbols |= part_addresses(part)
    kernels, tiles = [], " ".join(t.key for t in (tile, *form.tiles))
    for function in (make_winograd_weights(form, tile), make_winograd(form)):
        key = f"{function.symbol} {tile.lanes} {tile.vectors}"
        if key not in _KERNELS:
            loaded = _loaded(
                key,
                (function.symbol,),
                partial(compile_named, f"{key} {tiles}", partial(list, [function]), "quick"),
                symbols,
            )
            _KERNELS.setdefault(key, stubs.make_kernel_callable(loaded[function.symbol], function.symbol))
        kernels.append(_KERNELS[key])
    return kernels[0], kernels[1], symbols[tile.symbol]


def winograd_ahead(outs: int, form: ConvForm) -> None:
    """Let workers compile what `winograd_call` will be asked for with so many output channels."""
    if WINOGRAD.get() and form.name == "f32_f32_f32":
        _ahead(form, _tile(outs, form))


@cache
def _ahead(form: ConvForm, tile: RegisterTile) -> None:
    choices_ahead(True)
    for part in (Winograd(tile.lanes, tile.rows), tile, tile.panels):
        part_ahead(part)
    for function in (make_winograd_weights(form, tile), make_winograd(form)):
        native_ahead([function], opt="quick")


def _loaded(
    key: str, names: Sequence[str], compile_: Callable[[], bytes], imports: dict[str, int]
) -> jit.Loaded | jit.Image:
    if key not in _LOADED:
        _LOADED.setdefault(key, jit.load(compile_(), names, imports))
    return _LOADED[key]
