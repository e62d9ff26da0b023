"""Which worker failed, and why: error files of workers, and the report of a launcher.

A worker that fails by an exception leaves a file: its message, traceback and time, as JSON in PyTorch's layout. The
launcher reads the files and reports the first failure; what failed in consequence is listed before it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar

__all__ = [
    "ERROR_FILE",
    "ChildFailedError",
    "ErrorHandler",
    "ProcessFailure",
    "get_error_handler",
    "record",
    "write_error",
]

T = TypeVar("T")
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_ERRORS = "torch.distributed.elastic.multiprocessing.errors"
_LONGEST_FILE = 1 << 20
_WIDTH = 60
_CONSEQUENCE = "RankFailedError"  # a rank that was told of another's failure


def write_error(error: BaseException) -> None:
    """Leave the error file of this process, if a launcher wants one and there is none yet."""
    path = os.environ.get(ERROR_FILE)
    if not path or os.path.exists(path):
        return
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    extra = {"py_callstack": text, "timestamp": str(int(time.time())), "time": time.time()}
    data = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.new", "w") as file:
            json.dump(data, file)
        os.replace(f"{path}.new", path)
    except OSError:
        pass  # the traceback is on the error stream too


@dataclass
class ProcessFailure:
    """One worker that failed: `exitcode` is negative for a signal; `message` and `timestamp` are from its error file."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = field(init=False)
    message: Any = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        self.error_file_data = _read(self.error_file)
        self.seen = time.time()
        message = self.error_file_data.get("message", {})
        if self.error_file_data:
            self.message = message
            extra = message.get("extraInfo", {}) if isinstance(message, dict) else {}
            self.timestamp = int(extra.get("timestamp", self.seen))
            self.seen = float(extra.get("time", self.timestamp))
        else:
            self.error_file = "<N/A>"
            self.timestamp = int(self.seen)
            name = self.signal_name()
            self.message = (
                f"Signal {-self.exitcode} ({name}) received by PID {self.pid}"
                if name != "<N/A>"
                else "no traceback was left"
            )

    def signal_name(self) -> str:
        """The name of the signal that ended it, or `<N/A>`."""
        try:
            return signal.Signals(-self.exitcode).name if self.exitcode < 0 else "<N/A>"
        except ValueError:
            return "<N/A>"

    def timestamp_isoformat(self) -> str:
        """When it failed."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    def text(self) -> str:
        """Its traceback, or what is known."""
        if isinstance(self.message, dict):
            return str(self.message.get("extraInfo", {}).get("py_callstack") or self.message.get("message", ""))
        return str(self.message)

    def in_consequence(self) -> bool:
        """Whether it failed because it was told of another rank's failure, or was ended by the launcher."""
        told = isinstance(self.message, dict) and str(self.message.get("message", "")).startswith(_CONSEQUENCE)
        return told or self.exitcode == -signal.SIGTERM


ProcessFailure.__module__ = _ERRORS  # after the decorator, which looks for the module


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path) as file:
            data = json.loads(file.read(_LONGEST_FILE))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


class ChildFailedError(Exception):
    """Workers failed: `failures` by their global rank. The text ends with the first failure and its traceback."""

    __module__ = _ERRORS

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise AssertionError("ChildFailedError needs a failure")
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """Rank and failure of the worker that failed first; not of one that failed because another did."""
        rank = min(self.failures, key=lambda rank: (self.failures[rank].in_consequence(), self.failures[rank].seen))
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The report: other failures, then the first one."""
        first, root = self.get_first_failure()
        others = [
            _described(number, rank, failure)
            for number, (rank, failure) in enumerate(sorted(self.failures.items()), 1)
            if rank != first
        ]
        border, section = boarder_delim * _WIDTH, section_delim * _WIDTH
        listed = "\n".join(others) or "  <NO_OTHER_FAILURES>"
        return (
            f"\n{border}\n{self.name} FAILED\n{section}\nFailures:\n{listed}\n{section}\n"
            f"Root Cause (first observed failure):\n{_described(0, first, root)}\n{border}"
        )


def _described(number: int, rank: int, failure: ProcessFailure) -> str:
    name = failure.signal_name()
    text = failure.text().rstrip().replace("\n", "\n    ")
    return (
        f"[{number}]:\n  time      : {failure.timestamp_isoformat()}\n  host      : {socket.gethostname()}\n"
        f"  rank      : {rank} (local_rank: {failure.local_rank})\n"
        f"  exitcode  : {failure.exitcode} (pid: {failure.pid}){'' if name == '<N/A>' else f' ({name})'}\n"
        f"  error_file: {failure.error_file}\n  traceback : {text}"
    )


class ErrorHandler:
    """Writes the error file of a process; a subclass may do more."""

    __module__ = _ERRORS

    def initialize(self) -> None:
        """Called before the function that is recorded."""

    def record_exception(self, e: BaseException) -> None:
        """Leave the error file."""
        write_error(e)

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Put an exit code into what an error file says."""
        if "message" in rootcause_error and isinstance(rootcause_error["message"], dict):
            rootcause_error["message"]["errorCode"] = error_code

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Let the error file of another process be this one's: the launcher of a launcher sees the first failure."""
        data, path = _read(rootcause_error_file), os.environ.get(ERROR_FILE)
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, data, error_code)
        if path and data:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                json.dump(data, file)


def get_error_handler() -> ErrorHandler:
    """The handler of `record`."""
    return ErrorHandler()


def record(fn: Callable[..., T], error_handler: ErrorHandler | None = None) -> Callable[..., T | None]:
    """A decorator of a program's main function: what it raises is left for the launcher, which reports it.

    Programs that `python -m rushlight` runs need none: their exceptions are left too.

    >>> from rushlight.distributed.elastic.multiprocessing.errors import record
    >>> @record
    ... def main():
    ...     return 3
    >>> main()
    3
    """
    handler = get_error_handler() if error_handler is None else error_handler

    @wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> T | None:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code == 0:
                return None
            handler.record_exception(error)
            raise
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            if os.path.exists(failure.error_file):
                handler.dump_error_file(failure.error_file, failure.exitcode)
            else:
                handler.record_exception(error)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return wrapper
