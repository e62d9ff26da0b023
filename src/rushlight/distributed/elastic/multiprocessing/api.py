"""Workers of one machine: functions or commands in processes of their own, watched together.

>>> from rushlight.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes
>>> logs = DefaultLogsSpecs()
>>> context = start_processes("squares", pow, {0: (2, 2), 1: (3, 2)}, {0: {}, 1: {}}, logs, start_method="fork")
>>> context.wait().return_values
{0: 4, 1: 9}
"""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rushlight._distributed.launch.agent import SignalException as SignalException
from rushlight._distributed.launch.failures import ProcessFailure as ProcessFailure
from rushlight._interface.launching import ERROR_FILE, Start, Workers
from rushlight.distributed.elastic.multiprocessing.logs import DefaultLogsSpecs as DefaultLogsSpecs
from rushlight.distributed.elastic.multiprocessing.logs import LogsDest as LogsDest
from rushlight.distributed.elastic.multiprocessing.logs import LogsSpecs as LogsSpecs
from rushlight.distributed.elastic.multiprocessing.streams import Std as Std
from rushlight.distributed.elastic.multiprocessing.streams import to_map as to_map

__all__ = [
    "DefaultLogsSpecs", "LogsDest", "LogsSpecs", "MultiprocessContext", "PContext", "ProcessFailure", "RunProcsResult", "SignalException", "Std",
    "SubprocessContext", "start_processes", "to_map",
]  # fmt: skip

_SIGNALS = "TORCHELASTIC_SIGNALS_TO_HANDLE"


@dataclass
class RunProcsResult:
    """How workers ended, by local rank: what they returned, or how they failed; and the files of their output."""

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether a worker failed."""
        return bool(self.failures)


def _raise_signal(number: int, frame: Any) -> None:
    name = signal.Signals(number)
    raise SignalException(f"Process {os.getpid()} got signal: {name}", sigval=name)


def _checked(args: Mapping[int, Any], envs: Mapping[int, Any], what: Mapping[str, Any]) -> None:
    if set(args) != set(range(len(args))) or set(envs) != set(args):
        raise RuntimeError(
            f"local rank mapping mismatch: args has {sorted(args)}, envs has {sorted(envs)}; both must be 0 to {len(args) - 1}"
        )
    for name, value in what.items():
        if value:
            raise NotImplementedError(f"torch.distributed.elastic.multiprocessing: {name} is not there")


class PContext(ABC):
    """Workers that run the same entrypoint: `args` and `envs` are their arguments and environments, by local rank.

    A subclass says what an entrypoint is. `start`, then `wait`; `close` ends those that still run.
    """

    def __init__(
        self, name: str, entrypoint: Callable[..., Any] | str, args: dict[int, tuple[Any, ...]], envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs, log_line_prefixes: dict[int, str] | None = None, duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:  # fmt: skip
        filters = {
            "duplicate_stdout_filters": duplicate_stdout_filters,
            "duplicate_stderr_filters": duplicate_stderr_filters,
        }
        _checked(args, envs, filters)
        self.name, self.entrypoint, self.args, self.envs = name, entrypoint, args, envs
        self.nprocs = len(args)
        self._prefixes = log_line_prefixes or {}
        logs = logs_specs.reify(envs)
        self.stdouts, self.stderrs, self.error_files = logs.stdouts, logs.stderrs, logs.error_files
        self._logs = logs
        self._workers: Workers | None = None
        self._result: RunProcsResult | None = None
        self._handlers: dict[int, Any] = {}

    @abstractmethod
    def _method(self) -> str:
        """How processes of functions start."""

    def start(self) -> None:
        """Start the processes. On the main thread, signals that end a program raise `SignalException` until `close`."""
        if threading.current_thread() is threading.main_thread():
            for name in os.environ.get(_SIGNALS, "SIGTERM,SIGINT,SIGHUP,SIGQUIT").split(","):
                number = getattr(signal, name.strip(), None)
                if number is not None:
                    self._handlers[number] = signal.signal(number, _raise_signal)
        starts = []
        for local_rank, args in self.args.items():
            environment = {ERROR_FILE: self.error_files.get(local_rank, ""), **self.envs[local_rank]}
            prefix = self._prefixes.get(local_rank, f"[{self.name}{local_rank}]:")
            starts.append(
                Start(
                    local_rank, local_rank, self.entrypoint, args, environment, self._logs.streams(local_rank, prefix)
                )
            )
        self._workers = Workers(starts, self._method())

    def _started(self) -> Workers:
        if self._workers is None:
            raise AssertionError("Workers do not have PIDs before they are started: call start() first")
        return self._workers

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """How the workers ended: when all have, or one has failed, and then the others are ended.

        None where that is not so after `timeout` seconds (0: at once; negative: never).  `period` is not needed: ends are
        seen at once.
        """
        if self._result is not None:
            return self._result
        workers = self._started()
        until = None if timeout < 0 else time.monotonic() + timeout
        while True:
            codes = workers.wait(period if until is None else min(period, max(until - time.monotonic(), 0)))
            if any(codes.values()) or not workers.running():
                break
            if until is not None and time.monotonic() >= until:
                return None
        failed = workers.failures()
        self.close()
        values = {} if failed else workers.results()
        self._result = RunProcsResult(values, failed, self.stdouts, self.stderrs)
        return self._result

    def pids(self) -> dict[int, int]:
        """The processes' numbers, by local rank."""
        return {local_rank: process.pid for local_rank, process in self._started().processes.items()}

    def close(self, death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
        """End the workers that run: by a signal (SIGTERM), and those that live after `timeout` seconds by SIGKILL."""
        if self._workers is not None:
            self._workers.stop(death_sig or signal.SIGTERM, timeout)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}


