"""Random programs and their gradients on generated kernels, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kernel_harness import Ran
from tests.prim_cases import random
from tests.random_programs import random_program

from rushlight._backends.reference import run
from rushlight._transforms.vjp import vjp
from rushlight._types.dtype import FLOAT32, FLOAT64


def agree(graph, arrays, tolerance: float) -> None:
    with np.errstate(all="ignore"):
        wanted = run(graph, arrays)
    for got, want in zip(Ran(graph, arrays).results, wanted, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        scale = np.nanmax(np.abs(want), initial=1.0)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("seed", range(60))
def test_programs(seed: int) -> None:
    graph, arrays = random_program(seed, length=10)
    agree(graph, arrays, 1e-11)


@pytest.mark.parametrize("seed", range(100, 130))
def test_gradients(seed: int) -> None:
    graph, arrays = random_program(seed, length=6)
    gradient = vjp(graph, range(len(arrays)))
    agree(gradient.forward, arrays, 1e-11)
    results = run(gradient.forward, arrays)
    find = {"input": arrays, "output": results, "residual": results[len(graph.outputs) :]}
    cts = [random(v.shape, v.dtype, 5 + j) for j, v in enumerate(graph.outputs)]
    agree(gradient.backward, [*(find[kind][i] for kind, i in gradient.saved), *cts], 1e-10)


@pytest.mark.parametrize("seed", range(200, 220))
def test_larger_programs_in_single_precision(seed: int) -> None:
    """Arrays long enough for vectors, pieces and tiles."""
    graph, arrays = random_program(seed, length=6, dtype=FLOAT32, large=200_000)
    agree(graph, arrays, 1e-4)


def test_programs_differ() -> None:
    assert len({len(random_program(seed)[0].nodes) for seed in range(20)}) > 5
    assert random_program(3)[0].outputs[0].dtype is FLOAT64
