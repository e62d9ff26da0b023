"""Direct convolutions with few channels a group: the choice of blocks for given sizes, and the constants of a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rushlight._backends.cpu.conv.conv import Work
from rushlight._backends.cpu.conv.direct_native import make_direct
from rushlight._backends.cpu.conv.direct_tile import MIXED, DirectTile, RowMover, WeightTile
from rushlight._backends.cpu.conv.direct_weights_native import make_weights
from rushlight._backends.cpu.conv.direct_words import D_BYTES, D
from rushlight._backends.cpu.conv.prepare import FEW_CHANNELS, LONGEST_ROW, has_few_channels, sums_over_places
from rushlight._backends.cpu.epilogue.constants import epilogue_words
from rushlight._backends.cpu.gemm.blas import host_tiles
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import ExternStep, Operand
from rushlight._host import runtime as _runtime
from rushlight._host.stubs import make_kernel_callable
from rushlight._native import jit
from rushlight._native.target import host_target
from rushlight._types.layout import numel
from rushlight._types.symbols import settled

__all__ = ["direct_call", "takes_direct"]

_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
_LOADED: dict[str, jit.Loaded | jit.Image] = {}
_CALLABLES: dict[str, Callable[..., Any]] = {}
_PIECE = 1 << 19  # least multiplications worth a thread
_SHARE = 1 << 18  # the same where all channels of a position are in one piece
_PLACES = 256  # fewest result positions of a piece for which weights are prepared
_PHASE = 2048  # fewest multiplications of a vector of channels worth a convolution of their own
_REUSED = 36  # most reads of a vector, for as many weights, in place; beyond that vectors are packed first
_NEIGHBOURS = 4  # fewest vectors of a position's channels written by one thread
_MOST_PIECES = 256
_ROWS_BYTES = 1 << 18  # bytes of input rows that a piece keeps ready
_UNROLLED = 512  # multiplications of vectors in the loop of a block
_SUMS = {16: 10, 32: 25}  # vectors of sums held in registers, by the number of registers
_TAPS = LONGEST_ROW  # kernel columns unrolled at once
_LINE = 64  # bytes of a cache line
_ASIDE = 32  # most vectors of a row in the buffer before they are rounded and written
_BUNDLE = 32  # channels of a position given to an epilogue at once
_NEAR = 1 << 18  # most bytes of an image's rows read vector by vector: they stay in the L2 cache
_FEW = 8  # pieces that suffice for large images
_WANTED = 64  # least pieces of large work, where it can be divided so
_GIL_WORK = 1 << 18  # least multiplications that release the GIL


def _even(n: int, most: int) -> int:
    """The largest number up to `most` that divides n into the fewest, most equal parts."""
    parts = -(-n // most)
    return -(-n // parts)


def _blocking(registers: int, outs: int, height: int, vectors: int, taps: int) -> tuple[int, int, int]:
    """(channels, rows, vectors) of a block."""
    room = 16 if registers == 32 else 8
    o = max(d for d in range(1, min(outs, 8) + 1) if outs % d == 0)
    v = _even(vectors, min(4 if o == 1 else 2, 4))
    r = max(1, min(room // (o * v), height, max(1, _UNROLLED // (o * v * min(taps, _TAPS)))))
    return o, _even(height, r), v


def tile_address(tile: DirectTile | WeightTile) -> int:
    """The address of a block's kernel, loaded once."""
    if tile.symbol not in _LOADED:
        _LOADED.setdefault(tile.symbol, jit.load(_runtime.cached_object(tile.text, "quick"), [tile.symbol]))
    return _LOADED[tile.symbol][tile.symbol]


@cache
def _found_tile(make: Callable[..., DirectTile | WeightTile], *given: Any, **more: Any) -> int:
    """The address of the kernel of the block `make(*given, **more)`; convolutions of new sizes mostly ask for a known
    one."""
    return tile_address(make(*given, **more))


def takes_direct(step: ExternStep) -> bool:
    """Whether a `conv_windows` has so few channels a group that packing them for products would not pay."""
    x, w, *more = step.inputs
    outs, size = w.shape[1], step.params["size"]
    if sums_over_places(step):
        alone = not more and step.epilogue is None
        return (
            x.shape[0] <= FEW_CHANNELS
            and outs <= FEW_CHANNELS
            and alone
            and size[-1] <= _SUMS[16]
            and numel(size) <= 1 << 10
        )
    return has_few_channels(step)


