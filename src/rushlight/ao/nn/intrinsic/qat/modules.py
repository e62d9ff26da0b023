"""Fused modules for training.

Batch norm's scale is known before the convolution runs (from the running variance), so the weight is rounded as it will
be once folded: w' = fake_quant(w * gamma / sigma).  The convolution's result is divided by that scale again before batch
norm sees it ("A Quantization-Friendly Separable Convolution", and Jacob et al., 2018, section 3.2).
"""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn import qat as nnqat
from rushlight.nn import functional
from rushlight.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

__all__: list[str] = []


class _Normalised:
    """A layer with batch norm after it, both trained as one that is rounded."""

    _FLOAT_MODULE: Any
    _NORM: Any = nn.BatchNorm1d
    _RELU = False
    bn: Any
    qconfig: Any
    freeze_bn: bool

    def _begin(self, channels: int, settings: tuple[float, float], freeze_bn: bool, bias: bool, qconfig: Any) -> None:
        if not qconfig:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig = qconfig
        self.freeze_bn = freeze_bn if self.training else True
        self.bn = self._NORM(channels, *settings, True, True)
        self.weight_fake_quant = qconfig.weight()
        if bias:
            self.bias = nn.Parameter(torch.zeros(channels))
        else:
            self.register_parameter("bias", None)  # type: ignore[attr-defined]
        if self.training:
            self.freeze_bn_stats() if freeze_bn else self.update_bn_stats()
        else:
            self.freeze_bn_stats()

    def reset_running_stats(self) -> None:
        """Begin batch norm's statistics anew."""
        self.bn.reset_running_stats()

    def reset_bn_parameters(self) -> None:
        """Draw batch norm's parameters anew."""
        self.bn.reset_running_stats()
        nn.init.uniform_(self.bn.weight)
        nn.init.zeros_(self.bn.bias)

    def update_bn_stats(self) -> Any:
        """Let batch norm follow the batches."""
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self) -> Any:
        """Let batch norm use its running statistics from now on."""
        self.freeze_bn = True
        self.bn.training = False
        return self

    def train(self, mode: bool = True) -> Any:
        """Training or evaluation; frozen statistics stay so."""
        self.training = mode
        if not self.freeze_bn:
            for module in self.children():  # type: ignore[attr-defined]
                module.train(mode)
        return self

    def _layer(self, input: Any, weight: Any) -> Any:
        """The layer without its bias."""
        raise NotImplementedError

    def forward(self, input: Any) -> Any:
        """The layer with its folded weight rounded, then batch norm."""
        if self.bn.running_var is None:
            raise AssertionError("self.bn.running_var must not be None")
        weight: Any = self.weight  # type: ignore[attr-defined]
        scale = self.bn.weight / torch.sqrt(self.bn.running_var + self.bn.eps)
        rows = [-1] + [1] * (weight.dim() - 1)
        y = self._layer(input, self.weight_fake_quant(weight * scale.reshape(rows)))
        columns = [1, -1] + [1] * (y.dim() - 2)
        y = y / scale.reshape(columns)
        if self.bias is not None:
            y = y + self.bias.reshape(columns)
        y = self.bn(y)
        return functional.relu(y) if self._RELU else y

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """This module with the parameters of a fused float one, whose `qconfig` says how the weight is rounded."""
        if type(mod) is not cls._FLOAT_MODULE:
            raise AssertionError(f"qat.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}")
        if not getattr(mod, "qconfig", None):
            raise AssertionError("Input float module must have a valid qconfig")
        layer, bn = mod[0], mod[1]
        made = cls(*cls._settings(layer), eps=bn.eps, momentum=bn.momentum, freeze_bn=False, qconfig=mod.qconfig)  # type: ignore[call-arg]
        made.weight, made.bias = layer.weight, layer.bias  # type: ignore[attr-defined]
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(made.bn, name, getattr(bn, name))
        made.train(mod.training)
        return made

    @classmethod
    def _settings(cls, mod: Any) -> Any:
        raise NotImplementedError

    def _folded(self, fold: Any) -> tuple[Any, Any]:
        bn = self.bn
        return fold(self.weight, self.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)  # type: ignore[attr-defined]


