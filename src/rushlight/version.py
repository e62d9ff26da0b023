"""Versions, as `torch.version`: None for every accelerator toolkit that rushlight is not built with.

`__version__` is rushlight's own, as `rushlight` is; where rushlight runs under the name torch it is the version of
PyTorch whose interface it has.
"""

from __future__ import annotations

from rushlight import _OWN_VERSION
from rushlight import __version__ as _VERSION

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "rushlight", "xpu"]

__version__ = str(_VERSION)
rushlight = str(_OWN_VERSION)
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version: str | None = None
debug = False
