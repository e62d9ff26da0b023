"""Results that come later, as `torch.futures`: set by one thread, awaited by others.

>>> import rushlight as torch
>>> future = torch.futures.Future()
>>> doubled = future.then(lambda done: done.value() * 2)
>>> future.set_result(21)
>>> doubled.wait()
42
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from rushlight import device as _device
from rushlight._interface.base import free_after_fork

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")

_log = logging.getLogger(__name__)


def _check_devices(devices: Any) -> None:
    """Only accelerators are named for a future, and there is none."""
    for device in devices or ():
        if not isinstance(device, int) and _device(device).type == "cpu":
            raise ValueError(f"Expected devices to have indices, got {device}")
        raise RuntimeError(f"Future: devices={list(devices)!r} names an accelerator, and none is available")


class Future(Generic[T]):
    """A result that is set once, by `set_result` or `set_exception`, and can be awaited by any number of threads.

    >>> future = torch.futures.Future()
    >>> future.done()
    False
    >>> future.set_result(5)
    >>> future.wait()
    5
    """

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        _check_devices(devices)
        self._completed = threading.Condition(free_after_fork(threading.RLock()))
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def done(self) -> bool:
        """Whether there is a result or an exception."""
        return self._done

    def wait(self) -> T:
        """Block until the future is done; its result, or its exception raised."""
        with self._completed:
            self._completed.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> T:
        """The result of a future that is done, or its exception raised; RuntimeError while it is not done."""
        if not self._done:
            raise RuntimeError("Future.value(): the future is not completed; wait() blocks until it is")
        if self._error is not None:
            raise self._error
        return self._value

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of `callback(self)`, which runs when this one is done: at once if it is already.

        Where the callback raises, the new future holds a RuntimeError that names the error.
        """
        if not callable(callback):
            raise TypeError(f"Future.then(): expected callback to be a function of a Future, found {type(callback)}")
        following: Future[S] = Future()

        def run(finished: Future[T]) -> None:
            try:
                result = callback(finished)
            except Exception as error:
                following.set_exception(_callback_error(error))
            else:
                following.set_result(result)

        self._when_done(run)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Run `callback(self)` when this future is done: at once if it is already.  What it raises is logged and lost."""
        if not callable(callback):
            raise TypeError(
                f"Future.add_done_callback(): expected callback to be a function of a Future, found {type(callback)}"
            )

        def run(finished: Future[T]) -> None:
            try:
                callback(finished)
            except Exception as error:
                _log.error("%s", _callback_error(error))

        self._when_done(run)

    def set_result(self, result: T) -> None:
        """Complete the future with a result; RuntimeError if it is complete."""
        self._complete(result, None)

    def set_exception(self, result: Any) -> None:
        """Complete the future with an exception, which `wait` and `value` then raise; RuntimeError if it is complete."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(None, result)

    def _complete(self, value: Any, error: Exception | None) -> None:
        with self._completed:
            if self._done:
                raise RuntimeError(
                    "Attempting to mark a completed Future as complete again. Note that a Future can only be marked completed once."
                )
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._completed.notify_all()
        for run in callbacks:
            run(self)

    def _when_done(self, run: Callable[[Future[T]], None]) -> None:
        with self._completed:
            if not self._done:
                self._callbacks.append(run)
                return
        run(self)


def _callback_error(error: Exception) -> RuntimeError:
    wrapped = RuntimeError(f"Got the following error when running the callback: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _checked(name: str, futures: Any) -> list[Future[Any]]:
    if not isinstance(futures, Sequence) or not all(isinstance(f, Future) for f in futures):
        raise TypeError(f"{name}(): expected futures to be a sequence of Future, found {futures!r}")
    return list(futures)


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list of `futures`, done when all of them are; one that failed makes it fail with the same
    exception.

    >>> first, second = torch.futures.Future(), torch.futures.Future()
    >>> both = torch.futures.collect_all([first, second])
    >>> first.set_result(1)
    >>> second.set_result(2)
    >>> [future.value() for future in both.wait()]
    [1, 2]
    """
    waited = _checked("collect_all", futures)
    together: Future[list[Future[Any]]] = Future()
    lock, left = free_after_fork(threading.RLock()), [len(waited)]

    def one_done(_: Future[Any]) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            _settle(together, waited)

    if not waited:
        together.set_result([])
    for future in waited:
        future._when_done(one_done)
    return together


def _settle(together: Future[list[Future[Any]]], waited: list[Future[Any]]) -> None:
    failed = next((f._error for f in waited if f._error is not None), None)
    if failed is None:
        together.set_result(waited)
    else:
        together.set_exception(failed)


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The results of all `futures`, awaited; the exception of the first that fails, without waiting for the others.

    >>> future = torch.futures.Future()
    >>> future.set_result("here")
    >>> torch.futures.wait_all([future])
    ['here']
    """
    waited = _checked("wait_all", futures)
    changed = threading.Condition(free_after_fork(threading.RLock()))
    finished: list[Future[Any]] = []

    def one_done(future: Future[Any]) -> None:
        with changed:
            finished.append(future)
            changed.notify_all()

    for future in waited:
        future._when_done(one_done)
    with changed:
        changed.wait_for(lambda: len(finished) == len(waited) or any(f._error is not None for f in finished))
        failed = next((f for f in finished if f._error is not None), None)
    return [f.value() for f in waited] if failed is None else [failed.value()]
