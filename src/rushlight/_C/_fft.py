"""PyTorch's native Fourier transforms: pickles of functions name them so."""

from __future__ import annotations

from typing import Any

from rushlight._interface.operators import SPACES

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    found = SPACES["fft"].get(name.removeprefix("fft_"))
    if found is None:
        raise AttributeError(f"rushlight has no '_C._fft.{name}' yet", name=name)
    return found
