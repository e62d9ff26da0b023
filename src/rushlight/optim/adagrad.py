"""`Adagrad`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.elementwise import ElementwiseOptimizer, moved_by_ratio
from rushlight.optim.optimizer import check_param, hyper, number, step_dtype

__all__ = ["Adagrad", "adagrad"]


class Adagrad(ElementwiseOptimizer):
    """Adagrad: steps divided by the root of the sum of all squared gradients so far.

    sum += g², p -= clr * g / (sqrt(sum) + `eps`) with clr = `lr` / (1 + (step - 1) * `lr_decay`).

    Raises `ValueError` for negative values.

    Example: `optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)`
    """

    _state = ("sum",)
    _decays_complex = True

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
            place = {"device": param.device} if group["fused"] else {}
            kept["step"] = rushlight.zeros((), dtype=step_dtype(group), **place)
            kept["sum"] = rushlight.full_like(param, value, memory_format=rushlight.preserve_format)

    def share_memory(self) -> None:
        """Move the sums of squares into memory that other processes share."""
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["sum"].share_memory_()

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        return {"move": -_rate(group, step), "eps": group["eps"]}

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        x.sum = t.addcmul(x.sum, x.grad, x.grad, value=1)
        x.param = moved_by_ratio(t, x.param, x.grad, t.sqrt(x.sum) + n.eps, n.move)

    @classmethod
    def _update_sparse(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        """Change the entries that the gradient has, and nothing else."""
        check_param(param, group)
        if group.get("fused"):
            raise RuntimeError("`fused` does not support sparse grad or complex param")
        kept["step"] += 1
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        grad = (-grad if group["maximize"] else grad).coalesce()
        total, rate = kept["sum"], _rate(group, kept["step"].item())
        if param.is_complex():
            param, grad, total = map(rushlight.view_as_real, (param, grad, total))
        places, values = tuple(grad.indices()), grad.values()
        squares = total[places] + values * values
        total[places] = squares
        param[places] = param[places] - rate * (values / (squares.sqrt() + group["eps"]))


def _rate(group: dict[str, Any], step: Any) -> Any:
    return hyper(group, "lr") / (1 + (step - 1) * group["lr_decay"])


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
        "grad_scale": grad_scale, "found_inf": found_inf,
    }  # fmt: skip
    Adagrad._update_lists(params, grads, {"sum": state_sums, "step": state_steps}, group)