class _ConvBnNd(_Normalised):
    """A convolution with batch norm."""

    _QUANTIZED_FLOAT: Any = None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: Any = None, padding_mode: str = "zeros", eps: float = 1e-05, momentum: float = 0.1,
        freeze_bn: bool = False, qconfig: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(  # type: ignore[call-arg]
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, False, padding_mode
        )
        self._begin(out_channels, (eps, momentum), freeze_bn, bool(bias), qconfig)

    def _layer(self, input: Any, weight: Any) -> Any:
        return self._conv_forward(input, weight, None)  # type: ignore[attr-defined]

    @classmethod
    def _settings(cls, mod: Any) -> Any:
        return (
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.dilation, mod.groups,
            mod.bias is not None, mod.padding_mode,
        )  # fmt: skip

    def to_float(self) -> Any:
        """The float convolution with batch norm folded in, and ReLU after it where it was."""
        base = next(c for c in type(self).__mro__ if c.__module__.partition(".")[2].startswith("nn."))
        made = base(*self._settings(self)[:7], True, self.padding_mode)  # type: ignore[attr-defined]
        made.weight, made.bias = self._folded(fuse_conv_bn_weights)
        made.train(self.training)
        return self._QUANTIZED_FLOAT(made, nn.ReLU()) if self._RELU else made


class ConvBn1d(_ConvBnNd, nn.Conv1d):
    """Conv1d and BatchNorm1d, trained as one."""

    _FLOAT_MODULE: Any = nni.ConvBn1d
    _NORM: Any = nn.BatchNorm1d


class ConvBn2d(_ConvBnNd, nn.Conv2d):
    """Conv2d and BatchNorm2d, trained as one."""

    _FLOAT_MODULE: Any = nni.ConvBn2d
    _NORM: Any = nn.BatchNorm2d


class ConvBn3d(_ConvBnNd, nn.Conv3d):
    """Conv3d and BatchNorm3d, trained as one."""

    _FLOAT_MODULE: Any = nni.ConvBn3d
    _NORM: Any = nn.BatchNorm3d


class ConvBnReLU1d(ConvBn1d):
    """Conv1d, BatchNorm1d and ReLU, trained as one."""

    _FLOAT_MODULE, _RELU, _QUANTIZED_FLOAT = nni.ConvBnReLU1d, True, nni.ConvReLU1d


class ConvBnReLU2d(ConvBn2d):
    """Conv2d, BatchNorm2d and ReLU, trained as one."""

    _FLOAT_MODULE, _RELU, _QUANTIZED_FLOAT = nni.ConvBnReLU2d, True, nni.ConvReLU2d


class ConvBnReLU3d(ConvBn3d):
    """Conv3d, BatchNorm3d and ReLU, trained as one."""

    _FLOAT_MODULE, _RELU, _QUANTIZED_FLOAT = nni.ConvBnReLU3d, True, nni.ConvReLU3d


class _ConvReLU:
    """ReLU after a convolution with a rounded weight."""

    def forward(self, input: Any) -> Any:
        """relu of the convolution with its weight rounded."""
        return functional.relu(super().forward(input))  # type: ignore[misc]


class ConvReLU1d(_ConvReLU, nnqat.Conv1d):
    """Conv1d and ReLU with a rounded weight."""

    _FLOAT_MODULE = nni.ConvReLU1d


class ConvReLU2d(_ConvReLU, nnqat.Conv2d):
    """Conv2d and ReLU with a rounded weight."""

    _FLOAT_MODULE = nni.ConvReLU2d


class ConvReLU3d(_ConvReLU, nnqat.Conv3d):
    """Conv3d and ReLU with a rounded weight."""

    _FLOAT_MODULE = nni.ConvReLU3d


class LinearReLU(nnqat.Linear):
    """Linear and ReLU with a rounded weight."""

    _FLOAT_MODULE = nni.LinearReLU

    def forward(self, input: Any) -> Any:
        """relu of the layer with its weight rounded."""
        return functional.relu(super().forward(input))


class LinearBn1d(_Normalised, nn.Linear):
    """Linear and BatchNorm1d, trained as one."""

    _FLOAT_MODULE = nni.LinearBn1d

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, eps: float = 1e-05, momentum: float = 0.1,
        freeze_bn: bool = False, qconfig: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, False)
        self._begin(out_features, (eps, momentum), freeze_bn, bias, qconfig)

    def _layer(self, input: Any, weight: Any) -> Any:
        return functional.linear(input, weight)

    @classmethod
    def _settings(cls, mod: Any) -> Any:
        return mod.in_features, mod.out_features, mod.bias is not None

    def to_float(self) -> Any:
        """The float layer with batch norm folded in."""
        made = nn.Linear(self.in_features, self.out_features)
        made.weight, made.bias = self._folded(fuse_linear_bn_weights)
        return made


def update_bn_stats(mod: Any) -> None:
    """Let the batch norm in a fused module follow the batches; for `model.apply`."""
    if isinstance(mod, _Normalised):
        mod.update_bn_stats()


def freeze_bn_stats(mod: Any) -> None:
    """Let the batch norm in a fused module use its running statistics; for `model.apply`."""
    if isinstance(mod, _Normalised):
        mod.freeze_bn_stats()
