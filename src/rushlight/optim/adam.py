"""`Adam` and `AdamW`."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, moved_by_product, moved_by_ratio
from rushlight.optim.optimizer import hyper, number, there

__all__ = ["Adam", "AdamW", "adam", "adamw"]


def _check_tensors(value: Any, lists: Any, name: str) -> None:
    """Which hyper-parameters may be tensors, and of which size."""
    if isinstance(value, Tensor):
        if lists:
            raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
        if value.numel() != 1:
            raise ValueError(f"Tensor {name} must be 1-element")


class Adam(ElementwiseOptimizer):
    """Adam: steps scaled by running averages of the gradient and of its square.

    m = b1 * m + (1 - b1) * g and v = b2 * v + (1 - b2) * g² with `betas` = (b1, b2); both are corrected for their start
    at zero, and p -= `lr` * m / (sqrt(v) + `eps`). `weight_decay` * p is added to the gradient first (with
    `decoupled_weight_decay`, p shrinks by lr * weight_decay instead: that is `AdamW`). `amsgrad` uses the largest v so
    far; `maximize` climbs. `foreach` and `fused` are accepted for compatibility: there is one implementation.

    Raises `ValueError` for values out of range.

    Example: `optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)`
    """

    _decays_complex = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        lists = foreach and not capturable
        _check_tensors(lr, lists, "lr")
        check_rate(number(lr), eps=eps)
        check_betas(tuple(map(number, betas)))
        check_rate(0, weight_decay=weight_decay)
        if isinstance(betas[0], Tensor) is not isinstance(betas[1], Tensor):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas):
            _check_tensors(beta, lists, f"betas[{i}]")
        defaults = {
            "lr": lr,
            "betas": tuple(beta.squeeze() if isinstance(beta, Tensor) else beta for beta in betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    @classmethod
    def _states(cls, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        beta1, beta2 = map(there, group["betas"]) if group["capturable"] else group["betas"]
        rest1 = 1 - (beta1 if group["capturable"] else number(beta1))
        if group["differentiable"]:
            rest1, step = 1 - beta1, kept["step"].clone()
        return {
            "move": -(hyper(group, "lr") / (1 - beta1**step)),
            "rest1": rest1,
            "beta2": beta2,
            "rest2": 1 - beta2,
            "root": (1 - beta2**step) ** 0.5,
            "eps": group["eps"],
        }

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        x.exp_avg = t.lerp(x.exp_avg, x.grad, n.rest1)
        x.exp_avg_sq = moved_by_product(t, x.exp_avg_sq * n.beta2, x.grad, x.grad, n.rest2)
        square = x.exp_avg_sq
        if x.max_exp_avg_sq is not None:
            square = x.max_exp_avg_sq = t.maximum(x.max_exp_avg_sq, square)
        x.param = moved_by_ratio(t, x.param, x.exp_avg, t.sqrt(square) / n.root + n.eps, n.move)

    @classmethod
    def _update_sparse(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        raise RuntimeError("Adam does not support sparse gradients, please consider SparseAdam instead")


class AdamW(Adam):
    """Adam with decoupled weight decay: p first shrinks by `lr` * `weight_decay`, the averages do not see it.

    Example: `optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)`
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def adam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    max_exp_avg_sqs: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    amsgrad: bool,
    beta1: Any,
    beta2: Any,
    lr: Any,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `Adam` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach, "fused": fused,
        "amsgrad": amsgrad, "decoupled_weight_decay": decoupled_weight_decay, "capturable": capturable, "differentiable": differentiable,
        "grad_scale": grad_scale, "found_inf": found_inf,
    }  # fmt: skip
    states = {
        "exp_avg": exp_avgs,
        "exp_avg_sq": exp_avg_sqs,
        "max_exp_avg_sq": max_exp_avg_sqs if amsgrad else [],
        "step": state_steps,
    }
    Adam._update_lists(params, grads, states, group)


def adamw(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    max_exp_avg_sqs: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    *,
    amsgrad: bool,
    beta1: Any,
    beta2: Any,
    lr: Any,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `AdamW` on lists of parameters, of their gradients and of their states, all in the same order."""
    adam(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach, capturable, differentiable, fused, grad_scale, found_inf,
        has_complex, True, amsgrad=amsgrad, beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
