"""Mixed precision, as `torch.amp`: only what does nothing, because rushlight does not cast by itself yet.

A disabled `autocast` or `GradScaler` behaves as in PyTorch.  One that asks for CUDA disables itself with a warning, as in
PyTorch on a machine without a GPU.  An enabled one for the CPU raises NotImplementedError.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["GradScaler", "autocast", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """Always False."""
    return False


class autocast:
    """A region of automatic casts; also a decorator.  Only the disabled one exists.

    NotImplementedError for one that is enabled on the CPU.  One that is enabled on CUDA warns and is disabled.

        >>> with torch.autocast("cpu", enabled=False):
        ...     y = torch.ones(2) * 2
    """

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if enabled and device_type == "cuda":
            warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", UserWarning, stacklevel=2)
            enabled = False
        if enabled:
            raise NotImplementedError(f"autocast({device_type!r}): rushlight does not cast automatically; use enabled=False")
        self.device, self.fast_dtype = device_type, dtype

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside


class GradScaler:
    """The scaling of a loss against underflow.  Only the disabled one exists: it passes everything through.

    NotImplementedError for one that is enabled on the CPU.  One that is enabled on CUDA warns and is disabled.

        >>> weight = torch.ones(1, requires_grad=True)
        >>> optimizer = torch.optim.SGD([weight], lr=0.5)
        >>> scaler = torch.amp.GradScaler("cuda", enabled=False)
        >>> scaler.scale(weight * 2).backward()
        >>> scaler.step(optimizer)
        >>> weight.detach()
        tensor([0.])
    """

    # As in PyTorch a disabled scaler keeps none of what it was given: these are there when they were set.
    _growth_factor: float
    _backoff_factor: float
    _growth_interval: int

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        if enabled and device == "cuda":
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            enabled = False
        if enabled:
            raise NotImplementedError(f"GradScaler({device!r}): rushlight does not scale losses; use enabled=False")

    def is_enabled(self) -> bool:
        """Always False."""
        return False

    def scale(self, outputs: Any) -> Any:
        """`outputs` itself."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Nothing: nothing was scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)`."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Nothing: there is no scale to adapt."""

    def get_scale(self) -> float:
        """Always 1.0."""
        return 1.0

    def get_growth_factor(self) -> float:
        """What the scale is multiplied with after `growth_interval` good steps, where it was set."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Remember another growth factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied with after a step with infinite gradients, where it was set."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Remember another backoff factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many good steps in a row let the scale grow, where it was set."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Remember another interval."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """An empty dict, as PyTorch's for a disabled scaler."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing: a disabled scaler has no state."""
