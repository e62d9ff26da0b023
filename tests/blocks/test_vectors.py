"""Block kernels as vector code beside the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.blocks.random_kernels import Case, draw

from rushlight._backends.cpu.blocks import compile_block


def run(case: Case, **options: Any) -> list[Any]:
    """The arguments after the compiled kernel has run."""
    given = case.fresh()
    words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in given]
    ranges = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in given if isinstance(a, np.ndarray)]
    compile_block(case.kernel, **options).launch(case.grid, words, ranges)
    return given


def check(case: Case, **options: Any) -> None:
    for one, other in zip(case.reference(), run(case, **options), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels(seed: int) -> None:
    check(draw(seed, 8))
