"""`GradScaler`: losses are scaled up so that small gradients survive float16, and gradients down before the step."""

from __future__ import annotations

import functools
import inspect
import operator
import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.multi_tensor import assumed_zero
from rushlight.amp.scaling import _amp_update_scale_, check_finite

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """State of an optimizer's gradients since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses, and skips the steps whose gradients overflowed.

    The order of a step: `scale(loss).backward()`; if gradients are to be read or clipped, `unscale_(optimizer)` once
    all of them are accumulated; `step(optimizer)`, which unscales if that was not done and steps only if all gradients
    are finite; `update()`.  `update` multiplies the scale by `backoff_factor` after gradients with infinities or NaNs,
    and by `growth_factor` after `growth_interval` good steps in a row.

    Disabled (`enabled=False`, or CUDA without a GPU, which warns) it passes everything through.

    Raises `AssertionError` for a growth factor up to 1, a backoff factor from 1 on, and for calls before anything was
    scaled; `RuntimeError` for unscaling or stepping twice, or for a closure; `ValueError` for gradients in float16.

    >>> weight = torch.ones(1, requires_grad=True)
    >>> optimizer = torch.optim.SGD([weight], lr=0.5)
    >>> scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    >>> scaler.scale(weight * 2).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight.detach(), scaler.get_scale()
    (tensor([0.]), 8.0)
    """

    # As in PyTorch a disabled scaler keeps none of what it was given: these are there when they were set.
    _growth_factor: float
    _backoff_factor: float
    _growth_interval: int

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = device, enabled
        if enabled and device == "cuda" and not rushlight.cuda.is_available():
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                UserWarning,
                stacklevel=2,
            )
            self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._growth_factor, self._backoff_factor, self._growth_interval = (
            growth_factor,
            backoff_factor,
            growth_interval,
        )
        self._init_growth_tracker = 0
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: defaultdict[int, dict[str, Any]] = defaultdict(_fresh_state)

    def is_enabled(self) -> bool:
        """Whether this scaler scales."""
        return self._enabled

    # ***** the loss *****

    def scale(self, outputs: Any) -> Any:
        """`outputs`, a tensor or an iterable of such, times the scale; `ValueError` for anything else."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            scale: Any = self._scale
            return outputs * scale.to(outputs.device, non_blocking=True)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(each) for each in outputs)
        if isinstance(outputs, Iterable):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _lazy_init_scale_growth_tracker(self, device: Any) -> None:
        self._scale = rushlight.full((), self._init_scale, dtype=rushlight.float32, device=device)
        self._growth_tracker = rushlight.full((), self._init_growth_tracker, dtype=rushlight.int32, device=device)

    def _started(self, caller: str) -> tuple[Any, Any]:
        for name in ("_scale", "_growth_tracker"):
            if getattr(self, name) is None:
                raise AssertionError(
                    f"Attempted {caller} but {name} is None.  This may indicate your script did not use scaler.scale(loss or outputs) "
                    "earlier in the iteration."
                )
        return self._scale, self._growth_tracker

    # ***** the gradients *****

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer by the scale, once in each iteration, to read or clip them before
        `step`.
        """
        if not self._enabled:
            return
        scale, _ = self._started("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse = scale.double().reciprocal().float()
        found = rushlight.zeros((), dtype=rushlight.float32, device=scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, found, False)
        state["stage"] = OptState.UNSCALED

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        """Multiply all gradients by `inv_scale`, a tensor, or None where they stay as they are.

        Gives for each device whether one of them was not finite, as 0 or 1: a copy of `found_inf`, or on its device
        itself.
        """
        by_device: dict[Any, list[Any]] = {}
        for group in optimizer.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.dtype is rushlight.float16 and not allow_fp16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                if grad.is_sparse:
                    if grad.dtype is rushlight.float16:  # sums of entries for one place may overflow
                        grad = param.grad = grad.coalesce()
                    grad = grad._values()
                by_device.setdefault(grad.device, []).append(grad)
        flags = {device: found_inf.to(device, non_blocking=True) for device in by_device}
        with rushlight.no_grad():
            for device, grads in by_device.items():
                inverse = None if inv_scale is None else inv_scale.to(device, non_blocking=True)
                check_finite(grads, flags[device], inverse)
        return flags

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        """Look for infinities and NaNs among gradients that stay as they are."""
        scale, _ = self._started("_check_inf_per_device")
        found = rushlight.zeros((), dtype=rushlight.float32, device=scale.device)
        flags = self._unscale_grads_(optimizer, None, found, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = flags
        return flags

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    # ***** the step *****

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)` with unscaled gradients, or nothing (None) if one of them is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._started("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_of_scaling_optimizer(optimizer, state, args, kwargs)
        else:
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if not state["found_inf_per_device"]:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The step, if the host finds that no gradient overflowed."""
        if any(assumed_zero(found) for found in optimizer_state["found_inf_per_device"].values()):
            return None
        return optimizer.step(*args, **kwargs)

    def _step_of_scaling_optimizer(
        self, optimizer: Any, state: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """An optimizer that unscales by itself gets the scale and whether to skip, as attributes for this one step."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near future GradScaler registers "
                "`grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer and let the optimizer use them directly.",
                FutureWarning,
                stacklevel=3,
            )
            return optimizer.step(*args, **{**kwargs, "grad_scaler": self})
        ready = state["stage"] is OptState.READY
        if ready:
            self._check_inf_per_device(optimizer)
        own = getattr(optimizer, "grad_scale", None)
        optimizer.grad_scale = own if not ready else self._scale if own is None else self._scale * own
        optimizer.found_inf = self._sum_of_flags(state["found_inf_per_device"].values())
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def update(self, new_scale: Any = None) -> None:
        """Adapt the scale after the steps of an iteration; or set it to `new_scale`, a float or a tensor with one
        element.
        """
        if not self._enabled:
            return
        scale, tracker = self._started("update")
        if isinstance(new_scale, float):
            scale.fill_(new_scale)
        elif new_scale is not None:
            if new_scale.device.type != self._device or new_scale.numel() != 1 or new_scale.requires_grad:
                raise AssertionError(
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with requires_grad=False."
                )
            scale.copy_(new_scale)
        else:
            found = [
                each for state in self._per_optimizer_states.values() for each in state["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            factors = self._growth_factor, self._backoff_factor
            _amp_update_scale_(scale, tracker, self._sum_of_flags(found), *factors, self._growth_interval)
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _sum_of_flags(self, flags: Iterable[Any]) -> Any:
        """How many devices found an overflow, on the device of the scale; 0 without flags."""
        here = [flag.to(self._scale.device, non_blocking=True) for flag in flags]  # type: ignore[union-attr]  # it is scaling
        return functools.reduce(operator.add, here) if here else 0

    # ***** settings and saving *****

    def get_scale(self) -> float:
        """The scale; 1.0 where nothing is scaled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def _get_growth_tracker(self) -> int:
        """How many good steps there were in a row."""
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def get_growth_factor(self) -> float:
        """Factor of the scale after `growth_interval` good steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set another growth factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Factor of the scale after gradients that are not finite."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set another backoff factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many good steps in a row let the scale grow."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set another interval."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The state as plain numbers: `scale`, `growth_factor`, `backoff_factor`, `growth_interval`, `_growth_tracker`;
        empty if disabled.
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on as the scaler whose `state_dict` this is; RuntimeError for that of a disabled one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(self._init_growth_tracker)
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after scaler.update()."
                )
            state |= {
                "_init_scale": self.get_scale(),
                "_init_growth_tracker": self._get_growth_tracker(),
                "_scale": None,
                "_growth_tracker": None,
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
