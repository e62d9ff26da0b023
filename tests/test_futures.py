"""Futures: one result, any number of waiting threads, callbacks."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import rushlight
from rushlight.futures import Future, collect_all, wait_all


def test_a_result_reaches_a_waiting_thread() -> None:
    future: Future[Any] = Future()
    go = threading.Event()
    other = threading.Thread(target=lambda: go.wait(60) and future.set_result(rushlight.ones(2) * 3))
    other.start()
    assert not future.done()
    go.set()
    assert future.wait().tolist() == [3.0, 3.0] and future.done()
    other.join()


def test_many_threads_wait_for_one() -> None:
    future: Future[int] = Future()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(future.wait())) for _ in range(8)]
    for thread in threads:
        thread.start()
    future.set_result(7)
    for thread in threads:
        thread.join(60)
    assert found == [7] * 8


def test_a_chain_of_callbacks() -> None:
    future: Future[int] = Future()
    seen: list[Any] = []
    future.add_done_callback(lambda done: seen.append(done.value()))
    last = future.then(lambda done: done.value() + 1).then(lambda done: done.value() * 10)
    assert not last.done()
    future.set_result(1)
    assert last.wait() == 20 and seen == [1]
    future.add_done_callback(lambda done: seen.append("at once"))
    assert seen == [1, "at once"]


def test_an_exception_is_raised_by_wait_and_value() -> None:
    future: Future[int] = Future()
    future.set_exception(ValueError("no"))
    assert future.done()
    for ask in (future.wait, future.value):
        with pytest.raises(ValueError, match="^no$"):
            ask()


def test_an_error_in_a_callback(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()
    following = future.then(lambda done: 1 // 0)
    with caplog.at_level(logging.ERROR):
        future.add_done_callback(lambda done: 1 // 0)
        future.set_result(1)
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(RuntimeError, match="Got the following error when running the callback: ZeroDivisionError"):
        following.wait()


def test_collecting_waits_for_all_and_keeps_the_first_error() -> None:
    first, second = Future(), Future()
    both = collect_all([first, second])
    first.set_exception(ValueError("first"))
    assert not both.done()
    second.set_result(1)
    with pytest.raises(ValueError, match="first"):
        both.wait()
    assert collect_all([]).wait() == []


def test_waiting_for_all_stops_at_the_first_error() -> None:
    never, failing = Future(), Future()
    timer = threading.Timer(0.02, lambda: failing.set_exception(KeyError("k")))
    timer.start()
    with pytest.raises(KeyError):
        wait_all([never, failing])
    timer.join()
    first, second = Future(), Future()
    second.set_result(2)
    first.set_result(1)
    assert wait_all([first, second]) == [1, 2] and wait_all([]) == []


def _twice(t: Any) -> Any:
    future = t.futures.Future()
    future.set_exception(ValueError("one"))
    future.set_result(2)


def _then_raised(t: Any) -> Any:
    future = t.futures.Future()
    following = future.then(lambda done: [].pop())
    future.set_result(1)
    return following.wait()


CALLS = [
    _twice,
    _then_raised,
    lambda t: t.futures.Future().set_exception(3),
    lambda t: t.futures.Future().set_exception(ValueError),
    lambda t: t.futures.Future(devices=["cpu"]),
    lambda t: t.futures.Future(1),
]
CLASSES = [
    lambda t: t.futures.Future().then(3),
    lambda t: t.futures.Future().value(),
    lambda t: t.futures.Future(devices=["cuda:0"]),
    lambda t: t.futures.Future(devices=[0]),
    lambda t: t.futures.collect_all([1]),
    lambda t: t.futures.wait_all(3),
]


@pytest.mark.oracle
def test_errors_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")

    def error(call: Any, t: Any) -> tuple[type, str]:
        with pytest.raises(Exception) as caught:
            call(t)
        return caught.type, str(caught.value).split("\n")[0]

    for call in CALLS:
        assert error(call, rushlight) == error(call, torch)
    for call in CLASSES:
        assert issubclass(error(call, rushlight)[0], error(call, torch)[0])


def test_the_name_at_the_top() -> None:
    assert rushlight.Future is Future
