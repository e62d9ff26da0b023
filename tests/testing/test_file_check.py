"""`torch.testing.FileCheck`: conditions on texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import rushlight as torch
from rushlight.testing import FileCheck

TEXT = "one\ntwo three\nthree\nfour one\n"
MARKED = "  File x\n   return foo(x)\n          ~~~~~~ <--- HERE\n"
HOLD: list[tuple[Callable[[], FileCheck], str]] = [
    (lambda: FileCheck().check_not("three").check("three"), TEXT),
    (lambda: FileCheck().check("one").check_not("three").check("three"), TEXT),
    (lambda: FileCheck().check_count("three", 2, exactly=True), TEXT),
    (lambda: FileCheck().check_count("five", 0, exactly=True), TEXT),
    (lambda: FileCheck().check("one").check_next("two").check_same("three"), TEXT),
    (lambda: FileCheck().check_dag("four").check_dag("two").check("one"), TEXT),
    (lambda: FileCheck().check_regex("t.o"), TEXT),
    (lambda: FileCheck().check_source_highlighted("foo(x)"), MARKED),
]
FAIL: list[tuple[Callable[[], FileCheck], str, str]] = [
    (lambda: FileCheck().check("one").check("five"), TEXT, 'Expected to find "five" but did not find it'),
    (lambda: FileCheck().check_not("three"), TEXT, 'Expected to not find "three" but found it'),
    (lambda: FileCheck().check("four").check_not("one"), TEXT, 'Expected to not find "one" but found it'),
    (lambda: FileCheck().check_count("three", 3), TEXT, "From CHECK-COUNT-3: three"),
    (lambda: FileCheck().check_count("three", 1, exactly=True), TEXT, "From CHECK-NOT: three"),
    (lambda: FileCheck().check("one").check_next("four"), TEXT, "From CHECK-NEXT: four"),
    (lambda: FileCheck().check("one").check_same("three"), TEXT, "From CHECK-SAME: three"),
    (lambda: FileCheck().check_dag("four").check_dag("seven"), TEXT, "From CHECK-DAG: seven"),
    (lambda: FileCheck().check_regex("t.z"), TEXT, 'Expected to find regex "t.z"'),
    (lambda: FileCheck().check_source_highlighted("return"), MARKED, 'Expected to find "return"highlighted'),
    (lambda: FileCheck().check_source_highlighted("foo"), MARKED, "From CHECK-SOURCE-HIGHLIGHTED: foo"),
]


@pytest.mark.parametrize("at", range(len(HOLD)))
def test_conditions_that_hold(at: int) -> None:
    HOLD[at][0]().run(HOLD[at][1])


@pytest.mark.parametrize("at", range(len(FAIL)))
def test_conditions_that_fail_are_named(at: int) -> None:
    made, text, said = FAIL[at]
    with pytest.raises(RuntimeError) as met:
        made().run(text)
    assert said in str(met.value)


def test_conditions_are_read_of_comments() -> None:
    FileCheck().run("# CHECK: one\n# CHECK-NEXT: two\n# CHECK-COUNT-1: three\n# CHECK-NOT: five\n", TEXT)
    with pytest.raises(RuntimeError, match="CHECK-NOT: three"):
        FileCheck().run("# CHECK-COUNT-EXACTLY-1: three\n", TEXT)
    for conditions in ("# CHECK-WHAT: three\n", "no conditions"):
        with pytest.raises(RuntimeError, match="Check for bad input"):
            FileCheck().run(conditions, TEXT)


def test_a_graph_is_a_text() -> None:
    graph = torch.jit.script(double).graph
    FileCheck().check("aten::mul").check("return").run(graph)
    with pytest.raises(TypeError):
        FileCheck().check("aten::mul").run(3)


def test_conditions_that_never_ran_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    FileCheck().check("one")
    assert "You have not run" in capsys.readouterr().out


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
