"""`RMSprop`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.elementwise import ElementwiseOptimizer, decayed, penalty_of
from rushlight.optim.optimizer import add_ratio, add_scaled, hyper, number, step_dtype

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(ElementwiseOptimizer):
    """RMSprop: steps divided by the root of a running average of the squared gradient.

    avg = `alpha` * avg + (1 - alpha) * g², p -= `lr` * g / (sqrt(avg) + `eps`); with `centered` the running mean's square is
    subtracted from avg, with `momentum` the quotient goes through a momentum buffer.

    Raises `ValueError` for negative values.

    Example: `optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9)`
    """

    _family = "rmsprop"

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        checked = (
            ("learning rate", number(lr)),
            ("epsilon value", eps),
            ("momentum value", momentum),
            ("weight_decay value", weight_decay),
            ("alpha value", alpha),
        )
        for name, value in checked:
            if not 0.0 <= value:
                raise ValueError(f"Invalid {name}: {value}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _begin(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        wanted = (("square_avg", True), ("momentum_buffer", group["momentum"] > 0), ("grad_avg", group["centered"]))
        for name, needed in wanted:
            if needed:
                kept[name] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)

    @classmethod
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        _, penalty, sign = penalty_of(group, 0.0)
        return number(group["lr"]), group["alpha"], group["eps"], penalty, sign, group["momentum"]

    @classmethod
    def _tensors(cls, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "square_avg", "grad_avg" if group["centered"] else None, "momentum_buffer" if group["momentum"] > 0 else None

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        alpha, lr = group["alpha"], hyper(group, "lr")
        grad = decayed(param, grad, group, lr)
        square = kept["square_avg"]
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        root = square
        if group["centered"]:
            mean = kept["grad_avg"]
            mean.lerp_(grad, 1 - alpha)
            root = square.addcmul(mean, mean, value=-1)
        root = root.sqrt() + group["eps"]
        if group["momentum"] > 0:
            buffer = kept["momentum_buffer"]
            buffer.mul_(group["momentum"]).addcdiv_(grad, root)
            add_scaled(param, buffer, -lr)
        else:
            add_ratio(param, grad, root, -lr)


def rmsprop(
    params: list[Any],
    grads: list[Any],
    square_avgs: list[Any],
    grad_avgs: list[Any],
    momentum_buffer_list: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
) -> None:
    """One step of `RMSprop` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum, "centered": centered,
        "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
    }  # fmt: skip
    RMSprop._update_lists(params, grads, {"square_avg": square_avgs, "grad_avg": grad_avgs, "momentum_buffer": momentum_buffer_list, "step": state_steps}, group)
