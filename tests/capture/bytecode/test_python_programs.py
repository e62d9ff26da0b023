"""Random programs in Python: interpreted and compiled they give, raise, print and leave behind what they do as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.capture.bytecode.interpreted import interpret
from tests.python_programs import run, shorten, write

import rushlight
from rushlight._capture.bytecode.versions import interpreted, supported

pytestmark = pytest.mark.skipif(not interpreted(), reason="no tested table of opcodes for this version of Python")


def as_it_is(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def compiler() -> Callable[..., Any]:
    made: dict[Any, Any] = {}

    def execute(function: Callable[..., Any], *arguments: Any) -> Any:
        if function not in made:
            made[function] = rushlight.compile(function)
        return made[function](*arguments)

    return execute


@pytest.mark.parametrize("seed", range(0, 150, 10))
def test_interpreted(seed: int) -> None:
    for number in range(seed, seed + 10):
        program = write(number)
        assert run(program, interpret) == run(program, as_it_is), program.source()


@pytest.mark.parametrize("seed", range(2))
def test_interpreted_with_tensors(seed: int) -> None:
    for number in range(8 * seed, 8 * seed + 8):
        program = write(number, tensors=True)
        assert run(program, interpret) == run(program, as_it_is), program.source()


@pytest.mark.skipif(not supported(), reason="functions are not compiled on this version of Python")
@pytest.mark.parametrize("seed", range(0, 48, 8))
def test_compiled(seed: int) -> None:
    for number in range(seed, seed + 8):
        program = write(number)
        assert run(program, compiler(), 3) == run(program, as_it_is, 3), program.source()


def test_a_difference_is_made_short() -> None:
    """A program that differs is cut down to the statement in which it does."""
    program = write(7)
    program.main.statements.insert(4, write(8).main.statements[0])
    marked = program.main.statements[4]
    marked.text = "log.append('wrong')"
    short = shorten(program, lambda p: "log.append('wrong')" in p.source())
    assert [statement.text for statement in short.main.statements] == ["log.append('wrong')"]
    assert not short.definitions.statements
