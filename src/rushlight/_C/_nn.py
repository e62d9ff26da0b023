"""PyTorch's native `nn`: pickles name functions so, and packages use the one that reads the arguments of `to`."""

from __future__ import annotations

from typing import Any

from rushlight.nn import functional
from rushlight.nn.modules.conversion import parse_to as _parse_to

__all__ = ["_parse_to"]

_OTHERWISE = {"log_sigmoid": "logsigmoid"}


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        word = _OTHERWISE.get(name, name)
        found = getattr(functional, word, None)
        if found is not None:
            return found
    raise AttributeError(f"rushlight has no '_C._nn.{name}' yet", name=name)
