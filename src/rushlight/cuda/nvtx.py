"""`torch.cuda.nvtx`: marks for NVIDIA's profilers.  Without a GPU there is nobody to read them: making one raises
RuntimeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rushlight._interface.base import MissingDeviceError

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _unavailable(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError: there is no GPU."""
    raise MissingDeviceError(
        "torch.cuda.nvtx needs a CUDA GPU, and rushlight computes on the CPU only; torch.profiler.record_function names ranges here"
    )


mark = range_end = range_pop = range_push = range_start = _unavailable


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A context and decorator that marks what runs inside: RuntimeError when it is entered, there is no GPU."""
    _unavailable()
    yield
