"""Fake quantization: floats rounded to what integers can express, in training and in reference models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight._interface.base import trace_marks
from rushlight.ao.quantization.observer import (
    FixedQParamsObserver,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverBase,
    _with_args,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)

__all__ = [
    "FakeQuantize", "FakeQuantizeBase", "FixedQParamsFakeQuantize", "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant", "default_dynamic_fake_quant", "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit", "default_fake_quant", "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant", "default_fused_act_fake_quant", "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant", "default_histogram_fake_quant", "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant", "default_weight_fake_quant", "disable_fake_quant", "disable_observer",
    "enable_fake_quant", "enable_observer", "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]  # fmt: skip


def _is_per_channel(qscheme: Any) -> bool:
    return qscheme in (torch.per_channel_symmetric, torch.per_channel_affine, torch.per_channel_affine_float_qparams)


class FakeQuantizeBase(ABC, nn.Module):
    """Base of fake quantization: two switches, one for rounding and one for watching, which are buffers of its state."""

    fake_quant_enabled: Any
    observer_enabled: Any

    def __init__(self) -> None:
        super().__init__()
        # uint8 buffers, so that replicas and saved states carry the switches
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.uint8))

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """The input, rounded to what integers can express."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Scale and zero point."""

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Round from now on."""
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self) -> None:
        """Round no more."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Watch from now on."""
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self) -> None:
        """Watch no more: scales stay as they are."""
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> Any:
        """A factory with these arguments."""
        return _with_args(cls, **kwargs)


class FakeQuantize(FakeQuantizeBase):
    """Fake quantization by the scale that an observer finds while it watches.

    >>> import rushlight as torch
    >>> quant = torch.ao.quantization.FakeQuantize(quant_min=0, quant_max=15)
    >>> quant(torch.tensor([0.0, 0.52, 1.5]))
    tensor([0.0000, 0.5000, 1.5000])
    """

    scale: Any
    zero_point: Any

    def __init__(
        self, observer: Any = MovingAverageMinMaxObserver, quant_min: Any = None, quant_max: Any = None, is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if quant_min is not None and quant_max is not None:
            if quant_min > quant_max:
                raise AssertionError("quant_min must be less than or equal to quant_max")
            dtype = observer_kwargs.get("dtype", torch.quint8)
            if hasattr(observer, "p"):
                dtype = getattr(getattr(observer, "p", {}), "keywords", {}).get("dtype", dtype)
            observer_kwargs |= {"quant_min": quant_min, "quant_max": quant_max}
        observer_kwargs["is_dynamic"] = is_dynamic
        self.activation_post_process = observer(**observer_kwargs)
        self.quant_min, self.quant_max = self.activation_post_process.quant_min, self.activation_post_process.quant_max
        self.is_dynamic = self.activation_post_process.is_dynamic
        zero = (
            torch.float if self.activation_post_process.qscheme == torch.per_channel_affine_float_qparams else torch.int
        )
        self.register_buffer("scale", torch.tensor([1.0], dtype=torch.float))
        self.register_buffer("zero_point", torch.tensor([0], dtype=zero))
        self.dtype, self.qscheme = self.activation_post_process.dtype, self.activation_post_process.qscheme
        self.ch_axis = getattr(self.activation_post_process, "ch_axis", -1)
        self.is_per_channel = _is_per_channel(self.qscheme)

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """Scale and zero point of the observer."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Any) -> Any:
        """The input, rounded where rounding is on."""
        if self.observer_enabled[0] == 1:
            self.activation_post_process(X.detach())
            scale, zero = self.calculate_qparams()
            if self.scale.shape != scale.shape:
                self.scale.resize_(scale.shape)
                self.zero_point.resize_(zero.shape)
            self.scale.copy_(scale)
            self.zero_point.copy_(zero)
        if self.fake_quant_enabled[0] == 1:
            # the next call changes both, before the gradient of this one is asked for
            scale, zero = self.scale.clone(), self.zero_point.clone()
            if self.is_per_channel:
                return torch.fake_quantize_per_channel_affine(
                    X, scale, zero, self.ch_axis, self.quant_min, self.quant_max
                )
            return torch.fake_quantize_per_tensor_affine(X, scale, zero, self.quant_min, self.quant_max)
        return X

    def extra_repr(self) -> str:
        """The switches, the range and the scale."""
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, ch_axis={self.ch_axis}, scale={self.scale}, "
            f"zero_point={self.zero_point}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: Any, missing_keys: Any, *more: Any
    ) -> None:
        for name in ("scale", "zero_point"):
            kept = state_dict.get(prefix + name)
            if kept is not None:
                getattr(self, name).resize_(kept.shape)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *more)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Fake quantization by a scale that is known beforehand."""

    def __init__(self, observer: Any) -> None:
        super().__init__(observer=_without_dynamic(observer))
        if type(self.activation_post_process) is not FixedQParamsObserver:
            raise AssertionError(f"{type(self).__name__}'s observer must be a FixedQParamsObserver")
        self.scale, self.zero_point = self.activation_post_process.scale, self.activation_post_process.zero_point

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """The given scale and zero point."""
        return self.scale, self.zero_point

    def extra_repr(self) -> str:
        """The switches, the range and the scale."""
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}, dtype={self.dtype}, quant_min={self.quant_min}, quant_max={self.quant_max}, "
            f"qscheme={self.qscheme}"
        )


