"""`Adafactor`: second moments of matrices kept as their rows' and columns' means."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.multi_tensor import factored_update
from rushlight.optim.elementwise import Change, ElementwiseOptimizer
from rushlight.optim.optimizer import hyper, number, step_dtype

__all__ = ["Adafactor", "adafactor"]


class Adafactor(ElementwiseOptimizer):
    """Adafactor (Shazeer and Stern, 2018): Adam's scaling in little memory, with steps relative to the size of the
    parameters.

    For a gradient g of two dims or more, r and c are running averages of the means of g² over the last dim and over the
    one before it, and v = r c / mean(r); for others v is the running average of g² itself. At step t old values keep a
    share of 1 - t^`beta2_decay`.  u = g / sqrt(v) is scaled down to a root mean square of at most `d`, and p -= a * u
    with a = max(eps2, rms(p)) * min(`lr`, 1/sqrt(t)).  `eps` = (eps1, eps2); eps1 (default: the dtype's epsilon) keeps
    v from zero. `weight_decay` shrinks p by lr * weight_decay first.

    Raises `ValueError` for values out of range, and in `step` `RuntimeError` for complex parameters and sparse
    gradients.

    >>> import rushlight as torch
    >>> weight = torch.ones(2, 3, requires_grad=True)
    >>> optimizer = torch.optim.Adafactor([weight], lr=0.5)
    >>> weight.square().sum().backward()
    >>> optimizer.step()
    >>> weight.detach()[0]
    tensor([0.5000, 0.5000, 0.5000])
    """

    _family = "adafactor"

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        checked = (
            ("Learning rate", number(lr) >= 0.0, ">= 0", lr),
            ("beta2_decay", beta2_decay <= 0.0, "<= 0", beta2_decay),
            ("epsilon1", eps[0] is None or eps[0] >= 0.0, ">= 0", eps[0]),
            ("epsilon2", eps[1] >= 0.0, ">= 0", eps[1]),
            ("Clipping threshold d", d >= 1.0, ">= 1", d),
            ("weight_decay", weight_decay >= 0.0, ">= 0", weight_decay),
        )
        for name, good, wanted, value in checked:
            if not good:
                raise ValueError(f"{name} should be {wanted} but is: {value}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    @classmethod
    def _update_together(cls, changes: list[Change], group: dict[str, Any]) -> list[Change]:
        lr, sign = number(group["lr"]), -1.0 if group["maximize"] else 1.0
        shrink = number(1 - hyper(group, "lr") * number(group["weight_decay"]))
        names = ("row_var", "col_var", "variance", "step")
        by_dtype: dict[Any, list[Change]] = {}
        for change in changes:  # the least mean depends on the dtype
            by_dtype.setdefault(change[0].dtype, []).append(change)
        rest = by_dtype.pop(rushlight.complex64, []) + by_dtype.pop(rushlight.complex128, [])
        if (
            isinstance(group["lr"], Tensor) and group["lr"].dtype is not rushlight.float64
        ):  # a rate that is a tensor has its own precision
            rest += by_dtype.pop(rushlight.float64, [])
        for dtype, some in by_dtype.items():
            least, scale = group["eps"]
            least = rushlight.finfo(dtype).eps if least is None else least
            rows = [(param, grad, *[kept.get(name) for name in names]) for param, grad, kept, _ in some]
            left = factored_update(
                rows, (lr, group["beta2_decay"], least, scale, group["d"], least * least, shrink, sign)
            )
            rest += [some[i] for i in left]
        return rest

    @classmethod
    def _update_recorded(cls, changes: list[Change], group: dict[str, Any]) -> list[Change]:
        return cls._update_together(changes, group)  # the trace ends at `factored_update`

    @classmethod
    def _begin(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        if grad.dim() > 1:
            *lead, rows, columns = grad.shape
            kept["row_var"] = grad.new_zeros((*lead, rows, 1))
            kept["col_var"] = grad.new_zeros((*lead, 1, columns))
        else:
            kept["variance"] = rushlight.zeros_like(grad, memory_format=rushlight.preserve_format)

    @classmethod
    def _update_one(cls, change: Change, group: dict[str, Any], known: Any) -> None:
        param, grad, kept, _ = change
        if param.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        kept["step"] += 1
        step = kept["step"].item()
        grad = -grad if group["maximize"] else grad
        lr = hyper(group, "lr")
        least, smallest_scale = group["eps"]
        least = rushlight.finfo(param.dtype).eps if least is None else least
        share = step ** group["beta2_decay"]
        rate = min(lr, 1 / step**0.5) * max(smallest_scale, _mean_root(param))
        if group["weight_decay"] != 0:
            param.mul_(number(1 - lr * group["weight_decay"]))
        if grad.dim() > 1:
            rows, columns = kept["row_var"], kept["col_var"]
            rows.lerp_(_mean_square(grad, -1), share)
            columns.lerp_(_mean_square(grad, -2), share)
            variance = (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=least))
        else:
            kept["variance"].lerp_(grad * grad, share)
            variance = kept["variance"]
        update = variance.clamp(min=least * least).rsqrt_().mul_(grad)
        param.add_(update, alpha=number(-rate / max(1.0, _mean_root(update) / group["d"])))


def _mean_root(x: Any) -> float:
    """The root of the mean square of all elements."""
    return float(x.norm(2).item()) / x.numel() ** 0.5


def _mean_square(x: Any, dim: int) -> Any:
    return rushlight.norm(x, dim=dim, keepdim=True).square_().div_(x.size(dim))


def adafactor(
    params: list[Any],
    grads: list[Any],
    row_vars: list[Any],
    col_vars: list[Any],
    variances: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    *,
    d: float,
    lr: Any,
    beta2_decay: float,
    weight_decay: float,
    eps1: float,
    eps2: float,
    maximize: bool,
) -> None:
    """One step of `Adafactor` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "beta2_decay": beta2_decay, "eps": (eps1, eps2), "d": d, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach,
        "grad_scale": grad_scale, "found_inf": found_inf,
    }  # fmt: skip
    states = {"row_var": row_vars, "col_var": col_vars, "variance": variances, "step": state_steps}
    Adafactor._update_lists(params, grads, states, group)
