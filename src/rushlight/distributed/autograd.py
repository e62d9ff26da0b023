"""`torch.distributed.autograd`: backward through calls in other processes is not there; the names are, so that programs can
be imported.
"""

from __future__ import annotations

from rushlight._interface.base import absent_class, absent_function

__all__ = ["backward", "context", "get_gradients", "is_available"]

_WHY = "there are no calls of functions in other processes"
context = absent_class("torch.distributed.autograd.context", _WHY)
backward, get_gradients = (
    absent_function(f"torch.distributed.autograd.{name}", _WHY) for name in ("backward", "get_gradients")
)


def is_available() -> bool:
    """Whether backward can go through other processes: False."""
    return False
