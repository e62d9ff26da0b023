"""`spawn`: run a function in several processes; the first that fails ends them all, and says why.

>>> from rushlight.multiprocessing.spawn import ProcessExitedException
>>> ProcessExitedException("process 1 terminated with signal SIGKILL", 1, 4711, -9, "SIGKILL").exit_code
-9
"""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rushlight._interface.base import LazyModule

ctypes: Any = LazyModule("ctypes")
log = logging.getLogger(__name__)

__all__ = [
    "ENV_VAR_PARALLEL_START", "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "spawn", "start_processes",
]  # fmt: skip

# Set to 1, processes that do not fork are started side by side.
ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"
_GRACE = 30.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class ProcessException(Exception):
    """A process of `spawn` failed: `error_index` says which, `error_pid` under what number it ran."""

    __slots__ = ("error_index", "error_pid", "msg")

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process of `spawn` raised: the message has its traceback."""

    __slots__ = ()


class ProcessExitedException(ProcessException):
    """A process of `spawn` ended by a signal or with an exit code."""

    __slots__ = ("exit_code", "signal_name")

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., Any], index: int, args: tuple[Any, ...], error_file: str) -> None:
    """Run `fn` in a process, and on failure leave the traceback for the parent."""
    if sys.platform == "linux":  # a killed parent leaves nobody behind
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGINT)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too, and says so
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """Processes that were started together."""

    def __init__(self, processes: Sequence[Any], error_files: Sequence[str]) -> None:
        self.error_files = list(error_files)
        self.processes = list(processes)
        self.sentinels = {process.sentinel: index for index, process in enumerate(self.processes)}

    def pids(self) -> list[int]:
        """The processes' numbers."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until a process ends; True when all have.

        A process that failed ends the others (SIGTERM; what still lives after `grace_period` seconds is killed) and is
        reported: ProcessRaisedException with its traceback, or ProcessExitedException.
        """
        if not self.sentinels:
            return True
        ended = multiprocessing.connection.wait(self.sentinels.keys(), timeout=timeout)
        failed = None
        for sentinel in ended:
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode and failed is None:
                failed = index
        if failed is not None:
            self._end(grace_period)
            error = self._error(failed)
            self._forget_files()
            raise error
        if not self.sentinels:
            self._forget_files()
        return not self.sentinels

    def _end(self, grace_period: float | None) -> None:
        """Let no process go on."""
        for process in self.processes:
            if process.is_alive():
                log.warning("Terminating process %s via signal SIGTERM", process.pid)
                process.terminate()
        last = time.monotonic() + (_GRACE if grace_period is None else grace_period)
        for process in self.processes:
            process.join(timeout=max(0, last - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                log.warning("Unable to shutdown process %s via SIGTERM , forcefully exiting via SIGKILL", process.pid)
                process.kill()
            process.join()

    def _error(self, index: int) -> ProcessException:
        process = self.processes[index]
        if os.path.exists(self.error_files[index]) and os.path.getsize(self.error_files[index]):
            with open(self.error_files[index], "rb") as file:
                text = pickle.load(file)
            return ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{text}", index, process.pid
            )
        code = process.exitcode
        if code >= 0:
            return ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"<Unknown signal {-code}>"
        return ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, code, name)

    def _forget_files(self) -> None:
        for path in self.error_files:
            if os.path.exists(path):
                os.unlink(path)


class SpawnContext(ProcessContext):
    """The same, under its older name."""


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in processes i = 0 to `nprocs` - 1; `start_method` is one of Python's.

    With `join` waits for all of them and returns None; else returns their `ProcessContext`. Errors: see
    `ProcessContext.join`.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, files = [], []
    for index in range(nprocs):
        handle, path = tempfile.mkstemp(prefix="rushlight-error-", suffix=".pickle")
        os.close(handle)
        os.unlink(path)  # only a process that fails leaves a file
        processes.append(context.Process(target=_run, args=(fn, index, args, path), daemon=daemon))
        files.append(path)
    if os.environ.get(ENV_VAR_PARALLEL_START) == "1" and start_method in ("spawn", "forkserver"):
        with ThreadPoolExecutor(max_workers=max(nprocs, 1)) as pool:
            list(pool.map(lambda process: process.start(), processes))
    else:
        for process in processes:
            process.start()
    started = ProcessContext(processes, files)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in processes i = 0 to `nprocs` - 1, each a fresh Python; see `start_processes`.

    `fn` and `args` are pickled, so `fn` is defined at the top of a module, and the program's main part stands under
    `if __name__ == "__main__":`.

    Example: `torch.multiprocessing.spawn(train, args=(world_size,), nprocs=world_size)`
    """
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method use:\n\t\t"
            " torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method)
