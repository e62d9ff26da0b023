"""Libraries that PyTorch can compute with, as `torch.backends`, and what programs allow them.

rushlight computes with none of them, so `is_available()` is False everywhere.  What programs set at their start
(`cudnn.benchmark = True`) is checked as PyTorch's CPU build checks it, and read back; it changes nothing, for there is
nothing that it could change.  `cuda.enable_*_sdp` say which ways of computing attention are allowed.

>>> import rushlight as torch
>>> torch.backends.cudnn.benchmark = True
>>> torch.backends.cudnn.benchmark, torch.backends.cudnn.is_available()
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rushlight._interface.base import trace_marks
from rushlight.backends import (
    cpu,
    cuda,
    cudnn,
    cusparselt,
    kleidiai,
    mha,
    mkl,
    mkldnn,
    mps,
    nnpack,
    openmp,
    opt_einsum,
    quantized,
    xnnpack,
)  # fmt: skip
from rushlight.backends.pages import PrecisionSetting, freeze, frozen, make_page, precision_of, set_precision

__all__ = [
    "cpu", "cuda", "cudnn", "cusparselt", "disable_global_flags", "flags", "flags_frozen", "kleidiai", "mha", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum",
    "quantized", "set_flags", "xnnpack",
]  # fmt: skip


fp32_precision: str


@trace_marks.changes_later_calls
def disable_global_flags() -> None:
    """From now on settings change only inside `flags(...)`."""
    freeze()


def flags_frozen() -> bool:
    """Whether `disable_global_flags` was called."""
    return frozen()


@trace_marks.changes_later_calls
def set_flags(_fp32_precision: str = "none") -> tuple[str]:
    """Allow a precision inside of float32 operations; what was allowed before, in a tuple."""
    before = (precision_of("generic", "all"),)
    set_precision("generic", "all", _fp32_precision)
    return before


@contextmanager
def flags(fp32_precision: str = "none") -> Iterator[None]:
    """`set_flags`, and back afterwards."""
    before = set_flags(fp32_precision)
    try:
        yield
    finally:
        set_flags(*before)


make_page(__name__, fp32_precision=PrecisionSetting("generic"))
