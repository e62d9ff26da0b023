"""Functions of `torch.linalg`, from the operator table."""

from __future__ import annotations

from rushlight._interface.base import lazy_names
from rushlight._interface.operators import SPACES

__getattr__ = lazy_names(__name__, SPACES["linalg"].get)


def __dir__() -> list[str]:
    return sorted({*globals(), *SPACES["linalg"]})
