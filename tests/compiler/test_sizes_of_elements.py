"""Sizes that only elements tell, with `fullgraph=True`: the operator runs between two programs, with the bits of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import COUNTERS

X = torch.arange(12.0).reshape(4, 3) - 5


def checked_length(x: Any) -> Any:
    n = (x[0] > -6).sum().item()
    torch._check(n >= 0)
    torch._check(n <= 4)
    return x[:n] * 2


def in_a_loop(x: Any) -> Any:
    for k in range(3):
        x = x[x > k] * 2
    with torch.no_grad():
        return x + 1


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "nonzero": lambda x: x.nonzero().sum(0) * 2,
    "a mask": lambda x: (x * 2)[x > 0] + 1,
    "masks in a loop": in_a_loop,
    "where": lambda x: torch.where(x > 0)[0] + 1,
    "masked_select": lambda x: torch.masked_select(x * 2, x > 0).sum(),
    "unique": lambda x: torch.unique((x / 3).long()) * 2,
    "unique_consecutive": lambda x: torch.unique_consecutive((x / 3).long(), return_counts=True)[1] * 2,
    "repeat_interleave": lambda x: torch.repeat_interleave(x * 2, (x[:, 0] > -4).long() + 1, 0) + 1,
    "a slice up to a number": lambda x: (x * 2)[: (x > 0).sum().item()] + 1,
    "a size": lambda x: torch.zeros((x > 0).sum().item(), 2) + x.sum(),
    "narrow": lambda x: x.narrow(0, 0, (x[0] > 0).sum().item()) + 1,
    "arange": lambda x: torch.arange((x > 0).sum().item()) + 1,
    "a checked length": checked_length,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_are_captured_where_the_settings_say_so(name: str) -> None:
    program = PROGRAMS[name]
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compiled = torch.compile(program, fullgraph=True)
        for x in (X, X + 2, X - 1, X * 3, X):
            wanted, found = program(x), compiled(x)
            assert (wanted.shape, wanted.stride(), wanted.dtype) == (found.shape, found.stride(), found.dtype)
            assert wanted.numpy().tobytes() == found.numpy().tobytes()


def test_without_the_settings_and_fullgraph_they_are_breaks() -> None:
    for name in ("nonzero", "a mask", "repeat_interleave", "a size"):
        COUNTERS["graph_break"].clear()
        torch.compile(PROGRAMS[name])(X)
        assert COUNTERS["graph_break"]
        COUNTERS["graph_break"].clear()
        torch.compile(PROGRAMS[name], fullgraph=True)(X)
        assert not COUNTERS["graph_break"]


def test_what_decides_the_course_is_a_break_under_the_settings() -> None:
    def branch(x: Any) -> Any:
        return x + 1 if (x > 0).sum().item() > 3 else x - 1

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(branch, fullgraph=True)(X)
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(lambda x: x + 1 if torch.equal(x, x * 2) else x, fullgraph=True)(X)
