"""The emulated driver: devices, contexts, streams, events and graphs."""

from __future__ import annotations

import os
import random
import struct
import threading
from collections import deque
from collections.abc import Callable
from functools import partial, wraps
from itertools import count
from typing import Any

from rushlight._backends.cuda.driver.api import Driver
from rushlight._backends.cuda.driver.attributes import (
    CAPTURE_GLOBAL,
    DEVICE,
    EVENT_INTERPROCESS,
    EVENT_WITHOUT_TIMING,
    STREAM_NON_BLOCKING,
)
from rushlight._backends.cuda.driver.emulated.captures import Capture, Graph
from rushlight._backends.cuda.driver.emulated.machine import ATTRIBUTES, NAME, VERSION, identity
from rushlight._backends.cuda.driver.emulated.memory import Region
from rushlight._backends.cuda.driver.emulated.ordering import MemoryOrder, merge
from rushlight._backends.cuda.driver.emulated.queue import LAUNCH, LAUNCH_GRAPH, LEND, MEMSET, SET_NODE, Queue
from rushlight._backends.cuda.driver.emulated.streams import Mark, Scheduler, Stream, Work
from rushlight._backends.cuda.driver.errors import fail
from rushlight._base.forking import free_after_fork

__all__ = ["IPC", "EmulatedWork", "one_at_a_time"]

_CONTEXT = 0xC0DE0000  # + the number of the device
_PINNED, _FOREIGN = 4 << 30, 16 << 30  # bytes of addresses, not of memory
IPC = struct.Struct("<iiqqi")
_RELAXED = 2


class _Event:
    """An event: its last mark, or the nodes of the capture in which it was recorded."""

    __slots__ = ("captured", "flags", "mark")

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.mark: Mark | None = None
        self.captured: tuple[Capture, frozenset[int]] | None = None


def one_at_a_time(cls: type) -> type:
    """Let one thread at a time be in the driver's calls."""
    for name, function in list(vars(cls).items()):
        if name.startswith("cu") and callable(function):
            setattr(cls, name, _locked(function))
    return cls


