"""An older name of `torch.hub.load_state_dict_from_url`."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import no_name
from rushlight.hub import load_state_dict_from_url as load_url
from rushlight.hub.progress import bar_class

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # which other packages take from here
        return bar_class()
    raise no_name(__name__, name)
