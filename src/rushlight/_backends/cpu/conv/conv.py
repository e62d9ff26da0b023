"""Convolutions as native calls: the blocking of the work, from sizes and layouts alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import gcd, inf, prod
from typing import Any

from rushlight._backends.cpu.conv.conv_choice import DEPTH, GRAIN, PLACED_DEPTH, WANTED, choices_ahead, choose_blocks
from rushlight._backends.cpu.conv.conv_descriptor import NO_EPILOGUE, POSITIONS, W_BYTES, W, epilogue_layout
from rushlight._backends.cpu.conv.conv_native import (
    ConvForm,
    make_conv,
    make_loops,
    make_pack_all,
    make_sum_chunks,
    make_sum_run,
)
from rushlight._backends.cpu.conv.matrix_sums_native import SumsForm, make_matrix_sums
from rushlight._backends.cpu.conv.matrix_tiles import MATRIX_DEPTH, MATRIX_GRAIN, cut_for_tiles, cut_sums, matrix_forms
from rushlight._backends.cpu.conv.matrix_tiles_native import MatrixForm, make_matrix_conv, make_matrix_pack
from rushlight._backends.cpu.epilogue.constants import epilogue_words
from rushlight._backends.cpu.gemm.blas import host_tiles, part_addresses, part_ahead
from rushlight._backends.cpu.launches import Launch, PinnedWords, unlocks
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.pinned_native import LEAD
from rushlight._backends.cpu.program.steps import ExternStep, Operand
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime import stubs
from rushlight._native import jit
from rushlight._native.compiled import compile_named, compile_native, compile_text, native_ahead, text_ahead
from rushlight._native.function import NativeFunction

__all__ = [
    "SHORT",
    "Work",
    "call_ints",
    "choose_parts",
    "conv_call",
    "conv_ahead",
    "conv_form",
    "conv_kernel",
    "conv_symbols",
    "multiplications",
    "packing_launches",
]

SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
_FEW_TAPS = 128  # most taps of a kernel over one channel that are read in place
_LINE = 16  # packed words of channels taken together where there are many: a cache line
_PACK_WORK = 1 << 22  # fewest multiplications for which weights are packed once for all pieces
_LOADED: dict[str, jit.Loaded | jit.Image] = {}
_SYMBOLS: dict[str, dict[str, int]] = {}
_KERNELS: dict[str, Callable[..., Any]] = {}


# ***** kernels *****


@cache
def conv_form(source: str, target: str) -> ConvForm:
    """The register tiles for operands of dtype `source` (`f32`, `f64`, `f16`, `bf16`) and results of dtype `target` on
    this machine."""
    tiles = host_tiles("bf16") if source == "bf16" else ()
    if not tiles or not tiles[0].instruction:  # without a pair instruction, operands are widened once, in the slab
        tiles = host_tiles("f64" if source == "f64" else "f32")
    return ConvForm(tiles, source, target)


@cache
def conv_ahead(form: ConvForm) -> None:
    """Let workers compile what `conv_symbols` will be asked for."""
    choices_ahead(False)
    for part in form.parts:
        part_ahead(part)
    for move in form.moves:
        text_ahead(move.text)
    native_ahead(_kernels_of(form), opt="quick")
    native_ahead(make_loops(form))
    native_ahead([make_sum_run(_sums_of(form), form.target)])
    native_ahead([make_sum_chunks(_sums_of(form), form.target)], opt="quick")


def _kernels_of(form: ConvForm) -> list[NativeFunction]:
    """The kernels that convolve, and that pack weights."""
    if isinstance(form, SumsForm):
        return [make_matrix_sums(form)]
    if isinstance(form, MatrixForm):
        return [make_matrix_conv(form), make_matrix_pack(form)]
    return [make_conv(form), make_pack_all(form)]


def _sums_of(form: ConvForm) -> str:
    """The kind of the sums of chunks."""
    return "f64" if form.kind == "f64" else "f32"


def conv_symbols(form: ConvForm) -> dict[str, int]:
    """The addresses of a form's kernel and of everything that it calls."""
    key = f"{form.name} {' '.join(t.key for t in form.tiles)}"
    if key not in _SYMBOLS:
        imports = dict(_runtime.runtime().symbols)
        loops, kernels = make_loops(form), _kernels_of(form)
        native_ahead(kernels, opt="quick")
        native_ahead(loops)
        for part in form.parts:
            imports.update(part_addresses(part))
        for move in form.moves:
            text, symbol = move.text, move.symbol
            if text not in _LOADED:
                _LOADED.setdefault(text, jit.load(compile_text(text), [symbol]))
            imports[symbol] = _LOADED[text][symbol]
        name = f"loops {key}"
        if name not in _LOADED:
            symbols = [loop.symbol for loop in loops]
            _LOADED.setdefault(name, jit.load(compile_named(f"conv {name}", lambda: loops), symbols, imports))
        imports.update({loop.symbol: _LOADED[name][loop.symbol] for loop in loops})
        symbols = [function.symbol for function in kernels]
        if key not in _LOADED:
            data = compile_named(f"conv {key}", lambda: kernels, opt="quick")
            _LOADED.setdefault(key, jit.load(data, symbols, imports))
        _SYMBOLS[key] = {**imports, **{symbol: _LOADED[key][symbol] for symbol in symbols}}
    return _SYMBOLS[key]


