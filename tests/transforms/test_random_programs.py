"""Random programs: transforms compose with everything, and change no value."""

from __future__ import annotations

import numpy as np
import pytest
from tests.prim_cases import inner, random, run_gradient
from tests.random_programs import random_program

from rushlight._backends.reference import run
from rushlight._graph.printer import parse, to_source
from rushlight._graph.verifier import verify
from rushlight._transforms.batching import batch
from rushlight._transforms.jvp import jvp
from rushlight._transforms.simplify import simplify
from rushlight._transforms.vjp import vjp

SEEDS = range(150)


@pytest.mark.parametrize("seed", SEEDS)
def test_simplifying_keeps_every_bit(seed: int) -> None:
    graph, arrays = random_program(seed)
    simple = simplify(graph)
    verify(simple)
    assert to_source(simplify(simple)) == to_source(simple), "one walk reaches the fixed point"
    for got, want in zip(run(simple, arrays), run(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(run(simplify(graph, gradient=True), arrays), run(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_reverse_and_forward_mode_agree(seed: int) -> None:
    graph, arrays = random_program(seed)
    gradient = vjp(graph, range(len(arrays)))
    verify(gradient.forward)
    verify(gradient.backward)
    cts = [random(v.shape, v.dtype, 5 + j) for j, v in enumerate(graph.outputs)]
    results, grads = run_gradient(gradient, arrays, cts)
    for got, want in zip(results, run(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    tangents = [random(a.shape, v.dtype, 9 + i) for i, (a, v) in enumerate(zip(arrays, graph.inputs, strict=True))]
    moved = run(jvp(graph, [True] * len(arrays)), [*arrays, *tangents])[len(graph.outputs) :]
    pairs = [(g, t) for g, t in zip(grads, tangents, strict=True) if g is not None]
    left, right = inner(cts, moved), inner([g for g, _ in pairs], [t for _, t in pairs])
    assert left == pytest.approx(right, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_batching_is_a_loop_and_the_text_reads_back(seed: int) -> None:
    graph, arrays = random_program(seed)
    verify(graph)
    assert to_source(parse(to_source(graph))) == to_source(graph)
    for mask in ([True, True], [True, False]):
        stacked = [np.stack([a, a * 0.5 + 0.1, -a]) if m else a for a, m in zip(arrays, mask, strict=True)]
        lifted = batch(graph, mask, 3)
        verify(lifted)
        got = run(lifted, stacked)
        for k in range(3):
            want = run(graph, [a[k] if m else a for a, m in zip(stacked, mask, strict=True)])
            for x, y in zip(got, want, strict=True):
                np.testing.assert_allclose(x[k], y, rtol=1e-9, atol=1e-9)
