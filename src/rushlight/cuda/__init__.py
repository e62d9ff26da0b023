"""NVIDIA's GPUs, as `torch.cuda`.

Questions (`is_available`, `device_count`) are answered on every machine, and calls that PyTorch itself ignores without a
GPU (seeds, emptying the cache) do nothing there; whatever needs a GPU raises RuntimeError that says why there is none.

    >>> torch.cuda.is_available() == (torch.cuda.unavailable_reason() is None)
    True
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight._interface.base import import_whole
from rushlight._surface.dispatch import AcceleratorError as AcceleratorError
from rushlight._surface.dispatch import OutOfMemoryError as OutOfMemoryError
from rushlight.cuda import graphs, memory, random, streams
from rushlight.cuda._utils import _get_device_index as _get_device_index
from rushlight.cuda.access import on_gpus
from rushlight.cuda.device import *
from rushlight.cuda.device import _CudaDeviceProperties as _CudaDeviceProperties
from rushlight.cuda.device import _DeviceGuard as _DeviceGuard
from rushlight.cuda.device import _exchange_device as _exchange_device
from rushlight.cuda.device import _is_compiled as _is_compiled
from rushlight.cuda.device import _is_in_bad_fork as _is_in_bad_fork
from rushlight.cuda.device import _lazy_call as _lazy_call
from rushlight.cuda.device import _lazy_init as _lazy_init
from rushlight.cuda.device import _maybe_exchange_device as _maybe_exchange_device
from rushlight.cuda.device import device_of_object as device_of
from rushlight.cuda.device import is_initialized
from rushlight.cuda.graphs import *
from rushlight.cuda.memory import *
from rushlight.cuda.random import *
from rushlight.cuda.random import _get_rng_state_offset as _get_rng_state_offset
from rushlight.cuda.random import _set_rng_state_offset as _set_rng_state_offset
from rushlight.cuda.runtime import *
from rushlight.cuda.runtime import _sleep as _sleep
from rushlight.cuda.storages import *
from rushlight.cuda.streams import *
from rushlight.cuda.streams import (
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

# The older classes of tensors: constructors, and classes for `isinstance`.
_CLASSES = (
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
)  # fmt: skip
_PAGES = (
    "_gpu_trace",
    "_sanitizer",
    "_utils",
    "amp",
    "comm",
    "gds",
    "green_contexts",
    "jiterator",
    "nccl",
    "nvtx",
    "profiler",
    "sparse",
    "tunable",
)
# Whether there are kernels for half precision, and a library for linear algebra.
has_half, has_magma = True, False

for _name in _CLASSES:
    globals()[_name] = on_gpus(getattr(rushlight, _name))
del _name


def __getattr__(name: str) -> Any:
    if name in _PAGES:
        return import_whole(f"rushlight.cuda.{name}")
    if name == "default_generators":
        return tuple(random._all())
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"rushlight.cuda has no {name!r} yet")
