"""`RMSprop`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.optimizer import Optimizer, check_implementation, number, run_closure, step_dtype

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
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
        check_implementation("RMSprop", defaults)
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("momentum", 0)
            group.setdefault("foreach", None)
            for name in ("centered", "maximize", "differentiable", "capturable"):
                group.setdefault(name, False)
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
                    if param.grad.is_sparse:
                        raise RuntimeError("RMSprop does not support sparse gradients")
                    kept = self.state[param]
                    if not kept:
                        _begin(param, kept, group)
                    _update(param, param.grad, kept, group)
        return loss


def _begin(param: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
    kept["step"] = rushlight.zeros((), dtype=step_dtype())
    wanted = ["square_avg"]
    if group["momentum"] > 0:
        wanted.append("momentum_buffer")
    if group["centered"]:
        wanted.append("grad_avg")
    for name in wanted:
        kept[name] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)


def _update(param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
    alpha, lr = group["alpha"], number(group["lr"])
    kept["step"] += 1
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"] != 0:
        grad = grad.add(param, alpha=group["weight_decay"])
    tensors = {name: value for name, value in kept.items() if name != "step"}
    if param.is_complex():
        param, grad = rushlight.view_as_real(param), rushlight.view_as_real(grad)
        tensors = {name: rushlight.view_as_real(value) for name, value in tensors.items()}
    square = tensors["square_avg"]
    square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
    if group["centered"]:
        mean = tensors["grad_avg"]
        mean.lerp_(grad, 1 - alpha)
        root = square.addcmul(mean, mean, value=-1).sqrt_()
    else:
        root = square.sqrt()
    root.add_(group["eps"])
    if group["momentum"] > 0:
        buffer = tensors["momentum_buffer"]
        buffer.mul_(group["momentum"]).addcdiv_(grad, root)
        param.add_(buffer, alpha=-lr)
    else:
        param.addcdiv_(grad, root, value=-lr)
