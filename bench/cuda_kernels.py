"""Block kernels for a GPU, with arguments and what they must give: flagships (what a model spends its time in) and one small
kernel for each instruction that no run without a GPU executes.

case = FLAGSHIPS["softmax"](small=True)
case.kernel, case.grid, case.arguments       # arrays are copied to the device, and compared with case.expected()
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rushlight._codegen.blocks import BlockMemory, Kernel, Pointer, Tile, interpret
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._codegen.blocks.memory import bits_of
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT16, FLOAT32, INT8, INT32, INT64, DType

__all__ = ["FLAGSHIPS", "UNITS", "Case"]


@dataclass
class Case:
    """A launch, and by how much results may differ from those of the reference interpreter (or of `expect`)."""

    kernel: Kernel
    grid: tuple[int, ...]
    arguments: list[Any]
    rtol: float = 0.0
    atol: float = 0.0
    bytes: int = 0
    flops: int = 0
    expect: Callable[[list[Any]], list[Any]] | None = None
    results: tuple[int, ...] = field(default=())

    def expected(self) -> list[Any]:
        """The arguments after the launch."""
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in self.arguments]
        if self.expect is not None:
            return self.expect(given)
        memory = BlockMemory()
        words = [memory.add(a) if isinstance(a, np.ndarray) else a for a in given]
        interpret(self.kernel, self.grid, words, memory, printed=lambda text: None)
        return given


FLAGSHIPS: dict[str, Callable[[bool], Case]] = {}
UNITS: dict[str, tuple[Callable[[], Case], tuple[str, ...]]] = {}


def flagship(build: Callable[[bool], Case]) -> Callable[[bool], Case]:
    FLAGSHIPS[build.__name__] = build
    return build


def unit(*instructions: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """A unit kernel: what it proves are these beginnings of PTX instructions."""

    def declare(build: Callable[[], Case]) -> Callable[[], Case]:
        UNITS[build.__name__] = (build, instructions)
        return build

    return declare


# ***** what kernels are written with *****


def builder(name: str, params: dict[str, Any]) -> tuple[TermBuilder, list[Term]]:
    """`params`: a dtype for a pointer, a list of one for a scalar."""
    types = [Tile(d[0]) if isinstance(d, list) else Tile(Pointer(d)) for d in params.values()]
    b = TermBuilder(name, types, list(params))
    return b, b.terms


def finish(b: TermBuilder, warps: int, stages: int = 2) -> Kernel:
    by = {i: 16 if isinstance(p.type.element, Pointer) else 8 for i, p in enumerate(b.params)}
    whole = {i: n for i, n in by.items() if n == 16 or b.params[i].dtype.kind == "i"}
    return b.finish(warps=warps, stages=stages, divisible=whole)


def bf16(x: Any) -> Any:
    """float32 rounded to bfloat16, as bits."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def wide(x: Any) -> Any:
    """bfloat16 bits as float32."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def replaced(arguments: list[Any], at: int, value: Any) -> list[Any]:
    return [*arguments[:at], value, *arguments[at + 1 :]]


# ***** element-wise *****


@flagship
def add(small: bool = True) -> Case:
    b, (x, y, out, n) = builder("add", {"x": FLOAT32, "y": FLOAT32, "out": FLOAT32, "n": [INT32]})
    at = b.program() * 1024 + b.index(1024)
    inside = at < n
    (out + at).store((x + at).load(inside) + (y + at).load(inside), inside)
    size = 4000 if small else 1 << 26
    arrays = [normal(size), normal(size, seed=1), np.zeros(size, np.float32)]
    expect = lambda a: replaced(a, 2, a[0] + a[1])
    return Case(finish(b, 4), (-(-size // 1024),), [*arrays, size], bytes=12 * size, expect=expect)


@flagship
def gelu(small: bool = True) -> Case:
    b, (x, out, n) = builder("gelu", {"x": BFLOAT16, "out": BFLOAT16, "n": [INT32]})
    at = b.program() * 2048 + b.index(2048)
    inside = at < n
    v = (x + at).load(inside).to(FLOAT32)
    (out + at).store(v * 0.5 * (b.apply("erf", v * math.sqrt(0.5)) + 1.0), inside)
    size = 5000 if small else 1 << 27
    arrays = [bf16(normal(size)), np.zeros(size, np.uint16)]
    return Case(finish(b, 4), (-(-size // 2048),), [*arrays, size], 1e-2, 1e-3, bytes=4 * size)


@flagship
def adamw(small: bool = True) -> Case:
    """One step on flat parameters; moments in float32."""
    names = {
        "p": FLOAT32,
        "g": FLOAT32,
        "m": FLOAT32,
        "v": FLOAT32,
        "n": [INT32],
        "step_size": [FLOAT32],
        "root": [FLOAT32],
    }
    b, (p, g, m, v, n, step_size, root) = builder("adamw", names)
    at = b.program() * 1024 + b.index(1024)
    inside = at < n
    grad = (g + at).load(inside)
    first = (m + at).load(inside) * 0.9 + grad * 0.1
    second = (v + at).load(inside) * 0.999 + grad * grad * 0.001
    weight = (p + at).load(inside) * (1 - 1e-3 * 1e-2)
    weight = weight - step_size * first / (b.apply("sqrt", second) / root + 1e-8)
    for target, value in ((p, weight), (m, first), (v, second)):
        (target + at).store(value, inside)
    size = 3000 if small else 1 << 25
    arrays = [normal(size), normal(size, seed=1), normal(size, seed=2), np.abs(normal(size, seed=3))]
    return Case(finish(b, 4), (-(-size // 1024),), [*arrays, size, 1e-3, 0.5], 1e-6, 1e-7, bytes=28 * size)


# ***** rows *****


@flagship
def softmax(small: bool = True) -> Case:
    rows, columns, block = (5, 1000, 1024) if small else (1 << 15, 8192, 8192)
    b, (x, out, n) = builder("softmax", {"x": BFLOAT16, "out": BFLOAT16, "n": [INT32]})
    at = b.index(block)
    inside = at < n
    row = (x + b.program() * n + at).load(inside, float("-inf")).to(FLOAT32)
    powers = b.apply("exp", row - b.largest(row, 0).spread((block,)))
    (out + b.program() * n + at).store(powers / b.total(powers, 0), inside)
    arrays = [bf16(normal(rows, columns)), np.zeros((rows, columns), np.uint16)]
    return Case(finish(b, 4 if small else 8), (rows,), [*arrays, columns], 1e-2, 1e-4, bytes=4 * rows * columns)


@flagship
def layer_norm(small: bool = True) -> Case:
    rows, columns, block = (5, 1000, 1024) if small else (1 << 15, 4096, 4096)
    b, (x, w, bias, out, n) = builder(
        "layer_norm", {"x": BFLOAT16, "w": BFLOAT16, "b": BFLOAT16, "out": BFLOAT16, "n": [INT32]}
    )
    at = b.index(block)
    inside = at < n
    row = (x + b.program() * n + at).load(inside, 0.0).to(FLOAT32)
    count = n.to(FLOAT32)
    mean = b.total(row, 0) / count
    away = b.where(inside, row - mean, 0.0)
    scale = b.apply("rsqrt", b.total(away * away, 0) / count + 1e-5)
    made = away * scale * (w + at).load(inside).to(FLOAT32) + (bias + at).load(inside).to(FLOAT32)
    (out + b.program() * n + at).store(made, inside)
    arrays = [bf16(normal(rows, columns)), bf16(normal(columns, seed=1)), bf16(normal(columns, seed=2))]
    arrays.append(np.zeros((rows, columns), np.uint16))
    return Case(finish(b, 4), (rows,), [*arrays, columns], 2e-2, 1e-2, bytes=4 * rows * columns)


@flagship
def cross_entropy(small: bool = True) -> Case:
    """Rows of many classes in one pass: the largest so far, and the sum of powers, rescaled when it grows."""
    rows, classes, block = (4, 5000, 1024) if small else (4096, 50304, 4096)
    b, (x, target, out, n) = builder("cross_entropy", {"x": FLOAT32, "target": INT64, "out": FLOAT32, "n": [INT32]})
    start = x + b.program() * n

    def turn(i: Term, top: Term, total: Term) -> list[Term]:
        at = b.index(block) + i
        part = (start + at).load(at < n, float("-inf"))
        new = top.greatest(b.largest(part, 0))
        return [new, total * b.apply("exp", top - new) + b.total(b.apply("exp", part - new.spread((block,))), 0)]

    top, total = b.loop(0, n, block, [b.number(-1e30, FLOAT32), b.number(0.0, FLOAT32)], turn)
    chosen = (start + (target + b.program()).load()).load()
    (out + b.program()).store(b.apply("log", total) + top - chosen)
    targets = np.random.default_rng(1).integers(0, classes, rows)
    arrays = [normal(rows, classes), targets, np.zeros(rows, np.float32)]
    return Case(finish(b, 8), (rows,), [*arrays, classes], 1e-5, 1e-5, bytes=4 * rows * classes)


@flagship
def column_sum(small: bool = True) -> Case:
    """Sums over many rows: a block for 128 columns, rows in a fixed order."""
    rows, columns = (104, 256) if small else (1 << 16, 4096)
    b, (x, out, n, width) = builder("column_sum", {"x": FLOAT32, "out": FLOAT32, "n": [INT32], "width": [INT32]})
    across = b.program() * 128 + b.index(128)

    def turn(i: Term, total: Term) -> list[Term]:
        down = b.index(16) + i
        return [total + (x + (down * width)[:, None] + across).load((down < n)[:, None], 0.0)]

    (total,) = b.loop(0, n, 16, [b.number(0.0, FLOAT32, (16, 128))], turn)
    (out + across).store(b.total(total, 0))
    arrays = [normal(rows, columns), np.zeros(columns, np.float32)]
    return Case(finish(b, 4), (columns // 128,), [*arrays, rows, columns], 1e-4, 1e-3, bytes=4 * rows * columns)


@flagship
def transpose(small: bool = True) -> Case:
    rows, columns = (128, 192) if small else (8192, 8192)
    b, (x, out, n, m) = builder("transpose", {"x": BFLOAT16, "out": BFLOAT16, "n": [INT32], "m": [INT32]})
    down, across = b.program(0) * 64 + b.index(64), b.program(1) * 64 + b.index(64)
    tile = (x + (down * m)[:, None] + across).load()
    (out + (across * n)[:, None] + down).store(tile.permute(1, 0))
    arrays = [bf16(normal(rows, columns)), np.zeros((columns, rows), np.uint16)]
    expect = lambda a: replaced(a, 1, np.ascontiguousarray(a[0].T))
    return Case(
        finish(b, 4), (rows // 64, columns // 64), [*arrays, rows, columns], bytes=4 * rows * columns, expect=expect
    )


# ***** products *****


def _matmul(
    name: str, dtype: DType, result: DType, tile: tuple[int, int, int], warps: int, precision: str = "ieee"
) -> None:
    m, n, k = tile

    def build(small: bool = True) -> Case:
        sizes = (2 * m, n, 3 * k) if small else (8192, 8192, 8192)
        b, (x, y, out, columns, depth) = builder(
            name, {"x": dtype, "y": dtype, "out": result, "n": [INT32], "k": [INT32]}
        )
        rows, across, steps = b.program(0) * m + b.index(m), b.program(1) * n + b.index(n), b.index(k)
        wide_result = INT32 if result is INT32 else FLOAT32

        def turn(i: Term, total: Term) -> list[Term]:
            left = (x + (rows * depth)[:, None] + (steps + i)).load()
            right = (y + ((steps + i) * columns)[:, None] + across).load()
            return [b.matrix_product(left, right, total, precision)]

        (total,) = b.loop(0, depth, k, [b.number(0, wide_result, (m, n))], turn)
        (out + (rows * columns)[:, None] + across).store(total)
        left, right = _factors(dtype, sizes)
        made = np.zeros(
            (sizes[0], sizes[1]), np.int32 if result is INT32 else np.float32 if result is FLOAT32 else np.uint16
        )
        grid = (sizes[0] // m, sizes[1] // n)
        near = 1e-2 if result is BFLOAT16 else 1e-5
        loose = 0.0 if dtype is INT8 else near * math.sqrt(sizes[2])
        return Case(
            finish(b, warps), grid, [left, right, made, sizes[1], sizes[2]], near, loose, flops=2 * math.prod(sizes)
        )

    build.__name__ = name
    flagship(build)


def _factors(dtype: DType, sizes: tuple[int, int, int]) -> tuple[Any, Any]:
    m, n, k = sizes
    if dtype is INT8:
        random = np.random.default_rng(0)
        return random.integers(-99, 99, (m, k), np.int8), random.integers(-99, 99, (k, n), np.int8)
    left, right = normal(m, k), normal(k, n, seed=1)
    if dtype is BFLOAT16:
        return bf16(left), bf16(right)
    if dtype is FLOAT16:
        return left.astype(np.float16), right.astype(np.float16)
    # numbers that TF32 holds exactly, so every precision gives the same
    return wide(bf16(left)), wide(bf16(right))


_matmul("matmul_bf16", BFLOAT16, BFLOAT16, (128, 128, 32), 4)
_matmul("matmul_f16", FLOAT16, FLOAT32, (64, 64, 32), 4)
_matmul("matmul_tf32", FLOAT32, FLOAT32, (64, 64, 32), 4, "tf32")
_matmul("matmul_f32", FLOAT32, FLOAT32, (32, 64, 16), 4)
_matmul("matmul_int8", INT8, INT32, (64, 64, 64), 4)


@flagship
def attention(small: bool = True) -> Case:
    """Causal attention, forward: a block for 64 queries of a head, keys in turns of 64, softmax as it goes."""
    heads, length, width = (2, 128, 64) if small else (64, 4096, 64)
    size = 64
    b, (q, k, v, out, n) = builder(
        "attention", {"q": BFLOAT16, "k": BFLOAT16, "v": BFLOAT16, "out": BFLOAT16, "n": [INT32]}
    )
    head = b.program(1) * n * width
    rows, across = b.program(0) * size + b.index(size), b.index(width)
    queries = (q + head + (rows * width)[:, None] + across).load()
    scale = math.log2(math.e) / math.sqrt(width)

    def turn(i: Term, top: Term, total: Term, made: Term) -> list[Term]:
        down = b.index(size) + i
        keys = (k + head + (down * width)[:, None] + across).load()
        scores = b.matrix_product(queries, keys.permute(1, 0), b.number(0.0, FLOAT32, (size, size))) * scale
        scores = b.where(down.spread((size, size)) <= rows[:, None].spread((size, size)), scores, -1e30)
        new = top.greatest(b.largest(scores, 1))
        powers = b.apply("exp2", scores - new[:, None].spread((size, size)))
        fade = b.apply("exp2", top - new)
        values = (v + head + (down * width)[:, None] + across).load()
        made = made * fade[:, None].spread((size, width))
        return [new, total * fade + b.total(powers, 1), b.matrix_product(powers.to(BFLOAT16), values, made)]

    start = [b.number(-1e30, FLOAT32, (size,)), b.number(0.0, FLOAT32, (size,)), b.number(0.0, FLOAT32, (size, width))]
    _, total, made = b.loop(0, (b.program(0) + 1) * size, size, start, turn)
    (out + head + (rows * width)[:, None] + across).store(made / total[:, None])
    arrays = [bf16(normal(heads, length, width, seed=s)) for s in range(3)]
    arrays.append(np.zeros((heads, length, width), np.uint16))
    flops = 2 * heads * length * length * width
    return Case(finish(b, 4), (length // size, heads), [*arrays, length], 4e-2, 2e-2, flops=flops)


# ***** one kernel for each instruction that the twin replaces by what we say it means *****


def _small(numbers: Any, dtype: DType) -> Any:
    """Whole numbers up to 8 as they lie in memory; halves of them for formats of 8 bits."""
    if dtype.itemsize == 1 and dtype.kind == "f":
        return bits_of(numbers / 2, dtype)
    if dtype is BFLOAT16:
        return bf16(numbers)
    return numbers.astype({FLOAT16: np.float16, FLOAT32: np.float32, INT8: np.int8}[dtype])


def _one_product(
    name: str, dtype: DType, result: DType, sizes: tuple[int, int, int], precision: str = "ieee", second: DType | None = None
) -> Case:  # fmt: skip
    m, n, k = sizes
    dtypes = (dtype, second or dtype)
    b, (x, y, out) = builder(name, {"x": dtype, "y": dtypes[1], "out": result})
    left, right = (x + b.index(m * k).reshape(m, k)).load(), (y + b.index(k * n).reshape(k, n)).load()
    (out + b.index(m * n).reshape(m, n)).store(b.matrix_product(left, right, b.number(0, result, (m, n)), precision))
    random = np.random.default_rng(3)
    factors = [random.integers(-8, 9, shape) for shape in ((m, k), (k, n))]
    made = [_small(f, d) for f, d in zip(factors, dtypes, strict=True)]
    return Case(finish(b, 1), (1,), [*made, np.zeros((m, n), np.int32 if result is INT32 else np.float32)])


@unit("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
def mma_f16() -> Case:
    return _one_product("mma_f16", FLOAT16, FLOAT32, (16, 8, 16))


@unit("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
def mma_bf16() -> Case:
    return _one_product("mma_bf16", BFLOAT16, FLOAT32, (16, 8, 16))


@unit("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
def mma_tf32() -> Case:
    return _one_product("mma_tf32", FLOAT32, FLOAT32, (16, 8, 8), "tf32")


@unit("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
def mma_int8() -> Case:
    return _one_product("mma_int8", INT8, INT32, (16, 8, 32))


@unit("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
def mma_e4m3() -> Case:
    return _one_product("mma_e4m3", BY_NAME["float8_e4m3fn"], FLOAT32, (16, 8, 32))


@unit("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32")
def mma_e5m2() -> Case:
    return _one_product("mma_e5m2", BY_NAME["float8_e5m2"], FLOAT32, (16, 8, 32))


@unit("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32")
def mma_e4m3_e5m2() -> Case:
    dtypes = (BY_NAME[f"float8_{name}"] for name in ("e4m3fn", "e5m2"))
    return _one_product("mma_e4m3_e5m2", next(dtypes), FLOAT32, (16, 8, 32), second=next(dtypes))


@unit("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32")
def mma_e5m2_e4m3() -> Case:
    dtypes = (BY_NAME[f"float8_{name}"] for name in ("e5m2", "e4m3fn"))
    return _one_product("mma_e5m2_e4m3", next(dtypes), FLOAT32, (16, 8, 32), second=next(dtypes))


@unit("cp.async", "ldmatrix.sync.aligned.m8n8.x4.shared", "ldmatrix.sync.aligned.m8n8.x4.trans")
def copies_ahead() -> Case:
    """Products over a k that is no multiple of the tile's: copies of 8 and 16 bytes, of zeros, waits for all but the last, matrices
    straight and transposed.
    """
    b, (x, y, out, depth) = builder("copies_ahead", {"x": FLOAT16, "y": FLOAT16, "out": FLOAT32, "depth": [INT32]})
    rows, across, steps = b.index(32), b.index(64), b.index(32)

    def turn(i: Term, total: Term) -> list[Term]:
        inside = steps + i < depth
        left = (x + (rows * depth)[:, None] + (steps + i)).load(inside.spread((32, 32)), 0.0)
        right = (y + ((steps + i) * 64)[:, None] + across).load(inside[:, None].spread((32, 64)), 0.0)
        return [b.matrix_product(left, right, total)]

    (total,) = b.loop(0, depth, 32, [b.number(0.0, FLOAT32, (32, 64))], turn)
    (out + (rows * 64)[:, None] + across).store(total)
    random = np.random.default_rng(5)
    left, right = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((32, 200), (200, 64)))
    return Case(finish(b, 4, stages=3), (1,), [left, right, np.zeros((32, 64), np.float32), 200])


@unit("shfl.sync.bfly")
def shuffles() -> Case:
    """Sums and prefixes within a warp, of 4 and 8 bytes; each element is different."""
    b, (x, y, out, sums) = builder("shuffles", {"x": INT32, "y": INT64, "out": INT32, "sums": INT64})
    (out + b.index(32)).store(b.prefixes((x + b.index(32)).load(), 0))
    sums.store(b.total((y + b.index(32)).load(), 0))
    numbers = np.arange(32, dtype=np.int32) ** 2 + 1
    return Case(
        finish(b, 1), (1,), [numbers, numbers.astype(np.int64) << 33, np.zeros(32, np.int32), np.zeros(1, np.int64)]
    )


@unit("bar", "barrier", "ld.shared", "st.shared")
def barriers() -> Case:
    """Transposes of every element size, by blocks of 8 warps."""
    names = {"x1": INT8, "x2": FLOAT16, "x4": INT32, "x8": INT64, "y1": INT8, "y2": FLOAT16, "y4": INT32, "y8": INT64}
    b, terms = builder("barriers", names)
    for x, y in zip(terms[:4], terms[4:], strict=True):
        (y + b.index(4096).reshape(64, 64)).store((x + b.index(4096).reshape(64, 64)).load().permute(1, 0))
    types = (np.int8, np.float16, np.int32, np.int64)
    arrays = [(np.arange(4096) % 127).astype(t).reshape(64, 64) for t in types]
    return Case(finish(b, 8), (1,), [*arrays, *(np.zeros_like(a) for a in arrays)])


@unit("@%p st.shared", "@%p ld.shared")
def reductions() -> Case:
    """Sums over all warps of a block: one lane of each writes its part."""
    b, (x, out) = builder("reductions", {"x": INT32, "out": INT32})
    (out + b.program()).store(b.total((x + b.program() * 1024 + b.index(1024)).load(), 0))
    return Case(finish(b, 8), (3,), [np.arange(3072, dtype=np.int32) ** 2 % 1001, np.zeros(3, np.int32)])


@unit("ld.global", "st.global", "@%p ld.global", "@%p st.global")
def masked_accesses() -> Case:
    """Every element size, with masks and other values, aligned vectors and single elements."""
    kinds = {1: (INT8, np.int8), 2: (FLOAT16, np.float16), 4: (FLOAT32, np.float32), 8: (INT64, np.int64)}
    b, terms = builder("masked", {f"{s}{k}": d for s in "xy" for k, (d, _) in kinds.items()} | {"n": [INT32]})
    n = terms[-1]
    for x, y in zip(terms[:4], terms[4:8], strict=True):
        at = b.index(512)
        (y + at).store((x + at).load(at < n, 3), at < n + 16)
        odd = b.index(256) * 2 + 513
        (y + odd).store((x + odd).load(b.index(256) < n, 5), b.index(256) < n + 16)
    arrays = [(np.arange(1100) % 120).astype(t) for _, t in kinds.values()]
    return Case(finish(b, 4), (1,), [*arrays, *(np.zeros_like(a) for a in arrays), 160])


@unit("atom.", "red.")
def atomics() -> Case:
    """Sums, bounds and bits of many programs at few places."""
    b, (x, y, sums, tops, bits, floats) = builder("atomics", {"x": INT32, "y": FLOAT32, "sums": INT32, "tops": INT64, "bits": INT32, "floats": FLOAT32})  # fmt: skip
    at = b.program() * 256 + b.index(256)
    value, place = (x + at).load(), at & 7
    b.emit("atomic", (sums + place).value, value.value, combine="add")
    b.emit("atomic", (tops + place).value, value.to(INT64).value, combine="max")
    b.emit("atomic", (bits + place).value, value.value, combine="xor")
    b.emit("atomic", (floats + place).value, (y + at).load().value, combine="add")
    b.emit("atomic", (floats + place + 8).value, (y + at).load().value, combine="max")
    numbers = np.random.default_rng(0).integers(-50, 50, 512).astype(np.int32)
    results = [np.zeros(8, np.int32), np.zeros(8, np.int64), np.zeros(8, np.int32), np.zeros(16, np.float32)]
    return Case(finish(b, 4), (2,), [numbers, numbers.astype(np.float32), *results])


@unit("atom.shared", "red.shared")
def histogram() -> Case:
    b, (x, out) = builder("histogram", {"x": INT32, "out": INT32})
    counted = Term(b, b.value("histogram", (x + b.index(1024)).load().value, bins=64))
    (out + b.index(64)).store(counted)
    return Case(finish(b, 4), (1,), [np.arange(1024, dtype=np.int32) ** 2 % 64, np.zeros(64, np.int32)])


@unit("atom.acq_rel.gpu.global.cas", "atom.cas", "atom.global.cas", "atom.relaxed", "ld.volatile", "fence.", "membar")
def compare_and_swap() -> Case:
    """One program in turn takes a lock; none may see another's sum halfway."""
    b, (lock, total, done) = builder("compare_and_swap", {"lock": INT32, "total": INT32, "done": INT32})
    zero, one = b.constant(0, INT32), b.constant(1, INT32)
    with b.region() as before:
        old = b.value("atomic_cas", lock.value, zero, one)
        b.emit("yield", b.pointwise("ne", old, zero))
    with b.region() as after:
        b.emit("yield")
    b.emit("while", regions=[before, after])
    total.store(total.load(volatile=True) + b.program() + 1)
    b.emit("atomic", lock.value, zero, combine="xchg")
    (done + b.program()).store(1)
    return Case(finish(b, 1), (64,), [np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(64, np.int32)])


