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


def close(got, wanted, tolerance: float) -> None:
    for x, want in zip(got, wanted, strict=True):
        assert x.shape == want.shape and x.dtype == want.dtype
        scale = np.nanmax(np.abs(want), initial=1.0)
        np.testing.assert_allclose(x, want, rtol=tolerance, atol=tolerance * scale)


def agree(graph, arrays, tolerance: float) -> None:
    close(Ran(graph, arrays).results, run(graph, arrays), tolerance)


def agree_on_gradients(graph, arrays, tolerance: float) -> None:
    """Forward and backward on kernels, with what the kernels saved, against both on the reference."""
    gradient = vjp(graph, range(len(arrays)))
    cts = [random(v.shape, v.dtype, 5 + j) for j, v in enumerate(graph.outputs)]
    grads = []
    for compute in (lambda *call: Ran(*call).results, run):
        results = compute(gradient.forward, arrays)
        find = {"input": arrays, "output": results, "residual": results[len(graph.outputs) :]}
        grads.append(compute(gradient.backward, [*(find[kind][i] for kind, i in gradient.saved), *cts]))
    close(*grads, tolerance)


@pytest.mark.parametrize("seed", range(60))
def test_programs(seed: int) -> None:
    graph, arrays = random_program(seed, length=10)
    agree(graph, arrays, 1e-11)


@pytest.mark.parametrize("seed", [*range(100, 130), 51088, 51384, 51527])
def test_gradients(seed: int) -> None:
    """The last three compute again what an extreme was taken of: it must come out with the same bits."""
    graph, arrays = random_program(seed, length=6 if seed < 1000 else 5, large=3000)
    agree_on_gradients(graph, arrays, 1e-10)


@pytest.mark.parametrize("seed", range(200, 220))
def test_larger_programs_in_single_precision(seed: int) -> None:
    """Arrays long enough for vectors, pieces and tiles."""
    graph, arrays = random_program(seed, length=6, dtype=FLOAT32, large=200_000)
    agree(graph, arrays, 1e-4)


def test_programs_differ() -> None:
    assert len({len(random_program(seed)[0].nodes) for seed in range(20)}) > 5
    assert random_program(3)[0].outputs[0].dtype is FLOAT64
