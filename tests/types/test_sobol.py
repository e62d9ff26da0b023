"""Sobol sequences: stored points of PyTorch, evenness, scrambling, and PyTorch itself where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch


def test_points() -> None:
    engine = torch.quasirandom.SobolEngine(8)
    assert engine.draw(4).tolist() == [
        [0.0] * 8, [0.5] * 8, [0.75, 0.25, 0.25, 0.25, 0.75, 0.75, 0.25, 0.75], [0.25, 0.75, 0.75, 0.75, 0.25, 0.25, 0.75, 0.25],
    ]  # fmt: skip
    rest = engine.draw_base2(2)
    assert (
        engine.num_generated == 8 and engine.reset().fast_forward(4).draw(4).equal(rest) and rest.dtype is torch.float32
    )
    assert repr(torch.quasirandom.SobolEngine(3, True, 5)) == "SobolEngine(dimension=3, scramble=True, seed=5)"


@pytest.mark.parametrize("scramble", [False, True])
def test_every_interval_has_its_share(scramble: bool) -> None:
    points = torch.quasirandom.SobolEngine(40, scramble, 7).draw(256, dtype=torch.float64).numpy()
    for column in (points * 256).astype(int).T:
        assert sorted(column) == list(range(256))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Supported range of dimensionality for SobolEngine is \[1, 21201\]"):
        torch.quasirandom.SobolEngine(0)
    with pytest.raises(NotImplementedError, match="direction numbers of 1111 dimensions"):
        torch.quasirandom.SobolEngine(2000)
    engine = torch.quasirandom.SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match="balance properties"):
        engine.draw_base2(2)


@pytest.mark.oracle
def test_beside_pytorch() -> None:
    theirs = pytest.importorskip("torch")
    for dimension, scramble, seed in (
        (1, False, None),
        (50, False, None),
        (1111, False, None),
        (5, True, 3),
        (60, True, 123),
    ):
        a, b = (m.quasirandom.SobolEngine(dimension, scramble, seed) for m in (torch, theirs))
        for n in (1, 3, 17):
            np.testing.assert_array_equal(a.draw(n).numpy(), b.draw(n).numpy())
        a.fast_forward(5), b.fast_forward(5)
        np.testing.assert_array_equal(a.draw(2, dtype=torch.float64).numpy(), b.draw(2, dtype=theirs.float64).numpy())
