"""Distances between rows: `PairwiseDistance` and `CosineSimilarity`."""

from __future__ import annotations

from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps over the last dimension.

    Example: `nn.PairwiseDistance()(torch.randn(100, 128), torch.randn(100, 128)).shape  # (100,)`
    """

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Distance of each pair of rows."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along `dim`; each norm counts as at least `eps`.

    Example: `nn.CosineSimilarity(dim=1)(torch.randn(100, 128), torch.randn(100, 128)).shape  # (100,)`
    """

    __constants__ = ["dim", "eps"]

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Similarity of each pair."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
