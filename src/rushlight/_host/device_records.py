"""Interface between the host and a device's native half: functions by address, and the words with which a kernel is
launched.

The host allocates the results of a call and starts its kernels through these alone, and never reads or writes a
device's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rushlight._native import Record, i64, ptr

if TYPE_CHECKING:
    from rushlight._types.spec import Spec

__all__ = ["DEVICE", "FRESH_SIZES", "HEADER", "LAUNCH", "MAY_UNLOCK", "NativeDevice"]

DEVICE = Record(
    "device",
    ("allocate", ptr, "ptr(i64): memory of so many bytes, at least 1; null with an exception set"),
    ("allocate_zeroed", ptr, "the same, filled with zeros"),
    ("release", ptr, "void(ptr, i64): takes back what was allocated for so many bytes"),
    ("launch", ptr, "i32(ptr kernel, ptr bufs, ptr constants): runs a kernel; its status, 0 where it did not fail"),
    ("fail", ptr, "ptr(ptr bufs, i32 status): sets the exception for a launch that failed; null"),
    ("owner", ptr, "the owner of storages over its memory, a `Block` of the device; null: they have none (the host's)"),
)
# The constants of a launch begin with these words; what a kernel wants beyond them is between it and its device.
LAUNCH = Record(
    "launch",
    ("pieces", i64, "in how many pieces the kernel may run"),
    ("flags", i64, "see MAY_UNLOCK"),
    ("fresh", i64, "results for which memory is allocated: their addresses stand first in bufs"),
)
FRESH_SIZES = len(LAUNCH)  # the word from which on the sizes of these results stand, in bytes
MAY_UNLOCK = 1  # a flag: the launch lets other Python threads run
HEADER = 8  # words before bufs, which the device uses as it likes


class NativeDevice:
    """A device, as native plans use it.  A backend has one where calls can run without Python, and none (None) where
    they cannot.

    `functions` is the address of a record DEVICE; `readers` has for each dtype's name the address of a `ptr(ptr)` that
    gives the element at an address as a Python number, which dtypes may lack; `codes` are the numbers that `of_numbers`
    knows dtypes by.
    """

    functions: int
    readers: Mapping[str, int]
    codes: Mapping[str, int]
    # (address, sizes) -> how many bytes of a dense mask are set, and a storage with their coordinates: all first ones,
    # all second ones, ...; None where only Python can tell
    coordinates: Callable[[int, Any], tuple[int, Any]] | None = None

    def nested_reader(self, spec: Spec) -> Callable[[int], Any] | None:
        """A function from the address of the first element to nested lists of Python numbers; None for a spec that has
        no reader.
        """
        raise NotImplementedError

    def of_numbers(self, data: Any, spec: Spec, nbytes: int, numel: int, kind: int, code: int) -> Any:
        """A tensor of nested sequences of numbers, which the host has measured (`numbers_native`)."""
        raise NotImplementedError
