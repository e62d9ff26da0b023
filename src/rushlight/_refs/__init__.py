"""`torch._refs`: operators written over simpler ones.  Here every operator is, so these are the public functions.

>>> torch._refs.softmax is torch.softmax
True
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight._interface.base import import_whole
from rushlight._interface.operators import SPACES

__all__: list[str] = []

_PAGES = ("fft", "linalg", "nn", "special")


def __getattr__(name: str) -> Any:
    if name in _PAGES:
        return import_whole(f"rushlight.{name}")
    if name in SPACES["torch"]:
        return SPACES["torch"][name]
    found = None if name.startswith("_") else getattr(rushlight, name, None) or getattr(rushlight.Tensor, name, None)
    if not callable(found):
        raise AttributeError(f"rushlight has no '_refs.{name}'", name=name)
    return found
