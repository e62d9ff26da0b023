"""Parts of a profile: single events, averages over events of one kind, and lists of either."""

from __future__ import annotations

import json
import warnings
from collections import namedtuple
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from rushlight._C._autograd import DeviceType
from rushlight.profiler.table import format_time, table
from rushlight.profiler.writing import write_text

__all__ = ["DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel"]

MEMORY_EVENT_NAME = "[memory]"
OUT_OF_MEMORY_EVENT_NAME = "[OutOfMemory]"
BACKWARD = 1  # the scope of events that are nodes of backward

Kernel = namedtuple("Kernel", ["name", "device", "duration"])


class Interval:
    """From `start` to `end`, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


def _older(name: str, newer: str) -> property:
    """A property under its name from the time when there was one kind of device."""

    def get(self: Any) -> Any:
        warnings.warn(f"`{name}` is deprecated, please use `{newer}` instead.", FutureWarning, stacklevel=2)
        return getattr(self, newer)

    return property(get, doc=f"The same as `{newer}`.")


def _text(name: str) -> property:
    return property(lambda self: format_time(getattr(self, name)), doc=f"`{name}` with its unit.")


class _Times:
    """Averages and texts, from totals and a count."""

    count: int
    cpu_time_total: Any
    device_time_total: Any

    @property
    def cpu_time(self) -> float:
        """Microseconds of one call, what it calls included."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Microseconds on an accelerator of one call."""
        return self.device_time_total / self.count if self.count else 0.0

    cpu_time_str = _text("cpu_time")
    device_time_str = _text("device_time")
    cpu_time_total_str = _text("cpu_time_total")
    device_time_total_str = _text("device_time_total")
    self_cpu_time_total_str = _text("self_cpu_time_total")
    self_device_time_total_str = _text("self_device_time_total")
    cuda_time = _older("cuda_time", "device_time")


