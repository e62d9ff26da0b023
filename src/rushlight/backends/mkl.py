"""MKL, Intel's mathematical library: not here.  Matrix products come from generated kernels and the BLAS inside of
NumPy.
"""

from __future__ import annotations

from typing import Any

__all__ = ["VERBOSE_OFF", "VERBOSE_ON", "is_available", "verbose"]

VERBOSE_OFF = 0
VERBOSE_ON = 1


def is_available() -> bool:
    """False."""
    return False


class verbose:
    """Would print what MKL runs; RuntimeError on entering with another level than VERBOSE_OFF."""

    def __init__(self, enable: int) -> None:
        self.enable = enable

    def __enter__(self) -> verbose | None:
        if self.enable == VERBOSE_OFF:
            return None
        raise RuntimeError(
            "verbose: rushlight does not compute with MKL; torch.explain and RUSHLIGHT_LOG show the kernels that run"
        )

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        return None
