"""oneDNN (MKL-DNN), Intel's library of neural network operations: not here.  Its settings can be set and read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.backends.pages import Precision, PrecisionSetting, Setting, boolean, make_page

__all__ = [
    "VERBOSE_OFF", "VERBOSE_ON", "VERBOSE_ON_CREATION", "conv", "flags", "is_acl_available", "is_available", "matmul", "rnn", "set_flags", "verbose",
]  # fmt: skip

VERBOSE_OFF = 0
VERBOSE_ON = 1
VERBOSE_ON_CREATION = 2
conv = Precision("mkldnn", "conv")
matmul = Precision("mkldnn", "matmul")
rnn = Precision("mkldnn", "rnn")

enabled: bool
deterministic: bool
allow_tf32: bool | None
fp32_precision: str


class _AllowTF32:
    """TF32 of oneDNN is for Intel's GPUs: PyTorch's CPU build reads None, whatever was set."""

    def get(self) -> None:
        return None

    def set(self, value: Any) -> None:
        boolean("allow_tf32_onednn")(value)


_SETTINGS: dict[str, Any] = {
    "enabled": Setting(True, boolean("enabled_mkldnn")),
    "deterministic": Setting(False, boolean("deterministic_mkldnn")),
    "allow_tf32": _AllowTF32(),
    "fp32_precision": PrecisionSetting("mkldnn"),
}


def is_available() -> bool:
    """False: kernels are generated here, and oneDNN's are not used."""
    return False


def is_acl_available() -> bool:
    """False: there is no Arm Compute Library."""
    return False


@trace_marks.changes_later_calls
def set_flags(
    _enabled: bool | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str = "none",
) -> tuple[Any, ...]:
    """Change those that are given; all as they were before."""
    before = tuple(setting.get() for setting in _SETTINGS.values())
    for setting, value in zip(
        _SETTINGS.values(), (_enabled, _deterministic, _allow_tf32, _fp32_precision), strict=True
    ):
        if value is not None:
            setting.set(value)
    return before


@contextmanager
def flags(
    enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none"
) -> Iterator[None]:
    """`set_flags`, and back afterwards."""
    before = set_flags(enabled, deterministic, allow_tf32, fp32_precision)
    try:
        yield
    finally:
        set_flags(*before)


class verbose:
    """Would print what oneDNN runs; RuntimeError on entering with another level than VERBOSE_OFF."""

    def __init__(self, level: int) -> None:
        self.level = level

    def __enter__(self) -> verbose | None:
        if self.level == VERBOSE_OFF:
            return None
        raise RuntimeError(
            "verbose: rushlight does not compute with oneDNN; torch.explain and RUSHLIGHT_LOG show the kernels that run"
        )

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        return None


make_page(__name__, **_SETTINGS)
