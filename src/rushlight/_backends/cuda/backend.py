"""The device type `cuda` as an instance of the protocol: memory, copies, streams; kernels are compiled in `program`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._backends.cuda.devices import Devices
from rushlight._backends.cuda.driver.choice import driver
from rushlight._backends.cuda.kernels import Kernels
from rushlight._backends.cuda.streams import CudaEvent, CudaStream, Streams
from rushlight._backends.protocol import Block, EventHandle, StreamHandle
from rushlight._backends.reference.backend import ReferenceBackend
from rushlight._backends.registry import host
from rushlight._base.knobs import Knob
from rushlight._base.lazy import require
from rushlight._graph.core import Graph
from rushlight._types.device import Device

__all__ = ["CudaBackend"]


def _programs(text: str) -> str:
    if text not in ("kernels", "reference"):
        raise ValueError("expected kernels or reference")
    return text


PROGRAMS = Knob(
    "cuda_programs", env="RUSHLIGHT_CUDA_PROGRAMS", kind=_programs, default="reference",
    doc="What computes on emulated GPUs: `kernels` of our own, or the `reference` definitions of primitives in NumPy.",
)  # fmt: skip


class CudaBlock(Block):
    """Memory of a GPU; it goes back to the driver when nobody shows it any longer."""

    __slots__ = ("backend",)

    def __init__(self, backend: CudaBackend, nbytes: int, device: Device) -> None:
        self.backend = backend
        backend.devices.enter(device.index or 0)
        super().__init__(backend.driver.cuMemAlloc(max(nbytes, 1)), nbytes, device)

    def __del__(self) -> None:
        self.backend.devices.enter(self.device.index or 0)
        self.backend.driver.cuMemFree(self.address)


class CudaBackend(ReferenceBackend):
    """All GPUs of the process.

    `driver`, `devices` and `streams` are what other files of the room work with: `devices.enter(index)` before a call of
    the driver, `streams.current(index).id` for the stream that a launch goes to.
    """

    type = "cuda"

    def __init__(self) -> None:
        self.driver = driver()
        self.devices = Devices(self.driver)
        self.streams = Streams(self.devices)
        self._from_owner: Any = None
        self._kernels: dict[int, Kernels] = {}

    # ***** devices *****

    def device_count(self) -> int:
        """How many GPUs the process sees."""
        return self.devices.count

    def current_device(self) -> int:
        """The device of this thread."""
        return self.devices.thread.current

    def set_device(self, index: int) -> None:
        """Let calls of this thread without a device mean this one."""
        if not 0 <= index < self.devices.count:
            raise RuntimeError(f"CUDA error: invalid device ordinal {index}: there are {self.devices.count} devices")
        self.devices.thread.current = index

    def properties(self, device: Device) -> Mapping[str, Any]:
        """What is known of a GPU, under PyTorch's names."""
        return self.devices.properties(device.index or 0)

    # ***** programs *****

    def kernels(self, device: Device) -> Kernels:
        """The kernels of a device."""
        index = device.index or 0
        found = self._kernels.get(index)
        if found is None:
            found = self._kernels[index] = Kernels(self, index)
        return found

    @property
    def target(self) -> Any:
        """GPUs, as graphs are scheduled for them."""
        return require("rushlight._backends.cuda.target").CUDA_TARGET

    def compile(
        self,
        graph: Graph,
        in_layouts: Sequence[tuple[int, ...] | None],
        out_layouts: Sequence[tuple[int, ...]],
        device: Device,
        aliases: Mapping[int, int] | None = None,
        overlaps: Mapping[int, Sequence[int]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """See `Backend.compile`."""
        if PROGRAMS.get() == "reference":
            self._emulated("programs run by the reference backend")
            return super().compile(graph, in_layouts, out_layouts, device, aliases, overlaps, options)
        compile_graph = require("rushlight._backends.cuda.program.assemble").compile_graph
        program = compile_graph(graph, in_layouts, out_layouts, aliases=aliases, overlaps=overlaps)
        return require("rushlight._backends.cuda.program.executable").CudaExecutable(program, self, device)

    def steps(self, graph: Graph, in_layouts: Sequence[Any], out_layouts: Sequence[Any]) -> int:
        """Kernels and library calls after fusion."""
        compile_graph = require("rushlight._backends.cuda.program.assemble").compile_graph
        return len(compile_graph(graph, in_layouts, out_layouts).steps)

    # ***** memory *****

    def allocate(self, nbytes: int, device: Device) -> Any:
        """A storage over fresh memory."""
        block = CudaBlock(self, nbytes, device)
        if self._from_owner is None:
            self._from_owner = require("rushlight._host.runtime").runtime().from_owner
        return self._from_owner(block.address, nbytes, block)

    def zeros(self, nbytes: int, device: Device) -> Any:
        """A storage over zeros."""
        made = self.allocate(nbytes, device)
        if nbytes:
            self.driver.cuMemsetD8Async(made.ptr, 0, nbytes, self.enter(device))
        return made

    def enter(self, device: Device) -> int:
        """Make a device's context this thread's; the driver's handle of the current stream there."""
        index = device.index or 0
        self.devices.enter(index)
        return self.streams.current(index).id

    def _device_at(self, address: int) -> int:
        """The index of the device whose memory has an address."""
        region = getattr(self.driver, "region", None)
        return (region.device_of(address) or 0) if region is not None else self.devices.thread.current

    def copy_in(self, address: int, source: int, nbytes: int) -> None:
        """Copy from the host, in the order of the current stream."""
        stream = self.enter(Device("cuda", self._device_at(address)))
        self.driver.cuMemcpyHtoDAsync(address, source, nbytes, stream)
        self.driver.cuStreamSynchronize(stream)

    def copy_out(self, address: int, source: int, nbytes: int) -> None:
        """Copy to the host, in the order of the current stream; returns when it is done."""
        stream = self.enter(Device("cuda", self._device_at(source)))
        self.driver.cuMemcpyDtoHAsync(address, source, nbytes, stream)
        self.driver.cuStreamSynchronize(stream)

    def copy(self, address: int, source: int, nbytes: int, device: Device) -> None:
        """Copy within a device, in the order of the current stream."""
        self.driver.cuMemcpyDtoDAsync(address, source, nbytes, self.enter(device))

    def copy_peer(self, address: int, device: Device, source: int, source_device: Device, nbytes: int) -> None:
        """Copy between two devices: on the current stream of the source, and the target's further work waits for it."""
        to, from_ = device.index or 0, source_device.index or 0
        if to == from_:
            return self.copy(address, source, nbytes, device)
        ready, done = self.event(device), self.event(source_device)
        ready.record(self.streams.current(to))
        self.streams.current(from_).wait(ready)
        stream = self.enter(source_device)
        contexts = self.devices.context
        self.driver.cuMemcpyPeerAsync(address, contexts(to), source, contexts(from_), nbytes, stream)
        done.record(self.streams.current(from_))
        self.streams.current(to).wait(done)

    # ***** streams *****

    def synchronize(self, device: Device) -> None:
        """Wait for all work of a device."""
        self.devices.enter(device.index or 0)
        self.driver.cuCtxSynchronize()

    def stream(self, device: Device, priority: int = 0) -> StreamHandle:
        """A stream from the pool."""
        return self.streams.new(device, priority)

    def event(self, device: Device, timing: bool = False) -> EventHandle:
        """A mark in a stream."""
        return CudaEvent(self.devices, device, timing)

    def current_stream(self, device: Device) -> StreamHandle:
        """The stream of this thread on a device."""
        return self.streams.current(device.index or 0)

    def set_stream(self, stream: StreamHandle) -> None:
        """Let this thread's calls on the stream's device go to it."""
        assert isinstance(stream, CudaStream)
        self.streams.set_current(stream)

    # ***** what the host does in place of kernels, on emulated devices alone *****

    def _emulated(self, what: str) -> Any:
        """The memory of the emulated devices; NotImplementedError on real ones."""
        if not self.driver.emulated:
            raise self._missing(f"{what} on real devices")
        return self.driver.region  # type: ignore[attr-defined]

    @contextmanager
    def opened(self, address: int, nbytes: int) -> Iterator[memoryview]:
        """The bytes at an address of an emulated device, behind the work of the current stream."""
        region = self._emulated("memory that the host can open")
        if not nbytes:
            yield memoryview(b"")
            return
        stream = self.enter(Device("cuda", region.device_of(address) or 0))
        self.driver.cuStreamSynchronize(stream)
        yield memoryview((ctypes.c_ubyte * nbytes).from_address(region.visible(address))).cast("B")

    def _opening(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        """A function of the host on memory of emulated devices, behind the work of the current stream."""
        region = self._emulated(what)

        def run(*arguments: Any) -> Any:
            devices = {d for a in arguments if type(a) is int and (d := region.device_of(a)) is not None}
            for index in devices:
                self.driver.cuStreamSynchronize(self.enter(Device("cuda", index)))
            return function(*[region.visible(a) if type(a) is int else a for a in arguments])

        return run

    def routine(self, name: str, key: Any = None) -> Callable[..., Any]:
        """The host's routine."""
        return self._opening(host().routine(name, key), f"routine '{name}'")

    @property
    def selection_piece(self) -> int:
        """As of the host's routines."""
        return host().selection_piece

    def random_kernel(self, name: str, kind: str) -> Callable[..., Any]:
        """The host's kernel."""
        return self._opening(host().random_kernel(name, kind), "random numbers")

    def stream_entry(self) -> int:
        """The host's."""
        return host().stream_entry()
