"""The arithmetic of a `GradScaler`, on tensors: a device is never waited for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.devices import backend_of
from rushlight._interface.multi_tensor import assumed_zero

__all__ = ["_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"]


def _check_element(name: str, value: Tensor, dtype: Any = rushlight.float32) -> None:
    if value.numel() != 1:
        raise RuntimeError(f"{name} must be a 1-element tensor.")
    if value.dtype is not dtype:
        raise RuntimeError(f"{name} must be {'a float' if dtype is rushlight.float32 else 'an int'} tensor.")


@rushlight.no_grad()
def _amp_foreach_non_finite_check_and_unscale_(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply tensors of one device by `inv_scale`; `found_inf` becomes 1 if an element was not finite.

    Both are float32 of one element. Raises RuntimeError for others.
    """
    _check_element("found_inf", found_inf)
    _check_element("inv_scale", inv_scale)
    check_finite(self, found_inf, inv_scale)


def check_finite(grads: Sequence[Any], found: Any, inverse: Any) -> None:
    """The same; with None for `inverse` the tensors stay as they are.

    On the CPU the host looks at each tensor in turn, which costs no wait.  A recorded program and a device are asked
    nothing: a product with 1 is exact, and flags are tensors.
    """
    if rushlight.compiler.is_compiling():
        for grad in grads:
            found.masked_fill_(grad.isfinite().all().logical_not(), 1.0)
            if inverse is not None:
                grad.mul_(inverse)
        return
    if not backend_of(found.device).host_readable:
        for dtype in {grad.dtype for grad in grads}:
            alike = [grad for grad in grads if grad.dtype is dtype and grad.numel()]
            if alike:
                peaks = rushlight.stack(rushlight._foreach_norm(alike, math.inf))  # NaN where an element is
                found.masked_fill_(peaks.isfinite().all().logical_not(), 1.0)
                if inverse is not None:
                    rushlight._foreach_mul_(alike, inverse.reshape(()))
        return
    factor = 1.0 if inverse is None else inverse.item()
    for grad in grads:
        if not grad.isfinite().all().item():
            found.fill_(1.0)
        if factor != 1.0:
            grad.mul_(inverse)


@rushlight.no_grad()
def _amp_update_scale_(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """Adapt a scale in place after a step, and the number of good steps in a row; returns the scale.

    `found_inf` other than 0 multiplies by `scale_backoff_factor`; the good step that makes `growth_interval` in a row
    by `scale_growth_factor`, unless the scale would overflow.  All tensors have one element: `growth_tracker` of int32,
    the others of float32. Raises RuntimeError for others.
    """
    _check_element("growth_tracker", growth_tracker, rushlight.int32)
    _check_element("current_scale", self)
    _check_element("found_inf", found_inf)
    if not backend_of(self.device).host_readable:
        smaller, overflowed = self * scale_backoff_factor, found_inf.ne(0)
        growth_tracker.add_(1)
        _grow(self, growth_tracker, scale_growth_factor, growth_interval)
        growth_tracker.masked_fill_(overflowed, 0)
        return self.copy_(rushlight.where(overflowed, smaller, self))
    if assumed_zero(found_inf):
        growth_tracker.zero_()
        return self.mul_(scale_backoff_factor)
    growth_tracker.add_(1)
    if rushlight.compiler.is_compiling() or growth_tracker.item() == growth_interval:
        _grow(self, growth_tracker, scale_growth_factor, growth_interval)
    return self


def _grow(scale: Tensor, tracker: Tensor, factor: float, interval: int) -> None:
    """Raise the scale where the tracker says so; a scale that would overflow stays."""
    due = tracker.eq(interval)
    grown = scale * factor
    scale.copy_(rushlight.where(due.logical_and(grown.isfinite()), grown, scale))
    tracker.masked_fill_(due, 0)
