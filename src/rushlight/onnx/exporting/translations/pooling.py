"""Pooling over windows, and to a number of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.translations.convolution import Sizes, spread
from rushlight.onnx.exporting.values import Value, numpy_dtype

np: Any = LazyModule("numpy")


def _batched(call: Call, x: Value, images: int) -> tuple[Value, bool]:
    alone = x.ndim == images + 1
    return (call.unsqueeze(x, [0]) if alone else x), alone


def _ending(call: Call, made: Value, alone: bool, shape: Any) -> Value:
    if not alone:
        made.shape = shape
        return made
    made.shape = (1, *(shape or ()))
    return call.squeeze(made, [0])


def _windows(call: Call, x: Value, kernel: Sizes, stride: Any, padding: Sizes, ceil: bool) -> dict[str, Any]:
    """Attributes of a pool over windows.

    PyTorch has no window that would begin in the padding after the image: ONNX has it, so padding is cut where there is one.
    """
    images = x.ndim - 2
    kernel = spread(kernel, images)
    stride = spread(stride, images) if stride not in ([], None) else kernel
    pads = spread(padding, images)
    return {"kernel_shape": kernel, "strides": stride, "pads": pads * 2, "ceil_mode": int(ceil)}


def _pool_dims(name: str) -> int:
    return int(name.split("pool")[1][0])


@translates("aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d")
def max_pool(
    call: Call, x: Value, kernel: Sizes, stride: Any = None, padding: Sizes = 0, dilation: Sizes = 1, ceil: bool = False
) -> Value:
    images = _pool_dims(call.name)
    x, alone = _batched(call, x, images)
    attrs = _windows(call, x, kernel, stride, padding, ceil)
    return _ending(call, call.op("MaxPool", x, dilations=spread(dilation, images), **attrs), alone, call.shape)


@translates("aten::max_pool1d_with_indices", "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices")
def max_pool_with_indices(call: Call, x: Value, kernel: Sizes, stride: Any = None, padding: Sizes = 0, dilation: Sizes = 1,
                          ceil: bool = False) -> list[Value]:  # fmt: skip
    images = _pool_dims(call.name)
    x, alone = _batched(call, x, images)
    attrs = _windows(call, x, kernel, stride, padding, ceil)
    made, places = call.ops(
        "MaxPool", x, results=[(x.dtype, None), (rushlight.int64, None)], dilations=spread(dilation, images), **attrs
    )
    shape = call.results[1][1]
    # ONNX counts over the whole tensor, PyTorch within an image.
    area = call.product(call.dims(x)[2:])
    within = call.op("Mod", places, call.scalar(area, rushlight.int64), shape=None)
    return [_ending(call, made, alone, call.shape), _ending(call, within, alone, shape)]


@translates("aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d")
def avg_pool(call: Call, x: Value, kernel: Sizes, stride: Any = None, padding: Sizes = 0, ceil: bool = False, include_pad: bool = True,
             divisor: int | None = None) -> Value:  # fmt: skip
    images = _pool_dims(call.name)
    x, alone = _batched(call, x, images)
    attrs = _windows(call, x, kernel, stride, padding, ceil)
    if ceil and _reaches_out(x, attrs):
        return _ending(call, _averaged(call, x, attrs, include_pad, divisor), alone, call.shape)
    made = call.op("AveragePool", x, count_include_pad=int(include_pad or divisor is not None), **attrs)
    if divisor is not None:
        window = 1
        for k in attrs["kernel_shape"]:
            window *= k
        made = call.op("Mul", made, call.const(window / divisor, x.dtype))
    return _ending(call, made, alone, call.shape)


def _reaches_out(x: Value, attrs: dict[str, Any]) -> bool:
    """Whether a last window reaches beyond the padded image, which runtimes count differently."""
    images = len(attrs["kernel_shape"])
    for d in range(images):
        size = (x.shape or ())[2 + d]
        span = size + 2 * attrs["pads"][d] - attrs["kernel_shape"][d] if isinstance(size, int) else 1
        if not isinstance(size, int) or span % attrs["strides"][d]:
            return True
    return False


def _averaged(call: Call, x: Value, attrs: dict[str, Any], include_pad: bool, divisor: int | None) -> Value:
    """Sums over windows divided by the numbers of elements that count: runtimes differ on windows that reach out."""
    images = len(attrs["kernel_shape"])
    kernel, stride, pads = attrs["kernel_shape"], attrs["strides"], attrs["pads"][:images]
    image, found = (x.shape or ())[2:], call.shape[-images:]
    if not all(isinstance(s, int) for s in (*image, *found)):
        raise call.refuse("ceil_mode=True with an image of symbolic size", "give ceil_mode=False")
    after, counts = [], np.ones(())
    for size, count, k, s, p in zip(image, found, kernel, stride, pads, strict=True):
        after.append((count - 1) * s + k - size - p)
        starts = np.arange(count) * s - p
        low, high = (-p, size + p) if include_pad else (0, size)
        counts = counts[..., None] * (np.minimum(starts + k, high) - np.maximum(starts, low))
    padded = call.op("Pad", x, call.ints([0, 0, *pads, 0, 0, *[max(a, 0) for a in after]]), call.const(0, x.dtype))
    made = call.op("AveragePool", padded, kernel_shape=kernel, strides=stride)
    window = float(np.prod(kernel))
    factor = window / (counts if divisor is None else np.full(counts.shape, float(divisor)))
    return call.op("Mul", made, call.array(factor.astype(numpy_dtype(x.dtype)), x.dtype))


@translates(
    "aten::adaptive_avg_pool1d",
    "aten::adaptive_avg_pool2d",
    "aten::adaptive_avg_pool3d",
    "aten::_adaptive_avg_pool2d",
    "aten::_adaptive_avg_pool3d",
)
def adaptive_avg_pool(call: Call, x: Value, sizes: Sequence[Any]) -> Value:
    return _adaptive(call, x, sizes, "Average")[0]


@translates("aten::adaptive_max_pool1d", "aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d")
def adaptive_max_pool(call: Call, x: Value, sizes: Sequence[Any]) -> list[Value]:
    return _adaptive(call, x, sizes, "Max")


def _adaptive(call: Call, x: Value, sizes: Sequence[Any], kind: str) -> list[Value]:
    """One window for all, equal windows, or one product with a matrix of means for each dim."""
    images = _pool_dims(call.name)
    x, alone = _batched(call, x, images)
    image = call.dims(x)[2:]
    sizes = [i if s is None else s for s, i in zip(spread(sizes, images), image, strict=True)]
    if all(isinstance(s, int) and s == 1 for s in sizes) and kind == "Average":
        made = call.op("GlobalAveragePool", x)
        return [_ending(call, made, alone, call.shape)]
    if not all(isinstance(i, int) for i in (*image, *sizes)):
        raise call.refuse("an image of symbolic size that is pooled to more than one element")
    if all(i % s == 0 for i, s in zip(image, sizes, strict=True)):
        kernel = [i // s for i, s in zip(image, sizes, strict=True)]
        attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": kernel}
        if kind == "Average":
            return [_ending(call, call.op("AveragePool", x, **attrs), alone, call.shape)]
        made, places = call.ops("MaxPool", x, results=[(x.dtype, None), (rushlight.int64, None)], **attrs)
        within = call.op("Mod", places, call.const(call.product(image), rushlight.int64))
        shape = call.results[1][1] if len(call.results) > 1 else None
        return [_ending(call, made, alone, call.shape), _ending(call, within, alone, shape)]
    if kind == "Max":
        raise call.refuse(f"pooling {image} to {list(sizes)}", "choose sizes that divide the image")
    return [_ending(call, _means(call, x, image, sizes), alone, call.shape)]


def _means(call: Call, x: Value, image: Sequence[int], sizes: Sequence[int]) -> Value:
    rank = x.ndim
    for d, (i, s) in enumerate(zip(image, sizes, strict=True)):
        matrix = np.zeros((i, s))
        for j in range(s):
            first, last = j * i // s, -(-(j + 1) * i // s)
            matrix[first:last, j] = 1 / (last - first)
        order = [k for k in range(rank) if k != 2 + d] + [2 + d]
        x = call.transpose(x, order)
        shape = (*(x.shape or ())[:-1], s)
        x = call.op("MatMul", x, call.array(matrix.astype(numpy_dtype(x.dtype)), x.dtype), shape=shape)
        x = call.transpose(x, [order.index(k) for k in range(rank)])
    return x


@translates("aten::lp_pool1d", "aten::lp_pool2d")
def lp_pool(call: Call, x: Value, p: Any, kernel: Sizes, stride: Any = None, ceil: bool = False) -> Value:
    x, alone = _batched(call, x, _pool_dims(call.name))
    attrs = _windows(call, x, kernel, stride, 0, ceil)
    return _ending(
        call, call.op("LpPool", x, p=int(p), **{k: v for k, v in attrs.items() if k != "ceil_mode"}), alone, call.shape
    )


@translates("aten::max_unpool2d", "aten::max_unpool3d")
def max_unpool(call: Call, x: Value, places: Value, sizes: Sequence[Any], *_: Any) -> Value:
    lead = call.dims(x)[: x.ndim - len(sizes)]
    area = call.product(sizes)
    flat = (f"a{i}" for i in range(len(lead) + 1))
    start = call.full([*lead, area], 0, x.dtype, shape=tuple(flat))
    rows = [call.reshape(t, [*lead, -1], shape=start.shape) for t in (places, x)]
    made = call.op("ScatterElements", start, *rows, axis=len(lead), shape=start.shape)
    return call.reshape(made, [*lead, *sizes], shape=call.shape)
