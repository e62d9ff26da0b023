"""Execution traces: every call with its arguments and results as JSON, in the schema of Chakra that PyTorch writes."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import trace_marks
from rushlight.profiler.events import BACKWARD
from rushlight.profiler.names import event_name
from rushlight.profiler.sources import Observer, observe, unobserve
from rushlight.profiler.writing import write_text

__all__ = ["ExecutionTraceObserver"]

_SCHEMA = "1.1.1-chakra.0.0.4"
_ROOT, _THREAD = 1, 2
_DTYPES = {
    "float32": "float", "float64": "double", "int64": "long int", "int32": "int", "bool": "bool", "float16": "c10::Half",
    "bfloat16": "c10::BFloat16", "uint8": "unsigned char", "int8": "signed char", "int16": "short int",
}  # fmt: skip


class _Calls(Observer):
    """Keeps every call as a node of the trace."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [
            _node(_THREAD, "[pytorch|profiler|execution_trace|thread]", _ROOT, 7, -1, _side([]), 0)
        ]
        self.open: list[int] = []
        self.numbers: dict[int, int] = {}
        self.count = _THREAD

    def number(self) -> int:
        """The next identifier."""
        self.count += 1
        return self.count

    def enter(self, kind: str, name: str, given: Callable[[], list[tuple[str, Any]]], subject: Any) -> Any:
        """A call begins."""
        if kind == "plan":
            return None
        if kind == "operator":
            name = event_name(name, given)
        number = self.number()
        parent = self.open[-1] if self.open else _THREAD
        self.open.append(number)
        scope = BACKWARD if kind == "node" else 7 if kind == "range" else 0
        sequence = subject._seq if kind == "node" and subject._seq < 1 << 62 else -1
        inputs = _side([self._value(v) for _, v in given()])
        node = _node(number, name, parent, scope, sequence, inputs, len(self.nodes))
        self.nodes.append(node)
        return node

    def leave(self, mark: Any, made: Any) -> None:
        """A call ends."""
        if mark is None:
            return
        while self.open and self.open.pop() != mark["id"]:
            pass
        results = made if isinstance(made, (tuple, list)) else [] if made is None else [made]
        mark["outputs"] = _side([self._value(v) for v in results])

    def _value(self, value: Any) -> tuple[Any, Any, str, Any]:
        """(value, sizes, type, strides)."""
        if isinstance(value, Tensor):
            spec = value._spec
            storage = id(value._storage)
            numbers = [self.numbers.setdefault(key, self.number()) for key in (value._ptr, storage)]
            at = value.storage_offset()
            text = [*numbers, at, spec.numel, spec.dtype.itemsize, str(spec.device)]
            return (
                text,
                list(spec.shape),
                f"Tensor({_DTYPES.get(spec.dtype.name, spec.dtype.name)})",
                list(spec.strides),
            )
        if isinstance(value, (list, tuple)):
            inner = [self._value(v) for v in value]
            return (
                [i[0] for i in inner],
                [i[1] for i in inner],
                f"GenericList[{','.join(i[2] for i in inner)}]",
                [i[3] for i in inner],
            )
        if value is None:
            return "<None>", [], "None", []
        kind = {bool: "Bool", int: "Int", float: "Double", str: "String"}.get(type(value))
        return (value, [], kind, []) if kind else (str(value), [], type(value).__name__, [])


def _side(values: list[tuple[Any, Any, str, Any]]) -> dict[str, Any]:
    return (
        dict(zip(("values", "shapes", "types", "strides"), map(list, zip(*values)), strict=True))
        if values
        else {"values": [], "shapes": [], "types": [], "strides": []}
    )


def _node(number: int, name: str, parent: int, scope: int, sequence: int, inputs: Any, place: int) -> dict[str, Any]:
    unsigned = [("rf_id", place), ("fw_parent", 0), ("scope", scope), ("tid", 1), ("fw_tid", int(scope == BACKWARD))]
    attributes = [{"name": key, "type": "uint64", "value": value} for key, value in unsigned]
    attributes.insert(2, {"name": "seq_id", "type": "int64", "value": sequence})
    attributes += [
        {"name": key, "type": "string", "value": ""}
        for key in ("op_schema", "kernel_backend", "kernel_file", "tensor_range")
    ]
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": inputs,
        "outputs": _side([]),
        "attrs": attributes,
    }


