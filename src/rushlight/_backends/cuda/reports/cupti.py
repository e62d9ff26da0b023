"""NVIDIA's record of what devices did (CUPTI's activities), where its wheel is installed: `pip install 'rushlight[cupti]'`.

Records are structures that grow at their ends from version to version; what is read here lies at the same places in the
headers of versions 12.9 and 13.5.  The library walks its own buffers; a record is read only where it lies whole within the
buffer's valid bytes.  Nothing of this has met a card yet.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from rushlight._backends.cuda.libraries.loader import CLibrary, LibraryError, Wheel
from rushlight._base.knobs import Knob

__all__ = ["LIBRARY", "Cupti", "CuptiError", "Record", "find_library", "read_record"]

LIBRARY: Knob[str] = Knob(
    "cupti_library", env="RUSHLIGHT_CUPTI_LIBRARY", kind=str, default="",
    doc="The path of CUPTI, which profiles of GPUs take their times from; empty: that of NVIDIA's wheel, else none; `none`: none.",
)  # fmt: skip

_U8, _U16, _U32, _U64, _I32, _P = (
    ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_void_p,
)  # fmt: skip
MEMCPY, MEMSET, KERNEL, DRIVER, CONCURRENT_KERNEL, MEMCPY_BETWEEN, CORRELATION = 1, 2, 3, 4, 10, 22, 39
_KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMCPY_BETWEEN, MEMSET, DRIVER, CORRELATION)
_OURS = 3  # CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0
_BUFFER_BYTES, _MOST_NAME = 1 << 20, 4096
_NO_MORE, NO_PRIVILEGE, ANOTHER = 12, 35, 39  # results
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED


class _Kernel(ctypes.LittleEndianStructure):
    _pack_ = 1
    _fields_ = (
        ("kind", _U32), ("cache", _U8), ("shared_config", _U8), ("registers", _U16), ("partitioned", _U32 * 2), ("start", _U64), ("end", _U64),
        ("completed", _U64), ("device", _U32), ("context", _U32), ("stream", _U32), ("grid", _I32 * 3), ("block", _I32 * 3),
        ("static_shared", _I32), ("dynamic_shared", _I32), ("local", _U32 * 2), ("correlation", _U32), ("grid_id", ctypes.c_int64),
        ("name", _U64),
    )  # fmt: skip


class _Copy(ctypes.LittleEndianStructure):
    _pack_ = 1
    _fields_ = (
        ("kind", _U32), ("copy", _U8), ("source", _U8), ("target", _U8), ("flags", _U8), ("bytes", _U64), ("start", _U64), ("end", _U64),
        ("device", _U32), ("context", _U32), ("stream", _U32), ("correlation", _U32),
    )  # fmt: skip


class _CopyBetween(ctypes.LittleEndianStructure):
    _pack_ = 1
    _fields_ = (*_Copy._fields_[:-1], ("between", _U32 * 4), ("correlation", _U32))


class _Fill(ctypes.LittleEndianStructure):
    _pack_ = 1
    _fields_ = (
        ("kind", _U32), ("value", _U32), ("bytes", _U64), ("start", _U64), ("end", _U64), ("device", _U32), ("context", _U32), ("stream", _U32),
        ("correlation", _U32),
    )  # fmt: skip


class _Correlation(ctypes.LittleEndianStructure):
    _pack_ = 1
    _fields_ = (("kind", _U32), ("of", _U32), ("id", _U64), ("correlation", _U32))


_FORMS: dict[int, Any] = {
    KERNEL: _Kernel, CONCURRENT_KERNEL: _Kernel, MEMCPY: _Copy, MEMCPY_BETWEEN: _CopyBetween, MEMSET: _Fill, CORRELATION: _Correlation,
}  # fmt: skip
_COPIES = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
_MEMORIES = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed"}


class CuptiError(LibraryError):
    """A call of CUPTI failed; `status` is its result."""


class Record(NamedTuple):
    """Fields of an activity: times in CUPTI's nanoseconds; `call` of a record that ties an activity to a call of ours."""

    kind: str  # kernel, gpu_memcpy, gpu_memset, call
    name: str
    device: int
    stream: int
    start: int
    end: int
    correlation: int
    details: dict[str, Any]
    call: int = 0


WHEEL = Wheel("CUPTI", "libcupti.so", "cuda_cupti", "cupti", LIBRARY)
find_library = WHEEL.path


def read_record(address: int, room: int) -> Record | None:
    """The record at an address, of which `room` bytes are valid; None for kinds that are not asked for.

    CuptiError where the record does not lie within these bytes, or ends before it starts.
    """
    if room < 4:
        raise CuptiError(f"a record of CUPTI's lies in {room} bytes")
    form = _FORMS.get(_U32.from_address(address).value)
    if form is None:
        return None
    if room < ctypes.sizeof(form):
        raise CuptiError(f"a record of CUPTI's of {ctypes.sizeof(form)} bytes lies in {room}")
    x = form.from_address(address)
    if form is _Correlation:
        return Record("call", "", 0, 0, 0, 0, x.correlation, {}, x.id if x.of == _OURS else 0)
    if x.end < x.start:
        raise CuptiError(f"an activity ends at {x.end} and starts at {x.start}")
    kind, name, details = _described(x)
    return Record(kind, name, x.device, x.stream, x.start, x.end, x.correlation, details)


