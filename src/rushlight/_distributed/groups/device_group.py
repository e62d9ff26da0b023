"""Groups between devices with streams: an operation is put on a stream, and the caller goes on.

All ranks put operations in one order, under the group's lock.  `wait` lets the caller's stream wait, and not the caller:
whoever then reads an element waits for the device.  `WATCHDOG` sees to the end of operations, to errors that come later
than the call, to ranks that die, to the timeout.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.knobs import Knob
from rushlight._distributed.engines.nccl import DeviceStreams, NCCLCommunicator
from rushlight._distributed.engines.nccl_library import IN_PROGRESS, SUCCESS
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.flight import FLIGHT
from rushlight._distributed.groups.operation import Operation
from rushlight._distributed.groups.watch import WATCH
from rushlight._distributed.groups.watchdog import WATCHDOG
from rushlight._types.device import Device

__all__ = ["BLOCKING_WAIT", "DeviceGroup"]

BLOCKING_WAIT: Knob[bool] = Knob(
    "nccl_blocking_wait", env="RUSHLIGHT_NCCL_BLOCKING_WAIT", kind=bool,
    default=lambda: os.environ.get("TORCH_NCCL_BLOCKING_WAIT", "0").lower() in ("1", "true", "yes", "y"),
    doc="Whether `wait()` of a collective on a GPU stops the program until it is done, and not the stream alone. PyTorch's TORCH_NCCL_BLOCKING_WAIT is read too.",
)  # fmt: skip
_ENDS_WITHIN = 5.0  # seconds for a communicator's end in good order


class DeviceGroup:
    """Processes that work together on their devices; `ranks` are their numbers in the whole job.

    `backend` gives the backend of a type of device; `pair` makes a communicator of this process and another place, for
    messages: all places of the group need not take part in those.
    """

    def __init__(
        self, name: str, ranks: Sequence[int], communicator: NCCLCommunicator, timeout: float,
        backend: Callable[[], Any], pair: Callable[[int], NCCLCommunicator],
    ) -> None:  # fmt: skip
        self.number, self.name, self.ranks = -1, name, tuple(ranks)
        self.communicator, self._backend, self._pair = communicator, backend, pair
        self.rank, self.size = communicator.rank, communicator.size
        self.timeout = timeout
        self.description, self.backend = "undefined", "nccl"
        self.count = self.messages = 0
        self.turn = threading.RLock()
        self.pairs: dict[int, NCCLCommunicator] = {}
        self.broken: BaseException | None = None
        self.told = False  # whether a call has raised the error
        self.compare: Any = None
        self.device: Any = None
        FLIGHT.groups[name] = self

    # ***** operations *****

    def run(self, operation: Operation) -> None:
        """Put an operation on the stream, and let the caller's stream wait for it."""
        self.wait(self.start(operation))

    def start(self, operation: Operation) -> Operation:
        """Put an operation on the communicator's stream."""
        with self.turn:
            self._check()
            self.count += 1
            operation.number = self.count
            FLIGHT.note(operation, self.count)
            return self._put(operation, self._ready(self.communicator, operation))

    def start_message(self, operation: Operation) -> Operation:
        """The same for a message, by its own communicator where it has one."""
        with self.turn:
            self._check()
            self.messages += 1
            FLIGHT.note(operation, self.messages)
            return self._put(operation, self._ready(self.communicator_of(operation), operation))

    def run_message(self, operation: Operation) -> None:
        """As `run`."""
        self.wait(self.start_message(operation))

    def way_to(self, place: int, batched: bool) -> tuple[NCCLCommunicator, int]:
        """The communicator by which messages go to or come from a place, and its place there: one of two processes, or,
        for many messages in one group of calls, that of all.
        """
        if batched or place < 0:
            return self.communicator, place
        found = self.pairs.get(place)
        if found is None:
            found = self.pairs[place] = self._pair(place)
        return found, int(place > self.rank)

    def _put(self, operation: Operation, communicator: NCCLCommunicator) -> Operation:
        operation.make_waitable()
        operation.began = time.monotonic()
        communicator.look = lambda: WATCH.check(operation)
        streams = communicator.streams
        current = streams.enter()
        try:
            for step in operation.steps:
                step()
        except BaseException as error:
            streams.leave(current)
            raise self._failed(operation, error) from None
        operation.block = streams.leave(current)
        WATCHDOG.add(operation)
        return operation

    def _ready(self, communicator: NCCLCommunicator, operation: Operation) -> NCCLCommunicator:
        """A communicator that has begun, on the operation's device."""
        device = self._device_of(operation)
        if communicator.handle is None:
            operation.began = time.monotonic()
            operation.make_waitable()
            streams, current = DeviceStreams(self._backend(), device), self._backend().current_device()
            self._backend().set_device(device.index)
            try:
                communicator.begin(streams, lambda: WATCH.check(operation))
            except BaseException as error:
                raise self._failed(operation, error) from None
            finally:
                self._backend().set_device(current)
        elif communicator.state() not in (SUCCESS, IN_PROGRESS):
            error = DistBackendError(f"NCCL failed: {communicator.library.error_text(communicator.state())}")
            raise self._failed(operation, error)
        return communicator

    def _device_of(self, operation: Operation) -> Any:
        specs = operation.outputs or (() if callable(operation.inputs) else operation.inputs)
        if self.device is None:
            self.device = specs[0].device if specs else self._default_device()
        if specs and specs[0].device != self.device:
            raise RuntimeError(
                f"{operation.name}: the process group {self.name!r} works on {self.device}, got a tensor on {specs[0].device}"
            )
        return self.device

    def _default_device(self) -> Device:
        return Device("cuda", self._backend().current_device())

    def split(self, places: Sequence[int] | None, made: DeviceGroup | None) -> None:
        """Let NCCL make the communicator of a part from this group's: all its places call it, with `None` where they get
        no part.
        """
        until = time.monotonic() + self.timeout

        def look() -> None:
            if WATCH.monitor is not None:
                WATCH.monitor.check()
            if time.monotonic() > until:
                raise DistBackendError(f"timed out after {self.timeout:g} s: not all ranks of {self.name!r} split it")

        with self.turn:
            self._check()
            part = None if made is None else made.communicator
            streams = None if made is None else DeviceStreams(self._backend(), self.device)
            try:
                self.communicator.split(places, part, streams, look)
            except BaseException as error:
                self.fail(error)
                raise
        if made is not None:
            made.device = self.device

    # ***** waiting *****

    def wait(self, operation: Operation, timeout: float | None = None) -> bool:
        """Let the caller's stream wait for an operation, and raise its error; with `timeout`, or where
        `TORCH_NCCL_BLOCKING_WAIT` says so, and for a barrier, the caller itself; False where that was not enough.
        """
        mark = operation.block
        if not operation.done and mark is not None:
            if timeout is None and operation.name != "barrier" and not BLOCKING_WAIT.get():
                self.communicator_of(operation).streams.await_in_stream(mark)
            elif not self._stand(operation, timeout):
                return False
        if operation.error is not None:
            self.told = True
            raise operation.error
        return True

    def communicator_of(self, operation: Operation) -> NCCLCommunicator:
        """The communicator that carries out an operation."""
        return operation.communicator or self.communicator

    def _stand(self, operation: Operation, timeout: float | None) -> bool:
        began = time.monotonic()
        operation.stood, operation.standing = operation.stood or began, True
        assert operation.event is not None
        try:
            return operation.event.wait(timeout)
        finally:
            operation.blocked += time.monotonic() - began
            operation.standing = False

    # ***** the end *****

    def _check(self) -> None:
        if self.broken is None and WATCH.monitor is not None:
            try:
                WATCH.monitor.check()
            except Exception as error:
                self.fail(error)
        if self.broken is not None:
            self.told = True
            raise DistBackendError(
                f"the process group {self.name!r} cannot be used any more: {self.broken}; "
                "destroy_process_group() and start the job again"
            ) from self.broken

    def _failed(self, operation: Operation, error: BaseException) -> BaseException:
        """The error of an operation that could not be put on the stream."""
        if isinstance(error, (TypeError, ValueError)):  # refused before NCCL was called
            operation.finish(error)
            return error
        if isinstance(error, Exception):
            error = WATCH.explained(error)
        if isinstance(error, DistBackendError) and not str(error).startswith("rank "):
            error = type(error)(f"rank {self.ranks[self.rank]}: {operation.text()} failed: {error}")
        self.told = True
        self.fail(error)
        operation.finish(error)
        return error

    def fail(self, error: BaseException) -> None:
        """Give the group up: abort its communicators, so that what is on their streams ends."""
        if self.broken is None:
            self.broken = error
            WATCH.failed = True
        owned = self.turn.acquire(timeout=1.0)  # whoever has it is in a call of NCCL's, and looks around by itself
        try:
            for communicator in (self.communicator, *self.pairs.values()):
                communicator.abort()
        finally:
            if owned:
                self.turn.release()

    def free(self) -> None:
        """End the communicators in good order; after a failure, or where that takes too long, abort them."""
        until = time.monotonic() + _ENDS_WITHIN

        def look() -> None:
            if time.monotonic() > until:
                raise DistBackendError(f"the communicators of group {self.name!r} did not end")
            if WATCH.monitor is not None:
                WATCH.monitor.check()

        for communicator in (self.communicator, *self.pairs.values()):
            try:
                if self.broken is None:
                    communicator.free(look)
            except Exception:  # a communicator that does not end in time, or whose peer died: it is aborted
                pass
            communicator.abort()
        self.broken = self.broken or DistBackendError("it has been destroyed")

    def is_busy(self) -> bool:
        """Whether operations are not done yet."""
        return WATCHDOG.has(self)
