"""Functions of `torch.special`, from the operator table."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import lazy_names
from rushlight._interface.operators import SPACES


def _find(name: str) -> Any:
    return sorted(SPACES["special"]) if name == "__all__" else SPACES["special"].get(name)


__getattr__ = lazy_names(__name__, _find)


def __dir__() -> list[str]:
    return sorted({*globals(), *SPACES["special"]})
