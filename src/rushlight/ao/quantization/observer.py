"""Observers: modules that watch values on their way, and say with which scale and zero point they are best quantized."""

from __future__ import annotations

import re
import warnings
from abc import ABCMeta, abstractmethod
from collections import OrderedDict
from functools import partial
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.quantization.granularity import (
    Granularity,
    MappingType,
    PerAxis,
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
    PerToken,
    TorchAODType,
    ZeroPointDomain,
    get_block_size,
)
from rushlight.ao.quantization.histograms import error_of_range, spread_over

__all__ = [
    "AffineQuantizedObserverBase", "FixedQParamsObserver", "Granularity", "HistogramObserver", "MappingType", "MinMaxObserver",
    "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver", "NoopObserver", "ObserverBase", "PerAxis", "PerBlock",
    "PerChannelMinMaxObserver", "PerGroup", "PerRow", "PerTensor", "PerToken", "PlaceholderObserver", "RecordingObserver",
    "ReuseInputObserver", "TorchAODType", "UniformQuantizationObserverBase", "ZeroPointDomain", "default_affine_fixed_qparams_observer",
    "default_debug_observer", "default_dynamic_quant_observer", "default_fixed_qparams_range_0to1_observer",
    "default_fixed_qparams_range_neg1to1_observer", "default_float_qparams_observer", "default_float_qparams_observer_4bit",
    "default_histogram_observer", "default_observer", "default_per_channel_weight_observer", "default_placeholder_observer",
    "default_reuse_input_observer", "default_symmetric_fixed_qparams_observer", "default_weight_observer", "get_block_size",
    "get_observer_state_dict", "load_observer_state_dict", "per_channel_weight_observer_range_neg_127_to_127",
    "weight_observer_range_neg_127_to_127",
]  # fmt: skip

EPS = 2.0**-23
_RANGES = {"qint8": (-128, 127), "quint8": (0, 255), "qint32": (-(2**31), 2**31 - 1), "quint4x2": (0, 15), "quint2x4": (0, 3),
           "int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1),
           "int32": (-(2**31), 2**31 - 1)}  # fmt: skip


def name_of(dtype: Any) -> str:
    """`qint8` of `torch.qint8`."""
    return str(dtype).rpartition(".")[2]


# ***** factories *****


class _PartialWrapper:
    """A constructor with arguments, and functions of the place where it is called (`callable_args`) that give more."""

    def __init__(self, p: partial[Any]) -> None:
        self.p = p
        self.callable_args: dict[str, Any] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        late = {name: make() for name, make in self.callable_args.items() if name not in keywords}
        return self.p(*args, **keywords, **late)

    def __repr__(self) -> str:
        return repr(self.p) + repr(self.callable_args)

    def with_args(self, **kwargs: Any) -> Any:
        """The same with further arguments."""
        return _with_args(self, **kwargs)

    def with_callable_args(self, **kwargs: Any) -> Any:
        """The same with arguments that are made at each call."""
        result = _PartialWrapper(partial(self.p))
        result.callable_args = {**self.callable_args, **kwargs}
        return result


def _with_args(cls_or_self: Any, **kwargs: Any) -> Any:
    made = _PartialWrapper(partial(cls_or_self, **kwargs))
    return made


# ***** base classes *****


class ObserverBase(nn.Module, metaclass=ABCMeta):
    """Base of observers: `forward` returns its input and notes what it saw, `calculate_qparams` gives scale and zero point.

    >>> import rushlight as torch
    >>> watch = torch.ao.quantization.MinMaxObserver.with_args(dtype=torch.qint8)()
    >>> _ = watch(torch.tensor([-1.0, 2.0]))
    >>> watch.calculate_qparams()
    (tensor([0.0118]), tensor([-43], dtype=torch.int32))
    """

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """The input, unchanged."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Scale and zero point."""

    @classmethod
    def with_args(cls, **kwargs: Any) -> Any:
        """A factory of this observer with these arguments."""
        return _with_args(cls, **kwargs)

    @classmethod
    def with_callable_args(cls, **kwargs: Any) -> Any:
        """A factory whose arguments are made by functions at each call."""
        return _PartialWrapper(partial(cls)).with_callable_args(**kwargs)


