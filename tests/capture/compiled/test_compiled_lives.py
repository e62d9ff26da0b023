"""Compiled functions over time: threads, leaks, loops with many breaks, limits."""

from __future__ import annotations

import contextlib
import gc
import io
import threading
import warnings
import weakref
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import COUNTERS, CompileSettings, compile_function
from rushlight._capture.trace.tracer import Tracer


def test_threads_compile_once() -> None:
    def go(x):
        return torch.relu(x) * 3 + 1

    before, results, x = COUNTERS["stats"]["unique_graphs"], [], torch.arange(4.0)
    compiled = compile_function(go)
    barrier = threading.Barrier(4)

    def run() -> None:
        barrier.wait()
        results.append(compiled(x))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(r, go(x)) for r in results) and len(results) == 4
    assert COUNTERS["stats"]["unique_graphs"] == before + 1 and len(compiled.entry.segments) == 1


def test_other_threads_see_nothing_of_a_trace() -> None:
    inside, go_on = threading.Event(), threading.Event()
    found: list[Any] = []

    def elsewhere() -> None:
        inside.wait(10)
        found.append(torch.ones(3) + 1)
        go_on.set()

    def wait() -> int:
        inside.set()
        go_on.wait(10)
        return 2

    from rushlight._capture.trace import HOOKS

    thread = threading.Thread(target=elsewhere)
    thread.start()
    HOOKS.leaves[id(wait)] = wait
    try:
        assert compile_function(lambda x: x * wait())(torch.ones(2)).tolist() == [2, 2]
    finally:
        del HOOKS.leaves[id(wait)]
        thread.join()
    assert found[0].tolist() == [2, 2, 2]


def test_loops_with_many_breaks() -> None:
    def go(x):
        seen = []
        for _ in range(300):
            x = x + 1
            seen.append(float(x[0]))
        return x, seen

    compiled = compile_function(go, CompileSettings(suppress_errors=False))
    x, seen = compiled(torch.zeros(2))
    assert x.tolist() == [300, 300] and seen == [float(i + 1) for i in range(300)]


