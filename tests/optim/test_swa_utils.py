"""Averaged models."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight import nn, optim
from rushlight.optim import swa_utils


def constant(value: float) -> Any:
    net = nn.Linear(1, 1)
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(value)
    return net


def weight(model: Any) -> float:
    return float(model.module.weight.item())


def test_plain_average() -> None:
    average = swa_utils.AveragedModel(constant(0))
    for value in (2.0, 4.0, 9.0):
        average.update_parameters(constant(value))
    assert weight(average) == pytest.approx(5.0) and average.n_averaged.item() == 3
    assert list(average.state_dict()) == ["n_averaged", "module.weight", "module.bias"]
    assert average(torch.ones(1, 1)).shape == (1, 1)


@pytest.mark.parametrize("kind", ["avg_fn", "multi_avg_fn"])
def test_moving_average(kind: str) -> None:
    make = swa_utils.get_ema_avg_fn if kind == "avg_fn" else swa_utils.get_ema_multi_avg_fn
    average = swa_utils.AveragedModel(constant(0), **{kind: make(0.75)})
    for value in (1.0, 5.0, 1.0):
        average.update_parameters(constant(value))
    assert weight(average) == pytest.approx(0.75 * (0.75 * 1 + 0.25 * 5) + 0.25)
    with pytest.raises(ValueError, match="Invalid decay value"):
        make(1.5)
    with pytest.raises(AssertionError, match="Only one of"):
        swa_utils.AveragedModel(constant(0), avg_fn=make(), multi_avg_fn=make())


def test_buffers() -> None:
    net = nn.BatchNorm1d(2)
    average = swa_utils.AveragedModel(net)
    mixed = swa_utils.AveragedModel(net, use_buffers=True)
    for value in (1.0, 3.0):
        net.running_mean.fill_(value)
        average.update_parameters(net)
        mixed.update_parameters(net)
    assert average.module.running_mean.tolist() == [3.0, 3.0] and mixed.module.running_mean.tolist() == [2.0, 2.0]


def test_update_bn() -> None:
    net = nn.BatchNorm1d(1).eval()
    batches = [[torch.tensor([[0.0], [2.0]])], [torch.tensor([[4.0], [6.0]])]]
    swa_utils.update_bn(batches, net)
    assert net.running_mean.item() == pytest.approx(3.0) and net.running_var.item() == pytest.approx(2.0)
    assert net.momentum == 0.1 and not net.training
    swa_utils.update_bn(batches, nn.Linear(1, 1))


def test_swa_lr() -> None:
    optimizer = optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = swa_utils.SWALR(optimizer, 0.2, anneal_epochs=4, anneal_strategy="linear")
    found = []
    for _ in range(6):
        optimizer.step()
        schedule.step()
        found.append(schedule.get_last_lr()[0])
    assert found == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.2, 0.2])
    with pytest.raises(ValueError, match="anneal_strategy"):
        swa_utils.SWALR(optimizer, 0.1, anneal_strategy="square")
