"""Settings of the caching allocator, as `PYTORCH_CUDA_ALLOC_CONF` or `PYTORCH_ALLOC_CONF` give them.

>>> from rushlight._backends.cuda.memory.settings import parse
>>> settings = parse("max_split_size_mb:128,roundup_power2_divisions:4")
>>> settings.max_split_size >> 20, settings.rounded(1300 * 1024)
(128, 1572864)
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

__all__ = ["UNIT", "Settings", "current", "parse"]

UNIT = 512  # bytes; every size is a multiple
_LEAST_SPLIT = 20 << 20


@dataclass
class Settings:
    """Settings of the allocator."""

    max_split_size: int = 1 << 62
    max_non_split_rounding: int = 20 << 20
    garbage_collection_threshold: float = 0.0
    roundup_divisions: dict[int, int] = field(default_factory=dict)  # by the power of two in megabytes; 0: all others
    memory_fraction: float | None = None
    expandable_segments: bool = False
    text: str = ""  # that they were given by

    def shown(self) -> dict[str, Any]:
        """The settings as PyTorch's snapshots name them."""
        return {
            "PYTORCH_CUDA_ALLOC_CONF": self.text, "max_split_size": -1 if self.max_split_size >= 1 << 62 else self.max_split_size,
            "garbage_collection_threshold": self.garbage_collection_threshold, "expandable_segments": self.expandable_segments,
            "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False, "pinned_use_cuda_host_register": False,
            "roundup_power2_divisions": {str(size or ">"): count for size, count in self.roundup_divisions.items()},
            "graph_capture_record_stream_reuse": False,
        }  # fmt: skip

    def rounded(self, nbytes: int) -> int:
        """The size that a request takes."""
        if nbytes < UNIT:
            return UNIT
        divisions = self._divisions(nbytes)
        if divisions > 1 and nbytes > UNIT * divisions:
            step = (1 << nbytes.bit_length() - 1) // divisions
            if nbytes & (nbytes - 1):
                return -(-nbytes // step) * step
        return -(-nbytes // UNIT) * UNIT

    def _divisions(self, nbytes: int) -> int:
        """Of requests from a power of two of megabytes to the next one; smaller ones are as those of the least power."""
        given = self.roundup_divisions
        sizes = [size for size in given if size]
        if not sizes:
            return given.get(0, 0)
        power = max((1 << (nbytes >> 20).bit_length()) >> 1, min(sizes))
        return given.get(0 if power > max(sizes) else power, 0)


def _megabytes(text: str) -> int:
    return int(text) << 20


def _split_size(settings: Settings, text: str) -> None:
    size = _megabytes(text)
    if size <= _LEAST_SPLIT:
        raise ValueError(f"CachingAllocator option max_split_size_mb too small, must be > {_LEAST_SPLIT >> 20}")
    settings.max_split_size = size


def _rounding(settings: Settings, text: str) -> None:
    settings.max_non_split_rounding = _megabytes(text)


def _threshold(settings: Settings, text: str) -> None:
    value = float(text)
    if not 0 < value < 1:
        raise ValueError("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
    settings.garbage_collection_threshold = value


def _fraction(settings: Settings, text: str) -> None:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("per_process_memory_fraction is invalid, set it in [0.0, 1.0]")
    settings.memory_fraction = value


def _divisions(settings: Settings, text: str) -> None:
    rows = re.findall(r"(\d+|>)\s*:\s*(\d+)", text) if text.startswith("[") else [(">", text)]
    for size, count in rows:
        if int(count) & (int(count) - 1):
            raise ValueError(f"For roundups, the divisions has to be power of 2 or 0 to disable roundup, got {count}")
        settings.roundup_divisions[0 if size == ">" else 1 << int(size).bit_length() - 1] = int(count)


def _backend(settings: Settings, text: str) -> None:
    if text != "native":
        raise ValueError(f"rushlight has one allocator for CUDA, 'native'; backend:{text} is another")


def _expandable(settings: Settings, text: str) -> None:
    if text not in ("True", "False"):
        raise ValueError(f"expandable_segments expects True or False, not {text}")
    settings.expandable_segments = text == "True"


def _without_effect(name: str, usual: str) -> Callable[[Settings, str], None]:
    def take(settings: Settings, text: str) -> None:
        if text.lower() != usual:
            warnings.warn(f"{name}:{text} has no effect in rushlight", stacklevel=4)

    return take


_OPTIONS: dict[str, Callable[[Settings, str], None]] = {
    "max_split_size_mb": _split_size,
    "max_non_split_rounding_mb": _rounding,
    "garbage_collection_threshold": _threshold,
    "per_process_memory_fraction": _fraction,
    "roundup_power2_divisions": _divisions,
    "backend": _backend,
    "expandable_segments": _expandable,
    **{
        name: _without_effect(name, usual)
        for name, usual in {
            "pinned_use_cuda_host_register": "false",
            "pinned_num_register_threads": "1",
            "pinned_use_background_threads": "false",
            "release_lock_on_cudamalloc": "false",
            "graph_capture_record_stream_reuse": "false",
        }.items()
    },
}


def parse(text: str) -> Settings:
    """Settings from a text; ValueError for an option that does not exist, or a value that it cannot have."""
    made = Settings(text=text)
    for word in re.split(r",(?![^\[]*\])", text.strip()):
        name, colon, value = (part.strip() for part in word.partition(":"))
        if not name:
            continue
        take = _OPTIONS.get(name)
        if take is None or not colon:
            raise ValueError(f"Unrecognized CachingAllocator option: {name}; there are {', '.join(sorted(_OPTIONS))}")
        take(made, value)
    return made


@lru_cache(maxsize=1)
def current() -> Settings:
    """The settings of the process; the variable is read once."""
    text = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    return parse(text)
