"""`torch.profiler.profile`: recordings by a schedule of steps."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight._interface.cuda import why_absent
from rushlight.profiler import session
from rushlight.profiler.events import EventList
from rushlight.profiler.execution_trace import ExecutionTraceObserver
from rushlight.profiler.memory_timeline import write_memory_timeline
from rushlight.profiler.ranges import record_function

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

ProfilerActivity = Enum(
    "ProfilerActivity", ["CPU", "XPU", "MTIA", "CUDA", "HPU", "PrivateUse1"], start=0, module=__name__
)


class ProfilerAction(Enum):
    """The profiler's action in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[Any]:
    """Activities that can be profiled: the CPU, and GPUs where there are any."""
    return {ProfilerActivity.CPU, *[ProfilerActivity[name.upper()] for name in session.TIMED if not why_absent(name)]}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A schedule of steps: skip `skip_first`, then again and again wait, warm up, and record the `active` ones.

    `repeat` cycles, or as many as there are steps with 0; `skip_first_wait` leaves out the waiting of the first cycle.
    The last step of a cycle saves.

        >>> plan = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
        >>> [plan(step).name for step in range(5)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), active={active} (need > 0), "
            f"repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        at = step % cycle - wait
        if at < 0:
            return ProfilerAction.NONE
        if at < warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == warmup + active - 1 else ProfilerAction.RECORD

    return action


def _always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False
) -> Callable[[Any], None]:
    """For `on_trace_ready`: writes `WORKER.TIME.pt.trace.json` files into a directory, where TensorBoard's plugin finds
    them.
    """

    def write(prof: Any) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(os.path.join(dir_name, name), use_python_export=use_python_export)

    return write


# Kinds of events that programs choose of an activity, by their names in PyTorch; events of devices are left out by them.
_KINDS = {
    "CPU": (
        "CPU_OP", "USER_ANNOTATION", "EXTERNAL_CORRELATION", "CUDA_RUNTIME", "CUDA_DRIVER", "CPU_INSTANT_EVENT", "PYTHON_FUNCTION",
        "XPU_RUNTIME", "PRIVATEUSE1_RUNTIME",
    ),
    "CUDA": ("GPU_MEMCPY", "GPU_MEMSET", "CONCURRENT_KERNEL", "CUDA_RUNTIME", "CUDA_DRIVER", "OVERHEAD"),
}  # fmt: skip


def _asked(activities: Any, use_cuda: bool | None) -> tuple[set[Any], dict[Any, set[str]]]:
    """The activities that were asked for, and of some the kinds of events."""
    found: set[Any] = set()
    kinds: dict[Any, set[str]] = {}
    for item in activities if activities is not None else supported_activities():
        for activity in item if isinstance(item, dict) else (item,):
            if activity in found:
                raise ValueError(f"Activity {activity} specified more than once")
            if isinstance(activity, ProfilerActivity):
                found.add(activity)
                if isinstance(item, dict):
                    kinds[activity] = set(item[activity])
    if use_cuda is not None:
        warnings.warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=3)
        (found.add if use_cuda else found.discard)(ProfilerActivity.CUDA)
    if not found:
        raise AssertionError("No valid profiler activities found")
    return found, kinds


def _activities(activities: Any, use_cuda: bool | None) -> list[Any]:
    """The same as `_KinetoProfile` takes it."""
    found, kinds = _asked(activities, use_cuda)
    return [{a: kinds[a]} if a in kinds else a for a in found]


def _check_kinds(kinds: dict[Any, set[str]]) -> None:
    for activity, names in kinds.items():
        for name in names:
            if name not in _KINDS.get(activity.name, ()):
                raise RuntimeError(f"Unknown or non-member activity type name: '{name}'")


