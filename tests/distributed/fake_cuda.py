"""A pretended GPU: device type `cuda` with streams and events of `fake_nccl.c`, whose memory is the host's.

Kernels and copies run when the current stream is idle; what is on other streams goes on beside them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.devices.guarded import OPEN, GuardedBackend, GuardedBlock, _libc

from rushlight._backends.protocol import EventHandle, StreamHandle
from rushlight._backends.registry import backends, register
from rushlight._types.device import Device

SOURCE = Path(__file__).parent / "programs" / "fake_nccl.c"


def build(folder: Path) -> Path:
    """Compile the library; skips where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the pretended NCCL is built by a C compiler")
    made = folder / "libfakenccl.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", str(made), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return made


_LIBRARY: list[Any] = []


def library() -> Any:
    """The pretended device's functions."""
    if not _LIBRARY:
        found = ctypes.CDLL(os.environ["RUSHLIGHT_NCCL_LIBRARY"])
        pointer = ctypes.c_void_p
        found.fake_stream.restype = found.fake_event.restype = pointer
        for name, arguments in {
            "fake_stream_idle": (pointer,), "fake_stream_drain": (pointer,), "fake_event_record": (pointer, pointer), "fake_event_done": (pointer,),
            "fake_stream_wait": (pointer, pointer), "fake_fill_later": (pointer, pointer, ctypes.c_int64, ctypes.c_float, ctypes.c_int64),
        }.items():  # fmt: skip
            getattr(found, name).argtypes = arguments
        _LIBRARY.append(found)
    return _LIBRARY[0]


class FakeStream(StreamHandle):
    __slots__ = ("id",)

    def __init__(self, device: Device, priority: int = 0) -> None:
        super().__init__(device, priority)
        self.id = library().fake_stream()

    def query(self) -> bool:
        return bool(library().fake_stream_idle(self.id))

    def synchronize(self) -> None:
        library().fake_stream_drain(self.id)

    def wait(self, event: EventHandle) -> None:
        library().fake_stream_wait(self.id, event.id)


class FakeEvent(EventHandle):
    __slots__ = ("id",)

    def __init__(self, device: Device, timing: bool = False) -> None:
        super().__init__(device, timing)
        self.id = library().fake_event()

    def record(self, stream: StreamHandle) -> None:
        library().fake_event_record(self.id, stream.id)

    def query(self) -> bool:
        return bool(library().fake_event_done(self.id))


class FakeBlock(GuardedBlock):
    """Memory that the host's threads can use, and that may be given back while tensors show it."""

    __slots__ = ()

    movable = True

    def __init__(self, backend: GuardedBackend, nbytes: int, device: Device) -> None:
        super().__init__(backend, nbytes, device)
        _libc.mprotect(self.address, self.mapped, OPEN)


class FakeCuda(GuardedBackend):
    type = "cuda"
    block_type = FakeBlock

    def __init__(self) -> None:
        super().__init__()
        self.stream_of_thread: Any = None

    @contextmanager
    def opened(self, address: int, nbytes: int) -> Iterator[memoryview]:
        self.current_stream(Device("cuda", 0)).synchronize()
        yield memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")

    def stream(self, device: Device, priority: int = 0) -> StreamHandle:
        return FakeStream(device, priority)

    def event(self, device: Device, timing: bool = False) -> EventHandle:
        return FakeEvent(device, timing)

    def current_stream(self, device: Device) -> StreamHandle:
        if self.stream_of_thread is None:
            self.stream_of_thread = FakeStream(device)
        found: StreamHandle = self.stream_of_thread
        return found

    def set_stream(self, stream: StreamHandle) -> None:
        self.stream_of_thread = stream


def pretend() -> None:
    """Let this process have GPUs."""
    if "cuda" not in backends():
        register("cuda", FakeCuda)
