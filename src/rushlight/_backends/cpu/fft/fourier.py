"""Fourier transforms as native calls: the method for a length, its tables, and the blocking; from sizes and strides
alone."""

from __future__ import annotations

import math
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from rushlight._backends.cpu.fft.fourier_native import (
    CHIRPS,
    COLUMN_FACTORS,
    COMPLEX,
    ELEMENTS,
    FACTORS,
    FILTER,
    FULL,
    HALVES,
    LANE_FACTORS,
    NEITHER,
    PAIRS,
    ROOT_PAIRS,
    ROOT_PARTS,
    SEQUENCES,
    STRIDED,
    TWIDDLES,
    make_fourier,
    make_tables,
)
from rushlight._backends.cpu.gemm.blas import host_tiles
from rushlight._backends.cpu.launches import Launch, joined
from rushlight._backends.cpu.microkernels.fourier import RADICES, FourierMoves, FourierPass
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime import stubs
from rushlight._backends.cpu.runtime.generated import compile_made
from rushlight._native import jit
from rushlight._native.compiled import compile_native
from rushlight._prims.linalg.fourier import factor_of
from rushlight._types.layout import contiguous_strides

__all__ = ["fourier_call", "fourier_note"]

_KINDS = {"complex64": "f32", "complex128": "f64", "float32": "f32", "float64": "f64"}
_SIZES = {"f32": 4, "f64": 8}
_PIECE = 1 << 14  # least numbers worth a thread
_NEAR = 1 << 19  # most bytes of a sequence that stays in a core's cache together with its results
_SHORT = 64  # shortest sequence that is transformed as a matrix
_ROWS = 2048  # longest rows that may be spread over lanes, where there are enough of them
# vectors of 32 bytes: rows that fill so many of them, of more complex numbers than that, are spread over lanes rather than
# transformed as matrices, whose passes of large radices need more than 16 registers
_NARROW, _FULL_TILES, _MATRIX = 32, 4, 128
_FACTORS = 1 << 17  # most bytes of a matrix's factors in a table; others are computed from fewer
_COLUMN = 1 << 15  # longest sequences that are taken together; longer ones are taken one by one
# measured cost of a radix's pass for each number: memory traffic and arithmetic
_COST = {
    1: 1.0,
    2: 1.5,
    3: 2.0,
    4: 1.7,
    5: 2.4,
    7: 3.2,
    8: 2.2,
    11: 5.0,
    13: 6.0,
    16: 3.2,
    17: 9.0,
    19: 10.0,
    23: 13.0,
    29: 18.0,
    31: 20.0,
}

Dim = tuple[int, int, int]  # size, steps in bytes in the source and in the result


# ***** lengths *****


