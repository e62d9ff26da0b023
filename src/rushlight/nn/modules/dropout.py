"""Dropout: random zeros in training, identity in evaluation."""

from __future__ import annotations

from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    __constants__ = ["p", "inplace"]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """The arguments."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes each element with probability `p` and scales the others by 1 / (1 - p), in training only.

    Example: `nn.Dropout(p=0.2)(torch.randn(20, 16))`
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Drops whole channels of (N, C, L) or (C, L).

    >>> import rushlight as torch
    >>> torch.nn.Dropout1d(0.5).eval()(torch.ones(1, 2, 3))
    tensor([[[1., 1., 1.],
             [1., 1., 1.]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Drops whole channels of (N, C, H, W).

    >>> import rushlight as torch
    >>> out = torch.nn.Dropout2d(0.5)(torch.ones(1, 8, 2, 2))
    >>> bool((out[0, :, 0, 0] == out[0, :, 1, 1]).all())  # a channel is kept or dropped as a whole
    True
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Drops whole channels of (N, C, D, H, W).

    >>> import rushlight as torch
    >>> torch.nn.Dropout3d(0.5)(torch.ones(1, 2, 2, 2, 2)).shape
    torch.Size([1, 2, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean 0 and variance 1, made for SELU.

    >>> import rushlight as torch
    >>> torch.nn.AlphaDropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """Alpha dropout of whole channels.

    >>> import rushlight as torch
    >>> torch.nn.FeatureAlphaDropout(0.5)(torch.ones(1, 2, 3, 3)).shape
    torch.Size([1, 2, 3, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return F.feature_alpha_dropout(input, self.p, self.training)
