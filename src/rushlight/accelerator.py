"""The machine's accelerator, as `torch.accelerator`: there is none, and everything that would need one says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

# What only an accelerator could answer.
_REFUSED = (
    "current_device_idx", "current_device_index", "current_stream", "empty_cache", "empty_host_cache", "get_device_capability", "get_memory_info",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats", "reset_accumulated_memory_stats",
    "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize",
)  # fmt: skip

__all__ = ["Graph", "current_accelerator", "device_count", "device_index", "is_available", *_REFUSED]  # noqa: PLE0604


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """None: PyTorch gives the kind of device here."""
    return None


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("Cannot access accelerator device when none is available.")


def _needs_accelerator(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        _absent()

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "RuntimeError: there is no accelerator."
    return refuse


globals().update({name: _needs_accelerator(name) for name in _REFUSED})


class device_index:
    """A context that would choose a device by its number; None changes nothing, anything else raises RuntimeError on entry."""

    def __init__(self, device: int | None, /) -> None:
        self.device = device

    def __enter__(self) -> None:
        if self.device is not None:
            _absent()

    def __exit__(self, *exc: object) -> None:
        pass


class Graph:
    """A recorded piece of work on an accelerator.  RuntimeError: there is none."""

    def __init__(self, keep_graph: bool = False, *, pool: Any = None, capture_error_mode: str = "default") -> None:
        _absent()
