"""The interpreter of bytecode against CPython: results, exceptions, tracebacks, output and warnings of small functions; every opcode."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest
from tests.capture.bytecode import bytecode_corpus
from tests.capture.bytecode.bytecode_elsewhere import CASES, modules, not_covered, run_module, without_a_handler
from tests.capture.bytecode.interpreted import handled, interpret, outcome

from rushlight._capture.bytecode import NULL, Enter, Frame, Generator, Interpreter, Interrupt, Operations
from rushlight._capture.bytecode.inline import Inlining
from rushlight._capture.bytecode.versions import COMPILED, TESTED, interpreted

pytestmark = pytest.mark.skipif(not interpreted(), reason="no tested table of opcodes for this version of Python")
ROOT = Path(__file__).resolve().parents[3]

# ***** as CPython *****


@pytest.mark.parametrize("name", CASES)
def test_everything_that_is_called_is_interpreted(name: str) -> None:
    function = getattr(bytecode_corpus, name)
    assert outcome(lambda: interpret(function)) == outcome(function)


@pytest.mark.parametrize("name", CASES)
def test_only_the_function_itself_is_interpreted(name: str) -> None:
    function = getattr(bytecode_corpus, name)
    assert outcome(lambda: interpret(function, operations=Operations())) == outcome(function)


@pytest.mark.parametrize("name", CASES)
def test_under_a_handler(name: str) -> None:
    function = getattr(bytecode_corpus, name)
    assert outcome(lambda: handled(lambda: interpret(function))) == outcome(lambda: handled(function))


@pytest.mark.parametrize("text", modules())
def test_modules(text: str) -> None:
    assert outcome(lambda: run_module(text, True)) == outcome(lambda: run_module(text, False))


def test_every_opcode_has_a_handler_or_a_reason() -> None:
    assert without_a_handler() == set()


def test_the_corpus_goes_through_every_opcode() -> None:
    assert not_covered() == set()


def others() -> Iterator[Path]:
    """One interpreter of each other version that was tested and is installed."""
    roots = [Path.home() / ".pyenv" / "versions", Path("/opt/python"), Path("/usr/local"), Path("/usr")]
    for major, minor in TESTED:
        if (major, minor) == sys.version_info[:2]:
            continue
        found = [path for root in roots for path in sorted(root.glob(f"{major}.{minor}*/bin/python"))]
        found += [root / "bin" / f"python{major}.{minor}" for root in roots]
        yield from [path for path in found if path.exists()][:1]


@pytest.mark.parametrize("python", list(others()), ids=lambda path: path.parents[1].name)
def test_other_versions_that_are_installed(python: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(python), "-m", "tests.capture.bytecode.bytecode_elsewhere"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_what_is_compiled_was_interpreted_first() -> None:
    assert set(COMPILED) <= set(TESTED)


# ***** frames *****


def start(function: Any, *args: Any) -> Interpreter:
    it = Interpreter(Inlining())
    it.push_call(function, args, {})
    return it


def step_to(it: Interpreter, opname: str) -> Frame:
    while it.frames[-1].decoded.opnames[it.frames[-1].ip] != opname:
        it.step()
    return it.frames[-1]


def test_frames_are_where_the_program_is() -> None:
    def inner(x: int) -> int:
        y = x + 1
        return y * 2

    def outer(a: int) -> int:
        b = inner(a)
        return b + a

    it = start(outer, 3)
    frame = step_to(it, "BINARY_OP")
    assert [f.code.co_name for f in it.frames] == ["outer", "inner"]
    assert frame.stack[-2:] == [3, 1] and frame.locals == [3, NULL] and frame.function is inner
    assert frame.line == inner.__code__.co_firstlineno + 1 and it.frames[0].line == outer.__code__.co_firstlineno + 1
    assert it.run() == 11 and it.finished and not it.frames


def test_a_copy_goes_on_by_itself() -> None:
    def function(x: int) -> tuple[int, ...]:
        found: tuple[int, ...] = ()
        while x < 4:
            x += 1
            found += (x,)
        return found

    it = start(function, 1)
    step_to(it, "BUILD_TUPLE")
    copied = it.frames[-1].copy()
    assert it.run() == (2, 3, 4)
    for frame in (copied.copy(), copied):
        it.frames, it.finished = [frame], False
        assert it.run() == (2, 3, 4)


def test_live_locals() -> None:
    def function(a: int, b: int, c: int) -> Any:
        d = a + 1
        try:
            e = d + b
        except ValueError:
            return c
        return lambda: e

    it = start(function, 1, 2, 3)
    frame = it.frames[0]
    names = frame.decoded.local_names
    live = [{names[i] for i in frame.live_locals()}]
    while not it.finished:
        line = frame.line
        it.step()
        if not it.finished and frame.line != line:
            live.append({names[i] for i in frame.live_locals()})
    assert live[0] >= {"a", "b", "c"} and "d" not in live[0]
    before_try = next(found for found in live if "d" in found)
    assert before_try >= {"b", "c", "d"} and "a" not in before_try
    assert "c" not in live[-1] and "b" not in live[-1]


def test_all_locals_live_where_frames_are_looked_at() -> None:
    def function(a: int, b: int) -> Any:
        del b
        return locals()

    frame = start(function, 1, 2).frames[0]
    assert len(frame.live_locals()) == 2


def test_an_interrupt_leaves_every_frame_in_its_place() -> None:
    class Stop(Interrupt):
        pass

    class Stopping(Inlining):
        def load_global(self, frame: Any, name: str) -> Any:
            if name == "sorted":
                raise Stop
            return super().load_global(frame, name)

    seen = []

    def inner() -> Any:
        try:
            return sorted([2, 1])
        except BaseException:
            seen.append("handled")
        finally:
            seen.append("finally")

    def outer() -> Any:
        return inner()

    it = Interpreter(Stopping())
    it.push_call(outer, (), {})
    with pytest.raises(Stop):
        it.run()
    assert not seen and [f.code.co_name for f in it.frames] == ["outer", "inner"]
    it.frames[-1].ip -= 1
    it.operations = Operations()
    assert it.run() == [1, 2] and seen == ["finally"]


def test_what_an_enter_asks_for() -> None:
    def two() -> int:
        return 2

    def fails() -> int:
        raise KeyError("x")

    class Entering(Operations):
        def call(self, function: Any, args: Any, kwargs: Any) -> Any:
            if function == "then":
                return Enter(two, then=lambda value: value + 1)
            if function == "again":
                return Enter(two, then=lambda value: Enter(two, then=lambda other: value * 10 + other))
            if function == "caught":
                return Enter(fails, caught=lambda error: str(error))
            return super().call(function, args, kwargs)

    def function(a: Any, b: Any, c: Any) -> Any:
        return a(), b(), c()

    it = Interpreter(Entering())
    it.push_call(function, ("then", "again", "caught"), {})
    assert it.run() == (3, 22, "'x'")


def test_an_exception_says_where_it_was_raised() -> None:
    def inner() -> None:
        raise KeyError("k")

    def outer() -> None:
        inner()

    it = start(outer)
    with pytest.raises(KeyError) as found:
        it.run()
    assert not it.frames
    text = "".join(traceback.format_exception(found.value))
    assert "in outer\n    inner()" in text and 'in inner\n    raise KeyError("k")' in text


def test_arguments_that_do_not_fit_are_refused_before_a_frame_is_pushed() -> None:
    it = Interpreter(Operations())
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'"):
        it.push_call(lambda x: x, (), {})
    assert not it.frames


# ***** generators that native code drives *****


def test_a_generator_for_native_code() -> None:
    def numbers(n: int) -> Any:
        got = 0
        for i in range(n):
            got = yield i + (got or 0)
        return "end"

    made = interpret(numbers, 4)
    assert type(made) is Generator and isinstance(made, GeneratorType)
    assert [next(made), made.send(5), *made] == [0, 6, 2, 3]
    assert (
        list(zip(interpret(numbers, 2), "ab", strict=True)) == [(0, "a"), (1, "b")] and sum(interpret(numbers, 5)) == 10
    )


def test_a_generator_is_closed_when_nobody_holds_it() -> None:
    seen = []

    def held() -> Any:
        try:
            yield 1
        finally:
            seen.append("closed")

    made = interpret(held)
    next(made)
    gone = weakref.ref(made)
    del made
    assert gone() is None and seen == ["closed"]


def test_an_exception_does_not_hold_itself() -> None:
    class Large:
        pass

    def fails() -> None:
        large = Large()
        gone.append(weakref.ref(large))
        raise KeyError(1)

    gone: list[Any] = []
    gc.disable()
    try:
        with contextlib.suppress(KeyError):
            interpret(fails)
        assert gone[0]() is None
    finally:
        gc.enable()


def test_a_decoded_code_object_does_not_outlive_it() -> None:
    space: dict[str, Any] = {}
    exec("def function(x): return [i for i in range(x)]", space)  # noqa: S102
    function = space.pop("function")
    assert interpret(function, 3) == [0, 1, 2]
    gone = weakref.ref(function.__code__)
    del function
    assert gone() is None
