"""The device type `cuda` as an instance of the protocol: memory, copies, streams; kernels are compiled in `program`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.devices import Devices
from rushlight._backends.cuda.driver.choice import driver
from rushlight._backends.cuda.driver.errors import CODES
from rushlight._backends.cuda.graphs import CapturedGraph, next_pool
from rushlight._backends.cuda.kernels import Kernels, OrderedLaunch
from rushlight._backends.cuda.launches import Launcher
from rushlight._backends.cuda.memory.memory import Memory
from rushlight._backends.cuda.memory.sharing import Sharing
from rushlight._backends.cuda.native.plans import DevicePlans
from rushlight._backends.cuda.native.unit import GpuPlans
from rushlight._backends.cuda.random.streams import random_kernel
from rushlight._backends.cuda.reference import StreamedReference
from rushlight._backends.cuda.selection.routines import PIECE, routine
from rushlight._backends.cuda.streams import CudaEvent, CudaStream, Streams
from rushlight._backends.protocol import Block, BlockLaunch, EventHandle, StreamHandle
from rushlight._backends.reference.backend import ReferenceBackend, load_elements
from rushlight._base.errors import AcceleratorError, MissingExtraError, warn_user
from rushlight._base.knobs import Knob, one_of
from rushlight._base.lazy import require
from rushlight._graph.core import Graph
from rushlight._prims.numbers import holder
from rushlight._types.device import Device, current_device_changed
from rushlight._types.dtype import DType

if TYPE_CHECKING:
    from rushlight._codegen.blocks import Kernel

__all__ = ["CudaBackend"]


PROGRAMS = Knob(
    "cuda_programs", env="RUSHLIGHT_CUDA_PROGRAMS", kind=one_of("kernels", "reference"), default="kernels", planned=True,
    doc="What computes on emulated GPUs: `kernels` of our own, or the `reference` definitions of primitives in NumPy.",
)  # fmt: skip


def _library(name: str) -> Any:
    return require(f"rushlight._backends.cuda.libraries.{name}")


class CudaBackend(ReferenceBackend):
    """All GPUs of the process.

    `driver`, `devices` and `streams` are what other files of the room work with: `devices.enter(index)` before a call of
    the driver, `streams.current(index).id` for the stream that a launch goes to.
    """

    type = "cuda"
    asynchronous = True
    native = True
    dlpack_type = 2
    counted_streams = True

    def __init__(self) -> None:
        self.driver = driver()
        self.devices = Devices(self.driver)
        self.streams = Streams(self.devices)
        self.memory = Memory(self.devices, self.streams)
        self.sharing = Sharing(self)
        self.launch = Launcher(self.devices, self.streams, self.memory.allocators[0].unit)
        self.plans = [DevicePlans(self, index) for index in range(self.devices.count)]
        self.captures: dict[int, CapturedGraph] = {}  # that go on, by the driver's number
        self.sync_debug_mode = 0  # of `torch.cuda.set_sync_debug_mode`
        self._from_owner: Any = None
        self._kernels: dict[int, Kernels] = {}
        self._multi_tensor: Any = None

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
            error = AcceleratorError(
                f"CUDA error: invalid device ordinal {index}: there are {self.devices.count} devices, numbered from 0"
            )
            error.error_code = CODES["CUDA_ERROR_INVALID_DEVICE"][0]
            raise error
        self.devices.thread.current = index
        current_device_changed(self.type, index)

    @property
    def is_initialized(self) -> bool:
        """Whether some device has a context."""
        return self.devices.is_initialized

    @property
    def is_forked(self) -> bool:
        """Whether the process was forked from one that had a context: it can use no GPU."""
        return self.devices.forked

    def initialize(self, device: Device) -> None:
        """Make the context of a device now."""
        self.devices.enter(device.index or 0)

    def can_access_peer(self, device: Device, peer: Device) -> bool:
        """Whether a device reaches the memory of another without the host."""
        return self.driver.cuDeviceCanAccessPeer(device.index or 0, peer.index or 0)

    def management(self, device: Device) -> Any:
        """A device as NVIDIA's management library sees it."""
        if self.driver.emulated:
            raise RuntimeError("emulated GPUs have no management library (NVML): there is no load and no temperature")
        return require("rushlight._backends.cuda.driver.management").ManagedDevice(
            self.driver.cuDeviceGetPCIBusId(device.index or 0)
        )

    def error_text(self, code: int) -> str:
        """The driver's text for the number of an error."""
        return next((text for number, text in CODES.values() if number == code), "unrecognized error code")

    def properties(self, device: Device) -> Mapping[str, Any]:
        """Facts about a GPU, under PyTorch's names."""
        return self.devices.properties(device.index or 0)

    # ***** programs *****

    @property
    def multi_tensor(self) -> Any:
        """Steps of optimizers over many parameters; None where programs are run by the reference backend."""
        if PROGRAMS.get() == "reference":
            return None
        if self._multi_tensor is None:
            self._multi_tensor = require("rushlight._backends.cuda.optim").MultiTensor(self)
        return self._multi_tensor

    def block_kernel(self, kernel: Kernel, device: Device) -> BlockLaunch:
        """Launches go to the current stream of the device."""
        return OrderedLaunch(self, device, self.kernels(device).get(kernel))

    @property
    def foreign(self) -> Any:
        """Kernels of other compilers; see `foreign.ForeignKernels`."""
        return require("rushlight._backends.cuda.foreign").ForeignKernels(self)

    def kernels(self, device: Device) -> Kernels:
        """The kernels of a device."""
        index = device.index or 0
        found = self._kernels.get(index)
        if found is None:
            found = self._kernels[index] = Kernels(self, index)
        return found

    def compiled_kernels(self) -> list[list[Any]]:
        """The kernels in modules of the driver, of each device."""
        return [[k for k in kernels.known.values() if hasattr(k, "function")] for kernels in self._kernels.values()]

    def activities(self, told: Callable[[str, int, int], Any]) -> Any:
        """See `Backend.activities`."""
        return require("rushlight._backends.cuda.reports.activities").activities_of(self, told)

    def trace(self, told: Mapping[str, Callable[..., Any]]) -> None:
        """Tell of events, waits, streams and memory from now on: see `trace.KINDS`."""
        require("rushlight._backends.cuda.trace").trace_to(self, told)

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
            region = self._emulated("programs run by the reference backend")
            return StreamedReference(self, region, graph, in_layouts, out_layouts, device, aliases or {})
        compile_graph = require("rushlight._backends.cuda.program.assemble").compile_graph
        program = compile_graph(graph, in_layouts, out_layouts, aliases=aliases, overlaps=overlaps)
        executable = require("rushlight._backends.cuda.program.executable").CudaExecutable
        return executable(program, self, device, bool((options or {}).get("launch_graph")))

    def steps(self, graph: Graph, in_layouts: Sequence[Any], out_layouts: Sequence[Any]) -> int:
        """Kernels and library calls after fusion."""
        compile_graph = require("rushlight._backends.cuda.program.assemble").compile_graph
        return len(compile_graph(graph, in_layouts, out_layouts).steps)

    def native_device_of(self, device: Device) -> GpuPlans:
        """See `Backend.native_device_of`."""
        return self.plans[device.index or 0].native

    # ***** memory *****

    def allocate(self, nbytes: int, device: Device) -> Any:
        """A storage over fresh memory."""
        block = self.memory.allocate(nbytes, device)
        return self.shown(block.address, nbytes, block)

    def shown(self, address: int, nbytes: int, owner: Any) -> Any:
        """A storage over memory of an owner."""
        if self._from_owner is None:
            self._from_owner = require("rushlight._host.runtime").runtime().from_owner
        return self._from_owner(address, nbytes, owner)

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

    def allocate_pinned(self, nbytes: int) -> Any:
        """A storage of pinned memory of the host."""
        block = self.memory.pinned.allocate(nbytes)
        return self.shown(block.address, nbytes, block)

    def is_pinned(self, address: int) -> bool:
        """Whether an address of the host is of pinned memory."""
        return self.memory.pinned.is_pinned(address)

    def library_path(self, name: str) -> str | None:
        """The file of one of NVIDIA's libraries ("cusolver", "cudnn"); None where it is not installed."""
        path: str | None = _library(name).WHEEL.path()
        return path

    def missing_library(self, name: str) -> str | None:
        """The text of the error for a library that is not installed; emulated GPUs need none."""
        wheel = _library(name).WHEEL
        if self.driver.emulated or wheel.path() is not None:
            return None
        return str(MissingExtraError(wheel.title, wheel.extra))

    def cudnn_version(self) -> int:
        """The version of cuDNN, which is loaded; an error where it is not installed."""
        return int(_library("cudnn").cudnn().version())

    def export_memory(self, address: int, device: Device) -> Any:
        """Plain data by which another process opens the memory at an address."""
        return self.sharing.export(address, device)

    def import_memory(self, data: Any, nbytes: int) -> Block:
        """The memory of another process."""
        return self.sharing.opened(data, nbytes)

    def collect_ipc(self) -> None:
        """Nothing: memory of other processes is closed with the last tensor over it."""

    def device_at(self, address: int) -> int:
        """The index of the device whose memory has an address."""
        return self.memory.device_at(address)

    def record_stream(self, address: int, device: Device, stream: StreamHandle) -> None:
        """A further stream uses the memory at an address."""
        self.memory.record(address, device, stream)

    def copy_in(self, address: int, source: int, nbytes: int, wait: bool = True) -> None:
        """Copy from the host, in the order of the current stream; other streams may use it when this returns.

        Without `wait` pinned memory is read later, and pageable memory may arrive later.
        """
        index = self.memory.device_at(address)
        self.devices.enter(index)
        stream = self.streams.current(index)
        self.driver.cuMemcpyHtoDAsync(address, source, nbytes, stream.id)
        if wait:
            self._wait(stream)
        else:
            self._copies_pinned(source, stream)

    def copy_out(self, address: int, source: int, nbytes: int, wait: bool = True) -> None:
        """Copy to the host, in the order of the current stream; without `wait` pinned memory is written later."""
        index = self.memory.device_at(source)
        self.devices.enter(index)
        stream = self.streams.current(index)
        if not self._copies_pinned(address, stream) or wait:
            self._tell_of_waiting()
            self.driver.cuMemcpyDtoHAsync(address, source, nbytes, stream.id)
            self.driver.cuStreamSynchronize(stream.id)
        else:
            self.driver.cuMemcpyDtoHAsync(address, source, nbytes, stream.id)

    def _copies_pinned(self, address: int, stream: CudaStream) -> bool:
        """A stream copies from or to an address of the host; False where that is no pinned memory of ours."""
        block = self.memory.pinned.block_at(address)
        if block is None:
            return False
        status, number = self.driver.cuStreamGetCaptureInfo(stream.id) if self.captures and stream.id else (0, 0)
        if status and number in self.captures:
            self.captures[number].hold(block)
        else:
            block.uses.add(stream)
        return True

    def _wait(self, stream: CudaStream) -> None:
        self._tell_of_waiting()
        self.driver.cuStreamSynchronize(stream.id)

    def _tell_of_waiting(self) -> None:
        """Warn or raise, as `torch.cuda.set_sync_debug_mode` asks."""
        if self.sync_debug_mode == 1:
            warn_user("called a synchronizing CUDA operation")
        elif self.sync_debug_mode == 2:
            raise RuntimeError("called a synchronizing CUDA operation")

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

    # ***** statistics *****

    def memory_stats(self, device: Device) -> Mapping[str, int]:
        """PyTorch's names, flat (`allocated_bytes.all.current`), beside those of the protocol."""
        found = self.memory.allocators[device.index or 0].settled()
        return {
            **_flat(found.nested()),
            "allocated": found.current("allocated_bytes"),
            "cached": found.current("reserved_bytes") - found.current("allocated_bytes"),
            "peak_allocated": found.peak("allocated_bytes"),
            "peak_held": found.peak("reserved_bytes"),
        }

    def memory_info(self, device: Device) -> tuple[int, int]:
        """Free and total bytes of a device, as the driver sees them."""
        self.devices.enter(device.index or 0)
        return self.driver.cuMemGetInfo()

    def reset_peak(self, device: Device) -> None:
        """Start measuring peaks anew."""
        self.memory.allocators[device.index or 0].settled().reset_peaks()

    def empty_cache(self, device: Device) -> None:
        """Give memory of all devices that nobody uses back to the driver."""
        for allocator in self.memory.allocators:
            allocator.empty_cache()

    # ***** streams *****

    def synchronize(self, device: Device) -> None:
        """Wait for all work of a device."""
        self.devices.enter(device.index or 0)
        self.driver.cuCtxSynchronize()
        self.plans[device.index or 0].nothing_waits()

    def stream(self, device: Device, priority: int = 0) -> StreamHandle:
        """A stream from the pool."""
        return self.streams.new(device, priority)

    def create_stream(self, address: int) -> None:
        """Make a stream of the current context, and write its handle to an address of the host."""
        self.devices.enter(self.current_device())
        handle = self.driver.cuStreamCreateWithPriority(0, 0)
        ctypes.c_void_p.from_address(address).value = handle

    def event(
        self, device: Device, timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> EventHandle:
        """A mark in a stream; waits for it may block, and other processes may open it."""
        return CudaEvent(self.devices, device, timing, blocking, interprocess)

    def opened_event(self, device: Device, handle: bytes) -> EventHandle:
        """The event of another process."""
        made = CudaEvent(self.devices, device, interprocess=True)
        self.devices.enter(device.index or 0)
        made.id = self.driver.cuIpcOpenEventHandle(handle)
        return made

    def external_stream(self, handle: int, device: Device) -> StreamHandle:
        """The stream of a handle of the driver."""
        return self.streams.external(handle, device)

    def default_stream(self, device: Device) -> StreamHandle:
        """The default stream of a device."""
        return self.streams.default[device.index or 0]

    def priority_range(self) -> tuple[int, int]:
        """The least and the greatest priority of streams."""
        self.devices.enter(self.current_device())
        return self.driver.cuCtxGetStreamPriorityRange()

    def is_capturing(self, stream: StreamHandle) -> bool:
        """Whether the work of a stream becomes a graph."""
        if not stream.id:  # nothing makes a context for it
            return False
        self.devices.enter(stream.device.index or 0)
        return self.driver.cuStreamGetCaptureInfo(stream.id)[0] != 0

    def capturing(self, device: Device) -> CapturedGraph | None:
        """The graph that the work of the current stream becomes; RuntimeError where that is one of another library."""
        stream = self.streams.current(device.index or 0)
        if not stream.id:
            return None
        self.devices.enter(device.index or 0)
        status, number = self.driver.cuStreamGetCaptureInfo(stream.id)[:2]
        if not status:
            return None
        if number not in self.captures:
            raise RuntimeError("random numbers are drawn in captures by torch.cuda.CUDAGraph only")
        return self.captures[number]

    def graph(self, keep: bool = False) -> CapturedGraph:
        """A graph of work, to be captured and replayed."""
        return CapturedGraph(self, keep)

    def next_pool(self) -> tuple[int, int]:
        """The identity of a memory pool that no graph has yet."""
        return next_pool()

    def current_stream(self, device: Device) -> StreamHandle:
        """The stream of this thread on a device."""
        return self.streams.current(device.index or 0)

    def set_stream(self, stream: StreamHandle) -> None:
        """Let this thread's calls on the stream's device go to it."""
        assert isinstance(stream, CudaStream)
        self.streams.set_current(stream)

    # ***** elements, and what depends on data *****

    def _emulated(self, what: str) -> Any:
        """The memory of the emulated devices; NotImplementedError on real ones."""
        if not self.driver.emulated:
            raise self._missing(f"{what} on real devices")
        return self.driver.region  # type: ignore[attr-defined]

    def reader(self, dtype: DType) -> Callable[[int], Any]:
        """A function from the address of an element to a Python number; it waits for the current stream."""
        if holder(dtype).startswith("uint") and not dtype.is_integer:
            raise NotImplementedError(f"no element of dtype {dtype} can be read as a number")
        size = dtype.itemsize

        def read(address: int) -> Any:
            data = ctypes.create_string_buffer(size)
            self.copy_out(ctypes.addressof(data), address, size)
            return load_elements(memoryview(data).cast("B"), dtype, (), ()).item()

        return read

    def routine(self, name: str, key: Any = None) -> Callable[..., Any]:
        """Kernels, and what the host reads of their counts."""
        return routine(self, lambda address: Device("cuda", self.memory.device_at(address)), name, key)

    @property
    def selection_piece(self) -> int:
        """Elements of a mask that one program counts."""
        return PIECE

    def random_kernel(self, name: str, kind: str) -> Callable[..., Any]:
        """Kernels that draw by Philox."""
        return random_kernel(self, lambda address: Device("cuda", self.memory.device_at(address)), name, kind)


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, int]:
    """The leaves of nested dicts, by names with dots."""
    found: dict[str, int] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found
