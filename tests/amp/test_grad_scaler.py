"""`GradScaler`: its rules by numbers worked out here, and whole runs beside PyTorch."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn, optim


def started(**options: Any) -> tuple[Any, Any, Any]:
    """A parameter with a gradient, its optimizer, and a scaler that has scaled once."""
    p = nn.Parameter(torch.ones(2))
    scaler = torch.amp.GradScaler("cpu", **{"init_scale": 8.0, **options})
    scaler.scale((p * 3).sum()).backward()
    return p, optim.SGD([p], lr=0.5), scaler


def test_a_step_is_that_of_the_unscaled_loss() -> None:
    p, optimizer, scaler = started()
    assert p.grad.tolist() == [24.0, 24.0]
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [3.0, 3.0]
    assert scaler.step(optimizer) is None
    assert p.detach().tolist() == [-0.5, -0.5]


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_step_with_bad_gradients_is_left_out(bad: float) -> None:
    p, optimizer, scaler = started()
    p.grad[1] = bad
    scaler.step(optimizer)
    scaler.update()
    assert p.detach().tolist() == [1.0, 1.0] and scaler.get_scale() == 4.0


def test_the_scale_grows_after_good_steps_in_a_row() -> None:
    p, optimizer, scaler = started(growth_interval=3, growth_factor=4.0, backoff_factor=0.25)
    scales = []
    for i in range(8):
        p.grad = torch.full((2,), math.inf if i == 1 else 1.0)
        scaler.scale(torch.ones(1))
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [8.0, 2.0, 2.0, 2.0, 8.0, 8.0, 8.0, 32.0]


def test_a_scale_that_would_overflow_stays() -> None:
    p, optimizer, scaler = started(init_scale=2.0**127, growth_interval=1)
    p.grad = torch.zeros(2)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**127


def test_clipping_sees_unscaled_gradients() -> None:
    p, optimizer, scaler = started()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_([p], 1.0)
    assert float(norm) == pytest.approx(math.sqrt(18.0))
    scaler.step(optimizer)
    np.testing.assert_allclose(p.detach().tolist(), 1 - 0.5 / math.sqrt(2), rtol=1e-5)


def test_gradients_accumulate_before_they_are_unscaled() -> None:
    p, optimizer, scaler = started()
    scaler.scale((p * 3).sum()).backward()
    scaler.step(optimizer)
    assert p.detach().tolist() == [-2.0, -2.0]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_a_fused_optimizer_unscales_by_itself(name: str) -> None:
    ends = []
    for fused in (False, True):
        p = nn.Parameter(torch.tensor([1.0, 2.0]))
        optimizer = getattr(optim, name)([p], lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        for i in range(4):
            optimizer.zero_grad()
            scaler.scale((p * p).sum() * (math.inf if i == 2 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 8.0 and not hasattr(optimizer, "grad_scale")
        ends.append(p.detach().tolist())
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


def test_several_tensors_and_several_optimizers() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    one, (two,) = scaler.scale([torch.ones(1), (torch.ones(1, dtype=torch.float16),)])
    assert one.item() == 4.0 and two.item() == 4.0 and two.dtype is torch.float16
    good, bad = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizers = [optim.SGD([p], lr=1.0) for p in (good, bad)]
    scaler.scale(good.sum() + bad.sum() * math.inf).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert (good.item(), bad.item(), scaler.get_scale()) == (0.0, 1.0, 2.0)


def test_sparse_gradients() -> None:
    table = nn.Embedding(3, 2, sparse=True)
    optimizer = optim.SGD(table.parameters(), lr=1.0)
    before = table.weight.detach().clone()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(table(torch.tensor([1, 1])).sum()).backward()
    scaler.step(optimizer)
    np.testing.assert_allclose((before - table.weight.detach()).tolist(), [[0, 0], [2, 2], [0, 0]], atol=1e-6)


def test_state_and_pickle() -> None:
    _, optimizer, scaler = started(growth_interval=5)
    with pytest.raises(AssertionError, match="only be pickled"):
        scaler.unscale_(optimizer)
        pickle.dumps(scaler)
    scaler.step(optimizer)
    scaler.update()
    state = scaler.state_dict()
    assert state == {
        "scale": 8.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 5,
        "_growth_tracker": 1,
    }
    other = torch.amp.GradScaler("cpu")
    other.load_state_dict(state)
    assert other.state_dict() == state == pickle.loads(pickle.dumps(scaler)).state_dict()
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})


def test_misuse() -> None:
    _, optimizer, scaler = started()
    fresh = torch.amp.GradScaler("cpu")
    for call in (lambda: fresh.unscale_(optimizer), lambda: fresh.step(optimizer), fresh.update, scaler.update):
        with pytest.raises(AssertionError):
            call()
    with pytest.raises(RuntimeError, match="Closure use"):
        scaler.step(optimizer, closure=lambda: 0)
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"after step\(\)"):
        scaler.unscale_(optimizer)
    with pytest.raises(ValueError, match="must be a Tensor"):
        scaler.scale(3)
    for options in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(AssertionError):
            torch.amp.GradScaler("cpu", **options)
    half = nn.Parameter(torch.ones(1, dtype=torch.float16))
    half.grad = torch.ones(1, dtype=torch.float16)
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.update()
        scaler.unscale_(optim.SGD([half]))


def training(t: Any, dtype: str, name: str, options: dict[str, Any]) -> list[Any]:
    """A few steps of mixed precision with accumulation, clipping and one overflow."""
    layer = t.nn.Sequential(t.nn.Linear(2, 4), t.nn.Tanh(), t.nn.Linear(4, 1))
    with t.no_grad():
        for i, p in enumerate(layer.parameters()):
            p.copy_((t.arange(float(p.numel())).reshape(p.shape) - 2) * 0.2 + 0.1 * i)
    optimizer = getattr(t.optim, name)(layer.parameters(), lr=0.05, **options)
    scaler = t.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    log = []
    for i in range(6):
        for k in range(2):
            with t.autocast("cpu", dtype=getattr(t, dtype)):
                loss = t.nn.functional.mse_loss(layer(t.tensor([[1.0, -0.5], [0.5, float(k)]])), t.ones(2, 1)) / 2
            scaler.scale(loss * (math.inf if i == 3 else 1.0)).backward()
        scaler.unscale_(optimizer)
        norm = t.nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        log.append([loss.item(), norm.item(), scaler.get_scale()])
    return [*log, *[p.detach().reshape(-1).tolist() for p in layer.parameters()]]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("name", "options"), [("SGD", {"momentum": 0.9}), ("AdamW", {"fused": True})])
def test_runs_as_pytorchs(dtype: str, name: str, options: dict[str, Any]) -> None:
    real = pytest.importorskip("torch")
    ours, theirs = (np.concatenate([np.array(x) for x in training(t, dtype, name, options)]) for t in (torch, real))
    # Gradients are kept in 16 bits: one that is rounded the other way moves what follows.
    np.testing.assert_allclose(ours, theirs, rtol=5e-3, atol=1e-3)


def test_the_functions_below() -> None:
    """Worked out by hand: a scale grows at the step that completes an interval, and at no later one."""
    scale, tracker = torch.tensor(4.0), torch.zeros((), dtype=torch.int32)
    seen = []
    for flag in (0.0, 0.0, 1.0, 0.0, 0.0, 0.0):
        assert torch._amp_update_scale_(scale, tracker, torch.tensor(flag), 2.0, 0.5, 2) is scale
        seen.append((scale.item(), tracker.item()))
    assert seen == [(4.0, 1), (8.0, 0), (4.0, 0), (4.0, 1), (8.0, 0), (8.0, 1)]
    torch._amp_update_scale_(scale, tracker.fill_(5), torch.zeros(()), 2.0, 0.5, 3)
    assert (scale.item(), tracker.item()) == (8.0, 6)
    grads, found = [torch.tensor([1.0, math.nan]), torch.tensor([2.0, 4.0], dtype=torch.float16)], torch.zeros(1)
    torch._amp_foreach_non_finite_check_and_unscale_(grads[1:], found, torch.tensor([0.5]))
    assert found.item() == 0.0 and grads[1].tolist() == [1.0, 2.0]
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.tensor(0.5))
    assert found.item() == 1.0 and grads[0][0] == 0.5 and grads[1].tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("place", "wrong", "why"),
    [
        (0, torch.ones(2), "current_scale must be a 1-element"),
        (1, torch.ones(()), "growth_tracker must be an int"),
        (2, torch.ones((), dtype=torch.float64), "found_inf must be a float"),
    ],
)
def test_what_the_functions_below_refuse(place: int, wrong: Any, why: str) -> None:
    given: list[Any] = [torch.ones(()), torch.zeros((), dtype=torch.int32), torch.zeros(())]
    given[place] = wrong
    with pytest.raises(RuntimeError, match=why):
        torch._amp_update_scale_(*given, 2.0, 0.5, 3)
