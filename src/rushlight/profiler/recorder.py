"""Records what runs in a thread: the observer behind every profile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from rushlight import Tensor
from rushlight import device as Device
from rushlight._interface.base import require
from rushlight._interface.cuda import backend_of
from rushlight.profiler.collectives import collective_event, functional_name, operations_since
from rushlight.profiler.events import BACKWARD, MEMORY_EVENT_NAME, DeviceType, EventList, FunctionEvent
from rushlight.profiler.flops import PASSED_ON, profile_flops
from rushlight.profiler.inner import SIZED, Part, node_parts, operator_parts
from rushlight.profiler.names import event_name
from rushlight.profiler.sources import Observer, observe, unobserve
from rushlight.profiler.stacks import FunctionTracer

__all__ = ["Record", "Recorder"]

RANGE = 7  # the scope of ranges that a program names
_ACTIVITY_TYPES = {"python": "python_function", "range": "user_annotation", "runtime": "cuda_driver"}
_DEVICE_KINDS = {"kernel": "CONCURRENT_KERNEL", "gpu_memcpy": "GPU_MEMCPY", "gpu_memset": "GPU_MEMSET"}
_LAST = (1 << 62) - 1  # sequence numbers of accumulation nodes lie above


class Record:
    """One call that ran, or runs still (`end` is 0)."""

    __slots__ = (
        "args", "begin", "calls", "collective", "correlation", "device_held", "device_memory", "end", "flops", "held", "inputs", "kernel", "kind", "memory", "name", "outputs", "parent", "parts", "place", "scope",
        "sequence", "stack", "twin",
    )  # fmt: skip

    def __init__(self, kind: str, name: str, parent: Record | None) -> None:
        self.kind, self.name, self.parent = kind, name, parent
        self.begin = self.end = self.memory = self.held = self.device_memory = self.device_held = 0
        self.kernel = 0  # when the plan was there that was made for this call, 0 where there was one
        self.correlation = 0  # of a call of the driver: the number of what a device did for it
        self.calls = False  # whether it called operators
        self.parts: list[Part] = []
        self.scope = BACKWARD if kind == "node" else RANGE if kind == "range" else 0
        self.sequence = -1
        self.inputs: Any = None
        self.args: Any = None
        self.outputs: Any = None
        self.stack: Any = None
        self.flops: int | None = None
        self.place = -1
        self.twin: Record | None = None
        self.collective: Any = None  # what a process group did


class _Memory:
    """How many bytes tensors hold now."""

    def __init__(self) -> None:
        runtime = require("rushlight._backends.cpu.runtime.runtime").runtime()
        self.state, self.at = runtime.state, require("rushlight._backends.cpu.runtime.pool_native").ALLOCATED

    def now(self) -> int:
        """Bytes in use."""
        return int(self.state[self.at])


class _DeviceMemory:
    """How many bytes tensors hold on all devices of a type."""

    def __init__(self, device: str) -> None:
        self.backend = backend_of(Device(device))

    def now(self) -> int:
        """Bytes in use."""
        devices = [Device(self.backend.type, index) for index in range(self.backend.device_count())]
        return sum(self.backend.memory_stats(device)["allocated"] for device in devices)


class Recorder(Observer):
    """Observes the thread that starts it, and keeps a `Record` of every call.

    `shapes` keeps what the arguments were, `memory` what was allocated and freed, `stacks` the Python functions around,
    `flops` counts operations, `modules` records the `forward` of modules.
    """

    def __init__(
        self,
        shapes: bool = False,
        memory: bool = False,
        stacks: bool = False,
        flops: bool = False,
        modules: bool = False,
        device: str | None = None,
        operators: bool = True,
        device_kinds: set[str] | None = None,
    ) -> None:
        self.device_kinds = device_kinds  # names of the kinds of device events that are wanted, None for all
        self.operators = operators  # else devices alone are recorded
        self.device = device  # the type of the devices whose work is timed, too
        self.activities: list[Any] = []
        self._watch: Any = None
        self.shapes, self.flops, self.stacks, self.modules = shapes, flops, stacks, modules
        self.takes_programs = not (stacks or modules)  # the hooks that look for those are no part of programs
        self.memory: _Memory | None = _Memory() if memory else None
        self.device_memory = _DeviceMemory(device) if memory and device is not None else None
        self.records: list[Record] = []
        self.open: list[Record] = []
        self.thread = threading.get_ident()
        self.native_thread = threading.get_native_id()
        self.began = self.ended = 0
        self._seen = self.held_before = 0
        self._hooks: list[Any] = []
        self._numbers: dict[Any, Any] = {}
        self._parts: dict[Any, Any] = {}
        self._tracer: FunctionTracer | None = None

    # ***** on and off *****

    def start(self) -> None:
        """Begin to record, or go on after `stop`."""
        if self.memory is not None:
            self._seen = self.memory.now()
            self.held_before = self.held_before if self.began else self._seen
        if self.stacks or self.modules:
            hooks = require("rushlight.nn.modules.hooks")
            self._hooks = [
                hooks.register_module_forward_pre_hook(self._module_begins),
                hooks.register_module_forward_hook(self._module_ends, always_call=True),
            ]
        self.began = self.began or perf_counter_ns()
        self.ended = 0
        if self.operators:
            observe(self)
        self.watch_devices(True)
        if self.stacks:
            self._tracer = FunctionTracer(self._function_begins, lambda mark: self.leave(mark, None))
            self._tracer.start()

    def stop(self) -> None:
        """End."""
        if self._tracer is not None:
            self._tracer.stop()
        if self.operators:
            unobserve(self)
        self.watch_devices(False)
        self.ended = perf_counter_ns()
        while self.open:
            self.leave(self.open[-1], None)
        for hook in self._hooks:
            hook.remove()
        if self.memory is not None:
            self._freed(self.ended)

    def watch_devices(self, on: bool) -> None:
        """Time what devices do from now on, or no longer."""
        if on and self.device is not None and self._watch is None:
            self._watch = backend_of(Device(self.device)).activities(self._device_call)
            self._watch.start()
        elif not on and self._watch is not None:
            self.activities += [a for a in self._watch.stop() if self._wants(_DEVICE_KINDS[a.kind])]
            self._watch = None

    # ***** what is told *****

    def enter(self, kind: str, name: str, given: Callable[[], list[tuple[str, Any]]], subject: Any) -> Record:
        """A call begins."""
        if kind == "operator":
            name = event_name(name, given)
        elif kind == "plan":
            name = "rushlight::plan"
        elif kind == "node":
            return self._node(name, given, subject)
        elif kind == "program":
            name = f"Torch-Compiled Region: {name}"
        record = self._begin(kind, name)
        if kind == "collective":
            record.collective = subject
        if self.shapes or self.flops or name in SIZED:
            record.args = [(key, _described(value)) for key, value in given()]
        record.begin = perf_counter_ns()
        return record

    def _begin(self, kind: str, name: str) -> Record:
        open_ = self.open
        record = Record(kind, name, open_[-1] if open_ else None)
        if open_ and kind in ("operator", "custom", "function", "node", "collective"):
            open_[-1].calls = True
        if self.memory is not None:
            if not open_ or open_[-1].kind == "python":
                self._freed(perf_counter_ns())
            record.held = self.memory.now()
            record.device_held = self.device_memory.now() if self.device_memory is not None else 0
        if self.stacks:
            record.stack = [r.name for r in reversed(open_) if r.kind == "python"]
        record.place = len(self.records)
        self.records.append(record)
        open_.append(record)
        return record

    def _node(self, name: str, given: Callable[[], list[tuple[str, Any]]], node: Any) -> Record:
        """PyTorch has two events for a node: one for the engine's work, and one for the node's own."""
        outer = self._begin("node", f"autograd::engine::evaluate_function: {name}")
        outer.scope = 0
        outer.sequence = node._seq if node._seq < _LAST else -1
        outer.begin = perf_counter_ns()
        record = self._begin("node", name)
        record.parts = self._parts_of(name, node)
        record.sequence, record.twin = outer.sequence, outer
        if self.shapes:
            record.args = [(key, _described(value)) for key, value in given()]
        record.begin = perf_counter_ns()
        return record

    def _parts_of(self, name: str, node: Any) -> list[Part]:
        info = getattr(node, "info", None)
        if info is None:
            return node_parts(name, node)
        known = self._parts.get((name, id(info)))
        if known is None:  # the table keeps what its keys are made of
            known = self._parts[name, id(info)] = (info, node_parts(name, node))
        return known[1]

    def leave(self, mark: Record, made: Any) -> None:
        """A call ends; what it left open (after an exception) ends with it."""
        now = perf_counter_ns()
        if mark.end:
            return
        while self.open:
            record = self.open.pop()
            self._end(record, now)
            if record is mark:
                break
        if mark.twin is not None and self.open and self.open[-1] is mark.twin:
            self._end(self.open.pop(), perf_counter_ns())
        if mark.kind in ("operator", "function"):
            first = made[0] if isinstance(made, (tuple, list)) and made else made
            if isinstance(first, Tensor) and first._node is not None and first._node._seq < _LAST:
                mark.sequence = first._node._seq
            if self.flops:
                mark.flops = profile_flops(mark.name, mark.args)
        if mark.kind == "plan" and mark.parent is not None:
            mark.parent.kernel = now
        elif mark.kind == "program":
            self._fill_kernels(mark, made or ())
            self._fill_collectives(mark)
        elif mark.kind in ("operator", "node") and not mark.calls:
            self._fill(mark)

    def _device_call(self, call: str, began: int, ended: int) -> Record | None:
        """A call that gave work to a device; the record that the work belongs to, where this thread is recorded."""
        if threading.get_ident() != self.thread:
            return None
        above = self.open[-1] if self.open else None
        row = Record("runtime", call, above)
        row.begin, row.end, row.place = began, ended, len(self.records)
        row.stack = above.stack if above is not None else None
        if self._wants("CUDA_DRIVER"):
            self.records.append(row)
        return row

    def _wants(self, kind: str) -> bool:
        return self.device_kinds is None or kind in self.device_kinds

    # ***** what one kernel does *****

    def _fill(self, record: Record) -> None:
        """Rows for the parts of a kernel's work: see `rushlight.profiler.inner`."""
        parts = record.parts
        if record.kind == "operator":
            sizes = [value[0] for _, value in record.args] if record.args is not None else []
            parts = operator_parts(record.name, sizes)
        works = [part for part in parts if part.is_product] or parts
        for part in parts:
            self._fill_part(record, part, spans=len(works) == 1 and part is works[0], alone=len(parts) == 1)
        if record.flops is not None and record.name in PASSED_ON and parts:
            record.flops = None

    def _fill_part(self, record: Record, part: Part, spans: bool, alone: bool) -> None:
        above = record
        for name in part.names:
            row = Record("operator", f"aten::{name}", above)
            # After those without a length, which are beside it
            row.begin = (record.kernel or record.begin) + (spans and not alone)
            row.end = max(record.end, row.begin) if spans else row.begin
            row.memory = record.memory if spans else 0
            row.sequence, row.stack, row.place = record.sequence, record.stack, len(self.records)
            row.scope = 0
            self.records.append(row)
            above = row
        above.args = [("", (list(shape), list(shape), [], "", "")) for shape in part.shapes]
        if self.flops:
            above.flops = profile_flops(above.name, above.args)

    def _fill_kernels(self, program: Record, kernels: Sequence[tuple[str, int, int]]) -> None:
        """Rows for the kernels of a compiled program, one behind another: (name, nanoseconds, operations) of each."""
        begin = program.begin
        for name, took, operations in kernels:
            row = Record("kernel", f"rushlight::{name}", program)
            row.begin, row.end = begin, min(begin + took, program.end)
            row.stack, row.place = program.stack, len(self.records)
            row.flops = operations if self.flops else None
            self.records.append(row)
            begin = row.end

    def _fill_collectives(self, program: Record) -> None:
        """Rows for what a compiled program communicated."""
        known = {id(record.collective) for record in self.records if record.collective is not None}
        for operation in operations_since(program.begin, known):
            row = Record("collective", f"_c10d_functional::{functional_name(operation)}", program)
            row.begin = int(1e9 * operation.created)
            row.end = min(max(int(1e9 * (operation.ended or operation.created)), row.begin), program.end)
            row.stack, row.place, row.collective = program.stack, len(self.records), operation
            self.records.append(row)

    def _end(self, record: Record, now: int) -> None:
        record.end = now
        if self.memory is not None:
            held = self.memory.now()
            record.memory = held - record.held
            if self.device_memory is not None:
                record.device_memory = self.device_memory.now() - record.device_held
            self._seen = held

    def _freed(self, now: int) -> None:
        """Memory that came or went outside of every call."""
        assert self.memory is not None
        held = self.memory.now()
        if held != self._seen:
            record = Record("memory", MEMORY_EVENT_NAME, None)
            record.begin = record.end = now
            record.memory = held - self._seen
            record.place = len(self.records)
            self.records.append(record)
            self._seen = held

    # ***** modules and Python functions *****

    def _function_begins(self, name: str) -> Record:
        record = self._begin("python", name)
        record.begin = perf_counter_ns()
        return record

    def _module_begins(self, module: Any, args: Any) -> None:
        if threading.get_ident() != self.thread:
            return
        kind = type(module).__name__
        numbers = self._numbers.setdefault(kind, {})
        number = numbers.setdefault(id(module), len(numbers))
        record = self._begin("python", f"nn.Module: {kind}_{number}")
        record.begin = perf_counter_ns()

    def _module_ends(self, module: Any, args: Any, output: Any) -> None:
        if threading.get_ident() != self.thread:
            return
        name = f"nn.Module: {type(module).__name__}_{self._numbers.get(type(module).__name__, {}).get(id(module))}"
        for record in reversed(self.open):
            if record.name == name:
                self.leave(record, None)
                return

    # ***** what came of it *****

    def events(self) -> EventList:
        """All records as events, times in microseconds since the start."""
        found = EventList([], profile_memory=self.memory is not None, with_flops=self.flops, use_device=self.device)
        made: dict[Record, FunctionEvent] = {}
        for record in sorted(self.records, key=lambda r: (r.begin, r.place)):
            made[record] = self._event(record, len(found) + 1)
            found.append(made[record])
            if record.collective is not None:
                found.append(collective_event(record.collective, self.began, self.ended, len(found) + 1, self.shapes))
        for activity in self.activities:
            found.append(self._device_event(activity, len(found) + 1))
            row = activity.mark
            if row is not None:
                caller = made.get(row if row.parent is None else row.parent)  # an operator, not the call of the driver
                if caller is not None:
                    caller.append_kernel(activity.name, activity.device, activity.duration / 1000)
        found._build_tree()
        return found

    def _device_event(self, activity: Any, number: int) -> FunctionEvent:
        """An activity of a device, as an event of that device."""
        begin = (activity.begin - self.began) / 1000
        return FunctionEvent(
            id=number, name=activity.name, trace_name=activity.name, thread=activity.stream, start_us=begin,
            end_us=begin + activity.duration / 1000, overload_name="", input_shapes=[], stack=[], use_device=self.device,
            device_type=DeviceType[str(self.device).upper()], device_index=activity.device, device_resource_id=activity.stream,
            flops=0, activity_type=activity.kind, linked_correlation_id=0 if activity.mark is None else activity.mark.place + 1,
        )  # fmt: skip

    def _event(self, record: Record, number: int) -> FunctionEvent:
        args = (
            record.args
            if self.shapes and record.kind in ("operator", "node", "function", "program", "collective")
            else None
        )
        python = record.kind == "python"
        return FunctionEvent(
            id=number,
            name=record.name,
            trace_name=record.name,
            thread=1,
            start_us=(record.begin - self.began) / 1000,
            end_us=(record.end - self.began) / 1000,
            overload_name="",
            use_device=self.device,
            fwd_thread=1 if record.sequence >= 0 and record.kind == "node" else 0,
            input_shapes=[value[0] for _, value in args] if args is not None else [],
            stack=record.stack if record.stack is not None else [],
            scope=record.scope,
            cpu_memory_usage=record.memory,
            device_memory_usage=record.device_memory,
            sequence_nr=record.sequence,
            flops=record.flops or 0,
            concrete_inputs=[value[3] for _, value in args] if args is not None else [],
            structured_input_shapes=[value[1] for _, value in args] if args is not None else [],
            structured_input_strides=[value[2] for _, value in args] if args is not None else [],
            input_dtypes=[value[4] for _, value in args] if args is not None else [],
            kwinputs={},
            is_user_annotation=record.kind == "range",
            is_python_function=python,
            external_id=record.place + 1,
            activity_type=_ACTIVITY_TYPES.get(record.kind, "cpu_op"),
        )


_DTYPES = {
    "float32": "float", "float64": "double", "int64": "long int", "int32": "int", "int16": "short int", "int8": "signed char",
    "uint8": "unsigned char", "bool": "bool", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}  # fmt: skip


def _described(value: Any) -> tuple[Any, Any, Any, str, str]:
    """(sizes, sizes of a list's tensors too, strides, text, type) of an argument."""
    if isinstance(value, Tensor):
        shape, strides = list(value._spec.shape), list(value._spec.strides)
        return shape, shape, strides, "", _DTYPES.get(value._spec.dtype.name, value._spec.dtype.name)
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Tensor) for v in value):
        inner = [_described(v) for v in value]
        return [], [v[1] for v in inner], [v[2] for v in inner], "", "TensorList"
    if value is None:
        return [], [], [], "", ""
    word = (
        "ScalarList" if isinstance(value, (list, tuple)) else "Scalar" if isinstance(value, (bool, int, float)) else ""
    )
    return [], [], [], repr(value) if word else "", word
