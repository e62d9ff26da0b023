"""`Adagrad`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.optimizer import Optimizer, check_implementation, number, run_closure, step_dtype

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """Adagrad: steps divided by the root of the sum of all squared gradients so far.

    sum += g², p -= clr * g / (sqrt(sum) + `eps`) with clr = `lr` / (1 + (step - 1) * `lr_decay`).

    Raises `ValueError` for negative values.

    Example: `optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)`
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        checked = (
            ("learning rate", number(lr)),
            ("lr_decay value", lr_decay),
            ("weight_decay value", weight_decay),
            ("initial_accumulator_value value", initial_accumulator_value),
            ("epsilon value", eps),
        )
        for name, value in checked:
            if not 0.0 <= value:
                raise ValueError(f"Invalid {name}: {value}")
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        check_implementation("Adagrad", defaults)
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                self._begin(param)

    def _begin(self, param: Any) -> None:
        start = self.defaults["initial_accumulator_value"]
        value = complex(start, start) if param.is_complex() else start
        with rushlight.no_grad():
            self.state[param]["step"] = rushlight.zeros((), dtype=step_dtype())
            self.state[param]["sum"] = rushlight.full_like(param, value, memory_format=rushlight.preserve_format)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default in (("foreach", None), ("maximize", False), ("differentiable", False), ("fused", None)):
                group.setdefault(name, default)
        for kept in self.state.values():
            if kept and not isinstance(kept["step"], Tensor):
                kept["step"] = rushlight.tensor(float(kept["step"]), dtype=step_dtype())

    def step(self, closure: Any = None) -> Any:
        """Change every parameter that has a gradient; returns the value of `closure`."""
        loss = run_closure(closure)
        with rushlight.no_grad():
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is None:
                        continue
                    if not self.state[param]:
                        self._begin(param)
                    _update(param, param.grad, self.state[param], group)
        return loss


def _update(param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
    kept["step"] += 1
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"] != 0:
        if grad.is_sparse:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        grad = grad.add(param, alpha=group["weight_decay"])
    rate = number(group["lr"]) / (1 + (kept["step"].item() - 1) * group["lr_decay"])
    total = kept["sum"]
    if grad.is_sparse:
        _sparse_update(param, grad.coalesce(), total, rate, group["eps"])
        return
    if param.is_complex():
        param, grad, total = map(rushlight.view_as_real, (param, grad, total))
    total.addcmul_(grad, grad, value=1)
    param.addcdiv_(grad, total.sqrt().add_(group["eps"]), value=-rate)


def _sparse_update(param: Any, grad: Any, total: Any, rate: float, eps: float) -> None:
    """The entries that the gradient has; nothing else changes."""
    places, values = tuple(grad.indices()), grad.values()
    squares = total[places] + values * values
    total[places] = squares
    param[places] = param[places] - rate * (values / (squares.sqrt() + eps))
