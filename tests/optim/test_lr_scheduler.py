"""Schedules: against their formulas, against stored runs of PyTorch, and how they are used."""

from __future__ import annotations

import json
import math
import pathlib
import warnings
from typing import Any

import pytest
from tests.optim.schedules import SCHEDULES, run

import rushlight
from rushlight import nn, optim
from rushlight.optim import lr_scheduler as lr

EXPECTED = json.loads(pathlib.Path(__file__).with_name("schedules.json").read_text())


def make(rate: float = 1.0, **options: Any) -> Any:
    return optim.SGD([nn.Parameter(rushlight.ones(1))], lr=rate, **options)


def rates(optimizer: Any, schedule: Any, steps: int) -> list[float]:
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_stored_runs(name: str) -> None:
    found = run(rushlight, name)
    assert len(found) == len(EXPECTED[name])
    for f, w in zip(found, EXPECTED[name], strict=True):
        assert f == pytest.approx(w, rel=1e-12, abs=1e-15)


@pytest.mark.oracle
def test_stored_runs_are_those_of_the_installed_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for name in SCHEDULES:
        assert run(torch, name) == EXPECTED[name]


def test_formulas() -> None:
    o = make()
    assert rates(o, lr.StepLR(o, 2, 0.5), 5) == [1, 1, 0.5, 0.5, 0.25, 0.25]
    o = make()
    assert rates(o, lr.MultiStepLR(o, [1, 3], 0.5), 4) == [1, 0.5, 0.5, 0.25, 0.25]
    o = make()
    assert rates(o, lr.ExponentialLR(o, 0.5), 3) == [1, 0.5, 0.25, 0.125]
    o = make()
    assert rates(o, lr.LambdaLR(o, lambda e: 1 / (e + 1)), 3) == [1, 1 / 2, 1 / 3, 1 / 4]
    o = make()
    wave = [0.1 + 0.45 * (1 + math.cos(math.pi * e / 8)) for e in range(21)]
    assert rates(o, lr.CosineAnnealingLR(o, 8, 0.1), 20) == pytest.approx(wave)
    o = make()
    assert rates(o, lr.LinearLR(o, 0.25, total_iters=3), 5) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    o = make()
    assert rates(o, lr.PolynomialLR(o, 4, 2), 5) == pytest.approx([1, 9 / 16, 1 / 4, 1 / 16, 0, 0])


def test_warmup_then_cosine() -> None:
    o = make()
    warmup = lr.LinearLR(o, 0.5, total_iters=2)
    schedule = lr.SequentialLR(o, [warmup, lr.CosineAnnealingLR(o, 4)], milestones=[2])
    wave = [(1 + math.cos(math.pi * e / 4)) / 2 for e in range(5)]
    assert rates(o, schedule, 6) == pytest.approx([0.5, 0.75, *wave])
    assert schedule.get_last_lr() == pytest.approx([0.0])


def test_plateau() -> None:
    o = make()
    schedule = lr.ReduceLROnPlateau(o, factor=0.5, patience=1, cooldown=1, min_lr=0.3)
    found = []
    for metric in [5, 4, 4, 4, 4, 4, 4, 4]:
        schedule.step(metric)
        found.append(o.param_groups[0]["lr"])
    assert found == [1, 1, 1, 0.5, 0.5, 0.5, 0.3, 0.3]
    schedule.step(rushlight.tensor(1.0))
    assert schedule.best == 1.0
    with pytest.raises(ValueError, match=r"Factor should be < 1.0"):
        lr.ReduceLROnPlateau(o, factor=1.0)
    with pytest.raises(ValueError, match="mode sideways is unknown"):
        lr.ReduceLROnPlateau(o, mode="sideways")