@unit("div.rn", "sqrt.rn", "add.rn", "mul.rn", "sub.rn", "fma.rn", "cvt")
def roundings() -> Case:
    """Arithmetic that must give the CPU's bits: no contraction, no flush to zero, IEEE division and root."""
    b, (x, y, out, n) = builder("roundings", {"x": FLOAT32, "y": FLOAT32, "out": FLOAT32, "n": [INT32]})
    at = b.index(1024)
    u, v = (x + at).load(), (y + at).load()
    results = [u * v + u, u / v, b.apply("sqrt", b.apply("abs", u)), (u - v).to(FLOAT16).to(FLOAT32), u * 1e-38 * v, (u * v).to(BFLOAT16).to(FLOAT32)]  # fmt: skip
    for k, made in enumerate(results):
        (out + n * k + at).store(made)
    return Case(finish(b, 4), (1,), [normal(1024), normal(1024, seed=1), np.zeros(6 * 1024, np.float32), 1024])


@unit("mov.u32 %ctaid", "mov.u32 %nctaid", "mov.u32 %tid")
def places_in_the_grid() -> Case:
    b, (out,) = builder("places", {"out": INT32})
    ids = [b.program(k) for k in range(3)]
    sizes = [Term(b, b.num_programs(k)) for k in range(3)]
    flat = (ids[2] * sizes[1] + ids[1]) * sizes[0] + ids[0]
    (out + flat * 64 + b.index(64)).store(ids[0] + ids[1] * 100 + ids[2] * 10000 + b.index(64) * 1000000)
    return Case(finish(b, 2), (3, 4, 5), [np.zeros(60 * 64, np.int32)])


from bench import cuda_backend_kernels, cuda_group_kernels  # noqa: E402, F401  (registers their kernels)