def _locked(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(self: EmulatedWork, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            self.catch_up()
            return function(self, *args, **kwargs)

    return call


@one_at_a_time
class EmulatedWork(Driver):
    """Devices, contexts, streams, events and graphs of pretended H200s."""

    emulated = True

    def __init__(self, devices: int = 1, memory: int = 4 << 30, seed: int = 0) -> None:
        self.lock = free_after_fork(threading.RLock())
        self.numbers = list(range(devices))  # in the machine, of which `CUDA_VISIBLE_DEVICES` may show some
        self.region = Region(devices, memory, _PINNED, _FOREIGN)
        self.scheduler = Scheduler(seed, self._stopped)
        self._order_of_memory = MemoryOrder()
        self._queue: Queue | None = None
        self._rows: deque[list[int]] = deque()  # of the queue, not yet looked at
        self._late: BaseException | None = None
        self._native_contexts: dict[int, int] = {}  # by the number of a thread
        self.note_of: Callable[[int], Any] = lambda number: None
        self._random = random.Random(seed)
        self._numbers = count(0x7E0000000010, 16)
        self._thread = threading.local()
        self._handles: dict[int, Any] = {}
        self._legacy = [self._new_stream(0, d, 0, 0) for d in range(devices)]
        self._captures: dict[int, Capture] = {}  # by the key of a stream
        self._registered: dict[int, int] = {}
        self._retained = [0] * devices
        self._initialised = False

    # ***** what native code gives *****

    @property
    def queue(self) -> Queue:
        """The C functions of the driver; asking for them makes them."""
        if self._queue is None:
            self._queue = Queue(self._drain, self._locked_catch_up)
        return self._queue

    def function_address(self, name: str) -> int:
        if name not in self.queue.functions:
            self._lacks(f"C function {name}")
        return self.queue.functions[name]

    @property
    def marks(self) -> MemoryOrder:
        """Who lent memory and who uses it, after all that native code gave."""
        if self._queue is not None and (self._queue.words[0] or self._rows):
            with self.lock:
                self._take_rows()
        return self._order_of_memory

    @marks.setter
    def marks(self, value: Any) -> None:
        self._order_of_memory = value

    def _locked_catch_up(self) -> None:
        with self.lock:
            self.catch_up()

    def catch_up(self) -> None:
        """Take what native code gave before this call; raises what went wrong with it."""
        if self._queue is not None:
            if self._queue.words[0] or self._rows:
                self._take_rows()
            late, self._late = self._late, None
            if late is not None:
                raise late

    def _take_rows(self) -> None:
        with self.lock:
            self._rows.extend(self.queue.rows())
            while self._rows:  # an interruption leaves the further rows to the next call
                try:
                    self._take_row(self._rows.popleft())
                except Exception as error:  # told by the next call: this may be any code, a destructor's, too
                    self._late = self._late or error

    def _drain(self) -> None:
        """Take the rows for a caller that can raise nothing, be it what a signal handler raised: the next call does."""
        try:
            self._take_rows()
        except BaseException as error:
            self._late = self._late or error

    def _take_row(self, row: list[int]) -> None:
        order = self._order_of_memory
        if row[0] == LAUNCH:
            device = self._native_contexts.get(row[2], 0) - _CONTEXT
            if device not in self.scheduler.errors:
                self.launch_row(device, row)
        elif row[0] == LAUNCH_GRAPH:
            device = self._native_contexts.get(row[2], 0) - _CONTEXT
            if device not in self.scheduler.errors:
                self._launch_graph(device, row[4], row[5], self.note_of(row[3]))
        elif row[0] == SET_NODE:
            self.node_row(row)
        elif row[0] == MEMSET:
            device = self._native_contexts.get(row[2], 0) - _CONTEXT
            if device not in self.scheduler.errors:
                self.memset_row(device, row)
        elif order is not None and row[0] == LEND:
            order.lend(row[2], row[3])
        elif order is not None:
            order.take_back(row[2])

    def memset_row(self, device: int, row: list[int]) -> None:
        """A fill by native code."""
        raise NotImplementedError

    def node_row(self, row: list[int]) -> None:
        """Parameters of a node by native code."""
        raise NotImplementedError

    def launch_row(self, device: int, row: list[int]) -> None:
        """A launch by native code."""
        raise NotImplementedError

    def _of_kind(self, handle: int, kind: type, call: str) -> Any:
        found = self._handles.get(handle)
        if not isinstance(found, kind):
            fail("CUDA_ERROR_INVALID_HANDLE", call, f"{handle:#x} is no {kind.__name__.lower()}")
        return found

    def _stopped(self) -> None:
        """A device goes no further."""
        if self._queue is not None:
            self._queue.fail()

    @property
    def launch(self) -> Any:
        """Who starts this thread's next kernel."""
        return getattr(self._thread, "launch", None)

    @launch.setter
    def launch(self, note: Any) -> None:
        self._thread.launch = note

    # ***** the driver and its devices *****

    def cuInit(self) -> None:
        self._initialised = True

    def cuDriverGetVersion(self) -> int:
        return VERSION

    def cuDeviceGetCount(self) -> int:
        if not self._initialised:
            fail("CUDA_ERROR_NOT_INITIALIZED", "cuDeviceGetCount")
        return len(self.region.devices)

    def _device(self, device: int, call: str) -> int:
        if not 0 <= device < len(self.region.devices):
            fail("CUDA_ERROR_INVALID_DEVICE", call)
        return device

    def cuDeviceGetName(self, device: int) -> str:
        self._device(device, "cuDeviceGetName")
        return NAME

    def cuDeviceGetUuid(self, device: int) -> bytes:
        return identity(self.numbers[self._device(device, "cuDeviceGetUuid")])

    def cuDeviceGetPCIBusId(self, device: int) -> str:
        return f"0000:{self.numbers[self._device(device, 'cuDeviceGetPCIBusId')] + 1:02x}:00.0"

    def cuDeviceTotalMem(self, device: int) -> int:
        return self.region.devices[self._device(device, "cuDeviceTotalMem")].nbytes

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> int:
        self._device(device, "cuDeviceGetAttribute")
        if attribute == DEVICE["pci_bus_id"]:
            return self.numbers[device] + 1
        if attribute not in ATTRIBUTES:
            fail(
                "CUDA_ERROR_INVALID_VALUE",
                "cuDeviceGetAttribute",
                f"the emulated driver knows no attribute {attribute}",
            )
        return ATTRIBUTES[attribute]

    def cuDeviceCanAccessPeer(self, device: int, peer: int) -> bool:
        return self._device(device, "cuDeviceCanAccessPeer") != self._device(peer, "cuDeviceCanAccessPeer")

    # ***** contexts *****

    def cuDevicePrimaryCtxRetain(self, device: int) -> int:
        self._retained[self._device(device, "cuDevicePrimaryCtxRetain")] += 1
        return _CONTEXT + device

    def cuDevicePrimaryCtxRelease(self, device: int) -> None:
        if not self._retained[self._device(device, "cuDevicePrimaryCtxRelease")]:
            fail("CUDA_ERROR_INVALID_CONTEXT", "cuDevicePrimaryCtxRelease")
        self._retained[device] -= 1

    def cuCtxSetCurrent(self, context: int) -> None:
        if context and not (0 <= context - _CONTEXT < len(self._retained) and self._retained[context - _CONTEXT]):
            fail("CUDA_ERROR_INVALID_CONTEXT", "cuCtxSetCurrent")
        self._thread.context = context
        self._native_contexts[self.queue.thread()] = context

    def cuCtxGetCurrent(self) -> int:
        found: int = getattr(self._thread, "context", 0)
        return found

    def _current(self, call: str) -> int:
        """The device of this thread's context, unless an error stopped it."""
        context = getattr(self._thread, "context", 0)
        if not context:
            fail("CUDA_ERROR_INVALID_CONTEXT", call, "this thread has no context")
        device: int = context - _CONTEXT
        error = self.scheduler.errors.get(device)
        if error is not None:
            raise error
        return device

    def cuCtxSynchronize(self) -> None:
        device = self._current("cuCtxSynchronize")
        self._not_while_captured("cuCtxSynchronize")
        for stream in self.scheduler.streams:  # of relaxed threads, too: a capture cannot be waited for
            if stream.device == device:
                self._not_while_captured("cuCtxSynchronize", stream)
        self._wait_for_device(device, "cuCtxSynchronize")

    def _wait_for_device(self, device: int, call: str) -> None:
        streams = [s for s in self.scheduler.streams if s.device == device]
        self.scheduler.run_until(lambda: not any(s.waiting for s in streams), call)
        for stream in streams:
            self.scheduler.seen(stream.mark().clock)

    def cuCtxGetStreamPriorityRange(self) -> tuple[int, int]:
        return 0, -5

    def cuCtxEnablePeerAccess(self, peer_context: int) -> None:
        self._current("cuCtxEnablePeerAccess")

    # ***** streams *****

    def _new_stream(self, handle: int, device: int, flags: int, priority: int) -> Stream:
        made = Stream(handle or device + 1, handle, device, flags, priority)
        self.scheduler.streams.append(made)
        return made

    def _stream(self, handle: int, device: int, call: str) -> Stream:
        found = self._legacy[device] if handle in (0, 1) else self._handles.get(handle)
        if not isinstance(found, Stream):
            fail("CUDA_ERROR_INVALID_HANDLE", call, f"{handle:#x} is no stream")
        if found.device != device:
            fail(
                "CUDA_ERROR_INVALID_HANDLE",
                call,
                f"the stream is of device {found.device}, the current one is {device}",
            )
        return found

    def _submit(self, handle: int, name: str, run: Callable[[], Any], addresses: tuple[int, ...] = ()) -> Stream:
        """Give a stream work, or the graph that is made of its work."""
        return self._submit_on(self._current(name), handle, name, run, addresses)

    def _submit_on(
        self, device: int, handle: int, name: str, run: Callable[[], Any], addresses: tuple[int, ...] = ()
    ) -> Stream:
        stream = self._stream(handle, device, name)
        capture = self._capture_of(stream)
        if capture is not None:
            capture.add(stream.key, name, run, addresses)
            return stream
        if not handle and any(
            c.mode != _RELAXED and s.device == device
            for s in self.scheduler.streams
            if (c := self._capture_of(s)) is not None
        ):
            self._spoil()
            fail("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", name)
        self._give(stream, name, run, addresses)
        return stream

    def _give(self, stream: Stream, name: str, run: Callable[[], Any], addresses: tuple[int, ...]) -> None:
        if not stream.flags & STREAM_NON_BLOCKING:
            self._wait_for_legacy(stream)
        number = self.scheduler.number(stream)
        for address in addresses:
            self._order_of_memory.use(address, stream.key, number, name, stream.clock, self.scheduler.host)
        self.scheduler.add(stream, Work(name, run))

    def _wait_for_legacy(self, stream: Stream) -> None:
        """The legacy stream and blocking streams wait for each other."""
        legacy = self._legacy[stream.device]
        if stream is legacy:
            for other in self.scheduler.streams:
                if other is not stream and other.device == stream.device and not other.flags & STREAM_NON_BLOCKING:
                    self._order(stream, self._marked(other))
        elif legacy.waiting:
            self._order(stream, self._marked(legacy))

    def _marked(self, stream: Stream) -> Mark:
        mark = stream.mark()
        self.scheduler.add(stream, Work("mark", mark.reach))
        return mark

    def _order(self, stream: Stream, mark: Mark) -> None:
        merge(stream.clock, mark.clock)
        if not mark.done:
            self.scheduler.add(stream, Work("wait", lambda: None, lambda: mark.done))

    def _wait_for(self, stream: Stream, call: str) -> None:
        mark = self._marked(stream)
        self.scheduler.run_until(lambda: mark.done, call)
        self.scheduler.seen(mark.clock)
        self._current(call)

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> int:
        handle = next(self._numbers)
        device = self._current("cuStreamCreateWithPriority")
        self.queue.eager = True  # among streams there may be no order
        self._handles[handle] = self._new_stream(handle, device, flags, min(max(priority, -5), 0))
        return handle

    def cuStreamDestroy(self, stream: int) -> None:
        found = self._stream(stream, self._current("cuStreamDestroy"), "cuStreamDestroy")
        self._wait_for(found, "cuStreamDestroy")
        self.scheduler.streams.remove(found)
        del self._handles[stream]

    def cuStreamSynchronize(self, stream: int) -> None:
        call = "cuStreamSynchronize"
        found = self._stream(stream, self._current(call), call)
        self._not_while_captured(call, found)
        self._wait_for(found, call)

    def cuStreamQuery(self, stream: int) -> bool:
        found = self._stream(stream, self._current("cuStreamQuery"), "cuStreamQuery")
        self._not_while_captured("cuStreamQuery", found)
        if found.waiting:
            self.scheduler.run_some(1)
        self._current("cuStreamQuery")
        if not found.waiting:
            self.scheduler.seen(found.mark().clock)
        return not found.waiting

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        call = "cuStreamWaitEvent"
        found, mark = self._stream(stream, self._current(call), call), self._event(event, call)
        capture = self._capture_of(found)
        if mark.captured is not None:
            source, tail = mark.captured
            source.check(call)
            if capture is not None and capture is not source:
                fail("CUDA_ERROR_STREAM_CAPTURE_ISOLATION", call)
            self._captures[found.key] = source
            source.join(found.key, tail)
        elif capture is not None:
            if mark.mark is not None:  # done or not: an edge would leave the graph
                self._spoil()
                fail("CUDA_ERROR_STREAM_CAPTURE_ISOLATION", call)
        elif mark.mark is not None:
            self._order(found, mark.mark)

    def cuStreamGetPriority(self, stream: int) -> int:
        return self._stream(stream, self._current("cuStreamGetPriority"), "cuStreamGetPriority").priority

    def cuLaunchHostFunc(self, stream: int, function: Callable[[], None]) -> None:
        self._submit(stream, "cuLaunchHostFunc", function)

    def submit(self, stream: int, name: str, function: Callable[[], None], addresses: tuple[int, ...]) -> None:
        """Run a function of the host, which reaches device memory by `region`, as if it were a kernel."""
        with self.lock:
            self.catch_up()
            self._submit(stream, name, function, addresses)

    # ***** events *****

    def _event(self, handle: int, call: str) -> _Event:
        found = self._handles.get(handle)
        if not isinstance(found, _Event):
            fail("CUDA_ERROR_INVALID_HANDLE", call, f"{handle:#x} is no event")
        return found

    def cuEventCreate(self, flags: int) -> int:
        self._current("cuEventCreate")
        if flags & EVENT_INTERPROCESS and not flags & EVENT_WITHOUT_TIMING:
            fail("CUDA_ERROR_INVALID_VALUE", "cuEventCreate", "an event of several processes has no time")
        handle = next(self._numbers)
        self._handles[handle] = _Event(flags)
        return handle

    def cuEventDestroy(self, event: int) -> None:
        self._current("cuEventDestroy")
        self._event(event, "cuEventDestroy")
        del self._handles[event]

    def cuEventRecord(self, event: int, stream: int) -> None:
        call = "cuEventRecord"
        found, into = self._event(event, call), self._stream(stream, self._current(call), call)
        capture = self._capture_of(into)
        if capture is not None:
            capture.check(call)
            found.captured = (capture, capture.tails[into.key])
            return
        if not into.flags & STREAM_NON_BLOCKING:
            self._wait_for_legacy(into)
        self.scheduler.number(into)
        found.captured, found.mark = None, self._marked(into)

    def cuEventQuery(self, event: int) -> bool:
        self._current("cuEventQuery")
        found = self._event(event, "cuEventQuery")
        self._not_captured(found, "cuEventQuery")
        self._not_while_captured("cuEventQuery")
        if found.mark is None:
            return True
        if not found.mark.done:
            self.scheduler.run_some(1)
        self._check_device(found.mark.stream.device)
        if found.mark.done:
            self.scheduler.seen(found.mark.clock)
        return found.mark.done

    def cuEventSynchronize(self, event: int) -> None:
        self._current("cuEventSynchronize")
        found = self._event(event, "cuEventSynchronize")
        self._not_captured(found, "cuEventSynchronize")
        self._not_while_captured("cuEventSynchronize")
        mark = found.mark
        if mark is not None:
            self.scheduler.run_until(lambda: mark.done, "cuEventSynchronize")
            self._check_device(mark.stream.device)
            self.scheduler.seen(mark.clock)

    def _check_device(self, device: int) -> None:
        if device in self.scheduler.errors:
            raise self.scheduler.errors[device]

    def _not_captured(self, event: _Event, call: str) -> None:
        if event.captured is not None:
            event.captured[0].invalid = True
            fail("CUDA_ERROR_CAPTURED_EVENT", call)

    def cuEventElapsedTime(self, start: int, end: int) -> float:
        call = "cuEventElapsedTime"
        self._current(call)
        first, last = self._event(start, call), self._event(end, call)
        if (first.flags | last.flags) & EVENT_WITHOUT_TIMING or first.mark is None or last.mark is None:
            fail("CUDA_ERROR_INVALID_HANDLE", call)
        if not (first.mark.done and last.mark.done):
            fail("CUDA_ERROR_NOT_READY", call)
        return (last.mark.time - first.mark.time) * 1e3

    def cuIpcGetEventHandle(self, event: int) -> bytes:
        if not self._event(event, "cuIpcGetEventHandle").flags & EVENT_INTERPROCESS:
            fail("CUDA_ERROR_INVALID_HANDLE", "cuIpcGetEventHandle", "the event is not for other processes")
        self.cuEventSynchronize(event)  # the other process has streams of its own, so nothing is left to wait for
        return IPC.pack(os.getpid(), 0, event, 0, 0).ljust(64, b"\0")

    def cuIpcOpenEventHandle(self, handle: bytes) -> int:
        return self.cuEventCreate(EVENT_WITHOUT_TIMING | EVENT_INTERPROCESS)

    # ***** graphs *****

    def _capture_of(self, stream: Stream) -> Capture | None:
        return self._captures.get(stream.key) if self._captures else None

    def _spoil(self) -> None:
        for capture in self._captures.values():
            capture.invalid = True

    def _not_while_captured(self, call: str, stream: Stream | None = None) -> None:
        """CudaError where a capture forbids a call that may be unsafe: one of its streams is concerned, or this thread may not."""
        if not self._captures:
            return
        own, mode = threading.get_ident(), getattr(self._thread, "mode", 0)
        for key, capture in self._captures.items():
            concerned = stream is not None and stream.key == key
            # a thread's own captures concern it unless they are relaxed, those of others where both are global
            watched = capture.mode != _RELAXED if capture.thread == own else capture.mode == mode == CAPTURE_GLOBAL
            forbidden = watched and mode != _RELAXED
            if concerned or forbidden:
                capture.invalid = True
                fail("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", call)

    def cuStreamBeginCapture(self, stream: int, mode: int = 0) -> None:
        call = "cuStreamBeginCapture"
        found = self._stream(stream, self._current(call), call)
        if stream in (0, 1):
            fail("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", call, "the legacy stream cannot be captured")
        if self._capture_of(found) is not None:
            fail("CUDA_ERROR_INVALID_VALUE", call, "the stream is captured already")
        self._captures[found.key] = Capture(found.key, mode, threading.get_ident())

    def cuStreamEndCapture(self, stream: int) -> int:
        call = "cuStreamEndCapture"
        found = self._stream(stream, self._current(call), call)
        capture = self._capture_of(found)
        if capture is None or capture.origin != found.key:
            fail("CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" if capture else "CUDA_ERROR_INVALID_VALUE", call)
        if capture.mode != _RELAXED and capture.thread != threading.get_ident():
            fail("CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", call)
        self._captures = {key: c for key, c in self._captures.items() if c is not capture}
        graph = capture.finish()
        handle = next(self._numbers)
        self._handles[handle] = graph
        return handle

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[int, int]:
        call = "cuStreamGetCaptureInfo"
        capture = self._capture_of(self._stream(stream, self._current(call), call))
        return (0, 0) if capture is None else (2 if capture.invalid else 1, capture.number)

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> int:
        before: int = getattr(self._thread, "mode", 0)
        self._thread.mode = mode
        return before

    def cuGraphCreate(self, flags: int = 0) -> int:
        self._current("cuGraphCreate")
        handle = next(self._numbers)
        self._handles[handle] = Graph([])
        return handle

    def cuGraphInstantiate(self, graph: int, flags: int = 0) -> int:
        self._current("cuGraphInstantiate")
        found = self._of_kind(graph, Graph, "cuGraphInstantiate")
        made = Graph(found.nodes, found.handles)
        handle = next(self._numbers)
        self._handles[handle] = made
        return handle

    def cuGraphGetNodes(self, graph: int) -> int:
        return len(self._of_kind(graph, Graph, "cuGraphGetNodes").nodes)

    def cuGraphLaunch(self, executable: int, stream: int) -> None:
        self._launch_graph(self._current("cuGraphLaunch"), executable, stream, self.launch)

    def _launch_graph(self, device: int, executable: int, stream: int, note: Any) -> None:
        graph = self._of_kind(executable, Graph, "cuGraphLaunch")
        found = self._stream(stream, device, "cuGraphLaunch")
        if self._capture_of(found) is not None:
            self._lacks("cuGraphLaunch in a capture")
        for node in graph.order(self._random):
            self._give(found, node.name, partial(node.run, note) if node.told else node.run, node.addresses)

    def cuGraphDestroy(self, graph: int) -> None:
        self._of_kind(graph, Graph, "cuGraphDestroy")
        del self._handles[graph]

    def cuGraphExecDestroy(self, executable: int) -> None:
        self._current("cuGraphExecDestroy")
        self._of_kind(executable, Graph, "cuGraphExecDestroy")
        del self._handles[executable]

    def cuGraphDebugDotPrint(self, graph: int, path: str, flags: int = 1) -> None:
        text = self._of_kind(graph, Graph, "cuGraphDebugDotPrint").dot()
        with open(path, "w") as file:
            file.write(text)

    # ***** profilers *****

    def cuProfilerStart(self) -> None:
        """Nothing: nobody watches."""
        self._current("cuProfilerStart")

    def cuProfilerStop(self) -> None:
        """Nothing."""
        self._current("cuProfilerStop")
