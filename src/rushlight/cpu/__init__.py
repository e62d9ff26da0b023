"""The CPU as a device, as `torch.cpu`: one device, and streams that do nothing, so that programs written for
accelerators run.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rushlight._interface.base import import_whole, trace_marks
from rushlight._native.target import host_target

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "get_capabilities", "is_available", "is_initialized",
    "set_device", "stream", "synchronize",
]  # fmt: skip

# PyTorch's names for what a processor can do; LLVM's are the same but for dots, dashes and these.
_FEATURES = (
    "sse", "sse2", "sse3", "ssse3", "sse4_1", "sse4_2", "sse4a", "avx", "avx2", "avx_vnni", "avx_vnni_int8", "avx_vnni_int16", "avx_ne_convert",
    "avx10_1", "avx10_2", "avx512_f", "avx512_cd", "avx512_dq", "avx512_bw", "avx512_vl", "avx512_ifma", "avx512_vbmi", "avx512_vbmi2",
    "avx512_vnni", "avx512_bitalg", "avx512_vpopcntdq", "avx512_vp2intersect", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    "amx_fp16", "fma3", "fma4", "f16c", "bmi", "bmi2", "lzcnt", "popcnt", "aes", "sha", "clflushopt", "clwb",
)  # fmt: skip
_ARM = ("neon", "fp16", "bf16", "i8mm", "dotprod", "sve", "sve2", "sme", "sme2")
_LLVM_NAMES = {"fma3": "fma", "fp16": "fullfp16"}


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1, whatever the number of cores."""
    return 1


def current_device() -> str:
    """`"cpu"`."""
    return "cpu"


@trace_marks.changes_later_calls
def set_device(device: Any) -> None:
    """Does nothing."""


def synchronize(device: Any = None) -> None:
    """Does nothing: a call returns when its kernel is done."""


def get_capabilities() -> Mapping[str, Any]:
    """Capabilities of the processor: its name and cores, and True or False for each extension of its instructions."""
    import llvmlite.binding as llvm

    target = host_target()
    there = {
        name.replace(".", "").replace("-", "").replace("_", "")
        for name, has in dict(llvm.get_host_cpu_features()).items()
        if has
    }
    names = _ARM if target.arch in ("aarch64", "arm64") else _FEATURES
    found: dict[str, Any] = {name: _LLVM_NAMES.get(name, name).replace("_", "") in there for name in names}
    found.update(architecture=target.arch, cpu_name=target.model, num_logical_cores=target.cores)
    found.update(l1d_cache_size=target.l1_bytes, l2_cache_size=target.l2_bytes)
    return MappingProxyType(found)


class Stream:
    """A queue of work that is always empty."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Does nothing."""

    def record_event(self) -> None:
        """Does nothing."""

    def wait_event(self, event: Any) -> None:
        """Does nothing."""


class Event:
    """A point in a stream, always reached."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Does nothing."""

    def synchronize(self) -> None:
        """Does nothing."""

    def wait(self, stream: Any = None) -> None:
        """Does nothing."""


_CURRENT = [Stream()]


def current_stream(device: Any = None) -> Stream:
    """The stream chosen by `stream`."""
    return _CURRENT[0]


class StreamContext:
    """Inside, `current_stream()` is the given one; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.before = stream, _CURRENT[0]

    def __enter__(self) -> None:
        self.before = _CURRENT[0]
        if self.stream is not None:
            _CURRENT[0] = self.stream

    def __exit__(self, *exc: object) -> None:
        _CURRENT[0] = self.before


def stream(stream: Any) -> StreamContext:
    """A context in which this stream is the current one."""
    return StreamContext(stream)


def __getattr__(name: str) -> Any:
    if name == "amp":
        return import_whole("rushlight.cpu.amp")
    raise AttributeError(f"rushlight.cpu has no {name!r}")


def _is_avx2_supported() -> bool:
    return bool(get_capabilities().get("avx2"))


def _is_avx512_supported() -> bool:
    return bool(get_capabilities().get("avx512_f"))


def _is_avx512_bf16_supported() -> bool:
    return bool(get_capabilities().get("avx512_bf16"))


def _is_vnni_supported() -> bool:
    return bool(get_capabilities().get("avx512_vnni"))


def _is_amx_tile_supported() -> bool:
    return bool(get_capabilities().get("amx_tile"))


def _is_amx_fp16_supported() -> bool:
    return bool(get_capabilities().get("amx_fp16"))
