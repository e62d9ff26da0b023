"""`Adagrad`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.elementwise import ElementwiseOptimizer, decayed, penalty_of
from rushlight.optim.optimizer import add_ratio, hyper, number, step_dtype

__all__ = ["Adagrad", "adagrad"]


class Adagrad(ElementwiseOptimizer):
    """Adagrad: steps divided by the root of the sum of all squared gradients so far.

    sum += g², p -= clr * g / (sqrt(sum) + `eps`) with clr = `lr` / (1 + (step - 1) * `lr_decay`).

    Raises `ValueError` for negative values.

    Example: `optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)`
    """

    _takes_sparse = True
    _state = ("sum",)
    _family = "adagrad"

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
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                self._begin(param, param, self.state[param], group)

    @classmethod
    def _begin(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        start = group["initial_accumulator_value"]
        value = complex(start, start) if param.is_complex() else start
        with rushlight.no_grad():
            kept["step"] = rushlight.zeros((), dtype=step_dtype())
            kept["sum"] = rushlight.full_like(param, value, memory_format=rushlight.preserve_format)

    def share_memory(self) -> None:
        """Move the sums of squares into memory that other processes share."""
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["sum"].share_memory_()

    @classmethod
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        _, penalty, sign = penalty_of(group, 0.0)
        return number(group["lr"]), group["lr_decay"], group["eps"], penalty, sign

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        if grad.is_sparse and group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        lr, total = hyper(group, "lr"), kept["sum"]
        grad = decayed(param, grad, group, lr)
        rate = lr / (1 + (step - 1) * group["lr_decay"])
        if grad.is_sparse:
            _sparse_update(param, grad.coalesce(), total, rate, group["eps"])
            return
        total.addcmul_(grad, grad, value=1)
        add_ratio(param, grad, total.sqrt() + group["eps"], -rate)


def _sparse_update(param: Any, grad: Any, total: Any, rate: float, eps: float) -> None:
    """The entries that the gradient has; nothing else changes."""
    places, values = tuple(grad.indices()), grad.values()
    squares = total[places] + values * values
    total[places] = squares
    param[places] = param[places] - rate * (values / (squares.sqrt() + eps))


def adagrad(
    params: list[Any],
    grads: list[Any],
    state_sums: list[Any],
    state_steps: list[Any],
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    weight_decay: float,
    lr_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `Adagrad` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "fused": fused, "foreach": foreach, "differentiable": differentiable,
    }  # fmt: skip
    Adagrad._update_lists(params, grads, {"sum": state_sums, "step": state_steps}, group, grad_scale, found_inf)
