"""`torch.distributed.elastic.multiprocessing.redirects`: the output of a process in a file, that of C code included."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

__all__ = ["get_libc", "redirect", "redirect_stderr", "redirect_stdout"]


def get_libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None)


@contextmanager
def redirect(std: str, to_file: str) -> Iterator[None]:
    """Let "stdout" or "stderr", the file descriptor itself, be the file `to_file` in the block; it is overwritten."""
    if std not in ("stdout", "stderr"):
        raise ValueError(f"unknown standard stream <{std}>, must be one of {{'stdout', 'stderr'}}")
    stream = getattr(sys, std)
    number = stream.fileno()

    def point_to(file: int) -> None:
        get_libc().fflush(None)  # what C code has written so far
        stream.flush()
        os.dup2(file, number)

    before = os.dup(number)
    try:
        with open(to_file, "w+b") as file:
            point_to(file.fileno())
            try:
                yield
            finally:
                point_to(before)
    finally:
        os.close(before)


redirect_stdout = partial(redirect, "stdout")
redirect_stderr = partial(redirect, "stderr")
