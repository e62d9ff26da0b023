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

    _state = ("prev", "step_size")

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
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        (shrink, grow), (low, high) = group["etas"], group["step_sizes"]
        return {"shrink_size": shrink, "grow_size": grow, "low": low, "high": high}

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        agreement = x.grad * x.prev
        turned = agreement < 0
        size = t.where(turned, x.step_size * n.shrink_size, x.step_size)
        x.step_size = t.clamp(t.where(agreement > 0, x.step_size * n.grow_size, size), n.low, n.high)
        # Where the sign turned, this step is left out, and the next one counts as a fresh start.
        x.prev = t.where(turned, 0.0, x.grad)
        x.param = t.addcmul(x.param, t.sign(x.prev), x.step_size, value=-1)


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
