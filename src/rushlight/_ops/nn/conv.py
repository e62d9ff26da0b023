"""Convolutions in one, two and three dimensions, and their transposes."""

from __future__ import annotations

from typing import Any

from rushlight._ops.bodies import C_NAME, CPP_NAME, narrow, onto, wide
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.layout import channels_last_strides, suggests_channels_last

__all__: list[str] = []

Ints = tuple[int, ...]


def _ints(value: Any, n: int, name: str) -> Ints:
    """One number for each spatial dim."""
    items = (value,) * n if isinstance(value, int) else tuple(value)
    items = items * n if len(items) == 1 else items
    if len(items) != n:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {n} values to match the convolution dimensions, but got {name}={list(items)}"
        )
    return items


def _check(x: Any, weight: Any, bias: Any, n: int, transposed: bool, groups: int) -> None:
    if len(x.shape) not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to conv{'_transpose' if transposed else ''}{n}d, but got input of size: {list(x.shape)}"
        )
    if len(weight.shape) != n + 2:
        raise RuntimeError(f"expected weight to have {n + 2} dimensions, but got weight of size {list(weight.shape)}")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if bias is not None and bias.dtype is not x.dtype and not transposed:
        raise RuntimeError(
            f"Input type ({C_NAME[x.dtype.name]}) and bias type ({C_NAME[bias.dtype.name]}) should be the same"
        )
    for other in (weight, bias):
        if other is not None and other.dtype is not x.dtype:
            raise RuntimeError(f"expected scalar type {CPP_NAME[x.dtype.name]} but found {CPP_NAME[other.dtype.name]}")
    outs = weight.shape[1] * groups if transposed else weight.shape[0]
    channels = x.shape[-(n + 1)]
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if (
        channels != expected
        or (not transposed and weight.shape[0] % groups)
        or (transposed and weight.shape[0] % groups)
    ):
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(x.shape)} to have {expected} channels, but got "
            f"{channels} channels instead"
        )
    if bias is not None and bias.shape != (outs,):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {outs} elements, but got bias of size {list(bias.shape)} instead"
        )


