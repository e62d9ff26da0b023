"""What compiled functions must share with eager beside their results: lives of objects, warnings and their lines, order."""

from __future__ import annotations

import copy
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch


def outcome(function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """Result or exception of a call, and its warnings with their lines."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found: Any = function(*copy.deepcopy(args))
        except Exception as error:
            found = type(error).__name__, str(error)
    found = found.tolist() if isinstance(found, torch.Tensor) else found
    return found, [(w.category, str(w.message), w.filename, w.lineno) for w in caught]


def alike(make: Callable[[], Callable[..., Any]], *args: Any) -> None:
    """Require that three calls of what `make` gives do the same eagerly and compiled."""
    eager, compiled = make(), torch.compile(make())
    for _ in range(3):
        assert outcome(compiled, *args) == outcome(eager, *args)


def test_a_suspended_generator_is_closed_when_the_loop_raises() -> None:
    def make() -> Callable[..., Any]:
        log: list[Any] = []

        def count(n):
            try:
                yield from range(n)
            finally:
                log.append("closed")

        def go(x):
            log.append("began")
            try:
                for i in count(3):
                    print(end="")
                    log.append(i)
                    [][i]
            except IndexError:
                log.append("caught")
            a = [next(count(2), print(end="")), missing]  # noqa: F821 - the error is what is tested
            return a, x

        def run(x):
            try:
                return go(x)
            except NameError:
                return [*log]

        return run

    alike(make, torch.ones(2))


def test_objects_that_tell_of_their_end() -> None:
    def make() -> Callable[..., Any]:
        log: list[str] = []

        class Ending:
            def __del__(self):
                log.append("ended")

        def go(x):
            ending = Ending()
            x = x + 1
            del ending
            log.append("after")
            seen = types.SimpleNamespace(value=3)
            held = weakref.ref(seen)
            alive = held() is seen
            del seen
            return [*log], alive, held() is None, (x * 2).tolist()

        return go

    alike(make, torch.ones(2))


def test_what_is_written_to_objects_in_c() -> None:
    def make() -> Callable[..., Any]:
        held = types.SimpleNamespace(count=1)

        def go(x):
            held.count += 1
            held.last = x
            made = types.SimpleNamespace(value=held.count, of=x)
            return (made.of * made.value).tolist(), held.last is x

        return go

    alike(make, torch.ones(2))


def test_items_appended_before_and_after_a_list_is_looked_at() -> None:
    def make() -> Callable[..., Any]:
        def go(x, items):
            items.append(items[-1])
            items.append(len(items))
            return [*items], x

        return go

    alike(make, 1, [1, 2])


def test_warnings_of_native_code_and_of_the_program() -> None:
    def make() -> Callable[..., Any]:
        def go(x, w):
            warnings.warn("own", stacklevel=1)
            y = torch.nn.functional.softmax(x)
            z = (w * 2).grad
            print(end="")
            return torch.nn.functional.softmax(x + y) if z is None else y

        return go

    alike(make, torch.ones(2), torch.ones(2, requires_grad=True))
    eager, compiled = make(), torch.compile(make())
    counts = []
    for function in (eager, compiled):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")  # once for each line
            globals().pop("__warningregistry__", None)
            for _ in range(3):
                function(torch.ones(2), torch.ones(2, requires_grad=True))
        counts.append([str(w.message)[:20] for w in caught])
    assert counts[0] == counts[1]
    for function in (eager, compiled):
        with warnings.catch_warnings(), pytest.raises(UserWarning, match="own"):
            warnings.simplefilter("error")
            function(torch.ones(2), torch.ones(2, requires_grad=True))