def conv_kernel(form: ConvForm, name: str = "rl_conv") -> Callable[..., Any]:
    """The callable of a form: its convolution, or the kernel that packs its weights (`rl_conv_pack`)."""
    symbol = f"{name}_{form.name}"
    key = f"{symbol} {' '.join(t.key for t in form.tiles)}"
    if key not in _KERNELS:
        _KERNELS.setdefault(key, stubs.make_kernel_callable(conv_symbols(form)[symbol], symbol))
    return _KERNELS[key]


# ***** the work *****


_STRIDES = [
    [f"{name}_{letter}" for letter in (*head, *"dhw")] for name, head in (("x", "ngc"), ("w", "goc"), ("y", "ngo"))
]
_SIZES = [[name + letter for letter in "dhw"] for name in ("in_", "", "k_", "step_", "gap_")]
_LOW = ["lo_d", "lo_h", "lo_w"]
_EMPTY = dict.fromkeys(W, 0)


class Work:
    """The sizes of a convolution in three spatial dims, and its blocking.  `desc` is its descriptor
    (`conv_descriptor.W`)."""

    def __init__(self, x: Operand, w: Operand, y: Operand, bias: Operand | None, params: dict[str, Any]) -> None:
        desc = self.desc = dict(_EMPTY)
        n = len(params["size"])
        lead, unit = (0,) * (3 - n), (1,) * (3 - n)
        desc["n"], desc["g"], desc["c"] = x.shape[:3]
        desc["o"] = w.shape[1]
        for names, operand in zip(_STRIDES, (x, w, y), strict=True):
            desc.update(zip(names, (*operand.strides[:3], *lead, *operand.strides[3:]), strict=True))
        desc["bias_g"], desc["bias_o"] = bias.strides if bias is not None else (0, -1)
        sizes = x.shape[3:], params["size"], w.shape[3:], params["stride"], params["dilation"]
        for names, values in zip(_SIZES, sizes, strict=True):
            desc.update(zip(names, (*unit, *values), strict=True))
        desc.update(zip(_LOW, (*lead, *params["lo"]), strict=True))
        desc["taps_first"], desc["packed"] = (int(desc["w_c"] == 1 and desc["k_d"] * desc["k_h"] * desc["k_w"] > 1), -1)
        desc["operand"] = 1
        self.spread = dict(zip("dhw", (*unit, *params["spread"]), strict=True))
        self.flip = bool(params["flip"])
        if self.flip:
            for letter in "dhw":
                desc["w_base"] += desc[f"w_{letter}"] * (desc[f"k_{letter}"] - 1)
                desc[f"w_{letter}"] *= -1

    def apart(self) -> list[dict[str, int]]:
        """Split a convolution of a dilated input (`spread`) into plain ones: one for each remainder of the result
        positions modulo the spread.

        A kernel may have no taps: none of them meets an input element at these positions.
        """
        parts = []
        for rests in product(*(range(min(self.spread[letter], self.desc[letter])) for letter in "dhw")):
            desc = dict(self.desc)
            for letter, rest in zip("dhw", rests, strict=True):
                _take_phase(desc, letter, rest, self.spread[letter])
            parts.append(desc)
        return parts

    def phases(self) -> list[dict[str, int]]:
        """The same descriptors, ready for packing and multiplying: a kernel without taps has no channels, a flipped one
        is packed in memory order."""
        parts = self.apart()
        for desc in parts:
            if min(desc[f"k_{letter}"] for letter in "dhw") == 0:
                desc.update(c=0, k_d=1, k_h=1, k_w=1)
            if self.flip:  # packed in memory order
                desc["flip"] = 1
                for letter in "dhw":
                    desc["w_base"] += desc[f"w_{letter}"] * (desc[f"k_{letter}"] - 1)
                    desc[f"w_{letter}"] *= -1
        return parts