def _padding(padding: Any, x: Any, kernel: Ints, stride: Ints, dilation: Ints) -> tuple[Any, Ints]:
    """(x, padding): "same" may need more on one side, which is added explicitly."""
    n = len(kernel)
    if padding == "valid":
        return x, (0,) * n
    if padding == "same":
        if any(s != 1 for s in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        odd = [t % 2 for t in total]
        if any(odd):
            x = build.pad(x, [0] * (n + 2), [0, 0, *odd], [0] * (n + 2))
        return x, tuple(t // 2 for t in total)
    if isinstance(padding, str):
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    return x, _ints(padding, n, "padding")


def _sizes_fit(x: Any, kernel: Ints, padding: Ints, dilation: Ints) -> None:
    padded = [s + 2 * p for s, p in zip(x.shape[2:], padding, strict=True)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if any(p < r for p, r in zip(padded, reach, strict=True)):
        raise RuntimeError(
            f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). Kernel size: ({' x '.join(map(str, reach))}). "
            "Kernel size can't be greater than actual input size"
        )


def _positive(stride: Ints, padding: Any, dilation: Ints) -> None:
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError("dilation should be greater than zero")
    if not isinstance(padding, str) and any(p < 0 for p in padding):
        raise RuntimeError("negative padding is not supported")


def _with_bias(y: Any, bias: Any, dtype: Any) -> Any:
    """The result in `dtype`, with the bias added before the only rounding."""
    return narrow(y if bias is None else y + onto(wide(bias), y.shape, 1), dtype)


def _widened(bias: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    """The operands in a wider dtype if a bias is added before rounding."""
    return (x, weight) if bias is None else (wide(x), wide(weight))


def _convolve(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, n: int) -> Any:
    _check(x, weight, bias, n, False, groups)
    kernel = weight.shape[2:]
    stride, dilation = _ints(stride, n, "stride"), _ints(dilation, n, "dilation")
    _positive(stride, padding if isinstance(padding, str) else _ints(padding, n, "padding"), dilation)
    batched = len(x.shape) == n + 2
    images = x if batched else build.expand_dims(x, (0,))
    images, around = _padding(padding, images, kernel, stride, dilation)
    _sizes_fit(images, kernel, around, dilation)
    if any(k == 0 for k in kernel):
        raise RuntimeError("weight should have at least one element in each kernel dimension")
    images, taps = _widened(bias, images, weight)
    y = prim.conv(images, taps, stride=stride, padding=around, dilation=dilation, groups=groups)
    y = _with_bias(y, bias, x.dtype)
    return y if batched else build.squeeze(y, (0,))


def _layout(shape: Any, specs: Any) -> Any:
    """Channels last if the image or the weight is; for three spatial dims only batches in float32 and bfloat16, as in
    PyTorch."""
    if len(shape) not in (3, 4, 5) or len(specs[1].shape) != len(shape):  # not a single image
        return None
    if len(shape) == 3:  # PyTorch converts a contiguous input to an image of one row
        seen = [s for s in specs[:2] if s is specs[1] or s.contiguous]
        rows = [
            ((*s.shape[:2], 1, s.shape[2]), (*s.strides[:2], s.shape[2] * s.strides[2], s.strides[2])) for s in seen
        ]
        outer, inner, _, along = channels_last_strides((*shape[:2], 1, shape[2]))
        return (outer, inner, along) if any(suggests_channels_last(*row) for row in rows) else None
    if len(shape) == 5 and (shape[0] == 1 or specs[0].dtype.name not in ("float32", "bfloat16")):
        return None
    last = any(suggests_channels_last(s.shape, s.strides) for s in specs[:2])
    return channels_last_strides(shape) if last else None


def _declare(n: int) -> None:
    def body(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
        for each in padding if isinstance(padding, tuple) else (padding,):
            if isinstance(each, bool) or not isinstance(each, (int, str)):
                raise TypeError(f"conv{n}d(): argument 'padding' must be str, int or tuple of ints, but found {each!r}")
        if len(weight.shape) == n + 2 and not weight.shape[0]:
            raise RuntimeError(
                f"conv{n}d(): expected weight to have at least one output channel in dim 0, but found weight{list(weight.shape)}"
            )
        return _convolve(x, weight, bias, stride, padding, dilation, groups, n)

    operator(
        f"conv{n}d(Tensor input, Tensor weight, Tensor? bias=None, int[{n}] stride=1, any padding=0, int[{n}] dilation=1, int groups=1) -> Tensor",
        spaces=("torch", "nn.functional"),
        method=False,
        node="ConvolutionBackward0",
        like=_layout,
        doc=f"Convolution of [N, C, *{n} dims] (or without N) with a weight [O, C / groups, *kernel]; padding may be 'same' or 'valid'.",
    )(body)


def transposed(
    x: Any, weight: Any, stride: Ints, padding: Ints, output_padding: Ints, dilation: Ints, groups: int
) -> Any:
    """The gradient of a convolution by its input: dilate x by the stride, convolve with the flipped kernel."""
    n = len(stride)
    channels, outs, *kernel = weight.shape
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    lo = [r - p for r, p in zip(reach, padding, strict=True)]
    hi = [r - p + o for r, p, o in zip(reach, padding, output_padding, strict=True)]
    spread = build.pad(x, (0, 0, *lo), (0, 0, *hi), (0, 0, *(s - 1 for s in stride)))
    split = build.reshape(weight, (groups, channels // groups, outs, *kernel))
    swapped = build.transpose(split, (0, 2, 1, *range(3, n + 3)))
    flipped = prim.flip(
        build.reshape(swapped, (groups * outs, channels // groups, *kernel)), dims=tuple(range(2, n + 2))
    )
    return prim.conv(spread, flipped, stride=(1,) * n, padding=(0,) * n, dilation=dilation, groups=groups)


def _transpose_sizes(x: Any, kernel: Ints, stride: Ints, padding: Ints, extra: Ints, dilation: Ints) -> None:
    for s, d, o in zip(stride, dilation, extra, strict=True):
        if o >= s and o >= d:
            raise RuntimeError(
                f"output padding must be smaller than either stride or dilation, but got output_padding: {list(extra)} stride: {list(stride)} "
                f"dilation: {list(dilation)}"
            )
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, s, p, d, k, o in zip(x.shape[2:], stride, padding, dilation, kernel, extra, strict=True)
    ]
    if any(size <= 0 for size in sizes):
        raise RuntimeError(
            f"Given input size per channel: ({' x '.join(map(str, x.shape[2:]))}). Calculated output size per channel: "
            f"({' x '.join(map(str, sizes))}). Output size is too small"
        )


def _declare_transposed(n: int) -> None:
    def body(
        x: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any
    ) -> Any:
        _check(x, weight, bias, n, True, groups)
        stride, padding, dilation, extra = (
            _ints(v, n, w)
            for v, w in (
                (stride, "stride"),
                (padding, "padding"),
                (dilation, "dilation"),
                (output_padding, "output_padding"),
            )
        )
        _positive(stride, padding, dilation)
        if not weight.shape[0]:
            raise RuntimeError(
                f"conv_transpose{n}d(): expected weight to have at least one input channel in dim 0, but found weight{list(weight.shape)}"
            )
        batched = len(x.shape) == n + 2
        images = x if batched else build.expand_dims(x, (0,))
        if 0 in images.shape[2:]:
            raise RuntimeError(
                f"Only zero batch or zero channel inputs are supported, but got input shape: {list(x.shape)}"
            )
        _transpose_sizes(images, weight.shape[2:], stride, padding, extra, dilation)
        images, taps = _widened(bias, images, weight)
        y = _with_bias(transposed(images, taps, stride, padding, extra, dilation, groups), bias, x.dtype)
        return y if batched else build.squeeze(y, (0,))

    operator(
        f"conv_transpose{n}d(Tensor input, Tensor weight, Tensor? bias=None, int[{n}] stride=1, int[{n}] padding=0, int[{n}] output_padding=0, "
        f"int groups=1, int[{n}] dilation=1) -> Tensor",
        spaces=("torch", "nn.functional"),
        method=False,
        node="ConvolutionBackward0",
        like=_layout,
        doc=f"The transpose of `conv{n}d`: weight [C, O / groups, *kernel]; every element of x paints the kernel onto the result.",
    )(body)


for _n in (1, 2, 3):
    _declare(_n)
    _declare_transposed(_n)


# ***** windows as columns *****


@operator("unfold(Tensor input, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor", name="im2col",
          spaces=("nn.functional",), method=False, node="Im2ColBackward0")  # fmt: skip
def im2col(x: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """The windows of [N, C, H, W] as columns: [N, C * kernel, number of windows]."""
    if len(x.shape) not in (3, 4):
        kind = IndexError if len(x.shape) < 3 else RuntimeError  # PyTorch checks the image first
        raise kind(
            f"Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {list(x.shape)}"
        )
    images = x if len(x.shape) == 4 else build.expand_dims(x, (0,))
    kernel, gaps, around, steps = (_ints(v, 2, "kernel_size") for v in (kernel_size, dilation, padding, stride))
    for values, what in ((kernel, "kernel size"), (gaps, "dilation"), (steps, "stride")):
        if min(values) <= 0:
            raise RuntimeError(f"{what} should be greater than zero, but got {list(values)}")
    padded = build.pad(images, (0, 0, *around), (0, 0, *around), (0, 0, 0, 0))
    if any(s < g * (k - 1) + 1 for s, k, g in zip(padded.shape[2:], kernel, gaps, strict=True)):
        raise RuntimeError(
            f"Given input with spatial size ({x.shape[-2]}, {x.shape[-1]}), kernel_size={kernel}, dilation={gaps}, padding={around}, calculated "
            "shape of the array of sliding blocks is too small: its components must be at least one."
        )
    windows = prim.window(padded, dims=(2, 3), size=kernel, stride=steps, dilation=gaps)
    batch, channels, rows, columns = windows.shape[:4]
    moved = build.transpose(windows, (0, 1, 4, 5, 2, 3))
    unfolded = build.reshape(moved, (batch, channels * kernel[0] * kernel[1], rows * columns))
    return unfolded if len(x.shape) == 4 else build.squeeze(unfolded, (0,))


@operator("fold(Tensor input, int[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor",
          name="col2im", spaces=("nn.functional",), method=False, node="Col2ImBackward0")  # fmt: skip
def col2im(x: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """The transpose of `unfold`: columns summed back into [N, C, H, W]."""
    if len(x.shape) not in (2, 3):
        raise RuntimeError(
            f"Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for input, but got: {list(x.shape)}"
        )
    columns = x if len(x.shape) == 3 else build.expand_dims(x, (0,))
    size, kernel, gaps, around, steps = (
        _ints(v, 2, "kernel_size") for v in (output_size, kernel_size, dilation, padding, stride)
    )
    for what, values, least in (
        ("kernel size", kernel, 1),
        ("dilation", gaps, 1),
        ("padding", around, 0),
        ("stride", steps, 1),
    ):
        if min(values) < least:
            raise RuntimeError(
                f"{what} should be {'greater than zero' if least else 'non-negative'}, but got {list(values)}"
            )
    per_window = kernel[0] * kernel[1]
    batch, depth, count = columns.shape
    if depth % per_window:
        raise RuntimeError(
            f"Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)={depth} and "
            f"kernel_size=({kernel[0]}, {kernel[1]})."
        )
    counts = [
        (s + 2 * p - g * (k - 1) - 1) // t + 1 for s, p, g, k, t in zip(size, around, gaps, kernel, steps, strict=True)
    ]
    if counts[0] * counts[1] != count or min(counts) < 1:
        raise RuntimeError(
            f"Given output_size=({size[0]}, {size[1]}), kernel_size=({kernel[0]}, {kernel[1]}), expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {counts[0]} * {counts[1]} = {counts[0] * counts[1]}, but got input.size(2)={count}."
        )
    split = build.reshape(columns, (batch, depth // per_window, *kernel, *counts))
    windows = build.transpose(split, (0, 1, 4, 5, 2, 3))
    shape = (batch, depth // per_window, *(s + 2 * p for s, p in zip(size, around, strict=True)))
    whole = narrow(
        build.unwindow(wide(windows), shape=shape, dims=(2, 3), size=kernel, stride=steps, dilation=gaps), x.dtype
    )
    cut = [0, 0, *(-p for p in around)]
    image = build.pad(whole, cut, cut, [0] * 4)
    return image if len(x.shape) == 3 else build.squeeze(image, (0,))
