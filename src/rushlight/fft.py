"""Functions of `torch.fft`."""

from __future__ import annotations

from rushlight._base.lazy import lazy_names
from rushlight._engine.core.tensor import Tensor  # noqa: F401 -- PyTorch shows it here too
from rushlight._surface.registry import SPACES

__getattr__ = lazy_names(__name__, SPACES["fft"].get)


def __dir__() -> list[str]:
    return sorted({*globals(), *SPACES["fft"]})
