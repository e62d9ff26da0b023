"""Packed weights: integers, and what products need to know of each of their channels."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight._interface.operators import function_of
from rushlight._interface.quantized import Quantizer, QuantTensor, make_quantized

__all__ = ["ConvPackedParams", "EmbeddingPackedParams", "LinearPackedParams", "requantize"]

_linear, _dynamic, _conv = (function_of(f"quantized_{n}") for n in ("linear", "linear_dynamic", "conv"))
_steps, _numbers = function_of("quantized_steps"), function_of("quantized_numbers")
HOLDERS = {"quint8": "uint8", "qint8": "int8"}


def holder_of(dtype: Any) -> str:
    """The dtype of the integers of a quantized dtype; RuntimeError where products have none such."""
    name = str(dtype).rpartition(".")[2]
    if name not in HOLDERS:
        raise RuntimeError(f"quantized operators take and give torch.quint8 and torch.qint8, not {dtype}")
    return HOLDERS[name]


def _made(ints: Any, scale: float, zero_point: int, dtype: Any) -> Any:
    return make_quantized(ints, dtype, Quantizer(torch.per_tensor_affine, float(scale), int(zero_point)))


def requantize(numbers: Any, scale: float, zero_point: int, dtype: Any) -> Any:
    """Floats as a quantized tensor: `quantize_per_tensor` in one kernel."""
    ints = _steps(numbers.detach(), float(scale), int(zero_point), result=holder_of(dtype))
    return _made(ints, scale, zero_point, dtype)


def require_zero_point(zero_point: int, dtype: Any) -> None:
    """RuntimeError where an integer of a quantized dtype cannot stand for 0."""
    limits = torch.iinfo(dtype)
    low, high = limits.min, limits.max
    if not low <= zero_point <= high:
        side = "above upper" if zero_point > high else "below lower"
        raise RuntimeError(f"quantize_tensor_per_tensor_affine zero_point {zero_point} is {side} bound.")


def given(x: Any, what: str) -> Any:
    """A quantized tensor with one scale; RuntimeError for anything else."""
    if not isinstance(x, QuantTensor):
        raise RuntimeError(f"quantized::{what}: expected a quantized tensor, got one of {x.dtype}")
    if x._quantizer.axis is not None:
        raise RuntimeError(f"quantized::{what}: expected a tensor with one scale, got {x.qscheme()}")
    return x


class _Packed:
    """A quantized weight and its bias; `channels` are its scales and zero points, `sums` the sums of its integers.

    What depends on the input's scale and zero point is kept for the last few of them: a layer mostly sees one.
    """

    axis = 0

    def __init__(self, weight: Any, bias: Any = None) -> None:
        if not isinstance(weight, QuantTensor) or weight.dtype is not torch.qint8:
            raise RuntimeError(f"packed weights are of torch.qint8, not {weight.dtype}")
        self.weight, self.bias = weight, bias
        self.ints = self._laid_out(weight._ints)
        quantizer: Any = weight._quantizer
        if quantizer.axis not in (None, self.axis):
            raise RuntimeError(
                f"packed weights have a scale for each place along dim {self.axis}, not along dim {quantizer.axis}"
            )
        if quantizer.axis is None:
            self.scales = torch.tensor([quantizer.scale], dtype=torch.float32)
            self.zeros = torch.tensor([quantizer.zero_point], dtype=torch.int32)
        else:
            self.scales = quantizer.scale.to(torch.float32)
            self.zeros = quantizer.zero_point.to(torch.int32)
        self.count = self.ints.numel() // max(self.ints.shape[0], 1)
        wide = self.ints.to(torch.int32).reshape(self.ints.shape[0], -1)
        self.sums = wide.sum(1).to(torch.int32)
        self.shifted = bool(torch.any(self.zeros != 0))
        self._kept: dict[Any, Any] = {}

    def _laid_out(self, ints: Any) -> Any:
        return ints.contiguous()

    def unpack(self) -> tuple[Any, Any]:
        """Weight and bias as they were packed."""
        return self.weight, self.bias

    def __getstate__(self) -> Any:
        return (self.weight, self.bias)

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self)(*self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        return self.weight, self.bias

    def columns(self, x_scale: float, x_zero: int, y_scale: float) -> tuple[Any, ...]:
        """(offset, scale, bias, weight zeros) of each channel, as `quantized_linear` takes them."""
        key = (x_scale, x_zero, y_scale)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= 8:
                self._kept.clear()
            found = self._kept[key] = self._columns(*key)
        return found

    def _columns(self, x_scale: float, x_zero: int, y_scale: float) -> tuple[Any, ...]:
        offset = x_zero * (self.count * self.zeros - self.sums)
        product = self.scales * torch.tensor(x_scale, dtype=torch.float32)
        bias = None if self.bias is None else self.bias.detach().to(torch.float32) / product
        scale = product / torch.tensor(y_scale, dtype=torch.float32)
        return offset.to(torch.int32).contiguous(), scale, bias, self.zeros if self.shifted else None


def _require_bias(bias: Any, channels: int) -> None:
    """RuntimeError unless there is a number of `bias` for each channel."""
    if bias is not None and tuple(bias.shape) != (channels,):
        raise RuntimeError(f"bias should have N elements: {channels}, got the shape {list(bias.shape)}")


class LinearPackedParams(_Packed):
    """The weight [N, K] and the bias [N] of a linear layer."""

    def __init__(self, weight: Any, bias: Any = None) -> None:
        if weight.dim() != 2:
            raise RuntimeError(
                f"The weight tensor for quantized::linear_prepack should be 2-dimensional, got {weight.dim()} dimensions."
            )
        super().__init__(weight, bias)
        _require_bias(bias, self.ints.shape[0])

    def apply(self, x: Any, scale: float, zero_point: int, relu: bool = False) -> Any:
        """The layer of a quantized input, quantized by `scale` and `zero_point`."""
        q = given(x, "linear")._quantizer
        offset, factor, bias, zeros = self.columns(q.scale, q.zero_point, float(scale))
        name = holder_of(x.dtype)
        ints = _linear(x._ints, self.ints, offset, factor, bias, zeros, int(zero_point), result=name, relu=relu)
        return _made(ints, scale, zero_point, x.dtype)

    def apply_dynamic(self, x: Any, reduce_range: bool = False, relu: bool = False) -> Any:
        """The layer of floats, which are quantized by the scale that fits them; floats."""
        if x.numel() == 0:
            return x.new_zeros((*x.shape[:-1], self.ints.shape[0]))
        sums = self.sums - self.count * self.zeros if self.shifted else self.sums
        bias = None if self.bias is None else self.bias.detach()
        return _dynamic(
            x.detach(), self.ints, sums, self.scales, bias, self.zeros if self.shifted else None, reduce_range=reduce_range,
            relu=relu,
        )  # fmt: skip

    def apply_to_numbers(self, x: Any, scale: float, zero_point: int, relu: bool = False) -> Any:
        """The layer of floats, quantized by a known scale; floats."""
        q = requantize(x, scale, zero_point, torch.quint8)
        offset, factor, bias, zeros = self.columns(float(scale), int(zero_point), 1.0)
        return _linear(q._ints, self.ints, offset, factor, bias, zeros, 0, result="float32", relu=relu)


class LinearHalfPackedParams:
    """The weight of a linear layer in float16."""

    def __init__(self, weight: Any, bias: Any = None) -> None:
        self.weight, self.bias = weight, bias
        self.half = weight.detach().to(torch.float16)

    def unpack(self) -> tuple[Any, Any]:
        """Weight and bias."""
        return self.half.to(torch.float32), self.bias

    def __getstate__(self) -> Any:
        return (self.weight, self.bias)

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def apply_dynamic(self, x: Any, reduce_range: bool = False, relu: bool = False) -> Any:
        """The layer with its weight as it was rounded to float16."""
        y = torch.nn.functional.linear(
            x.detach(), self.half.to(torch.float32), None if self.bias is None else self.bias.detach()
        )
        return torch.relu(y) if relu else y


class ConvPackedParams(_Packed):
    """The weight and the bias of a convolution (or a transposed one), with its geometry."""

    def __init__(
        self, weight: Any, bias: Any = None, stride: Any = (1,), padding: Any = (0,), dilation: Any = (1,), groups: int = 1,
        output_padding: Any = (0,), transpose: bool = False,
    ) -> None:  # fmt: skip
        n = weight.dim() - 2
        self.stride, self.padding, self.dilation, self.outer = (
            tuple(int(v) for v in (each * n if len(each) == 1 else each))
            for each in map(tuple, (stride, padding, dilation, output_padding))
        )
        self.groups, self.transposed, self.axis = groups, transpose, int(transpose)
        self._check_geometry(n)
        super().__init__(weight, bias)
        if transpose and groups > 1 and weight._quantizer.axis is not None:
            raise NotImplementedError("a quantized transposed convolution in groups with a scale for each channel")
        _require_bias(bias, self.ints.shape[0])

    def _check_geometry(self, n: int) -> None:
        """RuntimeError for steps and borders that a convolution over `n` dims cannot have."""
        parts = (("stride", self.stride, 1), ("padding", self.padding, 0), ("dilation", self.dilation, 1), ("output_padding", self.outer, 0))  # fmt: skip
        for name, values, least in parts:
            if len(values) != n:
                raise RuntimeError(f"{name} should contain {n} elements for {n}D convolution, got {list(values)}.")
            if min(values) < least:
                wanted = "positive" if least else "no less than 0"
                raise RuntimeError(f"quantized::conv_prepack: {name} should be {wanted}, got {list(values)}.")

    def _laid_out(self, ints: Any) -> Any:
        if self.transposed:  # [I, O/g, *K] as the flipped kernel of a plain convolution, [O, I/g, *K]
            n = ints.dim() - 2
            ins, outs, *kernel = ints.shape
            ints = ints.reshape(self.groups, ins // self.groups, outs, *kernel).transpose(1, 2)
            ints = ints.reshape(self.groups * outs, ins // self.groups, *kernel).flip(tuple(range(2, n + 2)))
        n = ints.dim() - 2
        if ints.shape[1] == 1:  # a kernel for each channel: channels lie side by side, as in the image
            return ints.permute((*range(2, n + 2), 1, 0)).contiguous().permute((n + 1, n, *range(n)))
        # channels last in memory: the rows of its matrix as they lie
        return ints.permute((0, *range(2, n + 2), 1)).contiguous().permute((0, n + 1, *range(1, n + 1)))

    def _arguments(self) -> tuple[Any, ...]:
        return (
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups, self.outer, self.transposed
        )  # fmt: skip

    def __getstate__(self) -> Any:
        return self._arguments()

    def apply(self, x: Any, scale: float, zero_point: int, relu: bool = False) -> Any:
        """The convolution of a quantized input, quantized by `scale` and `zero_point`."""
        q = given(x, "conv")._quantizer
        name = holder_of(x.dtype)
        ints = self._run(x._ints, (q.scale, q.zero_point), float(scale), int(zero_point), name, relu)
        return _made(ints, scale, zero_point, x.dtype)

    def apply_dynamic(self, x: Any, reduce_range: bool = False, relu: bool = False) -> Any:
        """The convolution of floats, which are quantized by the scale that fits them; floats."""
        q = torch.quantize_per_tensor_dynamic(x.detach(), torch.quint8, reduce_range)
        return self._run(q._ints, (q.q_scale(), q.q_zero_point()), 1.0, 0, "float32", relu)

    def _run(self, ints: Any, source: tuple[float, int], scale: float, zero_point: int, name: str, relu: bool) -> Any:
        offset, factor, bias, zeros = self.columns(source[0], source[1], scale)
        batched = ints.dim() == self.ints.dim()
        ints = ints if batched else ints.unsqueeze(0)
        stride, padding = self.stride, self.padding
        if self.transposed:
            ints, stride, padding = self._spread(ints, source[1])
        y = _conv(
            ints, self.ints, offset, factor, bias, zeros, source[1], zero_point, stride, padding, self.dilation, self.groups,
            result=name, relu=relu,
        )  # fmt: skip
        return y if batched else y.squeeze(0)

    def _spread(self, ints: Any, zero: int) -> Any:
        """The input of the plain convolution that equals a transposed one: the stride apart, with zeros around."""
        n = ints.dim() - 2
        reach = [gap * (k - 1) for gap, k in zip(self.dilation, self.ints.shape[2:], strict=True)]
        sizes = [
            (s - 1) * step + 1 + 2 * (r - p) + o
            for s, step, r, p, o in zip(ints.shape[2:], self.stride, reach, self.padding, self.outer, strict=True)
        ]
        lo = [r - p for r, p in zip(reach, self.padding, strict=True)]
        if min(lo) < 0:
            raise NotImplementedError("a quantized transposed convolution whose padding exceeds its kernel")
        made = torch.full((*ints.shape[:2], *sizes), zero, dtype=ints.dtype)
        places = tuple(
            slice(a, a + (s - 1) * step + 1, step) for a, s, step in zip(lo, ints.shape[2:], self.stride, strict=True)
        )
        made[(slice(None), slice(None), *places)] = ints
        return made, (1,) * n, (0,) * n


class EmbeddingPackedParams:
    """The rows of an embedding: one byte or half a byte a number, with a scale and a float zero point for each row."""

    def __init__(self, weight: Any) -> None:
        if not isinstance(weight, QuantTensor) or weight.dtype not in (torch.quint8, torch.quint4x2):
            raise RuntimeError("packed embeddings are of torch.quint8 and torch.quint4x2")
        self.weight = weight

    def unpack(self) -> Any:
        """The weight."""
        return self.weight

    def __getstate__(self) -> Any:
        return (self.weight,)

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def rows(self, indices: Any) -> Any:
        """The rows [*indices, D] in float32: only those are widened."""
        quantizer, flat = self.weight._quantizer, indices.reshape(-1).long()
        ints = self.weight._ints.index_select(0, flat).to(torch.float32)
        scale, zero = (
            v.to(torch.float32).index_select(0, flat).unsqueeze(1) for v in (quantizer.scale, quantizer.zero_point)
        )
        return ((ints - zero) * scale).reshape(*indices.shape, ints.shape[-1])
