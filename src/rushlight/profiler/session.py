"""One recording, from `with` to its end: `torch.autograd.profiler.profile`, on which `torch.profiler.profile` stands."""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Callable
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight._interface.cuda import why_absent
from rushlight.profiler.chrome import trace_of, write_trace
from rushlight.profiler.events import EventList
from rushlight.profiler.recorder import Recorder

__all__ = ["TIMED", "profile"]

TIMED = ("cuda",)  # types of devices whose work is timed


class profile:
    """Records every operator, node of backward and named range that runs in this thread inside `with`.

    `record_shapes` keeps the sizes of arguments, `profile_memory` what was allocated, `with_stack` the Python
    functions, `with_flops` counts floating point operations of products and convolutions, `with_modules` the `forward`
    of modules.  With `enabled=False` nothing happens.

        >>> with torch.autograd.profiler.profile() as prof:
        ...     _ = torch.ones(2, 3).sum()
        >>> [row.key for row in prof.key_averages() if row.key.startswith("aten")]
        ['aten::ones', 'aten::sum']
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: Any = None,
    ) -> None:
        self.enabled, self.entered = enabled, False
        if use_cuda:
            warnings.warn(
                "The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead.",
                FutureWarning,
                stacklevel=2,
            )
        if not use_cpu and not use_kineto:
            raise AssertionError("Device-only events supported only with Kineto (use_kineto=True)")
        beside = use_device if use_device not in (None, "cpu") else None
        self.use_device: str | None = "cuda" if use_cuda else beside
        if self.use_device is not None and (self.use_device not in TIMED or why_absent(self.use_device)):
            device, self.use_device = self.use_device.upper(), None
            warnings.warn(f"{device} is not available, disabling {device} profiling", UserWarning, stacklevel=2)
        if not use_cpu and self.use_device is None:
            raise AssertionError("No activities specified for the profiler")
        self.record_shapes = record_shapes or with_flops
        self.with_flops, self.profile_memory, self.with_stack, self.with_modules = (
            with_flops,
            profile_memory,
            with_stack,
            with_modules,
        )
        self.use_cpu, self.use_kineto, self.acc_events = use_cpu, use_kineto, acc_events
        self.experimental_config, self.custom_trace_id_callback = experimental_config, custom_trace_id_callback
        self.trace_id = ""
        self.activity_filters: dict[str, set[str]] = activity_filters or {}
        self.metadata: dict[str, Any] = {}
        self._recorder: Recorder | None = None
        self._kept: list[Any] = []
        self._events: EventList | None = None

    # ***** recording *****

    def default_trace_id(self) -> str:
        """A fresh identifier of a trace: 32 hexadecimal digits."""
        return uuid.uuid4().hex.upper()

    def create_trace_id(self) -> str:
        """The identifier of the next trace: from the callback that was given, else a fresh one."""
        return self.custom_trace_id_callback() if self.custom_trace_id_callback else self.default_trace_id()

    def config(self, create_trace_id: bool = False) -> dict[str, Any]:
        """The configuration of the record, as a dict."""
        if create_trace_id:
            self.trace_id = self.create_trace_id()
        return {
            "report_input_shapes": self.record_shapes,
            "profile_memory": self.profile_memory,
            "with_stack": self.with_stack,
            "with_flops": self.with_flops,
            "with_modules": self.with_modules,
            "trace_id": self.trace_id,
        }

    def _record(self) -> Recorder:
        return Recorder(
            self.record_shapes, self.profile_memory, self.with_stack, self.with_flops, self.with_modules, self.use_device,
            self.use_cpu, self.activity_filters.get(str(self.use_device)),
        )  # fmt: skip

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self._start()
        return self

    def _start(self) -> None:
        self.trace_id = self.create_trace_id()
        self._events = None
        self._recorder = self._record()
        self._recorder.start()

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        if self.enabled and self._recorder is not None:
            self._recorder.stop()

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def toggle_collection_dynamic(self, enabled: bool, activities: Any) -> None:
        """Stop recording for a part of the program, and go on later."""
        recorder, kinds = self._require(), {a.name.lower() for a in activities}
        if "cpu" in kinds and enabled and recorder.ended:
            recorder.start()
            self._events = None
        elif "cpu" in kinds and not enabled and not recorder.ended:
            recorder.stop()
        elif self.use_device in kinds and not recorder.ended:
            recorder.watch_devices(enabled)

    # ***** results *****

    def _require(self) -> Recorder:
        if self._recorder is None:
            raise RuntimeError("Profiler didn't finish running")
        return self._recorder

    @property
    def function_events(self) -> EventList:
        """All events; RuntimeError before the end."""
        recorder = self._require()
        if not recorder.ended:
            raise RuntimeError("Profiler didn't finish running")
        if self._events is None:
            found = recorder.events()
            if self.acc_events:
                kept = EventList([*self._kept, *found], profile_memory=self.profile_memory, with_flops=self.with_flops)
                kept._tree_built = True
                self._kept = list(kept)
                found = kept
            self._events = found
        return self._events

    def __repr__(self) -> str:
        return (
            repr(self.function_events)
            if self._recorder is not None and self._recorder.ended
            else "<unfinished torch.autograd.profile>"
        )

    def __str__(self) -> str:
        return str(self.function_events) if self._recorder is not None and self._recorder.ended else repr(self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """See `EventList.table`."""
        return self.function_events.table(
            sort_by,
            row_limit,
            max_src_column_width,
            max_name_column_width,
            max_shapes_column_width,
            header,
            top_level_events_only,
        )

    def export_chrome_trace(self, path: str, metadata: Any = None, use_python_export: bool = False) -> None:
        """Write a trace for `chrome://tracing` or Perfetto; compressed if the name ends in `.gz`."""
        write_trace(path, trace_of(self._require(), {**self.metadata, **(metadata or {})}, self.trace_id))

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """See `EventList.export_stacks`; needs `with_stack=True`."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self.function_events.export_stacks(path, metric)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """See `EventList.key_averages`."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> Any:
        """One sum over all events."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of all events' own times, in microseconds."""
        return self.function_events.self_cpu_time_total

    def _add_metadata_json(self, key: str, value: str) -> None:
        self.metadata[key] = json.loads(value)
