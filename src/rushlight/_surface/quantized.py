"""Quantization: making quantized tensors, reading them, and what operators mean for them.

Integers hold the numbers: x is near (q - zero_point) * scale (Jacob et al., "Quantization and Training of Neural
Networks for Efficient Integer-Arithmetic-Only Inference", 2018).  Rounding is to nearest, ties to even; what is out of
range becomes the nearest end of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from rushlight._engine.core.convert import suggested_format
from rushlight._engine.core.printing import OPTIONS, append_suffixes
from rushlight._engine.core.storage import TypedStorage
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch_types.quantized import (
    RANGES,
    SCHEMES,
    QScheme,
    Quantizer,
    QuantTensor,
    make_quantized,
    seen_through,
)
from rushlight._ops.nn.quantized_products import SMALL_SCALE
from rushlight._surface.registry import SPACES, asking, function_of
from rushlight._types.dtype import BY_NAME, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT8, DType
from rushlight._types.formats import FORMATS

__all__ = [
    "_choose_qparams_per_tensor", "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_make_per_channel_quantized_tensor",
    "_make_per_tensor_quantized_tensor", "choose_qparams_optimized", "dequantize", "empty_quantized", "fused_moving_avg_obs_fake_quant", "int_repr", "per_channel_affine",
    "per_channel_affine_float_qparams", "per_channel_symmetric", "per_tensor_affine", "per_tensor_symmetric", "q_per_channel_axis",
    "q_per_channel_scales", "q_per_channel_zero_points", "q_scale", "q_zero_point", "qscheme", "quantize_per_channel", "quantize_per_tensor",
    "quantize_per_tensor_dynamic",
]  # fmt: skip

T = SPACES["torch"]
qscheme = QScheme
per_tensor_affine, per_tensor_symmetric = SCHEMES["per_tensor_affine"], SCHEMES["per_tensor_symmetric"]
per_channel_affine, per_channel_symmetric = SCHEMES["per_channel_affine"], SCHEMES["per_channel_symmetric"]
per_channel_affine_float_qparams = SCHEMES["per_channel_affine_float_qparams"]

# ***** numbers to integers and back *****


def _range_of(dtype: Any) -> tuple[DType, int, int]:
    if dtype not in RANGES:
        word = dtype.scalar if isinstance(dtype, DType) else repr(dtype)
        raise RuntimeError(f"ScalarType {word} is not supported in new_qtensor.")
    return RANGES[dtype]


def _require_float(x: Tensor) -> None:
    if x.dtype is not FLOAT32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {x.dtype.scalar}")


def _along(values: Tensor, ndim: int, axis: int) -> Tensor:
    """A vector laid along one dim, for broadcasting."""
    return values.reshape([-1 if d == axis else 1 for d in range(ndim)])


def _parameters(quantizer: Quantizer, ndim: int) -> tuple[Any, Any]:
    """Scale (float32) and zero point as they are used: a 0-dim tensor and a number, or two tensors along the axis."""
    if quantizer.axis is None:
        return T["tensor"](quantizer.scale, dtype=FLOAT32), quantizer.zero_point
    return tuple(_along(v.to(FLOAT32), ndim, quantizer.axis) for v in (quantizer.scale, quantizer.zero_point))  # type: ignore[return-value]


def _integers(x: Tensor, quantizer: Quantizer, dtype: DType) -> Tensor:
    holder, low, high = _range_of(dtype)
    layout = FORMATS[suggested_format(x._spec)]
    if quantizer.axis is None and holder.name in ("uint8", "int8") and (low, high) == _BYTES[holder.name]:
        steps = function_of("quantized_steps")(x.detach(), quantizer.scale, quantizer.zero_point, result=holder.name)
        return steps.contiguous(memory_format=layout)
    scale, zero_point = _parameters(quantizer, x.dim())
    steps = (x.detach() * (1.0 / scale) + zero_point).round().double()
    # NaN goes to the top
    return T["where"](steps <= high, steps.clamp(min=low), float(high)).to(holder).contiguous(memory_format=layout)


_BYTES = {"uint8": (0, 255), "int8": (-128, 127)}


def _number_of(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


@asking
def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: DType) -> Any:
    """Numbers (float32) as integers of `dtype` with one scale and zero point; lists of tensors with vectors of both.

    >>> import rushlight as torch
    >>> torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 1.0]), 0.1, 10, torch.quint8).int_repr()
    tensor([ 0, 10, 20], dtype=torch.uint8)
    """
    if isinstance(input, (tuple, list)):
        return tuple(quantize_per_tensor(x, s, z, dtype) for x, s, z in zip(input, scale, zero_point, strict=True))
    _require_float(input)
    _, low, high = _range_of(dtype)
    scale, zero_point = float(_number_of(scale)), int(_number_of(zero_point))
    if not low <= zero_point <= high:
        side = "above upper" if zero_point > high else "below lower"
        raise RuntimeError(f"quantize_tensor_per_tensor_affine zero_point {zero_point} is {side} bound.")
    quantizer = Quantizer(per_tensor_affine, scale, zero_point)
    return make_quantized(_integers(input, quantizer, dtype), dtype, quantizer)


@asking
def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: DType) -> Any:
    """`quantize_per_tensor` with a scale and a zero point for each place along the dim `axis`; float zero points stay
    floats.
    """
    _require_float(input)
    quantizer = _channels(input, scales, zero_points, axis, dtype)
    return make_quantized(_integers(input, quantizer, dtype), dtype, quantizer)


def _channels(x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: DType) -> Quantizer:
    if not 0 <= axis < x.dim():
        raise RuntimeError(
            f"Channel axis out of range in per channel affine quantization. Got: {axis}Expected: [0, {x.dim()})"
        )
    for name, values in (("scales", scales), ("zero_points", zero_points)):
        if values.dim() != 1 or values.numel() != x.shape[axis]:
            raise RuntimeError(
                f"length of {name} must equal to channel, expected {x.shape[axis]} got, {values.numel()}"
            )
    if zero_points.dtype.is_floating_point:
        return Quantizer(
            per_channel_affine_float_qparams, scales.detach().to(FLOAT32), zero_points.detach().to(FLOAT32), axis
        )
    _, low, high = _range_of(dtype)
    if bool((zero_points < low).any()) or bool((zero_points > high).any()):
        raise RuntimeError(
            f"quantize_tensor_per_channel_affine zero_point is out of the range of {dtype}: [{low}, {high}]"
        )
    return Quantizer(per_channel_affine, scales.detach().to(FLOAT64), zero_points.detach().to(INT64), axis)


@asking
def dequantize(tensor: Any) -> Any:
    """The numbers that a quantized tensor stands for, in float32; lists of tensors give tuples.  Other tensors become
    float32.
    """
    if isinstance(tensor, (tuple, list)):
        return tuple(dequantize(t) for t in tensor)
    if not isinstance(tensor, QuantTensor):
        return tensor.to(FLOAT32)
    scale, zero_point = _parameters(tensor._quantizer, tensor.dim())
    return (tensor._ints.to(FLOAT32) - zero_point) * scale


def _like(x: Any, numbers: Tensor) -> Any:
    """Numbers quantized as `x` is."""
    return make_quantized(_integers(numbers, x._quantizer, x.dtype), x.dtype, x._quantizer)


# ***** scales that fit *****


_WITHOUT_INVERSE = 2.0**-128  # scales up to here have an infinite inverse in float32


def _fitting(low: float, high: float, least: int, most: int, symmetric: bool = False) -> tuple[float, int]:
    """Scale and zero point for numbers from `low` to `high`, such that 0 is exactly representable; RuntimeError for NaN."""
    if not low <= high:
        raise RuntimeError("In ChooseQuantizationParams, min should be less than or equal to max")
    centred = symmetric and low < 0 < high
    if centred:
        half = (most - least) // 2
        scale = max(abs(low / -(half + 1)), abs(high / half))
        low, high = scale * -(half + 1), scale * half
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (most - least)
    if scale <= _WITHOUT_INVERSE:
        scale = 0.1
    if scale < SMALL_SCALE:  # as if the numbers had the range of that
        low, high, scale = low * (SMALL_SCALE / scale), high * (SMALL_SCALE / scale), SMALL_SCALE
    if centred:
        return scale, (least + most + 1) // 2
    # the zero point from the end at which it loses less
    from_low, from_high = least - low / scale, most - high / scale
    nearer = abs(least) + abs(low / scale) < abs(most) + abs(high / scale)
    return scale, min(max(round(from_low if nearer else from_high), least), most)


@asking
def quantize_per_tensor_dynamic(input: Tensor, dtype: DType, reduce_range: bool) -> Any:
    """`quantize_per_tensor` with the scale that fits the numbers, for quint8 and qint8; `reduce_range` uses half of the
    integers.

    float16 stands for a plain cast.
    """
    if dtype is FLOAT16:
        return input.to(FLOAT16)
    if dtype not in (BY_NAME["qint8"], BY_NAME["quint8"]):
        raise RuntimeError(f"dtype {dtype} not supported")
    _require_float(input)
    return quantize_per_tensor(input, *_fitting_tensor(input, dtype, reduce_range), dtype)


def _fitting_tensor(x: Tensor, dtype: DType, reduce_range: bool) -> tuple[float, int]:
    _, least, most = RANGES[dtype]
    if reduce_range:
        least, most = int(least / 2), most // 2
    return _fitting(float(x.min().item()), float(x.max().item()), least, most)


@asking
def _choose_qparams_per_tensor(self: Tensor, reduce_range: bool = False) -> tuple[float, int]:
    """Scale and zero point of quint8 for the numbers of a tensor, as `quantize_per_tensor_dynamic` chooses them."""
    return _fitting_tensor(self, BY_NAME["quint8"], reduce_range)


@asking
def choose_qparams_optimized(
    input: Tensor, numel: int, n_bins: int, ratio: float, bit_width: int
) -> tuple[Tensor, Tensor]:
    """The range (largest, smallest) of which `2**bit_width` numbers lose least of `input` in squared error.

    A greedy search from the whole range inward, in steps of one of `n_bins` parts, down to `1 - ratio` of it.
    """
    if numel <= 0 or numel > input.numel():
        raise RuntimeError("numel is out of the bound of input tensor")
    if not 1 <= bit_width <= 8:
        raise RuntimeError(f"bit_width must be from 1 to 8, got {bit_width}")
    x = input.detach().reshape(-1)[:numel].to(FLOAT32)
    lowest, highest = x.min().item(), x.max().item()
    step = (highest - lowest) / n_bins

    def loss(low: float, high: float) -> float:
        scale = (high - low) / (2**bit_width - 1) or 1.0
        near = ((x - low) * (1.0 / scale)).round().clamp(0, 2**bit_width - 1) * scale + low
        return (x - near).square().sum().item()

    low, high, found = lowest, highest, loss(lowest, highest)
    best, held = found, found
    while low + int(n_bins * (1.0 - ratio)) * step < high:
        from_above, from_below = loss(low, high - step), loss(low + step, high)
        if held < from_above and held < from_below and held < best:
            best, lowest, highest = held, low, high
        if from_above < from_below:
            high, held = high - step, from_above
        else:
            low, held = low + step, from_below
    return T["tensor"]([highest], dtype=FLOAT32), T["tensor"]([lowest], dtype=FLOAT32)


@asking
def fused_moving_avg_obs_fake_quant(
    input: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    """Fake quantization whose scale follows a moving average of the smallest and the largest numbers, all in one call.

    Where `observer_on` is set, `running_min`, `running_max`, `scale` and `zero_point` are brought up to date in place;
    where `fake_quant_on` is set the result is fake-quantized, else it is the input.
    """
    if observer_on.item():
        _observe(input.detach(), running_min, running_max, averaging_const, ch_axis if per_row_fake_quant else None)
        if fake_quant_on.item():
            ends = zip(running_min.reshape(-1).tolist(), running_max.reshape(-1).tolist(), strict=True)
            found = [_fitting(low, high, quant_min, quant_max, symmetric_quant) for low, high in ends]
            for kept, values in ((scale, [s for s, _ in found]), (zero_point, [z for _, z in found])):
                kept.resize_(len(values)).copy_(T["tensor"](values, dtype=kept.dtype))
    if not fake_quant_on.item():
        return input
    used = scale.clone(), zero_point.clone()  # the next call changes both, before the gradient of this one is asked for
    if per_row_fake_quant:
        return T["fake_quantize_per_channel_affine"](input, *used, ch_axis, quant_min, quant_max)
    return T["fake_quantize_per_tensor_affine"](input, *used, quant_min, quant_max)


def _observe(x: Tensor, low: Tensor, high: Tensor, rate: float, axis: int | None) -> None:
    if axis is not None:
        rows = x.transpose(axis, 0).reshape(x.shape[axis], -1)
        ends = ((low, rows.amin(1)), (high, rows.amax(1)))
    else:
        ends = ((low, x.min()), (high, x.max()))
    for kept, now in ends:
        if axis is not None and kept.numel() != now.numel():
            kept.resize_(now.numel()).copy_(now)
            continue
        now = now.reshape(kept.shape).to(kept.dtype)
        kept.copy_(T["where"](kept.isinf(), now, kept + rate * (now - kept)))


@asking
def empty_quantized(size: Sequence[int], qtensor: Any, *, dtype: DType | None = None, **options: Any) -> Any:
    """Undefined integers of this shape, quantized as `qtensor` is."""
    kind = dtype or qtensor.dtype
    return make_quantized(T["empty"](tuple(size), dtype=_range_of(kind)[0]), kind, qtensor._quantizer)


# ***** reading *****


def _empty_affine_quantized(
    size: Sequence[int],
    *,
    scale: float = 1.0,
    zero_point: int = 0,
    dtype: DType,
    memory_format: Any = None,
    **options: Any,
) -> Any:
    """A quantized tensor with one scale whose integers are whatever is in memory."""
    ints = _empty(size, dtype, memory_format, options)
    return make_quantized(ints, dtype, Quantizer(per_tensor_affine, float(scale), int(zero_point)))


def _empty_per_channel_affine_quantized(
    size: Sequence[int], *, scales: Tensor, zero_points: Tensor, axis: int, dtype: DType, memory_format: Any = None, **options: Any
) -> Any:  # fmt: skip
    """A quantized tensor with a scale for each place along `axis` whose integers are whatever is in memory."""
    ints = _empty(size, dtype, memory_format, options)
    return make_quantized(ints, dtype, _channels(ints, scales, zero_points, axis, dtype))


def _empty(size: Sequence[int], dtype: DType, memory_format: Any, options: dict[str, Any]) -> Tensor:
    made: Tensor = T["empty"](size, dtype=_range_of(dtype)[0], **options)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


_OF_INTS = {"uint8": "quint8", "int8": "qint8", "int32": "qint32"}


def _quantized_as(ints: Tensor) -> DType:
    name = _OF_INTS.get(ints.dtype.name.rpartition(".")[2])
    if name is None:
        raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")
    return BY_NAME[name]


def _make_per_tensor_quantized_tensor(input: Tensor, scale: float, zero_point: int) -> Any:
    """Integers with one scale and zero point: a copy of them as a quantized tensor."""
    quantizer = Quantizer(per_tensor_affine, float(scale), int(zero_point))
    return make_quantized(input.clone(), _quantized_as(input), quantizer)


def _make_per_channel_quantized_tensor(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Any:
    """Integers with a scale and zero point for each place along `axis`: a copy of them as a quantized tensor."""
    dtype = _quantized_as(input)
    return make_quantized(input.clone(), dtype, _channels(input, scale, zero_point, axis, dtype))


def _packed(x: Any, bits: int) -> Tensor:
    """Integers of a few bits, several in a byte, the first lowest."""
    count = 8 // bits
    flat = x._ints.reshape(-1)
    flat = T["cat"]([flat, flat.new_zeros(-flat.numel() % count)]).reshape(-1, count).to(INT32)
    return sum((flat[:, k] << bits * k for k in range(count)), flat.new_zeros(flat.shape[0])).to(UINT8)


@asking
def int_repr(input: Any) -> Any:
    """The integers: uint8, int8 or int32 like the tensor, a vector of bytes where the dtype packs several into one."""
    quantized = _asked("int_repr", input)
    bits = {"quint4x2": 4, "quint2x4": 2}.get(input.dtype.name)
    return quantized._ints.clone() if bits is None else _packed(quantized, bits)


def _asked(name: str, x: Any) -> Any:
    if not isinstance(x, QuantTensor):
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the 'CPU' backend: only quantized tensors have it."
        )
    return x


def _one_scale(name: str, x: Any) -> Quantizer:
    held: Quantizer = _asked(name, x)._quantizer
    if held.axis is not None:
        raise RuntimeError(f"{name}: expected a tensor with one scale (torch.per_tensor_affine), got {held.scheme}")
    return held


def _many_scales(name: str, x: Any) -> Quantizer:
    held: Quantizer = _asked(name, x)._quantizer
    if held.axis is None:
        raise RuntimeError(
            f"{name}: expected a tensor with a scale for each channel (torch.per_channel_affine), got {held.scheme}"
        )
    return held


@asking
def q_scale(input: Any) -> Any:
    """The scale of a tensor with one."""
    return _one_scale("q_scale", input).scale


@asking
def q_zero_point(input: Any) -> Any:
    """The zero point of a tensor with one."""
    return _one_scale("q_zero_point", input).zero_point


@asking
def q_per_channel_scales(input: Any) -> Any:
    """The scales, one for each channel."""
    return _many_scales("q_per_channel_scales", input).scale


@asking
def q_per_channel_zero_points(input: Any) -> Any:
    """The zero points, one for each channel."""
    return _many_scales("q_per_channel_zero_points", input).zero_point


@asking
def q_per_channel_axis(input: Any) -> Any:
    """The dim of the channels."""
    return _many_scales("q_per_channel_axis", input).axis


def _scheme(self: Any) -> QScheme:
    """How the scale is laid out."""
    found: QScheme = _asked("qscheme", self)._quantizer.scheme
    return found


METHODS = {
    "dequantize": dequantize, "int_repr": int_repr, "q_scale": q_scale, "q_zero_point": q_zero_point, "q_per_channel_scales": q_per_channel_scales,
    "q_per_channel_zero_points": q_per_channel_zero_points, "q_per_channel_axis": q_per_channel_axis, "qscheme": _scheme,
}  # fmt: skip
for _name, _function in METHODS.items():  # what answers when the public functions have asked
    QuantTensor.handlers[_name] = lambda function, self, _made=inspect.unwrap(_function): _made(self)

# ***** what operators mean: memory *****


@QuantTensor.implements(
    "stride", "is_contiguous", "storage_offset", "data_ptr", "untyped_storage", "numel", "is_shared", "_is_view"
)
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    return function(self._ints, *args, **kwargs)


@QuantTensor.implements("storage")
def _(function: Any, self: Any) -> Any:
    return TypedStorage(wrap_storage=self._ints.untyped_storage(), dtype=self.dtype)


@QuantTensor.implements("clone", "contiguous", "detach", "alias", "to_memory_format", "resize_")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    return make_quantized(function(self._ints, *args, **kwargs), self.dtype, self._quantizer)


@QuantTensor.implements("cpu", "requires_grad_")
def _(function: Any, self: Any, requires_grad: bool = True) -> Any:
    if function.__name__ == "requires_grad_" and requires_grad:
        raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
    return self


@QuantTensor.implements("_type")
def _(function: Any, self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    if dtype is None:
        return f"torch.quantized.{self.dtype.scalar}Tensor"
    raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")


@QuantTensor.implements("to", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    wanted = [a for a in (*args, *kwargs.values()) if isinstance(a, DType)]
    if function.__name__ == "to" and (not wanted or wanted[0] is self.dtype):
        layout = kwargs.get("memory_format")
        return self if layout is None else self.contiguous(memory_format=layout)
    raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")


@QuantTensor.implements("numpy_of", "__array__")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(f"Got unsupported ScalarType {self.dtype.scalar}")


@QuantTensor.implements("item", "__float__", "__bool__", "__int__")
def _(function: Any, self: Any) -> Any:
    return getattr(dequantize(self), function.__name__)()


@QuantTensor.implements(
    "index", "index_select", "flip", "gather", "masked_select", "take", "repeat", "roll", "reshape_copy", "tile", "as_strided",
    "channel_shuffle", "pixel_unshuffle",
)  # fmt: skip
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    return seen_through(function, self, *args, **kwargs)


@QuantTensor.implements("__getitem__")
def _(function: Any, self: Any, index: Any) -> Any:
    if type(index) is int and self._quantizer.axis is not None:
        return self.select(0, index)
    return seen_through(function, self, index)


@QuantTensor.implements("unsqueeze")
def _(function: Any, self: Any, dim: int) -> Any:
    held, place = self._quantizer, dim % (self.dim() + 1)
    if held.axis is not None:
        held = held._replace(axis=held.axis + (place <= held.axis))
    return make_quantized(function(self._ints, dim), self.dtype, held)


@QuantTensor.implements("T", "mT", "H", "mH")
def _(function: Any, self: Any) -> Any:
    return seen_through(lambda ints: getattr(ints, function.__name__), self)


@QuantTensor.implements("select")
def _(function: Any, self: Any, dim: int, index: int) -> Any:
    held = self._quantizer
    if held.axis is None:
        return seen_through(function, self, dim, index)
    dim = dim % self.dim()
    ints = function(self._ints, dim, index)
    if dim == held.axis:
        one = Quantizer(per_tensor_affine, held.scale[index].item(), int(held.zero_point[index].item()))
        return make_quantized(ints, self.dtype, one)
    return make_quantized(ints, self.dtype, held._replace(axis=held.axis - (dim < held.axis)))


@QuantTensor.implements("cat", "stack")
def _(function: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    first = tensors[0]
    if any(not isinstance(t, QuantTensor) or t._quantizer.axis is not None for t in tensors):
        raise RuntimeError(f"Only per-tensor quantization is supported in '{function.__name__}'!")
    if any(t.dtype is not first.dtype for t in tensors):
        raise RuntimeError(f"All dtypes must be the same: got {', '.join(str(t.dtype) for t in tensors)}.")
    ints = [
        t._ints if t._quantizer == first._quantizer else _integers(dequantize(t), first._quantizer, first.dtype)
        for t in tensors
    ]
    return make_quantized(function(ints, dim), first.dtype, first._quantizer)


@QuantTensor.implements("copy_")
def _(function: Any, self: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(self, QuantTensor):
        raise RuntimeError(
            "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a float Tensor from a "
            "quantized Tensor"
        )
    if isinstance(source, QuantTensor):
        if source._quantizer.scheme is not self._quantizer.scheme:
            raise RuntimeError("Quantized Copy only works with same qscheme")
        if source.dtype is not self.dtype:
            raise RuntimeError("Quantized Copy only works with same dtype")
        self._ints.copy_(source._ints)
        self._quantizer = source._quantizer
        return self
    numbers = source if isinstance(source, Tensor) else T["tensor"](float(source))
    self._ints.copy_(_integers(numbers.to(FLOAT32).expand(self.shape), self._quantizer, self.dtype))
    return self


@QuantTensor.implements("fill_")
def _(function: Any, self: Any, value: Any) -> Any:
    return self.copy_(value)


@QuantTensor.implements("masked_fill_")
def _(function: Any, self: Any, mask: Any, value: Any) -> Any:
    return self.copy_(self.masked_fill(mask, value))


@QuantTensor.implements("full_like", "ones_like")
def _(function: Any, self: Any, fill_value: Any = 1, **kwargs: Any) -> Any:
    return T["empty_like"](self).fill_(fill_value)


@QuantTensor.implements("data")
def _(function: Any, self: Any) -> Any:
    return self.detach()


@QuantTensor.implements("__setitem__")
def _(function: Any, self: Any, index: Any, value: Any) -> None:
    if isinstance(value, QuantTensor):
        if _picks(index):
            raise RuntimeError("Value argument for quantized input_put should not be quantized")
        self[index].copy_(value)
        return
    if not isinstance(self, QuantTensor):
        function(self, index, value)
        return
    numbers = (value if isinstance(value, Tensor) else T["tensor"](float(value))).to(FLOAT32)
    if self._quantizer.axis is None:
        self._ints[index] = _integers(numbers, self._quantizer, self.dtype)
        return
    whole = dequantize(self)  # each place along the axis has a scale of its own
    whole[index] = numbers
    self.copy_(whole)


def _picks(index: Any) -> bool:
    """Whether an index picks places by tensors or lists, so that what it gives is no view."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, (Tensor, list)) for part in parts)


