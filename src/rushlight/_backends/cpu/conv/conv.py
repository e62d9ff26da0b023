"""Convolutions as native calls: the blocking of the work, from sizes and layouts alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import gcd, prod
from typing import Any

from rushlight._backends.cpu.conv.conv_choice import DEPTH, GRAIN, PLACED_DEPTH, WANTED, choose_blocks
from rushlight._backends.cpu.conv.conv_native import ConvForm, make_conv, make_loops, make_pack_all, make_sum_chunks
from rushlight._backends.cpu.conv.conv_words import W_BYTES, W
from rushlight._backends.cpu.epilogue.constants import epilogue_words
from rushlight._backends.cpu.gemm.blas import host_tiles
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.program.steps import ExternStep, Operand
from rushlight._host import runtime as _runtime
from rushlight._host import stubs
from rushlight._native import jit

__all__ = [
    "SHORT",
    "Work",
    "call_ints",
    "choose_parts",
    "conv_call",
    "conv_form",
    "conv_kernel",
    "conv_symbols",
    "multiplications",
]

SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
_FEW_TAPS = 128  # most taps of a kernel over one channel that are read in place
_LINE = 16  # packed words of channels taken together where there are many: a cache line
_PACK_WORK = 1 << 22  # fewest multiplications for which weights are packed once for all pieces
GIL_WORK = 1 << 21
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


def conv_symbols(form: ConvForm) -> dict[str, int]:
    """The addresses of a form's kernel and of everything that it calls."""
    key = f"{form.name} {' '.join(t.key for t in form.tiles)}"
    if key not in _SYMBOLS:
        imports = dict(_runtime.runtime().symbols)
        for text, names in form.texts:
            if text not in _LOADED:
                _LOADED.setdefault(text, jit.load(_runtime.compile_text(text), names))
            imports.update({name: _LOADED[text][name] for name in names})
        loops, name = make_loops(form), f"loops {key}"
        if name not in _LOADED:
            symbols = [loop.symbol for loop in loops]
            _LOADED.setdefault(name, jit.load(_runtime.compile_native(loops), symbols, imports))
        imports.update({loop.symbol: _LOADED[name][loop.symbol] for loop in loops})
        kernels = [make_conv(form), make_pack_all(form)]
        symbols = [function.symbol for function in kernels]
        if key not in _LOADED:
            _LOADED.setdefault(key, jit.load(_runtime.compile_native(kernels, opt="quick"), symbols, imports))
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
    """The sizes of a convolution in three spatial dims, and its blocking.  `words` is its descriptor
    (`conv_descriptor.W`)."""

    def __init__(self, x: Operand, w: Operand, y: Operand, bias: Operand | None, params: dict[str, Any]) -> None:
        words = self.words = dict(_EMPTY)
        n = len(params["size"])
        lead, unit = (0,) * (3 - n), (1,) * (3 - n)
        words["n"], words["g"], words["c"] = x.shape[:3]
        words["o"] = w.shape[1]
        for names, operand in zip(_STRIDES, (x, w, y), strict=True):
            words.update(zip(names, (*operand.strides[:3], *lead, *operand.strides[3:]), strict=True))
        words["bias_g"], words["bias_o"] = bias.strides if bias is not None else (0, -1)
        sizes = x.shape[3:], params["size"], w.shape[3:], params["stride"], params["dilation"]
        for names, values in zip(_SIZES, sizes, strict=True):
            words.update(zip(names, (*unit, *values), strict=True))
        words.update(zip(_LOW, (*lead, *params["lo"]), strict=True))
        words["taps_first"], words["packed"] = (
            int(words["w_c"] == 1 and words["k_d"] * words["k_h"] * words["k_w"] > 1),
            -1,
        )
        words["operand"] = 1
        self.spread = dict(zip("dhw", (*unit, *params["spread"]), strict=True))
        self.flip = bool(params["flip"])
        if self.flip:
            for letter in "dhw":
                words["w_base"] += words[f"w_{letter}"] * (words[f"k_{letter}"] - 1)
                words[f"w_{letter}"] *= -1

    def apart(self) -> list[dict[str, int]]:
        """Split a convolution of a dilated input (`spread`) into plain ones: one for each remainder of the result
        positions modulo the spread.

        A kernel may have no taps: none of them meets an input element at these positions.
        """
        parts = []
        for rests in product(*(range(min(self.spread[letter], self.words[letter])) for letter in "dhw")):
            words = dict(self.words)
            for letter, rest in zip("dhw", rests, strict=True):
                _take_phase(words, letter, rest, self.spread[letter])
            parts.append(words)
        return parts

    def phases(self) -> list[dict[str, int]]:
        """The same descriptors, ready for packing and multiplying: a kernel without taps has no channels, a flipped one
        is packed in memory order."""
        parts = self.apart()
        for words in parts:
            if min(words[f"k_{letter}"] for letter in "dhw") == 0:
                words.update(c=0, k_d=1, k_h=1, k_w=1)
            if self.flip:  # packed in memory order
                words["flip"] = 1
                for letter in "dhw":
                    words["w_base"] += words[f"w_{letter}"] * (words[f"k_{letter}"] - 1)
                    words[f"w_{letter}"] *= -1
        return parts


