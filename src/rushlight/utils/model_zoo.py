"""An older name of `torch.hub.load_state_dict_from_url`."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import require
from rushlight.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # which other packages take from here
        return require("tqdm.auto", "examples").tqdm
    raise AttributeError(f"rushlight.utils.model_zoo has no {name!r} yet")
