"""`torch.ao.quantization.fx._decomposed`: the operators `torch.ops.quantized_decomposed`: quantization of plain tensors of integers.

Scales and zero points are arguments, so that an exported graph of quantized values has ordinary dtypes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import rushlight as torch
from rushlight.ao.quantization.utils import determine_qparams, validate_qmin_qmax
from rushlight.library import Library
from rushlight.library.schema import parse

__all__: list[str] = []

quantized_decomposed_lib = Library("quantized_decomposed", "DEF")

_BOUNDS = {
    **{d: (torch.iinfo(d).min, torch.iinfo(d).max) for d in (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32)},
    **{d: (int(torch.finfo(d).min), int(torch.finfo(d).max)) for d in (torch.float8_e5m2, torch.float8_e4m3fn)},
}  # fmt: skip
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_QUANTIZE = "int quant_min, int quant_max, ScalarType dtype"
_TYPED = f"{_QUANTIZE}, *, ScalarType? out_dtype=None"


def _operator(
    schema: str,
    *checks: Callable[[dict[str, Any]], Any],
    dtype: Any = "dtype",
    data: Sequence[Callable[[dict[str, Any]], Any]] = (),
    meta: Any = (),
) -> Callable[[Any], Any]:
    """Define an operator by the decorated function; a tensor without data gives one like the first argument.

    `checks` are of the arguments by name, and run before either; those of `data` and `meta` before one of them.  `dtype` names the
    argument that tells the result's dtype, or is one; `meta` may be a function in the place of all that.
    """
    name, parsed = schema.partition("(")[0], parse(f"quantized_decomposed::{schema}")
    arguments = parsed.arguments
    quantized_decomposed_lib.define(schema)

    def named(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        defaults = {a.name: a.default for a in arguments if a.has_default}
        return {**defaults, **dict(zip([a.name for a in arguments], args, strict=False)), **kwargs}

    def without_data(*args: Any, **kwargs: Any) -> Any:
        given = named(args, kwargs)
        for check in (*checks, *meta):
            check(given)
        found = given[dtype] if isinstance(dtype, str) else dtype
        return torch.empty_like(given["input"], dtype=torch.float32 if found is None else found)

    def registered(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            given = named(args, kwargs)
            for check in (*checks, *data):
                check(given)
            return function(*args, **kwargs)

        quantized_decomposed_lib.impl(name, checked, "CompositeExplicitAutograd")
        quantized_decomposed_lib.impl(name, meta if callable(meta) else without_data, "Meta")
        return checked

    return registered


# ***** checks: of arguments by their names *****


def _bounds(given: dict[str, Any]) -> None:
    if given["dtype"] not in _BOUNDS:
        raise ValueError(f"Unsupported dtype: {given['dtype']}")
    low, high = _BOUNDS[given["dtype"]]
    least, most = given["quant_min"], given["quant_max"]
    if least < low:
        raise AssertionError(f"quant_min out of bounds for dtype, quant_min_lower_bound: {low} quant_min: {least}")
    if most > high:
        raise AssertionError(f"quant_max out of bounds for dtype, quant_max_upper_bound: {high} quant_max: {most}")


def _floats(given: dict[str, Any]) -> None:
    if given["input"].dtype not in _FLOATS:
        raise AssertionError(f"Expecting input to have dtype torch.float32, but got dtype: {given['input'].dtype}")


def _stored(given: dict[str, Any]) -> None:
    if given["input"].dtype != given["dtype"]:
        raise AssertionError(f"Expecting input to have dtype: {given['dtype']}, but got {given['input'].dtype}")


def _quantized(given: dict[str, Any]) -> None:
    if given["dtype"] not in _BOUNDS:
        raise ValueError(f"Unsupported dtype in dequantize_per_tensor: {given['dtype']}")


def _single(given: dict[str, Any]) -> None:
    for name in ("zero_point", "scale"):
        if given[name].numel() != 1:
            raise AssertionError(f"Expecting {name} tensor to be one element, but received : {given[name].numel()}")


def _axis(given: dict[str, Any]) -> None:
    if given["axis"] >= given["input"].dim():
        raise AssertionError(f"Expecting axis to be < {given['input'].dim()}")


def _rows(given: dict[str, Any]) -> None:
    rows = math.prod(given["input"].shape[:-1])
    for name in ("scales", "zero_points"):
        if rows != given[name].numel():
            raise AssertionError(f"num_tokens: {rows} {name}: {given[name].size()}")


def _groups(given: dict[str, Any]) -> None:
    _group_of(given["input"], given["scales"], given["group_size"])


# ***** one scale for a tensor *****


@_operator(
    f"quantize_per_tensor(Tensor input, float scale, int zero_point, {_QUANTIZE}) -> Tensor", _floats, data=[_bounds]
)
def quantize_per_tensor(input: Any, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: Any) -> Any:
    """`clamp(round(input / scale) + zero_point, quant_min, quant_max)` in `dtype`, of a float tensor of any shape.

    AssertionError for inputs that are no floats and for bounds outside of the dtype; ValueError for other dtypes.
    """
    values = input.to(torch.float32)
    return torch.clamp(torch.round(values * (1.0 / scale)) + zero_point, quant_min, quant_max).to(dtype)


@_operator(
    f"quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, {_QUANTIZE}) -> Tensor",
    _single,
    _floats,
)
def quantize_per_tensor_tensor(
    input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    """As `quantize_per_tensor`, with scale and zero point in tensors of one element."""
    return quantize_per_tensor(input, scale.item(), zero_point.item(), quant_min, quant_max, dtype)


@_operator(
    "quantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype) -> Tensor",
    _single,
    _floats,
)
def quantize_per_tensor_tensor2(
    input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any
) -> Any:
    """As `quantize_per_tensor`, with all numbers in tensors of one element."""
    return quantize_per_tensor_tensor(input, scale, zero_point, quant_min.item(), quant_max.item(), dtype)


@_operator(
    f"dequantize_per_tensor(Tensor input, float scale, int zero_point, {_TYPED}) -> Tensor",
    dtype="out_dtype",
    data=[_stored, _quantized],
)
def dequantize_per_tensor(
    input: Any, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: Any, *, out_dtype: Any = None
) -> Any:
    """`(input - zero_point) * scale` in `out_dtype` (float32), of a tensor of `dtype`; the bounds are not looked at.

    AssertionError for a tensor of another dtype, ValueError for a dtype that nothing is quantized to.
    """
    return (input.to(out_dtype or torch.float32) - zero_point) * scale


@_operator(
    f"dequantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, {_TYPED}) -> Tensor",
    _single,
    _stored,
    dtype="out_dtype",
)
def dequantize_per_tensor_tensor(
    input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any, *, out_dtype: Any = None
) -> Any:
    """As `dequantize_per_tensor`, with scale and zero point in tensors of one element."""
    return dequantize_per_tensor(
        input, scale.item(), zero_point.item(), quant_min, quant_max, dtype, out_dtype=out_dtype
    )


@_operator(
    "dequantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype, *, "
    "ScalarType? out_dtype=None) -> Tensor",
    _single,
    _stored,
    dtype="out_dtype",
)
def dequantize_per_tensor_tensor2(
    input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any, *, out_dtype: Any = None
) -> Any:
    """As `dequantize_per_tensor`, with all numbers in tensors of one element."""
    return dequantize_per_tensor_tensor(
        input, scale, zero_point, quant_min.item(), quant_max.item(), dtype, out_dtype=out_dtype
    )


# ***** scales of the values at hand *****


def _chosen_meta(input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any) -> tuple[Any, Any]:
    if input.dtype not in _FLOATS:
        raise AssertionError(f"Expecting input to have dtype torch.float32/16/b16, but got dtype: {input.dtype}")
    if quant_min >= quant_max:
        raise AssertionError(
            f"Expecting quant_min to be smaller than quant_max but received min: {quant_min} max: {quant_max}"
        )
    made = torch.empty(1, dtype=torch.double, device=input.device)
    return made, torch.empty(1, dtype=torch.int64, device=input.device)


def _chosen(input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any, scheme: Any) -> tuple[Any, Any]:
    if input.dtype not in _FLOATS:
        raise AssertionError(f"Expecting input to have dtype torch.float32/16/b16, but got dtype: {input.dtype}")
    if dtype not in _BOUNDS:
        raise AssertionError(f"Expecting target dtype to be one of {_BOUNDS.keys()}, but got: {dtype}")
    validate_qmin_qmax(quant_min, quant_max)
    low, high = torch.aminmax(input)
    return determine_qparams(low, high, quant_min, quant_max, dtype, torch.tensor([eps]), False, scheme)


@_operator(
    "choose_qparams.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)",
    meta=_chosen_meta,
)
def choose_qparams_tensor(input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any) -> tuple[Any, Any]:
    """Scale (float64 of shape [1]) and zero point (int64 of shape [1]) for all values of a float tensor."""
    return _chosen(input, quant_min, quant_max, eps, dtype, torch.per_tensor_affine)


@_operator(
    "choose_qparams_symmetric.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)",
    meta=_chosen_meta,
)
def choose_qparams_symmetric_tensor(
    input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any
) -> tuple[Any, Any]:
    """As `choose_qparams`, with the zero point in the middle of the integers."""
    return _chosen(input, quant_min, quant_max, eps, dtype, torch.per_tensor_symmetric)


# ***** a scale for each channel *****


def _by_channel(values: Any, input: Any, axis: int) -> Any:
    """A value for each channel, in a shape that spreads over the input."""
    return values.view([-1 if place == axis % input.dim() else 1 for place in range(input.dim())])


@_operator(
    f"quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, {_QUANTIZE}) -> Tensor",
    _floats,
    _axis,
    _bounds,
)
def quantize_per_channel(
    input: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    """As `quantize_per_tensor`, with a scale and a zero point for each place of the dimension `axis`."""
    scale, zero = _by_channel(scales, input, axis), _by_channel(zero_points, input, axis)
    values = torch.round(input.to(torch.float32) * (1.0 / scale)) + zero
    return torch.clamp(values, quant_min, quant_max).to(dtype)


@_operator(
    f"dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, {_TYPED}) -> Tensor",
    _stored,
    _axis,
    _bounds,
    dtype="out_dtype",
)
def dequantize_per_channel(
    input: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any, *, out_dtype: Any = None
) -> Any:  # fmt: skip
    """As `dequantize_per_tensor`, with a scale and (unless None) a zero point for each place of the dimension `axis`."""
    scale = _by_channel(scales, input, axis)
    values = input if zero_points is None else input - _by_channel(zero_points, input, axis)
    return (values * scale).to(out_dtype or torch.float32)


# ***** a scale for each row *****


def _chosen_rows_meta(input: Any, dtype: Any) -> tuple[Any, Any]:
    size = [*input.shape[:-1], 1]
    made = torch.empty(size, dtype=torch.double, device=input.device)
    return made, torch.empty(size, dtype=torch.int64, device=input.device)


@_operator("choose_qparams_per_token(Tensor input, ScalarType dtype) -> (Tensor, Tensor)", meta=_chosen_rows_meta)
def choose_qparams_per_token(input: Any, dtype: Any) -> tuple[Any, Any]:
    """A scale for each row (of shape [..., 1]) by its largest magnitude, and zeros; only int8."""
    if dtype != torch.int8:
        raise Exception(f"unsupported dtype in choose_qparams_per_token: {dtype}")
    scales = input.abs().amax(dim=-1, keepdim=True)
    scales = scales.float() if scales.dtype == torch.float16 else scales
    scales = scales.clamp(min=1e-5).div(127)
    return scales, torch.zeros_like(scales)


@_operator(
    "choose_qparams_per_token_asymmetric(Tensor input, ScalarType dtype) -> (Tensor, Tensor)", meta=_chosen_rows_meta
)
def choose_qparams_per_token_asymmetric(input: Any, dtype: Any) -> tuple[Any, Any]:
    """Scale (float64) and zero point (int64) for each row of shape [..., 1], for integers from -128 to 127."""
    low, high = -128, 127
    below, above = input.amin(dim=-1, keepdim=True).clamp(max=0), input.amax(dim=-1, keepdim=True).clamp(min=0)
    scale = ((above - below) / float(high - low)).clamp(min=torch.finfo(torch.float32).eps)
    under, over = below / scale, above / scale
    zero = torch.where((low + under) + (high + over) > 0, low - under, high - over)
    return scale.to(torch.float64), torch.clamp(zero, low, high).round().to(torch.int64)


@_operator(
    f"quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, {_QUANTIZE}) -> Tensor", _bounds, data=[_rows]
)
def quantize_per_token(input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any) -> Any:
    """Integers of a tensor with a scale and a zero point for each row."""
    return input.mul(1.0 / scales).add(zero_points).round().clamp(quant_min, quant_max).to(dtype)


@_operator(
    f"dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, {_QUANTIZE}, ScalarType output_dtype) -> Tensor",
    dtype="output_dtype",
    meta=[_bounds],
)
def dequantize_per_token(
    input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any, output_dtype: Any
) -> Any:
    """`(input - zero_points) * scales` in `output_dtype`, with a scale and a zero point for each row."""
    return ((input - zero_points) * scales).to(output_dtype)


# ***** a scale for each group of a row *****


def _group_of(input: Any, scales: Any, group_size: int) -> int:
    """The size of the groups: the whole row where it is shorter and has one scale."""
    if group_size <= 1:
        raise AssertionError("group_size must be > 1")
    if group_size > input.shape[-1] and scales.shape[-1] == 1:
        group_size = int(input.shape[-1])
    if input.shape[-1] % group_size != 0:
        raise AssertionError("input.shape[-1] must be divisible by group_size")
    if input.dim() != 2:
        raise AssertionError("input must be 2-dimensional")
    return group_size


@_operator(
    f"quantize_per_channel_group(Tensor input, Tensor scales, Tensor zero_points, {_QUANTIZE}, int group_size) -> Tensor",
    _groups,
)
def quantize_per_channel_group(
    input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any, group_size: int = 128
) -> Any:
    """Integers of a matrix [n, m] with a scale and a zero point for each `group_size` values of a row."""
    values = input.reshape(-1, _group_of(input, scales, group_size))
    if bool(torch.isnan(values).any()):
        raise AssertionError("to_quant must not contain NaNs")
    scale, zero = scales.reshape(-1, 1), zero_points.reshape(-1, 1)
    return values.mul(1.0 / scale).add(zero).round().clamp(quant_min, quant_max).to(dtype).reshape_as(input)


@_operator(
    f"dequantize_per_channel_group(Tensor input, Tensor scales, Tensor? zero_points, {_QUANTIZE}, int group_size, ScalarType output_dtype) -> Tensor",
    _groups,
    dtype="output_dtype",
)
def dequantize_per_channel_group(
    w_int8: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any, group_size: int = 128, output_dtype: Any = torch.float32
) -> Any:  # fmt: skip
    """`(input - zero_points) * scales` of a matrix with a scale for each `group_size` values of a row."""
    values = w_int8.reshape(-1, _group_of(w_int8, scales, group_size))
    zero = zero_points.reshape(-1, 1) if zero_points is not None else torch.zeros([], dtype=torch.int32)
    return values.sub(zero).mul(scales.reshape(-1, 1)).reshape_as(w_int8).to(output_dtype)


# ***** dtypes *****


@_operator("convert_element_type.no_fuse(Tensor input, ScalarType dtype) -> Tensor")
def convert_element_type(input: Any, dtype: Any) -> Any:
    """The tensor in another dtype: an operator of its own, which no pass takes together with the next one."""
    return input.to(dtype)
