"""Direct convolutions with few channels a group: the choice of blocks for given sizes, and the constants of a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rushlight._backends.cpu.conv.conv import Work
from rushlight._backends.cpu.conv.conv_descriptor import POSITION_ROWS, epilogue_layout
from rushlight._backends.cpu.conv.direct_descriptor import D_BYTES, D
from rushlight._backends.cpu.conv.direct_native import make_direct
from rushlight._backends.cpu.conv.direct_tile import (
    MIXED,
    Block,
    DirectTile,
    Reads,
    RowMover,
    VectorKind,
    WeightTile,
    Window,
)
from rushlight._backends.cpu.conv.direct_weight_grad_native import make_weight_gradient
from rushlight._backends.cpu.conv.prepare import FEW_CHANNELS, LONGEST_ROW, has_few_channels, sums_over_positions
from rushlight._backends.cpu.epilogue.constants import epilogue_words
from rushlight._backends.cpu.gemm.blas import host_tiles, part_addresses
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import ExternStep, Operand
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable
from rushlight._native import jit
from rushlight._native.compiled import cached_object, compile_named
from rushlight._native.target import host_target
from rushlight._types.layout import numel
from rushlight._types.symbols import settled

__all__ = ["adds_in_one_order", "direct_call", "takes_direct"]

_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
_LOADED: dict[str, jit.Loaded | jit.Image] = {}
_CALLABLES: dict[str, Callable[..., Any]] = {}
_PIECE = 1 << 19  # least multiplications worth a thread
_SHARE = 1 << 18  # the same where all channels of a position are in one piece
_POSITIONS = 256  # fewest result positions of a piece for which weights are prepared
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
_BUNDLED = 1 << 18  # most bytes of sums of several vectors of channels given to an epilogue at once
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
        _LOADED.setdefault(tile.symbol, jit.load(cached_object(tile.text, "quick"), [tile.symbol]))
    return _LOADED[tile.symbol][tile.symbol]


@cache
def _found_tile(make: Callable[..., DirectTile | WeightTile], *parts: Any) -> int:
    """The address of the kernel of the block `make(*parts)`; convolutions of new sizes mostly ask for a known
    one."""
    return tile_address(make(*parts))


def takes_direct(step: ExternStep) -> bool:
    """Whether a `conv_windows` has so few channels a group that packing them for products would not pay."""
    x, w, *more = step.inputs
    outs, size = w.shape[1], step.params["size"]
    if sums_over_positions(step):
        alone = not more and step.epilogue is None
        return (
            x.shape[0] <= FEW_CHANNELS
            and outs <= FEW_CHANNELS
            and alone
            and size[-1] <= _SUMS[16]
            and numel(size) <= 1 << 10
        )
    return has_few_channels(step)


def adds_in_one_order(step: ExternStep) -> bool:
    """Whether the taps of a `conv_windows` are added one after the other, however its images and results lie: those of
    groups of one channel, but for gradients by the weights and dilated images.
    """
    alone = step.inputs[1].shape[1:3] == (1, 1) and has_few_channels(step) and not sums_over_positions(step)
    return alone and all(spread == 1 for spread in step.params["spread"])


def direct_call(step: ExternStep) -> list[Launch]:
    """The kernel of a `conv_windows` with few channels a group."""
    x, w, *more = step.inputs
    y = step.outputs[0]
    source, target = _SHORT[x.dtype.name], _SHORT[y.dtype.name]
    kind = WeightGradient if sums_over_positions(step) else Direct
    operands = x, w, y, more[0] if more else None, step.params
    works = [kind(*operands)]
    if kind is Direct and step.epilogue is None and max(step.params["spread"]) > 1 and works[0].worth_phases():
        works = [Direct(*operands, phase) for phase in _phases(*operands)] or works
    after: list[int] = []
    for work in works:
        work.desc |= {"operand": len(step.sizes), "epilogue_at": D_BYTES, "bundle": 1}
        if step.epilogue is not None:
            after = epilogue_words(len(step.sizes), len(step.inputs), step.epilogue)
            work.desc["epilogue"] = epilogue_layout(step.epilogue)
            work.bundle()
        work.desc["pieces"] = -(-work.desc["batch"] * work.desc["groups"] // work.desc["chunk"]) * work.desc["bands"]
    pieces, multiplications = (
        sum(counts) for counts in zip(*((work.desc["pieces"], work.multiplications) for work in works), strict=True)
    )
    head = [pieces, int(multiplications > _GIL_WORK), len(step.sizes), *step.sizes]
    ints = head + [0] * (8 - len(head)) + [work.desc[name] for work in works for name in D] + after
    call = _callable(source, target, _SHORT[step.params["dtype"].name], works[0].desc["lanes"], kind is WeightGradient)
    return [Launch(call, ints, range(len(step.inputs) + len(step.words)))]


def _phases(x: Operand, w: Operand, y: Operand, bias: Operand | None, params: dict[str, Any]) -> list[dict[str, int]]:
    """The differences between the descriptors of the plain convolutions that make up one of a dilated input; none where
    a kernel has no taps."""
    phases = []
    for desc in Work(x, w, y, bias, params).apart():
        changes = {"w_base": desc["w_base"], "y_base": desc["y_base"]}
        for letter in "dhw":
            changes |= {
                f"out_{letter}": desc[letter],
                f"spread_{letter}": 1,
                f"w_{letter}": desc[f"w_{letter}"],
                f"y_{letter}": desc[f"y_{letter}"],
            }
            for name, other in (("kernel", "k"), ("dilation", "gap"), ("pad", "lo")):
                changes[f"{name}_{letter}"] = settled(desc[f"{other}_{letter}"])
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
        moves = _LOADED.setdefault(mover.copy, jit.load(cached_object(mover.text, "quick"), mover.symbols))
        imports = {**_runtime.runtime().symbols, **{name: moves[name] for name in mover.symbols}}
        if weights:
            function = make_weight_gradient(source, target, mover)
        else:
            transposer = host_tiles(mover.kind)[0]
            imports |= part_addresses(transposer.panels)
            function = make_direct(source, target, added, mover, transposer)
        data = compile_named(f"direct {key} {lanes}", lambda: [function])
        loaded = jit.load(data, [function.symbol], imports)
        _CALLABLES.setdefault(key, make_kernel_callable(loaded[function.symbol], function.symbol, loaded))
    return _CALLABLES[key]


class Direct:
    """A convolution with few channels a group, and its blocking.  `desc` is its descriptor (`direct_descriptor.D`)."""

    kernel = "kernel"  # prefix of the fields that count elements of the second operand

    def __init__(
        self,
        x: Operand,
        w: Operand,
        y: Operand,
        bias: Operand | None,
        params: dict[str, Any],
        phase: dict[str, int] | None = None,
    ) -> None:
        self.kind = "f64" if x.dtype.name == "float64" else "f32"
        self.target, self.phase = host_target(), phase
        self.size, self.item = 4 if self.kind == "f32" else 8, x.dtype.itemsize
        desc = self.desc = dict.fromkeys(D, 0) | {"mix": 1}
        desc["lanes"] = self.target.vector_bytes // self.size
        self.registers = 32 if self.target.arch == "aarch64" or self.target.vector_bytes == 64 else 16
        self.fma = self.target.arch == "aarch64" or (self.target.fma and self.target.vector_bytes > 16)
        n = len(params["size"])
        ones, zeros = (1,) * (3 - n), (0,) * (3 - n)
        desc["batch"], groups, desc["depth"] = x.shape[:3]
        self.groups, self.outs = groups, settled(w.shape[1])
        for name, operand, head in (("x", x, "ngc"), ("w", w, "goc"), ("y", y, "ngo")):
            for letter, stride in zip(
                (*head, "d", "h", "w"), (*operand.strides[:3], *zeros, *operand.strides[3:]), strict=True
            ):
                desc[f"{name}_{letter}"] = stride
        desc["bias_g"], desc["bias_o"] = bias.strides if bias is not None else (0, -1)
        for name, values, fill in (
            ("in", x.shape[3:], ones),
            ("out", params["size"], ones),
            ("kernel", w.shape[3:], ones),
            ("stride", params["stride"], ones),
            ("dilation", params["dilation"], ones),
            ("pad", params["lo"], zeros),
            ("spread", params["spread"], ones),
        ):
            for letter, value in zip("dhw", (*fill, *values), strict=True):
                desc[f"{name}_{letter}"] = value if name in ("in", "out") else settled(value)
        if params["flip"]:
            for letter in "dhw":
                desc["w_base"] += desc[f"w_{letter}"] * (desc[f"{self.kernel}_{letter}"] - 1)
                desc[f"w_{letter}"] *= -1
        desc |= phase or {}
        moved = numel(x.shape) * x.dtype.itemsize + numel(y.shape) * self.size
        # Larger than the caches
        self.large = y.number >= 0 and y.dtype.itemsize == self.size and moved > self.target.l3_bytes // 2
        self._bring_together(x, w, y)
        self._block()
        self._cut()

    def _bring_together(self, x: Operand, w: Operand, y: Operand) -> None:
        """Whether lanes are channels: of groups of one channel, or of several small groups that share a vector."""
        desc, few = self.desc, self.outs
        alike = few == desc["depth"] and (few == 1 or self._may_mix(few, "xy"))
        desc["together"] = int(alike and desc["x_g"] == few and self.groups > 1)
        transposed = alike and not desc["together"] and self._worth_transposing(x, y)
        if (desc["together"] or transposed) and few > 1:
            desc |= {"mix": few, "depth": 1, "x_g": desc["x_c"], "y_g": desc["y_o"], "bias_g": desc["bias_o"]}
            self.groups, self.outs = self.groups * few, 1
        if transposed:
            self._transpose()
        desc["singles"] = self.groups
        desc["groups"] = -(-self.groups // desc["lanes"]) if desc["together"] else self.groups

    def _may_mix(self, few: int, operands: str) -> bool:
        """Whether vectors can hold several groups of `few` channels: channels of all groups of these operands must be
        evenly spaced."""
        desc, head = self.desc, {"x": "c", "y": "o", "w": "o"}
        even = all(desc[f"{name}_g"] == few * desc[f"{name}_{head[name]}"] for name in operands)
        return few in MIXED and few <= desc["lanes"] <= 2 * few * self.groups and even

    def _columns(self) -> tuple[tuple[int, int], ...]:
        """The start of each kernel column in a prepared row: its phase by the stride, and an element in it."""
        desc = self.desc
        unit, stride = desc["lanes"] if desc["together"] else 1, desc["stride_w"]
        desc["lead"] = 0 if desc["together"] else -max(desc["pad_w"], 0) // stride % desc["lanes"]
        reaches = [j * desc["dilation_w"] for j in range(desc["kernel_w"])]
        return tuple((u % stride, desc["lead"] + u // stride * unit) for u in reaches)

    def _worth_transposing(self, x: Operand, y: Operand) -> bool:
        """Whether rows are so short that vectors of channels pay in spite of a transposition."""
        desc = self.desc
        planes = all(v.strides[-1] == 1 and v.strides[-2] == v.shape[-1] for v in (x, y) if len(v.shape) == 5)
        return (
            self.phase is None
            and planes
            and len(x.shape) == 5
            and x.dtype is y.dtype
            and desc["lanes"] <= 2 * self.groups * self.outs
            and desc["out_w"] < (desc["lanes"] if self.outs == 1 else desc["lanes"] // 2 + 1)
        )

    def worth_phases(self) -> bool:
        """Whether to convolve a dilated image in parts, one for each remainder of the result positions modulo the
        spread, without its zeros.

        It pays where results are vectors, and many.
        """
        desc = self.desc
        if not desc["together"] or desc["y_transpose"] or any(desc[f"stride_{letter}"] > 1 for letter in "dhw"):
            return False
        positions = (
            desc["out_d"] * desc["out_h"] * desc["out_w"] // (desc["spread_d"] * desc["spread_h"] * desc["spread_w"])
        )
        return bool(positions * desc["kernel_d"] * desc["kernel_h"] * desc["kernel_w"] * desc["mix"] >= _PHASE)

    def _transpose(self) -> None:
        desc, lanes = self.desc, self.desc["lanes"]
        desc |= {"together": 1, "x_transpose": desc["x_g"], "y_transpose": desc["y_g"], "x_g": 0, "y_g": 1}
        desc |= {"x_w": lanes, "x_h": lanes * desc["in_w"], "y_w": lanes, "y_h": lanes * desc["out_w"]}

    def _block(self) -> None:
        """Choose the block of results held in registers."""
        desc = self.desc
        lanes, together = desc["lanes"], bool(desc["together"])
        vectors = desc["out_w"] if together else -(-desc["out_w"] // lanes)
        taps = desc["kernel_h"] * desc["kernel_w"]
        o, r, v = map(settled, _blocking(self.registers, self.outs, desc["out_h"], vectors, taps))
        height, steps = (desc["kernel_h"], 1) if taps <= _TAPS else (1, desc["kernel_h"])
        columns = self._columns()
        last = settled((vectors - 1) % v + 1)
        stream = self.large and not desc["y_transpose"] and desc["out_h"] % r == 0 and self._lines()

        whole = self.target.vector_bytes == 64

        kind = VectorKind(self.kind, lanes, self.fma)
        window = Window(height, desc["kernel_w"], desc["stride_h"], desc["dilation_h"], columns)

        def tile(n: int, edge: bool) -> int:
            reads = Reads(whole, stream, edge)
            return _found_tile(DirectTile, kind, Block(o, r, n), window, reads, desc["mix"] if together else 0)

        placed = self._placed()
        across = 1 if together else lanes
        desc["extent"] = (
            (v * across - 1) * desc["stride_w"] + (desc["kernel_w"] - 1) * desc["dilation_w"] + desc["lead"] + 1
        )
        if not together and whole:
            desc["extent"] = -(-desc["extent"] // lanes) * lanes
        desc["shift"] = desc["pad_w"] + desc["lead"]
        # First block that reads only elements inside the image
        begin = -(-max(desc["shift"], 0) // (v * across * desc["stride_w"])) * v * across
        any_inside = (
            begin * desc["stride_w"] - desc["shift"] + desc["extent"] <= desc["in_w"]
            and begin + v * across <= desc["out_w"]
        )
        desc["tile"] = tile(v, False) if any_inside or not placed else 0
        desc |= {"placed": int(placed), "edge": tile(v, placed), "edge_last": tile(last, placed)}
        desc |= {"height_tile": r, "vectors": v, "vectors_last": last, "outs": o}
        desc["span"] = max(_ASIDE // v, 1) * v
        desc |= {"blocks": self.outs // o, "steps": steps}

    def _placed(self) -> bool:
        """Whether blocks read image rows in place: vectors of them exist, are close enough, and lanes can be masked."""
        desc = self.desc
        there = self.size == self.item or bool(desc["y_transpose"])
        near = desc["stride_w"] == 1 and desc["x_w"] == 1
        if desc["together"]:
            near = bool(desc["y_transpose"]) or desc["kernel_h"] * desc["kernel_w"] * desc["mix"] <= _REUSED
        return bool(
            there
            and near
            and max(desc[f"spread_{letter}"] for letter in "dhw") == 1
            and self.target.arch == "x86_64"
            and self.fma
        )

    def _lines(self) -> bool:
        """Whether all vectors of results are whole and aligned to their size."""
        desc, lanes = self.desc, self.desc["lanes"]
        steps = ["n", "d", "h", *("w" if desc["together"] else "go")]
        whole = (
            desc["y_g"] == 1 and self.groups % lanes == 0
            if desc["together"]
            else desc["y_w"] == 1 and desc["out_w"] % lanes == 0
        )
        return whole and all(desc[f"y_{letter}"] % lanes == 0 for letter in steps)

    def _row(self, columns: int, across: int, unit: int) -> None:
        """The length of a prepared row of which at most `columns` positions are read."""
        desc, lanes, stride = self.desc, self.desc["lanes"], self.desc["stride_w"]
        shift = (desc["kernel_w"] - 1) * desc["dilation_w"] // stride
        fitting = -(-((desc["in_w"] - 1) * desc["spread_w"] + 1 + max(desc["pad_w"], 0)) // stride)
        line = (desc["lead"] + max(columns + shift + across, fitting)) * unit
        desc["phase"] = -(-line // lanes) * lanes
        desc["pitch"] = desc["phase"] * stride

    def _cut(self) -> None:
        """Choose the pieces and the number of prepared rows."""
        desc, lanes = self.desc, self.desc["lanes"]
        across, unit = (1, lanes) if desc["together"] else (lanes, 1)
        v, r = desc["vectors"], desc["height_tile"]
        self._row(-(-desc["out_w"] // (v * across)) * v * across, across, unit)
        reach = (desc["kernel_h"] - 1) * desc["dilation_h"] + 1
        planes = desc["depth"] * desc["kernel_d"]
        positions = desc["out_d"] * desc["out_h"] * desc["out_w"]
        work = positions * planes * desc["kernel_h"] * desc["kernel_w"] * self.outs * desc["mix"] * unit
        units, high = desc["batch"] * desc["groups"], desc["out_h"]
        self.multiplications = work * units
        room = max(r, (_ROWS_BYTES // (desc["pitch"] * self.size * planes) - reach) // desc["stride_h"])
        nothing = desc["pitch"]
        if desc["placed"]:
            room, nothing = high, (desc["in_w"] - 1) * desc["x_w"] + lanes
        desc["nothing"] = -(-nothing * self.size // _LINE) * _LINE
        bands = (
            1
            if desc["y_transpose"]
            else max(1, min(high // r, -(-work // _PIECE), -(-_WANTED // units)), -(-high // room))
        )
        rounds = -(-high // bands)
        desc["band"] = -(-rounds // r) * r
        desc["bands"] = bands = -(-high // desc["band"])
        desc["chunk"] = max(1, min(units, _PIECE * bands // work), -(-units * bands // _MOST_PIECES))
        # Vectors of narrow numbers are parts of a cache line: one piece takes all of it
        if desc["together"] and desc["groups"] > 1:
            line = max(_LINE // (lanes * self.item), 1)
            desc["chunk"] = min(-(-desc["chunk"] // line) * line, units)
        if desc["together"] and not desc["y_transpose"] and desc["groups"] > 1:
            if desc["placed"]:
                self._share_rows(r, high)
            else:
                self._bring_all(r, reach, high)
        desc["rows"] = (desc["band"] - 1) * desc["stride_h"] + reach + (r - 1) * desc["stride_h"] + 1

    def _bring_all(self, r: int, reach: int, high: int) -> None:
        """Pieces of few rows and all channels, where there are enough: one cache line holds channels of several
        vectors."""
        desc = self.desc
        line = desc["in_w"] * max(desc["x_w"], desc["lanes"]) * self.item * desc["kernel_d"]
        fitting = max((_NEAR // line - reach) // desc["stride_h"] + 1, 2 * reach, r)
        bands = -(-high // (fitting // r * r))
        if desc["batch"] * desc["out_d"] * bands >= _FEW:
            desc["band"] = -(-_even(high, fitting // r * r) // r) * r
            desc["bands"], desc["chunk"] = -(-high // desc["band"]), desc["groups"]

    def _share_rows(self, r: int, high: int) -> None:
        """Pieces of some rows and all channels, or of some channels where there are few rows, for each of which all
        weights are prepared.

        Threads that write adjacent cache lines wait for each other.
        """
        desc = self.desc
        wanted = min(max(1, self.multiplications // _SHARE), _MOST_PIECES)
        rounds = -(-high // r)
        bands = min(rounds, max(high * desc["out_w"] * desc["out_d"] // _POSITIONS, 1), -(-wanted // desc["batch"]))
        desc["band"] = -(-rounds // bands) * r
        desc["bands"] = -(-high // desc["band"])
        parts = -(-wanted // (desc["batch"] * desc["bands"]))
        if parts > 1:
            desc["chunk"] = min(-(-desc["groups"] // parts // _NEIGHBOURS) * _NEIGHBOURS, desc["groups"])
        else:
            desc["chunk"] = desc["groups"] * max(1, -(-desc["batch"] * desc["bands"] // _MOST_PIECES))

    def bundle(self) -> None:
        """Bundle groups, or vectors of them, for an epilogue that takes the channels of a position contiguously."""
        desc = self.desc
        if desc["epilogue"] != POSITION_ROWS or desc["y_transpose"] or desc["out_d"] != 1:
            return
        if desc["together"]:
            row = desc["lanes"] * desc["band"] * desc["out_w"] * self.size
            desc["bundle"] = max(1, min(_BUNDLED // row, desc["chunk"], desc["groups"]))
            return
        desc["bundle"] = max(1, min(_BUNDLE // self.outs, desc["groups"]))
        desc["chunk"] = min(-(-desc["chunk"] // desc["bundle"]) * desc["bundle"], desc["batch"] * desc["groups"])


class WeightGradient(Direct):
    """The gradient by the weights: cotangents are the kernel, with strides and dilations exchanged."""

    kernel = "out"

    def __init__(self, x: Operand, w: Operand, y: Operand, bias: Operand | None, params: dict[str, Any]) -> None:
        params = {**params, "stride": params["dilation"], "dilation": params["stride"], "size": w.shape[3:]}
        kernel = Operand(w.number, w.dtype, (*w.shape[:3], *y.shape[3:]), w.strides)
        super().__init__(x, kernel, y, bias, params)

    def _bring_together(self, x: Operand, w: Operand, y: Operand) -> None:
        desc = self.desc
        few = self.outs
        near = few == desc["batch"] and desc["x_g"] == desc["w_g"] == few and self.groups > 1
        desc["together"] = int(near and (few == 1 or (desc["x_n"] == 1 and self._may_mix(few, "w"))))
        if desc["together"] and few > 1:
            desc |= {"mix": few, "x_g": 1, "w_g": 1, "batch": 1}
            self.groups, self.outs = self.groups * few, 1
        desc["singles"], desc["outs"] = self.groups, self.outs
        desc["groups"] = -(-self.groups // desc["lanes"]) if desc["together"] else self.groups

    def _block(self) -> None:
        """Choose the vectors of sums held in registers: those of all kernel rows, or of some at a time."""
        desc, lanes = self.desc, self.desc["lanes"]
        room = _SUMS[self.registers]
        high = max(
            d
            for d in range(1, desc["kernel_h"] + 1)
            if desc["kernel_h"] % d == 0 and (d == 1 or d * desc["kernel_w"] <= room)
        )
        rows = settled(max(1, min(4, desc["out_h"], _UNROLLED // (high * desc["kernel_w"]))))
        columns = self._columns()

        kind = VectorKind(self.kind, lanes, self.fma)
        window = Window(high, desc["kernel_w"], desc["stride_h"], desc["dilation_h"], columns)

        def tile(r: int) -> int:
            return _found_tile(WeightTile, kind, r, window, self.target.vector_bytes == 64, desc["mix"])

        desc |= {"tile": tile(rows), "last": tile(1), "height_tile": rows, "steps": desc["kernel_h"] // high}
        desc["vectors"] = desc["out_w"] if desc["together"] else -(-desc["out_w"] // lanes)

    def _cut(self) -> None:
        desc, lanes = self.desc, self.desc["lanes"]
        across, unit = (1, lanes) if desc["together"] else (lanes, 1)
        self._row(desc["vectors"] * across, across, unit)
        reach = (desc["kernel_h"] - 1) * desc["dilation_h"] + 1
        high, step = desc["out_h"], desc["height_tile"]
        room = max(step, (_ROWS_BYTES // (desc["pitch"] * self.size) - reach) // desc["stride_h"])
        desc["blocks"] = min(high, room // step * step)
        desc["rows"] = (desc["blocks"] - 1) * desc["stride_h"] + reach
        positions = desc["out_d"] * high * desc["out_w"] * desc["kernel_d"] * desc["kernel_h"] * desc["kernel_w"]
        work = positions * desc["depth"] * self.outs * desc["mix"] * unit
        units = desc["batch"] * desc["groups"]
        self.multiplications = work * units
        desc["bands"], desc["chunk"] = 1, max(1, min(units, _PIECE // work), -(-units // _MOST_PIECES))
