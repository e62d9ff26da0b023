"""Emulated drivers for tests, and kernels for them that are written by hand."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from rushlight._backends.cuda.devices import Devices
from rushlight._backends.cuda.driver.api import slots
from rushlight._backends.cuda.driver.emulated.driver import EmulatedDriver
from rushlight._backends.cuda.streams import Streams
from rushlight._native.jit import compile_object

__all__ = ["FAILING", "SCALE", "Machine", "kernel_object"]

# y[i] = x[i] * factor + program for i in 0..n, each program one element: parameters x, y, factor (float32), n
SCALE = """
define i32 @scale(ptr %context, ptr %words, i64 %first, i64 %last) {
entry:
  %delta = load i64, ptr %context
  %x.word = load i64, ptr %words
  %y.at = getelementptr i64, ptr %words, i64 1
  %y.word = load i64, ptr %y.at
  %f.at = getelementptr i64, ptr %words, i64 2
  %factor = load float, ptr %f.at
  %x.host = add i64 %x.word, %delta
  %y.host = add i64 %y.word, %delta
  %x = inttoptr i64 %x.host to ptr
  %y = inttoptr i64 %y.host to ptr
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %body, label %done
body:
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from
  %scaled = fmul float %value, %factor
  %to = getelementptr float, ptr %y, i64 %i
  store float %scaled, ptr %to
  %next = add i64 %i, 1
  br label %head
done:
  ret i32 0
}
"""

# A kernel that says what went wrong, and returns the number of its parameter as the error.
FAILING = """
@text = private constant [12 x i8] c"out of luck\\00"
define i32 @failing(ptr %context, ptr %words, i64 %first, i64 %last) {
  %code = load i32, ptr %words
  %at = getelementptr i8, ptr %context, i64 64
  %report = load ptr, ptr %at
  call void @llvm.memcpy.p0.p0.i64(ptr %report, ptr @text, i64 12, i1 false)
  ret i32 %code
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


@cache
def kernel_object(text: str) -> bytes:
    """The object file of a kernel."""
    return compile_object(text)


class Machine:
    """An emulated driver with the context of its first device, and short words for what tests do."""

    def __init__(self, devices: int = 1, memory: int = 64 << 20, seed: int = 0) -> None:
        self.driver = EmulatedDriver(devices, memory, seed)
        self.driver.cuInit()
        self.devices = Devices(self.driver)
        self.streams = Streams(self.devices)
        self.devices.enter(0)

    def stream(self) -> int:
        """A stream that waits for no other."""
        return self.driver.cuStreamCreateWithPriority(1, 0)

    def event(self) -> int:
        """An event without timing."""
        return self.driver.cuEventCreate(2)

    def array(self, values: list[float], stream: int = 0) -> int:
        """The address of float32 on the device."""
        address = self.driver.cuMemAlloc(4 * len(values))
        data = (ctypes.c_float * len(values))(*values)
        self.driver.cuMemcpyHtoDAsync(address, ctypes.addressof(data), 4 * len(values), stream)
        return address

    def read(self, address: int, count: int, stream: int = 0) -> list[float]:
        """Float32 of the device, in the order of a stream."""
        data = (ctypes.c_float * count)()
        self.driver.cuMemcpyDtoHAsync(ctypes.addressof(data), address, 4 * count, stream)
        return list(data)

    def function(self, text: str, name: str) -> int:
        """A kernel."""
        return self.driver.cuModuleGetFunction(self.driver.cuModuleLoadData(kernel_object(text)), name)

    def launch(self, function: int, words: Any, programs: int = 1, stream: int = 0, shared: int = 0) -> None:
        """Start a kernel with so many programs."""
        self.driver.cuLaunchKernel(function, (programs, 1, 1), (32, 1, 1), shared, stream, slots(*words))
