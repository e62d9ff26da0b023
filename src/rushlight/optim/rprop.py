"""`Rprop`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.optim.elementwise import ElementwiseOptimizer, check_rate
from rushlight.optim.optimizer import number

__all__ = ["Rprop", "rprop"]


class Rprop(ElementwiseOptimizer):
    """Rprop: a step size for each element, enlarged while the gradient keeps its sign and reduced when it turns.

    Made for gradients over all data at once.

    Example: `optimizer = torch.optim.Rprop(model.parameters())`
    """

    _state = ("prev",)
    _family = "rprop"

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _begin(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        super()._begin(param, grad, kept, group)
        start = number(group["lr"])
        kept["step_size"] = rushlight.full_like(grad, complex(start, start) if grad.is_complex() else start)

    @classmethod
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        return *group["etas"], *group["step_sizes"], -1.0 if group["maximize"] else 1.0

    @classmethod
    def _tensors(cls, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "prev", "step_size"

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        shrink, grow = group["etas"]
        low, high = group["step_sizes"]
        previous, size = kept["prev"], kept["step_size"]
        agreement = grad.mul(previous)
        factor = rushlight.ones_like(size).masked_fill_(agreement > 0, grow).masked_fill_(agreement < 0, shrink)
        size.mul_(factor).clamp_(low, high)
        # Where the sign turned, this step is left out, and the next one counts as a fresh start.
        grad = grad.masked_fill(agreement < 0, 0)
        param.addcmul_(grad.sign(), size, value=-1)
        previous.copy_(grad)


def rprop(
    params: list[Any],
    grads: list[Any],
    prevs: list[Any],
    step_sizes: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    capturable: bool = False,
    maximize: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    step_size_min: float,
    step_size_max: float,
    etaminus: float,
    etaplus: float,
) -> None:
    """One step of `Rprop` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "etas": (etaminus, etaplus), "step_sizes": (step_size_min, step_size_max), "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
    }  # fmt: skip
    Rprop._update_lists(params, grads, {"prev": prevs, "step_size": step_sizes, "step": state_steps}, group)