class UniformQuantizationObserverBase(ObserverBase):
    """Base of observers that find a range, from which scale and zero point follow."""

    _version = 3
    eps: Any

    def __init__(
        self, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, reduce_range: bool = False,
        quant_min: Any = None, quant_max: Any = None, factory_kwargs: Any = None, eps: float = EPS, is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.qscheme = qscheme
        if reduce_range:
            warnings.warn(
                "Please use quant_min and quant_max to specify the range for observers. "
                "reduce_range will be deprecated in a future release of PyTorch.", stacklevel=2,
            )  # fmt: skip
        self.reduce_range = reduce_range
        self.register_buffer("eps", torch.tensor([eps], **(factory_kwargs or {})))
        if qscheme not in (
            torch.per_tensor_affine, torch.per_tensor_symmetric, torch.per_channel_affine, torch.per_channel_symmetric,
            torch.per_channel_affine_float_qparams,
        ):  # fmt: skip
            raise AssertionError(
                "Default Observer only works for per_tensor_affine, per_tensor_symmetric, per_channel_affine, per_channel_symmetric and "
                "per_channel_float_qparams quantization scheme"
            )
        if name_of(dtype) not in (*_RANGES, "float8_e4m3fn", "float8_e5m2"):
            raise AssertionError("Default Observer only works for qint8, quint8 and quint4x2 data type")
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if self.has_customized_qrange:
            _check_range(quant_min, quant_max)
        self.quant_min, self.quant_max = _range_of(dtype, reduce_range, quant_min, quant_max)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *more: Any) -> None:
        version = local_metadata.get("version", None)
        if version is None or version == 1:
            state_dict[prefix + "eps"] = torch.tensor([EPS])
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *more)

    def _calculate_qparams(self, min_val: Any, max_val: Any) -> tuple[Any, Any]:
        """Scale and zero point of the range from `min_val` to `max_val`, widened to hold 0."""
        return affine_qparams(
            (min_val, max_val),
            (self.quant_min, self.quant_max),
            self.dtype,
            self.qscheme,
            self.eps,
            self.has_customized_qrange,
        )

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        raise NotImplementedError("Cannot reset min/max values in the given observer.")


