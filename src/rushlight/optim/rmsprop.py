"""`RMSprop`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._engine.multi_tensor import fused_update
from rushlight.optim.elementwise import ElementwiseOptimizer, decayed
from rushlight.optim.optimizer import add_ratio, add_scaled, hyper, number, step_dtype

__all__ = ["RMSprop"]


class RMSprop(ElementwiseOptimizer):
    """RMSprop: steps divided by the root of a running average of the squared gradient.

    avg = `alpha` * avg + (1 - alpha) * g², p -= `lr` * g / (sqrt(avg) + `eps`); with `centered` the running mean's square is
    subtracted from avg, with `momentum` the quotient goes through a momentum buffer.

    Raises `ValueError` for negative values.

    Example: `optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9)`
    """

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

    def _begin(self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        wanted = (("square_avg", True), ("momentum_buffer", group["momentum"] > 0), ("grad_avg", group["centered"]))
        for name, needed in wanted:
            if needed:
                kept[name] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)

    def _step_together(self, params: list[Any], group: dict[str, Any]) -> list[Any]:
        if group["capturable"]:
            return params
        rows, rest = [], []
        names = (("grad_avg", group["centered"]), ("momentum_buffer", group["momentum"] > 0))
        for param in params:
            kept = self.state[param]
            if not kept and not param.grad.is_sparse:
                self._begin(param, param.grad, kept, group)
            if all(not wanted or name in kept for name, wanted in (("square_avg", True), *names)):
                extra = [kept[name] if wanted else None for name, wanted in names]
                rows.append((param, param.grad, kept["square_avg"], *extra, kept["step"]))
            else:
                rest.append(param)
        sign = -1.0 if group["maximize"] else 1.0
        scalars = (number(group["lr"]), group["alpha"], group["eps"], group["weight_decay"], sign, group["momentum"])
        return [*rest, *(rows[i][0] for i in fused_update("rmsprop", rows, scalars))]

    def _change(
        self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
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
