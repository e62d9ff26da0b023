"""Functions of networks that PyTorch makes of several operators above autograd."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight._interface.operators import INSTEAD, casts
from rushlight._interface.tensors import GRAD, STATE
from rushlight.library.aten.composites import aten, contiguous, reshaped, to_copy
from rushlight.library.aten.composites.products import matmul
from rushlight.library.aten.derivatives import Value, bare
from rushlight.library.aten.handlers import HANDLERS, handles
from rushlight.nn.composites.resizing import scaled

__all__: list[str] = []

Tensor = rushlight.Tensor
_MEAN, _SUM = 1, 2


def code(reduction: str) -> int:
    """The number of a way to reduce."""
    return {"none": 0, "mean": _MEAN, "sum": _SUM}[reduction]


def reduced(x: Any, reduction: str) -> Any:
    """`x`, its mean or its sum."""
    return aten("mean")(x) if reduction == "mean" else aten("sum")(x) if reduction == "sum" else x


def _old(size_average: Any, reduce: Any, reduction: str) -> str:
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


# ***** layers *****


@handles("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    n = input.dim()
    if n == 2 and bias is not None:
        return aten("addmm")(bias, input, aten("t")(weight))
    if bias is not None and (n == 1 or n >= 3) and weight.dim() == 2 and (n == 1 or input.is_contiguous()):
        flat = reshaped(input, [math.prod(input.shape[:-1]), input.shape[-1]])
        return aten("view")(aten("addmm")(bias, flat, aten("t")(weight)), [*input.shape[:-1], weight.shape[0]])
    made = matmul(input, aten("t")(weight) if weight.dim() == 2 else weight)
    return made if bias is None else aten("add_.Tensor")(made, bias)


@handles("bilinear")
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    shape = [*input1.shape[:-1], weight.shape[0]]
    a, b = aten("view")(input1, [-1, input1.shape[-1]]), aten("view")(input2, [-1, input2.shape[-1]])
    made = aten("view")(aten("_trilinear")(a, weight, b, [1, 3], [0], [1, 2], [2, 3]), shape)
    return made if bias is None else aten("add.Tensor")(made, bias)


def _many(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)


def _convolution(n: int) -> None:
    @handles(f"conv{n}d")
    def conv(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        single = input.dim() == n + 1
        x = aten("unsqueeze")(input, 0) if single else input
        steps, spread = _many(stride, n), _many(dilation, n)
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(spread, weight.shape[2:], strict=True)]
            sides = [(t // 2, t - t // 2) for t in total]
            padding = [low for low, _ in sides]
            if any(low != high for low, high in sides):
                extra = [v for low, high in reversed(sides) for v in (0, high - low)]
                while len(extra) > 2 and extra[-2:] == [0, 0]:
                    extra = extra[:-2]
                x = aten("constant_pad_nd")(x, extra, 0)
        elif padding == "valid":
            padding = 0
        made = aten("convolution")(x, weight, bias, steps, _many(padding, n), spread, False, [0] * n, groups)
        return aten("squeeze.dim")(made, 0) if single else made

    @handles(f"conv_transpose{n}d")
    def transposed(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        single = input.dim() == n + 1
        x = aten("unsqueeze")(input, 0) if single else input
        made = aten("convolution")(
            x,
            weight,
            bias,
            _many(stride, n),
            _many(padding, n),
            _many(dilation, n),
            True,
            _many(output_padding, n),
            groups,
        )
        return aten("squeeze.dim")(made, 0) if single else made


for _n in (1, 2, 3):
    _convolution(_n)


@handles("embedding")
def embedding(
    input: Any,
    weight: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if not isinstance(input, Tensor) or max_norm is not None or isinstance(padding_idx, Tensor):
        return NotImplemented
    if weight.dtype in (rushlight.int64, rushlight.int32):  # the order of the native function
        return aten("embedding")(input, weight, -1 if padding_idx is None else padding_idx, scale_grad_by_freq, sparse)
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    return aten("embedding")(weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq, sparse)


@handles("embedding_bag")
def embedding_bag(
    input: Any, weight: Any, offsets: Any = None, max_norm: Any = None, norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean",
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: Any = None,
) -> Any:  # fmt: skip
    if max_norm is not None:
        return NotImplemented
    if input.dim() == 2:
        offsets = aten("arange.start_step")(
            0, input.numel(), input.shape[1], dtype=input.dtype, device=input.device, pin_memory=False
        )
        input = reshaped(input, [-1])
        per_sample_weights = None if per_sample_weights is None else reshaped(per_sample_weights, [-1])
    number = {"sum": 0, "mean": 1, "max": 2}[mode]
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    w = contiguous(weight)
    return aten("_embedding_bag")(
        w,
        input,
        offsets,
        scale_grad_by_freq,
        number,
        sparse,
        per_sample_weights,
        include_last_offset,
        -1 if padding_idx is None else padding_idx,
    )[0]


# ***** norms *****


@handles("layer_norm")
def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    return aten("native_layer_norm")(input, shape, weight, bias, eps)[0]


@handles("group_norm")
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    n, c = input.shape[:2]
    return aten("native_group_norm")(
        contiguous(input), weight, bias, n, c, math.prod(input.shape[2:]), num_groups, eps
    )[0]


@handles("batch_norm")
def batch_norm(input: Any, *args: Any, **kwargs: Any) -> Any:
    names = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    if len(args) == 8:  # the order of the native function
        names = ("weight", "bias", "running_mean", "running_var", "training", "momentum", "eps", "cudnn_enabled")
    given = (
        {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}
        | dict(zip(names, args, strict=False))
        | kwargs
    )
    reserve = aten("empty.memory_format")([0], dtype=rushlight.uint8, layout=rushlight.strided, device=input.device)
    del reserve
    if not input.numel():
        for _ in range(2):
            aten("empty.memory_format")(
                [0],
                dtype=rushlight.float64 if input.dtype is rushlight.float32 else input.dtype,
                layout=rushlight.strided,
                device=input.device,
            )
        out = aten("clone")(input)
        if given["weight"] is not None:
            out = aten("mul.Tensor")(out, aten("select.int")(given["weight"], 0, 0))
        if given["bias"] is not None:
            out = aten("add.Tensor")(out, aten("select.int")(given["bias"], 0, 0))
        return out
    return aten("native_batch_norm")(
        input,
        given["weight"],
        given["bias"],
        given["running_mean"],
        given["running_var"],
        given["training"],
        given["momentum"],
        given["eps"],
    )[0]


@handles("instance_norm")
def instance_norm(input: Any, *args: Any, **kwargs: Any) -> Any:
    names = ("running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps")
    if len(args) == 8:  # the order of the native function
        names = ("weight", "bias", "running_mean", "running_var", "use_input_stats", "momentum", "eps", "cudnn_enabled")
    given = dict.fromkeys(names[:4]) | dict(zip(names, args, strict=False)) | kwargs
    n, c = input.shape[:2]

    def repeated(name: str) -> Any:
        return None if given[name] is None else aten("repeat")(given[name], [n])

    kept = {name: repeated(name) for name in ("running_mean", "running_var", "weight", "bias")}
    flat = aten("view")(contiguous(input), [1, n * c, *input.shape[2:]])
    training, momentum, eps = given.get("use_input_stats", True), given.get("momentum", 0.1), given.get("eps", 1e-5)
    out = batch_norm(flat, *kept.values(), training, momentum, eps)
    for name in ("running_mean", "running_var"):
        if given[name] is not None:
            target = aten("alias")(given[name])
            aten("copy_")(target, aten("mean.dim")(aten("view")(kept[name], [n, c]), [0]))
    return aten("view")(out, list(input.shape))


@handles("rms_norm")
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    eps = rushlight.finfo(input.dtype).eps if eps is None else eps
    dims = [input.dim() - i - 1 for i in range(len(normalized_shape))]
    square = aten("add_.Scalar")(aten("mean.dim")(aten("pow.Tensor_Scalar")(input, 2), dims, True), eps)
    out = aten("mul.Tensor")(input, aten("rsqrt")(square))
    return out if weight is None else aten("mul.Tensor")(out, weight)


@handles("local_response_norm")
def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    if not input.numel():
        return input
    square = aten("unsqueeze")(aten("mul.Tensor")(input, input), 1)
    if input.dim() == 3:
        square = aten("constant_pad_nd")(square, [0, 0, size // 2, (size - 1) // 2], 0.0)
        mean = aten("squeeze.dim")(aten("avg_pool2d")(square, [size, 1], [1, 1]), 1)
    else:
        sizes = list(input.shape)
        square = aten("view")(square, [sizes[0], 1, sizes[1], sizes[2], -1])
        square = aten("constant_pad_nd")(square, [0, 0, 0, 0, size // 2, (size - 1) // 2], 0.0)
        mean = aten("squeeze.dim")(aten("avg_pool3d")(square, [size, 1, 1], [1, 1, 1]), 1)
        mean = aten("view")(mean, sizes)
    return aten("div.Tensor")(
        input, aten("pow.Tensor_Scalar")(aten("add.Tensor")(aten("mul.Tensor")(mean, alpha), k), beta)
    )


@handles("normalize")
def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    length = aten("clamp_min")(
        aten("linalg_vector_norm")(input, p, [dim] if isinstance(dim, int) else list(dim), True), eps
    )
    return aten("div.Tensor")(input, aten("expand")(length, list(input.shape)))


# ***** activations *****


def _softmax(name: str, native: str) -> None:
    @handles(name)
    def softmax(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None, *, out: Any = None) -> Any:
        if dim is None or out is not None:
            return NotImplemented
        dtype = _stacklevel if isinstance(_stacklevel, rushlight.dtype) else dtype
        if dtype is not None and dtype is not input.dtype:
            input = to_copy(input, dtype=dtype)
        return aten(native)(input, dim, False)


_softmax("softmax", "_softmax")
_softmax("log_softmax", "_log_softmax")
_softmax("special_softmax", "_softmax")
_softmax("special_log_softmax", "_log_softmax")


@handles("softmin")
def softmin(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    if dim is None:
        return NotImplemented
    x = aten("neg")(input)
    if dtype is not None and dtype is not x.dtype:
        x = to_copy(x, dtype=dtype)
    return aten("_softmax")(x, dim, False)


@handles("relu6")
def relu6(input: Any, inplace: bool = False) -> Any:
    return aten("hardtanh_" if inplace else "hardtanh")(input, 0.0, 6.0)


@handles("selu")
def selu(input: Any, inplace: bool = False) -> Any:
    return aten("elu_" if inplace else "elu")(input, 1.6732632423543772, 1.0507009873554805)


@handles("prelu")
def prelu(input: Any, weight: Any) -> Any:
    n = input.dim()
    if weight.dim() != n:
        shape = [1] * n
        if n > 1 and weight.numel() >= 1:
            shape[1] = weight.numel()
        elif n == 1:
            shape = [weight.numel()]
        weight = aten("view")(weight, shape) if n else aten("view")(weight, [])
    return aten("_prelu_kernel")(input, weight)


@handles("softsign")
def softsign(input: Any) -> Any:
    return aten("div.Tensor")(input, aten("add.Tensor")(aten("abs")(input), 1))


@handles("tanhshrink")
def tanhshrink(input: Any) -> Any:
    return aten("sub.Tensor")(input, aten("tanh")(input))


@handles("logsigmoid log_sigmoid")
def logsigmoid(input: Any) -> Any:
    return aten("log_sigmoid_forward")(input)[0]


@handles("rrelu")
def rrelu(
    input: Any,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    generator: Any = None,
) -> Any:
    noise = aten("empty_like")(input, memory_format=rushlight.contiguous_format)
    return aten("rrelu_with_noise_" if inplace else "rrelu_with_noise")(input, noise, lower, upper, training)


# ***** dropout *****


def _dropped(input: Any, p: float, feature: bool, alpha: bool) -> Any:
    if p == 1:
        return aten("mul.Tensor")(input, aten("zeros")([], dtype=input.dtype, layout=input.layout, device=input.device))
    noise = (
        aten("new_empty")(input, [*input.shape[:2], *[1] * (input.dim() - 2)]) if feature else aten("empty_like")(input)
    )
    noise = aten("bernoulli_.float")(noise, 1 - p)
    if not alpha:
        return aten("mul.Tensor")(input, aten("div_.Scalar")(noise, 1 - p))
    scale = 1.7580993408473766
    a = 1.0 / math.sqrt((scale * scale * p + 1) * (1 - p))
    shift = aten("add.Scalar")(noise, -1)
    shift = aten("add_.Scalar")(aten("mul_.Scalar")(shift, scale * a), scale * a * p)
    made = aten("mul.Tensor")(input, aten("mul_.Scalar")(noise, a))
    return aten("add_.Tensor")(made, shift)


def _dropout(name: str, feature: bool, alpha: bool, rank: int = 0) -> None:
    @handles(name)
    def dropout(input: Any, p: float = 0.5, training: Any = None, inplace: bool = False, *, train: Any = None) -> Any:
        training = (
            (train if training is None else training)
            if train is not None or training is not None
            else name not in ("alpha_dropout", "feature_alpha_dropout")
        )
        if inplace:
            return NotImplemented
        single = rank and input.dim() == rank + 1 and name != "dropout2d"
        x = aten("unsqueeze")(input, 0) if single and rank == 3 else input
        made = x if not p or not training or not x.numel() else _dropped(x, p, feature, alpha)
        return aten("squeeze.dim")(made, 0) if single and rank == 3 else made


_dropout("dropout", False, False)
_dropout("alpha_dropout", False, True)
_dropout("feature_alpha_dropout", True, True)
_dropout("dropout1d", True, False)
_dropout("dropout2d", True, False, 2)
_dropout("dropout3d", True, False, 3)


# ***** pooling *****


@handles("avg_pool1d")
def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    k = _many(kernel_size, 1)[0]
    s = k if stride is None or stride == () or stride == [] else _many(stride, 1)[0]
    made = aten("avg_pool2d")(
        aten("unsqueeze")(input, -2), [1, k], [1, s], [0, _many(padding, 1)[0]], ceil_mode, count_include_pad
    )
    return aten("squeeze.dim")(made, -2)


def _max_pool(n: int) -> None:
    def both(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        size = _many(kernel_size, n)
        step = size if stride is None or stride == [] or stride == () else _many(stride, n)
        if n == 1:
            step = _many(kernel_size if stride is None or stride == [] else stride, 1)
            made, index = aten("max_pool2d_with_indices")(
                aten("unsqueeze")(input, -2),
                [1, *size],
                [1, *step],
                [0, *_many(padding, 1)],
                [1, *_many(dilation, 1)],
                ceil_mode,
            )
            return aten("squeeze.dim")(made, -2), aten("squeeze.dim")(index, -2)
        step = [] if stride is None else step
        made, index = aten(f"max_pool{n}d_with_indices")(
            input, size, step, _many(padding, n), _many(dilation, n), ceil_mode
        )
        return made, index

    @handles(f"max_pool{n}d")
    def plain(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        made = both(input, kernel_size, stride, padding, dilation, ceil_mode)
        return made if return_indices else made[0]

    handles(f"max_pool{n}d_with_indices")(both) if n == 1 else None


for _n in (1, 2, 3):
    _max_pool(_n)


def _adaptive(n: int) -> None:
    @handles(f"adaptive_avg_pool{n}d")
    def average(input: Any, output_size: Any) -> Any:
        size = _many(output_size, n)
        size = [input.shape[i - n] if s is None else s for i, s in enumerate(size)]
        if n == 1:
            return aten("squeeze.dim")(_average2(aten("unsqueeze")(input, -2), [1, *size], 2), -2)
        return _average2(input, size, n)

    @handles(f"adaptive_max_pool{n}d_with_indices")
    def both(input: Any, output_size: Any, return_indices: bool = True) -> Any:
        size = _many(output_size, n)
        size = [input.shape[i - n] if s is None else s for i, s in enumerate(size)]
        if n == 1:
            made, index = aten("adaptive_max_pool2d")(aten("unsqueeze")(input, -2), [1, *size])
            index, made = aten("squeeze.dim")(index, -2), aten("squeeze.dim")(made, -2)
        else:
            made, index = aten(f"adaptive_max_pool{n}d")(input, size)
        return made, index

    @handles(f"adaptive_max_pool{n}d")
    def greatest(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        found = both(input, output_size)
        return found if return_indices else found[0]


def _average2(x: Any, size: list[int], n: int) -> Any:
    if all(s == 1 for s in size):
        return aten("mean.dim")(x, list(range(-1, -n - 1, -1)) if n == 2 else [-1, -2, -3], True)
    return aten(f"_adaptive_avg_pool{n}d")(x, size)


for _n in (1, 2, 3):
    _adaptive(_n)


def _unpool(n: int) -> None:
    @handles(f"max_unpool{n}d")
    def unpool(
        input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Any:
        size = _many(kernel_size, n)
        step = size if stride is None else _many(stride, n)
        pad = _many(padding, n)
        if output_size is None:
            shape = [(input.shape[-n + d] - 1) * step[d] + size[d] - 2 * pad[d] for d in range(n)]
        else:
            shape = list(output_size)[-n:]
        if n == 1:
            made = aten("max_unpool2d")(aten("unsqueeze")(input, -1), aten("unsqueeze")(indices, -1), [*shape, 1])
            return aten("squeeze.dim")(made, -1)
        return (
            aten("max_unpool2d")(input, indices, shape)
            if n == 2
            else aten("max_unpool3d")(input, indices, shape, step, pad)
        )


for _n in (1, 2, 3):
    _unpool(_n)


# ***** padding and interpolation *****


@handles("pad")
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    sides = list(pad)
    if mode == "constant":
        return aten("constant_pad_nd")(input, sides, 0.0 if value is None else value)
    if mode == "circular":
        return _circular(input, sides)
    n = len(sides) // 2
    return aten(f"{'reflection' if mode == 'reflect' else 'replication'}_pad{n}d")(input, sides)


def _circular(x: Any, sides: list[int]) -> Any:
    n, lead = len(sides) // 2, x.dim() - len(sides) // 2
    shape = list(x.shape)
    for i in range(n):
        shape[lead + i] += sum(sides[2 * (n - i - 1) : 2 * (n - i)])
    out = aten("new_empty")(x, shape)
    target, source = out, x
    for i in range(n):
        low, high = sides[2 * (n - i - 1) : 2 * (n - i)]
        dim = lead + i
        if low or high:
            target = aten("slice.Tensor")(target, dim, max(low, 0), shape[dim] - max(high, 0))
            source = aten("slice.Tensor")(source, dim, max(-low, 0), x.shape[dim] - max(-high, 0))
    aten("copy_")(target, source)
    for i in reversed(range(n)):
        low, high = sides[2 * (n - i - 1) : 2 * (n - i)]
        dim = lead + i
        if low > 0:
            part = aten("slice.Tensor")(out, dim, 0, low)
            aten("copy_")(
                part, aten("slice.Tensor")(out, dim, shape[dim] - low - max(high, 0), shape[dim] - max(high, 0))
            )
        if high > 0:
            part = aten("slice.Tensor")(out, dim, shape[dim] - high, shape[dim])
            aten("copy_")(part, aten("slice.Tensor")(out, dim, max(low, 0), max(low, 0) + high))
    return out


@casts(None, "single")
def _resized(name: str, *args: Any) -> Any:
    return aten(name)(*args)


@handles("interpolate")
def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None, recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:  # fmt: skip
    n = input.dim() - 2
    factors = None
    if size is not None:
        shape = _many(size, n)
    else:
        factors = (
            [float(scale_factor)] * n if isinstance(scale_factor, (int, float)) else [float(f) for f in scale_factor]
        )
        shape = [scaled(s, f) for s, f in zip(input.shape[2:], factors, strict=True)]
        if recompute_scale_factor:
            factors = None
    scales = [None] * n if factors is None else factors
    if mode == "area":
        return HANDLERS[f"adaptive_avg_pool{n}d"](input, shape)
    if mode in ("nearest", "nearest-exact"):
        name = f"upsample_nearest{n}d" if mode == "nearest" else f"_upsample_nearest_exact{n}d"
        return _resized(name, input, shape, *scales)
    corners = bool(align_corners)
    name = {
        ("linear", 1): "upsample_linear1d",
        ("bilinear", 2): "upsample_bilinear2d",
        ("bicubic", 2): "upsample_bicubic2d",
        ("trilinear", 3): "upsample_trilinear3d",
    }[mode, n]
    if antialias:
        name = f"_{name}_aa"
    return _resized(name, input, shape, corners, *scales)


@handles("upsample")
def upsample(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> Any:
    return interpolate(input, size, scale_factor, mode, align_corners)


@handles("upsample_bilinear")
def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    return interpolate(input, size, scale_factor, "bilinear", True)


@handles("upsample_nearest")
def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    return interpolate(input, size, scale_factor, "nearest")


@handles("grid_sample")
def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Any = None
) -> Any:
    name = "grid_sampler_2d" if input.dim() == 4 else "grid_sampler_3d"
    return aten(name)(
        input,
        grid,
        {"bilinear": 0, "nearest": 1, "bicubic": 2}[mode],
        {"zeros": 0, "border": 1, "reflection": 2}[padding_mode],
        bool(align_corners),
    )


# ***** losses *****


@handles("l1_loss")
def l1_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
) -> Any:
    if weight is not None:
        return NotImplemented
    a, b = _broadcast(input, target)
    return reduced(aten("abs")(aten("sub.Tensor")(a, b)), _old(size_average, reduce, reduction))


def _broadcast(a: Any, b: Any) -> tuple[Any, Any]:
    shape = list(rushlight.broadcast_shapes(tuple(a.shape), tuple(b.shape)))
    second = b if list(b.shape) == shape else aten("expand")(b, shape)
    return (a if list(a.shape) == shape else aten("expand")(a, shape)), second


@handles("mse_loss")
def mse_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
) -> Any:
    if weight is not None:
        return NotImplemented
    a, b = _broadcast(input, target)
    return aten("mse_loss")(a, b, code(_old(size_average, reduce, reduction)))


@handles("smooth_l1_loss")
def smooth_l1_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", beta: float = 1.0
) -> Any:
    a, b = _broadcast(input, target)
    kind = code(_old(size_average, reduce, reduction))
    if beta == 0.0:
        return reduced(aten("abs")(aten("sub.Tensor")(a, b)), ("none", "mean", "sum")[kind])
    return aten("smooth_l1_loss")(a, b, kind, beta)


@handles("huber_loss")
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Any:
    if weight is not None:
        return NotImplemented
    a, b = _broadcast(input, target)
    return aten("huber_loss")(a, b, code(reduction), delta)


@handles("soft_margin_loss")
def soft_margin_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    return aten("soft_margin_loss")(input, target, code(_old(size_average, reduce, reduction)))


@handles("multi_margin_loss")
def multi_margin_loss(
    input: Any,
    target: Any,
    p: Any = 1,
    margin: float = 1.0,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    return aten("multi_margin_loss")(input, target, p, margin, weight, code(_old(size_average, reduce, reduction)))


@handles("multilabel_margin_loss")
def multilabel_margin_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    return aten("multilabel_margin_loss_forward")(input, target, code(_old(size_average, reduce, reduction)))[0]


@handles("binary_cross_entropy")
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    if weight is not None:
        shape = list(rushlight.broadcast_shapes(tuple(target.shape), tuple(weight.shape)))
        weight = aten("expand")(weight, shape)
    return aten("binary_cross_entropy")(input, target, weight, code(_old(size_average, reduce, reduction)))


@handles("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:
    return aten("binary_cross_entropy_with_logits")(
        input, target, weight, pos_weight, code(_old(size_average, reduce, reduction))
    )


@handles("nll_loss")
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    return _nll(input, target, weight, code(_old(size_average, reduce, reduction)), ignore_index)


def _nll(x: Any, target: Any, weight: Any, kind: int, ignore: int) -> Any:
    n = x.dim()
    if n <= 2:
        return aten("nll_loss_forward")(x, target, weight, kind, ignore)[0]
    if n == 4:
        return aten("nll_loss2d_forward")(x, target, weight, kind, ignore)[0]
    batch, classes = x.shape[0], x.shape[1]
    rest = list(x.shape[2:])
    flat = (
        aten("view")(contiguous(x), [batch, classes, 1, -1])
        if x.numel()
        else aten("view")(contiguous(x), [batch, classes, 0, 0])
    )
    labels = (
        aten("view")(contiguous(target), [batch, 1, -1])
        if target.numel()
        else aten("view")(contiguous(target), [batch, 0, 0])
    )
    made = aten("nll_loss2d_forward")(flat, labels, weight, kind, ignore)[0]
    return aten("view")(made, [batch, *rest]) if not kind else made


@handles("cross_entropy")
def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    kind = code(_old(size_average, reduce, reduction))
    dim = 0 if input.dim() == 1 else 1
    if list(input.shape) == list(target.shape):
        logs = aten("_log_softmax")(input, dim, False)
        return _soft_labels(logs, target, weight, kind, label_smoothing, dim)
    if label_smoothing:
        logs = aten("_log_softmax")(input, dim, False)
        return _smoothed(logs, target, weight, kind, ignore_index, label_smoothing, dim)
    return _nll(aten("_log_softmax")(input, dim, False), target, weight, kind, ignore_index)


def _shaped(weight: Any, x: Any, dim: int) -> Any:
    sizes = [1] * x.dim()
    sizes[dim] = weight.shape[0]
    return aten("view")(weight, sizes)


def _soft_labels(logs: Any, target: Any, weight: Any, kind: int, smoothing: float, dim: int) -> Any:
    classes = logs.shape[dim]
    if smoothing > 0:
        target = aten("add.Scalar")(aten("mul.Scalar")(target, 1 - smoothing), smoothing / classes)
    if weight is not None:
        weighted = _shaped(weight, logs, dim)
        loss = aten("mul.Tensor")(aten("mul.Tensor")(logs, target), weighted)
    else:
        loss = aten("mul.Tensor")(logs, target)
    if kind == 0:
        return aten("neg")(aten("sum.dim_IntList")(loss, [dim]))
    total = aten("neg")(aten("sum")(loss))
    return total if kind == _SUM else aten("div.Scalar")(total, logs.numel() / classes)


def _smoothed(logs: Any, target: Any, weight: Any, kind: int, ignore: int, smoothing: float, dim: int) -> Any:
    plain = _nll(logs, target, weight, kind, ignore)
    classes = logs.shape[dim]
    weighted = None if weight is None else _shaped(weight, logs, dim)
    smooth = aten("neg")(
        aten("sum.dim_IntList")(logs if weighted is None else aten("mul.Tensor")(logs, weighted), [dim])
    )
    mask = aten("eq.Scalar")(target, ignore)
    smooth = aten("masked_fill_.Scalar")(smooth, mask, 0.0)
    if kind == _MEAN:
        if weight is not None:
            labels = aten("masked_fill.Scalar")(target, mask, 0)
            part = aten("gather")(weight, 0, reshaped(labels, [-1]))
            part = aten("masked_fill_.Scalar")(part, reshaped(mask, [-1]), 0)
            smooth = aten("div.Tensor")(aten("sum")(smooth), aten("sum")(part))
        else:
            number = aten("sum")(aten("bitwise_not")(mask))
            smooth = aten("div.Tensor")(aten("sum")(smooth), number)
    elif kind == _SUM:
        smooth = aten("sum")(smooth)
    second = aten("mul.Scalar")(smooth, smoothing / classes)
    return aten("add.Tensor")(aten("mul.Scalar")(plain, 1 - smoothing), second)


@handles("kl_div")
def kl_div(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Any:
    way = (
        "sum"
        if reduction == "batchmean" and size_average is None and reduce is None
        else _old(size_average, reduce, reduction)
    )
    if log_target:
        gap = aten("sub.Tensor")(target, input)
        loss = aten("mul.Tensor")(aten("exp")(target), gap)
    else:
        part = aten("mul.Tensor")(target, input)
        loss = aten("sub.Tensor")(aten("xlogy.Tensor")(target, target), part)
    loss = reduced(loss, way)
    return aten("div.Tensor")(loss, input.shape[0]) if reduction == "batchmean" and input.dim() else loss


@handles("poisson_nll_loss")
def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    size_average: Any = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    x, t = Value(input), Value(target)
    if log_input:
        part = t * x
        loss = x.exp() - part
    else:
        loss = x - t * (x + eps).log()
    if full:
        tail = (t * (2 * math.pi)).log() * 0.5
        stirling = t * t.log() - t + tail
        loss = loss.call("add_.Tensor", stirling.call("masked_fill.Scalar", t.call("le.Scalar", 1), 0))
    return reduced(bare(loss), _old(size_average, reduce, reduction))


@handles("hinge_embedding_loss")
def hinge_embedding_loss(
    input: Any, target: Any, margin: float = 1.0, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    x, t = Value(input), Value(target)
    zero = x.zeros_like(memory_format=rushlight.contiguous_format)
    far = (margin - x).clamp_min_(0)
    first = t.call("ne.Scalar", 1)
    first = Value(aten("where.self")(bare(first), bare(far), bare(zero)))
    near = Value(aten("where.self")(bare(t.call("ne.Scalar", -1)), input, bare(zero)))
    return reduced(bare(first + near), _old(size_average, reduce, reduction))


@handles("margin_ranking_loss")
def margin_ranking_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    gap = Value(input1) - Value(input2)
    loss = (-Value(target) * gap + margin).clamp_min_(0)
    return reduced(bare(loss), _old(size_average, reduce, reduction))


def _dot_last(a: Any, b: Any, dim: int) -> Any:
    return (a * b).call("sum.dim_IntList", [dim])


@handles("cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    a, b, t = Value(input1), Value(input2), Value(target)
    dim = 1 if target.dim() == 1 else 0
    top = _dot_last(a, b, dim)
    left = _dot_last(a, a, dim) + 1e-12
    right = _dot_last(b, b, dim) + 1e-12
    cosine = top / (left * right).sqrt_()
    zero = cosine.zeros_like(memory_format=rushlight.contiguous_format)
    near = 1 - cosine
    far = (cosine - margin).clamp_min_(0)
    one = t.call("eq.Scalar", 1)
    first = Value(aten("where.self")(bare(one), bare(near), bare(zero)))
    second = Value(aten("where.self")(bare(t.call("eq.Scalar", -1)), bare(far), bare(zero)))
    return reduced(bare(first + second), _old(size_average, reduce, reduction))


@handles("multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    first = aten("mul.Tensor")(target, aten("log_sigmoid_forward")(input)[0])
    rest = aten("rsub.Scalar")(target, 1)
    second = aten("mul.Tensor")(rest, aten("log_sigmoid_forward")(aten("neg")(input))[0])
    loss = aten("neg")(aten("add.Tensor")(first, second))
    if weight is not None:
        loss = aten("mul.Tensor")(loss, weight)
    dim = input.dim() - 1
    loss = aten("div.Tensor")(aten("sum.dim_IntList")(loss, [dim]), input.shape[dim])
    return reduced(loss, _old(size_average, reduce, reduction))


@handles("gaussian_nll_loss")
def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    if isinstance(var, float):
        return NotImplemented
    if aten("_local_scalar_dense")(aten("any")(aten("lt.Scalar")(var, 0))):
        raise ValueError("var has negative entry/entries")
    if var.shape != input.shape and input.shape[:-1] == var.shape:
        var = aten("unsqueeze")(var, -1)
    kept = aten("clone")(var)
    word = STATE.word
    STATE.word = word & ~GRAD
    try:
        kept = aten("clamp_")(kept, eps)
    finally:
        STATE.word = word
    log = aten("log")(kept)
    square = aten("pow.Tensor_Scalar")(aten("sub.Tensor")(input, target), 2)
    loss = aten("mul.Tensor")(aten("add.Tensor")(log, aten("div.Tensor")(square, kept)), 0.5)
    if full:
        loss = aten("add_.Tensor")(loss, 0.5 * math.log(2 * math.pi))
    return reduced(loss, reduction)


@handles("cosine_similarity")
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    a, b = _broadcast(x1, x2)
    first = aten("linalg_vector_norm")(a, 2, [dim], True)
    one = aten("clone")(first)
    second = aten("linalg_vector_norm")(b, 2, [dim], True)
    two = aten("clone")(second)
    word = STATE.word
    STATE.word = word & ~GRAD
    try:
        least = aten("scalar_tensor")(eps, dtype=a.dtype, device=a.device)
        one = aten("clamp_min_.Tensor")(one, least)
        two = aten("clamp_min_.Tensor")(two, least)
    finally:
        STATE.word = word
    right = aten("div.Tensor")(b, two)
    return aten("sum.dim_IntList")(aten("mul.Tensor")(aten("div.Tensor")(a, one), right), [dim])


@handles("pairwise_distance")
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    gap = aten("add.Scalar")(aten("sub.Tensor")(x1, x2), eps)
    n = max(x1.dim(), x2.dim())
    return aten("norm.ScalarOpt_dim")(gap, p, [n - 1], keepdim)


@handles("triplet_margin_loss")
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False, size_average: Any = None,
    reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = aten("minimum")(far, pairwise_distance(positive, negative, p, eps))
    loss = aten("clamp_min")(aten("sub.Tensor")(aten("add.Scalar")(near, margin), far), 0)
    return reduced(loss, _old(size_average, reduce, reduction))


@handles("pdist")
def pdist(input: Any, p: float = 2.0) -> Any:
    return aten("_pdist_forward")(contiguous(input), p)


@handles("ctc_loss")
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    if isinstance(input_lengths, Tensor):
        loss = aten("_ctc_loss.Tensor")(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)[0]
    else:
        loss = aten("_ctc_loss")(log_probs, targets, list(input_lengths), list(target_lengths), blank, zero_infinity)[0]
    if zero_infinity:
        zero = aten("zeros")([], dtype=loss.dtype, layout=loss.layout, device=loss.device)
        loss = aten("where.self")(aten("eq.Scalar")(loss, math.inf), zero, loss)
    if reduction == "mean":
        if isinstance(target_lengths, Tensor):
            lengths = aten("clamp_min")(target_lengths, 1)
        else:
            return NotImplemented
        return aten("mean")(aten("div.Tensor")(loss, lengths))
    return reduced(loss, reduction)


@handles("one_hot")
def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    if not tensor.numel():
        return NotImplemented
    low, high = aten("aminmax")(tensor)
    if aten("_local_scalar_dense")(low) < 0:
        raise RuntimeError("Class values must be non-negative.")
    top = aten("_local_scalar_dense")(high)
    if num_classes == -1:
        num_classes = int(top) + 1
    elif top >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    out = aten("zeros")([*tensor.shape, num_classes], dtype=rushlight.int64, layout=tensor.layout, device=tensor.device)
    return aten("scatter_.value")(out, -1, aten("unsqueeze")(tensor, -1), 1)


@handles("scaled_dot_product_attention")
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    for instead in reversed(INSTEAD) if INSTEAD else ():
        found = instead(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if found is not NotImplemented:
            return found
    if enable_gqa:
        return NotImplemented
    flash = (
        query.dim() == 4 and key.dim() == 4 and value.dim() == 4 and not dropout_p and query.shape[3] == value.shape[3] and query.is_floating_point()
        and (attn_mask is None or not attn_mask.requires_grad) and all(t.stride(-1) == 1 for t in (query, key, value))
        and query.numel() and key.numel()
        and (attn_mask is None or attn_mask.dim() in (2, 4))
    )  # fmt: skip
    if flash:
        mask = attn_mask
        if mask is not None and mask.dtype is rushlight.bool:
            zero = aten("scalar_tensor")(0.0, dtype=query.dtype, layout=rushlight.strided, device=query.device)
            low = aten("scalar_tensor")(-math.inf, dtype=query.dtype, device=query.device)
            mask = aten("where.self")(mask, zero, low)
        named = {k: v for k, v in (("attn_mask", mask), ("scale", scale)) if v is not None}
        return aten("_scaled_dot_product_flash_attention_for_cpu")(query, key, value, 0.0, is_causal, **named)[0]
    factor = math.sqrt(1.0 / math.sqrt(query.shape[-1]) if scale is None else abs(scale))
    q = aten("mul.Scalar")(query, factor)
    if is_causal:
        ones = aten("ones")(
            [query.shape[-2], key.shape[-2]], dtype=rushlight.bool, layout=query.layout, device=query.device
        )
        attn_mask = aten("tril")(ones)
    if attn_mask is not None and attn_mask.dtype is rushlight.bool:
        low = aten("scalar_tensor")(-math.inf, dtype=query.dtype, device=query.device)
        zero = aten("scalar_tensor")(0.0, dtype=query.dtype, layout=query.layout, device=query.device)
        attn_mask = aten("where.self")(attn_mask, zero, low)
    scores = matmul(q, aten("mul.Scalar")(aten("transpose.int")(key, -2, -1), factor))
    if attn_mask is not None:
        scores = aten("add.Tensor")(scores, attn_mask)
    weights = aten("_safe_softmax")(scores, -1)
    if dropout_p > 0:
        weights = _dropped(weights, dropout_p, False, False)
    return matmul(weights, value)


@handles("im2col")
def im2col(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    return aten("im2col")(input, _many(kernel_size, 2), _many(dilation, 2), _many(padding, 2), _many(stride, 2))


@handles("col2im")
def col2im(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    return aten("col2im")(
        input, _many(output_size, 2), _many(kernel_size, 2), _many(dilation, 2), _many(padding, 2), _many(stride, 2)
    )


def _declare_fractional(n: int) -> None:
    for both in (False, True):

        @handles(f"fractional_max_pool{n}d" + ("_with_indices" if both else ""))
        def function(
            input: Any,
            kernel_size: Any,
            output_size: Any = None,
            output_ratio: Any = None,
            return_indices: bool = False,
            _random_samples: Any = None,
            both: bool = both,
        ) -> Any:
            return _fractional(
                n, input, kernel_size, output_size, output_ratio, return_indices or both, _random_samples
            )


for _n in (2, 3):
    _declare_fractional(_n)


def _fractional(
    n: int, x: Any, kernel_size: Any, output_size: Any, ratio: Any, return_indices: bool, samples: Any
) -> Any:
    if output_size is None:
        ratios = [ratio] * n if isinstance(ratio, float) else list(ratio)
        output_size = [int(s * r) for s, r in zip(x.shape[-n:], ratios, strict=True)]
    if samples is None:
        batch = 1 if x.dim() == n + 1 else x.shape[0]
        samples = aten("rand")([batch, x.shape[-n - 1], n], dtype=x.dtype, device=x.device, pin_memory=False)
    made = aten(f"fractional_max_pool{n}d")(x, _many(kernel_size, n), _many(output_size, n), samples)
    return tuple(made) if return_indices else made[0]