class ExecutionTraceObserver:
    """Writes what runs between `start` and `stop` to the file given to `register_callback`.

    >>> import json, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.json"
    >>> observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    >>> observer.start()
    >>> _ = torch.ones(2) + 1
    >>> observer.stop()
    >>> observer.unregister_callback()
    >>> [node["name"] for node in json.loads(path.read_text())["nodes"]][2:]
    ['aten::ones', 'aten::add']
    """

    def __init__(self) -> None:
        self._registered = self._running = False
        self.extra_resources_collection = False
        self.resources_dir = self.output_file_path = ""
        self._calls = _Calls()
        self._since = 0

    def __del__(self) -> None:
        self.unregister_callback()

    @staticmethod
    def build_execution_trace_obs_from_env() -> ExecutionTraceObserver | None:
        """An observer that writes to a temporary file if ENABLE_PYTORCH_EXECUTION_TRACE is 1, else None."""
        if os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE", "0") != "1":
            return None
        with tempfile.NamedTemporaryFile("w+t", suffix=".et.json", delete=False) as file:
            path = file.name
        made = ExecutionTraceObserver().register_callback(path)
        made.set_extra_resource_collection(os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE_EXTRAS", "0") == "1")
        return made

    def set_extra_resource_collection(self, val: bool) -> None:
        """Make a folder beside the file for what else belongs to it."""
        self.extra_resources_collection = val
        if val:
            self.get_resources_dir(can_create=True)

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Say where to write (compressed if the name ends in `.gz`)."""
        if not self._registered:
            self.output_file_path, self._registered = output_file_path, True
            self._calls, self._since = _Calls(), time.monotonic_ns() // 1000
        return self

    def get_resources_dir(self, can_create: bool = False) -> str | None:
        """The folder beside the file; None where `set_extra_resource_collection` was not asked for."""
        if self.extra_resources_collection and not self.resources_dir:
            self.resources_dir = self.get_resources_dir_for_et_path(self.output_file_path, create_dir=can_create) or ""
        return self.resources_dir or None

    @staticmethod
    def get_resources_dir_for_et_path(trace_path: str, create_dir: bool = False) -> str | None:
        """`NAME_resources` beside `NAME.json`; None where it does not exist and is not made."""
        folder, name = os.path.split(trace_path)
        path = os.path.join(folder, os.path.splitext(name)[0] + "_resources")
        if not os.path.exists(path):
            if not create_dir:
                return None
            os.mkdir(path)
        return path

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def unregister_callback(self) -> None:
        """Stop, and write the file."""
        if not self._registered:
            return
        self.stop()
        self._registered = False
        whole = {
            "schema": _SCHEMA, "pid": os.getpid(), "time": time.strftime("%Y-%m-%d %H:%M:%S"), "start_ts": self._since,
            "nodes": [*self._calls.nodes[:1], _node(_ROOT, "[pytorch|profiler|execution_trace|process]", _ROOT, 7, -1, _side([]), 0), *self._calls.nodes[1:]],
            "finish_ts": time.monotonic_ns() // 1000,
        }  # fmt: skip
        write_text(self.output_file_path, json.dumps(whole), self.output_file_path.endswith("gz"))

    @property
    def is_registered(self) -> bool:
        """Whether a file was named and is not written yet."""
        return self._registered

    def is_running(self) -> bool:
        """Whether calls are kept now."""
        return self._running

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def start(self) -> None:
        """Keep the calls of this thread from now on."""
        if self._registered and not self._running:
            self._running = True
            observe(self._calls)

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def stop(self) -> None:
        """Keep no more."""
        if self._running:
            self._running = False
            unobserve(self._calls)

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def cleanup(self) -> None:
        """The same as `unregister_callback`."""
        self.unregister_callback()

    def get_output_file_path(self) -> str | None:
        """Where it writes; None before a file was named."""
        return self.output_file_path or None
