"""Kernels that the backend's routines build, as flagships and unit kernels for `cuda_kernels`: one launch each, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from bench.cuda_kernels import Case, bf16, flagship, normal, unit

from rushlight._backends.cuda.attention.attention import sequence_steps
from rushlight._backends.cuda.conv.conv import convolution_steps
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.grouped import grouped_steps
from rushlight._backends.cuda.gemm.product import Product, product_launch, store_result
from rushlight._backends.cuda.gemm.stretches import product_in_stretches
from rushlight._backends.cuda.gemm.tiles import TileShape, choose_tile
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS, choose_group_tile
from rushlight._backends.cuda.program.assemble import compile_graph
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Step
from rushlight._graph.core import trace
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT32, INT32, DType

__all__ = ["Arrays"]

Sizes = tuple[int, ...]


class Arrays:
    """Operands over arrays: `case(steps)` is a launch of theirs with the arrays in the operands' places."""

    def __init__(self) -> None:
        self.held: dict[Memory, Any] = {}

    def operand(self, array: Any, dtype: DType | None = None) -> Operand:
        """A row-major operand; bfloat16 lies as uint16, floats of eight bits as uint8."""
        memory = Memory(array.nbytes, "array")
        self.held[memory] = array
        strides = [s // array.itemsize for s in array.strides]
        return Operand(memory, dtype or BY_NAME[array.dtype.name], array.shape, strides)

    def case(self, steps: Sequence[Step], rtol: float, atol: float, **more: Any) -> Case:
        (step,) = steps
        assert isinstance(step, Launch)
        arguments = [
            self.held[x.memory] if isinstance(x, Operand) else self.held[x] if isinstance(x, Memory) else x
            for x in step.arguments
        ]
        return Case(step.kernel, step.grid, arguments, rtol, atol, **more)


# ***** products of groups *****


def _grouped(left: Sizes, right: Sizes, ends: Sequence[int], way: str) -> Case:
    """bfloat16; groups along the rows of the first operand, or the inner dim."""
    arrays = Arrays()
    a, b = (arrays.operand(bf16(normal(*s, seed=n)), BFLOAT16) for n, s in enumerate((left, right)))
    if len(right) == 2:  # [K, M] in memory, as the gradient of matrices finds it
        a = Operand(a.memory, a.dtype, a.shape, (1, left[0]), a.offset)
    groups = arrays.operand(np.array(ends, np.int32), INT32)
    shape = (left[0], right[-1]) if len(right) == 3 else (len(ends), left[0], right[-1])
    out = arrays.operand(np.zeros(shape, np.uint16), BFLOAT16)
    with PRODUCTS.scoped(way):
        steps = grouped_steps(ExternCall("grouped_dot", [a, b, groups], [out], {}))
    return arrays.case(steps, 2e-2, 1e-1, flops=2 * ends[-1] * left[0 if len(right) == 2 else 1] * right[-1])


_TOKENS, _EXPERTS, _WIDTH, _HIDDEN = 16384, 8, 2048, 4096
# The last group has 15 times the first's rows
_UNEVEN = [int(_TOKENS * (n + 1) ** 2 / _EXPERTS**2) for n in range(_EXPERTS)]


@flagship
def grouped_rows(small: bool = True) -> Case:
    """What experts do: rows of tokens in groups, a matrix for each."""
    if small:
        return _grouped((300, 64), (3, 64, 128), [70, 70, 290], "mma")
    return _grouped((_TOKENS, _WIDTH), (_EXPERTS, _WIDTH, _HIDDEN), _UNEVEN, "mma")


@flagship
def grouped_inner(small: bool = True) -> Case:
    """The gradient of their matrices: sums over the tokens of each."""
    if small:
        return _grouped((64, 300), (300, 128), [70, 70, 290], "mma")
    return _grouped((_WIDTH, _TOKENS), (_TOKENS, _HIDDEN), _UNEVEN, "mma")


@flagship
def wgmma_grouped_rows(small: bool = True) -> Case:
    if small:
        return _grouped((300, 128), (3, 128, 136), [70, 70, 290], "wgmma")
    return _grouped((_TOKENS, _WIDTH), (_EXPERTS, _WIDTH, _HIDDEN), _UNEVEN, "wgmma")


# ***** products whose programs walk from tile to tile *****


def _walking(small: bool, way: str) -> Case:
    """bfloat16; a program for each multiprocessor."""
    m, n, k = (304, 200, 136) if small else (8192, 8192, 8192)
    arrays = Arrays()
    a, b = (arrays.operand(bf16(normal(*s, seed=x)), BFLOAT16) for x, s in enumerate(((m, k), (k, n))))
    out = arrays.operand(np.zeros((m, n), np.uint16), BFLOAT16)
    if way == "wgmma":  # in the small form more turns than slots, over several tiles
        tile = choose_group_tile(a, 1, *((128, 64) if small else (m, n)), k)
    else:
        tile = choose_tile(BFLOAT16, FLOAT32, 1, 8192, 8192)
    tile = tile._replace(walks=3 if small else 132)
    with PRODUCTS.scoped(way):
        steps = [product_launch(Product(a, b, out, FLOAT32), tile, 1, store_result(out))]
    return arrays.case(steps, 2e-2, 2e-1, flops=2 * m * n * k)


@flagship
def walking_product(small: bool = True) -> Case:
    """By `mma`."""
    return _walking(small, "mma")


@flagship
def wgmma_walking_product(small: bool = True) -> Case:
    """The copies for the next tile begin while a tile is stored."""
    return _walking(small, "wgmma")


# ***** products whose turns are shared out evenly *****


def _stretches(small: bool, way: str, step: int) -> Case:
    """bfloat16; the products that leave parts of tiles, or the sums of parts."""
    m, n, k = (136, 72, 2056) if small else (8192 + 512, 8192, 8192)
    arrays = Arrays()
    a, b = (arrays.operand(bf16(normal(*s, seed=x)), BFLOAT16) for x, s in enumerate(((m, k), (k, n))))
    out = arrays.operand(np.zeros((m, n), np.uint16), BFLOAT16)
    tile = TileShape(64, 64, 64, 4, 3) if small else TileShape(128, 128, 64, 8, 4)
    parts: list[Memory] = []

    def workspace(nbytes: int) -> Memory:
        parts.append(Memory(nbytes, "array"))
        arrays.held[parts[0]] = normal(nbytes // 4, seed=2)
        return parts[0]

    with PRODUCTS.scoped(way):
        steps = product_in_stretches(Product(a, b, out, FLOAT32), tile, store_result(out), workspace)
    return arrays.case([steps[step]], 2e-2, 2e-1, flops=0 if step else 2 * m * n * k)


@flagship
def stretched_product(small: bool = True) -> Case:
    """Whole tiles, and parts of tiles."""
    return _stretches(small, "mma", 0)


@flagship
def wgmma_product_in_stretches(small: bool = True) -> Case:
    """The same by warpgroups."""
    return _stretches(small, "wgmma", 0)


@flagship
def sums_of_stretches(small: bool = True) -> Case:
    """Parts of tiles, added up in order."""
    return _stretches(small, "mma", 1)


# ***** convolutions with what follows them *****


@flagship
def convolution_layer(small: bool = True) -> Case:
    """A convolution of channels-last images and weights of bfloat16, a bias, a residual and an activation."""
    batch, channels, outs, size = (2, 32, 32, 9) if small else (64, 128, 128, 56)
    shapes = (batch, size, size, channels), (outs, 3, 3, channels), (outs,), (batch, size, size, outs)

    def layer(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        images = [build.convert(build.transpose(v, (0, 3, 1, 2)), FLOAT32) for v in (x, residual)]
        taps = build.convert(build.transpose(w, (0, 3, 1, 2)), FLOAT32)
        y = prim.conv(images[0], taps, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
        total = y + build.broadcast_to(build.reshape(bias, (1, outs, 1, 1)), y.shape) + images[1]
        total = build.convert(prim.maximum(total, build.full_like(total, 0.0)), BFLOAT16)
        return build.transpose(total, (0, 2, 3, 1))

    types = BFLOAT16, BFLOAT16, FLOAT32, BFLOAT16
    program = compile_graph(trace(layer, list(zip(shapes, types, strict=True))), [_dense(s) for s in shapes])
    arrays = Arrays()
    for n, (memory, shape) in enumerate(zip(program.inputs, shapes, strict=True)):
        drawn = normal(*shape, seed=n)
        arrays.held[memory] = bf16(drawn) if types[n] is BFLOAT16 else drawn
    arrays.held[program.results[0]] = np.zeros(shapes[3], np.uint16)
    return arrays.case(program.steps, 2e-2, 2e-1, flops=2 * batch * size**2 * outs * channels * 9)


def _windows(batch: int, channels: int, outs: int, size: int, *, by_weights: bool = False, step: int = 1) -> Case:
    """A convolution of 3 x 3 over channels-last images of bfloat16 by warpgroups, or its gradient by weights."""
    arrays, positions = Arrays(), -(-size // step)

    def seen(shape: Sizes, order: Sequence[int | None], seed: int | None = None) -> Operand:
        """An array whose dims are seen in an order, with one of size 1 where there is None."""
        drawn = np.zeros(shape, np.uint16) if seed is None else bf16(normal(*shape, seed=seed))
        x = arrays.operand(drawn, BFLOAT16)
        dims, strides = ([1 if d is None else of[d] for d in order] for of in (x.shape, x.strides))
        return Operand(x.memory, x.dtype, dims, strides, 0)

    of_images, of_taps, of_result = (
        (batch, size, size, channels),
        (outs, 3, 3, channels),
        (batch, positions, positions, outs),
    )
    apart: dict[str, Sizes] = {"stride": (step, step), "dilation": (1, 1), "size": (positions, positions)}
    if by_weights:
        x, w = seen(of_images, (3, None, 0, 1, 2), 1), seen(of_result, (None, 3, 0, 1, 2), 2)
        out, apart = seen(of_taps, (3, None, 0, 1, 2)), {"stride": (1, 1), "dilation": (step, step), "size": (3, 3)}
    else:
        x, w = seen(of_images, (0, None, 3, 1, 2), 1), seen(of_taps, (None, 0, 3, 1, 2), 2)
        out = seen(of_result, (0, None, 3, 1, 2))
    params = {"spread": (1, 1), "lo": (1, 1), "flip": False, **apart}
    with PRODUCTS.scoped("wgmma"):
        steps = convolution_steps(ExternCall("conv_windows", [x, w], [out], params), splits=1)
    return arrays.case(steps, 2e-2, 2e-1, flops=2 * batch * positions**2 * outs * channels * 9)


@flagship
def wgmma_convolution(small: bool = True) -> Case:
    return _windows(2, 128, 128, 9) if small else _windows(64, 256, 256, 28)


@flagship
def wgmma_convolution_to_weights(small: bool = True) -> Case:
    return _windows(2, 128, 128, 9, by_weights=True) if small else _windows(64, 256, 256, 28, by_weights=True)


def _dense(shape: Sizes) -> Sizes:
    return tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))


# ***** attention to pages *****


def _decode(sequences: int, keys: int, span: int | None = None) -> list[tuple[Arrays, Step]]:
    """One query of each sequence to pages of 16 tokens, 32 heads for 8 of keys, bfloat16: the steps."""
    page, heads, groups, width = 16, 32, 8, 128
    pages = sequences * keys // page
    arrays = Arrays()
    drawn = np.random.default_rng(3)
    q = arrays.operand(bf16(normal(sequences, heads, width)), BFLOAT16)
    k, v = (arrays.operand(bf16(normal(pages, page, groups, width, seed=n)), BFLOAT16) for n in (1, 2))
    starts = arrays.operand(np.arange(sequences + 1, dtype=np.int32))
    used = arrays.operand(drawn.integers(keys // 2, keys + 1, sequences).astype(np.int32))
    table = arrays.operand(drawn.permutation(pages).astype(np.int32).reshape(sequences, keys // page))
    out = arrays.operand(np.zeros((sequences, heads, width), np.uint16), BFLOAT16)
    norm = arrays.operand(np.zeros((heads, sequences), np.float32))
    params = {"scale": width**-0.5, "left": -1, "right": 0, "max_q": 1, "max_k": keys}
    call = ExternCall("paged_attention", [q, k, v, starts, used, table], [out, norm], params)
    steps = sequence_steps(call, span=span)
    for memory in call.taken:
        arrays.held[memory] = np.zeros(memory.nbytes // 4, np.float32)
    return [(arrays, step) for step in steps]


@flagship
def paged_decode(small: bool = True) -> Case:
    """Many sequences: one launch.  What moves is the keys and values that are used."""
    ((arrays, step),) = _decode(2, 96, 96) if small else _decode(64, 4096)
    return arrays.case([step], 2e-2, 2e-2, bytes=0 if small else 2 * 64 * 3072 * 8 * 128 * 2)


@flagship
def paged_decode_parts(small: bool = True) -> Case:
    """One long sequence: the keys in parts, of which this is the first launch."""
    (arrays, step), _ = _decode(1, 160, 64) if small else _decode(1, 1 << 15)
    return arrays.case([step], 2e-2, 2e-2, bytes=0 if small else 2 * (1 << 15) * 8 * 128 * 2)


def _unit(name: str, build: Callable[[], Case], *instructions: str) -> None:
    build.__name__ = name
    unit(*instructions)(build)


_unit(
    "wgmma_groups_of_rows", lambda: wgmma_grouped_rows(True), "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",
    "cp.async.bulk.tensor.3d",
)  # fmt: skip
_unit(
    "wgmma_windows", lambda: _windows(3, 72, 72, 7, step=2), "cp.async.bulk.tensor.4d.shared::cluster.global.im2col",
)  # fmt: skip
_unit(
    "wgmma_windows_to_weights", lambda: _windows(3, 64, 72, 7, by_weights=True, step=2),
    "cp.async.bulk.tensor.4d.shared::cluster.global.im2col",
)  # fmt: skip