class FunctionEvent(_Times):
    """One call: of an operator, a node of backward, or a range that a program named.

    Times are in microseconds; `time_range` is when it ran, `cpu_parent` and `cpu_children` what it was called by and
    what it called.  `input_shapes` has a list of sizes for each argument, empty for what is no tensor; `stack` the
    places in the program, innermost first; `cpu_memory_usage` the bytes that it allocated less those that it freed.
    `scope` is 0 for operators, 1 for nodes of backward, 7 for ranges of a program.
    """

    # long function: one attribute after the other
    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: Any = None,
        stack: Any = None,
        scope: int = 0,
        use_device: str | None = None,
        cpu_memory_usage: int = 0,
        device_memory_usage: int = 0,
        is_async: bool = False,
        is_remote: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        device_type: Any = DeviceType.CPU,
        device_index: int = 0,
        device_resource_id: int | None = None,
        is_legacy: bool = False,
        flops: int | None = None,
        trace_name: str | None = None,
        concrete_inputs: Any = None,
        kwinputs: Any = None,
        is_user_annotation: bool = False,
        is_python_function: bool = False,
        activity_type: str | None = None,
        metadata_json: str | None = None,
        flow_id: int | None = None,
        flow_type: int | None = None,
        flow_start: bool | None = None,
        external_id: int = 0,
        linked_correlation_id: int = 0,
        extra_meta: Any = None,
        structured_input_shapes: Any = None,
        structured_input_strides: Any = None,
        input_dtypes: Any = None,
        python_id: int = -1,
        python_parent_id: int = -1,
        python_module_id: int = -1,
    ) -> None:
        self.id, self.node_id, self.name, self.overload_name, self.trace_name = (
            id,
            node_id,
            name,
            overload_name,
            trace_name,
        )
        self.time_range = Interval(start_us, end_us)
        self.thread, self.fwd_thread, self.scope, self.sequence_nr = thread, fwd_thread, scope, sequence_nr
        self.kernels: list[Kernel] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes, self.concrete_inputs, self.kwinputs = input_shapes, concrete_inputs, kwinputs
        self.structured_input_shapes, self.structured_input_strides = structured_input_shapes, structured_input_strides
        self.input_dtypes, self.stack, self.flops = input_dtypes, stack, flops
        self.use_device, self.device_type, self.device_index = use_device, device_type, device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.is_legacy = is_async, is_remote, is_legacy
        self.is_user_annotation, self.is_python_function, self.activity_type = (
            is_user_annotation,
            is_python_function,
            activity_type,
        )
        self.self_cpu_percent: Any = -1
        self.total_cpu_percent: Any = -1
        self.total_device_percent: Any = -1
        self._metadata_json = metadata_json
        self.event_metadata = extra_meta or None
        self.flow_id, self.flow_type, self.flow_start = flow_id, flow_type, flow_start
        self.external_id, self.linked_correlation_id = external_id, linked_correlation_id
        self.python_id, self.python_parent_id, self.python_module_id = python_id, python_parent_id, python_module_id

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Add a kernel that ran on an accelerator for this event."""
        _cpu_event(self, "the event")
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Add an event that this one called itself (not through another)."""
        _cpu_event(self, "the event")
        _cpu_event(child, "child")
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Say which event called this one."""
        _cpu_event(self, "the event")
        _cpu_event(parent, "parent")
        self.cpu_parent = parent

    def _counts(self) -> bool:
        return not self.is_async and self.device_type == DeviceType.CPU

    @property
    def key(self) -> str:
        """The key that events are grouped by: the name."""
        return self.name

    @property
    def cpu_time_total(self) -> float:
        """Microseconds, what it called included."""
        return self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds, without what it called."""
        return self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children) if self._counts() else 0

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes, without what it called."""
        return self.cpu_memory_usage - sum(c.cpu_memory_usage for c in self.cpu_children) if self._counts() else 0

    @property
    def device_time_total(self) -> float:
        """Microseconds on an accelerator, what it called included."""
        if self.is_async or not self.use_device:
            return 0
        if self.device_type != DeviceType.CPU:
            return self.time_range.elapsed_us()
        inner = 0 if self.is_legacy else sum(c.device_time_total for c in self.cpu_children)
        return sum(k.duration for k in self.kernels) + inner

    @property
    def self_device_time_total(self) -> float:
        """Microseconds on an accelerator, without what it called."""
        if self.is_async or not self.use_device:
            return 0
        inner = self.cpu_children if self.device_type == DeviceType.CPU else ()
        return self.device_time_total - sum(c.device_time_total for c in inner)

    @property
    def self_device_memory_usage(self) -> int:
        """Bytes on an accelerator, without what it called."""
        return self.device_memory_usage - sum(c.device_memory_usage for c in self.cpu_children) if self._counts() else 0

    @property
    def metadata_json(self) -> str | None:
        """Further facts, as JSON; deprecated."""
        warnings.warn("`metadata_json` is deprecated. Use `event_metadata` instead.", FutureWarning, stacklevel=2)
        return self._metadata_json

    cuda_time_total = _older("cuda_time_total", "device_time_total")
    self_cuda_time_total = _older("self_cuda_time_total", "self_device_time_total")
    self_cuda_memory_usage = _older("self_cuda_memory_usage", "self_device_memory_usage")

    def __repr__(self) -> str:
        device, children = self.use_device, [child.id for child in self.cpu_children]
        return (
            f"<FunctionEvent id={self.id} name={self.name} overload_name={self.overload_name} device_type={self.device_type} "
            f"node_id={self.node_id} cpu_time={self.cpu_time_str} start_us={self.time_range.start} end_us={self.time_range.end} "
            f"cpu_children={children} {device}_time={self.device_time_str} name={self.name} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"{device}_memory_usage={self.device_memory_usage} is_async={self.is_async} is_remote={self.is_remote} "
            f"seq_nr={self.sequence_nr} is_legacy={self.is_legacy}>"
        )


def _cpu_event(event: Any, word: str) -> None:
    if not isinstance(event, FunctionEvent):
        raise AssertionError(f"Expected {word} to be a FunctionEvent, found {type(event)}")
    if event.device_type != DeviceType.CPU:
        raise AssertionError(f"Expected the device type of {word} to be CPU, found {event.device_type}")


_SUMS = (
    "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_memory_usage", "device_memory_usage",
    "self_cpu_memory_usage", "self_device_memory_usage", "count",
)  # fmt: skip
_TAKEN = (
    "key", "node_id", "is_async", "is_remote", "cpu_parent", "cpu_children", "overload_name", "input_shapes", "stack", "scope", "device_type",
    "is_legacy", "use_device", "is_user_annotation",
)  # fmt: skip


class FunctionEventAvg(_Times):
    """Sums over events of one kind; `cpu_time` and `device_time` are averages."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = self.node_id = self.cpu_memory_usage = self.device_memory_usage = 0
        self.self_cpu_memory_usage = self.self_device_memory_usage = 0
        self.cpu_time_total: float = 0
        self.device_time_total: float = 0
        self.self_cpu_time_total: float = 0
        self.self_device_time_total: float = 0
        self.is_async = self.is_remote = self.is_legacy = self.is_user_annotation = False
        self.use_device: str | None = None
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: Any = None
        self.scope: int | None = None
        self.cpu_children: Any = None
        self.cpu_parent: Any = None
        self.device_type: Any = DeviceType.CPU
        self.flops: int | None = 0
        self.self_cpu_percent: Any = -1
        self.total_cpu_percent: Any = -1
        self.total_device_percent: Any = -1

    def add(self, other: Any) -> FunctionEventAvg:
        """Add an event, or the sums of others, with the same key."""
        if not isinstance(other, (FunctionEvent, FunctionEventAvg)):
            raise AssertionError(f"Expected other to be a FunctionEvent or FunctionEventAvg, found {type(other)}")
        if self.key is None:
            for name in _TAKEN:
                setattr(self, name, getattr(other, name))
        if other.key != self.key:
            raise AssertionError(f"Expected keys to match, but got {other.key} vs {self.key}")
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.flops is not None:
            self.flops = (self.flops or 0) + other.flops
        return self

    __iadd__ = add
    cuda_time_total = _older("cuda_time_total", "device_time_total")
    self_cuda_time_total = _older("self_cuda_time_total", "self_device_time_total")

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
            f" self_{device}_time={self.self_device_time_total_str} {device}_time={self.device_time_str} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"{device}_memory_usage={self.device_memory_usage}>"
        )