def test_a_limit_of_segments() -> None:
    compiled = compile_function(
        lambda x, n: x * n if n * n < 100 else x, CompileSettings(recompile_limit=3, own_limit=True)
    )
    x = torch.ones(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(6):
            assert compiled(x, n).tolist() == [n, n]
    assert len(compiled.entry.segments) == 3 and [w.category for w in caught] == [RuntimeWarning]
    assert "s[1]" not in str(caught[0].message) or "was compiled 3 times" in str(caught[0].message)


def test_compiled_functions_go_away() -> None:
    class Big:
        pass

    def make() -> Any:
        big = Big()
        big.x = torch.ones(3)  # type: ignore[attr-defined]
        compiled = compile_function(lambda x: x + big.x)  # type: ignore[attr-defined]
        compiled(torch.ones(3))
        return weakref.ref(big), weakref.ref(compiled)

    refs = [make() for _ in range(3)]
    gc.collect()
    assert all(r() is None for pair in refs for r in pair)


def test_arguments_are_not_kept() -> None:
    compiled = compile_function(lambda x, y: x + y)
    x = torch.ones(1000)
    ref = weakref.ref(x)
    compiled(x, torch.ones(1000))
    del x
    gc.collect()
    assert ref() is None


def test_versions_that_were_not_tested(monkeypatch: Any) -> None:
    from rushlight._capture.trace.segments import compiled as room

    monkeypatch.setattr(room, "supported", lambda: False)
    monkeypatch.setattr(room, "_VERSION_TOLD", [])
    functions = [compile_function(lambda x: x + 1) for _ in range(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [f(torch.ones(1)).item() for f in functions * 2] == [2.0] * 4
    assert len(caught) == 1 and "run as they are" in str(caught[0].message) and not functions[0].entry.segments


def test_new_sizes_have_a_limit_of_their_own() -> None:
    compiled = compile_function(lambda x, y: x * 2 + y, CompileSettings(recompile_limit=2, fullgraph=True))
    for size in range(2, 14):
        assert compiled(torch.ones(size), 1).tolist() == [3.0] * size
    assert len(compiled.entry.segments) == 12
    assert compiled(torch.ones(2), 2).tolist() == [4.0, 4.0] and len(compiled.entry.segments) == 13


def test_numbers_that_are_only_compared_are_no_reason_to_compile_again() -> None:
    def scaled(x, factor):
        return x * factor if factor != 0 and 0.5 <= factor else x - 1

    compiled = compile_function(scaled)
    x = torch.ones(2)
    for factor in (1.0, 2.0, 3.5, 0.75, 0.25, 0.0, 0.1, 4.0, 0.0):
        assert compiled(x, factor).tolist() == scaled(x, factor).tolist()
    assert len(compiled.entry.segments) == 4  # the first value, and one for each way


class Held:
    """Something that tells by a weak reference whether it is alive."""


def _fails(held: Held, x: torch.Tensor, n: int) -> torch.Tensor:
    y = x * n
    return y.view(n + 1000)  # an error, whatever the sizes are


def _fails_behind_a_break(held: Held, x: torch.Tensor, n: int) -> torch.Tensor:
    torch._dynamo.graph_break()
    return _fails(held, x, n)


def _fails_in_a_broken_instruction(held: Held, x: torch.Tensor, n: int) -> torch.Tensor:
    y = x * n
    return y + int("no number")


def _cannot_be_one_graph(held: Held, x: torch.Tensor, n: int) -> torch.Tensor:
    y = x * n
    print(y)
    return y


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    "function", [_fails, _fails_behind_a_break, _fails_in_a_broken_instruction, _cannot_be_one_graph]
)
def test_errors_keep_nothing_alive(function: Any, fullgraph: bool) -> None:
    """An exception whose frames hold it would live, with all that they hold, until the collector comes."""
    compiled = torch.compile(function, fullgraph=fullgraph)
    for n in (3, 4, 5):
        held, x = Held(), torch.ones(4)
        found = weakref.ref(held)
        gc.collect()
        gc.disable()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                compiled(held, x, n)
        except (RuntimeError, ValueError) as error:
            context = error.__context__ is not None
            assert fullgraph or not context
        del held
        try:
            assert found() is None
        finally:
            gc.enable()


def test_a_function_that_broke_keeps_nothing_alive() -> None:
    def function(held: Held, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled = torch.compile(function)
    for _ in range(3):
        held = Held()
        found = weakref.ref(held)
        compiled(held, torch.ones(2))
        del held
        assert found() is None


LOG: list[str] = []


def _steps() -> Any:
    try:
        yield 1
        yield 2
    finally:
        LOG.append("closed")


class Ending:
    """Something that is heard of when it is let go of."""

    def __del__(self) -> None:
        LOG.append("ended")


def _note(text: str) -> None:
    torch._dynamo.graph_break()
    LOG.append(text)


def _begun() -> Any:
    steps = _steps()
    next(steps)
    return steps


def _held_by_a_list(x: Any) -> Any:
    box = [_begun()]
    _note("behind")
    return x + 1, len(box) if x is None else 0


def _held_by_an_object(x: Any) -> Any:
    held = Held()
    held.steps = {"steps": [_begun()]}  # type: ignore[attr-defined]
    _note("behind")
    return x + 1


def _keeping(value: Any) -> Any:
    return lambda: value


def _held_by_a_function(x: Any) -> Any:
    _keep = _keeping(_begun())
    _note("behind")
    return x + 1


def _held_by_an_iterator(x: Any) -> Any:
    _pairs = zip(_begun(), (3, 4), strict=False)
    _note("behind")
    return x + 1


def _an_object_in_a_list(x: Any) -> Any:
    _box = [Ending()]
    _note("behind")
    return x + 1


def _raises(make: Any) -> None:
    box = [make()]
    raise KeyError(f"{len(box)}")


def _held_by_a_traceback(x: Any) -> Any:
    try:
        _raises(_begun)
    except KeyError:
        _note("in the handler")
    _note("behind")
    return x + 1


def _an_object_in_a_traceback(x: Any) -> Any:
    try:
        _raises(Ending)
    except KeyError:
        _note("in the handler")
    _note("behind")
    return x + 1


def _in_a_traceback_that_leaves(x: Any) -> Any:
    x = x + 1
    try:
        _raises(_begun)
    finally:
        x = x * 2
        LOG.append("finally")
    return x


@pytest.mark.parametrize(
    "function",
    [
        _held_by_a_list, _held_by_an_object, _held_by_a_function, _held_by_an_iterator, _an_object_in_a_list, _held_by_a_traceback,
        _an_object_in_a_traceback, _in_a_traceback_that_leaves,
    ],
)  # fmt: skip
def test_what_frames_hold_is_let_go_of_when_they_end(function: Any) -> None:
    """A generator that waits is closed, and an object with a `__del__` is told, where they are eagerly."""
    seen = []
    for call in (function, torch.compile(function)):
        LOG.clear()
        try:
            call(torch.ones(2))
        except KeyError as error:
            LOG.append(f"raised {error}")
        seen.append([*LOG])
    assert seen[1] == seen[0] and {"closed", "ended"} & set(seen[0])


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("breaks", [True, False])
def test_the_collector_of_cycles_is_as_it_was_behind_a_trace(collects: bool, breaks: bool) -> None:
    """It is held off while a program is made, and only then: what runs between two programs finds it as the caller does."""
    seen = []

    def go(x: Any) -> Any:
        y = x + 1
        if breaks:
            seen.append(gc.isenabled())
        return y * 2

    try:
        gc.enable() if collects else gc.disable()
        assert torch.compile(go)(torch.ones(2)).tolist() == [4.0, 4.0]
        assert gc.isenabled() is collects and seen == [collects] * breaks
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_ctrl_c_in_the_tracer_is_no_failure_of_it(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame that Ctrl-C ends is mostly one of the tracer: it must leave the call, and the next call compiles."""

    def function(x: Any) -> Any:
        return torch.sin(x) + 1

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    compiled, x = torch.compile(function, backend=backend), torch.ones(3)
    monkeypatch.setattr(Tracer, "load_global", interrupted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
        monkeypatch.undo()
        assert torch.equal(compiled(x), function(x))


def test_interrupts_that_a_program_raises_are_its_own() -> None:
    def caught(x: Any) -> Any:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            return x + 1

    def leaves(x: Any) -> Any:
        raise KeyboardInterrupt(f"{x.shape[0]}")

    x = torch.ones(2)
    assert torch.equal(torch.compile(caught, fullgraph=True)(x), x + 1)
    with pytest.raises(KeyboardInterrupt, match="2"):
        torch.compile(leaves)(x)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_class_of_a_function_is_not_kept(backend: str) -> None:
    """What the compiler knows of a class holds neither it nor what its methods close over."""

    def run() -> Any:
        layer = torch.nn.Linear(2, 2)

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.slotted = Slotted()

            def forward(self, x: Any) -> Any:
                return layer(x) * self.slotted.factor

        class Slotted:
            __slots__ = ("factor",)

            def __init__(self) -> None:
                self.factor = 2.0

            def __eq__(self, other: object) -> bool:
                return self is other

            __hash__ = object.__hash__

        torch.compile(Net(), backend=backend)(torch.ones(1, 2))
        return weakref.ref(layer)

    held = run()
    gc.collect()
    assert held() is None
