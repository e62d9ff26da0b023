"""Libraries that PyTorch can compute with, as `torch.backends`.

None of them is in rushlight, so `is_available()` is False everywhere.  The switches that programs set at their start
(`cudnn.benchmark = True`) can be set and read; they change nothing, for there is nothing they could change.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rushlight._surface.composites.attention import ALLOWED

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]


class _Absent(ModuleType):
    """The page of a library that rushlight does not use; `switches` are its settings with their values at the start."""

    def __init__(self, name: str, **switches: Any) -> None:
        super().__init__(f"rushlight.backends.{name}", f"`torch.backends.{name}`: not part of rushlight.")
        self.__dict__.update(switches)
        self.__spec__ = ModuleSpec(self.__name__, None)  # `import torch.backends.cuda` looks for it
        sys.modules[self.__name__] = self

    def is_available(self) -> bool:
        """Always False."""
        return False

    def is_built(self) -> bool:
        """Always False."""
        return False

    def version(self) -> None:
        """None: the library is not there."""


class _Switches:
    """A group of settings inside a page, such as `cuda.matmul`."""

    def __init__(self, **switches: Any) -> None:
        self.__dict__.update(switches)


cudnn = _Absent("cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10)
cuda = _Absent(
    "cuda",
    matmul=_Switches(
        allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True
    ),
)
mps = _Absent("mps")
mkl = _Absent("mkl")
mkldnn = _Absent("mkldnn", enabled=True, deterministic=False, allow_tf32=True)
openmp = _Absent("openmp")
cpu = _Absent("cpu")


def _sdp(name: str) -> None:
    """`cuda.NAME_sdp_enabled()` and `cuda.enable_NAME_sdp(flag)`, a switch behind two functions."""

    def enabled() -> bool:
        return ALLOWED[name]

    def enable(flag: bool) -> None:
        ALLOWED[name] = bool(flag)

    setattr(cuda, f"{name}_sdp_enabled", enabled)
    setattr(cuda, f"enable_{name}_sdp", enable)


for _name in ("flash", "mem_efficient", "math", "cudnn"):
    _sdp(_name)
del _name
