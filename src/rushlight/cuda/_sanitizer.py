"""Finds tensors that two streams use without an order between them, as `torch.cuda._sanitizer`.

    TORCH_CUDA_SANITIZER=1 python -m rushlight program.py

or `torch.cuda._sanitizer.enable_cuda_sanitizer()` at its begin.  Each operator is a use of its tensors by the current
stream: writes of what its schema marks and of its results, reads of the others.  A use that no event, wait or
synchronization puts behind an earlier one, where one of both writes, is printed with the stacks of both and of the
allocation, and raises `CUDASanitizerErrors`.  What programs do to memory by other ways than operators is not seen.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import trace_marks
from rushlight.cuda import _gpu_trace
from rushlight.cuda.access import gpu
from rushlight.cuda.streams import current_stream
from rushlight.utils._python_dispatch import TorchDispatchMode
from rushlight.utils._pytree import tree_leaves

__all__ = ["CUDASanitizer", "CUDASanitizerErrors", "EventHandler", "enable_cuda_sanitizer"]

DEFAULT_STREAM_ID = 0
# Operators that make tensors and read nothing of their arguments but shapes and dtypes.
_FACTORIES = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty_strided")
_RESULT = "output"
_KINDS = (
    "event_creation", "event_deletion", "event_record", "event_wait", "event_synchronization", "stream_creation", "stream_synchronization",
    "device_synchronization", "memory_allocation", "memory_deallocation",
)  # fmt: skip


class AccessType(Enum):
    """Kinds of access of a stream to a tensor."""

    READ = auto()
    WRITE = auto()

    def __str__(self) -> str:
        return "reading from" if self is AccessType.READ else "writing to"


@dataclass
class Access:
    """One use of a tensor: by which stream, the number of the call, the operator, under which names of its arguments."""

    type: AccessType
    seq_num: int
    stream: int
    operator: str
    aliases: list[str]
    is_output: bool
    stack_trace: traceback.StackSummary


class SynchronizationError(Exception):
    """Work of streams that nothing orders."""


class UnsynchronizedAccessError(SynchronizationError):
    """Two uses of a tensor that nothing orders, one of which writes."""

    def __init__(
        self,
        data_ptr: int,
        allocation_stack_trace: traceback.StackSummary | None,
        current_access: Access,
        previous_access: Access,
    ) -> None:
        self.data_ptr, self.allocation_stack_trace = data_ptr, allocation_stack_trace
        self.current_access, self.previous_access = current_access, previous_access

    def __str__(self) -> str:
        lines = [
            "=" * 28,
            f"CSAN detected a possible data race on tensor with data pointer {self.data_ptr}",
            *_told("Access", self.current_access),
            *_told("Previous access", self.previous_access),
        ]
        if self.allocation_stack_trace is None:
            lines.append("Trace for tensor allocation not found.")
        else:
            lines += ["Tensor was allocated with stack trace:", _text(self.allocation_stack_trace)]
        return "\n".join(lines)


def _told(what: str, access: Access) -> list[str]:
    names = f"argument(s) {', '.join(access.aliases)}" if access.aliases else ""
    places = [names] if names else []
    if access.is_output:
        places.append(f"to the {_RESULT}" if names else f"the {_RESULT}")
    return [
        f"{what} by stream {access.stream} during kernel:",
        str(access.operator),
        f"{access.type} {', and '.join(places)}",
        "With stack trace:",
        _text(access.stack_trace),
    ]


def _text(stack: traceback.StackSummary) -> str:
    return "".join(stack.format())


class CUDASanitizerErrors(Exception):
    """All that is wrong with one call."""

    def __init__(self, errors: Sequence[SynchronizationError]) -> None:
        self.errors = list(errors)

    def __str__(self) -> str:
        return f"detected {len(self.errors)} errors"


class StreamSynchronizations:
    """Known order of the streams: for every other stream the number of the last call that is done by then.

    Events hold what their stream knew when they were recorded.
    """

    def __init__(self) -> None:
        self.known: dict[int, dict[int, int]] = {}
        self.of_events: dict[int, dict[int, int]] = {}
        self.of_host: dict[int, int] = {}  # what the host waited for: streams that are made later run behind it
        self.create_stream(DEFAULT_STREAM_ID)

    def create_stream(self, stream: int) -> None:
        """A stream is there."""
        self.known.setdefault(stream, dict(self.of_host))

    def create_event(self, event: int) -> None:
        """An event is there, not recorded."""
        self.of_events[event] = {}

    def delete_event(self, event: int) -> None:
        """An event is gone."""
        self.of_events.pop(event, None)

    def update_seq_num(self, stream: int, seq_num: int) -> None:
        """A stream is given the call of a number."""
        self.create_stream(stream)
        self.known[stream][stream] = seq_num

    def record_state(self, event: int, stream: int) -> None:
        """An event is recorded."""
        self.create_stream(stream)
        self.of_events[event] = dict(self.known[stream])

    def stream_wait_for_event(self, stream: int, event: int) -> None:
        """A stream waits for an event."""
        self.create_stream(stream)
        _merge(self.known[stream], self.of_events.get(event, {}))

    def all_streams_wait_for_event(self, event: int) -> None:
        """The host waits for an event, and all that it does later comes behind it."""
        self._host_waits(self.of_events.get(event, {}))

    def all_streams_wait_for_stream(self, stream: int) -> None:
        """The host waits for a stream."""
        self.create_stream(stream)
        self._host_waits(self.known[stream])

    def sync_all_streams(self) -> None:
        """The host waits for everything."""
        done: dict[int, int] = {}
        for known in self.known.values():
            _merge(done, known)
        self._host_waits(done)

    def _host_waits(self, done: Mapping[int, int]) -> None:
        _merge(self.of_host, done)
        for known in self.known.values():
            _merge(known, self.of_host)

    def is_ordered_after(self, current_stream: int, seq_num: int, other_stream: int) -> bool:
        """Whether further work of a stream runs behind the call of a number on another stream."""
        self.create_stream(current_stream)
        return seq_num <= self.known[current_stream].get(other_stream, -1)


def _merge(into: dict[int, int], other: Mapping[int, int]) -> None:
    for stream, number in list(other.items()):
        into[stream] = max(into.get(stream, -1), number)


@dataclass
class _Uses:
    """The uses of a tensor since it was allocated: the last write, and the reads behind it."""

    allocated: traceback.StackSummary | None = None
    write: Access | None = None
    reads: list[Access] = field(default_factory=list)


class EventHandler:
    """Follows calls, and finds those that use a tensor too early."""

    def __init__(self) -> None:
        self.syncs = StreamSynchronizations()
        self.uses: dict[int, _Uses] = {}
        self.seq_num = 0

    def _handle_kernel_launch(
        self,
        stream: int,
        read_only: set[int],
        read_write: set[int],
        outputs: set[int],
        operator: Any,
        tensor_aliases: Mapping[int, list[str]],
    ) -> list[SynchronizationError]:
        """A stream is given a call that uses tensors, named by their addresses; what is wrong with it."""
        self.seq_num += 1
        self.syncs.update_seq_num(stream, self.seq_num)
        stack, errors = _stack(), list[SynchronizationError]()
        for kind, addresses in ((AccessType.READ, read_only), (AccessType.WRITE, read_write)):
            for address in addresses:
                uses = self.uses.setdefault(address, _Uses())
                access = Access(
                    kind, self.seq_num, stream, str(operator), list(tensor_aliases[address]), address in outputs, stack
                )
                earlier = uses.reads if kind is AccessType.WRITE and uses.reads else [uses.write] if uses.write else []
                errors += [
                    UnsynchronizedAccessError(address, uses.allocated, access, other)
                    for other in earlier
                    if not self.syncs.is_ordered_after(stream, other.seq_num, other.stream)
                ]
                if kind is AccessType.READ:
                    uses.reads.append(access)
                else:
                    uses.write, uses.reads = access, []
        return errors

    def _handle_memory_allocation(self, data_ptr: int) -> None:
        self.uses[data_ptr] = _Uses(_stack())

    def _handle_memory_deallocation(self, data_ptr: int) -> None:
        self.uses.pop(data_ptr, None)

    def _handle_event_creation(self, event: int) -> None:
        self.syncs.create_event(event)

    def _handle_event_deletion(self, event: int) -> None:
        self.syncs.delete_event(event)

    def _handle_event_record(self, event: int, stream: int) -> None:
        self.syncs.record_state(event, stream)

    def _handle_event_wait(self, event: int, stream: int) -> None:
        self.syncs.stream_wait_for_event(stream, event)

    def _handle_event_synchronization(self, event: int) -> None:
        self.syncs.all_streams_wait_for_event(event)

    def _handle_stream_creation(self, stream: int) -> None:
        self.syncs.create_stream(stream)

    def _handle_stream_synchronization(self, stream: int) -> None:
        self.syncs.all_streams_wait_for_stream(stream)

    def _handle_device_synchronization(self) -> None:
        self.syncs.sync_all_streams()

    def follow(self) -> None:
        """Be told by the trace of GPUs."""
        for kind in _KINDS:
            getattr(_gpu_trace, f"register_callback_for_{kind}")(getattr(self, f"_handle_{kind}"))
        _gpu_trace.activate()


def _stack() -> traceback.StackSummary:
    """Who calls, without the lines of this file."""
    frames = traceback.StackSummary.extract(traceback.walk_stack(None), lookup_lines=False)
    frames.reverse()
    return traceback.StackSummary.from_list([f for f in frames if f.filename != __file__])


class ArgumentHandler:
    """Which tensors a call reads and writes."""

    def __init__(self) -> None:
        self.dataptrs_read: set[int] = set()
        self.dataptrs_written: set[int] = set()
        self.outputs: set[int] = set()
        self.tensor_aliases: dict[int, list[str]] = {}

    def parse_inputs(self, schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_factory: bool) -> None:
        """The arguments of a call."""
        for argument, value in _given(schema, args, kwargs):
            info = argument.alias_info
            views = is_factory or (info is not None and not info.is_write)
            self._note(value, info is not None and info.is_write, views, argument.name)

    def parse_outputs(self, schema: Any, outputs: Any, *, is_factory: bool) -> None:
        """Record the tensors that the operator returned."""
        values = outputs if isinstance(outputs, tuple) and len(schema.returns) > 1 else (outputs,)
        for result, value in zip(schema.returns, values, strict=False):
            info = result.alias_info
            views = is_factory or (info is not None and not info.is_write)
            self._note(value, not views, views, None)

    def _note(self, value: Any, writes: bool, views: bool, name: str | None) -> None:
        for x in tree_leaves(value):
            if not isinstance(x, Tensor) or not x.is_cuda:
                continue
            address = x.data_ptr() or id(x)
            if writes:
                self.dataptrs_written.add(address)
            elif not views:
                self.dataptrs_read.add(address)
            names = self.tensor_aliases.setdefault(address, [])
            if name is None:
                self.outputs.add(address)
            else:
                names.append(name)


def _given(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The arguments of a schema with the values that a call gives them."""
    yield from zip(schema.arguments, args, strict=False)
    for argument in schema.arguments[len(args) :]:
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]


