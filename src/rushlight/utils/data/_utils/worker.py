"""The loop of a worker process: it takes tasks, fetches batches, and sends them."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import random
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.utils.data import _utils
from rushlight.utils.data._utils.datasets import apply_sharding, create_fetcher, is_pipe, seeded
from rushlight.utils.data._utils.randomness import get_random, set_random

wire: Any = LazyModule("rushlight.utils.data._utils.wire")

__all__ = ["ExceptionWrapper", "Setup", "StreamEnded", "WorkerInfo", "get_worker_info", "run"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker's facts about itself: its number, how many there are, its seed, its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str = "multiprocessing"


_worker_info: WorkerInfo | None = None  # other packages' workers set it under this name
_sender: list[Any] = []


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a `DataLoader`, what it knows of itself (`WorkerInfo`); elsewhere None.

    Every worker has a copy of the dataset, so a stream asks here which part of the data is this worker's.

    Example: `info = get_worker_info(); mine = data if info is None else data[info.id :: info.num_workers]`
    """
    return _worker_info


def arena() -> Any:
    """The shared memory in which a worker makes its batches; None in the main process."""
    return _sender[0].arena if _sender else None


class KeyErrorMessage(str):
    """A text that a KeyError prints as it is, over several lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception on its way to another process, with its traceback as text."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, value, trace = exc_info or sys.exc_info()
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))
        self.where = where

    def reraise(self) -> None:
        """Raise it here: an exception of its class whose message has the traceback."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            text = KeyErrorMessage(text)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            made = self.exc_type(text)
        except Exception:
            # Its constructor takes something else.
            raise RuntimeError(text) from None
        raise made


@dataclass
class Setup:
    """All that a worker is told when it starts."""

    worker: int
    workers: int
    sock: socket.socket
    key: int
    base_seed: int
    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    init_fn: Callable[[int], None] | None
    report: Any  # the file for the traceback of a crash
    shared_seed: int | None = None
    state: dict[str, Any] | None = None


class StreamEnded:
    """The message of a worker whose stream has no more samples."""


# ***** what workers that other packages wrote for PyTorch's loader find here *****


@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    """Their `StreamEnded`."""

    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """Message that starts the next pass in a persistent worker."""

    seed: int | None = None


class ManagerWatchdog:
    """Tells a worker whether the process that started it is still there."""

    def __init__(self) -> None:
        self.manager_pid = os.getppid()

    def is_alive(self) -> bool:
        """Whether it is."""
        return os.getppid() == self.manager_pid


def numpy_seed(base_seed: int, worker: int) -> Any:
    """The seed of NumPy's global generator in a worker, as PyTorch derives it: other bits than Python's and ours."""
    import numpy.random

    words = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return numpy.random.SeedSequence(words).generate_state(4)


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    return [int(word) for word in numpy_seed(base_seed, worker_id)]


def _seed(setup: Setup) -> None:
    import numpy.random

    seed = setup.base_seed + setup.worker
    random.seed(seed)
    rushlight.manual_seed(seed)
    numpy.random.seed(numpy_seed(setup.base_seed, setup.worker))


def run(setup: Setup) -> None:
    """The life of a worker."""
    wire.forked()
    gc.freeze()  # what came from the parent is not looked through again: looking would copy its pages
    with contextlib.suppress(OSError, ValueError):
        faulthandler.enable(os.fdopen(setup.report.number, "w", closefd=False))
    rushlight.set_num_threads(1)
    _seed(setup)
    sender = wire.Sender(setup.sock, setup.key, _utils.MP_STATUS_CHECK_INTERVAL)
    _sender.append(sender)
    global _worker_info
    _worker_info = WorkerInfo(setup.worker, setup.workers, setup.base_seed + setup.worker, setup.dataset)
    try:
        _serve(setup, sender)
    except wire.ParentGone:
        pass
    except BaseException as error:
        # Not a sample's fault: the process is told to end (or its own code is wrong), and says where it was.
        with contextlib.suppress(wire.ParentGone):
            sender.send((-1, -1, traceback.format_exc(), None))
        code = error.code if isinstance(error, SystemExit) else 1
        sys.exit(code if isinstance(code, int) else int(code is not None))
    finally:
        _sender.clear()
        setup.sock.close()


class _Fetching:
    """A worker's fetcher, or why there is none."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.where = f"in DataLoader worker process {setup.worker}"
        self.problem: ExceptionWrapper | None = None
        self.fetcher: Any = None
        self.ended = False

    def start(self, shared_seed: int | None, state: dict[str, Any] | None = None, first: bool = False) -> None:
        """Make the fetcher, for a new pass through the data."""
        setup = self.setup
        self.ended = False
        try:
            if first and is_pipe(setup.dataset):
                apply_sharding(setup.dataset, setup.workers, setup.worker)
            if first and setup.init_fn is not None:
                setup.init_fn(setup.worker)
            dataset = seeded(setup.dataset, shared_seed) if shared_seed is not None else setup.dataset
            self.fetcher = create_fetcher(setup.kind, dataset, setup.auto_collation, setup.collate_fn, setup.drop_last)
            if state is not None:
                self.fetcher.restore(state["fetcher"])
                set_random(state["random"])
                self.ended = state["ended"]
        except Exception:
            self.problem = ExceptionWrapper(where=self.where)

    def fetch(self, index: Any) -> Any:
        """The batch; what went wrong; or the end of the stream."""
        if self.problem is not None:
            if self.setup.kind == 1:
                self.fetcher, self.problem, problem = _Nothing(), None, self.problem
                return problem
            return self.problem
        try:
            return self.fetcher.fetch(index)
        except Exception as error:
            if isinstance(error, StopIteration) and self.setup.kind == 1:
                self.ended = True
                return StreamEnded()
            return ExceptionWrapper(where=self.where)

    def state(self) -> dict[str, Any]:
        """State from which another process goes on."""
        return {
            "fetcher": {} if self.fetcher is None else self.fetcher.state(),
            "random": get_random(),
            "ended": self.ended,
        }


class _Nothing:
    """The fetcher of a stream that could not be opened: after the error there is nothing."""

    def fetch(self, index: Any) -> Any:
        """StopIteration."""
        raise StopIteration

    def state(self) -> dict[str, Any]:
        """None of its own."""
        return {}


def _serve(setup: Setup, sender: Any) -> None:
    """Do tasks until there are no more.

    A task is (pass, number, index, whether the state is wanted, chunks given back); number -1 starts the next pass, and
    None is the end.
    """
    work = _Fetching(setup)
    work.start(setup.shared_seed, setup.state, first=True)
    while (task := sender.receive()) is not None:
        epoch, number, index, stateful, returned = task
        sender.arena.returned(returned)
        if number < 0:
            work.start(index)
            continue
        if work.ended:
            continue  # the main process knows, or will soon
        made = work.fetch(index)
        state = work.state() if stateful else None
        try:
            sender.send((epoch, number, made, state))
        except Exception:
            sender.send((epoch, number, _unsendable(made, work.where), state))
        del made


def _unsendable(made: Any, where: str) -> ExceptionWrapper:
    """Why a result could not be sent; an exception whose class cannot be sent goes as a RuntimeError."""
    if isinstance(made, ExceptionWrapper):
        name = getattr(made.exc_type, "__name__", "exception")
        made.exc_type, made.where = RuntimeError, f"{made.where} (raised as {name}, which cannot be pickled)"
        return made
    return ExceptionWrapper(where=where)
