"""`Adadelta`."""

from __future__ import annotations

from typing import Any

from rushlight.optim.elementwise import ElementwiseOptimizer, check_rate, decayed, penalty_of
from rushlight.optim.optimizer import add_scaled, hyper, number

__all__ = ["Adadelta", "adadelta"]


class Adadelta(ElementwiseOptimizer):
    """Adadelta: steps of the size of earlier steps, relative to the size of the gradients.

    v = rho * v + (1 - rho) * g², d = sqrt(u + eps) / sqrt(v + eps) * g, u = rho * u + (1 - rho) * d², p -= lr * d.

    Example: `optimizer = torch.optim.Adadelta(model.parameters())`
    """

    _state = ("square_avg", "acc_delta")
    _family = "adadelta"

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
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        _, penalty, sign = penalty_of(group, 0.0)
        return number(group["lr"]), group["rho"], group["eps"], penalty, sign

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        rho, eps, lr = group["rho"], group["eps"], hyper(group, "lr")
        grad = decayed(param, grad, group, lr)
        square, moved = kept["square_avg"], kept["acc_delta"]
        square.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        delta = moved.add(eps).sqrt().div(square.add(eps).sqrt()).mul(grad)
        moved.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        add_scaled(param, delta, -lr)


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
    Adadelta._update_lists(params, grads, {"square_avg": square_avgs, "acc_delta": acc_deltas, "step": state_steps}, group)
