"""What compiled functions must share with eager beside their results: lives of objects, warnings and their lines, order."""

from __future__ import annotations

import copy
import re
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import CompileSettings, compile_function, tracer
from rushlight._capture.trace.reports import events


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


def test_frames_that_wait_hold_nothing_of_the_call_that_was_traced() -> None:
    def count(log: list[Any]) -> Any:
        try:
            yield 1
        finally:
            log.append("closed")

    def fail() -> None:
        raise ValueError("after the break")

    def run(x: torch.Tensor, log: list[Any]) -> None:
        waiting = count(log)
        next(waiting)
        try:
            log.append(x.unique().numel())  # a break: how many there are depends on the elements
            str([fail() for _ in range(2)])
        except LookupError:
            pass

    compiled = torch.compile(run)
    for _ in range(3):
        log: list[Any] = []
        with pytest.raises(ValueError, match="after the break"):
            compiled(torch.ones(2), log)
        assert log == [1, "closed"]


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


def test_gradients_through_a_history_from_before_a_break() -> None:
    def go(u, v):
        u -= v * 0.5
        print(end="")
        w = u * 2
        found = torch.autograd.grad((w * u).sum(), v, retain_graph=True, allow_unused=True)[0]
        return found.tolist(), u.grad_fn is None

    def make_leaf(u, v):
        leaf = (u * 2).detach().requires_grad_()
        loss = (leaf * v).sum()
        print(end="")
        loss.backward()
        return leaf.grad.tolist()

    def change(u, v):
        u *= v
        print(end="")
        return torch.autograd.grad((u * v).sum(), v)[0].tolist()

    def late(u, v):
        w = v * 2
        y = w * w
        w.add_(1)
        return y.sum().backward()

    for function in (go, make_leaf, change, late):
        found = []
        for called in (function, torch.compile(function)):
            u, v = torch.arange(3.0), torch.arange(3.0).requires_grad_()
            found.append([*outcome(called, u, v)][0])
        assert found[0] == found[1] and (function is not late or found[0][0] == "RuntimeError"), function


def test_numbers_that_change_from_call_to_call() -> None:
    def go(x, n):
        seen = []
        for attempt in (lambda: n | 3, lambda: 5 // n, lambda: n / 0, lambda: ~n, lambda: n.bit_length(), lambda: n.no):
            try:
                seen.append(attempt())
            except (ArithmeticError, TypeError, AttributeError) as error:
                seen.append(str(error))
        return (x * n).tolist(), seen

    def keys(x, n):
        try:
            return dict.fromkeys([n], x), {n for _ in x}
        finally:
            print(end="")

    compiled, other = torch.compile(go), torch.compile(keys)
    for n in (3, 4, 0, 5):
        assert compiled(torch.ones(1), n) == go(torch.ones(1), n)
        assert other([1], n) == keys([1], n)


def test_values_that_cannot_be_made_anew_end_the_trace_before_them() -> None:
    def go(x, d):
        found = re.match(r"(\d+)", "12a")
        items = d.items()
        print(end="")
        return x * int(found.group(1)), [k for k, _ in items]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.compile(go)(2, {"a": 1}) == go(2, {"a": 1})


def test_memory_written_in_place_is_read_before() -> None:
    def go(u, v):
        u *= 0.5
        loss = (torch.cat([torch.ones(1, 4), v[1:]]) * (u * 2)).sum()  # one kernel reads rows of `u` under a condition
        return torch.autograd.grad(loss, v)[0].tolist()

    found = []
    for called in (go, torch.compile(go)):
        found.append(called(torch.arange(12.0).reshape(3, 4), torch.ones(3, 4, requires_grad=True)))
    assert found[0] == found[1]


def test_errors_of_the_tracer_are_no_errors_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def unary(self, op, value):
        return self.no_such_thing

    monkeypatch.setattr(tracer.Tracer, "unary", types.FunctionType(unary.__code__, vars(tracer)))
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(events, "EVENTS", [lambda kind, text, details: told.append((kind, str(text)))])

    shift = torch.ones(2)

    def go(x, *more, by=3, **named):
        y = torch.sin(x + shift)
        for i in range(3):
            y = y * i + shift
        try:
            x = -(x + y * 0)
        except AttributeError:  # the program's own handler must not see it
            x = x * 0
        return x * by

    compiled = torch.compile(go)
    with pytest.warns(RuntimeWarning, match="go runs as it is: AttributeError: 'Tracer' object") as said:
        for _ in range(4):
            assert compiled(torch.ones(2), 1, by=2, k=[torch.ones(1)]).tolist() == [-2, -2]
    assert len(said) == 1
    (text, *_) = [text for kind, text in told if kind == "reproduction"]
    assert "in test_errors_of_the_tracer" in text
    shown = text.split("import warnings")[1]
    assert "-x" in shown
    assert not any(word in shown for word in (".no_such_thing", "range", "sin", "shift", "try"))
    with warnings.catch_warnings(), pytest.raises(RuntimeWarning, match="go runs as it is"):
        exec(compile(text, "<reproduction>", "exec"), {})  # noqa: S102 - the text is a program
    with pytest.raises(AttributeError, match="no_such_thing"):
        compile_function(go, CompileSettings(suppress_errors=False))(torch.ones(2))


def test_a_break_among_the_arguments_of_a_method_of_an_object_dictionary() -> None:
    class Held: ...

    held = Held()

    def asked() -> str:
        torch._dynamo.graph_break()
        return "name"

    def function() -> Any:
        held.__dict__.setdefault(asked(), 3)
        method = held.__dict__.pop
        return method(asked())

    assert function() == torch.compile(function)() == 3
    assert not held.__dict__


def test_a_length_that_changes_from_call_to_call_may_be_negative() -> None:
    class Sized:
        def __init__(self, n: int) -> None:
            self.n = n

        def __len__(self) -> int:
            return self.n

    compiled = torch.compile(lambda x, n: x + len(Sized(3 - n)))
    for n in range(4):
        assert compiled(torch.zeros(1), n).item() == 3 - n
    with pytest.raises(ValueError, match="should return >= 0"):
        compiled(torch.zeros(1), 4)