class _KinetoProfile:
    """Recording under the program's own control: `prepare_trace`, `start_trace`, `stop_trace`."""

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.activities, self.activity_filters = _asked(activities, None)
        self.record_shapes, self.with_flops, self.profile_memory = record_shapes, with_flops, profile_memory
        self.with_stack, self.with_modules = with_stack, with_modules
        self.experimental_config, self.execution_trace_observer = experimental_config, execution_trace_observer
        self.acc_events, self.custom_trace_id_callback = acc_events, custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s
        self.profiler: session.profile | None = None
        self.use_device: str | None = None
        self.preset_metadata: dict[str, str] = {}
        self._warming: Any = None

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def start(self) -> None:
        """Prepare and start a trace."""
        self.prepare_trace()
        self.start_trace()

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def stop(self) -> None:
        """Stop the trace."""
        self.stop_trace()

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def prepare_trace(self) -> None:
        """Begin to observe without keeping anything."""
        if self.profiler is not None and not self.acc_events:
            warnings.warn(
                "the profiler forgets the last cycle's events when a new cycle begins; acc_events=True keeps those of all cycles",
                stacklevel=2,
            )
        _check_kinds(self.activity_filters)
        if self.profiler is None or not self.acc_events:
            elsewhere = [
                a.name.lower() for a in ProfilerActivity if a in self.activities and a is not ProfilerActivity.CPU
            ]
            self.profiler = session.profile(
                use_device=elsewhere[0] if elsewhere else None, use_cpu=ProfilerActivity.CPU in self.activities, record_shapes=self.record_shapes,
                with_flops=self.with_flops, profile_memory=self.profile_memory, with_stack=self.with_stack, with_modules=self.with_modules,
                use_kineto=True,
                experimental_config=self.experimental_config, acc_events=self.acc_events, custom_trace_id_callback=self.custom_trace_id_callback,
                activity_filters={a.name.lower(): names for a, names in self.activity_filters.items()},
            )  # fmt: skip
        self._warming = self.profiler._record()
        self._warming.start()

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def start_trace(self) -> None:
        """Keep what happens from now on."""
        if self.execution_trace_observer:
            self.execution_trace_observer.start()
        profiler = self._made("starting trace")
        self._end_warming()
        profiler._start()
        for key, value in self.preset_metadata.items():
            profiler._add_metadata_json(key, value)

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def stop_trace(self) -> None:
        """End the trace."""
        if self.execution_trace_observer:
            self.execution_trace_observer.stop()
        self._end_warming()
        self._made("stopping trace").__exit__(None, None, None)

    def _end_warming(self) -> None:
        if self._warming is not None:
            self._warming.stop()
            self._warming = None

    def _made(self, doing: str) -> session.profile:
        if self.profiler is None:
            raise AssertionError(f"Profiler must be initialized before {doing}")
        return self.profiler

    # ***** results *****

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Write the trace for `chrome://tracing` or Perfetto; compressed if the name ends in `.gz`."""
        self._made("exporting chrome trace").export_chrome_trace(path, use_python_export=use_python_export)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write `outer;inner N` lines, from which flame graphs are drawn; needs `with_stack=True`."""
        self._made("exporting stacks").export_stacks(path, metric)

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Stop recording for a part of the program, and go on later."""
        if self.profiler is not None:
            self.profiler.toggle_collection_dynamic(enable, activities)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Sums over events of the same name; see `EventList.key_averages`."""
        made = self._made("getting key averages")
        return made.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def events(self) -> EventList:
        """All events of the last cycle (of all cycles with `acc_events=True`)."""
        return self._made("accessing events").function_events

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text under a name into the trace."""
        self.add_metadata_json(key, json.dumps(value.replace('"', '\\"')))

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put JSON under a name into the trace that is running or was the last."""
        if self.profiler is not None:
            self.profiler._add_metadata_json(key, value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """Put JSON under a name into every trace."""
        self.preset_metadata[key] = value

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write how much memory tensors held over time; needs `record_shapes`, `profile_memory` and `with_stack`, as in
        PyTorch.

        `.html` is a picture, `.raw.json.gz` has every change as (ns, action, bytes, category), other names have the
        sums as PyTorch writes them, `[times, sizes by category]`.  What bytes are for is not known here: all are of the
        category that PyTorch has for the unknown.
        """
        warnings.warn(
            "`export_memory_timeline` is deprecated and will be removed in a future version. Please use `torch.cuda.memory._record_memory_history` "
            "and `torch.cuda.memory._export_memory_snapshot` instead.",
            FutureWarning,
            stacklevel=2,
        )
        if not (self.record_shapes and self.profile_memory and self.with_stack):
            raise ValueError("record_shapes=True, profile_memory=True, with_stack=True required for memory profiling.")
        if device is not None and not device.startswith("cpu"):
            raise ValueError(
                f"export_memory_timeline: there is no memory of {device!r}; rushlight computes on the CPU only"
            )
        write_memory_timeline(self._made("exporting the memory timeline")._require(), path)


class profile(_KinetoProfile):
    """Records what a program runs, by default from the start to the end of `with`.

    `schedule` says for every step (each call of `step()` begins one) whether to wait, warm up or record;
    `on_trace_ready(prof)` is called when a cycle has been recorded.  `record_shapes` keeps the sizes of arguments,
    `profile_memory` what was allocated and freed, `with_stack` the Python functions around, `with_flops` counts
    floating point operations of products and convolutions, `with_modules` the `forward` of modules.  Recorded is the
    thread that starts the profiler; operators have the names of PyTorch's dispatcher, and those whose work one kernel
    does here (`aten::mm` in `aten::matmul`) are rows inside of its row.  `rushlight::plan` is the making of a plan:
    tracing and compiling, once for a kind of call.

        >>> from rushlight.profiler import profile
        >>> with profile(record_shapes=True) as prof:
        ...     _ = torch.ones(2, 3).t() @ torch.ones(2, 4)
        >>> [(e.name, e.input_shapes) for e in prof.events() if "mm" in e.name or "matmul" in e.name]
        [('aten::matmul', [[3, 2], [2, 4]]), ('aten::mm', [[3, 2], [2, 4]])]
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        super().__init__(
            activities=_activities(activities, use_cuda), record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack,
            with_flops=with_flops, with_modules=with_modules, experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer or ExecutionTraceObserver.build_execution_trace_obs_from_env(),
            acc_events=acc_events, custom_trace_id_callback=custom_trace_id_callback, post_processing_timeout_s=post_processing_timeout_s,
        )  # fmt: skip
        self.schedule, self.record_steps = schedule or _always, schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.step_rec_fn: record_function | None = None
        self.current_action = self._planned(0)

    def _planned(self, step: int) -> ProfilerAction:
        action = self.schedule(step)
        if action == ProfilerAction.DEVICE_STOPPED:
            raise ValueError(
                "ProfilerAction.DEVICE_STOPPED is set internally by the profiler and must not be returned by a user-provided schedule"
            )
        return action

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __enter__(self) -> profile:
        self.start()
        return self

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.stop()
        if self.execution_trace_observer:
            self.execution_trace_observer.cleanup()

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def start(self) -> None:
        """Begin with the first step."""
        self._go(ProfilerAction.NONE, self.current_action)
        self._begin_step()

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def stop(self) -> None:
        """End; what was recorded is handed to `on_trace_ready`."""
        self._end_step()
        self._go(self.current_action, None)

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def step(self) -> None:
        """The next step begins."""
        self._end_step()
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self._planned(self.step_num)
        self._go(before, self.current_action)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.record_steps:
            self.step_rec_fn = record_function(f"ProfilerStep#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _end_step(self) -> None:
        if self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _go(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        """From what the last step did to what the next does (None: the end)."""
        warming = before == ProfilerAction.WARMUP
        if before in _RECORDING or (warming and after is None):
            saves = before == ProfilerAction.RECORD_AND_SAVE or (after is None and not warming)
            if not saves and after == ProfilerAction.RECORD_AND_SAVE or after == ProfilerAction.RECORD and not saves:
                return
            if not saves and after is not None:
                warnings.warn(f"Incorrect schedule: RECORD followed by {after.name}", stacklevel=3)
            if warming:
                self.start_trace()
            self.stop_trace()
            if saves and self.on_trace_ready is not None:
                self.on_trace_ready(self)
        elif warming and after == ProfilerAction.NONE:
            warnings.warn("Incorrect schedule: WARMUP followed by NONE", stacklevel=3)
            self.start_trace()
            self.stop_trace()
        if not warming and after not in (None, ProfilerAction.NONE):
            self.prepare_trace()
        if after in _RECORDING:
            self.start_trace()

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Where the identifiers of the next traces come from."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """The identifier of the trace that runs or was the last; None before the first."""
        return self.profiler.trace_id if self.profiler is not None else None
