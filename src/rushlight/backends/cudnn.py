"""cuDNN, NVIDIA's library of neural network operations: its convolutions may take the place of ours on GPUs.

It belongs to the extra `rushlight[cuda]`; who computes a convolution is measured once (`RUSHLIGHT_CUDA_CONVOLUTIONS`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight import device as _device
from rushlight._interface.base import trace_marks
from rushlight._interface.cuda import backend_of, why_absent
from rushlight._interface.operators import FP32_PRECISION, LIBRARIES
from rushlight.backends import cudnn_rnn as rnn
from rushlight.backends.pages import Precision, PrecisionSetting, Setting, boolean, make_page, mixed

__all__ = ["conv", "flags", "is_acceptable", "is_available", "rnn", "set_flags", "version"]

conv = Precision("cuda", "conv")

enabled: bool
benchmark: bool
benchmark_limit: int | None
deterministic: bool
allow_tf32: bool
fp32_precision: str
depthwise_kernel: str


class _AllowTF32:
    """Whether convolutions and recurrent layers may both use TF32; RuntimeError where their own settings say otherwise."""

    told = True

    def get(self) -> bool:
        allowed = {FP32_PRECISION.get(("cuda", kind)) == "tf32" for kind in ("conv", "rnn")}
        if allowed != {self.told}:
            raise RuntimeError(mixed("allow_tf32 of cuDNN"))
        return self.told

    def set(self, value: Any) -> None:
        boolean("allow_tf32_cublas")(value)
        self.told = value
        FP32_PRECISION["cuda", "conv"] = FP32_PRECISION["cuda", "rnn"] = "tf32" if value else "none"


class _OfLibraries(Setting):
    """A setting that decides who computes convolutions, and how."""

    def __init__(self, name: str, word: str) -> None:
        super().__init__(getattr(LIBRARIES, name), boolean(word))
        self.name = name

    def get(self) -> Any:
        """Its kind."""
        return getattr(LIBRARIES, self.name)

    def set(self, value: Any) -> None:
        """Change it."""
        super().set(value)
        LIBRARIES.set(self.name, value)


def _integer(value: Any) -> None:
    if not isinstance(value, int):
        raise RuntimeError(f"set_benchmark_limit_cudnn expects an int, but got {type(value).__name__}")


def _kernel(value: Any) -> None:
    if value not in ("auto", "cudnn", "native"):
        raise RuntimeError(f"Unknown cuDNN depthwise kernel mode: {value}. Expected one of: auto, cudnn, native")


_SETTINGS: dict[str, Any] = {
    "enabled": _OfLibraries("cudnn", "enabled_cudnn"),
    "benchmark": _OfLibraries("cudnn_benchmark", "benchmark_cudnn"),
    "benchmark_limit": Setting(None, _integer),
    "deterministic": _OfLibraries("cudnn_deterministic", "deterministic_cudnn"),
    "allow_tf32": _AllowTF32(),
    "fp32_precision": PrecisionSetting("cuda"),
    "depthwise_kernel": Setting("auto", _kernel),
}


def _backend() -> Any:
    return backend_of(_device("cuda", 0))


def is_available() -> bool:
    """Whether there is a GPU, and cuDNN for it."""
    return why_absent("cuda") is None and _backend().library_path("cudnn") is not None


def version() -> int | None:
    """The version of cuDNN (10000 * major + 100 * minor + patch); None where it is not installed, or there is no GPU."""
    return int(_backend().cudnn_version()) if is_available() else None


_TYPES = ("torch.float16", "torch.float32", "torch.float64", "torch.bfloat16")


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN could take a tensor: a GPU's, of floats, while it is enabled."""
    return is_available() and LIBRARIES.cudnn and tensor.device.type == "cuda" and str(tensor.dtype) in _TYPES


@trace_marks.changes_later_calls
def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str = "none",
    _depthwise_kernel: str | None = None,
) -> tuple[Any, ...]:
    """Change those that are given; all as they were before."""
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32, _fp32_precision, _depthwise_kernel)
    before = tuple(setting.get() for setting in _SETTINGS.values())
    for setting, value in zip(_SETTINGS.values(), given, strict=True):
        if value is not None:
            setting.set(value)
    return before


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
    depthwise_kernel: str = "auto",
) -> Iterator[None]:
    """`set_flags`, and back afterwards."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision, depthwise_kernel)
    try:
        yield
    finally:
        set_flags(*before)


make_page(__name__, **_SETTINGS)
