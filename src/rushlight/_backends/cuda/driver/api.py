"""The calls of the CUDA driver that rushlight makes: one method each, under the driver's own name.

A method takes and returns plain Python numbers: handles, addresses and sizes are ints, and what C returns through
pointers is the result.  Every method raises `CudaError` where the driver returns an error; queries return a bool.
`library.LibraryDriver` calls NVIDIA's library, `emulated.EmulatedDriver` does the same on the host.  What either lacks
raises NotImplementedError with the call's name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from rushlight._backends.cuda.driver.attributes import CAPTURE_GLOBAL
from rushlight._backends.cuda.driver.errors import CODES, CudaError

__all__ = ["Driver", "Extent", "double", "single", "slots"]

Extent = tuple[int, int, int]


def slots(*values: int) -> Any:
    """Parameters of a kernel as an array of words of 8 bytes: ints sign-extended; `single` and `double` give floats.

    >>> list(slots(3, -1, 1 << 63, single(1.0)))
    [3, -1, -9223372036854775808, 1065353216]
    """
    return (ctypes.c_int64 * len(values))(*values)


def single(value: float) -> int:
    """The word of a float32 parameter: its bits are the low ones."""
    return ctypes.c_uint32.from_buffer(ctypes.c_float(value)).value


def double(value: float) -> int:
    """The word of a float64 parameter."""
    return ctypes.c_int64.from_buffer(ctypes.c_double(value)).value


class Driver:
    """The driver API.  All calls but those on devices work on the current context of the calling thread."""

    emulated = False
    # Who is told what the caching allocator does with memory (see `emulated.ordering`); None on a real driver.
    marks: Any = None
    # Who starts the next kernel: what an emulated one that fails puts into `CudaError.launch`.
    launch: Any = None

    def _lacks(self, call: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no {call}")

    def function_address(self, name: str) -> int:
        """The address of a C function of the driver, for native code that calls it without Python."""
        self._lacks(f"C function {name}")

    def error_of(self, code: int, call: str, more: str = "") -> CudaError:
        """The exception of a status that a C function returned."""
        known = {number: (name, text) for name, (number, text) in CODES.items()}
        name, text = known.get(code, ("CUDA_ERROR_UNKNOWN", "unknown error"))
        return CudaError(name, code, text, call, more)

    # ***** the driver and its devices *****

    def cuInit(self) -> None:
        """Initialise the driver."""
        self._lacks("cuInit")

    def cuDriverGetVersion(self) -> int:
        """The newest version of CUDA that the driver supports: 1000 * major + 10 * minor."""
        self._lacks("cuDriverGetVersion")

    def cuDeviceGetCount(self) -> int:
        """How many devices the process sees."""
        self._lacks("cuDeviceGetCount")

    def cuDeviceGetName(self, device: int) -> str:
        """The name of a device."""
        self._lacks("cuDeviceGetName")

    def cuDeviceGetUuid(self, device: int) -> bytes:
        """The 16 bytes that identify a device."""
        self._lacks("cuDeviceGetUuid")

    def cuDeviceGetPCIBusId(self, device: int) -> str:
        """Where a device sits: `0000:1b:00.0`."""
        self._lacks("cuDeviceGetPCIBusId")

    def cuDeviceTotalMem(self, device: int) -> int:
        """Bytes of a device's memory."""
        self._lacks("cuDeviceTotalMem")

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> int:
        """A property of a device; see `attributes.DEVICE`."""
        self._lacks("cuDeviceGetAttribute")

    def cuDeviceCanAccessPeer(self, device: int, peer: int) -> bool:
        """Whether kernels of a device can reach the memory of another."""
        self._lacks("cuDeviceCanAccessPeer")

    # ***** contexts *****

    def cuDevicePrimaryCtxRetain(self, device: int) -> int:
        """The primary context of a device, made where there is none."""
        self._lacks("cuDevicePrimaryCtxRetain")

    def cuDevicePrimaryCtxRelease(self, device: int) -> None:
        """Take back a retain."""
        self._lacks("cuDevicePrimaryCtxRelease")

    def cuCtxSetCurrent(self, context: int) -> None:
        """Let further calls of this thread work on a context."""
        self._lacks("cuCtxSetCurrent")

    def cuCtxGetCurrent(self) -> int:
        """The context of this thread, 0 where there is none."""
        self._lacks("cuCtxGetCurrent")

    def cuCtxSynchronize(self) -> None:
        """Wait for all work of the current context."""
        self._lacks("cuCtxSynchronize")

    def cuCtxGetStreamPriorityRange(self) -> tuple[int, int]:
        """The least and the greatest priority of streams; greater ones are lower numbers."""
        self._lacks("cuCtxGetStreamPriorityRange")

    def cuCtxEnablePeerAccess(self, peer_context: int) -> None:
        """Let kernels of the current context reach memory of another."""
        self._lacks("cuCtxEnablePeerAccess")

    # ***** memory *****

    def cuMemGetInfo(self) -> tuple[int, int]:
        """Free and total bytes of the current context's device."""
        self._lacks("cuMemGetInfo")

    def cuMemAlloc(self, nbytes: int) -> int:
        """Memory of the device; its address."""
        self._lacks("cuMemAlloc")

    def cuMemFree(self, address: int) -> None:
        """Give memory back, after all work of the device."""
        self._lacks("cuMemFree")

    def cuMemAllocAsync(self, nbytes: int, stream: int) -> int:
        """Memory for work that a stream gets from now on."""
        self._lacks("cuMemAllocAsync")

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        """Give memory back behind the work of a stream."""
        self._lacks("cuMemFreeAsync")

    def cuMemGetAllocationGranularity(self, device: int) -> int:
        """Bytes of which sizes and addresses of mapped memory are multiples."""
        self._lacks("cuMemGetAllocationGranularity")

    def cuMemAddressReserve(self, nbytes: int, alignment: int = 0) -> int:
        """Addresses without memory."""
        self._lacks("cuMemAddressReserve")

    def cuMemAddressFree(self, address: int, nbytes: int) -> None:
        """Give addresses back, of which none is mapped."""
        self._lacks("cuMemAddressFree")

    def cuMemCreate(self, nbytes: int, device: int) -> int:
        """Memory of a device without an address; its handle."""
        self._lacks("cuMemCreate")

    def cuMemRelease(self, handle: int) -> None:
        """Give it back, as soon as it is mapped nowhere."""
        self._lacks("cuMemRelease")

    def cuMemMap(self, address: int, nbytes: int, handle: int) -> None:
        """Let reserved addresses show memory; nobody may use it before `cuMemSetAccess`."""
        self._lacks("cuMemMap")

    def cuMemSetAccess(self, address: int, nbytes: int, devices: Sequence[int]) -> None:
        """Let kernels of devices read and write mapped memory."""
        self._lacks("cuMemSetAccess")

    def cuMemUnmap(self, address: int, nbytes: int) -> None:
        """Take mappings back; no work may use them."""
        self._lacks("cuMemUnmap")

    def cuMemHostAlloc(self, nbytes: int, flags: int = 0) -> int:
        """Pinned memory of the host, which devices reach at the same address."""
        self._lacks("cuMemHostAlloc")

    def cuMemFreeHost(self, address: int) -> None:
        """Give pinned memory back."""
        self._lacks("cuMemFreeHost")

    def cuMemHostRegister(self, address: int, nbytes: int, flags: int = 0) -> None:
        """Pin memory that the host has already."""
        self._lacks("cuMemHostRegister")

    def cuMemHostUnregister(self, address: int) -> None:
        """Take that back."""
        self._lacks("cuMemHostUnregister")

    def cuMemcpyHtoDAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to the device.  Pageable memory may be overwritten when this returns, pinned memory when it ran."""
        self._lacks("cuMemcpyHtoDAsync")

    def cuMemcpyDtoHAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to the host; with pageable memory it returns when that is done."""
        self._lacks("cuMemcpyDtoHAsync")

    def cuMemcpyDtoDAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        """Copy within devices."""
        self._lacks("cuMemcpyDtoDAsync")

    def cuMemcpyPeerAsync(
        self, address: int, context: int, source: int, source_context: int, nbytes: int, stream: int
    ) -> None:  # fmt: skip
        """Copy between the memories of two contexts."""
        self._lacks("cuMemcpyPeerAsync")

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: int) -> None:
        """Fill memory with a byte."""
        self._lacks("cuMemsetD8Async")

    def cuMemsetD16Async(self, address: int, value: int, count: int, stream: int) -> None:
        """Fill memory with a word of 2 bytes."""
        self._lacks("cuMemsetD16Async")

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> None:
        """Fill memory with a word of 4 bytes."""
        self._lacks("cuMemsetD32Async")

    def cuPointerGetAttribute(self, attribute: int, address: int) -> int:
        """Facts about an address; see `attributes.POINTER`."""
        self._lacks("cuPointerGetAttribute")

    def cuIpcGetMemHandle(self, address: int) -> bytes:
        """64 bytes by which another process opens memory; `address` is one that an allocation returned."""
        self._lacks("cuIpcGetMemHandle")

    def cuIpcOpenMemHandle(self, handle: bytes, flags: int = 1) -> int:
        """The address in this process of memory that another one has."""
        self._lacks("cuIpcOpenMemHandle")

    def cuIpcCloseMemHandle(self, address: int) -> None:
        """Take that back."""
        self._lacks("cuIpcCloseMemHandle")

    # ***** streams and events *****

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> int:
        """A stream; flags 1: it does not wait for the legacy stream."""
        self._lacks("cuStreamCreateWithPriority")

    def cuStreamDestroy(self, stream: int) -> None:
        """Forget a stream when its work is done."""
        self._lacks("cuStreamDestroy")

    def cuStreamSynchronize(self, stream: int) -> None:
        """Wait for all work of a stream."""
        self._lacks("cuStreamSynchronize")

    def cuStreamQuery(self, stream: int) -> bool:
        """Whether a stream has no work left."""
        self._lacks("cuStreamQuery")

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        """Let further work of a stream wait for an event."""
        self._lacks("cuStreamWaitEvent")

    def cuStreamGetPriority(self, stream: int) -> int:
        """The priority of a stream."""
        self._lacks("cuStreamGetPriority")

    def cuLaunchHostFunc(self, stream: int, function: Callable[[], None]) -> None:
        """Call a function of the host, which calls no driver, in the order of a stream."""
        self._lacks("cuLaunchHostFunc")

    def cuEventCreate(self, flags: int) -> int:
        """An event; flags 1: waits block, 2: without timing, 4: for other processes, too."""
        self._lacks("cuEventCreate")

    def cuEventDestroy(self, event: int) -> None:
        """Forget an event."""
        self._lacks("cuEventDestroy")

    def cuEventRecord(self, event: int, stream: int) -> None:
        """Mark this moment of a stream."""
        self._lacks("cuEventRecord")

    def cuEventQuery(self, event: int) -> bool:
        """Whether the work before the mark is done."""
        self._lacks("cuEventQuery")

    def cuEventSynchronize(self, event: int) -> None:
        """Wait for it."""
        self._lacks("cuEventSynchronize")

    def cuEventElapsedTime(self, start: int, end: int) -> float:
        """Milliseconds between two events."""
        self._lacks("cuEventElapsedTime")

    def cuIpcGetEventHandle(self, event: int) -> bytes:
        """64 bytes by which another process opens an event."""
        self._lacks("cuIpcGetEventHandle")

    def cuIpcOpenEventHandle(self, handle: bytes) -> int:
        """An event of another process."""
        self._lacks("cuIpcOpenEventHandle")

    # ***** kernels *****

    def cuModuleLoadData(self, image: bytes) -> int:
        """A module from a cubin or PTX; on the emulated driver from an object file of the host's processor."""
        self._lacks("cuModuleLoadData")

    def cuModuleUnload(self, module: int) -> None:
        """Forget a module."""
        self._lacks("cuModuleUnload")

    def cuModuleGetFunction(self, module: int, name: str) -> int:
        """A kernel of a module."""
        self._lacks("cuModuleGetFunction")

    def cuModuleGetGlobal(self, module: int, name: str) -> tuple[int, int]:
        """The address and the size of a module's variable."""
        self._lacks("cuModuleGetGlobal")

    def cuFuncGetAttribute(self, attribute: int, function: int) -> int:
        """A property of a kernel; see `attributes.FUNCTION`."""
        self._lacks("cuFuncGetAttribute")

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        """Set one."""
        self._lacks("cuFuncSetAttribute")

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared_bytes: int) -> int:
        """How many blocks of a kernel a multiprocessor runs at a time."""
        self._lacks("cuOccupancyMaxActiveBlocksPerMultiprocessor")

    def cuLaunchKernel(
        self, function: int, grid: Extent, block: Extent, shared_bytes: int, stream: int, parameters: Any, maps: int = 0
    ) -> None:  # fmt: skip
        """Run a kernel; `parameters` is an array of `c_int64`, one word a parameter (see `slots`), then 16 for each of `maps`
        tensor maps.
        """
        self._lacks("cuLaunchKernel")

    def cuLaunchKernelEx(
        self,
        function: int,
        grid: Extent,
        block: Extent,
        shared_bytes: int,
        stream: int,
        parameters: Any,
        attributes: Sequence[tuple[int, Any]],
    ) -> None:
        """The same with attributes of the launch (clusters, cooperative launches); see `attributes.LAUNCH`."""
        self._lacks("cuLaunchKernelEx")

    def cuTensorMapEncodeTiled(
        self, kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int],
        steps: Sequence[int], interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> bytes:  # fmt: skip
        """The 128 bytes of a tensor map for bulk copies (TMA); strides in bytes, of all dims but the first."""
        self._lacks("cuTensorMapEncodeTiled")

    def cuTensorMapEncodeIm2col(
        self, kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], lower: Sequence[int], upper: Sequence[int],
        channels: int, pixels: int, steps: Sequence[int], interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> bytes:  # fmt: skip
        """The same for windows of images: a copy brings channels of so many positions, which lie within corners that are
        counted from the begin and from the end of an image.
        """
        self._lacks("cuTensorMapEncodeIm2col")

    # ***** graphs *****

    def cuStreamBeginCapture(self, stream: int, mode: int = CAPTURE_GLOBAL) -> None:
        """Let further work of a stream become a graph instead of running."""
        self._lacks("cuStreamBeginCapture")

    def cuStreamEndCapture(self, stream: int) -> int:
        """The graph of what a stream was given."""
        self._lacks("cuStreamEndCapture")

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[int, int]:
        """Whether a stream is captured (0: no, 1: yes, 2: in vain), and the number of the capture."""
        self._lacks("cuStreamGetCaptureInfo")

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> int:
        """Set what this thread may do while captures go on; returns the mode before."""
        self._lacks("cuThreadExchangeStreamCaptureMode")

    def cuGraphCreate(self, flags: int = 0) -> int:
        """A graph without nodes."""
        self._lacks("cuGraphCreate")

    def cuGraphAddKernelNode(
        self, graph: int, after: Sequence[int], function: int, grid: Extent, block: Extent, shared_bytes: int, parameters: Any,
        maps: int = 0,
    ) -> int:  # fmt: skip
        """A launch as a node of a graph, behind other nodes; `parameters` and `maps` as of `cuLaunchKernel`."""
        self._lacks("cuGraphAddKernelNode")

    def cuGraphInstantiate(self, graph: int, flags: int = 0) -> int:
        """A graph that can be launched."""
        self._lacks("cuGraphInstantiate")

    def cuGraphGetNodes(self, graph: int) -> int:
        """How many nodes a graph has."""
        self._lacks("cuGraphGetNodes")

    def cuGraphLaunch(self, executable: int, stream: int) -> None:
        """Run a graph in the order of a stream."""
        self._lacks("cuGraphLaunch")

    def cuGraphDestroy(self, graph: int) -> None:
        """Forget a graph."""
        self._lacks("cuGraphDestroy")

    def cuGraphExecDestroy(self, executable: int) -> None:
        """Forget a graph that could be launched."""
        self._lacks("cuGraphExecDestroy")

    def cuGraphDebugDotPrint(self, graph: int, path: str, flags: int = 1) -> None:
        """Write a graph to a file in the language of Graphviz."""
        self._lacks("cuGraphDebugDotPrint")

    # ***** profilers *****

    def cuProfilerStart(self) -> None:
        """Let a profiler that watches the process begin."""
        self._lacks("cuProfilerStart")

    def cuProfilerStop(self) -> None:
        """Let it stop."""
        self._lacks("cuProfilerStop")
