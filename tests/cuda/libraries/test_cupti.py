"""CUPTI's records: buffers that are damaged, and profiles by a pretended library."""

from __future__ import annotations

import ctypes
import json
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._backends.cuda.reports import activities, cupti
from rushlight._backends.cuda.reports.cupti import Cupti, CuptiError, read_record
from rushlight._backends.registry import backend_of
from rushlight._types.device import Device

NAME = ctypes.create_string_buffer(b"some_kernel")


def kernel(correlation: int, start: int = 100, end: int = 150, name: int | None = None) -> bytes:
    made = cupti._Kernel(
        kind=cupti.CONCURRENT_KERNEL, registers=40, start=start, end=end, device=0, stream=7, correlation=correlation
    )
    made.grid[:], made.block[:], made.dynamic_shared = (3, 2, 1), (128, 1, 1), 1024
    made.name = ctypes.addressof(NAME) if name is None else name
    return bytes(made).ljust(208, b"\0")


def copy(correlation: int) -> bytes:
    return bytes(
        cupti._Copy(
            kind=cupti.MEMCPY, copy=1, source=2, target=3, bytes=64, start=200, end=230, correlation=correlation
        )
    ).ljust(96, b"\0")


def tie(correlation: int, call: int, of: int = 3) -> bytes:
    return bytes(cupti._Correlation(kind=cupti.CORRELATION, of=of, id=call, correlation=correlation)).ljust(24, b"\0")


class Pretended:
    """CUPTI's functions, on records that are given to it."""

    def __init__(self, *records: bytes, refuses: int = 0) -> None:
        self.given, self.refuses = list(records), refuses
        self.enabled: list[int] = []
        self.open: list[int] = []
        self.calls: list[int] = []
        self.at: list[int] = []
        self.valid: int | None = None
        self.moved = 0

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        return partial(found) if name.startswith("cupti") else found  # which takes argument types, as C functions do

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        self.requested, self.completed = requested, completed
        return 0

    def cuptiActivityEnable(self, kind: int) -> int:
        self.enabled.append(kind)
        return self.refuses if len(self.enabled) == 3 else 0

    def cuptiActivityDisable(self, kind: int) -> int:
        self.enabled.remove(kind)
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        self.requested(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(most))
        assert buffer.value is not None and buffer.value % 8 == 0 and size.value == 1 << 20
        whole, self.at = b"".join(self.given), []
        for record in self.given:
            self.at.append(buffer.value + self.moved + sum(len(r) for r in self.given[: len(self.at)]))
            assert len(record) % 4 == 0
        ctypes.memmove(buffer.value, whole, len(whole))
        self.completed(None, 0, buffer.value, size.value, len(whole) if self.valid is None else self.valid)
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, at: Any) -> int:
        if not self.at:
            return 12
        at._obj.value = self.at.pop(0)
        return 0

    def cuptiGetTimestamp(self, now: Any) -> int:
        now._obj.value = 1000
        return 0

    def cuptiActivityPushExternalCorrelationId(self, kind: int, call: Any) -> int:
        self.open.append(call.value)
        self.calls.append(call.value)
        return 0

    def cuptiActivityPopExternalCorrelationId(self, kind: int, last: Any) -> int:
        self.open.pop()
        return 0


def test_records_are_read() -> None:
    library = Pretended(tie(5, 1), kernel(5), copy(6), tie(6, 9, of=4), struct.pack("<IIQ", 4, 0, 0))
    one = Cupti(library)
    one.start()
    assert sorted(library.enabled) == sorted(cupti._KINDS)
    first, second, third, fourth = one.stop()
    assert (first.kind, first.call, first.correlation) == ("call", 1, 5) and fourth.call == 0
    assert second[:7] == ("kernel", "some_kernel", 0, 7, 100, 150, 5)
    assert second.details == {
        "grid": [3, 2, 1],
        "block": [128, 1, 1],
        "shared memory": 1024,
        "registers per thread": 40,
    }
    assert third[:2] == ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)") and third.details == {"bytes": 64}
    assert not library.enabled and not one.lent


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: setattr(x, "valid", 100), r"of 112 bytes lies in 100"),
        (lambda x: setattr(x, "valid", 2), r"lies in 2 bytes"),
        (lambda x: setattr(x, "moved", 1 << 20), r"names a record \d+ bytes behind the begin of a buffer of 208"),
        (lambda x: setattr(x, "moved", -8), r"names a record -8 bytes behind"),
        (lambda x: x.given.__setitem__(0, kernel(1, start=9, end=8)), r"an activity ends at 8 and starts at 9"),
        (lambda x: setattr(x, "cuptiActivityGetNextRecord", lambda *_: 21), r"failed with status 21"),
    ],
)  # fmt: skip
def test_damaged_buffers_are_errors(change: Any, message: str) -> None:
    library = Pretended(kernel(1))
    change(library)
    one = Cupti(library)
    one.start()
    with pytest.raises(CuptiError, match=message):
        one.stop()
    assert not library.enabled


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert read_record(ctypes.addressof(ctypes.create_string_buffer(struct.pack("<I", 999))), 4) is None
    nameless = ctypes.create_string_buffer(kernel(1, name=0))
    assert read_record(ctypes.addressof(nameless), 208).name == "kernel"  # type: ignore[union-attr]
    refused = Pretended(refuses=35)
    with pytest.raises(CuptiError, match="status 35: it needs a privilege"):
        Cupti(refused).start()
    assert refused.enabled == [cupti._KINDS[2]]  # those that were enabled are not any more
    wrong = tmp_path / "libcupti.so"
    wrong.write_bytes(b"no library")
    monkeypatch.setattr(cupti, "_loaded", [])
    with cupti.LIBRARY.scoped(str(wrong)), pytest.raises(CuptiError, match="is no CUPTI"):
        cupti.cupti()
    with cupti.LIBRARY.scoped("none"):
        assert cupti.cupti() is None


