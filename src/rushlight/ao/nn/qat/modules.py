"""Float modules with a rounded weight: the float class, `weight_fake_quant`, and ways from and to floats."""

from __future__ import annotations

from typing import Any

from rushlight import nn
from rushlight.ao.nn import intrinsic as nni
from rushlight.nn import functional

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]


def swapped(cls: Any, mod: Any, made: Any) -> Any:
    """`made` with the parameters of `mod`, and its qconfig."""
    made.weight = mod.weight
    if getattr(made, "bias", None) is not None or getattr(mod, "bias", None) is not None:
        made.bias = mod.bias
    return made


def required(cls: Any, mod: Any) -> Any:
    """The qconfig of a float module of the type that `cls` is made from; AssertionError otherwise."""
    if type(mod) is not cls._FLOAT_MODULE and not isinstance(mod, cls._FLOAT_MODULE):
        raise AssertionError(f"qat.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}")
    if not getattr(mod, "qconfig", None):
        raise AssertionError("Input float module must have a valid qconfig")
    return mod.qconfig


class _Rounded:
    """Common base of the modules here."""

    _FLOAT_MODULE: Any = nn.Module
    qconfig: Any

    def _begin(self, qconfig: Any, device: Any = None, dtype: Any = None) -> None:
        if not qconfig:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """This module with the parameters of a float one, whose `qconfig` says how the weight is rounded."""
        qconfig = required(cls, mod)
        if isinstance(mod, nni._FusedModule):
            mod = mod[0]
        return swapped(cls, mod, cls(*cls._settings(mod), qconfig=qconfig))  # type: ignore[call-arg]

    @classmethod
    def _settings(cls, mod: Any) -> Any:
        raise NotImplementedError

    def to_float(self) -> Any:
        """The float module with these parameters."""
        float_class = self._FLOAT_MODULE
        base = next(c for c in type(self).__mro__ if c.__module__.partition(".")[2].startswith("nn."))
        made = base(*self._settings(self))
        swapped(type(self), self, made)
        if issubclass(float_class, nni._FusedModule):
            return float_class(made, nn.ReLU())
        made.train(self.training)  # type: ignore[attr-defined]
        return made


class Linear(_Rounded, nn.Linear):
    """`nn.Linear` with a rounded weight.

    >>> import rushlight as torch
    >>> qconfig = torch.ao.quantization.get_default_qat_qconfig("onednn")
    >>> torch.ao.nn.qat.Linear(4, 2, qconfig=qconfig)(torch.ones(1, 4)).shape
    torch.Size([1, 2])
    """

    _FLOAT_MODULE = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._begin(qconfig)

    def forward(self, input: Any) -> Any:
        """The layer with its weight rounded."""
        return functional.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def _settings(cls, mod: Any) -> Any:
        return mod.in_features, mod.out_features, mod.bias is not None


class _ConvNd(_Rounded):
    """A convolution with a rounded weight."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", qconfig: Any = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(  # type: ignore[call-arg]
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self._begin(qconfig)

    def forward(self, input: Any) -> Any:
        """The convolution with its weight rounded."""
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)  # type: ignore[attr-defined]

    @classmethod
    def _settings(cls, mod: Any) -> Any:
        return (
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.dilation, mod.groups,
            mod.bias is not None, mod.padding_mode,
        )  # fmt: skip


class Conv1d(_ConvNd, nn.Conv1d):
    """`nn.Conv1d` with a rounded weight."""

    _FLOAT_MODULE = nn.Conv1d


class Conv2d(_ConvNd, nn.Conv2d):
    """`nn.Conv2d` with a rounded weight."""

    _FLOAT_MODULE = nn.Conv2d


class Conv3d(_ConvNd, nn.Conv3d):
    """`nn.Conv3d` with a rounded weight."""

    _FLOAT_MODULE = nn.Conv3d


class Embedding(_Rounded, nn.Embedding):
    """`nn.Embedding` with a rounded weight."""

    _FLOAT_MODULE = nn.Embedding

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None, device: Any = None, dtype: Any = None,
        qconfig: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, device=device,
            dtype=dtype,
        )  # fmt: skip
        self._begin(qconfig)

    def forward(self, input: Any) -> Any:
        """The rows of the rounded weight."""
        return functional.embedding(
            input, self.weight_fake_quant(self.weight), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip

    @classmethod
    def _settings(cls, mod: Any) -> Any:
        return (
            mod.num_embeddings, mod.embedding_dim, mod.padding_idx, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.sparse,
        )  # fmt: skip


class EmbeddingBag(_Rounded, nn.EmbeddingBag):
    """`nn.EmbeddingBag` with a rounded weight."""

    _FLOAT_MODULE = nn.EmbeddingBag

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        mode: str = "mean", sparse: bool = False, _weight: Any = None, include_last_offset: bool = False, padding_idx: Any = None,
        qconfig: Any = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, mode, sparse, _weight, include_last_offset,
            padding_idx, device=device, dtype=dtype,
        )  # fmt: skip
        self._begin(qconfig)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """The bags of the rounded weight."""
        return functional.embedding_bag(
            input, self.weight_fake_quant(self.weight), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def _settings(cls, mod: Any) -> Any:
        return (
            mod.num_embeddings, mod.embedding_dim, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.mode, mod.sparse, None,
            mod.include_last_offset, mod.padding_idx,
        )  # fmt: skip
