"""`torch._inductor.freezing_utils`: which tensors of a graph are constants because its parameters are frozen."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

__all__ = [
    "enter_freezing",
    "has_frozen_params",
    "is_frozen_param",
    "maybe_set_is_frozen_param",
    "record_has_frozen_params",
]


class _Here(threading.local):
    freezing = False


_HERE = _Here()


@contextlib.contextmanager
def enter_freezing() -> Iterator[None]:
    """A context in which `maybe_set_is_frozen_param` marks tensors."""
    before, _HERE.freezing = _HERE.freezing, True
    try:
        yield
    finally:
        _HERE.freezing = before


def record_has_frozen_params(gm: Any) -> None:
    """Mark a graph module as one with frozen parameters."""
    gm._has_frozen_params = True


def has_frozen_params(gm: Any) -> bool:
    """Whether a graph module is marked."""
    return bool(getattr(gm, "_has_frozen_params", False))


def maybe_set_is_frozen_param(t: Any) -> None:
    """Mark a tensor as a frozen parameter, inside of `enter_freezing`."""
    if _HERE.freezing:
        t._is_frozen_param = True


def is_frozen_param(t: Any) -> bool:
    """Whether a tensor is marked."""
    return bool(getattr(t, "_is_frozen_param", False))
