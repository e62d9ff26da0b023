"""Storages in compiled functions: what reads or changes memory by them ends a trace, and gives what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch


def _resized(x: Any) -> Any:
    x.untyped_storage().resize_(400)
    return x * 2


def _shrunk_and_filled(x: Any) -> Any:
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(48)
    x.copy_(torch.ones(3, 4))
    return x + 1


def _one_byte(x: Any) -> Any:
    x.untyped_storage()[0] = 0
    return x * 2


def _filled(x: Any) -> Any:
    memory = x.untyped_storage()
    memory.fill_(0)
    return x * 2 + memory.nbytes()


def _of_a_result(x: Any) -> Any:
    y = x * 2
    memory = y.untyped_storage()
    memory.resize_(400)
    y.add_(1)
    return y + len(memory)


def _typed(x: Any) -> Any:
    y = x * 2
    y.storage()[1] = 7.0
    return y + 1


def _taken_over(x: Any) -> Any:
    y = x * 2
    y.set_(x.untyped_storage(), 0, (3,), (1,))
    return y + 1


PROGRAMS = [_resized, _shrunk_and_filled, _one_byte, _filled, _of_a_result, _typed, _taken_over]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__[1:])
def test_compiled_equals_eager(function: Callable[[Any], Any]) -> None:
    compiled = torch.compile(function)
    for _ in range(3):
        x, y = torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4)
        assert compiled(x).tolist() == function(y).tolist() and x.tolist() == y.tolist()


def test_a_storage_that_is_too_small_is_refused() -> None:
    compiled = torch.compile(lambda x: x * 2 + 1)
    assert compiled(torch.ones(3, 4)).sum() == 36
    x = torch.ones(3, 4)
    x.untyped_storage().resize_(8)
    with pytest.raises(RuntimeError, match="its data is not allocated"):
        compiled(x)
