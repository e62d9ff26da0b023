"""`Work`: what an asynchronous collective gives back."""

from __future__ import annotations

from datetime import timedelta
from inspect import signature
from typing import Any

from rushlight._interface.distributed import DistBackendError, Operation
from rushlight.futures import Future, collect_all

__all__ = ["RecordedWork", "Work", "ended", "wait_for", "work_of_future"]


class Work:
    """An operation that runs: `wait()` blocks until it is done.

    Groups that a program defines give subclasses, which bring their own `wait` and `get_future`.
    """

    def __init__(self, operation: Operation | None = None, tensors: Any = ()) -> None:
        self._operation: Any = operation
        self._tensors = tensors
        self._future: Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation is done; True, or its error raised, or DistBackendError after `timeout`."""
        operation = self._operation
        if not operation.done or operation.error is not None:
            seconds = None if timeout is None or not timeout else timeout.total_seconds()
            if not operation.group.wait(operation, seconds):
                raise DistBackendError(f"Wait timeout: {operation.text()} was not done after {seconds:g} s")
        return True

    def synchronize(self) -> None:
        """Wait: there are no streams on the CPU."""
        self.wait()

    def block_current_stream(self) -> None:
        """Let what follows wait: there are no streams on the CPU, so that this process does."""
        self.wait()

    def boxed(self) -> Work:
        """The object itself: PyTorch's goes through a box to compiled code."""
        return self

    @staticmethod
    def unbox(boxed: Work) -> Work:
        """The object in a box of `boxed`; ValueError for anything else."""
        if not isinstance(boxed, Work):
            raise ValueError(f"Work.unbox() takes what Work.boxed() gave, not {type(boxed).__name__}")
        return boxed

    def is_completed(self) -> bool:
        """Whether the operation is done, well or badly."""
        return self._operation.done

    def is_success(self) -> bool:
        """Whether the operation is done without an error."""
        return self._operation.done and self._operation.error is None

    def exception(self) -> BaseException | None:
        """The error of an operation that failed."""
        return self._operation.error

    def result(self) -> list[Any]:
        """The tensors with the results, as a list."""
        return _as_list(self._tensors)

    def source_rank(self) -> int:
        """The rank that a message came from."""
        return self._operation.source()

    _source_rank = source_rank

    def get_future(self) -> Future[Any]:
        """A future of the list of results."""
        if self._future is None:
            future: Future[Any] = Future()
            self._future = future
            self._operation.when_done(lambda operation: _complete(future, operation, self._tensors))
        return self._future

    def get_future_result(self) -> Future[Any]:
        """A future of whether it went well."""
        future: Future[Any] = Future()
        self._operation.when_done(lambda operation: future.set_result(int(operation.error is not None)))
        return future


class RecordedWork(Work):
    """The collective of a program that is being recorded: its result is there for what is recorded after it."""

    def __init__(self, tensors: Any) -> None:
        self._tensors = tensors

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> BaseException | None:
        return None

    def get_future(self) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(_as_list(self._tensors))
        return future


def _as_list(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _complete(future: Future[Any], operation: Operation, tensors: Any) -> None:
    if operation.error is None:
        future.set_result(_as_list(tensors))
    elif isinstance(operation.error, Exception):
        future.set_exception(operation.error)
    else:
        future.set_exception(RuntimeError(str(operation.error)))


class _FutureWork(Work):
    """Work that ends with a future."""

    def __init__(self, future: Future[Any]) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.get_future().wait()
        return True

    def is_completed(self) -> bool:
        return bool(self.get_future().done())

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        try:
            self.get_future().value()
        except BaseException as error:
            return error
        return None

    def result(self) -> list[Any]:
        return _as_list(self.get_future().value())

    def get_future(self) -> Future[Any]:
        assert self._future is not None
        return self._future

    def get_future_result(self) -> Future[Any]:
        return self.get_future().then(lambda done: int(_failed(done)))


def _failed(future: Future[Any]) -> bool:
    try:
        future.value()
    except Exception:  # of the operation, of any class
        return True
    return False


def work_of_future(future: Future[Any]) -> Work:
    """A `Work` that is done when a future is, with its value as result: for groups that a program defines."""
    return _FutureWork(future)


def wait_for(work: Any, timeout: timedelta | None = None) -> None:
    """Wait for a piece of work; `wait` of a class that a program defines may insist on a timeout."""
    method = work.wait
    if type(work).wait is Work.wait or timeout is not None:
        method(timeout)
    elif any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in signature(method).parameters.values()):
        method(timedelta(0))
    else:
        method()


class _Together(Work):
    """Several operations that are waited for as one."""

    def __init__(self, works: list[Work]) -> None:
        tensors = [tensor for work in works for tensor in _as_list(getattr(work, "_tensors", ()))]
        super().__init__(getattr(works[-1], "_operation", None), tensors)
        self.works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self.works:
            wait_for(work, timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self.works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self.works)

    def exception(self) -> BaseException | None:
        return next((work.exception() for work in self.works if work.exception() is not None), None)

    def get_future(self) -> Future[Any]:
        if self._future is None:
            self._future = collect_all([work.get_future() for work in self.works]).then(lambda _: list(self._tensors))
        return self._future


def ended(works: list[Work]) -> Work | None:
    """One piece of work for several; None for none."""
    return works[0] if len(works) == 1 else _Together(works) if works else None
