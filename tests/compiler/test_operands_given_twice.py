"""One tensor as two operands of a call: compiled, its sums have eager's bits, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight.nn import functional as F

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "outer": lambda x, w: torch.outer(x[0], x[0]) * w,
    "kron": lambda x, w: torch.kron(x[0], x[0]).sin(),
    "addr": lambda x, w: torch.addr(w, x[0], x[0]) * w,
    "dot": lambda x, w: torch.dot(x[0], x[0]),
    "mv": lambda x, w: torch.mv(x, x[0]) * w[0],
    "matmul": lambda x, w: (x @ x) * w,
    "linear": lambda x, w: F.linear(x, x, x[0]) * w,
    "einsum": lambda x, w: torch.einsum("ij,ik->jk", x, x) * w,
    "cdist": lambda x, w: torch.cdist(x, x) * w,
    "cosine_similarity": lambda x, w: F.cosine_similarity(x, x, dim=0) * w[0],
    "mse_loss": lambda x, w: F.mse_loss(x, x * w),
    "kl_div": lambda x, w: F.kl_div(x, x, reduction="sum", log_target=True) * w.sum(),
    "layer_norm": lambda x, w: F.layer_norm(x, x.shape[1:], x[0], x[0]) * w,
    "bilinear": lambda x, w: F.bilinear(x, x, x[None], None) * w[:, :1],
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], x[None], x[None]) * w,
}


@pytest.mark.parametrize("name", CALLS)
def test_the_bits_are_those_of_eager(name: str) -> None:
    function = CALLS[name]
    compiled = torch.compile(lambda x, w: function(x, w).sum(), dynamic=False)
    for size in (3, 5, 17):
        torch.manual_seed(size)
        start, w = torch.randn(size, size), torch.randn(size, size)
        results = []
        for run in (lambda x, w: function(x, w).sum(), compiled):
            x = start.clone().requires_grad_()
            total = run(x, w)
            total.backward()
            results.append((total.detach(), x.grad))
        (eager, slope), (ours, our_slope) = results
        assert torch.equal(eager, ours)
        assert torch.equal(slope, our_slope)