@pytest.mark.skipif(cupti.find_library() is None, reason="CUPTI's wheel is not installed")
def test_the_library_walks_these_records() -> None:
    library = ctypes.CDLL(cupti.find_library())
    raw = tie(5, 1) + kernel(5).ljust(248 if "so.13" in str(library._name) else 208, b"\0")
    held = (ctypes.c_uint64 * (len(raw) // 8)).from_buffer_copy(raw)
    at, found = ctypes.c_void_p(), []
    while not (status := library.cuptiActivityGetNextRecord(held, ctypes.c_size_t(len(raw)), ctypes.byref(at))):
        found.append((at.value or 0) - ctypes.addressof(held))
    if status == 999:
        pytest.skip("CUPTI 13 does nothing without a driver")
    assert found == [0, 24]


class Recorded(Pretended):
    """A library that has a record for every call that was tied."""

    def cuptiActivityFlushAll(self, flag: int) -> int:
        self.given = [
            record
            for call in self.calls
            for record in (kernel(50 + call, 1000 + call, 1002 + call), tie(50 + call, call))
        ]
        self.given.append(kernel(999, 5000, 5001))
        return super().cuptiActivityFlushAll(flag)


@pytest.mark.cuda
def test_profiles_take_times_and_names_from_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rl: Any = torch
    x = rl.randn(64, 32, device="cuda")
    (x @ x.t()).exp().sum()
    rl.cuda.synchronize()
    library = Recorded()
    one = Cupti(library)
    monkeypatch.setattr(
        activities, "activities_of", lambda backend, told: activities.CuptiActivities(backend, told, one)
    )
    with rl.profiler.profile() as prof:
        (x @ x.t()).exp()
    found = [e for e in prof.events() if e.device_type is rl.autograd.DeviceType.CUDA]
    assert [e.name for e in found] == ["some_kernel"] * 3 and [round(1000 * e.device_time_total) for e in found] == [
        2,
        2,
        1,
    ]
    rows = {row.key: row for row in prof.key_averages()}
    assert round(1000 * rows["aten::exp"].self_device_time_total) == 2
    assert not library.open and not library.enabled and len(library.calls) == 2
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert [k["args"]["registers per thread"] for k in kernels] == [40] * 3 and [
        k["args"]["stream"] for k in kernels[2:]
    ] == [7]
    arrows = [e for e in events if e.get("cat") == "ac2g"]
    assert sorted(a["ph"] for a in arrows) == ["f", "f", "s", "s"]  # what nobody asked for has none


@pytest.mark.cuda
def test_a_library_that_refuses_leaves_times_to_events(monkeypatch: pytest.MonkeyPatch) -> None:
    rl: Any = torch
    x = rl.ones(3, device="cuda")
    one = Cupti(Pretended(refuses=39))
    monkeypatch.setattr(
        activities, "activities_of", lambda backend, told: activities.CuptiActivities(backend, told, one)
    )
    with (
        pytest.warns(UserWarning, match="those of events, because CUPTI cannot be used: .* another profiler"),
        rl.profiler.profile() as prof,
    ):
        x.exp()
    assert any(e.device_type is rl.autograd.DeviceType.CUDA for e in prof.events())


@pytest.mark.cuda
def test_emulated_devices_have_events() -> None:
    backend: Any = backend_of(Device("cuda", 0))
    assert type(activities.activities_of(backend, lambda *_: None)) is activities.Activities
