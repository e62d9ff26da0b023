"""NVIDIA's driver, `libcuda`, by ctypes: every call is checked, and an error is a `CudaError` in the driver's words.

The table below is the C signature of each function that is called, by one letter an argument.  Nothing is linked; the
library is opened when a program first asks for a GPU.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from rushlight._backends.cuda.driver.api import Driver, Extent
from rushlight._backends.cuda.driver.attributes import LAUNCH
from rushlight._backends.cuda.driver.errors import CudaError

__all__ = ["LibraryDriver"]

_pointer, _int, _uint, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_LETTERS = {
    "p": _pointer, "i": _int, "u": _uint, "z": _size, "q": ctypes.c_uint64, "b": ctypes.c_ubyte, "h": ctypes.c_ushort, "s": ctypes.c_char_p,
}  # fmt: skip
# Name in `Driver` -> the library's name (`cuda.h` renames some by version), its arguments.  Results come by pointers.
_FUNCTIONS = {
    "cuInit": ("cuInit", "u"), "cuDriverGetVersion": ("cuDriverGetVersion", "p"), "cuDeviceGetCount": ("cuDeviceGetCount", "p"),
    "cuDeviceGet": ("cuDeviceGet", "pi"), "cuDeviceGetName": ("cuDeviceGetName", "pii"), "cuDeviceGetUuid": ("cuDeviceGetUuid_v2", "pi"),
    "cuDeviceGetPCIBusId": ("cuDeviceGetPCIBusId", "pii"), "cuDeviceTotalMem": ("cuDeviceTotalMem_v2", "pi"),
    "cuDeviceGetAttribute": ("cuDeviceGetAttribute", "pii"), "cuDeviceCanAccessPeer": ("cuDeviceCanAccessPeer", "pii"),
    "cuDevicePrimaryCtxRetain": ("cuDevicePrimaryCtxRetain", "pi"), "cuDevicePrimaryCtxRelease": ("cuDevicePrimaryCtxRelease_v2", "i"),
    "cuCtxSetCurrent": ("cuCtxSetCurrent", "p"), "cuCtxGetCurrent": ("cuCtxGetCurrent", "p"), "cuCtxSynchronize": ("cuCtxSynchronize", ""),
    "cuCtxGetStreamPriorityRange": ("cuCtxGetStreamPriorityRange", "pp"), "cuCtxEnablePeerAccess": ("cuCtxEnablePeerAccess", "pu"),
    "cuMemGetInfo": ("cuMemGetInfo_v2", "pp"), "cuMemAlloc": ("cuMemAlloc_v2", "pz"), "cuMemFree": ("cuMemFree_v2", "q"),
    "cuMemAllocAsync": ("cuMemAllocAsync", "pzp"), "cuMemFreeAsync": ("cuMemFreeAsync", "qp"), "cuMemHostAlloc": ("cuMemHostAlloc", "pzu"),
    "cuMemGetAllocationGranularity": ("cuMemGetAllocationGranularity", "ppi"), "cuMemAddressReserve": ("cuMemAddressReserve", "pzzqq"),
    "cuMemAddressFree": ("cuMemAddressFree", "qz"), "cuMemCreate": ("cuMemCreate", "pzpq"), "cuMemRelease": ("cuMemRelease", "q"),
    "cuMemMap": ("cuMemMap", "qzzqq"), "cuMemSetAccess": ("cuMemSetAccess", "qzpz"), "cuMemUnmap": ("cuMemUnmap", "qz"),
    "cuMemFreeHost": ("cuMemFreeHost", "p"), "cuMemHostRegister": ("cuMemHostRegister_v2", "pzu"),
    "cuMemHostUnregister": ("cuMemHostUnregister", "p"), "cuMemcpyHtoDAsync": ("cuMemcpyHtoDAsync_v2", "qpzp"),
    "cuMemcpyDtoHAsync": ("cuMemcpyDtoHAsync_v2", "pqzp"), "cuMemcpyDtoDAsync": ("cuMemcpyDtoDAsync_v2", "qqzp"),
    "cuMemcpyPeerAsync": ("cuMemcpyPeerAsync", "qpqpzp"), "cuMemsetD8Async": ("cuMemsetD8Async", "qbzp"),
    "cuMemsetD16Async": ("cuMemsetD16Async", "qhzp"), "cuMemsetD32Async": ("cuMemsetD32Async", "quzp"),
    "cuPointerGetAttribute": ("cuPointerGetAttribute", "piq"), "cuIpcGetMemHandle": ("cuIpcGetMemHandle", "pq"),
    "cuIpcCloseMemHandle": ("cuIpcCloseMemHandle", "q"), "cuStreamCreateWithPriority": ("cuStreamCreateWithPriority", "pui"),
    "cuStreamDestroy": ("cuStreamDestroy_v2", "p"), "cuStreamSynchronize": ("cuStreamSynchronize", "p"), "cuStreamQuery": ("cuStreamQuery", "p"),
    "cuStreamWaitEvent": ("cuStreamWaitEvent", "ppu"), "cuStreamGetPriority": ("cuStreamGetPriority", "pp"),
    "cuLaunchHostFunc": ("cuLaunchHostFunc", "ppp"), "cuEventCreate": ("cuEventCreate", "pu"), "cuEventDestroy": ("cuEventDestroy_v2", "p"),
    "cuEventRecord": ("cuEventRecord", "pp"), "cuEventQuery": ("cuEventQuery", "p"), "cuEventSynchronize": ("cuEventSynchronize", "p"),
    "cuEventElapsedTime": ("cuEventElapsedTime", "ppp"), "cuIpcGetEventHandle": ("cuIpcGetEventHandle", "pp"),
    "cuModuleLoadDataEx": ("cuModuleLoadDataEx", "ppupp"), "cuModuleUnload": ("cuModuleUnload", "p"),
    "cuModuleGetFunction": ("cuModuleGetFunction", "pps"), "cuModuleGetGlobal": ("cuModuleGetGlobal_v2", "ppps"),
    "cuFuncGetAttribute": ("cuFuncGetAttribute", "pip"), "cuFuncSetAttribute": ("cuFuncSetAttribute", "pii"),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": ("cuOccupancyMaxActiveBlocksPerMultiprocessor", "ppiz"),
    "cuLaunchKernel": ("cuLaunchKernel", "puuuuuuuppp"), "cuLaunchKernelEx": ("cuLaunchKernelEx", "pppp"),
    "cuTensorMapEncodeTiled": ("cuTensorMapEncodeTiled", "piupppppiiii"), "cuTensorMapEncodeIm2col": ("cuTensorMapEncodeIm2col", "piupppppuupiiii"),
    "cuStreamBeginCapture": ("cuStreamBeginCapture_v2", "pi"),
    "cuStreamEndCapture": ("cuStreamEndCapture", "pp"), "cuStreamGetCaptureInfo": ("cuStreamGetCaptureInfo_v2", "pppppp"),
    "cuThreadExchangeStreamCaptureMode": ("cuThreadExchangeStreamCaptureMode", "p"),
    "cuGraphCreate": ("cuGraphCreate", "pu"), "cuGraphAddKernelNode": ("cuGraphAddKernelNode", "pppzp"),
    "cuGraphExecKernelNodeSetParams": ("cuGraphExecKernelNodeSetParams", "ppp"), "cuGraphInstantiate": ("cuGraphInstantiateWithFlags", "ppq"), "cuGraphGetNodes": ("cuGraphGetNodes", "ppp"),
    "cuGraphLaunch": ("cuGraphLaunch", "pp"), "cuGraphDestroy": ("cuGraphDestroy", "p"), "cuGraphExecDestroy": ("cuGraphExecDestroy", "p"),
    "cuGraphDebugDotPrint": ("cuGraphDebugDotPrint", "psu"), "cuProfilerStart": ("cuProfilerStart", ""), "cuProfilerStop": ("cuProfilerStop", ""),
}  # fmt: skip
_NOT_READY = 600
_LOG_BYTES = 8192
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6  # CU_JIT_...


class _Handle(ctypes.Structure):
    """A CUipcMemHandle or CUipcEventHandle, which C passes by value."""

    _fields_ = (("data", ctypes.c_char * 64),)


class _Place(ctypes.Structure):
    """A CUmemLocation: a device has kind 1."""

    _fields_ = (("kind", _int), ("number", _int))


class _Properties(ctypes.Structure):
    """A CUmemAllocationProp: kind 1 is the only one that there is."""

    _fields_ = (
        ("kind", _int),
        ("handles", _int),
        ("place", _Place),
        ("metadata", _pointer),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """A CUmemAccessDesc: 3 is reading and writing."""

    _fields_ = (("place", _Place), ("flags", _int))


class _Attribute(ctypes.Structure):
    """A CUlaunchAttribute."""

    _fields_ = (("id", _int), ("pad", _uint), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """A CUlaunchConfig."""

    _fields_ = (
        ("grid", _uint * 3),
        ("block", _uint * 3),
        ("shared", _uint),
        ("stream", _pointer),
        ("attributes", _pointer),
        ("count", _uint),
    )


class _Node(ctypes.Structure):
    """A CUDA_KERNEL_NODE_PARAMS, of the first version."""

    _fields_ = (
        ("function", _pointer),
        ("grid", _uint * 3),
        ("block", _uint * 3),
        ("shared", _uint),
        ("parameters", _pointer),
        ("extra", _pointer),
    )


# Functions that are called by themselves.
MORE: dict[str, tuple[Any, ...]] = {
    "cuGetErrorName": (_int, _pointer),
    "cuGetErrorString": (_int, _pointer),
    "cuIpcOpenMemHandle_v2": (_pointer, _Handle, _uint),
    "cuIpcOpenEventHandle": (_pointer, _Handle),
}
LAZY_PEER_ACCESS, VERBOSE = 1, 1  # flags of handles of memory, and of graphs that are printed

_HOST_FUNCTION = ctypes.CFUNCTYPE(None, _pointer)


def _open() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


class LibraryDriver(Driver):
    """NVIDIA's library; OSError where it is not installed."""

    def __init__(self) -> None:
        self._library = _open()
        self._functions: dict[str, Callable[..., int]] = {}
        for name in ("cuGetErrorName", "cuGetErrorString"):
            getattr(self._library, name).argtypes = MORE[name]
        self._calls: dict[int, Any] = {}  # host functions that have not run
        self._captured: dict[int, Any] = {}  # those of graphs, which may run any number of times
        self._numbers = count(1)
        self._host_function = _HOST_FUNCTION(self._run)

    # ***** calling *****

    def _find(self, name: str) -> Callable[..., int]:
        symbol, letters = _FUNCTIONS[name]
        found = self._functions[name] = self._function(symbol, [_LETTERS[letter] for letter in letters])
        return found

    def _function(self, symbol: str, arguments: Sequence[Any]) -> Callable[..., int]:
        try:
            found: Any = getattr(self._library, symbol)
        except AttributeError:
            raise NotImplementedError(f"NVIDIA's driver is too old: it has no {symbol}") from None
        found.argtypes, found.restype = arguments, _int
        made: Callable[..., int] = found
        return made

    def _call(self, name: str, *args: Any) -> None:
        code = (self._functions.get(name) or self._find(name))(*args)
        if code:
            raise self.error_of(code, name)

    def error_of(self, code: int, call: str, more: str = "") -> CudaError:
        """The exception of a status that a call returned."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        self._library.cuGetErrorString(code, ctypes.byref(text))
        return CudaError(
            (name.value or b"CUDA_ERROR_UNKNOWN").decode(), code, (text.value or b"unknown error").decode(), call, more
        )

    def _made(self, name: str, kind: Any, *args: Any) -> Any:
        """A call whose result comes through its first argument."""
        made = kind()
        self._call(name, ctypes.byref(made), *args)
        return made.value or 0

    def _query(self, name: str, handle: int) -> bool:
        code = (self._functions.get(name) or self._find(name))(handle)
        if code not in (0, _NOT_READY):
            raise self.error_of(code, name)
        return not code

    def function_address(self, name: str) -> int:
        found: Any = self._functions.get(name) or self._find(name)
        return ctypes.cast(found, _pointer).value or 0

    # ***** the driver and its devices *****

    def cuInit(self) -> None:
        self._call("cuInit", 0)

    def cuDriverGetVersion(self) -> int:
        return int(self._made("cuDriverGetVersion", _int))

    def cuDeviceGetCount(self) -> int:
        return int(self._made("cuDeviceGetCount", _int))

    def _device(self, device: int) -> int:
        return int(self._made("cuDeviceGet", _int, device))

    def cuDeviceGetName(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, 256, self._device(device))
        return text.value.decode()

    def cuDeviceGetUuid(self, device: int) -> bytes:
        found = ctypes.create_string_buffer(16)
        self._call("cuDeviceGetUuid", found, self._device(device))
        return found.raw

    def cuDeviceGetPCIBusId(self, device: int) -> str:
        text = ctypes.create_string_buffer(32)
        self._call("cuDeviceGetPCIBusId", text, 32, self._device(device))
        return text.value.decode()

    def cuDeviceTotalMem(self, device: int) -> int:
        return int(self._made("cuDeviceTotalMem", _size, self._device(device)))

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> int:
        return int(self._made("cuDeviceGetAttribute", _int, attribute, self._device(device)))

    def cuDeviceCanAccessPeer(self, device: int, peer: int) -> bool:
        return bool(self._made("cuDeviceCanAccessPeer", _int, self._device(device), self._device(peer)))

    # ***** contexts *****

    def cuDevicePrimaryCtxRetain(self, device: int) -> int:
        return int(self._made("cuDevicePrimaryCtxRetain", _pointer, self._device(device)))

    def cuDevicePrimaryCtxRelease(self, device: int) -> None:
        self._call("cuDevicePrimaryCtxRelease", self._device(device))

    def cuCtxSetCurrent(self, context: int) -> None:
        self._call("cuCtxSetCurrent", context)

    def cuCtxGetCurrent(self) -> int:
        return int(self._made("cuCtxGetCurrent", _pointer))

    def cuCtxSynchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def cuCtxGetStreamPriorityRange(self) -> tuple[int, int]:
        least, greatest = _int(), _int()
        self._call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        return least.value, greatest.value

    def cuCtxEnablePeerAccess(self, peer_context: int) -> None:
        self._call("cuCtxEnablePeerAccess", peer_context, 0)

    # ***** memory *****

    def cuMemGetInfo(self) -> tuple[int, int]:
        free, total = _size(), _size()
        self._call("cuMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def cuMemAlloc(self, nbytes: int) -> int:
        return int(self._made("cuMemAlloc", ctypes.c_uint64, nbytes))

    def cuMemFree(self, address: int) -> None:
        self._call("cuMemFree", address)

    def cuMemAllocAsync(self, nbytes: int, stream: int) -> int:
        return int(self._made("cuMemAllocAsync", ctypes.c_uint64, nbytes, stream))

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        self._call("cuMemFreeAsync", address, stream)

    def _properties(self, device: int) -> Any:
        return _Properties(1, 0, _Place(1, self._device(device)))

    def cuMemGetAllocationGranularity(self, device: int) -> int:
        return int(
            self._made("cuMemGetAllocationGranularity", _size, ctypes.byref(self._properties(device)), 0)  # the least
        )

    def cuMemAddressReserve(self, nbytes: int, alignment: int = 0) -> int:
        return int(self._made("cuMemAddressReserve", ctypes.c_uint64, nbytes, alignment, 0, 0))

    def cuMemAddressFree(self, address: int, nbytes: int) -> None:
        self._call("cuMemAddressFree", address, nbytes)

    def cuMemCreate(self, nbytes: int, device: int) -> int:
        return int(self._made("cuMemCreate", ctypes.c_uint64, nbytes, ctypes.byref(self._properties(device)), 0))

    def cuMemRelease(self, handle: int) -> None:
        self._call("cuMemRelease", handle)

    def cuMemMap(self, address: int, nbytes: int, handle: int) -> None:
        self._call("cuMemMap", address, nbytes, 0, handle, 0)

    def cuMemSetAccess(self, address: int, nbytes: int, devices: Sequence[int]) -> None:
        rows = (_Access * len(devices))(*[_Access(_Place(1, self._device(d)), 3) for d in devices])
        self._call("cuMemSetAccess", address, nbytes, ctypes.byref(rows), len(devices))

    def cuMemUnmap(self, address: int, nbytes: int) -> None:
        self._call("cuMemUnmap", address, nbytes)

    def cuMemHostAlloc(self, nbytes: int, flags: int = 0) -> int:
        return int(self._made("cuMemHostAlloc", _pointer, nbytes, flags))

    def cuMemFreeHost(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def cuMemHostRegister(self, address: int, nbytes: int, flags: int = 0) -> None:
        self._call("cuMemHostRegister", address, nbytes, flags)

    def cuMemHostUnregister(self, address: int) -> None:
        self._call("cuMemHostUnregister", address)

    def cuMemcpyHtoDAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyHtoDAsync", address, source, nbytes, stream)

    def cuMemcpyDtoHAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyDtoHAsync", address, source, nbytes, stream)

    def cuMemcpyDtoDAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyDtoDAsync", address, source, nbytes, stream)

    def cuMemcpyPeerAsync(
        self, address: int, context: int, source: int, source_context: int, nbytes: int, stream: int
    ) -> None:  # fmt: skip
        self._call("cuMemcpyPeerAsync", address, context, source, source_context, nbytes, stream)

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: int) -> None:
        self._call("cuMemsetD8Async", address, value, count, stream)

    def cuMemsetD16Async(self, address: int, value: int, count: int, stream: int) -> None:
        self._call("cuMemsetD16Async", address, value, count, stream)

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> None:
        self._call("cuMemsetD32Async", address, value, count, stream)

    def cuPointerGetAttribute(self, attribute: int, address: int) -> int:
        return int(self._made("cuPointerGetAttribute", ctypes.c_uint64, attribute, address))

    def cuIpcGetMemHandle(self, address: int) -> bytes:
        made = ctypes.create_string_buffer(64)
        self._call("cuIpcGetMemHandle", made, address)
        return made.raw

    def _opened(self, symbol: str, handle: bytes, *more: int) -> int:
        made, given = ctypes.c_uint64(), _Handle.from_buffer_copy(handle)
        code = self._function(symbol, MORE[symbol])(ctypes.byref(made), given, *more)
        if code:
            raise self.error_of(code, symbol)
        return made.value

    def cuIpcOpenMemHandle(self, handle: bytes, flags: int = 1) -> int:
        return self._opened("cuIpcOpenMemHandle_v2", handle, flags)

    def cuIpcCloseMemHandle(self, address: int) -> None:
        self._call("cuIpcCloseMemHandle", address)

    # ***** streams and events *****

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> int:
        return int(self._made("cuStreamCreateWithPriority", _pointer, flags, priority))

    def cuStreamDestroy(self, stream: int) -> None:
        self._call("cuStreamDestroy", stream)

    def cuStreamSynchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", stream)

    def cuStreamQuery(self, stream: int) -> bool:
        return self._query("cuStreamQuery", stream)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        self._call("cuStreamWaitEvent", stream, event, flags)

    def cuStreamGetPriority(self, stream: int) -> int:
        made = _int()
        self._call("cuStreamGetPriority", stream, ctypes.byref(made))
        return made.value

    def cuLaunchHostFunc(self, stream: int, function: Callable[[], None]) -> None:
        number = next(self._numbers)
        captured = stream and self.cuStreamGetCaptureInfo(stream)[0]
        (self._captured if captured else self._calls)[number] = function
        self._call("cuLaunchHostFunc", stream, ctypes.cast(self._host_function, _pointer), number)

    def _run(self, number: int) -> None:
        (self._captured.get(number) or self._calls.pop(number))()

    def cuEventCreate(self, flags: int) -> int:
        return int(self._made("cuEventCreate", _pointer, flags))

    def cuEventDestroy(self, event: int) -> None:
        self._call("cuEventDestroy", event)

    def cuEventRecord(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", event, stream)

    def cuEventQuery(self, event: int) -> bool:
        return self._query("cuEventQuery", event)

    def cuEventSynchronize(self, event: int) -> None:
        self._call("cuEventSynchronize", event)

    def cuEventElapsedTime(self, start: int, end: int) -> float:
        return float(self._made("cuEventElapsedTime", ctypes.c_float, start, end))

    def cuIpcGetEventHandle(self, event: int) -> bytes:
        made = ctypes.create_string_buffer(64)
        self._call("cuIpcGetEventHandle", made, event)
        return made.raw

    def cuIpcOpenEventHandle(self, handle: bytes) -> int:
        return self._opened("cuIpcOpenEventHandle", handle)

    # ***** kernels *****

    def cuModuleLoadData(self, image: bytes) -> int:
        data, log, made = ctypes.create_string_buffer(image), ctypes.create_string_buffer(_LOG_BYTES), _pointer()
        options = (_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (_pointer * 2)(ctypes.addressof(log), _LOG_BYTES)
        name = "cuModuleLoadDataEx"
        code = (self._functions.get(name) or self._find(name))(ctypes.byref(made), data, 2, options, values)
        if code:
            told = log.value.decode("utf-8", "replace").strip()
            raise self.error_of(code, "cuModuleLoadData", told and f": {told}")
        return made.value or 0

    def cuModuleUnload(self, module: int) -> None:
        self._call("cuModuleUnload", module)

    def cuModuleGetFunction(self, module: int, name: str) -> int:
        return int(self._made("cuModuleGetFunction", _pointer, module, name.encode()))

    def cuModuleGetGlobal(self, module: int, name: str) -> tuple[int, int]:
        address, size = ctypes.c_uint64(), _size()
        self._call("cuModuleGetGlobal", ctypes.byref(address), ctypes.byref(size), module, name.encode())
        return address.value, size.value

    def cuFuncGetAttribute(self, attribute: int, function: int) -> int:
        return int(self._made("cuFuncGetAttribute", _int, attribute, function))

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self._call("cuFuncSetAttribute", function, attribute, value)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared_bytes: int) -> int:
        return int(self._made("cuOccupancyMaxActiveBlocksPerMultiprocessor", _int, function, threads, shared_bytes))

    def cuLaunchKernel(
        self, function: int, grid: Extent, block: Extent, shared_bytes: int, stream: int, parameters: Any, maps: int = 0
    ) -> None:  # fmt: skip
        pointers = _pointers(parameters, maps)
        self._call("cuLaunchKernel", function, *grid, *block, shared_bytes, stream, pointers, None)

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
        rows = (_Attribute * max(len(attributes), 1))()
        for row, (attribute, value) in zip(rows, attributes, strict=False):
            row.id = attribute
            for i, word in enumerate(value if attribute == LAUNCH["cluster"] else (value,)):
                row.value[i] = word & 0xFFFFFFFF
        config = _Config(grid, block, shared_bytes, stream, ctypes.addressof(rows), len(attributes))
        self._call("cuLaunchKernelEx", ctypes.byref(config), function, _pointers(parameters), None)

    def cuTensorMapEncodeTiled(
        self, kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int],
        steps: Sequence[int], interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> bytes:  # fmt: skip
        room = ctypes.create_string_buffer(192)
        at = -(-ctypes.addressof(room) // 64) * 64  # a tensor map is aligned
        ndim = len(sizes)
        self._call(
            "cuTensorMapEncodeTiled", at, kind, ndim, address, (ctypes.c_uint64 * ndim)(*sizes),
            (ctypes.c_uint64 * max(ndim - 1, 1))(*strides), (ctypes.c_uint32 * ndim)(*box), (ctypes.c_uint32 * ndim)(*steps),
            interleave, swizzle, promotion, fill,
        )  # fmt: skip
        return ctypes.string_at(at, 128)

    def cuTensorMapEncodeIm2col(
        self, kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], lower: Sequence[int], upper: Sequence[int],
        channels: int, pixels: int, steps: Sequence[int], interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> bytes:  # fmt: skip
        room = ctypes.create_string_buffer(192)
        at = -(-ctypes.addressof(room) // 64) * 64
        ndim = len(sizes)
        self._call(
            "cuTensorMapEncodeIm2col", at, kind, ndim, address, (ctypes.c_uint64 * ndim)(*sizes),
            (ctypes.c_uint64 * (ndim - 1))(*strides), (ctypes.c_int32 * (ndim - 2))(*lower), (ctypes.c_int32 * (ndim - 2))(*upper),
            channels, pixels, (ctypes.c_uint32 * ndim)(*steps), interleave, swizzle, promotion, fill,
        )  # fmt: skip
        return ctypes.string_at(at, 128)

    # ***** graphs *****

    def cuStreamBeginCapture(self, stream: int, mode: int = 0) -> None:
        self._call("cuStreamBeginCapture", stream, mode)

    def cuStreamEndCapture(self, stream: int) -> int:
        made = _pointer()
        self._call("cuStreamEndCapture", stream, ctypes.byref(made))
        return made.value or 0

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[int, int]:
        status, number = _int(), ctypes.c_uint64()
        self._call("cuStreamGetCaptureInfo", stream, ctypes.byref(status), ctypes.byref(number), None, None, None)
        # of the C enum, 1 is a capture that goes on and 2 one that failed
        return status.value, number.value

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> int:
        word = _int(mode)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(word))
        return word.value

    def cuGraphCreate(self, flags: int = 0) -> int:
        return int(self._made("cuGraphCreate", _pointer, flags))

    def cuGraphAddKernelNode(
        self, graph: int, after: Sequence[int], function: int, grid: Extent, block: Extent, shared_bytes: int, parameters: Any,
        maps: int = 0,
    ) -> int:  # fmt: skip
        pointers = _pointers(parameters, maps)
        given = _Node(function, grid, block, shared_bytes, ctypes.addressof(pointers), None)
        behind = (_pointer * max(len(after), 1))(*after)
        return int(self._made("cuGraphAddKernelNode", _pointer, graph, behind, len(after), ctypes.byref(given)))

    def cuGraphInstantiate(self, graph: int, flags: int = 0) -> int:
        return int(self._made("cuGraphInstantiate", _pointer, graph, flags))

    def cuGraphGetNodes(self, graph: int) -> int:
        count = _size()
        self._call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        return count.value

    def cuGraphLaunch(self, executable: int, stream: int) -> None:
        self._call("cuGraphLaunch", executable, stream)

    def cuGraphDestroy(self, graph: int) -> None:
        self._call("cuGraphDestroy", graph)

    def cuGraphExecDestroy(self, executable: int) -> None:
        self._call("cuGraphExecDestroy", executable)

    def cuGraphDebugDotPrint(self, graph: int, path: str, flags: int = 1) -> None:
        self._call("cuGraphDebugDotPrint", graph, path.encode(), flags)

    # ***** profilers *****

    def cuProfilerStart(self) -> None:
        self._call("cuProfilerStart")

    def cuProfilerStop(self) -> None:
        self._call("cuProfilerStop")


def _pointers(parameters: Any, maps: int = 0) -> Any:
    """The array of pointers to each word, then to each tensor map, as `cuLaunchKernel` takes it."""
    first, words = ctypes.addressof(parameters), len(parameters) - 16 * maps
    places = [first + 8 * i for i in range(words)] + [first + 8 * words + 128 * k for k in range(maps)]
    return (_pointer * max(len(places), 1))(*places)