def affine_qparams(
    seen: tuple[Any, Any], integers: tuple[int, int], dtype: Any, qscheme: Any, eps: Any, has_customized_qrange: bool
) -> tuple[Any, Any]:
    """Scale and zero point for values between the tensors `seen`, by channel or for all, widened to hold 0.

    `integers`: the lowest and highest in use; `eps`: the least scale.
    """
    min_val, max_val = seen
    if not _is_valid(min_val, max_val):
        return torch.tensor([1.0]), torch.tensor([0])
    low, high = integers
    below, above = (
        torch.minimum(min_val, torch.zeros_like(min_val)),
        torch.maximum(max_val, torch.zeros_like(max_val)),
    )
    zero = torch.zeros(below.size(), dtype=torch.int64)
    if qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric):
        scale = torch.max(torch.maximum(-below, above) / (float(high - low) / 2), eps)
        if name_of(dtype) in ("quint8", "uint8"):
            zero = zero.new_full(zero.size(), (low + high) // 2 if has_customized_qrange else 128)
        elif name_of(dtype) == "uint16":
            zero = zero.new_full(zero.size(), 2**15)
    elif qscheme == torch.per_channel_affine_float_qparams:
        scale = (max_val - min_val) / float(high - low)
        scale = torch.where(scale > eps, scale, torch.ones_like(scale))
        return scale, -1 * min_val / scale  # zero points are floats
    else:
        scale = torch.max((above - below) / float(high - low), eps)
        zero = torch.clamp(low - torch.round(below / scale).to(torch.int), low, high)
    return scale.reshape(1) if scale.dim() == 0 else scale, zero.reshape(1) if zero.dim() == 0 else zero


def _check_range(quant_min: int, quant_max: int) -> None:
    if not quant_min <= 0 <= quant_max:
        raise AssertionError("Used-specified quantization range must include 0.")
    if quant_min >= quant_max:
        raise AssertionError("qmin must be strictly less than qmax for user-specified quantization range.")


def _range_of(dtype: Any, reduce_range: bool, quant_min: Any, quant_max: Any) -> tuple[int, int]:
    """The integers in use: the whole range of the dtype, half of it, or what was asked for."""
    if quant_min is not None and quant_max is not None:
        if reduce_range:
            return quant_min // 2, quant_max // 2
        return quant_min, quant_max
    low, high = _RANGES.get(name_of(dtype), (0, 255))
    if reduce_range and name_of(dtype) in ("qint8", "int8", "quint8", "uint8"):
        return low // 2, high // 2
    return low, high


def _is_valid(low: Any, high: Any) -> bool:
    """Whether the range was seen and is in order."""
    if low.numel() == 0 or high.numel() == 0:
        warnings.warn("must run observer before calling calculate_qparams. Returning default values.", stacklevel=3)
        return False
    if low.numel() == 1 and low.item() == float("inf") and high.item() == float("-inf"):
        warnings.warn("must run observer before calling calculate_qparams. Returning default values.", stacklevel=3)
        return False
    if bool((low > high).any()):
        raise AssertionError(f"min {low} should be less than max {high}")
    return True


# ***** extremes *****


class MinMaxObserver(UniformQuantizationObserverBase):
    """The range is from the smallest number ever seen to the largest."""

    min_val: Any
    max_val: Any

    def __init__(
        self, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, reduce_range: bool = False,
        quant_min: Any = None, quant_max: Any = None, factory_kwargs: Any = None, eps: float = EPS, is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if qscheme in (torch.per_channel_affine, torch.per_channel_symmetric, torch.per_channel_affine_float_qparams):
            raise NotImplementedError(
                "MinMaxObserver's qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine."
            )
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.register_buffer("min_val", torch.tensor(float("inf"), **(factory_kwargs or {})))
        self.register_buffer("max_val", torch.tensor(float("-inf"), **(factory_kwargs or {})))
        if self.qscheme == torch.per_tensor_symmetric and reduce_range and name_of(dtype) == "quint8":
            raise NotImplementedError("Cannot reduce range for symmetric quantization for quint8")

    def forward(self, x_orig: Any) -> Any:
        """Note the extremes; the input is returned."""
        if x_orig.numel() == 0:
            return x_orig
        low, high = torch.aminmax(x_orig.detach().to(self.min_val.dtype))
        self.min_val.copy_(torch.minimum(low, self.min_val))
        self.max_val.copy_(torch.maximum(high, self.max_val))
        return x_orig

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """Scale and zero point of the range."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """The range."""
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val.copy_(torch.tensor(float("inf")))
        self.max_val.copy_(torch.tensor(float("-inf")))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """The range follows the extremes of each input by `averaging_constant`."""

    def __init__(
        self, averaging_constant: float = 0.01, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine,
        reduce_range: bool = False, quant_min: Any = None, quant_max: Any = None, eps: float = EPS, is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if qscheme in (torch.per_channel_affine, torch.per_channel_symmetric, torch.per_channel_affine_float_qparams):
            raise NotImplementedError(
                "MovingAverageMinMaxObserver's qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine."
            )
        self.averaging_constant = averaging_constant
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver doesn't support dynamic quantization for averaging constant of "
                f"{averaging_constant}"
            )
        super().__init__(
            dtype=dtype, qscheme=qscheme, reduce_range=reduce_range, quant_min=quant_min, quant_max=quant_max, eps=eps,
            is_dynamic=is_dynamic, **kwargs,
        )  # fmt: skip

    def forward(self, x_orig: Any) -> Any:
        """Follow the extremes; the input is returned."""
        if x_orig.numel() == 0:
            return x_orig
        x = x_orig.detach().to(self.min_val.dtype)
        low, high = self.min_val, self.max_val
        if low == float("inf") and high == float("-inf"):
            low, high = torch.aminmax(x)
        else:
            now_low, now_high = torch.aminmax(x)
            low = low + self.averaging_constant * (now_low - low)
            high = high + self.averaging_constant * (now_high - high)
        self.min_val.copy_(low)
        self.max_val.copy_(high)
        return x_orig


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """A range for each place along the dim `ch_axis`, from the smallest number ever seen to the largest."""

    min_val: Any
    max_val: Any

    def __init__(
        self, ch_axis: int = 0, dtype: Any = torch.quint8, qscheme: Any = torch.per_channel_affine, reduce_range: bool = False,
        quant_min: Any = None, quant_max: Any = None, factory_kwargs: Any = None, eps: float = EPS, is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if qscheme not in (
            torch.per_channel_affine, torch.per_channel_symmetric, torch.per_channel_affine_float_qparams
        ):  # fmt: skip
            raise NotImplementedError(
                "PerChannelMinMaxObserver's qscheme only support torch.per_channel_symmetric, torch.per_channel_affine and "
                "torch.per_channel_affine_float_qparams."
            )
        if is_dynamic:
            raise NotImplementedError("PerChannelMinMaxObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", torch.tensor([], **(factory_kwargs or {})))
        self.register_buffer("max_val", torch.tensor([], **(factory_kwargs or {})))
        if self.qscheme == torch.per_channel_symmetric and reduce_range and name_of(dtype) == "quint8":
            raise NotImplementedError("Cannot reduce range for symmetric quantization for quint8")

    def _rows(self, x: Any) -> tuple[Any, Any]:
        order = list(range(x.dim()))
        order[self.ch_axis], order[0] = 0, self.ch_axis
        return torch.aminmax(torch.flatten(x.detach().permute(order).to(self.min_val.dtype), start_dim=1), dim=1)

    def forward(self, x_orig: Any) -> Any:
        """Note the extremes of each channel; the input is returned."""
        if x_orig.numel() == 0:
            return x_orig
        low, high = self._rows(x_orig)
        if self.min_val.numel() and self.max_val.numel():
            low, high = self._joined(low, high)
        self.min_val.resize_(low.shape)
        self.max_val.resize_(high.shape)
        self.min_val.copy_(low)
        self.max_val.copy_(high)
        return x_orig

    def _joined(self, low: Any, high: Any) -> tuple[Any, Any]:
        return torch.minimum(low, self.min_val), torch.maximum(high, self.max_val)

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """Scales and zero points of the ranges."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """The ranges."""
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        for name in ("min_val", "max_val"):
            kept = state_dict.get(prefix + name)
            if kept is not None:  # of another number of channels, or of none
                getattr(self, name).resize_(kept.shape)
        super()._load_from_state_dict(state_dict, prefix, *more)

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = torch.rand(0), torch.rand(0)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Ranges that follow the extremes of each channel by `averaging_constant`."""

    def __init__(
        self, averaging_constant: float = 0.01, ch_axis: int = 0, dtype: Any = torch.quint8, qscheme: Any = torch.per_channel_affine,
        reduce_range: bool = False, quant_min: Any = None, quant_max: Any = None, eps: float = EPS, is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if is_dynamic:
            raise NotImplementedError("MovingAveragePerChannelMinMaxObserver doesn't support dynamic quantization")
        super().__init__(
            ch_axis=ch_axis, dtype=dtype, qscheme=qscheme, reduce_range=reduce_range, quant_min=quant_min, quant_max=quant_max,
            eps=eps, is_dynamic=is_dynamic, **kwargs,
        )  # fmt: skip
        self.averaging_constant = averaging_constant

    def forward(self, x_orig: Any) -> Any:
        """Follow the extremes of each channel; the input is returned."""
        return super().forward(x_orig)

    def _joined(self, low: Any, high: Any) -> tuple[Any, Any]:
        rate = self.averaging_constant
        return self.min_val + rate * (low - self.min_val), self.max_val + rate * (high - self.max_val)


# ***** histograms *****


class HistogramObserver(UniformQuantizationObserverBase):
    """A histogram of all numbers seen; the range is the one that loses least of them in squared error."""

    histogram: Any
    min_val: Any
    max_val: Any

    def __init__(
        self, bins: int = 2048, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, reduce_range: bool = False,
        quant_min: Any = None, quant_max: Any = None, factory_kwargs: Any = None, eps: float = EPS, is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if qscheme in (torch.per_channel_affine, torch.per_channel_symmetric, torch.per_channel_affine_float_qparams):
            raise NotImplementedError(
                "HistogramObserver's qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine."
            )
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.bins, self.upsample_rate = bins, 16
        self.register_buffer("histogram", torch.zeros(bins, **(factory_kwargs or {})))
        self.register_buffer("min_val", torch.tensor(float("inf"), **(factory_kwargs or {})))
        self.register_buffer("max_val", torch.tensor(float("-inf"), **(factory_kwargs or {})))
        self.dst_nbins = 2 ** (4 if name_of(dtype) == "quint4x2" else 8 * dtype.itemsize)

    def reset_histogram(self, x: Any, min_val: Any, max_val: Any) -> None:
        """Begin with the histogram of `x` alone."""
        self.min_val.resize_(min_val.shape)
        self.min_val.copy_(min_val)
        self.max_val.resize_(max_val.shape)
        self.max_val.copy_(max_val)
        if min_val.numel() != 1 or max_val.numel() != 1:
            raise AssertionError("histogram min/max values must be scalar.")
        counts = torch.histc(x, self.bins, min=min_val.item(), max=max_val.item())
        self.histogram.resize_(counts.shape)
        self.histogram.copy_(counts)

    def forward(self, x_orig: Any) -> Any:
        """Count the numbers; the input is returned."""
        if x_orig.numel() == 0:
            return x_orig
        x = x_orig.detach().to(self.min_val.dtype)
        low, high = torch.aminmax(x)
        if bool(torch.isinf(low)) or bool(torch.isinf(high)):
            warnings.warn("torch.inf detected in input tensor, ignoring input", stacklevel=2)
            x = x[x.abs() != float("inf")]
            if x.numel() == 0:
                return x_orig
            low, high = torch.aminmax(x)
        before_low, before_high = self.min_val, self.max_val
        if before_low == float("inf") or before_high == float("-inf"):
            self.reset_histogram(x, low, high)
            return x_orig
        new_low, new_high = torch.minimum(before_low, low), torch.maximum(before_high, high)
        counts = torch.histc(x, self.bins, min=new_low.item(), max=new_high.item()).to(self.histogram.dtype)
        self.histogram.copy_(self._moved(new_low, new_high, counts) + counts)
        self.min_val.copy_(new_low)
        self.max_val.copy_(new_high)
        return x_orig

    def _moved(self, low: Any, high: Any, counts: Any) -> Any:
        """The histogram so far, spread over the bins of a wider range."""
        if low == self.min_val and high == self.max_val:
            return self.histogram
        if self.min_val == self.max_val:
            one = torch.histc(self.min_val.reshape(1), self.bins, min=low.item(), max=high.item())
            return one * torch.sum(self.histogram)
        return spread_over(self.histogram, (self.min_val, self.max_val), (low, high), self.upsample_rate)

    def _non_linear_param_search(self) -> tuple[Any, Any]:
        """The range of least error: its ends move inward by quantiles as long as the error falls."""
        bins = self.bins
        if self.histogram.size()[0] != bins:
            raise AssertionError("bins mismatch")
        counts = self.histogram.cpu().numpy()
        width = (self.max_val - self.min_val) / bins
        total, running = float(self.histogram.sum().item()), torch.cumsum(self.histogram, dim=0).tolist()
        step, alpha, beta, first, last, least = 1e-5, 0.0, 1.0, 0, bins - 1, float("inf")
        while alpha < beta:
            next_alpha, next_beta = alpha + step, beta - step
            left, right = first, last
            while left < last and running[left] < next_alpha * total:
                left += 1
            while right > first and running[right] > next_beta * total:
                right -= 1
            next_first, next_last = first, last
            if left - first > last - right:
                next_first, alpha = left, next_alpha
            else:
                next_last, beta = right, next_beta
            if next_first == first and next_last == last:
                continue
            error = error_of_range(counts, width.item(), next_first, next_last, self.dst_nbins)
            if error > least:
                break
            least, first, last = error, next_first, next_last
        return self.min_val + width * first, self.min_val + width * (last + 1)

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """Scale and zero point of the range that loses least."""
        if self.min_val == float("inf") and self.max_val == float("-inf"):
            warnings.warn(
                "must run observer before calling calculate_qparams. Returning default scale and zero point ",
                stacklevel=2,
            )
            return torch.tensor([1.0]), torch.tensor([0])
        return self._calculate_qparams(*self._non_linear_param_search())

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *more: Any) -> None:
        version = local_metadata.get("version", None)
        if version is None or version < 3:
            for name in ("min_val", "max_val"):
                if state_dict.get(prefix + name) is not None and state_dict[prefix + name].shape == torch.Size([0]):
                    state_dict[prefix + name] = torch.tensor(float("inf" if name == "min_val" else "-inf"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *more)

    def extra_repr(self) -> str:
        """The range seen."""
        return f"min_val={self.min_val}, max_val={self.max_val}"


# ***** observers that measure nothing *****


class FixedQParamsObserver(ObserverBase):
    """A scale and a zero point that are known beforehand, as of what a sigmoid returns."""

    scale: Any
    zero_point: Any

    def __init__(
        self, scale: Any, zero_point: Any, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, quant_min: int = 0,
        quant_max: int = 255, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", torch.tensor([scale], dtype=torch.float))
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.int))

    def forward(self, X: Any) -> Any:
        """The input."""
        return X

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """The given scale and zero point."""
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Watches nothing: only says which dtype belongs here, as for dynamic quantization."""

    def __init__(
        self, dtype: Any = torch.float32, custom_op_name: str = "", compute_dtype: Any = None, quant_min: Any = None,
        quant_max: Any = None, qscheme: Any = None, eps: Any = None, is_dynamic: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dtype=dtype, is_dynamic=is_dynamic)
        self.qscheme = torch.per_tensor_affine if qscheme is None else qscheme
        self.quant_min, self.quant_max, self.eps, self.custom_op = quant_min, quant_max, eps, custom_op_name
        if compute_dtype:
            is_dynamic = True
            warnings.warn("Please use `is_dynamic` instead of `compute_dtype`. `compute_dtype` will be deprecated in a future release of PyTorch.", stacklevel=2)  # fmt: skip
        self.is_dynamic = is_dynamic

    def forward(self, x: Any) -> Any:
        """The input."""
        return x

    def extra_repr(self) -> str:
        """The dtype, and whether ranges are found at run time."""
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """There is nothing to calculate from: an exception."""
        raise Exception("calculate_qparams should not be called for PlaceholderObserver")


class RecordingObserver(ObserverBase):
    """Keeps every tensor that passes, for looking at."""

    def __init__(self, dtype: Any = torch.quint8) -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.tensor_val: list[Any] = []

    def forward(self, x: Any) -> Any:
        """Keep a copy; the input is returned."""
        self.tensor_val.append(x.clone())
        return x

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """There is nothing to calculate from: an exception."""
        raise Exception("calculate_qparams should not be called for RecordingObserver")

    def get_tensor_value(self) -> list[Any]:
        """The tensors so far."""
        return self.tensor_val


class NoopObserver(ObserverBase):
    """Watches nothing; for casts to float16."""

    def __init__(self, dtype: Any = torch.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.dtype, self.custom_op = dtype, custom_op_name

    def forward(self, x: Any) -> Any:
        """The input."""
        return x

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """There is nothing to calculate from: an exception."""
        raise Exception("calculate_qparams should not be called for NoopObserver")


class ReuseInputObserver(ObserverBase):
    """Quantizes results as the operator's input is, as after a reshape."""

    def __init__(self) -> None:
        super().__init__(torch.quint8, is_dynamic=False)

    def forward(self, x: Any) -> Any:
        """The input."""
        return x

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """There is nothing to calculate from: an exception."""
        raise Exception("calculate_qparams should not be called for ReuseInputObserver")


class AffineQuantizedObserverBase(ObserverBase, metaclass=ABCMeta):
    """Base of observers that quantize by blocks of any shape (`granularity`), as torchao's do."""

    def __init__(
        self, mapping_type: Any, target_dtype: Any, granularity: Any, quant_min: Any = None, quant_max: Any = None, eps: Any = None,
        scale_dtype: Any = None, zero_point_dtype: Any = None, preserve_zero: bool = True, zero_point_domain: Any = ZeroPointDomain.INT,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(target_dtype, **{k: v for k, v in kwargs.items() if k == "is_dynamic"})
        if granularity is None:
            raise AssertionError("granularity is None")
        self.mapping_type, self.target_dtype, self.granularity = mapping_type, target_dtype, granularity
        self.quant_min, self.quant_max, self.eps, self.scale_dtype = quant_min, quant_max, eps, scale_dtype
        self.zero_point_dtype, self.preserve_zero, self.zero_point_domain = (
            zero_point_dtype,
            preserve_zero,
            zero_point_domain,
        )
        self.block_size: Any = None

    @abstractmethod
    def forward(self, input: Any) -> Any:
        """The input, unchanged."""

    @abstractmethod
    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """Scale and zero point of each block."""

    def convert(self, model: Any, observer_node: Any) -> Any:
        """Replace this observer in a graph by operators; the subclasses of torchao say which."""
        raise NotImplementedError(f"{type(self).__name__}.convert: subclasses say by which operators they are replaced")


# ***** states *****

_STATE = re.compile(r"activation_post_process(\.|_)|\.(min_val|max_val|histogram|eps|scale|zero_point)$")


def get_observer_state_dict(mod: Any) -> Any:
    """States of a model's observers, by name."""
    held: OrderedDict[str, Any] = OrderedDict()
    for name, value in mod.state_dict().items():
        if "activation_post_process" in name or "observer" in name:
            held[name] = value
    held._metadata = {  # type: ignore[attr-defined]
        k: v for k, v in mod.state_dict()._metadata.items() if "observer" in k or "activation_post_process" in k
    }
    return held


def load_observer_state_dict(mod: Any, obs_dict: Any) -> None:
    """Give the observers of a model what `get_observer_state_dict` returned."""
    missing: list[str] = []
    unexpected: list[str] = []
    metadata = getattr(obs_dict, "_metadata", None) or {}
    for name, module in mod.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(module, ObserverBase) or "FakeQuant" in type(module).__name__:
            module._load_from_state_dict(
                obs_dict, prefix, metadata.get(name, {"version": 3}), False, missing, unexpected, []
            )
    for key in missing:
        if "observer" in key or "activation_post_process" in key:
            raise Exception(f"Missing keys for observer {key} in state_dict")
    for key in unexpected:
        if "observer" in key or "activation_post_process" in key:
            raise Exception(f"Unexpected keys for observer {key} in state_dict")


# ***** usual ones *****

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(
    dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, quant_min=-127, quant_max=127, eps=2**-12
)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=torch.qint8, qscheme=torch.per_channel_symmetric
)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    dtype=torch.qint8, qscheme=torch.per_channel_symmetric, quant_min=-127, quant_max=127, eps=2**-12
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=torch.quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=torch.quint8, qscheme=torch.per_channel_affine_float_qparams, ch_axis=0
)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=torch.quint4x2, qscheme=torch.per_channel_affine_float_qparams, ch_axis=0
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=torch.quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=torch.quint8, quant_min=0, quant_max=255
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
