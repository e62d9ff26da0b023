"""Sparsifiers and their schedules; masks beside PyTorch's where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch


def _masks(T: object, level: float, block: tuple[int, int], zeros: int | None) -> np.ndarray:
    net = T.nn.Sequential(T.nn.Linear(10, 6))  # type: ignore[attr-defined]
    weight = np.random.default_rng(2).permutation(60).reshape(6, 10).astype(np.float32) / 60 - 0.5
    with T.no_grad():  # type: ignore[attr-defined]
        net[0].weight.copy_(T.from_numpy(weight))  # type: ignore[attr-defined]
    sparsifier = T.ao.pruning.WeightNormSparsifier(level, block, zeros)  # type: ignore[attr-defined]
    sparsifier.prepare(net, [{"tensor_fqn": "0.weight"}])
    sparsifier.step()
    sparsifier.squash_mask()
    return (net[0].weight != 0).numpy()


@pytest.mark.parametrize(("level", "block", "zeros"), [(0.5, (1, 5), None), (1.0, (1, 5), 2), (0.4, (2, 2), None)])
def test_blocks_of_least_norm(level: float, block: tuple[int, int], zeros: int | None) -> None:
    kept = _masks(torch, level, block, zeros)
    count = 60 // (block[0] * block[1])
    assert (~kept).sum() == round(level * count) * (zeros or block[0] * block[1])
    theirs = pytest.importorskip("torch")
    assert np.array_equal(kept, _masks(theirs, level, block, zeros))


def test_schedules() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 8))
    sparsifier = torch.ao.pruning.WeightNormSparsifier(0.8)
    sparsifier.prepare(net, None)
    schedule = torch.ao.pruning.CubicSL(sparsifier, init_sl=0.0, init_t=0, delta_t=1, total_t=4)
    levels = [schedule.get_last_sl()[0]]
    for _ in range(4):
        schedule.step()
        levels.append(schedule.get_last_sl()[0])
    assert np.allclose(levels, [0.8 - 0.8 * (1 - t / 4) ** 3 for t in range(5)])
    assert torch.ao.pruning.module_to_fqn(net, net[0]) == "0"
