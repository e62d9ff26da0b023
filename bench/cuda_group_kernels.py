"""Products by warpgroups (`wgmma`) on tiles that bulk copies (TMA) bring: flagships and unit kernels for `cuda_kernels`.

On other architectures than sm_90a the same kernels load by pointers and multiply by `mma.sync`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from bench.cuda_kernels import Case, bf16, builder, flagship, normal, unit

from rushlight._codegen.blocks.expressions import Term
from rushlight._codegen.blocks.memory import bits_of
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT16, FLOAT32, INT8, INT32, DType

__all__ = ["tile_product"]

Sizes = tuple[int, int, int]
E4M3, E5M2 = BY_NAME["float8_e4m3fn"], BY_NAME["float8_e5m2"]


def tile_product(
    name: str, dtypes: tuple[DType, DType, DType], sizes: Sizes, tile: Sizes, warps: int, *, stages: int = 4, orders: str = "kn",
    factors: Any = None,
) -> Case:  # fmt: skip
    """out = a b: `orders` says whether a is dense along k or m, and b along k or n."""
    (m, n, k), (rows, columns, depth) = sizes, tile
    first, second, result = dtypes
    b, (x, y, out, height, width, deep) = builder(
        name, {"x": first, "y": second, "out": result, "m": [INT32], "n": [INT32], "k": [INT32]}
    )
    one = b.number(1, INT32)
    of_x = (deep, one) if orders[0] == "k" else (one, height)
    of_y = (width, one) if orders[1] == "n" else (one, deep)
    row, column = b.program(0) * rows, b.program(1) * columns
    number = INT32 if result is INT32 else FLOAT32

    def turn(i: Term, total: Term) -> list[Term]:
        left = b.tile(x, (height, deep), of_x, (row, i), (rows, depth))
        right = b.tile(y, (deep, width), of_y, (i, column), (depth, columns))
        return [b.matrix_product(left, right, total, "tf32" if first is FLOAT32 else "ieee")]

    (total,) = b.loop(0, deep, depth, [b.number(0, number, (rows, columns))], turn)
    r, c = (row + b.index(rows))[:, None], (column + b.index(columns))[None, :]
    (out + (r * width + c)).store(total, ((r < height) & (c < width)).spread((rows, columns)))
    left, right = factors or (_numbers(first, m, k, 1), _numbers(second, k, n, 2))
    arrays = [
        np.ascontiguousarray(a if order == rows_of else a.T)
        for a, order, rows_of in zip((left, right), orders, "kn", strict=True)
    ]
    made = np.zeros((m, n), {INT32: np.int32, FLOAT32: np.float32, BFLOAT16: np.uint16, FLOAT16: np.float16}[result])
    grid = (-(-m // rows), -(-n // columns))
    near = 1e-2 if result.itemsize == 2 else 0.0 if result is INT32 else 1e-5
    kernel = b.finish(
        warps=warps,
        stages=stages,
        divisible=dict.fromkeys((0, 1, 2), 16) | dict.fromkeys((3, 4, 5), 16 // first.itemsize),
    )
    return Case(kernel, grid, [*arrays, made, m, n, k], near, near * math.sqrt(k), flops=2 * math.prod(sizes))


def _numbers(dtype: DType, rows: int, columns: int, seed: int) -> Any:
    """Numbers whose products are exact in float32, as they lie in memory."""
    if dtype is INT8:
        return np.random.default_rng(seed).integers(-99, 99, (rows, columns), np.int8)
    if dtype.itemsize == 1:
        return bits_of(np.random.default_rng(seed).integers(-8, 9, (rows, columns)) / 2, dtype)
    x = normal(rows, columns, seed=seed)
    if dtype is FLOAT16:
        return x.astype(np.float16)
    return bf16(x) if dtype is BFLOAT16 else (bf16(x).astype(np.uint32) << 16).view(np.float32)


def _flagship(name: str, dtypes: tuple[DType, DType, DType], tile: Sizes, warps: int, orders: str = "kn") -> None:
    def build(small: bool = True) -> Case:
        m, n, k = tile
        sizes = (m, n, 3 * k) if small else (8192, 8192, 8192)
        return tile_product(name, dtypes, sizes, tile, warps, orders=orders)

    build.__name__ = name
    flagship(build)


_flagship("wgmma_bf16_wide", (BFLOAT16, BFLOAT16, BFLOAT16), (128, 256, 64), 8)
_flagship("wgmma_bf16", (BFLOAT16, BFLOAT16, BFLOAT16), (128, 128, 64), 8)
_flagship("wgmma_fp8", (E4M3, E4M3, BFLOAT16), (128, 128, 128), 8, "kk")


def _unit(name: str, a: DType, b: DType, result: DType, orders: str, kinds: str) -> None:
    """One warpgroup, edges in all dims, more turns than slots."""
    depth = 128 // a.itemsize

    def build() -> Case:
        step = 16 // a.itemsize
        sizes = (64 + step, 64 + step, 4 * depth + step)
        return tile_product(name, (a, b, result), sizes, (64, 64, depth), 4, stages=3, orders=orders)

    build.__name__ = name
    unit(f"wgmma.mma_async.sync.aligned.m64n64k{32 // a.itemsize}.{kinds}")(build)


for _orders in ("kk", "kn", "mk", "mn"):
    _unit(f"wgmma_f16_{_orders}", FLOAT16, FLOAT16, FLOAT32, _orders, "f32.f16.f16")
_unit("wgmma_bf16_kn", BFLOAT16, BFLOAT16, FLOAT32, "kn", "f32.bf16.bf16")
_unit("wgmma_tf32", FLOAT32, FLOAT32, FLOAT32, "kk", "f32.tf32.tf32")
_unit("wgmma_e4m3", E4M3, E4M3, FLOAT32, "kk", "f32.e4m3.e4m3")
_unit("wgmma_e5m2", E5M2, E5M2, FLOAT32, "kk", "f32.e5m2.e5m2")
_unit("wgmma_e4m3_e5m2", E4M3, E5M2, FLOAT32, "kk", "f32.e4m3.e5m2")
_unit("wgmma_e5m2_e4m3", E5M2, E4M3, FLOAT32, "kk", "f32.e5m2.e4m3")
_unit("wgmma_int8", INT8, INT8, INT32, "kk", "s32.s8.s8")


@unit(
    "cp.async.bulk.tensor", "mbarrier", "@%p mbarrier.arrive", "fence.mbarrier_init", "wgmma.", "setmaxnreg", "barrier.sync", "bar.sync",
    "shfl.sync.idx",
)  # fmt: skip
def wgmma_two_groups() -> Case:
    """Two warpgroups and warps that copy, with registers moved between them; 3 slots for 5 turns."""
    dtypes = (BFLOAT16, BFLOAT16, FLOAT32)
    return tile_product("wgmma_two_groups", dtypes, (256, 64, 320), (256, 64, 64), 8, stages=3, orders="kk")


@unit("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "fence.proxy.async", "wgmma.fence", "wgmma.wait_group")
def wgmma_chain() -> Case:
    """A product whose result, by pointwise work, is the left operand of another, from registers; five turns that overlap."""
    rows, keys, width, step = 128, 296, 64, 64
    names = {"x": FLOAT16, "y": FLOAT16, "z": FLOAT16, "out": FLOAT32, "n": [INT32]}
    b, (x, y, z, out, n) = builder("wgmma_chain", names)
    zero, one, wide_, high = (b.number(k, INT32) for k in (0, 1, width, rows))
    tile = lambda p, count, first, size: b.tile(p, (count, wide_), (wide_, one), (first, zero), (size, width))
    left = tile(x, high, zero, rows)

    def turn(i: Term, total: Term) -> list[Term]:
        scores = b.matrix_product(left, tile(y, n, i, step).permute(1, 0), b.number(0, FLOAT32, (rows, step)))
        return [b.matrix_product((scores + 1.0).to(FLOAT16), tile(z, n, i, step), total * 0.5)]

    (total,) = b.loop(0, n, step, [b.number(0, FLOAT32, (rows, width))], turn)
    (out + b.index(rows * width).reshape(rows, width)).store(total)
    random = np.random.default_rng(7)
    arrays = [
        random.integers(-1, 2, shape).astype(np.float16) for shape in ((rows, width), (keys, width), (keys, width))
    ]
    kernel = b.finish(warps=8, stages=2, divisible=dict.fromkeys(range(4), 16))
    return Case(kernel, (1,), [*arrays, np.zeros((rows, width), np.float32), keys], 1e-6, 1e-5)
