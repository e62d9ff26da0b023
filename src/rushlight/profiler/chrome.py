"""Traces in the format of `chrome://tracing` and Perfetto, with the fields that PyTorch's traces have."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import uuid
from typing import Any

from rushlight import device as Device
from rushlight._interface.devices import backend_of
from rushlight.profiler.collectives import collective_row, communication_thread, distributed_info
from rushlight.profiler.events import MEMORY_EVENT_NAME
from rushlight.profiler.recorder import Record, Recorder
from rushlight.profiler.writing import write_text

__all__ = ["trace_of", "write_trace"]

_CATEGORIES = {
    "range": "user_annotation",
    "python": "python_function",
    "plan": "cpu_op",
    "memory": "cpu_instant_event",
    "runtime": "cuda_driver",
}


def write_trace(path: str, trace: dict[str, Any]) -> None:
    """Write a trace; compressed where the name ends in `.gz`."""
    write_text(path, json.dumps({**trace, "traceName": path}), path.endswith(".gz"))


def trace_of(recorder: Recorder, metadata: dict[str, Any], trace_id: str | None = None) -> dict[str, Any]:
    """The trace of everything that a recorder saw."""
    base = time.time_ns() - time.perf_counter_ns()  # what to add to the clock of records
    process, thread = os.getpid(), recorder.native_thread
    rows = _headers(process, thread, recorder.began / 1000)
    for number, activity in enumerate(recorder.activities, 1):
        if activity.mark is not None:
            activity.mark.correlation = number
    total = 0
    for number, record in enumerate(recorder.records):
        if record.kind == "memory" or (recorder.memory is not None and record.memory and not _inner_memory(record)):
            total += record.memory
            rows.append(_memory_row(record, total, process, thread, number))
        if record.kind != "memory":
            rows.append(_row(recorder, record, process, thread, number))
    rows += _collectives(recorder, process, thread)
    rows += _activities(recorder, process, thread)
    rows += _arrows(recorder, process, thread)
    rows += [
        {
            "ph": "X",
            "cat": "Trace",
            "ts": recorder.began / 1000,
            "dur": (recorder.ended - recorder.began) / 1000,
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "name": "PyTorch Profiler (0)",
            "args": {"Op count": 0},
        },
        {
            "name": "Iteration Start: PyTorch Profiler",
            "ph": "i",
            "s": "g",
            "pid": "Traces",
            "tid": "Trace PyTorch Profiler",
            "ts": recorder.began / 1000,
        },
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": recorder.ended / 1000},
    ]
    flags = {
        "record_shapes": recorder.shapes,
        "with_stack": recorder.stacks,
        "profile_memory": recorder.memory is not None,
        "with_flops": recorder.flops,
        "with_modules": recorder.modules,
    }
    return {
        "schemaVersion": 1,
        "deviceProperties": _devices(recorder),
        "trace_id": trace_id or uuid.uuid4().hex.upper(),
        **{name: 1 for name, on in flags.items() if on},
        "host_name": platform.node(),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        **distributed_info(),
        **metadata,
        "traceEvents": rows,
    }


_FACTS = {
    "name": "name", "totalGlobalMem": "total_memory", "computeMajor": "major", "computeMinor": "minor",
    "maxThreadsPerBlock": "max_threads_per_block", "maxThreadsPerMultiprocessor": "max_threads_per_multi_processor",
    "warpSize": "warp_size", "sharedMemPerBlock": "shared_memory_per_block", "numSms": "multi_processor_count",
    "regsPerMultiprocessor": "regs_per_multiprocessor", "sharedMemPerBlockOptin": "shared_memory_per_block_optin",
    "sharedMemPerMultiprocessor": "shared_memory_per_multiprocessor",
}  # fmt: skip


def _devices(recorder: Recorder) -> list[dict[str, Any]]:
    """Facts of the devices whose work was timed."""
    if recorder.device is None:
        return []
    found = []
    for index in sorted({a.device for a in recorder.activities}):
        device = Device(recorder.device, index)
        facts = backend_of(device).properties(device)
        found.append({"id": index, **{ours: facts[theirs] for ours, theirs in _FACTS.items() if theirs in facts}})
    return found


def _collectives(recorder: Recorder, process: int, thread: int) -> list[dict[str, Any]]:
    """Rows of what process groups did."""
    operations = [record.collective for record in recorder.records if record.collective is not None]
    beside = communication_thread() or thread
    rows = [_name_of_thread(process, beside, recorder.began / 1000, "communication")] if beside != thread else []
    first = len(recorder.records)
    for number, operation in enumerate(operations):
        rows.append(collective_row(operation, recorder.ended, process, (thread, beside), first + number))
    return rows


def _activities(recorder: Recorder, process: int, thread: int) -> list[dict[str, Any]]:
    """Activities of devices: a process for each device, a thread for each stream, and arrows from the calls that started it."""
    rows, start = list[dict[str, Any]](), recorder.began / 1000
    for device in sorted({a.device for a in recorder.activities}):
        rows.append(_meta("process_name", device, 0, start, name="python"))
        rows.append(_meta("process_labels", device, 0, start, labels=f"GPU {device}"))
        rows.append(_meta("process_sort_index", device, 0, start, sort_index=5_000_000 + device))
    for device, stream in sorted({(a.device, a.stream) for a in recorder.activities}):
        rows.append(_meta("thread_name", device, stream, start, name=f"stream {stream} "))
        rows.append(_meta("thread_sort_index", device, stream, start, sort_index=stream))
    for number, activity in enumerate(recorder.activities, 1):
        args = {"device": activity.device, "stream": activity.stream, "correlation": number, **activity.details}
        where = {"pid": activity.device, "tid": activity.stream, "ts": activity.begin / 1000}
        call = activity.mark
        if call is not None:
            args["External id"] = (call if call.parent is None else call.parent).place + 1
            arrow = {"id": number, "cat": "ac2g", "name": "ac2g"}
            rows.append({"ph": "s", "pid": process, "tid": thread, "ts": call.begin / 1000, **arrow})
            rows.append({"ph": "f", **where, "bp": "e", **arrow})
        name = {"ph": "X", "cat": activity.kind, "name": activity.name}
        rows.append({**name, **where, "dur": activity.duration / 1000, "args": args})
    return rows


def _meta(row: str, process: int, thread: int, start: float, /, **args: Any) -> dict[str, Any]:
    return {"name": row, "ph": "M", "ts": start, "pid": process, "tid": thread, "args": args}


def _name_of_thread(process: int, thread: int, start: float, name: str) -> dict[str, Any]:
    return _meta("thread_name", process, thread, start, name=f"thread {thread} ({name})")


def _headers(process: int, thread: int, start: float) -> list[dict[str, Any]]:
    """Names for the process and the thread."""
    named: list[tuple[str, int, dict[str, Any]]] = [("process_name", 0, {"name": "python"}), ("process_labels", 0, {"labels": "CPU"}),
             ("process_sort_index", 0, {"sort_index": process}), ("thread_name", thread, {"name": f"thread {thread} ({os.path.basename(sys.executable)})"}),
             ("thread_sort_index", thread, {"sort_index": thread})]  # fmt: skip
    return [_meta(name, process, tid, start, **args) for name, tid, args in named]


def _row(recorder: Recorder, record: Record, process: int, thread: int, number: int) -> dict[str, Any]:
    args: dict[str, Any] = {"External id": number + 1, "Record function id": 0, "Ev Idx": number}
    if record.kind == "runtime":
        place = (record if record.parent is None else record.parent).place
        args = {"External id": place + 1, "correlation": record.correlation}
    if record.kind == "python":
        args = {
            "Python id": number + 1,
            "Python parent id": record.parent.place + 1 if record.parent is not None else None,
            "Ev Idx": number,
        }
    if record.sequence >= 0:
        args |= {"Sequence number": record.sequence, "Fwd thread id": 1 if record.kind == "node" else 0}
    if recorder.shapes and record.args is not None:
        values = [value for _, value in record.args]
        args |= {
            "Concrete Inputs": [v[3] for v in values],
            "Input type": [v[4] for v in values],
            "Input Strides": [v[2] for v in values],
            "Input Dims": [v[1] for v in values],
        }
    if record.flops:
        args["flops"] = record.flops
    return {
        "ph": "X",
        "cat": _CATEGORIES.get(record.kind, "cpu_op"),
        "name": record.name,
        "pid": process,
        "tid": thread,
        "ts": record.begin / 1000,
        "dur": (record.end - record.begin) / 1000,
        "args": args,
    }


def _inner_memory(record: Record) -> bool:
    """Whether a caller's record has this memory too."""
    return record.parent is not None and record.parent.kind != "python"


def _memory_row(record: Record, total: int, process: int, thread: int, number: int) -> dict[str, Any]:
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": MEMORY_EVENT_NAME,
        "pid": process,
        "tid": thread,
        "ts": record.end / 1000,
        "args": {
            "Total Reserved": 0,
            "Total Allocated": total,
            "Bytes": record.memory,
            "Device Id": -1,
            "Device Type": 0,
            "Ev Idx": number,
        },
    }


def _arrows(recorder: Recorder, process: int, thread: int) -> list[dict[str, Any]]:
    """From the call that recorded a node to the node's run in backward."""
    starts = {r.sequence: r for r in recorder.records if r.kind in ("operator", "function") and r.sequence >= 0}
    rows: list[dict[str, Any]] = []
    ends = [r for r in recorder.records if r.kind == "node" and r.twin is not None and r.sequence in starts]
    for number, record in enumerate(ends, 1):
        where = {"id": number, "pid": process, "tid": thread, "cat": "fwdbwd", "name": "fwdbwd"}
        rows.append({"ph": "s", "ts": starts[record.sequence].begin / 1000, **where})
        rows.append({"ph": "f", "ts": record.begin / 1000, "bp": "e", **where})
    return rows
