"""Rows of tables as tests: every row runs, a failure names its row, and a group is skipped where all its rows are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rows import each_row

RUN: list[Any] = []


def row(what: str) -> None:
    RUN.append(what)
    if what == "skips":
        pytest.skip("nothing to do")
    if what == "fails":
        pytest.fail("as asked")
    assert what != "is wrong"


def test_each_row_is_run_and_named() -> None:
    RUN.clear()
    rows = ["fine", "skips"], ["skips", "skips"], ["fine", "is wrong", "fine"], ["fails"]
    test = each_row((str(k), f"{k}-{i}", (what,)) for k, group in enumerate(rows) for i, what in enumerate(group))(row)
    (mark,) = test.pytestmark  # type: ignore[attr-defined]
    assert list(mark.args[1]) == ["0", "1", "2", "3"]  # a test for each group
    test("0")
    assert RUN == ["fine", "skips"]
    with pytest.raises(pytest.skip.Exception, match="nothing to do"):
        test("1")
    with pytest.raises(AssertionError) as wrong:
        test("2")
    assert wrong.value.__notes__ == ["in the row 2-1"]
    with pytest.raises(pytest.fail.Exception) as failed:
        test("3")
    assert failed.value.__notes__ == ["in the row 3-0"]