@QuantTensor.implements("index_put_", "index_put")
def _(function: Any, self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if isinstance(values, QuantTensor):
        raise RuntimeError("Value argument for quantized input_put should not be quantized")
    if accumulate:
        raise RuntimeError("index_put for quantized tensors is currently only supported for accumulate=False")
    target = self if function.__name__ == "index_put_" else self.clone()
    target[tuple(indices)] = values
    return target


@QuantTensor.implements("empty_like")
def _(function: Any, self: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    if dtype is not None and dtype is not self.dtype:
        raise RuntimeError(f"a quantized tensor like another one has its dtype, {self.dtype}, not {dtype}")
    return make_quantized(function(self._ints), self.dtype, self._quantizer)


# ***** what operators mean: numbers *****


@QuantTensor.implements("eq", "ne", "lt", "le", "gt", "ge", "isclose", "allclose")
def _(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*(dequantize(a) if isinstance(a, QuantTensor) else a for a in args), **kwargs)


@QuantTensor.implements("equal")
def _(function: Any, self: Any, other: Any) -> bool:
    if not (isinstance(self, QuantTensor) and isinstance(other, QuantTensor)) or self.dtype is not other.dtype:
        return False
    mine, theirs = self._quantizer, other._quantizer
    if mine.scheme is not theirs.scheme or mine.axis != theirs.axis:
        return False
    if mine.axis is None:
        return mine == theirs and function(self._ints, other._ints)
    return bool(
        mine.scale.equal(theirs.scale)
        and mine.zero_point.equal(theirs.zero_point)
        and function(self._ints, other._ints)
    )


# Functions of the numbers whose result is quantized with the same scale: they choose among numbers, or cut and average
# them.
@QuantTensor.implements(
    "relu6", "clamp", "hardtanh", "max", "min", "amax", "amin", "sort", "topk", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d",
    "adaptive_avg_pool3d", "interpolate", "leaky_relu", "pixel_shuffle", "pad", "gelu", "threshold", "masked_fill", "std", "clamp_min",
    "clamp_max",
)  # fmt: skip
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if self._quantizer.axis is not None:
        raise RuntimeError(f"{function.__name__}: only per-tensor quantization is supported")
    found = function(dequantize(self), *args, **kwargs)
    if isinstance(found, tuple):
        return type(found)(_like(self, f) if f.is_floating_point() else f for f in found)
    return _like(self, found)


# Functions whose range is known: the scale of their result.
FIXED = {"sigmoid": (1.0 / 256, 0), "hardsigmoid": (1.0 / 256, 0), "tanh": (2.0 / 256, 128)}


@QuantTensor.implements(*FIXED)
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    scale, zero_point = FIXED[function.__name__]
    if self.dtype is BY_NAME["qint8"]:
        zero_point -= 128
    return quantize_per_tensor(function(dequantize(self), *args, **kwargs), scale, zero_point, self.dtype)


@QuantTensor.implements("relu")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if self._quantizer.axis is not None:
        raise RuntimeError("relu: only per-tensor quantization is supported")
    return make_quantized(self._ints.clamp(min=self._quantizer.zero_point), self.dtype, self._quantizer)


@QuantTensor.implements("relu_")
def _(function: Any, self: Any) -> Any:
    self._ints.copy_(self._ints.clamp(min=self._quantizer.zero_point))
    return self


# integers are in the order of their numbers
@QuantTensor.implements("max_pool1d", "max_pool2d", "max_pool3d")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    return seen_through(function, self, *args, **kwargs)


@QuantTensor.implements("mean")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if self._quantizer.axis is not None:
        raise RuntimeError("mean: only per-tensor quantization is supported")
    return make_quantized(
        function(self._ints.to(FLOAT64), *args, **kwargs).round().to(self._ints.dtype), self.dtype, self._quantizer
    )


# ***** printing *****


@QuantTensor.implements("__repr__")
def _(function: Any, self: Any, *, tensor_contents: Any = None) -> str:
    held = self._quantizer
    numbers = dequantize(self)
    text = repr(numbers) if numbers.numel() else "tensor([])"
    for mark in (", size=", ",\n       size=", ", dtype="):
        text = text.split(mark)[0]
    body = text.removesuffix(")")
    suffixes = [f"size={tuple(self.shape)}", f"dtype={self.dtype!r}", f"quantization_scheme={held.scheme!r}"]
    if held.axis is None:
        suffixes += [f"scale={held.scale}", f"zero_point={held.zero_point}"]
    else:
        suffixes += [f"scale={held.scale!r}", f"zero_point={held.zero_point!r}", f"axis={held.axis}"]
    return append_suffixes(body, suffixes, len("tensor("), OPTIONS.linewidth)