class CUDASanitizerDispatchMode(TorchDispatchMode):
    """Tells an `EventHandler` of every operator."""

    def __init__(self) -> None:
        super().__init__()
        gpu("_sanitizer")
        self.event_handler = EventHandler()
        self.event_handler.follow()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, schema = kwargs or {}, func._schema
        if schema.name == "aten::record_stream":
            return func(*args, **kwargs)
        handler, is_factory = ArgumentHandler(), schema.name in _FACTORIES
        handler.parse_inputs(schema, args, kwargs, is_factory=is_factory)
        outputs = func(*args, **kwargs)
        handler.parse_outputs(schema, outputs, is_factory=is_factory)
        if handler.tensor_aliases:
            written = handler.dataptrs_written
            self._launched(schema, handler.dataptrs_read - written, written, handler)
        return outputs

    def _launched(self, schema: Any, read: set[int], written: set[int], handler: ArgumentHandler) -> None:
        stream = current_stream().cuda_stream
        errors = self.event_handler._handle_kernel_launch(
            stream, read, written, handler.outputs, schema, handler.tensor_aliases
        )
        if errors:
            for error in errors:
                print(error, file=sys.stderr)
            raise CUDASanitizerErrors(errors)


class CUDASanitizer:
    """Whether calls are looked at: `enable`, `disable`."""

    def __init__(self) -> None:
        self.dispatch: CUDASanitizerDispatchMode | None = None
        self.enabled = False

    def enable(self) -> None:
        """Look at every operator from now on."""
        if not self.enabled:
            self.dispatch = self.dispatch or CUDASanitizerDispatchMode()
            self.dispatch.__enter__()
            self.enabled = True

    def disable(self) -> None:
        """Look no longer."""
        if self.enabled:
            assert self.dispatch is not None
            self.dispatch.__exit__(None, None, None)
            self.enabled = False


cuda_sanitizer = CUDASanitizer()


@trace_marks.changes_later_calls
def enable_cuda_sanitizer() -> None:
    """Look at every operator from now on; best at the begin of a program.  RuntimeError without a GPU."""
    cuda_sanitizer.enable()
