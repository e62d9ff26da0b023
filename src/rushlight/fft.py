"""Functions of `torch.fft`."""

from __future__ import annotations

from typing import Any

from rushlight._engine.tensor import Tensor  # noqa: F401 -- PyTorch shows it here too
from rushlight._surface.registry import SPACES


def __getattr__(name: str) -> Any:
    found = SPACES["fft"].get(name)
    if found is None:
        raise AttributeError(f"rushlight.fft has no {name!r} yet")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *SPACES["fft"]})