def _described(x: Any) -> tuple[str, str, dict[str, Any]]:
    if isinstance(x, _Kernel):
        details = {
            "grid": list(x.grid), "block": list(x.block), "shared memory": x.static_shared + x.dynamic_shared,
            "registers per thread": x.registers,
        }  # fmt: skip
        return "kernel", _text(x.name) or "kernel", details
    if isinstance(x, _Fill):
        return "gpu_memset", "Memset (Device)", {"bytes": x.bytes}
    source, target = (_MEMORIES.get(m, "Unknown") for m in (x.source, x.target))
    return "gpu_memcpy", f"Memcpy {_COPIES.get(x.copy, 'Unknown')} ({source} -> {target})", {"bytes": x.bytes}


def _text(address: int) -> str:
    """The library's text at an address, the first bytes of one that does not end."""
    made = bytearray()
    while address and len(made) < _MOST_NAME and (byte := _U8.from_address(address + len(made)).value):
        made.append(byte)
    return made.decode(errors="replace")


_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(_P), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, _P, _U32, _P, ctypes.c_size_t, ctypes.c_size_t)


_SIZE = ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuptiActivityRegisterCallbacks": (_REQUESTED, _COMPLETED),
    "cuptiActivityEnable": (ctypes.c_int,),
    "cuptiActivityDisable": (ctypes.c_int,),
    "cuptiActivityFlushAll": (_U32,),
    "cuptiActivityGetNextRecord": (_P, _SIZE, _P),
    "cuptiActivityPushExternalCorrelationId": (ctypes.c_int, _U64),
    "cuptiActivityPopExternalCorrelationId": (ctypes.c_int, _P),
    "cuptiGetTimestamp": (_P,),
}


class Cupti(CLibrary):
    """The library, and the buffers that it fills; `library` has CUPTI's functions."""

    def __init__(self, library: Any) -> None:
        super().__init__(WHEEL.title, library, _SIGNATURES)
        self.lent: dict[int, Any] = {}
        self.records: list[Record] = []
        self.faults: list[str] = []  # of a thread of CUPTI's, where nothing may be raised
        self._lock = threading.Lock()
        self._callbacks = _REQUESTED(self._requested), _COMPLETED(self._completed)
        self.call("cuptiActivityRegisterCallbacks", *self._callbacks)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; CuptiError for a status other than 0, and for a function that the library lacks."""
        try:
            super().call(name, *arguments)
        except LibraryError as error:
            raise CuptiError(str(error), error.status) from None

    def reason(self, status: int) -> str:
        """Text that follows the number of a status in errors: its remedy."""
        return {
            NO_PRIVILEGE: ": it needs a privilege; see NVIDIA's page on ERR_NVGPUCTRPERM",
            ANOTHER: ": another profiler is at work",
        }.get(status, "")

    def start(self) -> None:
        """Record from now on; what was enabled is disabled again where a kind is refused."""
        enabled: list[int] = []
        try:
            for kind in _KINDS:
                self.call("cuptiActivityEnable", kind)
                enabled.append(kind)
        except CuptiError:
            for kind in enabled:
                self.function("cuptiActivityDisable")(kind)
            raise

    def stop(self) -> list[Record]:
        """Records of work that is done."""
        self.call("cuptiActivityFlushAll", FORCED)
        for kind in _KINDS:
            self.call("cuptiActivityDisable", kind)
        with self._lock:
            records, self.records = self.records, []
            faults, self.faults = self.faults, []
        if faults:
            raise CuptiError(faults[0])
        return records

    def time(self) -> int:
        """Now, by the clock of the records."""
        now = _U64()
        self.call("cuptiGetTimestamp", ctypes.byref(now))
        return now.value

    def push(self, call: int) -> None:
        """Attribute this thread's driver calls to a call of ours, until `pop`."""
        self.call("cuptiActivityPushExternalCorrelationId", _OURS, _U64(call))

    def pop(self) -> None:
        self.call("cuptiActivityPopExternalCorrelationId", _OURS, ctypes.byref(_U64()))

    # ***** buffers *****

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        memory = ctypes.create_string_buffer(_BUFFER_BYTES + 8)
        address = -(-ctypes.addressof(memory) // 8) * 8
        with self._lock:
            self.lent[address] = memory
        buffer[0], size[0], most[0] = address, _BUFFER_BYTES, 0

    def _completed(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        with self._lock:
            memory = self.lent.pop(buffer, None)
        if memory is None:
            self.faults.append("CUPTI gives back a buffer that it was not lent")
            return
        try:
            found = list(self._walk(buffer, min(valid, _BUFFER_BYTES)))
        except Exception as error:  # raised by `stop`
            self.faults.append(str(error))
            return
        with self._lock:
            self.records += found

    def _walk(self, buffer: int, valid: int) -> Iterator[Record]:
        at, last = _P(), buffer - 1
        while not (
            status := self.function("cuptiActivityGetNextRecord")(_P(buffer), ctypes.c_size_t(valid), ctypes.byref(at))
        ):
            here = at.value or 0
            if not last < here < buffer + valid:
                raise CuptiError(f"CUPTI names a record {here - buffer} bytes behind the begin of a buffer of {valid}")
            found, last = read_record(here, buffer + valid - here), here
            if found is not None:
                yield found
        if status != _NO_MORE:
            raise CuptiError(f"cuptiActivityGetNextRecord failed with status {status}", status)


_loaded: list[Cupti | None] = []


def cupti() -> Cupti | None:
    """The library, loaded by the first use; None where it is not installed.  CuptiError where it cannot be used."""
    if not _loaded:
        try:
            _loaded.append(None if find_library() is None else Cupti(WHEEL.open()))
        except LibraryError as error:
            raise CuptiError(str(error), error.status) from None
    return _loaded[0]
