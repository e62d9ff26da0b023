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


_DTYPES = ("uint8", "int16", "bfloat16", "float32", "int64", "complex64")


@pytest.mark.parametrize("held", _DTYPES)
def test_memory_read_as_another_dtype(held: str) -> None:
    """Smaller and larger elements, of an input, of a result and of a part; a write that another dtype sees."""
    x = torch.arange(6 * 32).reshape(6, 32).to(torch.uint8).view(getattr(torch, held))
    others = [getattr(torch, name) for name in _DTYPES if name != held]

    def read(x: torch.Tensor) -> list[torch.Tensor]:
        y, found = torch.cat([x, x]), []
        for dtype in others:
            found += [x.view(dtype).clone(), y.view(dtype).clone(), x[1:4].view(dtype)[1:].clone()]
        y.view(others[0])[0].copy_(y.view(others[0])[1])
        return [*found, y]

    for mine, theirs in zip(torch.compile(read, fullgraph=True)(x), read(x), strict=True):
        assert mine.dtype is theirs.dtype and torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))