def test_the_wrong_order_is_reported() -> None:
    o = make()
    schedule = lr.StepLR(o, 1)
    with pytest.warns(UserWarning, match=r"lr_scheduler.step\(\)` before `optimizer.step\(\)"):
        schedule.step()
    o = make()
    schedule = lr.StepLR(o, 1)
    o.step = lambda: None
    with pytest.warns(UserWarning, match="has been overridden"):
        schedule.step()
    o = make()
    schedule = lr.StepLR(o, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        o.step()
        schedule.step()
        schedule.step()


def test_reading_the_rate() -> None:
    o = make()
    schedule = lr.ExponentialLR(o, 0.5)
    assert schedule.get_last_lr() == [1.0]
    with pytest.warns(UserWarning, match="get_last_lr"):
        schedule.get_lr()


@pytest.mark.parametrize("name", SCHEDULES)
def test_state_dicts_resume(name: str) -> None:
    if "Plateau" in name or "Chained" in name:
        pytest.skip("stepped in another way")
    build = SCHEDULES[name]
    whole_optimizer = two_groups()
    whole = build(lr, whole_optimizer)
    for _ in range(9):
        whole_optimizer.step()
        whole.step()
    first_optimizer = two_groups()
    first = build(lr, first_optimizer)
    for _ in range(4):
        first_optimizer.step()
        first.step()
    second_optimizer = two_groups()
    second = build(lr, second_optimizer)
    second.load_state_dict(first.state_dict())
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    for _ in range(5):
        second_optimizer.step()
        second.step()
    assert second.get_last_lr() == pytest.approx(whole.get_last_lr())


def two_groups() -> Any:
    a, b = nn.Parameter(rushlight.ones(1)), nn.Parameter(rushlight.ones(1))
    return optim.SGD([{"params": [a], "lr": 0.1}, {"params": [b], "lr": 0.3}], lr=0.1, momentum=0.9)


def test_rates_that_are_tensors_stay_the_same_tensor() -> None:
    rate = rushlight.tensor(1.0)
    o = optim.SGD([nn.Parameter(rushlight.ones(1))], lr=rate)
    schedule = lr.ExponentialLR(o, 0.5)
    o.step()
    schedule.step()
    assert o.param_groups[0]["lr"] is rate and rate.item() == 0.5


def test_bad_arguments() -> None:
    o = make()
    for bad, kind, text in (
        (lambda: lr.StepLR(3, 1), TypeError, "int is not an Optimizer"),
        (lambda: lr.StepLR(make(), 1, last_epoch=3), KeyError, "initial_lr"),
        (lambda: lr.LambdaLR(o, [abs, abs]), ValueError, "Expected 1 lr_lambdas, but got 2"),
        (lambda: lr.LambdaLR(o, 3), TypeError, "should be a function"),
        (lambda: lr.LinearLR(o, start_factor=0), ValueError, "Starting multiplicative factor"),
        (lambda: lr.ConstantLR(o, factor=2), ValueError, "Constant multiplicative factor"),
        (lambda: lr.OneCycleLR(o, 1.0), ValueError, "either total_steps OR"),
        (lambda: lr.OneCycleLR(optim.Adagrad(o.param_groups[0]["params"]), 1.0, 5), ValueError, "momentum or beta1"),
        (lambda: lr.CosineAnnealingWarmRestarts(o, 0), ValueError, "positive integer T_0"),
        (lambda: lr.SequentialLR(o, [lr.StepLR(o, 1)], [1]), ValueError, "one more than the number of milestone"),
        (lambda: lr.SequentialLR(o, [], []), ValueError, "at least one scheduler"),
        (lambda: lr.ChainedScheduler([lr.StepLR(o, 1), lr.StepLR(make(), 1)]), ValueError, "same optimizer"),
    ):
        with pytest.raises(kind, match=text):
            bad()
    schedule = lr.OneCycleLR(make(momentum=0.9), 1.0, 2)
    with pytest.raises(ValueError, match="Tried to step 3 times"):
        for _ in range(3):
            schedule.optimizer.step()
            schedule.step()


def test_one_cycle_takes_states_that_hold_the_function() -> None:
    found = []
    for legacy in (False, True):
        optimizer = optim.SGD([rushlight.nn.Parameter(rushlight.ones(1))], lr=0.1, momentum=0.9)
        schedule = optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=8, anneal_strategy="linear")
        if legacy:
            state = schedule.state_dict()
            del state["_anneal_func_type"], schedule._anneal_func_type
            schedule.load_state_dict({**state, "anneal_func": optim.lr_scheduler.OneCycleLR._annealing_linear})
        for _ in range(6):
            optimizer.step()
            schedule.step()
        found.append(schedule.get_last_lr())
    assert found[0] == found[1]
