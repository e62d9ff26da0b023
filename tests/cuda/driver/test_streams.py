"""Streams of the emulated driver: late, in random order, and ordered by events alone."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.cuda.driver.machines import FAILING, SCALE, Machine

from rushlight._backends.cuda.driver.api import single, slots
from rushlight._backends.cuda.driver.attributes import FUNCTION
from rushlight._backends.cuda.driver.emulated.ordering import StreamOrderError
from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._backends.cuda.streams import CudaEvent
from rushlight._types.device import Device


def doubled(machine: Machine, ordered: bool) -> list[float]:
    """x * 2 on one stream and * 3 on another, with an event between or without."""
    scale = machine.function(SCALE, "scale")
    one, other, done = machine.stream(), machine.stream(), machine.event()
    x, y, z = machine.array([1.0, 2.0]), machine.array([0.0, 0.0]), machine.array([0.0, 0.0])
    machine.driver.cuCtxSynchronize()
    machine.launch(scale, (x, y, single(2.0)), 2, one)
    if ordered:
        machine.driver.cuEventRecord(done, one)
        machine.driver.cuStreamWaitEvent(other, done)
    machine.launch(scale, (y, z, single(3.0)), 2, other)
    return machine.read(z, 2, other)


def test_an_event_orders_streams_and_its_absence_shows() -> None:
    assert all(doubled(Machine(seed=seed), True) == [6.0, 12.0] for seed in range(6))
    found = {tuple(doubled(Machine(seed=seed), False)) for seed in range(12)}
    assert {(6.0, 12.0), (0.0, 0.0)} <= found


def test_nothing_runs_before_somebody_waits() -> None:
    machine = Machine()
    ran: list[int] = []
    stream = machine.stream()
    for k in range(3):
        machine.driver.cuLaunchHostFunc(stream, lambda k=k: ran.append(k))
    assert ran == []
    machine.driver.cuStreamSynchronize(stream)
    assert ran == [0, 1, 2]


def test_an_interrupted_kernel_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler raises behind the call of some blocks; those that were left run all the same."""
    machine = Machine()
    x, y = machine.array([1.0] * 64), machine.array([0.0] * 64)
    machine.driver.cuCtxSynchronize()
    function = machine.function(SCALE, "scale")
    kernel = machine.driver._handles[function]
    call = kernel.call

    def interrupted(*args: int) -> int:
        call(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(kernel, "call", interrupted)
    monkeypatch.setattr(machine.driver.scheduler, "shuffled", lambda count: [(32, count), (0, 32)])
    machine.launch(function, (x, y, single(2.0)), 64)
    with pytest.raises(KeyboardInterrupt):
        machine.driver.cuCtxSynchronize()
    assert machine.read(y, 64) == [2.0] * 64


def test_an_interruption_leaves_what_native_code_gave() -> None:
    """Rows that were taken from native code are not lost with the one at which somebody was interrupted."""
    driver = Machine().driver
    lend = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(driver.function_address("lend"))
    lent: list[int] = []

    class Interrupted:
        def lend(self, address: int, nbytes: int) -> None:
            lent.append(address)
            if address == 1024:
                raise KeyboardInterrupt

    driver.marks = Interrupted()
    for address in (512, 1024, 1536, 2048):
        lend(address, 512)
    with pytest.raises(KeyboardInterrupt):
        driver.cuCtxSynchronize()
    assert lent == [512, 1024]
    driver.cuCtxSynchronize()
    assert lent == [512, 1024, 1536, 2048]


def test_an_interruption_where_nothing_can_be_raised_is_told_by_the_next_call() -> None:
    """Native code that lends memory has nobody to tell when its rows are full."""
    driver = Machine().driver
    lend = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(driver.function_address("lend"))
    lent: list[int] = []

    class Interrupted:
        def lend(self, address: int, nbytes: int) -> None:
            lent.append(address)
            if len(lent) == 100:
                raise KeyboardInterrupt

    driver.marks = Interrupted()
    for k in range(5000):
        lend(512 * k, 512)
    assert len(lent) == 100
    with pytest.raises(KeyboardInterrupt):
        driver.cuCtxSynchronize()
    driver.cuCtxSynchronize()
    assert lent == [512 * k for k in range(5000)]


def test_asking_makes_progress() -> None:
    machine = Machine()
    stream, event = machine.stream(), machine.event()
    for _ in range(5):
        machine.driver.cuLaunchHostFunc(stream, lambda: None)
    machine.driver.cuEventRecord(event, stream)
    asked = 0
    while not machine.driver.cuEventQuery(event):
        asked += 1
        assert asked < 20
    assert machine.driver.cuStreamQuery(stream)


def test_the_legacy_stream_waits_for_blocking_ones_and_they_for_it() -> None:
    for seed in range(8):
        machine = Machine(seed=seed)
        order: list[str] = []
        blocking, free = machine.driver.cuStreamCreateWithPriority(0, 0), machine.stream()
        for stream, name in ((blocking, "a"), (0, "b"), (blocking, "c"), (free, "free")):
            machine.driver.cuLaunchHostFunc(stream, lambda name=name, order=order: order.append(name))
        machine.driver.cuCtxSynchronize()
        assert [n for n in order if n != "free"] == ["a", "b", "c"] and len(order) == 4


def test_an_event_measures() -> None:
    machine = Machine()
    timed = [machine.driver.cuEventCreate(0) for _ in range(2)]
    machine.driver.cuEventRecord(timed[0], 0)
    machine.driver.cuEventRecord(timed[1], 0)
    with pytest.raises(CudaError, match="CUDA_ERROR_NOT_READY"):
        machine.driver.cuEventElapsedTime(*timed)
    machine.driver.cuEventSynchronize(timed[1])
    assert machine.driver.cuEventElapsedTime(*timed) >= 0
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_HANDLE"):
        machine.driver.cuEventElapsedTime(timed[0], machine.event())


def test_an_event_recorded_again_means_the_later_moment() -> None:
    machine = Machine(seed=3)
    one, other, event = machine.stream(), machine.stream(), machine.event()
    order: list[str] = []
    machine.driver.cuEventRecord(event, one)
    machine.driver.cuLaunchHostFunc(one, lambda: order.append("first"))
    machine.driver.cuEventRecord(event, one)
    machine.driver.cuStreamWaitEvent(other, event)
    machine.driver.cuLaunchHostFunc(other, lambda: order.append("then"))
    machine.driver.cuStreamSynchronize(other)
    assert order == ["first", "then"]


def test_a_stream_belongs_to_its_device() -> None:
    machine = Machine(devices=2)
    stream = machine.stream()
    machine.devices.enter(1)
    with pytest.raises(CudaError, match="the stream is of device 0, the current one is 1"):
        machine.driver.cuLaunchHostFunc(stream, lambda: None)
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_HANDLE"):
        machine.driver.cuStreamSynchronize(12345)


# ***** kernels *****


def test_a_kernel_gets_its_parameters_as_they_were() -> None:
    machine = Machine()
    scale, x, y = machine.function(SCALE, "scale"), machine.array([1.0, 2.0, 3.0]), machine.array([0.0] * 3)
    words = slots(x, y, single(0.5))
    machine.driver.cuLaunchKernel(scale, (3, 1, 1), (32, 1, 1), 0, 0, words)
    words[2] = single(100.0)
    assert machine.read(y, 3) == [0.5, 1.0, 1.5]


def test_what_a_launch_may_not_ask_for() -> None:
    machine = Machine()
    scale = machine.function(SCALE, "scale")
    for grid, block, shared in (
        ((0, 1, 1), (32, 1, 1), 0), ((1, 65536, 1), (32, 1, 1), 0), ((1, 1, 1), (64, 32, 1), 0), ((1, 1, 1), (32, 1, 65), 0), ((1, 1, 1), (32, 1, 1), 49153),
    ):  # fmt: skip
        with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
            machine.driver.cuLaunchKernel(scale, grid, block, shared, 0, slots(0, 0, 0))
    with pytest.raises(CudaError, match="a block has no 300000 bytes"):
        machine.driver.cuFuncSetAttribute(scale, FUNCTION["max_dynamic_shared_bytes"], 300000)
    with pytest.raises(CudaError, match="CUDA_ERROR_NOT_FOUND.*the module has scale, no scalf"):
        machine.function(SCALE, "scalf")
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_IMAGE.*this is PTX"):
        machine.driver.cuModuleLoadData(b".version 8.0\n.target sm_90\n")


@pytest.mark.parametrize(
    ("code", "name"), [(700, "CUDA_ERROR_ILLEGAL_ADDRESS"), (710, "CUDA_ERROR_ASSERT"), (5, "CUDA_ERROR_LAUNCH_FAILED")]
)
def test_a_kernel_that_fails_stops_its_device(code: int, name: str) -> None:
    machine = Machine(devices=2)
    machine.driver.launch = ("failing", None)
    machine.launch(machine.function(FAILING, "failing"), (code,))  # says nothing yet
    with pytest.raises(CudaError, match=f"{name} .*from kernel failing\\): out of luck") as met:
        machine.driver.cuCtxSynchronize()
    assert met.value.launch == ("failing", None)
    with pytest.raises(CudaError, match=name):  # and so does everything later
        machine.driver.cuMemAlloc(4)
    machine.devices.enter(1)
    assert machine.read(machine.array([1.0]), 1) == [1.0]


# ***** memory that two streams use *****


def prepared(seed: int = 0) -> tuple[Machine, int, int, int, int]:
    machine = Machine(seed=seed)
    scale = machine.function(SCALE, "scale")
    x = machine.array([1.0, 2.0])
    machine.driver.cuCtxSynchronize()
    return machine, scale, x, machine.stream(), machine.stream()


def test_memory_that_is_lent_again_while_another_stream_uses_it_is_found() -> None:
    machine, scale, x, one, other = prepared()
    marks, block = machine.driver.marks, machine.driver.cuMemAlloc(512)
    marks.lend(block, 512)
    machine.launch(scale, (x, block, single(2.0)), 2, other)
    marks.take_back(block)
    marks.lend(block, 256)  # a smaller tensor, of stream `one`
    with pytest.raises(
        StreamOrderError, match=r"scale on stream .* that scale on stream .* may still use.*record_stream"
    ):
        machine.launch(scale, (x, block, single(3.0)), 2, one)


@pytest.mark.parametrize("how", ["event", "host", "same"])
def test_memory_may_be_lent_again_behind_its_last_use(how: str) -> None:
    machine, scale, x, one, other = prepared()
    marks, block = machine.driver.marks, machine.driver.cuMemAlloc(512)
    marks.lend(block, 512)
    machine.launch(scale, (x, block, single(2.0)), 2, other)
    marks.take_back(block)
    marks.lend(block, 512)
    if how == "event":
        event = machine.event()
        machine.driver.cuEventRecord(event, other)
        machine.driver.cuStreamWaitEvent(one, event)
    elif how == "host":
        machine.driver.cuStreamSynchronize(other)
    machine.launch(scale, (x, block, single(3.0)), 2, other if how == "same" else one)
    machine.driver.cuCtxSynchronize()
    assert machine.read(block, 2) == [3.0, 6.0]


def test_an_order_is_handed_on_from_stream_to_stream() -> None:
    machine, scale, x, one, other = prepared()
    third = machine.stream()
    marks, block = machine.driver.marks, machine.driver.cuMemAlloc(512)
    marks.lend(block, 512)
    machine.launch(scale, (x, block, single(2.0)), 2, other)
    for source, target in ((other, third), (third, one)):
        event = machine.event()
        machine.driver.cuEventRecord(event, source)
        machine.driver.cuStreamWaitEvent(target, event)
    marks.take_back(block)
    marks.lend(block, 512)
    machine.launch(scale, (x, block, single(3.0)), 2, one)
    machine.driver.cuCtxSynchronize()
    assert machine.read(block, 2) == [3.0, 6.0]


def test_memory_that_was_freed_is_not_for_further_kernels() -> None:
    machine, scale, x, one, _ = prepared()
    marks, block = machine.driver.marks, machine.driver.cuMemAlloc(512)
    marks.lend(block, 512)
    marks.take_back(block)
    with pytest.raises(StreamOrderError, match="which was freed before"):
        machine.launch(scale, (x, block, single(2.0)), 2, one)


def test_events_of_several_processes_have_no_times() -> None:
    machine = Machine()
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        machine.driver.cuEventCreate(4)
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_HANDLE"):
        machine.driver.cuIpcGetEventHandle(machine.event())
    assert len(machine.driver.cuIpcGetEventHandle(machine.driver.cuEventCreate(6))) == 64


# ***** contexts of threads *****


def in_a_thread(call: Callable[[], Any]) -> Any:
    """What a call gives in a thread that never used a GPU, or the error that it raises."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_calls_on_events_and_memory_need_a_context() -> None:
    machine = Machine()
    driver, event, address = machine.driver, machine.event(), machine.array([1.0])
    for call in (
        lambda: driver.cuEventQuery(event), lambda: driver.cuEventSynchronize(event), lambda: driver.cuEventDestroy(event),
        lambda: driver.cuMemHostAlloc(512), lambda: driver.cuMemHostRegister(4096, 4096), lambda: driver.cuPointerGetAttribute(9, address),
        lambda: driver.cuModuleLoadData(b""), driver.cuProfilerStart,
    ):  # fmt: skip
        assert in_a_thread(call).name == "CUDA_ERROR_INVALID_CONTEXT"


def test_events_are_asked_and_forgotten_in_threads_without_a_context() -> None:
    machine = Machine()
    event = CudaEvent(machine.devices, Device("cuda", 0))
    event.record(machine.streams.default[0])
    handle, held = event.id, [event]
    del event
    assert in_a_thread(lambda: (held[0].synchronize(), held[0].query())[1]) is True
    assert in_a_thread(held.clear) is None
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_HANDLE"):
        machine.driver.cuEventQuery(handle)


def test_destructors_leave_the_device_of_their_thread() -> None:
    machine = Machine(devices=2)
    machine.devices.enter(1)
    with machine.devices.aside(0):
        assert machine.driver.cuCtxGetCurrent() == machine.devices.context(0)
    assert machine.driver.cuCtxGetCurrent() == machine.devices.context(1)


def test_destructors_say_nothing_on_a_device_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine()
    event = CudaEvent(machine.devices, Device("cuda", 0))
    event.record(machine.streams.default[0])
    machine.launch(machine.function(FAILING, "failing"), (700,))
    with pytest.raises(CudaError, match="illegal memory access"):
        machine.driver.cuCtxSynchronize()
    with pytest.raises(CudaError, match="illegal memory access"):
        machine.driver.cuEventDestroy(event.id)
    del event
    assert capsys.readouterr().err == ""
