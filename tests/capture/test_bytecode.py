"""The interpreter of bytecode against CPython: results, exceptions, tracebacks, output and warnings of small functions; every opcode."""

from __future__ import annotations

import dis
import inspect
import sys
from types import CodeType

import pytest
from tests.capture import bytecode_corpus
from tests.capture.interpreted import handled, interpret, outcome

from rushlight._capture.bytecode import Operations, supported
from rushlight._capture.bytecode.versions import table

pytestmark = pytest.mark.skipif(not supported(), reason="no tested table of opcodes for this version of Python")

HELPERS = {"arity", "drive"}
CASES = [
    name
    for name, value in vars(bytecode_corpus).items()
    if inspect.isfunction(value) and value.__module__ == bytecode_corpus.__name__ and name not in HELPERS
]


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


def test_every_opcode_has_a_handler_or_a_reason() -> None:
    module = sys.modules[f"rushlight._capture.bytecode.opcodes_{sys.version_info[0]}{sys.version_info[1]}"]
    assert set(table()) | set(module.NOT_EXECUTED) == set(dis.opmap)
    assert not set(table()) & set(module.NOT_EXECUTED)


NOT_IN_FUNCTIONS = {"PRINT_EXPR", "IMPORT_STAR", "SETUP_ANNOTATIONS"}


def test_the_corpus_goes_through_every_opcode() -> None:
    seen: set[str] = set()

    def visit(code: CodeType) -> None:
        seen.update(instruction.opname for instruction in dis.get_instructions(code))
        for const in code.co_consts:
            if isinstance(const, CodeType):
                visit(const)

    for value in vars(bytecode_corpus).values():
        if inspect.isfunction(value) and value.__module__ == bytecode_corpus.__name__:
            visit(value.__code__)
    assert set(table()) - seen - NOT_IN_FUNCTIONS == set()
