"""Kernels of the Triton language, interpreted from PTX, give what real Triton's interpreter gave (stored)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.cuda.ptx import run_over
from tests.triton_language import programs
from tests.triton_language.test_programs import check

from rushlight.triton._launch.memory import Interpreted


class Buffer(NamedTuple):
    address: int
    data: Any


@pytest.fixture(params=["sm_80", "sm_90a"])
def from_ptx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Launches that Triton would interpret are interpreted from PTX."""

    steps: list[int] = []

    def launch(
        self: Interpreted, grid: Sequence[int], arguments: Sequence[Any], ranges: Sequence[tuple[int, int]] = ()
    ) -> None:
        buffers = [Buffer(a, np.frombuffer((ctypes.c_uint8 * (b - a)).from_address(a), np.uint8)) for a, b in ranges]
        steps.append(run_over(self.kernel, grid, arguments, buffers, request.param).steps)

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(Interpreted, "launch", launch)
    yield
    assert sum(steps)


_OFTEN = ("integer_operators", "atomics")


@pytest.mark.parametrize("name", [n if n in _OFTEN else pytest.param(n, marks=pytest.mark.ptx) for n in programs.CASES])
def test_program(name: str, from_ptx: None) -> None:
    check(name, programs.run(name))