class EventList(list[Any]):
    """Events or averages, and what is asked of them: tables, files, sums."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._use_device = kwargs.pop("use_device", None)
        self._profile_memory = kwargs.pop("profile_memory", False)
        self._with_flops = kwargs.pop("with_flops", False)
        super().__init__(*args, **kwargs)
        self._tree_built = False

    def _like(self, items: Iterable[Any]) -> EventList:
        return EventList(
            items, use_device=self._use_device, profile_memory=self._profile_memory, with_flops=self._with_flops
        )

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of all events' own times, in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as a table, at most `row_limit` rows (-1: all), the largest of `sort_by` first.

        `sort_by` is an attribute of events: `cpu_time`, `cpu_time_total`, `self_cpu_time_total`, `cpu_memory_usage`,
        `self_cpu_memory_usage`, `count`, ...; `time_unit` is "s", "ms" or "us" (by default what fits); columns are cut
        at the widths given.
        """
        events = self
        if sort_by is not None:
            key = attrgetter(_device_word(sort_by))
            events = self._like(sorted(self, key=key, reverse=True))
        widths = (max_name_column_width, max_shapes_column_width, max_src_column_width)
        return table(
            events, row_limit, widths, header, top_level_events_only, time_unit, self._profile_memory, self._with_flops
        )

    # ***** nesting *****

    def _build_tree(self) -> None:
        """Find out which event was called by which, from when they ran."""
        self._nest()
        self._merge_twins()
        self._stacks_of_backward()
        self._tree_built = True

    def _nest(self) -> None:
        threads: dict[Any, list[FunctionEvent]] = {}
        for event in self:
            if event._counts():
                threads.setdefault((event.thread, event.node_id), []).append(event)
        for events in threads.values():
            open_: list[FunctionEvent] = []
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                span = event.time_range
                while open_ and (span.start >= open_[-1].time_range.end or span.end > open_[-1].time_range.end):
                    open_.pop()
                if open_:
                    open_[-1].append_cpu_child(event)
                    event.set_cpu_parent(open_[-1])
                open_.append(event)

    def _merge_twins(self) -> None:
        """An event that does nothing but call one of the same name is one with it."""
        found = True
        while found:
            twins = {
                id(e)
                for e in self
                if e.cpu_parent is not None and e.cpu_parent.name == e.name and len(e.cpu_parent.cpu_children) == 1
            }
            found = bool(twins)
            for event in self:
                if id(event) in twins:
                    parent = event.cpu_parent
                    parent.cpu_children, parent.kernels = event.cpu_children, [*parent.kernels, *event.kernels]
                    for child in event.cpu_children:
                        child.cpu_parent = parent
            if found:
                self[:] = [e for e in self if id(e) not in twins]

    def _stacks_of_backward(self) -> None:
        """Give events in backward the stack of the forward call that they belong to."""
        nodes = {id(event): _backward_node(event) for event in self}
        stacks: dict[Any, Any] = {}
        for event in self:
            if nodes[id(event)] is None and event.stack is not None:
                stacks.setdefault((event.sequence_nr, event.thread), event.stack)
        for event in self:
            node = nodes[id(event)]
            if node is not None:
                event.stack = stacks.get((node.sequence_nr, node.fwd_thread), [])

    # ***** sums *****

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Sums over events of the same name (and shapes, and the innermost `group_by_stack_n` places in the program)."""
        if not self._tree_built:
            raise AssertionError("Expected tree to be built before calling key_averages")
        groups: dict[Any, FunctionEventAvg] = {}
        for event in self:
            key: list[Any] = [event.key, event.node_id, event.device_type, event.is_legacy, event.is_user_annotation]
            if group_by_overload_name:
                key.append(event.overload_name)
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n > 0:
                key += event.stack[:group_by_stack_n]
            groups.setdefault(tuple(key), FunctionEventAvg()).add(event)
        for average in groups.values():
            average.stack = (average.stack or [])[:group_by_stack_n]
            if not group_by_input_shapes:
                average.input_shapes = ""
            if not group_by_overload_name:
                average.overload_name = ""
        return self._like(groups.values())

    def total_average(self) -> FunctionEventAvg:
        """One sum over all events, with the key "Total"."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
            total.key = None
        total.key = "Total"
        return total

    # ***** files *****

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for `chrome://tracing` or Perfetto."""
        rows = [
            {
                "name": event.trace_name,
                "ph": "X",
                "ts": event.time_range.start,
                "dur": event.time_range.elapsed_us(),
                "tid": event.thread if not event.is_remote else f" node_id:{event.node_id}, thread_id:{event.thread} ",
                "pid": "CPU functions",
                "args": {},
            }
            for event in self
            if event.trace_name is not None
        ]
        write_text(path, json.dumps(rows), False)

    def supported_export_stacks_metrics(self) -> list[str]:
        """Metrics that `export_stacks` can count."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """Write `outer;inner;innermost N` lines, from which flame graphs are drawn; ValueError for an unknown metric."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}")
        unsafe = str.maketrans(" ;\t\n", "____")
        lines = []
        for event in self:
            amount = int(getattr(event, _device_word(metric)))
            if event.stack and amount > 0:
                lines.append(";".join(entry.translate(unsafe) for entry in reversed(event.stack)) + f" {amount}\n")
        write_text(path, "".join(lines), False)


def _device_word(name: str) -> str:
    """The name of an attribute, which may say which accelerator is meant."""
    for word in ("cuda", "xpu", "privateuse1"):
        name = name.replace(word, "device")
    return name


def _backward_node(event: Any) -> Any:
    """The node of backward in which an event ran, itself included; None for one that ran in no backward."""
    while event is not None and event.scope != BACKWARD:
        event = event.cpu_parent
    return event


def ordered(events: Sequence[Any]) -> list[Any]:
    """Events by their start, those that end later first."""
    return sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end))
