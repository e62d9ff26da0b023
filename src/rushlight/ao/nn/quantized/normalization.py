"""Normalisation over integers: floats in between, one scale for the result."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.nn.quantized.sources import output_parameters
from rushlight.ao.operators.namespace import operators as ops

__all__ = ["BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm"]


class _Scaled:
    """A float module whose result is quantized by the buffers `scale` and `zero_point`."""

    scale: Any
    zero_point: Any

    def _take(self, scale: Any, zero_point: Any, weight: Any = None, bias: Any = None) -> None:
        self.register_buffer("scale", torch.tensor(scale))  # type: ignore[attr-defined]
        self.register_buffer("zero_point", torch.tensor(zero_point))  # type: ignore[attr-defined]
        if weight is not None or bias is not None:
            self.weight, self.bias = weight, bias

    def _to(self) -> tuple[float, int]:
        return float(self.scale), int(self.zero_point)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The module of an observed float one."""
        return cls._like(mod, *output_parameters(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Any:
        """The module of a module of a reference model."""
        return cls._like(mod, float(scale), int(zero_point))

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        raise NotImplementedError


class LayerNorm(_Scaled, nn.LayerNorm):
    """Normalised over the last dims, quantized by `scale` and `zero_point`."""

    def __init__(
        self, normalized_shape: Any, weight: Any, bias: Any, scale: Any, zero_point: Any, eps: float = 1e-5,
        elementwise_affine: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine)
        self._take(scale, zero_point, weight, bias)

    def forward(self, input: Any) -> Any:
        """The normalised numbers, quantized."""
        return ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, *self._to())

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(mod.normalized_shape, mod.weight, mod.bias, scale, zero_point, mod.eps, mod.elementwise_affine)


class GroupNorm(_Scaled, nn.GroupNorm):
    """Normalised over groups of channels, quantized by `scale` and `zero_point`."""

    def __init__(
        self, num_groups: int, num_channels: int, weight: Any, bias: Any, scale: Any, zero_point: Any, eps: float = 1e-5,
        affine: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(num_groups, num_channels, eps, affine)
        self._take(scale, zero_point, weight, bias)

    def forward(self, input: Any) -> Any:
        """The normalised numbers, quantized."""
        return ops.group_norm(input, self.num_groups, self.weight, self.bias, self.eps, *self._to())

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(mod.num_groups, mod.num_channels, mod.weight, mod.bias, scale, zero_point, mod.eps, mod.affine)


class _InstanceNorm(_Scaled):
    def __init__(
        self, num_features: int, weight: Any, bias: Any, scale: Any, zero_point: Any, eps: float = 1e-5, momentum: float = 0.1,
        affine: bool = False, track_running_stats: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats)  # type: ignore[call-arg]
        self._take(scale, zero_point, weight, bias)

    def forward(self, input: Any) -> Any:
        """The normalised numbers, quantized."""
        return ops.instance_norm(input, self.weight, self.bias, self.eps, *self._to())  # type: ignore[attr-defined]

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(mod.num_features, mod.weight, mod.bias, scale, zero_point, mod.eps, mod.momentum, mod.affine)


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """Normalised over each channel of each sequence, quantized by `scale` and `zero_point`."""


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """Normalised over each channel of each image, quantized by `scale` and `zero_point`."""


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """Normalised over each channel of each volume, quantized by `scale` and `zero_point`."""


class _BatchNorm(_Scaled):
    _RELU = False

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(num_features, eps, momentum, True, True)  # type: ignore[call-arg]
        self._take(1.0, 0)

    def forward(self, input: Any) -> Any:
        """The numbers normalised by running statistics, quantized."""
        run = ops.batch_norm_relu if self._RELU else ops.batch_norm
        return run(input, self.weight, self.bias, self.running_mean, self.running_var, self.eps, *self._to())  # type: ignore[attr-defined]

    @classmethod
    def _like(cls, mod: Any, scale: float, zero_point: int) -> Any:
        bn = mod[0] if isinstance(mod, nn.Sequential) else mod
        made: Any = cls(bn.num_features, bn.eps)
        made.weight, made.bias, made.running_mean, made.running_var = (
            bn.weight,
            bn.bias,
            bn.running_mean,
            bn.running_var,
        )
        made.scale.fill_(scale)
        made.zero_point.fill_(zero_point)
        return made


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """Images normalised by running statistics, quantized by `scale` and `zero_point`."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """Volumes normalised by running statistics, quantized by `scale` and `zero_point`."""