@lru_cache(1 << 12)
def radices(n: int) -> tuple[float, tuple[int, ...]] | None:
    """(cost, radices) of the cheapest passes for n numbers; None if n has a prime factor without a pass."""
    if n == 1:
        return 0.0, ()
    best: tuple[float, tuple[int, ...]] | None = None
    for radix in RADICES:
        if n % radix == 0:
            rest = radices(n // radix)
            if rest is not None and (best is None or rest[0] + _COST[radix] < best[0]):
                best = rest[0] + _COST[radix], (radix, *rest[1])
    return best


@lru_cache(1 << 12)
def matrix_of(n: int, lanes: int) -> tuple[int, int]:
    """(n1, n2), n = n1 n2: the cheapest nearly square matrix, with its tiles filled up."""

    def cost(n1: int) -> float:
        n2 = n // n1
        first, second = radices(n1), radices(n2)
        assert first is not None and second is not None
        return lanes * (-(-n2 // lanes) * n1 * (first[0] + 1.0) + -(-n1 // lanes) * n2 * (second[0] + 2.0))

    root = math.isqrt(n)
    divisors = [k for k in range(max(root // 4, 1), root + 1) if n % k == 0] or [
        max(k for k in range(1, root + 1) if n % k == 0)
    ]
    return min(((k, n // k) for d in divisors for k in (d, n // d)), key=lambda pair: cost(pair[0]))


def filled(n: int, lanes: int) -> float:
    """The fraction of its matrix's tiles that a sequence fills."""
    n1, n2 = matrix_of(n, lanes)
    return 2 * n / (-(-n1 // lanes) * lanes * n2 + -(-n2 // lanes) * lanes * n1)


@lru_cache(1 << 10)
def smooth_above(n: int) -> int:
    """The fastest length >= n of the form 2^a 3^b 5^c, a >= 4."""
    lengths = []
    for odd in (1, 3, 5, 9, 15, 25):
        power = max(-(-n // odd) - 1, 15).bit_length()
        lengths.append(odd << power)
    return min(lengths, key=lambda m: m * radices(m)[0])  # type: ignore[index]


# ***** code *****


class _Family:
    """The code for one element type on this machine."""

    __slots__ = ("_passes", "fma", "kernels", "kind", "lanes", "tables")

    def __init__(self, kind: str) -> None:
        tile = host_tiles(kind)[0]
        self.kind, self.lanes, self.fma = kind, tile.lanes, tile.fma
        self._passes: dict[tuple[int, str, str], tuple[int, Any]] = {}
        moves = FourierMoves(kind, self.lanes, self.fma)
        name = f"fourier moves {kind} {self.lanes} {self.fma}"
        loaded_moves = jit.load(compile_made(name, lambda: moves.text), moves.symbols)
        symbols = _runtime.runtime().symbols | {symbol: loaded_moves[symbol] for symbol in moves.symbols}
        functions = make_fourier(kind, moves)
        loaded = jit.load(compile_native(functions), [f.symbol for f in functions], symbols)
        self.kernels = {
            way: stubs.make_kernel_callable(loaded[f.symbol], f.symbol, (loaded, loaded_moves))
            for way, f in zip(("lanes", "whole", "columns", "rows", "chirp"), functions, strict=True)
        }
        self.tables = stubs.bind(make_tables(kind, self.lanes))

    def code(self, radix: int, load: str, store: str) -> int:
        """The address of a pass."""
        key = radix, load, store
        if key not in self._passes:
            generated = FourierPass(self.kind, self.lanes, self.fma, radix, load, store)
            loaded = jit.load(compile_made(generated.symbol, lambda: generated.text), [generated.symbol])
            self._passes.setdefault(key, (loaded[generated.symbol], loaded))
        return self._passes[key][0]


_FAMILIES: dict[str, _Family] = {}


def _family(kind: str) -> _Family:
    if kind not in _FAMILIES:
        _FAMILIES.setdefault(kind, _Family(kind))
    return _FAMILIES[kind]


# ***** tables: they live as long as a plan that uses them *****

_TABLES: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def _table(family: _Family, what: int, n: int, a: int, b: int, count: int) -> Any:
    """A Storage with a table of `count` numbers; see `make_tables`."""
    key = family.kind, what, n, a, b
    table = _TABLES.get(key)
    if table is None:
        table = _runtime.runtime().alloc(max(2 * _SIZES[family.kind] * count, 64))
        if family.tables(table.ptr, what, n, a, b):
            raise MemoryError(f"no memory for the {n} roots of unity of a Fourier transform")
        table = _TABLES.setdefault(key, table)
    return table


class _Plan:
    """The words of a tile plan or of a matrix plan (`sizes`: of the matrix), and the objects they refer to."""

    __slots__ = ("__weakref__", "_held", "_keep", "at", "sizes")

    def __init__(self, words: Sequence[int], keep: Any, sizes: tuple[int, int] = (0, 0)) -> None:
        self._held, self._keep, self.sizes = array("q", words), keep, sizes
        self.at: int = self._held.buffer_info()[0]


def memory_of(keep: Any) -> list[Any]:
    """The arrays and storages among what a call keeps alive; whatever their words point to is among them, or code."""
    if isinstance(keep, (tuple, list)):
        return [found for item in keep for found in memory_of(item)]
    if isinstance(keep, _Plan):
        return [keep._held, *memory_of(keep._keep)]
    return [keep] if isinstance(keep, array) or hasattr(keep, "ptr") else []


_PLANS: WeakValueDictionary[tuple[Any, ...], _Plan] = WeakValueDictionary()  # kept alive by calls that use them,
_RECENT: deque[_Plan] = deque(maxlen=64)  # and those of short sequences a while longer: lengths recur


def _kept(key: tuple[Any, ...], n: int, plan: _Plan) -> _Plan:
    plan = _PLANS.setdefault(key, plan)
    if n <= _ROWS:
        _RECENT.append(plan)
    return plan


def _passes_of(family: _Family, n: int, load: str, store: str) -> _Plan:
    """A tile plan."""
    known = _PLANS.get((family.kind, n, load, store))
    if known is not None:
        return known
    cost = radices(n)
    assert cost is not None
    chosen = cost[1] or (1,)
    words, keep, left, done = [len(chosen)], [], n, 1
    for k, radix in enumerate(chosen):
        last = k == len(chosen) - 1
        m, address = left // radix, 0
        if not last:
            keep.append(_table(family, TWIDDLES, left, radix, 0, m * (radix - 1)))
            address = keep[-1].ptr
        words += [family.code(radix, load if k == 0 else "S", store if last else "S"), m, done, address]
        left, done = m, done * radix
    return _kept((family.kind, n, load, store), n, _Plan(words, keep))


def _matrix_plan(family: _Family, n: int, load: str, store: str) -> _Plan:
    """A matrix plan."""
    known = _PLANS.get((family.kind, n, load, store, "matrix"))
    if known is not None:
        return known
    n1, n2 = matrix_of(n, family.lanes)
    tiles, item, keep = -(-n2 // family.lanes), 2 * _SIZES[family.kind], list[Any]()
    if n * item > _FACTORS:
        factors = _table(family, LANE_FACTORS, n, n1, 0, family.lanes * n1)
        firsts = _table(family, COLUMN_FACTORS, n, n1, n2, tiles * n1)
        keep += [factors, firsts]
        others = [factors.ptr, firsts.ptr]
    else:
        keep.append(_table(family, FACTORS, n, n1, n2, tiles * family.lanes * n1))
        others = [keep[0].ptr, 0]
    columns = _passes_of(family, n1, load, "V" if others[1] else "T")
    rows = _passes_of(family, n2, "S", store)
    plan = _Plan([columns.at, rows.at, *others], (keep, columns, rows), (n1, n2))
    return _kept((family.kind, n, load, store, "matrix"), n, plan)


# ***** one dim *****


class _Line(NamedTuple):
    """The sequences of a transform: their size, their steps and the bytes of a number in the source and in the result."""

    size: int
    steps: tuple[int, int]
    units: tuple[int, int]


class _Kernel(NamedTuple):
    """A kernel of a transform's method (`way`): its pieces, its constants, and the objects to keep."""

    way: str
    pieces: int
    constants: Sequence[int]
    keep: Any


class _Transform:
    """A transform along one dim: `n` numbers of kind `what`, the other dims, and a scale."""

    __slots__ = ("dst_step", "family", "inverse", "others", "scale", "size", "src_step", "units", "what")

    def __init__(
        self, family: _Family, what: int, line: _Line, others: Sequence[Dim], inverse: bool, scale: float
    ) -> None:
        self.family, self.what, self.others = family, what, merged(others)
        self.size, (self.src_step, self.dst_step), self.units = line
        self.inverse, self.scale = inverse, scale

    @property
    def n(self) -> int:
        """The number of complex numbers that are transformed."""
        return self.size // 2 if self.what in (HALVES, PAIRS) else self.size

    @property
    def batch(self) -> int:
        return math.prod(size for size, _, _ in self.others)

    def near(self) -> bool:
        """Whether elements are contiguous in source and result."""
        return (self.src_step, self.dst_step) == self.units

    def rows_fill_lanes(self) -> bool:
        """Whether rows are better spread over lanes than transformed as matrices, however well these fill tiles."""
        if self.family.lanes * _SIZES[self.family.kind] > _NARROW or self.n <= _MATRIX and self.what == COMPLEX:
            return False
        at = self.lane_dim()
        return at >= 0 and self.others[at][0] >= _FULL_TILES * self.family.lanes

    def lane_dim(self) -> int:
        """The dim that is spread over the lanes: the contiguous one if it fills half of them, else the largest."""
        largest = max(range(len(self.others)), key=lambda k: self.others[k][0], default=-1)
        for k, (size, x, y) in enumerate(self.others):
            if (x, y) == self.units and 2 * size >= min(self.family.lanes, self.others[largest][0]):
                return k
        return largest


def merged(dims: Sequence[Dim]) -> list[Dim]:
    """The same loops with as few dims as possible, in the order of the result."""
    loops: list[Dim] = []
    for size, x, y in sorted(dims, key=lambda dim: (-dim[2], -dim[1])):
        if size == 1:
            continue
        if loops and loops[-1][1:] == (x * size, y * size):
            loops[-1] = loops[-1][0] * size, x, y
        else:
            loops.append((size, x, y))
    return loops


def _bits(value: float) -> int:
    bits: int = struct.unpack("q", struct.pack("d", value))[0]
    return bits


def _outer(dims: Sequence[Dim]) -> list[int]:
    return [len(dims), *(word for dim in dims for word in dim)]


class _Call:
    """The kernels of one call during its construction: their operands, new buffers, and the objects to keep."""

    __slots__ = ("_made", "launches", "result")

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self._made = 0
        self.result: int | None = None  # index of the result, once it exists

    def add(self, t: _Transform, kernel: _Kernel, sizes: Sequence[int], operands: Sequence[int], kept: bool) -> int:
        """Add a kernel; returns the index of its first new buffer.  `kept`: that is the call's result."""
        head = [kernel.pieces, int(t.batch * t.size > _PIECE), len(sizes), *sizes]
        ints = [*head, *[0] * (8 - len(head)), *kernel.constants]
        code = t.family.kernels[kernel.way]
        launch = Launch(code, ints, tuple(operands), len(sizes) if kept else 0, kernel.keep)
        self.launches.append(launch)
        first = -1 - self._made
        self._made += len(sizes)
        return first

    def into(self, t: _Transform, kernel: _Kernel, nbytes: int, source: int) -> None:
        """Add a kernel that writes from a buffer to the call's result."""
        if self.result is None:
            self.result = self.add(t, kernel, [nbytes], (source,), True)
        else:
            self.add(t, kernel, [], (self.result, source), False)


def _by_lanes(call: _Call, t: _Transform, nbytes: int, source: int) -> None:
    family, n, what = t.family, t.n, t.what
    at = t.lane_dim()
    count, x_lane, y_lane = t.others[at] if at >= 0 else (1, 0, 0)
    outer = [dim for k, dim in enumerate(t.others) if k != at]
    ways = []
    for lane, step, unit in ((x_lane, t.src_step, t.units[0]), (y_lane, t.dst_step, t.units[1])):
        ways.append(SEQUENCES if lane == unit else ELEMENTS if step == unit and n >= family.lanes // 2 else NEITHER)
    if what in (FULL, STRIDED):
        ways = [NEITHER, NEITHER]
    swap = "D" if t.inverse else "C"
    load = {HALVES: "R", PAIRS: "S"}.get(what, swap) if ways[0] == SEQUENCES else "S"
    store = "U" if what == HALVES or ways[1] != SEQUENCES else "R" if what == PAIRS else swap
    main = edge = _passes_of(family, n, "S" if what == PAIRS else "C", "U" if what == HALVES else "C")
    if count >= family.lanes and (what == COMPLEX or NEITHER not in ways):
        main = _passes_of(family, n, "S" if what == PAIRS else load, store)
    twiddles = _table(family, ROOT_PAIRS, t.size, 0, 0, t.size // 4 + 1) if what in (HALVES, PAIRS) else None
    tiles = -(-count // family.lanes)
    units = tiles * (t.batch // max(count, 1))
    chunk = max(1, _PIECE // (n * family.lanes))
    constants = [
        main.at, edge.at, what, int(t.inverse or what == PAIRS), n, count, x_lane, t.src_step, y_lane, t.dst_step, *ways,
        0 if twiddles is None else twiddles.ptr, tiles, chunk, units, _bits(t.scale / (2 if what == HALVES else 1)), *_outer(outer),
    ]  # fmt: skip
    call.into(t, _Kernel("lanes", -(-units // chunk), constants, (main, edge, twiddles)), nbytes, source)


def _by_matrix(call: _Call, t: _Transform, nbytes: int, source: int) -> None:
    family, n, what = t.family, t.n, t.what
    swap = t.inverse and what == COMPLEX
    plan = _matrix_plan(family, n, "D" if swap else "C", "D" if swap or what == PAIRS else "C")
    (n1, n2), lanes, item = plan.sizes, family.lanes, 2 * _SIZES[family.kind]
    across, along = -(-n2 // lanes), -(-n1 // lanes)
    twiddles = _table(family, ROOT_PARTS, t.size, 0, 0, t.size // 4 + 1) if what in (HALVES, PAIRS) else None
    keep = plan, twiddles
    rows = t.batch
    chunk = max(1, _PIECE // n)

    def constants(tile_chunk: int, tiles: int) -> list[int]:
        return [
            plan.at,
            what,
            int(t.inverse),
            n1,
            n2,
            0 if twiddles is None else twiddles.ptr,
            t.src_step,
            t.dst_step,
            rows,
            chunk,
            _bits(t.scale / (2 if what == HALVES else 1)),
            tile_chunk,
            -(-tiles // tile_chunk),
            *_outer(t.others),
        ]

    if what != COMPLEX or not t.near() or n * item <= _NEAR:
        call.into(t, _Kernel("whole", -(-rows // chunk), constants(1, 1), keep), nbytes, source)
        return
    pitch = item * lanes * across
    between = along * lanes * (pitch if pitch % 2048 else pitch + item * lanes) + 64
    column_chunk, row_chunk = max(1, _PIECE // (lanes * n1)), max(1, _PIECE // (lanes * n2))
    columns = _Kernel("columns", rows * -(-across // column_chunk), constants(column_chunk, across), keep)
    mid = call.add(t, columns, [between * rows], (source,), False)
    call.into(t, _Kernel("rows", rows * -(-along // row_chunk), constants(row_chunk, along), keep), nbytes, mid)


def _convolved(t: _Transform) -> tuple[int, int]:
    """(what, count) of the numbers that a convolution transforms: short real sequences are not split, as the split
    works on vectors."""
    if t.what in (HALVES, PAIRS) and t.n // 2 + 1 < t.family.lanes:
        return {HALVES: FULL, PAIRS: STRIDED}[t.what], t.size
    return t.what, t.n


def _by_chirp(call: _Call, t: _Transform, nbytes: int, source: int) -> None:
    family, (what, n) = t.family, _convolved(t)
    m = smooth_above(2 * n - 1)
    plan = _matrix_plan(family, m, "C", "C")
    chirps = _table(family, CHIRPS, 2 * n, n, 0, n)
    filter_ = _filter(family, n, m)
    twiddles = _table(family, ROOT_PARTS, t.size, 0, 0, t.size // 4 + 1) if what in (HALVES, PAIRS) else None
    chunk = max(1, _PIECE // (4 * m))
    constants = [
        plan.at, what, int(t.inverse), *plan.sizes, n, chirps.ptr, filter_.ptr, 0 if twiddles is None else twiddles.ptr, t.src_step, t.dst_step,
        t.batch, chunk, _bits(t.scale / m / (2 if what == HALVES else 1)), *_outer(t.others),
    ]  # fmt: skip
    call.into(t, _Kernel("chirp", -(-t.batch // chunk), constants, (plan, chirps, filter_, twiddles)), nbytes, source)


def _filter(family: _Family, n: int, m: int) -> Any:
    """The transform of the conjugate chirps, around 0 in a circle of m."""
    key = family.kind, "filter", n, m
    table = _TABLES.get(key)
    if table is None:
        item, inner, circle = 2 * _SIZES[family.kind], _Call(), _table(family, FILTER, 2 * n, n, m, m)
        whole = _Transform(family, COMPLEX, _Line(m, (item, item), (item, item)), (), False, 1.0)
        _way(whole)(inner, whole, item * m, 0)
        table = _TABLES.setdefault(key, joined(inner.launches)(circle.ptr))
    return table


def _way(t: _Transform) -> Callable[[_Call, _Transform, int, int], None]:
    """The method of a transform: across lanes, as a matrix, or by a convolution."""
    if radices(t.n) is None:
        return _by_chirp
    beside = not t.near() and t.batch > 1
    across = t.n <= _ROWS and (t.batch >= t.family.lanes and filled(t.n, t.family.lanes) < 0.9 or t.rows_fill_lanes())
    return _by_lanes if t.n < _SHORT or (beside and t.n <= _COLUMN) or across else _by_matrix


def _transforms(step: ExternStep) -> Iterator[_Transform]:
    """The transforms of a call, dim after dim; from the second on they work in place on the result."""
    x, y, params = step.inputs[0], step.outputs[0], step.params
    family = _family(_KINDS[y.dtype.name])
    y_strides = y.strides or contiguous_strides(y.shape)
    dims = params["dims"] if step.name == "fft" else (params["dim"],)
    scale = factor_of(params["norm"], math.prod((x if step.name == "rfft" else y).shape[d] for d in dims))
    kept = [d for d in dims if y.shape[d] > 1] or dims[:1]
    x_item, y_item, x_strides = x.dtype.itemsize, y.dtype.itemsize, x.strides
    for k, dim in reversed(list(enumerate(kept))):
        size, inverse = (x if step.name == "rfft" else y).shape[dim], False
        if step.name == "fft":
            what, inverse = COMPLEX, params["inverse"]
        elif step.name == "rfft":
            what = FULL if size % 2 else HALVES
        else:
            what = STRIDED if size % 2 else PAIRS
        others = [(x.shape[d], x_strides[d] * x_item, y_strides[d] * y_item) for d in range(len(x.shape)) if d != dim]
        steps = x_strides[dim] * x_item, y_strides[dim] * y_item
        line = _Line(size, steps, (x_item, y_item))
        yield _Transform(family, what, line, others, inverse, 1.0 if k else scale)
        x_strides, x_item = y_strides, y_item


def fourier_call(step: ExternStep) -> list[Launch]:
    """The kernels of an `fft`, `rfft` or `irfft`."""
    call, source = _Call(), 0
    for t in _transforms(step):
        _way(t)(call, t, step.sizes[0], source)
        assert call.result is not None
        source = call.result
    return call.launches


def fourier_note(step: ExternStep) -> str:
    """A description of a call's transforms."""
    return "; ".join(_described(t) for t in _transforms(step))


def _described(t: _Transform) -> str:
    way, what = _way(t), f"{t.batch} of {t.size} {'complex' if t.what == COMPLEX else 'real'} numbers"
    n = _convolved(t)[1] if way is _by_chirp else t.n
    if n < t.size:
        what += f" as {n} complex ones"
    n = smooth_above(2 * n - 1) if way is _by_chirp else n
    costs = [radices(k) for k in (matrix_of(n, t.family.lanes) if way is not _by_lanes else (n,))]
    passes = " and ".join(" x ".join(str(r) for r in cost[1]) or "1" for cost in costs if cost is not None)
    if way is _by_lanes:
        return f"{what}, {t.family.lanes} sequences side by side, radices {passes}"
    return f"{what}, {'by a convolution of ' + str(n) + ' numbers, ' if way is _by_chirp else ''}as a matrix, radices {passes}"
