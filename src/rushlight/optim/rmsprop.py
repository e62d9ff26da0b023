"""`RMSprop`."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.optim.elementwise import ElementwiseOptimizer, moved, moved_by_product, moved_by_ratio
from rushlight.optim.optimizer import hyper, number

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(ElementwiseOptimizer):
    """RMSprop: steps divided by the root of a running average of the squared gradient.

    avg = `alpha` * avg + (1 - alpha) * g², p -= `lr` * g / (sqrt(avg) + `eps`); with `centered` the running mean's
    square is subtracted from avg, with `momentum` the quotient goes through a momentum buffer.

    Raises `ValueError` for negative values.

    Example: `optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9)`
    """

    _decays_complex = True

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
    def _states(cls, group: dict[str, Any]) -> tuple[str, ...]:
        buffer = ("momentum_buffer",) if group["momentum"] > 0 else ()
        return "square_avg", *buffer, *(("grad_avg",) if group["centered"] else ())

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        alpha = group["alpha"]
        return {
            "alpha": alpha,
            "rest": 1 - alpha,
            "eps": group["eps"],
            "move": -hyper(group, "lr"),
            "momentum": group["momentum"] or None,
        }

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        x.square_avg = moved_by_product(t, x.square_avg * n.alpha, x.grad, x.grad, n.rest)
        spread = x.square_avg
        if x.grad_avg is not None:
            x.grad_avg = t.lerp(x.grad_avg, x.grad, n.rest)
            spread = t.addcmul(spread, x.grad_avg, x.grad_avg, value=-1)
        root = t.sqrt(spread) + n.eps
        if x.momentum_buffer is None:
            x.param = moved_by_ratio(t, x.param, x.grad, root, n.move)
        else:
            x.momentum_buffer = t.addcdiv(x.momentum_buffer * n.momentum, x.grad, root, value=1)
            x.param = moved(t, x.param, x.momentum_buffer, n.move)


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
    RMSprop._update_lists(
        params,
        grads,
        {
            "square_avg": square_avgs,
            "grad_avg": grad_avgs,
            "momentum_buffer": momentum_buffer_list,
            "step": state_steps,
        },
        group,
    )
