"""Functions of `torch.fft`."""

from __future__ import annotations

from rushlight import Tensor as Tensor  # PyTorch shows it here too
from rushlight._interface.base import lazy_names
from rushlight._interface.operators import SPACES

__getattr__ = lazy_names(__name__, SPACES["fft"].get)


def __dir__() -> list[str]:
    return sorted({*globals(), *SPACES["fft"]})
