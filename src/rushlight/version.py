"""Versions, as `torch.version`: None for every accelerator toolkit that rushlight is not built with.

`cuda` is the version of CUDA that the driver supports, "13.0", and None where there is no GPU to use: it is looked up
when a program first reads it.

`__version__` is rushlight's own, as `rushlight` is; where rushlight runs under the name torch it is the version of
PyTorch whose interface it has.
"""

from __future__ import annotations

from typing import Any as _Any

from rushlight import _OWN_VERSION
from rushlight import __version__ as _VERSION
from rushlight import device as _Device
from rushlight._interface.cuda import backend_of as _backend_of
from rushlight._interface.cuda import why_absent as _why_absent

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "rushlight", "xpu"]

__version__ = str(_VERSION)
rushlight = str(_OWN_VERSION)
cuda: str | None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version: str | None = None
debug = False


def __getattr__(name: str) -> str | None:
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _why_absent("cuda") is not None:
        return None
    gpus: _Any = _backend_of(_Device("cuda", 0))
    number: int = gpus.driver.cuDriverGetVersion()
    return f"{number // 1000}.{number % 1000 // 10}"