def _without_dynamic(observer: Any) -> Any:
    return lambda **kwargs: observer(**{k: v for k, v in kwargs.items() if k != "is_dynamic"})


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """`FakeQuantize` over a moving average in one operator (`fused_moving_avg_obs_fake_quant`)."""

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        if not isinstance(
            self.activation_post_process, (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
        ):
            raise AssertionError("Fused observer+fake_quant module only works with MovingAverageMinMaxObserver")
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.long))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.long))
        self.is_symmetric_quant = self.qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric)

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """Scale and zero point of the observer."""
        return self.activation_post_process.calculate_qparams()

    def extra_repr(self) -> str:
        """The switches, the range and the scale."""
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}, dtype={self.dtype}, quant_min={self.quant_min}, quant_max={self.quant_max}, "
            f"qscheme={self.qscheme}, reduce_range={self.activation_post_process.reduce_range}"
        )

    def forward(self, X: Any) -> Any:
        """The input, rounded where rounding is on."""
        return torch.fused_moving_avg_obs_fake_quant(
            X, self.observer_enabled, self.fake_quant_enabled, self.activation_post_process.min_val,
            self.activation_post_process.max_val, self.scale, self.zero_point, self.activation_post_process.averaging_constant,
            self.quant_min, self.quant_max, self.ch_axis, self.is_per_channel, self.is_symmetric_quant,
        )  # fmt: skip


# ***** usual ones *****

_TENSOR, _CHANNEL = MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver
default_fake_quant = FakeQuantize.with_args(
    observer=_TENSOR, quant_min=0, quant_max=255, dtype=torch.quint8, qscheme=torch.per_tensor_affine, reduce_range=True
)
default_weight_fake_quant = FakeQuantize.with_args(
    observer=_TENSOR,
    quant_min=-128,
    quant_max=127,
    dtype=torch.qint8,
    qscheme=torch.per_tensor_symmetric,
    reduce_range=False,
)
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=_TENSOR, quant_min=0, quant_max=255, is_dynamic=True, dtype=torch.quint8, averaging_constant=1
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=_CHANNEL, quant_min=-128, quant_max=127, dtype=torch.qint8, qscheme=torch.per_channel_symmetric, reduce_range=False,
    ch_axis=0,
)  # fmt: skip
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=_CHANNEL, qscheme=torch.per_channel_affine_float_qparams, dtype=torch.quint8, quant_min=0, quant_max=255, ch_axis=0,
    averaging_constant=1,
)  # fmt: skip
default_embedding_fake_quant_4bit = FakeQuantize.with_args(
    observer=_CHANNEL,
    qscheme=torch.per_channel_affine_float_qparams,
    ch_axis=0,
    dtype=torch.quint4x2,
    averaging_constant=1,
)
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver,
    quant_min=0,
    quant_max=255,
    dtype=torch.quint8,
    qscheme=torch.per_tensor_affine,
    reduce_range=True,
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=_TENSOR, quant_min=0, quant_max=255, dtype=torch.quint8
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=_TENSOR, quant_min=-128, quant_max=127, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric
)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=_CHANNEL, quant_min=-128, quant_max=127, dtype=torch.qint8, qscheme=torch.per_channel_symmetric
)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=_TENSOR, quant_min=-127, quant_max=127, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, eps=2**-12
)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=_CHANNEL, quant_min=-127, quant_max=127, dtype=torch.qint8, qscheme=torch.per_channel_symmetric, eps=2**-12
)

# ***** switches of whole models: `model.apply(disable_observer)` *****


@trace_marks.changes_later_calls
def disable_fake_quant(mod: Any) -> None:
    """Switch the rounding of a module off, if it has any; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


@trace_marks.changes_later_calls
def enable_fake_quant(mod: Any) -> None:
    """Switch the rounding of a module on, if it has any; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


@trace_marks.changes_later_calls
def disable_observer(mod: Any) -> None:
    """Let a module keep its scale, if it has one; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


@trace_marks.changes_later_calls
def enable_observer(mod: Any) -> None:
    """Let a module find its scale, if it has one; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()


def _is_activation_post_process(module: Any) -> bool:
    """Whether a module watches values: an observer or a fake quantization."""
    return isinstance(module, (ObserverBase, FakeQuantizeBase))
