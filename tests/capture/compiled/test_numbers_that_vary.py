"""Ints that differ from call to call: what a program learns of them, and what it keeps, is what eager keeps."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import rushlight as torch


@functools.singledispatch
def described(value: Any) -> Any:
    return "object", value


@described.register
def _(value: int) -> Any:
    return "int", value


def test_their_class_is_that_of_the_number() -> None:
    compiled = torch.compile(lambda x, n: (x * n, n.__class__, type(n), isinstance(n, int), described(n)))
    for n in (3, 4, 5):
        found = compiled(torch.ones(2), n)
        assert found[1:] == (int, int, True, ("int", n)) and type(found[4][1]) is int


@pytest.mark.parametrize("sized", [True, False])
def test_a_memoized_function_keeps_plain_numbers_once(sized: bool) -> None:
    seen: list[Any] = []

    @functools.lru_cache(None)
    def table(n: int) -> Any:
        seen.append((n, type(n)))
        return n * 2

    def program(x: Any, n: int) -> Any:
        return x[:n] * table(n) if sized else (x * n, table(n))

    compiled = torch.compile(program)
    for n in (2, 3, 4, 5, 4, 3):
        compiled(torch.ones(7), n)
    assert seen == [(n, int) for n in (2, 3, 4, 5)]
    assert table.cache_info().currsize == 4 and table(5) == 10 and len(seen) == 4