def _take_phase(words: dict[str, int], letter: str, rest: int, spread: int) -> None:
    """Keep the result positions of one remainder modulo the spread, and the kernel taps that meet input elements there."""
    if spread == 1:
        _skip_unread(words, letter)
        return
    count, gap, lo = words[letter], words[f"gap_{letter}"], words[f"lo_{letter}"]
    words[letter] = (count - rest + spread - 1) // spread
    words["y_base"] += rest * words[f"y_{letter}"]
    words[f"y_{letter}"] *= spread
    every = spread // gcd(gap, spread)
    first = next((k for k in range(min(every, words[f"k_{letter}"])) if (rest + k * gap - lo) % spread == 0), None)
    if first is None:
        words[f"k_{letter}"] = 0
        return
    words[f"k_{letter}"] = (words[f"k_{letter}"] - first + every - 1) // every
    words["w_base"] += first * words[f"w_{letter}"]
    words[f"w_{letter}"] *= every
    words[f"gap_{letter}"], words[f"lo_{letter}"] = every * gap // spread, -((rest + first * gap - lo) // spread)


def _skip_unread(words: dict[str, int], letter: str) -> None:
    """Read the input as one without skipped positions, for a kernel of one tap and a larger stride."""
    step = words[f"step_{letter}"]
    if step > 1 and words[f"k_{letter}"] == 1 and words[f"lo_{letter}"] % step == 0:
        words[f"in_{letter}"] = -(-words[f"in_{letter}"] // step)
        words[f"x_{letter}"] *= step
        words[f"lo_{letter}"] //= step
        words[f"step_{letter}"] = 1


def _even(total: int, most: int) -> int:
    """The size of equal blocks of at most `most`."""
    return -(-total // -(-total // max(most, 1))) if total else 1


def _cut(words: dict[str, int], tiles: tuple[RegisterTile, ...]) -> None:
    """Choose the parts of the steps, then the cheapest blocking of positions and channels."""
    group = tiles[0].group
    choose_parts(words, group)
    time = choose_blocks(words, tiles)
    few = (
        words["c"] == 1 and words["k_d"] * words["k_h"] * words["k_w"] <= _FEW_TAPS
    )  # one channel: a kernel, not the cotangents of one image
    if words["c"] > 1 and words["x_c"] == 1 or few:  # the channels of a position are contiguous
        placed = {**words, "channels_inside": group, "taps_first": 1}
        choose_parts(placed, group, PLACED_DEPTH * group, _LINE * group)
        if choose_blocks(placed, tiles) < time:
            words.update(placed)
    for letter in "ndhwo":
        words[f"blocks_{letter}"] = -(-words[letter] // words[f"block_{letter}"])


def choose_parts(words: dict[str, int], group: int = 1, depth: int = DEPTH, unit: int = 1) -> None:
    """Choose parts of about `depth` steps: a number of channels, or part of the kernel for one channel.

    Channels fill packed words of `group` steps; where more than one part is needed, they are multiples of `unit`.
    """
    for letter, key in zip("cdhw", ("c", "k_d", "k_h", "k_w"), strict=True):
        words[f"part_{letter}"] = max(words[key], 1)
    taps = words["k_d"] * words["k_h"] * words["k_w"]
    if taps <= depth:
        words["part_c"] = -(-_even(words["c"], depth // taps) // group) * group
        if words["part_c"] < words["c"]:
            words["part_c"] = -(-words["part_c"] // unit) * unit
    else:
        words["part_c"] = 1
        if words["k_h"] * words["k_w"] <= depth:
            words["part_d"] = _even(words["k_d"], depth // (words["k_h"] * words["k_w"]))
        else:
            words["part_d"] = 1
            if words["k_w"] <= depth:
                words["part_h"] = _even(words["k_h"], depth // words["k_w"])
            else:
                words["part_h"], words["part_w"] = 1, _even(words["k_w"], depth)
    parts = 1
    for letter, key in zip("cdhw", ("c", "k_d", "k_h", "k_w"), strict=True):
        words[f"parts_{letter}"] = max(-(-words[key] // words[f"part_{letter}"]), 1)
        parts *= words[f"parts_{letter}"]
    words["chunk"], words["chunks"] = parts if words["c"] else 0, 1


def _chunks(parts: Sequence[dict[str, int]], pieces: int) -> int:
    """The number of chunks of the steps whose sums are added afterwards: more than one for few results and many steps."""
    most = max(words["chunk"] for words in parts)
    return (
        max(1, min(WANTED // pieces, sum(map(multiplications, parts)) // pieces // GRAIN, most // 2)) if pieces else 1
    )


def multiplications(words: dict[str, int]) -> int:
    steps = words["c"] * words["k_d"] * words["k_h"] * words["k_w"]
    return words["n"] * words["g"] * words["o"] * words["d"] * words["h"] * words["w"] * steps


def _pieces(words: dict[str, int]) -> int:
    count = words["g"] * words["blocks_o"] * words["chunks"]
    for letter in "ndhw":
        count *= words[f"blocks_{letter}"]
    return count


def conv_call(step: ExternStep, form: ConvForm | None = None) -> list[Launch]:
    """The kernels of a `conv_windows`.  `form`: that of this machine by default."""
    x, w, *more = step.inputs
    y = step.outputs[0]
    form = form or conv_form(SHORT[x.dtype.name], SHORT[step.params["dtype"].name])
    whole = Work(x, w, y, more[0] if more else None, step.params)
    if step.epilogue is not None:
        whole.words |= {"after": 1 + step.epilogue.part.transposed, "operand": len(step.sizes)}
    parts = whole.phases()
    for words in parts:
        _cut(words, form.tiles)
    chunks, after = _chunks(parts, sum(map(_pieces, parts))), []
    if step.epilogue is not None:
        after = epilogue_words(len(step.sizes), len(step.inputs), step.epilogue)
    operands = range(len(step.inputs) + len(step.words))
    if chunks > 1:
        return _in_chunks(whole, form, chunks, step.sizes, after, operands)
    packed = _pack_once(parts, form.tiles)
    ints = call_ints(parts, step.sizes) + after
    if packed:
        return _packed(parts, form, packed, ints, operands)
    return [Launch(conv_kernel(form), ints, operands)]


def _pack_once(parts: list[dict[str, int]], tiles: tuple[RegisterTile, ...]) -> int:
    """Choose whether weights are packed once for all pieces, and return the bytes for it, or 0.

    It pays where the weights serve several pieces and are no larger than images and results.
    """
    taps = max(words["c"] * words["k_d"] * words["k_h"] * words["k_w"] for words in parts)
    boxes = min(prod(words[f"blocks_{letter}"] for letter in "ndhw") for words in parts)
    results = sum(words["n"] * words["d"] * words["h"] * words["w"] for words in parts)
    if boxes < 2 or not taps or sum(map(multiplications, parts)) < _PACK_WORK or results < len(parts) * boxes * 16:
        return 0
    total, cell = 0, 8 if tiles[0].kind == "f64" else 4
    for words in parts:
        width = tiles[0].columns if words["form"] >= 2 else tiles[words["form"] if len(tiles) > 1 else 0].rows
        steps = words["part_c"] * words["part_d"] * words["part_h"] * words["part_w"]
        words["packed"] = total
        size = cell * -(-words["o"] // width) * width * -(-steps // tiles[0].group)
        total += -(-words["g"] * prod(words[f"parts_{letter}"] for letter in "cdhw") * size // 64) * 64
    return total


def _packed(
    parts: list[dict[str, int]], form: ConvForm, nbytes: int, ints: list[int], operands: Sequence[int]
) -> list[Launch]:
    """Two kernels: one packs the weights, one convolves (`ints`: its constants)."""
    pieces = sum(words["g"] * prod(words[f"parts_{letter}"] for letter in "cdhw") for words in parts)
    pack = Launch(conv_kernel(form, "rl_conv_pack"), [pieces, 1, 1, nbytes, 0, 0, 0, 0, *ints[8:]], (1,), 0)
    return [pack, Launch(conv_kernel(form), ints, (operands[0], -1, *operands[2:]))]


def _in_chunks(
    whole: Work, form: ConvForm, chunks: int, sizes: Sequence[int], after: list[int], operands: Sequence[int]
) -> list[Launch]:
    """Two kernels: one computes a result for each chunk of the steps, one adds these and applies the epilogue
    (`after`)."""
    words = whole.words
    n, g, o, d, h, w = (words[letter] for letter in "ngodhw")
    inside = int(n >= w and not after)  # whether images are the innermost dim of the sums
    words |= {"chunks": chunks, "images_inside": inside, "given": W_BYTES}
    second = [*_head(g * o, 1, sizes), *W.listed(words), *after]
    words |= {"operand": 1, "after": 0}
    if inside:
        words.update(y_n=1, y_w=n, y_h=w * n, y_d=h * w * n)
    else:
        words.update(y_n=d * h * w, y_w=1, y_h=w, y_d=h * w)
    words.update(bias_g=0, bias_o=-1, y_o=d * h * w * n, y_g=o * d * h * w * n, y_chunk=g * o * d * h * w * n)
    parts = whole.phases()
    for part in parts:
        _cut(part, form.tiles)
        part["chunk"], part["chunks"] = -(-part["chunk"] // chunks), chunks
    sums = "f64" if form.kind == "f64" else "f32"
    first = call_ints(parts, [chunks * words["y_chunk"] * (8 if sums == "f64" else 4)])
    call, total = conv_kernel(ConvForm(form.tiles, form.source, sums)), _sum_kernel(sums, form.target)
    return [Launch(call, first, (0, 1), 0), Launch(total, second, (-1, *operands[1:]))]


def _sum_kernel(kind: str, target: str) -> Callable[..., Any]:
    key = f"sum {kind} {target}"
    if key not in _KERNELS:
        address = stubs.native_address(make_sum_chunks(kind, target))
        _KERNELS.setdefault(key, stubs.make_kernel_callable(address, f"rl_conv_sum_{kind}_{target}"))
    return _KERNELS[key]


def call_ints(parts: list[dict[str, int]], sizes: Sequence[int]) -> list[int]:
    """The constants of a call with outputs of `sizes` bytes; those of its epilogue follow them."""
    for k, words in enumerate(parts):
        words |= {"pieces": _pieces(words), "given": (len(parts) - k) * W_BYTES}
    work = sum(map(multiplications, parts))
    return _head(sum(words["pieces"] for words in parts), int(work > GIL_WORK), sizes) + [
        value for words in parts for value in W.listed(words)
    ]


def _head(pieces: int, large: int, sizes: Sequence[int]) -> list[int]:
    head = [pieces, large, len(sizes), *sizes]
    return head + [0] * (8 - len(head))