def direct_call(step: ExternStep) -> list[Launch]:
    """The kernel of a `conv_windows` with few channels a group."""
    x, w, *more = step.inputs
    y = step.outputs[0]
    source, target = _SHORT[x.dtype.name], _SHORT[y.dtype.name]
    kind = Weights if sums_over_places(step) else Direct
    operands = "f64" if source == "f64" else "f32", x, w, y, more[0] if more else None, step.params
    works = [kind(*operands)]
    if kind is Direct and step.epilogue is None and max(step.params["spread"]) > 1 and works[0].worth_phases():
        works = [Direct(*operands, phase) for phase in _phases(*operands[1:])] or works
    after: list[int] = []
    for work in works:
        work.words |= {"operand": len(step.sizes), "given": D_BYTES, "bundle": 1}
        if step.epilogue is not None:
            after = epilogue_words(len(step.sizes), len(step.inputs), step.epilogue)
            work.words["after"] = 1 + step.epilogue.part.transposed
            work.bundle()
        work.words["pieces"] = (
            -(-work.words["batch"] * work.words["groups"] // work.words["chunk"]) * work.words["bands"]
        )
    pieces, multiplications = (
        sum(counts) for counts in zip(*((work.words["pieces"], work.multiplications) for work in works), strict=True)
    )
    head = [pieces, int(multiplications > _GIL_WORK), len(step.sizes), *step.sizes]
    ints = head + [0] * (8 - len(head)) + [work.words[name] for work in works for name in D] + after
    call = _callable(source, target, _SHORT[step.params["dtype"].name], works[0].words["lanes"], kind is Weights)
    return [Launch(call, ints, range(len(step.inputs) + len(step.words)))]


def _phases(x: Operand, w: Operand, y: Operand, bias: Operand | None, params: dict[str, Any]) -> list[dict[str, int]]:
    """The differences between the descriptors of the plain convolutions that make up one of a dilated input; none where
    a kernel has no taps."""
    phases = []
    for words in Work(x, w, y, bias, params).apart():
        changes = {"w_base": words["w_base"], "y_base": words["y_base"]}
        for letter in "dhw":
            changes |= {
                f"out_{letter}": words[letter],
                f"spread_{letter}": 1,
                f"w_{letter}": words[f"w_{letter}"],
                f"y_{letter}": words[f"y_{letter}"],
            }
            for name, other in (("kernel", "k"), ("dilation", "gap"), ("pad", "lo")):
                changes[f"{name}_{letter}"] = settled(words[f"{other}_{letter}"])
            if changes[f"kernel_{letter}"] == 0:
                return []
        phases.append(changes)
    return phases


@cache
def _callable(source: str, target: str, added: str, lanes: int, weights: bool) -> Callable[..., Any]:
    """The kernel around all blocks, loaded once."""
    mover = RowMover("f64" if source == "f64" else "f32", lanes)
    key = f"{source} {target} {added} {mover.copy} {weights}"
    if key not in _CALLABLES:
        moves = _LOADED.setdefault(mover.copy, jit.load(_runtime.cached_object(mover.text, "quick"), mover.symbols))
        imports = {**_runtime.runtime().symbols, **{name: moves[name] for name in mover.symbols}}
        if weights:
            function = make_weights(source, target, mover)
        else:
            transposer = host_tiles(mover.kind)[0]
            transposer_code = _LOADED.setdefault(
                transposer.transpose_symbol,
                jit.load(_runtime.compile_text(transposer.text), [transposer.transpose_symbol]),
            )
            imports[transposer.transpose_symbol] = transposer_code[transposer.transpose_symbol]
            function = make_direct(source, target, added, mover, transposer)
        loaded = jit.load(_runtime.compile_native([function]), [function.symbol], imports)
        _CALLABLES.setdefault(key, make_kernel_callable(loaded[function.symbol], function.symbol, loaded))
    return _CALLABLES[key]


class Direct:
    """A convolution with few channels a group, and its blocking.  `words` is its descriptor (`direct_descriptor.D`)."""

    kernel = "kernel"  # prefix of the fields that count elements of the second operand

    def __init__(
        self,
        kind: str,
        x: Operand,
        w: Operand,
        y: Operand,
        bias: Operand | None,
        params: dict[str, Any],
        phase: dict[str, int] | None = None,
    ) -> None:
        self.kind, self.target, self.phase = kind, host_target(), phase
        self.size, self.item = 4 if kind == "f32" else 8, x.dtype.itemsize
        words = self.words = dict.fromkeys(D, 0) | {"mix": 1}
        words["lanes"] = self.target.vector_bytes // self.size
        self.registers = 32 if self.target.arch == "aarch64" or self.target.vector_bytes == 64 else 16
        self.fma = self.target.arch == "aarch64" or (self.target.fma and self.target.vector_bytes > 16)
        n = len(params["size"])
        ones, zeros = (1,) * (3 - n), (0,) * (3 - n)
        words["batch"], groups, words["depth"] = x.shape[:3]
        self.groups, self.outs = groups, settled(w.shape[1])
        for name, operand, head in (("x", x, "ngc"), ("w", w, "goc"), ("y", y, "ngo")):
            for letter, stride in zip(
                (*head, "d", "h", "w"), (*operand.strides[:3], *zeros, *operand.strides[3:]), strict=True
            ):
                words[f"{name}_{letter}"] = stride
        words["bias_g"], words["bias_o"] = bias.strides if bias is not None else (0, -1)
        for name, values, fill in (
            ("in", x.shape[3:], ones), ("out", params["size"], ones), ("kernel", w.shape[3:], ones), ("stride", params["stride"], ones),
            ("dilation", params["dilation"], ones), ("pad", params["lo"], zeros), ("spread", params["spread"], ones),
        ):  # fmt: skip
            for letter, value in zip("dhw", (*fill, *values), strict=True):
                words[f"{name}_{letter}"] = value if name in ("in", "out") else settled(value)
        if params["flip"]:
            for letter in "dhw":
                words["w_base"] += words[f"w_{letter}"] * (words[f"{self.kernel}_{letter}"] - 1)
                words[f"w_{letter}"] *= -1
        words |= phase or {}
        moved = numel(x.shape) * x.dtype.itemsize + numel(y.shape) * self.size
        self.large = (
            y.place >= 0 and y.dtype.itemsize == self.size and moved > self.target.l3_bytes // 2
        )  # larger than the caches
        self._bring_together(x, w, y)
        self._block()
        self._cut()

    def _bring_together(self, x: Operand, w: Operand, y: Operand) -> None:
        """Whether lanes are channels: of groups of one channel, or of several small groups that share a vector."""
        words, few = self.words, self.outs
        alike = few == words["depth"] and (few == 1 or self._may_mix(few, "xy"))
        words["together"] = int(alike and words["x_g"] == few and self.groups > 1)
        transposed = alike and not words["together"] and self._worth_transposing(x, y)
        if (words["together"] or transposed) and few > 1:
            words |= {"mix": few, "depth": 1, "x_g": words["x_c"], "y_g": words["y_o"], "bias_g": words["bias_o"]}
            self.groups, self.outs = self.groups * few, 1
        if transposed:
            self._transpose()
        words["singles"] = self.groups
        words["groups"] = -(-self.groups // words["lanes"]) if words["together"] else self.groups

    def _may_mix(self, few: int, operands: str) -> bool:
        """Whether vectors can hold several groups of `few` channels: channels of all groups of these operands must be
        evenly spaced."""
        words, head = self.words, {"x": "c", "y": "o", "w": "o"}
        even = all(words[f"{name}_g"] == few * words[f"{name}_{head[name]}"] for name in operands)
        return few in MIXED and few <= words["lanes"] <= 2 * few * self.groups and even

    def _places(self) -> tuple[tuple[int, int], ...]:
        """The start of each kernel column in a prepared row: its phase by the stride, and an element in it."""
        words = self.words
        unit, stride = words["lanes"] if words["together"] else 1, words["stride_w"]
        words["lead"] = 0 if words["together"] else -max(words["pad_w"], 0) // stride % words["lanes"]
        reaches = [j * words["dilation_w"] for j in range(words["kernel_w"])]
        return tuple((u % stride, words["lead"] + u // stride * unit) for u in reaches)

    def _worth_transposing(self, x: Operand, y: Operand) -> bool:
        """Whether rows are so short that vectors of channels pay in spite of a transposition."""
        words = self.words
        planes = all(v.strides[-1] == 1 and v.strides[-2] == v.shape[-1] for v in (x, y) if len(v.shape) == 5)
        return (
            self.phase is None and planes and len(x.shape) == 5 and x.dtype is y.dtype and words["lanes"] <= 2 * self.groups * self.outs
            and words["out_w"] < (words["lanes"] if self.outs == 1 else words["lanes"] // 2 + 1)
        )  # fmt: skip

    def worth_phases(self) -> bool:
        """Whether to convolve a dilated image in parts, one for each remainder of the result positions modulo the
        spread, without its zeros.

        It pays where results are vectors, and many.
        """
        words = self.words
        if not words["together"] or words["y_transpose"] or any(words[f"stride_{letter}"] > 1 for letter in "dhw"):
            return False
        places = (
            words["out_d"]
            * words["out_h"]
            * words["out_w"]
            // (words["spread_d"] * words["spread_h"] * words["spread_w"])
        )
        return bool(places * words["kernel_d"] * words["kernel_h"] * words["kernel_w"] * words["mix"] >= _PHASE)

    def _transpose(self) -> None:
        words, lanes = self.words, self.words["lanes"]
        words |= {"together": 1, "x_transpose": words["x_g"], "y_transpose": words["y_g"], "x_g": 0, "y_g": 1}
        words |= {"x_w": lanes, "x_h": lanes * words["in_w"], "y_w": lanes, "y_h": lanes * words["out_w"]}

    def _block(self) -> None:
        """Choose the block of results held in registers."""
        words = self.words
        lanes, together = words["lanes"], bool(words["together"])
        vectors = words["out_w"] if together else -(-words["out_w"] // lanes)
        taps = words["kernel_h"] * words["kernel_w"]
        o, r, v = map(settled, _blocking(self.registers, self.outs, words["out_h"], vectors, taps))
        height, steps = (words["kernel_h"], 1) if taps <= _TAPS else (1, words["kernel_h"])
        places = self._places()
        last = settled((vectors - 1) % v + 1)
        stream = self.large and not words["y_transpose"] and words["out_h"] % r == 0 and self._lines()

        whole = self.target.vector_bytes == 64

        def tile(n: int, edge: bool) -> int:
            return _found_tile(
                DirectTile, self.kind, lanes, self.fma, outs=o, rows=r, vectors=n, height=height, width=words["kernel_w"], stride=words["stride_h"],
                dilation=words["dilation_h"], places=places, channelwise=together, whole=whole, stream=stream, mix=words["mix"], edge=edge,
            )  # fmt: skip

        placed = self._placed()
        across = 1 if together else lanes
        words["extent"] = (
            (v * across - 1) * words["stride_w"] + (words["kernel_w"] - 1) * words["dilation_w"] + words["lead"] + 1
        )
        if not together and whole:
            words["extent"] = -(-words["extent"] // lanes) * lanes
        words["shift"] = words["pad_w"] + words["lead"]
        begin = (
            -(-max(words["shift"], 0) // (v * across * words["stride_w"])) * v * across
        )  # first block that reads only elements inside the image
        any_inside = (
            begin * words["stride_w"] - words["shift"] + words["extent"] <= words["in_w"]
            and begin + v * across <= words["out_w"]
        )
        words["tile"] = tile(v, False) if any_inside or not placed else 0
        words |= {"placed": int(placed), "edge": tile(v, placed), "edge_last": tile(last, placed)}
        words |= {"height_tile": r, "vectors": v, "vectors_last": last, "outs": o}
        words["span"] = max(_ASIDE // v, 1) * v
        words |= {"blocks": self.outs // o, "steps": steps}

    def _placed(self) -> bool:
        """Whether blocks read image rows in place: vectors of them exist, are close enough, and lanes can be masked."""
        words = self.words
        there = self.size == self.item or bool(words["y_transpose"])
        near = words["stride_w"] == 1 and words["x_w"] == 1
        if words["together"]:
            near = bool(words["y_transpose"]) or words["kernel_h"] * words["kernel_w"] * words["mix"] <= _REUSED
        return bool(
            there
            and near
            and max(words[f"spread_{letter}"] for letter in "dhw") == 1
            and self.target.arch == "x86_64"
            and self.fma
        )

    def _lines(self) -> bool:
        """Whether all vectors of results are whole and aligned to their size."""
        words, lanes = self.words, self.words["lanes"]
        steps = ["n", "d", "h", *("w" if words["together"] else "go")]
        whole = (
            words["y_g"] == 1 and self.groups % lanes == 0
            if words["together"]
            else words["y_w"] == 1 and words["out_w"] % lanes == 0
        )
        return whole and all(words[f"y_{letter}"] % lanes == 0 for letter in steps)

    def _row(self, columns: int, across: int, unit: int) -> None:
        """The length of a prepared row of which at most `columns` positions are read."""
        words, lanes, stride = self.words, self.words["lanes"], self.words["stride_w"]
        shift = (words["kernel_w"] - 1) * words["dilation_w"] // stride
        fitting = -(-((words["in_w"] - 1) * words["spread_w"] + 1 + max(words["pad_w"], 0)) // stride)
        line = (words["lead"] + max(columns + shift + across, fitting)) * unit
        words["phase"] = -(-line // lanes) * lanes
        words["pitch"] = words["phase"] * stride

    def _cut(self) -> None:
        """Choose the pieces and the number of prepared rows."""
        words, lanes = self.words, self.words["lanes"]
        across, unit = (1, lanes) if words["together"] else (lanes, 1)
        v, r = words["vectors"], words["height_tile"]
        self._row(-(-words["out_w"] // (v * across)) * v * across, across, unit)
        reach = (words["kernel_h"] - 1) * words["dilation_h"] + 1
        planes = words["depth"] * words["kernel_d"]
        places = words["out_d"] * words["out_h"] * words["out_w"]
        work = places * planes * words["kernel_h"] * words["kernel_w"] * self.outs * words["mix"] * unit
        units, high = words["batch"] * words["groups"], words["out_h"]
        self.multiplications = work * units
        room = max(r, (_ROWS_BYTES // (words["pitch"] * self.size * planes) - reach) // words["stride_h"])
        nothing = words["pitch"]
        if words["placed"]:
            room, nothing = high, (words["in_w"] - 1) * words["x_w"] + lanes
        words["nothing"] = -(-nothing * self.size // _LINE) * _LINE
        bands = (
            1
            if words["y_transpose"]
            else max(1, min(high // r, -(-work // _PIECE), -(-_WANTED // units)), -(-high // room))
        )
        rounds = -(-high // bands)
        words["band"] = -(-rounds // r) * r
        words["bands"] = bands = -(-high // words["band"])
        words["chunk"] = max(1, min(units, _PIECE * bands // work), -(-units * bands // _MOST_PIECES))
        if (
            words["together"] and words["groups"] > 1
        ):  # vectors of narrow numbers are parts of a cache line: one piece takes all of it
            line = max(_LINE // (lanes * self.item), 1)
            words["chunk"] = min(-(-words["chunk"] // line) * line, units)
        if words["together"] and not words["y_transpose"] and words["groups"] > 1:
            if words["placed"]:
                self._share_rows(r, high)
            else:
                self._bring_all(r, reach, high)
        words["rows"] = (words["band"] - 1) * words["stride_h"] + reach + (r - 1) * words["stride_h"] + 1

    def _bring_all(self, r: int, reach: int, high: int) -> None:
        """Pieces of few rows and all channels, where there are enough: one cache line holds channels of several
        vectors."""
        words = self.words
        line = words["in_w"] * max(words["x_w"], words["lanes"]) * self.item * words["kernel_d"]
        fitting = max((_NEAR // line - reach) // words["stride_h"] + 1, 2 * reach, r)
        bands = -(-high // (fitting // r * r))
        if words["batch"] * words["out_d"] * bands >= _FEW:
            words["band"] = -(-_even(high, fitting // r * r) // r) * r
            words["bands"], words["chunk"] = -(-high // words["band"]), words["groups"]

    def _share_rows(self, r: int, high: int) -> None:
        """Pieces of some rows and all channels, or of some channels where there are few rows, for each of which all
        weights are prepared.

        Threads that write adjacent cache lines wait for each other.
        """
        words = self.words
        wanted = min(max(1, self.multiplications // _SHARE), _MOST_PIECES)
        rounds = -(-high // r)
        bands = min(rounds, max(high * words["out_w"] * words["out_d"] // _PLACES, 1), -(-wanted // words["batch"]))
        words["band"] = -(-rounds // bands) * r
        words["bands"] = -(-high // words["band"])
        parts = -(-wanted // (words["batch"] * words["bands"]))
        if parts > 1:
            words["chunk"] = min(-(-words["groups"] // parts // _NEIGHBOURS) * _NEIGHBOURS, words["groups"])
        else:
            words["chunk"] = words["groups"] * max(1, -(-words["batch"] * words["bands"] // _MOST_PIECES))

    def bundle(self) -> None:
        """Bundle small groups for an epilogue that takes the channels of a position contiguously."""
        words = self.words
        if words["after"] == 2 and not words["together"] and words["out_d"] == 1:
            words["bundle"] = max(1, min(_BUNDLE // self.outs, words["groups"]))
            words["chunk"] = min(
                -(-words["chunk"] // words["bundle"]) * words["bundle"], words["batch"] * words["groups"]
            )


class Weights(Direct):
    """The gradient by the weights: cotangents are the kernel, with strides and dilations exchanged."""

    kernel = "out"

    def __init__(
        self, kind: str, x: Operand, w: Operand, y: Operand, bias: Operand | None, params: dict[str, Any]
    ) -> None:
        params = {**params, "stride": params["dilation"], "dilation": params["stride"], "size": w.shape[3:]}
        kernel = Operand(w.place, w.dtype, (*w.shape[:3], *y.shape[3:]), w.strides)
        super().__init__(kind, x, kernel, y, bias, params)

    def _bring_together(self, x: Operand, w: Operand, y: Operand) -> None:
        words = self.words
        few = self.outs
        near = few == words["batch"] and words["x_g"] == words["w_g"] == few and self.groups > 1
        words["together"] = int(near and (few == 1 or (words["x_n"] == 1 and self._may_mix(few, "w"))))
        if words["together"] and few > 1:
            words |= {"mix": few, "x_g": 1, "w_g": 1, "batch": 1}
            self.groups, self.outs = self.groups * few, 1
        words["singles"], words["outs"] = self.groups, self.outs
        words["groups"] = -(-self.groups // words["lanes"]) if words["together"] else self.groups

    def _block(self) -> None:
        """Choose the vectors of sums held in registers: those of all kernel rows, or of some at a time."""
        words, lanes = self.words, self.words["lanes"]
        room = _SUMS[self.registers]
        high = max(
            d
            for d in range(1, words["kernel_h"] + 1)
            if words["kernel_h"] % d == 0 and (d == 1 or d * words["kernel_w"] <= room)
        )
        rows = settled(max(1, min(4, words["out_h"], _UNROLLED // (high * words["kernel_w"]))))
        places = self._places()

        def tile(r: int) -> int:
            return _found_tile(
                WeightTile, self.kind, lanes, self.fma, rows=r, height=high, width=words["kernel_w"], stride=words["stride_h"], dilation=words["dilation_h"],
                places=places, whole=self.target.vector_bytes == 64, mix=words["mix"],
            )  # fmt: skip

        words |= {"tile": tile(rows), "last": tile(1), "height_tile": rows, "steps": words["kernel_h"] // high}
        words["vectors"] = words["out_w"] if words["together"] else -(-words["out_w"] // lanes)

    def _cut(self) -> None:
        words, lanes = self.words, self.words["lanes"]
        across, unit = (1, lanes) if words["together"] else (lanes, 1)
        self._row(words["vectors"] * across, across, unit)
        reach = (words["kernel_h"] - 1) * words["dilation_h"] + 1
        high, step = words["out_h"], words["height_tile"]
        room = max(step, (_ROWS_BYTES // (words["pitch"] * self.size) - reach) // words["stride_h"])
        words["blocks"] = min(high, room // step * step)
        words["rows"] = (words["blocks"] - 1) * words["stride_h"] + reach
        places = words["out_d"] * high * words["out_w"] * words["kernel_d"] * words["kernel_h"] * words["kernel_w"]
        work = places * words["depth"] * self.outs * words["mix"] * unit
        units = words["batch"] * words["groups"]
        self.multiplications = work * units
        words["bands"], words["chunk"] = 1, max(1, min(units, _PIECE // work), -(-units // _MOST_PIECES))
