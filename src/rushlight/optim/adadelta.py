"""`Adadelta`."""

from __future__ import annotations

from typing import Any

from rushlight.optim.elementwise import ElementwiseOptimizer, check_rate, moved, moved_by_product
from rushlight.optim.optimizer import hyper

__all__ = ["Adadelta", "adadelta"]


class Adadelta(ElementwiseOptimizer):
    """Adadelta: steps of the size of earlier steps, relative to the size of the gradients.

    v = rho * v + (1 - rho) * g², d = sqrt(u + eps) / sqrt(v + eps) * g, u = rho * u + (1 - rho) * d², p -= lr * d.

    Example: `optimizer = torch.optim.Adadelta(model.parameters())`
    """

    _state = ("square_avg", "acc_delta")
    _decays_complex = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_rate(lr, eps=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        rho = group["rho"]
        return {"move": -hyper(group, "lr"), "rho": rho, "rest": 1 - rho, "eps": group["eps"]}

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        x.square_avg = moved_by_product(t, x.square_avg * n.rho, x.grad, x.grad, n.rest)
        delta = t.sqrt(x.acc_delta + n.eps) / t.sqrt(x.square_avg + n.eps) * x.grad
        x.acc_delta = moved_by_product(t, x.acc_delta * n.rho, delta, delta, n.rest)
        x.param = moved(t, x.param, delta, n.move)


def adadelta(
    params: list[Any],
    grads: list[Any],
    square_avgs: list[Any],
    acc_deltas: list[Any],
    state_steps: list[Any],
    capturable: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of `Adadelta` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
    }  # fmt: skip
    Adadelta._update_lists(
        params, grads, {"square_avg": square_avgs, "acc_delta": acc_deltas, "step": state_steps}, group
    )