def _take_phase(desc: dict[str, int], letter: str, rest: int, spread: int) -> None:
    """Keep the result positions of one remainder modulo the spread, and the kernel taps that meet input elements there."""
    if spread == 1:
        _skip_unread(desc, letter)
        return
    count, gap, lo = desc[letter], desc[f"gap_{letter}"], desc[f"lo_{letter}"]
    desc[letter] = (count - rest + spread - 1) // spread
    desc["y_base"] += rest * desc[f"y_{letter}"]
    desc[f"y_{letter}"] *= spread
    every = spread // gcd(gap, spread)
    first = next((k for k in range(min(every, desc[f"k_{letter}"])) if (rest + k * gap - lo) % spread == 0), None)
    if first is None:
        desc[f"k_{letter}"] = 0
        return
    desc[f"k_{letter}"] = (desc[f"k_{letter}"] - first + every - 1) // every
    desc["w_base"] += first * desc[f"w_{letter}"]
    desc[f"w_{letter}"] *= every
    desc[f"gap_{letter}"], desc[f"lo_{letter}"] = every * gap // spread, -((rest + first * gap - lo) // spread)


def _skip_unread(desc: dict[str, int], letter: str) -> None:
    """Read the input as one without skipped positions, for a kernel of one tap and a larger stride."""
    step = desc[f"step_{letter}"]
    if step > 1 and desc[f"k_{letter}"] == 1 and desc[f"lo_{letter}"] % step == 0:
        desc[f"in_{letter}"] = -(-desc[f"in_{letter}"] // step)
        desc[f"x_{letter}"] *= step
        desc[f"lo_{letter}"] //= step
        desc[f"step_{letter}"] = 1


def _even(total: int, most: int) -> int:
    """The size of equal blocks of at most `most`."""
    return -(-total // -(-total // max(most, 1))) if total else 1


def _cut(desc: dict[str, int], form: ConvForm) -> float:
    """Choose the parts of the steps, then the cheapest blocking of positions and channels; return the estimated
    time."""
    if isinstance(form, SumsForm):
        time = cut_sums(desc, form.matrix)
        if time == inf:
            return time
    elif isinstance(form, MatrixForm):
        group = form.matrix.group
        choose_parts(desc, group, MATRIX_DEPTH, group)
        time = cut_for_tiles(desc, form.matrix)
    else:
        time = _cut_for_registers(desc, form.tiles)
    for letter in "ndhwo":
        desc[f"blocks_{letter}"] = -(-desc[letter] // desc[f"block_{letter}"])
    return time


def _cut_for_registers(desc: dict[str, int], tiles: tuple[RegisterTile, ...]) -> float:
    group = tiles[0].group
    choose_parts(desc, group)
    time = choose_blocks(desc, tiles)
    # One channel: a kernel, not the cotangents of one image
    few = desc["c"] == 1 and desc["k_d"] * desc["k_h"] * desc["k_w"] <= _FEW_TAPS
    if desc["c"] > 1 and desc["x_c"] == 1 or few:  # the channels of a position are contiguous
        placed = {**desc, "channels_inside": group, "taps_first": 1}
        choose_parts(placed, group, PLACED_DEPTH * group, _LINE * group)
        placed_time = choose_blocks(placed, tiles)
        if placed_time < time:
            desc.update(placed)
            time = placed_time
    return time


def choose_parts(desc: dict[str, int], group: int = 1, depth: int = DEPTH, unit: int = 1) -> None:
    """Choose parts of about `depth` steps: a number of channels, or part of the kernel for one channel.

    Channels fill packed words of `group` steps; where more than one part is needed, they are multiples of `unit`.
    """
    for letter, key in zip("cdhw", ("c", "k_d", "k_h", "k_w"), strict=True):
        desc[f"part_{letter}"] = max(desc[key], 1)
    taps = desc["k_d"] * desc["k_h"] * desc["k_w"]
    if taps <= depth:
        desc["part_c"] = -(-_even(desc["c"], depth // taps) // group) * group
        if desc["part_c"] < desc["c"]:
            desc["part_c"] = -(-desc["part_c"] // unit) * unit
    else:
        desc["part_c"] = 1
        if desc["k_h"] * desc["k_w"] <= depth:
            desc["part_d"] = _even(desc["k_d"], depth // (desc["k_h"] * desc["k_w"]))
        else:
            desc["part_d"] = 1
            if desc["k_w"] <= depth:
                desc["part_h"] = _even(desc["k_h"], depth // desc["k_w"])
            else:
                desc["part_h"], desc["part_w"] = 1, _even(desc["k_w"], depth)
    parts = 1
    for letter, key in zip("cdhw", ("c", "k_d", "k_h", "k_w"), strict=True):
        desc[f"parts_{letter}"] = max(-(-desc[key] // desc[f"part_{letter}"]), 1)
        parts *= desc[f"parts_{letter}"]
    desc["chunk"], desc["chunks"] = parts if desc["c"] else 0, 1


def _chunks(parts: Sequence[dict[str, int]], pieces: int, grain: int) -> int:
    """The number of chunks of the steps whose sums are added afterwards: more than one for few results and many steps."""
    most = max(desc["chunk"] for desc in parts)
    return (
        max(1, min(WANTED // pieces, sum(map(multiplications, parts)) // pieces // grain, most // 2)) if pieces else 1
    )


def multiplications(desc: dict[str, int]) -> int:
    steps = desc["c"] * desc["k_d"] * desc["k_h"] * desc["k_w"]
    return desc["n"] * desc["g"] * desc["o"] * desc["d"] * desc["h"] * desc["w"] * steps


def _pieces(desc: dict[str, int]) -> int:
    count = desc["g"] * desc["blocks_o"] * desc["chunks"]
    for letter in "ndhw":
        count *= desc[f"blocks_{letter}"]
    return count


def conv_call(step: ExternStep, form: ConvForm | None = None) -> list[Launch]:
    """The kernels of a `conv_windows`.  `form`: that of this machine by default."""
    x, w, *more = step.inputs
    y = step.outputs[0]
    usual = form or conv_form(SHORT[x.dtype.name], SHORT[step.params["dtype"].name])
    whole = Work(x, w, y, more[0] if more else None, step.params)
    if step.epilogue is not None:
        whole.desc |= {"epilogue": epilogue_layout(step.epilogue), "operand": len(step.sizes)}
    form, parts = _best_cut(whole, (usual, *(() if form else matrix_forms(usual))))
    grain = MATRIX_GRAIN if isinstance(form, MatrixForm) else GRAIN
    chunks, after = _chunks(parts, sum(map(_pieces, parts)), grain), []
    if step.epilogue is not None:
        after = epilogue_words(len(step.sizes), len(step.inputs), step.epilogue)
    operands = range(len(step.inputs) + len(step.words))
    stays = step.params.get("pinned", -1) == 1 and len(parts) == 1
    if chunks > 1:
        return _in_chunks(whole, form, chunks, step.sizes, after, operands, stays)
    packed = _pack_once(parts, form, stays)
    ints = call_ints(parts, step.sizes) + after
    if packed:
        return _packed(parts, form, packed, ints, (operands[0], -1, *operands[2:]), stays)
    return [Launch(conv_kernel(form), ints, operands)]


def _best_cut(whole: Work, forms: Sequence[ConvForm]) -> tuple[ConvForm, list[dict[str, int]]]:
    """The form that takes least time, and the descriptors of its parts."""
    best: tuple[float, ConvForm, list[dict[str, int]]] | None = None
    for form in forms:
        parts = whole.phases()
        time = sum([_cut(desc, form) for desc in parts])
        if best is None or time < best[0]:
            best = time, form, parts
    assert best is not None
    return best[1:]


def _pack_once(parts: list[dict[str, int]], form: ConvForm, stays: bool) -> int:
    """Choose whether weights are packed once for all pieces, and return the bytes for it, or 0.

    It pays where the weights serve several pieces and are no larger than images and results, or stay packed.
    """
    taps = max(desc["c"] * desc["k_d"] * desc["k_h"] * desc["k_w"] for desc in parts)
    boxes = min(prod(desc[f"blocks_{letter}"] for letter in "ndhw") for desc in parts)
    results = sum(desc["n"] * desc["d"] * desc["h"] * desc["w"] for desc in parts)
    work = sum(map(multiplications, parts))
    if not taps or (not stays and (boxes < 2 or work < _PACK_WORK or results < len(parts) * boxes * 16)):
        return 0
    total, cell, tiles = 0, 8 if form.kind == "f64" else 4, form.tiles
    if isinstance(form, SumsForm):
        return 0
    if isinstance(form, MatrixForm):
        cell, tiles = 64, (form.matrix,)
    for desc in parts:
        width = tiles[0].columns if desc["form"] >= POSITIONS else tiles[desc["form"] if len(tiles) > 1 else 0].rows
        steps = desc["part_c"] * desc["part_d"] * desc["part_h"] * desc["part_w"]
        desc["packed"] = total
        size = cell * -(-desc["o"] // width) * width * -(-steps // tiles[0].group)
        total += -(-desc["g"] * prod(desc[f"parts_{letter}"] for letter in "cdhw") * size // 64) * 64
    return total


def _packed(
    parts: list[dict[str, int]], form: ConvForm, nbytes: int, ints: list[int], operands: Sequence[int], stays: bool
) -> list[Launch]:
    """Two kernels: one packs the weights, one convolves (`ints`: its constants)."""
    pieces = sum(desc["g"] * prod(desc[f"parts_{letter}"] for letter in "cdhw") for desc in parts)
    first = [pieces, 1, 1, nbytes, 0, 0, 0, 0, *ints[8:]]
    calls = conv_kernel(form, "rl_conv_pack"), conv_kernel(form)
    return packing_launches(calls, first, ints, operands, parts[0] if stays else None)


# Fields of the descriptor that say how weights are packed.
_PACKED_AS = """w_base w_g w_o w_c w_d w_h w_w g c o k_d k_h k_w part_c part_d part_h part_w parts_c parts_d parts_h parts_w
channels_inside form flip taps_first packed""".split()


def packing_launches(
    calls: tuple[Callable[..., Any], Callable[..., Any]],
    first: list[int],
    second: list[int],
    operands: Sequence[int],
    stays: dict[str, int] | None,
) -> list[Launch]:
    """Two kernels: one packs the weights, one convolves `operands` (`first`, `second`: their constants).  `stays`: the
    descriptor of weights that may stay packed.
    """
    pinned = reads = None
    if stays is not None:
        pinned = PinnedWords(8 + W.pinned, first[3], first[0], 0, tuple(stays[name] for name in _PACKED_AS))
        reads = pinned._replace(operand=-1)
        first[3] += LEAD
    return [Launch(calls[0], first, (1,), 0, None, pinned), Launch(calls[1], second, operands, None, None, reads)]


def _in_chunks(
    whole: Work,
    form: ConvForm,
    chunks: int,
    sizes: Sequence[int],
    after: list[int],
    operands: Sequence[int],
    stays: bool,
) -> list[Launch]:
    """Two kernels: one computes a result for each chunk of the steps, one adds these and applies the epilogue
    (`after`).  Before them, one packs weights that may stay so (`stays`)."""
    desc = whole.desc
    n, g, o, d, h, w = (desc[letter] for letter in "ngodhw")
    inside = int(n >= w and not after)  # whether images are the innermost dim of the sums
    desc |= {"chunks": chunks, "images_inside": inside, "epilogue_at": W_BYTES, "apart": whole.spread["w"]}
    second = [*_head(g * o, 1, sizes), *W.listed(desc), *after]
    desc |= {"operand": 1, "epilogue": NO_EPILOGUE}
    if inside:
        desc.update(y_n=1, y_w=n, y_h=w * n, y_d=h * w * n)
    else:
        desc.update(y_n=d * h * w, y_w=1, y_h=w, y_d=h * w)
    desc.update(bias_g=0, bias_o=-1, y_o=d * h * w * n, y_g=o * d * h * w * n, y_chunk=g * o * d * h * w * n)
    parts = whole.phases()
    for part in parts:
        _cut(part, form)
        part["chunk"], part["chunks"] = -(-part["chunk"] // chunks), chunks
    sums = _sums_of(form)
    packed = _pack_once(parts, form, stays) if stays else 0
    first = call_ints(parts, [chunks * desc["y_chunk"] * (8 if sums == "f64" else 4)])
    adding, total = form.giving(sums), _sum_kernel(sums, form.target)
    if not packed:
        return [Launch(conv_kernel(adding), first, (0, 1), 0), Launch(total, second, (-1, *operands[1:]))]
    made = _packed(parts, adding, packed, first, (0, -1), stays)
    made[-1].results = 0
    return [*made, Launch(total, second, (-2, *operands[1:]))]


def _sum_kernel(kind: str, target: str) -> Callable[..., Any]:
    key = f"sum {kind} {target}"
    if key not in _KERNELS:
        run, chunks = make_sum_run(kind, target), make_sum_chunks(kind, target)
        imports = {**_runtime.runtime().symbols, run.symbol: stubs.native_address(run)}
        loaded = jit.load(compile_native([chunks], opt="quick"), [chunks.symbol], imports)
        _KERNELS.setdefault(key, stubs.make_kernel_callable(loaded[chunks.symbol], chunks.symbol, loaded))
    return _KERNELS[key]


def call_ints(parts: list[dict[str, int]], sizes: Sequence[int]) -> list[int]:
    """The constants of a call with outputs of `sizes` bytes; those of its epilogue follow them."""
    for k, desc in enumerate(parts):
        desc |= {"pieces": _pieces(desc), "epilogue_at": (len(parts) - k) * W_BYTES}
    work = sum(map(multiplications, parts))
    return _head(sum(desc["pieces"] for desc in parts), int(unlocks(work)), sizes) + [
        value for desc in parts for value in W.listed(desc)
    ]


def _head(pieces: int, large: int, sizes: Sequence[int]) -> list[int]:
    head = [pieces, large, len(sizes), *sizes]
    return head + [0] * (8 - len(head))
