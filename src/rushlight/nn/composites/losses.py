"""Losses that call a function of the user's, or look at values before they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import warn_user
from rushlight._interface.operators import SPACES

__all__ = ["gaussian_nll_loss", "kl_div", "triplet_margin_with_distance_loss"]

_gaussian, _divergence = SPACES["nn.functional"]["gaussian_nll_loss"], SPACES["nn.functional"]["kl_div"]


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor | float,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of `target` for normal distributions of mean `input` and variance `var`: (log(v) +
    (input - target)^2 / v) / 2.

    v = max(var, eps), without a gradient of the bound; `full` adds log(2 pi) / 2. `var` has the shape of `input`, or
    that with one dim of size one or without the last, or is a float. Raises `ValueError` for a variance below zero, and for a shape
    that does not go with the input's, `RuntimeError` for a variance of whole numbers, which could not be bounded, and
    for bools, of which there is no difference.

    Example: `F.gaussian_nll_loss(torch.zeros(2), torch.ones(2), torch.ones(2))  # tensor(0.5000)`
    """
    if isinstance(var, Tensor) and var.shape != input.shape:
        others = [v for i, v in zip(input.shape, var.shape, strict=False) if i != v]
        if input.shape[:-1] != var.shape and (input.dim() != var.dim() or others != [1]):
            raise ValueError("var is of incorrect size")
    if not isinstance(var, (Tensor, float)):
        raise TypeError(f"gaussian_nll_loss(): argument 'var' must be Tensor or float, not {type(var).__name__}")
    if isinstance(var, Tensor):
        rushlight._check_tensor_all_with(ValueError, var.lt(0).logical_not(), lambda: "var has negative entry/entries")
    elif var < 0:
        raise ValueError("var has negative entry/entries")
    if isinstance(var, Tensor) and not (var.is_floating_point() or var.is_complex()):
        raise RuntimeError(
            f"gaussian_nll_loss(): eps cannot bound a variance of {var.dtype}; convert it first, for example with .float()"
        )
    if any(v.dtype is rushlight.bool if isinstance(v, Tensor) else isinstance(v, bool) for v in (input, target)):
        raise RuntimeError(
            "gaussian_nll_loss(): a difference of bools is not defined; convert them first, for example with .float()"
        )
    return _gaussian(input, target, var, bool(full), eps, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log(target) - input), where `input` holds log probabilities; `target` too with `log_target`.

    `reduction` is "none", "sum", "batchmean" (the divergence, divided by the size of the batch) or "mean" (divided by
    all sizes, which warns).

    Example: `F.kl_div(torch.zeros(1, 2), torch.ones(1, 2), reduction="batchmean")  # tensor(0.)`
    """
    if reduction == "mean" and size_average is None and reduce is None:
        warn_user(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides only by the batch size, "
            "and aligns with the KL div math definition.'mean' will be changed to behave the same as 'batchmean' in the next major release."
        )
    return _divergence(input, target, size_average, reduce, reduction, log_target)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with any distance function (default: the Euclidean
    one).

    With `swap` the negative may also be compared with the positive, whichever is nearer.
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )
    distance = rushlight.nn.functional.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = rushlight.minimum(far, distance(positive, negative))
    loss = rushlight.clamp_min(margin + near - far, 0)
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return loss.mean() if reduction == "mean" else loss.sum()
