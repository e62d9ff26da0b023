"""`SparseAdam`: Adam for gradients that touch few rows."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.elementwise import check_betas
from rushlight.optim.optimizer import Optimizer, hyper, number, run_closure

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam (Kingma and Ba, 2015) on the entries that a sparse gradient has; averages of all others stay as they are.

    It is for parameters whose gradients are sparse, as those of `nn.Embedding(sparse=True)` are. Raises `ValueError`
    for values out of range and for sparse parameters, and in `step` `RuntimeError` for strided gradients.

    Example: `optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.01)`
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 < number(lr):
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [
            [g, p]
            for g, group in enumerate(self.param_groups)
            for p, param in enumerate(group["params"])
            if param.layout is not rushlight.strided
        ]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        complex_ones = [
            [g, p]
            for g, group in enumerate(self.param_groups)
            for p, param in enumerate(group["params"])
            if param.is_complex()
        ]
        if complex_ones:
            raise ValueError(
                f"Complex params at indices {complex_ones}: SparseAdam does not support complex parameters"
            )

    def step(self, closure: Any = None) -> Any:
        """Change every parameter that has a gradient; returns the value of `closure`."""
        loss = run_closure(closure)
        with rushlight.no_grad():
            for group in self.param_groups:
                for param in group["params"]:
                    grad = param.grad
                    if grad is None:
                        continue
                    if not grad.is_sparse:
                        raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
                    kept = self.state[param]
                    if not kept:
                        kept["step"] = 0
                        kept["exp_avg"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)
                        kept["exp_avg_sq"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)
                    kept["step"] += 1
                    update(param, grad.coalesce(), kept, group)
        return loss


def update(param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
    places, values = tuple(grad.indices()), grad.values()
    if not values.numel():
        return
    if group["maximize"]:
        values = -values
    fast, slow = group["betas"]
    mean, square = kept["exp_avg"], kept["exp_avg_sq"]
    new_mean = mean[places] + (values - mean[places]) * (1 - fast)
    new_square = square[places] + (values * values - square[places]) * (1 - slow)
    mean[places], square[places] = new_mean, new_square
    step = kept["step"]
    rate = number(hyper(group, "lr") * math.sqrt(1 - slow**step) / (1 - fast**step))
    param[places] = param[places] - rate * (new_mean / (new_square.sqrt() + group["eps"]))
