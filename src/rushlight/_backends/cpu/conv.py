"""Convolutions as native calls: how the work is cut, from the sizes and the layouts alone."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import product
from math import gcd
from typing import Any

from rushlight._backends.cpu import jit, stubs
from rushlight._backends.cpu import runtime as _runtime
from rushlight._backends.cpu.blas import host_tiles
from rushlight._backends.cpu.conv_native import ConvForm, make_conv, make_sum_chunks
from rushlight._backends.cpu.conv_words import W
from rushlight._kernels.program import ExternStep, Operand
from rushlight._kernels.register_tile import RegisterTile

__all__ = ["conv_call", "conv_form", "conv_kernel"]

_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
_DEPTH = 256  # steps in one part: a panel of windows stays in the first cache
_PLACES = 512  # places in one piece: with the sums over them it stays in the second cache
_OUTS = 256  # output channels in one piece, the same
_GRAIN = 1 << 24  # multiplications in one piece of a large convolution
_SMALL_GRAIN = 1 << 20  # multiplications that are worth a thread's while
_WANTED = 16  # pieces that large work is cut into at least, where it can be
_GIL_WORK = 1 << 21
_LOADED: dict[str, jit.Loaded | jit.Image] = {}
_KERNELS: dict[str, Callable[..., Any]] = {}


# ***** kernels *****


def conv_form(source: str, target: str) -> ConvForm:
    """How this machine computes with operands of one kind (`f32`, `f64`, `f16`, `bf16`) and results of another."""
    tiles = host_tiles("bf16") if source == "bf16" else ()
    if not tiles or not tiles[0].instruction:  # without an instruction for pairs they are widened once, in the slab
        tiles = host_tiles("f64" if source == "f64" else "f32")
    return ConvForm(tiles, source, target)


def conv_kernel(form: ConvForm) -> Callable[..., Any]:
    """The callable for a form."""
    key = f"{form.name} {' '.join(t.key for t in form.tiles)}"
    if key not in _KERNELS:
        imports = dict(_runtime.runtime().symbols)
        for text, names in form.texts:
            if text not in _LOADED:
                _LOADED.setdefault(text, jit.load(_runtime.compile_text(text), names))
            imports.update({name: _LOADED[text][name] for name in names})
        function = make_conv(form)
        loaded = jit.load(_runtime.compile_native([function]), [function.symbol], imports)
        _KERNELS.setdefault(key, stubs.make_kernel_callable(loaded[function.symbol], function.symbol, loaded))
    return _KERNELS[key]


# ***** the work *****


class Work:
    """The sizes of a convolution in three dims of space, and how it is cut.  `words` are those of `conv_native.W`."""

    def __init__(self, x: Operand, w: Operand, y: Operand, bias: Operand | None, params: dict[str, Any]) -> None:
        words = self.words = dict.fromkeys(W, 0)
        n = len(params["size"])
        lead, unit = (0,) * (3 - n), (1,) * (3 - n)
        words["n"], words["g"], words["c"] = x.shape[:3]
        words["o"] = w.shape[1]
        for name, operand, head in (("x", x, "ngc"), ("w", w, "goc"), ("y", y, "ngo")):
            for letter, stride in zip((*head, "d", "h", "w"), (*operand.strides[:3], *lead, *operand.strides[3:]), strict=True):
                words[f"{name}_{letter}"] = stride
        words["bias_g"], words["bias_o"] = bias.strides if bias is not None else (0, -1)
        for name, values, fill in (
            ("in_", x.shape[3:], unit), ("", params["size"], unit), ("k_", w.shape[3:], unit), ("step_", params["stride"], unit),
            ("gap_", params["dilation"], unit), ("lo_", params["lo"], lead),
        ):  # fmt: skip
            for letter, value in zip("dhw", (*fill, *values), strict=True):
                words[name + letter] = value
        self.spread = dict(zip("dhw", (*unit, *params["spread"]), strict=True))
        if params["flip"]:
            for letter in "dhw":
                words["w_base"] += words[f"w_{letter}"] * (words[f"k_{letter}"] - 1)
                words[f"w_{letter}"] *= -1

    def phases(self) -> list[dict[str, int]]:
        """The words of each convolution without a spread that this one is made of: the results whose places leave one rest by it."""
        found = []
        for rests in product(*(range(min(self.spread[letter], self.words[letter])) for letter in "dhw")):
            words = dict(self.words)
            for letter, rest in zip("dhw", rests, strict=True):
                _take_phase(words, letter, rest, self.spread[letter])
            if min(words[f"k_{letter}"] for letter in "dhw") == 0:  # no kernel element meets these places
                words.update(c=0, k_d=1, k_h=1, k_w=1)
            found.append(words)
        return found


def _take_phase(words: dict[str, int], letter: str, rest: int, spread: int) -> None:
    """Of the places those with one rest by the spread, and of the kernel those elements that meet the image there."""
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
    """A kernel of one element that steps over places: the image is read as one without them."""
    step = words[f"step_{letter}"]
    if words[f"k_{letter}"] == 1 and step > 1 and words[f"lo_{letter}"] % step == 0:
        words[f"in_{letter}"] = -(-words[f"in_{letter}"] // step)
        words[f"x_{letter}"] *= step
        words[f"lo_{letter}"] //= step
        words[f"step_{letter}"] = 1


def _even(total: int, most: int) -> int:
    """The size of equal blocks of at most `most`."""
    return -(-total // -(-total // max(most, 1))) if total else 1


def _fill(total: int, width: int) -> float:
    return total / (-(-total // width) * width) if total else 1.0


def _cut(words: dict[str, int], tiles: tuple[RegisterTile, ...]) -> None:
    """Choose the form, the boxes of the pieces and the parts of the steps."""
    wide = tiles[0].columns
    places = words["d"] * words["h"] * words["w"]
    words["images_inside"] = int(words["w"] < tiles[0].lanes and words["n"] >= max(2 * words["w"], tiles[0].lanes // 2))
    _choose_form(words, tiles, places)
    if words["images_inside"] and words["form"] < 2 and tiles[0].group == 1 and _fill(words["n"], wide) > 0.8:
        words["images_inside"] = wide
    channels = words["form"] < 2
    _choose_places(words, places, wide if channels else tiles[words["form"] % 2 if len(tiles) > 1 else 0].rows)
    _choose_parts(words)
    steps = words["c"] * words["k_d"] * words["k_h"] * words["k_w"]
    boxes = 1
    for letter in "ndhw":
        blocks = words[f"blocks_{letter}"] = -(-words[letter] // words[f"block_{letter}"])
        boxes *= blocks
    columns = words["block_n"] * words["block_d"] * words["block_h"] * words["block_w"]
    unit = tiles[0].rows if channels else wide
    most = min(_OUTS, max(_GRAIN // max(columns * steps, 1), 1))
    total = words["n"] * words["g"] * words["o"] * places * steps
    pieces = max(1, min(_WANTED, total // _SMALL_GRAIN) // max(boxes * words["g"], 1))  # that the channels should give
    most = min(max(most, 1), -(-words["o"] // pieces))
    words["block_o"] = min(-(-_even(words["o"], max(most, unit)) // unit) * unit, words["o"]) or 1
    words["blocks_o"] = -(-words["o"] // words["block_o"])


def _choose_form(words: dict[str, int], tiles: tuple[RegisterTile, ...], places: int) -> None:
    """Which operand fills the rows of the tile, and which tile."""
    wide, total = tiles[0].columns, places * words["n"]

    def best(count: int) -> int:  # of the tile with few rows only where it is clearly fuller
        return int(len(tiles) > 1 and _fill(count, tiles[1].rows) > 1.04 * _fill(count, tiles[0].rows))

    form = {"channels": best(words["o"]), "places": 2 + best(min(total, _PLACES))}
    filled = {
        "channels": _fill(words["o"], tiles[min(form["channels"], len(tiles) - 1)].rows) * _fill(min(total, _PLACES), wide),
        "places": _fill(min(total, _PLACES), tiles[min(form["places"] - 2, len(tiles) - 1)].rows) * _fill(words["o"], wide),
    }
    last = words["y_o"] == 1 and words["o"] > 1
    other, first = ("channels", "places") if last else ("places", "channels")
    words["form"] = form[other] if filled[other] > 1.2 * filled[first] else form[first]


def _choose_places(words: dict[str, int], places: int, width: int) -> None:
    """Boxes of whole images, or of whole rows of one, or of a part of a row."""
    for letter in "ndhw":
        words[f"block_{letter}"] = max(words[letter], 1)
    if words["images_inside"]:
        unit = max(words["images_inside"], 16)
        words["block_n"] = min(-(-_even(words["n"], max(_PLACES // max(places, 1), unit)) // unit) * unit, words["n"])
        if words["block_n"] * places > 2 * _PLACES:
            words["block_d"] = 1
            words["block_h"] = _even(words["h"], max(_PLACES // (words["block_n"] * words["w"]), 1))
        return
    if places <= _PLACES:
        words["block_n"] = _even(words["n"], _PLACES // max(places, 1))
        return
    words["block_n"] = 1
    plane = words["h"] * words["w"]
    if plane <= _PLACES:
        words["block_d"] = _even(words["d"], _PLACES // plane)
        return
    words["block_d"] = 1
    if words["w"] <= _PLACES:
        words["block_h"] = _full(words["h"], words["w"], width)
    else:
        words["block_h"] = 1
        words["block_w"] = -(-_even(words["w"], 2 * _PLACES) // width) * width


def _full(rows: int, w: int, width: int) -> int:
    """How many rows of `w` places: of those not far from the most the number that fills panels of `width` best."""
    most = max(_PLACES // w, 1)
    counts = range(max(most // 2, 1), most + 1)
    return max(counts, key=lambda r: (round(rows * w / (rows // r * -(-r * w // width) * width + -(-(rows % r) * w // width) * width), 2), r))


def _choose_parts(words: dict[str, int]) -> None:
    """Parts of about `_DEPTH` steps: some channels, or some of the kernel for one."""
    for letter, key in zip("cdhw", ("c", "k_d", "k_h", "k_w"), strict=True):
        words[f"part_{letter}"] = max(words[key], 1)
    taps = words["k_d"] * words["k_h"] * words["k_w"]
    if taps <= _DEPTH:
        words["part_c"] = _even(words["c"], _DEPTH // taps)
    else:
        words["part_c"] = 1
        if words["k_h"] * words["k_w"] <= _DEPTH:
            words["part_d"] = _even(words["k_d"], _DEPTH // (words["k_h"] * words["k_w"]))
        else:
            words["part_d"] = 1
            if words["k_w"] <= _DEPTH:
                words["part_h"] = _even(words["k_h"], _DEPTH // words["k_w"])
            else:
                words["part_h"], words["part_w"] = 1, _even(words["k_w"], _DEPTH)
    parts = 1
    for letter, key in zip("cdhw", ("c", "k_d", "k_h", "k_w"), strict=True):
        words[f"parts_{letter}"] = max(-(-words[key] // words[f"part_{letter}"]), 1)
        parts *= words[f"parts_{letter}"]
    words["chunk"], words["chunks"] = parts if words["c"] else 0, 1


def _chunks(parts: Sequence[dict[str, int]]) -> int:
    """How many chunks to cut the steps into, whose sums are added up afterwards, where there are few results and many steps."""
    pieces = sum(_pieces(words) for words in parts)
    most = max(words["chunk"] for words in parts)
    return max(1, min(_WANTED // pieces, sum(map(_multiplications, parts)) // pieces // (4 * _SMALL_GRAIN), most // 2)) if pieces else 1


def _multiplications(words: dict[str, int]) -> int:
    steps = words["c"] * words["k_d"] * words["k_h"] * words["k_w"]
    return words["n"] * words["g"] * words["o"] * words["d"] * words["h"] * words["w"] * steps


def _pieces(words: dict[str, int]) -> int:
    count = words["g"] * words["blocks_o"] * words["chunks"]
    for letter in "ndhw":
        count *= words[f"blocks_{letter}"]
    return count


def conv_call(step: ExternStep) -> tuple[Callable[..., Any], list[int] | None, Sequence[int]]:
    """The callable of a `conv_windows`, its constants and the places of its operands."""
    x, w, *more = step.inputs
    y = step.outputs[0]
    form = conv_form(_SHORT[x.dtype.name], _SHORT[y.dtype.name])
    whole = Work(x, w, y, more[0] if more else None, step.params)
    parts = whole.phases()
    for words in parts:
        _cut(words, form.tiles)
    places = [operand.place for operand in step.inputs]
    chunks = _chunks(parts) if not more else 1
    if chunks > 1:
        return _in_chunks(whole, form, chunks, step.sizes[0]), None, places
    return conv_kernel(form), _ints(parts, step.sizes), places


def _in_chunks(whole: Work, form: ConvForm, chunks: int, nbytes: int) -> Callable[..., Any]:
    """Two calls: one gives a result for each chunk of the steps, one adds them up."""
    words = whole.words
    second = array("q", [words["g"] * words["o"], 1, 1, nbytes, 0, 0, 0, 0, *({**words, "chunks": chunks}[name] for name in W)])
    n, g, o, d, h, w = (words[letter] for letter in "ngodhw")
    words.update(y_n=1, y_w=n, y_h=w * n, y_d=h * w * n, y_o=d * h * w * n, y_g=o * d * h * w * n, y_chunk=g * o * d * h * w * n)
    parts = whole.phases()
    for part in parts:
        _cut(part, form.tiles)
        part["chunk"], part["chunks"] = -(-part["chunk"] // chunks), chunks
    sums = "f64" if form.kind == "f64" else "f32"
    first = array("q", _ints(parts, [chunks * words["y_chunk"] * (8 if sums == "f64" else 4)]))
    call, total = conv_kernel(ConvForm(form.tiles, form.source, sums)), _sum_kernel(sums, form.target)
    first_ints, second_ints = first.buffer_info()[0], second.buffer_info()[0]

    def run(ints: int, *operands: Any, keep: Any = (first, second)) -> Any:
        return total(second_ints, call(first_ints, *operands))

    return run


def _sum_kernel(kind: str, target: str) -> Callable[..., Any]:
    key = f"sum {kind} {target}"
    if key not in _KERNELS:
        address = stubs.native_address(make_sum_chunks(kind, target))
        _KERNELS.setdefault(key, stubs.make_kernel_callable(address, f"rl_conv_sum_{kind}_{target}"))
    return _KERNELS[key]


def _ints(parts: list[dict[str, int]], sizes: Sequence[int]) -> list[int]:
    for words in parts:
        words["pieces"] = _pieces(words)
    work = sum(map(_multiplications, parts))
    head = [sum(words["pieces"] for words in parts), int(work > _GIL_WORK), len(sizes), *sizes]
    return head + [0] * (8 - len(head)) + [words[name] for words in parts for name in W]