class MultiprocessContext(PContext):
    """Workers that are functions: what they return comes back.  `start_method` is that of `multiprocessing`."""

    def __init__(
        self, name: str, entrypoint: Callable[..., Any], args: dict[int, tuple[Any, ...]], envs: dict[int, dict[str, str]], start_method: str,
        logs_specs: LogsSpecs, log_line_prefixes: dict[int, str] | None = None, numa_options: Any = None,
        duplicate_stdout_filters: list[str] | None = None, duplicate_stderr_filters: list[str] | None = None,
    ) -> None:  # fmt: skip
        _checked(args, envs, {"numa_options": numa_options})
        super().__init__(
            name,
            entrypoint,
            args,
            envs,
            logs_specs,
            log_line_prefixes,
            duplicate_stdout_filters,
            duplicate_stderr_filters,
        )
        self.start_method = start_method

    def _method(self) -> str:
        return self.start_method


class SubprocessContext(PContext):
    """Workers that are commands: they return None."""

    def __init__(
        self, name: str, entrypoint: str, args: dict[int, tuple[Any, ...]], envs: dict[int, dict[str, str]], logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None, numa_options: Any = None, duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:  # fmt: skip
        _checked(args, envs, {"numa_options": numa_options})
        super().__init__(
            name,
            entrypoint,
            args,
            envs,
            logs_specs,
            log_line_prefixes,
            duplicate_stdout_filters,
            duplicate_stderr_filters,
        )

    def _method(self) -> str:
        return "spawn"


def start_processes(
    name: str, entrypoint: Callable[..., Any] | str, args: dict[int, tuple[Any, ...]], envs: dict[int, dict[str, str]], logs_specs: LogsSpecs,
    log_line_prefixes: dict[int, str] | None = None, start_method: str = "spawn", numa_options: Any = None,
    duplicate_stdout_filters: list[str] | None = None, duplicate_stderr_filters: list[str] | None = None,
) -> PContext:  # fmt: skip
    """Start workers of a function, or of a command (a name), one for each entry of `args`, whose keys are local ranks.

    RuntimeError unless `args` and `envs` have the same keys, 0 to n - 1.
    """
    rest = (log_line_prefixes, numa_options, duplicate_stdout_filters, duplicate_stderr_filters)
    made: PContext
    if isinstance(entrypoint, str):
        made = SubprocessContext(name, entrypoint, args, envs, logs_specs, *rest)
    else:
        made = MultiprocessContext(name, entrypoint, args, envs, start_method, logs_specs, *rest)
    try:
        made.start()
    except BaseException:
        made.close()
        raise
    return made
