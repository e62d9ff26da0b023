"""Normalisation without running statistics: `LayerNorm`, `GroupNorm`, `RMSNorm`, `LocalResponseNorm`."""

from __future__ import annotations

import numbers
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def add_affine(module: Any, size: Any, affine: bool, bias: bool, device: Any, dtype: Any) -> None:
    """Give a normalising module its `weight` and `bias`, or None in their places."""
    for name, wanted in (("weight", affine), ("bias", affine and bias)):
        if wanted:
            setattr(module, name, Parameter(rushlight.empty(size, device=device, dtype=dtype)))
        else:
            module.register_parameter(name, None)


def reset_affine(module: Any) -> None:
    """Scale one, shift zero."""
    if module.weight is not None:
        init.ones_(module.weight)
    if getattr(module, "bias", None) is not None:
        init.zeros_(module.bias)


def _as_shape(normalized_shape: Any) -> tuple[int, ...]:
    return (int(normalized_shape),) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)


class LayerNorm(Module):
    """Normalises over the last dimensions, whose sizes are `normalized_shape`: (x - mean) / sqrt(var + eps) * w + b.

    Example: `nn.LayerNorm(10)(torch.randn(20, 5, 10))`
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        add_affine(self, self.normalized_shape, elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scale to one and the shift to zero."""
        reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input` (*, *normalized_shape)."""
        members = self.__dict__["_parameters"]
        if "weight" in members and "bias" in members:
            return F.layer_norm(input, self.normalized_shape, members["weight"], members["bias"], self.eps)
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Normalises each sample over groups of channels: input (N, num_channels, *).

    Example: `nn.GroupNorm(3, 6)(torch.randn(20, 6, 10, 10))`
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        add_affine(self, num_channels, affine, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scale to one and the shift to zero."""
        reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input` (N, num_channels, *)."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root of the mean square over the last dimensions. `eps=None` means the dtype's epsilon.

    Example: `nn.RMSNorm([2, 3])(torch.randn(2, 2, 3))`
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(rushlight.empty(self.normalized_shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scale to one."""
        reset_affine(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` (*, *normalized_shape)."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(Module):
    """Divides each element by a power of the mean square over `size` neighbouring channels.

    >>> import rushlight as torch
    >>> torch.nn.LocalResponseNorm(2, alpha=1.0)(torch.ones(1, 2, 2)).shape
    torch.Size([1, 2, 2])
    """

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input` (N, C, *)."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Local response normalisation of images (N, C, H, W), kept for old Torch models.

    It differs from `LocalResponseNorm` in two ways, both PyTorch's: windows of an even size reach as far as those of
    the next odd one, and the first channel, once in the running sum of squares, stays in it. (The gradient is the slope
    of that, which PyTorch's is not.)

    Example: `nn.CrossMapLRN2d(3)(torch.randn(1, 5, 4, 4))`
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input`; ValueError unless it has four dims."""
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        reach = (self.size - 1) // 2
        square = input * input
        padded = F.pad(square, (0, 0, 0, 0, reach, reach))
        near = padded.unfold(1, 2 * reach + 1, 1).sum(-1)
        late = rushlight.arange(near.shape[1], device=near.device) > reach
        first = rushlight.where(late.reshape(1, -1, 1, 1), square[:, :1], 0.0)
        scale = (near + first) * (self.alpha / self.size) + self.k
        return input * scale ** (-self.beta)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
