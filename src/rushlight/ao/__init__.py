"""`torch.ao`: of the tools that make quantized models, what models in floats hold."""

from __future__ import annotations

from typing import Any

from rushlight._base.importing import import_whole
from rushlight._base.naming import no_name

__all__ = ["quantization"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_whole(f"{__name__}.{name}")
    raise no_name(__name__, name)
