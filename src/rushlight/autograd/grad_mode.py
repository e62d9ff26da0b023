"""Grad modes, and settings of backward."""

from __future__ import annotations

from typing import Any

from rushlight._engine.dispatch.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from rushlight._interface.tensors import STATE, Decorating

__all__ = [
    "enable_grad",
    "enforce_grad_layout_policy",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


class _Setting(Decorating):
    """A setting that holds at once; until the end of the block when used with `with`, for calls of a function alone
    when it decorates one.
    """

    name = ""

    def __init__(self, mode: bool) -> None:
        self.mode, self.prev = mode, getattr(STATE, self.name)
        setattr(STATE, self.name, bool(mode))

    def __enter__(self) -> None:
        """Nothing: it holds already."""

    def __exit__(self, *exc: object) -> None:
        setattr(STATE, self.name, self.prev)

    def __call__(self, function: Any) -> Any:
        setattr(STATE, self.name, self.prev)
        return super().__call__(function)

    def clone(self) -> Any:
        """The same setting anew."""
        return type(self)(self.mode)


class set_multithreading_enabled(_Setting):
    """Whether backward may use a thread for each device.  The CPU is one device, so this changes nothing but what is
    read back.

    >>> import rushlight as torch
    >>> with torch.autograd.set_multithreading_enabled(False):
    ...     pass
    """

    name = "threaded_backward"


class enforce_grad_layout_policy(_Setting):
    """Whether the `.grad` that backward makes has its leaf's strides (the default), or those with which the gradient
    came.

    >>> import rushlight as torch
    >>> x = torch.ones(2, 3).t().requires_grad_()
    >>> with torch.autograd.enforce_grad_layout_policy(False):
    ...     (x * torch.ones(3, 2)).sum().backward()
    >>> x.stride(), x.grad.stride()
    ((1, 3), (2, 1))
    """

    name = "grads_like_leaves"

    def __init__(self, enable: bool = True) -> None:
        super().__init__(enable)


class _force_original_view_tracking(_Setting):
    """Whether views should repeat their own operators when their base was changed in place, in place of one
    `as_strided`.  Their gradients are the same numbers, so the setting is only read back
    (`torch.autograd.is_view_replay_enabled`); nodes of such views are named `AsStridedBackward0`.

    >>> import rushlight as torch
    >>> with torch.autograd._force_original_view_tracking(True):
    ...     torch.autograd.is_view_replay_enabled()
    True
    """

    name = "view_replay"
