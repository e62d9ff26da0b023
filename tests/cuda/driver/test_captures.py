"""Captures of the emulated driver: what becomes a graph, and what is refused meanwhile."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from tests.cuda.driver.machines import SCALE, Machine, kernel_object

from rushlight._backends.cuda.driver.api import single
from rushlight._backends.cuda.driver.errors import CudaError


def test_a_graph_runs_its_work_again_in_every_order_that_its_edges_allow() -> None:
    for seed in range(5):
        machine = Machine(seed=seed)
        driver, scale = machine.driver, machine.function(SCALE, "scale")
        one, other = machine.stream(), machine.stream()
        x, y, z = machine.array([1.0, 2.0]), machine.array([0.0] * 2), machine.array([0.0] * 2)
        driver.cuCtxSynchronize()
        fork, join = machine.event(), machine.event()
        driver.cuStreamBeginCapture(one)
        machine.launch(scale, (x, y, single(2.0)), 2, one)
        driver.cuEventRecord(fork, one)
        driver.cuStreamWaitEvent(other, fork)
        machine.launch(scale, (y, z, single(5.0)), 2, other)  # the other stream joins
        assert driver.cuStreamGetCaptureInfo(other)[0] == driver.cuStreamGetCaptureInfo(one)[0] == 1
        driver.cuEventRecord(join, other)
        driver.cuStreamWaitEvent(one, join)
        graph = driver.cuStreamEndCapture(one)
        assert driver.cuGraphGetNodes(graph) == 2 and driver.cuStreamGetCaptureInfo(other) == (0, 0)
        assert machine.read(z, 2) == [0.0, 0.0]
        executable = driver.cuGraphInstantiate(graph)
        driver.cuGraphDestroy(graph)
        for value in (1.0, 3.0):
            data = (ctypes.c_float * 2)(value, value)
            driver.cuMemcpyHtoDAsync(x, ctypes.addressof(data), 8, one)
            driver.cuGraphLaunch(executable, one)
            assert machine.read(z, 2, one) == [10 * value] * 2
        driver.cuGraphExecDestroy(executable)
        with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_HANDLE"):
            driver.cuGraphLaunch(executable, one)


def spoiled(machine: Machine, name: str, call: Any, *args: Any) -> None:
    """A call that a capture forbids: it fails, and so does the end of the capture."""
    stream = machine.stream()
    machine.driver.cuStreamBeginCapture(stream)
    with pytest.raises(CudaError) as met:
        call(*[stream if a == "stream" else a for a in args])
    assert met.value.name == name, met.value
    with pytest.raises(CudaError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
        machine.driver.cuStreamEndCapture(stream)


def test_what_waits_or_allocates_spoils_a_capture() -> None:
    machine = Machine()
    driver, address = machine.driver, machine.array([1.0])
    other, event, image = machine.stream(), machine.event(), kernel_object(SCALE)
    driver.cuEventRecord(event, other)
    module, pinned = driver.cuModuleLoadData(image), driver.cuMemHostAlloc(512)
    for call, *args in (
        (driver.cuCtxSynchronize,), (driver.cuMemAlloc, 4), (driver.cuMemFree, address), (driver.cuStreamSynchronize, "stream"), (driver.cuStreamQuery, "stream"),
        (driver.cuStreamSynchronize, other), (driver.cuStreamQuery, other), (driver.cuEventQuery, event), (driver.cuEventSynchronize, event),
        (driver.cuMemHostAlloc, 512), (driver.cuMemFreeHost, pinned), (driver.cuMemHostRegister, 4096, 4096), (driver.cuModuleLoadData, image),
        (driver.cuModuleUnload, module),
    ):  # fmt: skip
        spoiled(machine, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", call, *args)
    spoiled(machine, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", driver.cuMemsetD8Async, address, 0, 4, 0)


def test_a_relaxed_thread_may_allocate_while_a_capture_goes_on() -> None:
    machine = Machine()
    stream = machine.stream()
    machine.driver.cuStreamBeginCapture(stream)
    before = machine.driver.cuThreadExchangeStreamCaptureMode(2)
    machine.driver.cuMemAlloc(4)
    machine.driver.cuModuleLoadData(kernel_object(SCALE))
    assert machine.driver.cuThreadExchangeStreamCaptureMode(before) == 2
    machine.driver.cuStreamEndCapture(stream)


def test_not_even_a_relaxed_thread_waits_for_a_device_with_a_capture() -> None:
    machine = Machine()
    stream = machine.stream()
    machine.driver.cuStreamBeginCapture(stream)
    machine.driver.cuThreadExchangeStreamCaptureMode(2)
    with pytest.raises(CudaError, match="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
        machine.driver.cuCtxSynchronize()


@pytest.mark.parametrize(("mode", "allowed"), [(0, False), (1, True), (2, True)])
def test_captures_that_are_global_concern_all_threads(mode: int, allowed: bool) -> None:
    machine = Machine()
    stream, event, met = machine.stream(), machine.event(), list[str]()

    def ask() -> None:
        try:
            machine.devices.enter(0)
            machine.driver.cuEventQuery(event)
        except CudaError as error:
            met.append(error.name)

    machine.driver.cuStreamBeginCapture(stream, mode)
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert met == ([] if allowed else ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"])


def test_a_capture_waits_for_no_event_from_before_it() -> None:
    machine = Machine()
    one, other, event = machine.stream(), machine.stream(), machine.event()
    machine.driver.cuEventRecord(event, other)
    machine.driver.cuEventSynchronize(event)  # that it is past changes nothing
    machine.driver.cuStreamBeginCapture(one)
    with pytest.raises(CudaError, match="CUDA_ERROR_STREAM_CAPTURE_ISOLATION"):
        machine.driver.cuStreamWaitEvent(one, event)


def test_streams_that_joined_must_be_waited_for() -> None:
    machine = Machine()
    one, other, event = machine.stream(), machine.stream(), machine.event()
    machine.driver.cuStreamBeginCapture(one)
    machine.driver.cuEventRecord(event, one)
    machine.driver.cuStreamWaitEvent(other, event)
    machine.driver.cuLaunchHostFunc(other, lambda: None)
    with pytest.raises(CudaError, match="CUDA_ERROR_STREAM_CAPTURE_UNJOINED"):
        machine.driver.cuStreamEndCapture(one)
    machine.driver.cuStreamSynchronize(other)  # the capture is over


def test_captures_begin_and_end_on_one_stream() -> None:
    machine = Machine()
    one, other = machine.stream(), machine.stream()
    with pytest.raises(CudaError, match="the legacy stream cannot be captured"):
        machine.driver.cuStreamBeginCapture(0)
    machine.driver.cuStreamBeginCapture(one)
    with pytest.raises(CudaError, match="captured already"):
        machine.driver.cuStreamBeginCapture(one)
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        machine.driver.cuStreamEndCapture(other)
    event = machine.event()
    machine.driver.cuEventRecord(event, one)
    with pytest.raises(CudaError, match="CUDA_ERROR_CAPTURED_EVENT"):
        machine.driver.cuEventSynchronize(event)


def test_a_graph_can_be_drawn(tmp_path: Any) -> None:
    machine = Machine()
    stream = machine.stream()
    machine.driver.cuStreamBeginCapture(stream)
    for _ in range(2):
        machine.driver.cuLaunchHostFunc(stream, lambda: None)
    graph = machine.driver.cuStreamEndCapture(stream)
    machine.driver.cuGraphDebugDotPrint(graph, str(tmp_path / "graph.dot"))
    assert "n0 -> n1;" in (tmp_path / "graph.dot").read_text()
