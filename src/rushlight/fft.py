"""Functions of `torch.fft`."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor as Tensor  # PyTorch shows it here too
from rushlight._interface.base import lazy_names
from rushlight._interface.operators import SPACES


def _find(name: str) -> Any:
    return sorted(SPACES["fft"]) if name == "__all__" else SPACES["fft"].get(name)


__getattr__ = lazy_names(__name__, _find)


def __dir__() -> list[str]:
    return sorted({*globals(), *SPACES["fft"]})
