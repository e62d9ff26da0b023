"""Gradients of functions as values: what kernels of `*_backward` operators compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["pulled"]


def _wanting(x: Any) -> Any:
    """`x` as a tensor that wants a gradient, behind its own history if that is recorded; function transforms may be open."""
    if x.requires_grad and rushlight.is_grad_enabled():
        return x.view_as(x)
    made = x.detach()
    made._rg = True
    return made


def pulled(
    function: Callable[..., Any], inputs: Sequence[Any], grads: Any, mask: Sequence[bool] | None = None
) -> list[Any]:
    """Gradients of `function(*inputs)` at the inputs that the mask names; None for the others."""
    mask = [isinstance(x, Tensor) for x in inputs] if mask is None else mask
    given = list(grads) if isinstance(grads, (tuple, list)) else [grads]
    again = rushlight.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in (*inputs, *given))
    taken = [_wanting(x) if m and isinstance(x, Tensor) else x for x, m in zip(inputs, mask, strict=True)]
    with rushlight.enable_grad():
        out = function(*taken)
        wanted = [x for x, m in zip(taken, mask, strict=True) if m and isinstance(x, Tensor)]
        outs = out if isinstance(out, (tuple, list)) else [out]
        pairs = [(o, g) for o, g in zip(outs, given, strict=False) if g is not None and o.requires_grad]
        if not pairs:
            return [
                rushlight.zeros_like(x) if m and isinstance(x, Tensor) else None
                for x, m in zip(inputs, mask, strict=True)
            ]
        outs, seeds = [o for o, _ in pairs], [g for _, g in pairs]
        found = iter(rushlight.autograd.grad(outs, wanted, seeds, allow_unused=True, create_graph=again))
    made = []
    for x, m in zip(taken, mask, strict=True):
        g = next(found) if m and isinstance(x, Tensor) else None
        made.append(rushlight.zeros_like(x) if g is None and m and isinstance(x, Tensor) else g)
    return made
