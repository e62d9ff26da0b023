"""Compiled steps of every optimizer beside eager ones: equal bits."""

from __future__ import annotations

from typing import Any

import pytest
from tests.optim.steps import CASES, OPTIONS

import rushlight as torch

SHAPES = [(3, 5), (7,), (2, 3, 4)]


def _option(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_option, value))
    return torch.tensor(float(value.split()[1])) if str(value).startswith("tensor ") else value


def trained(case: str, compiles: bool, dtype: Any) -> list[Any]:
    """Losses of three steps, then parameters and what is kept for them."""
    name, _, what = case.partition(": ")
    torch.manual_seed(1)
    params = [torch.randn(shape, dtype=dtype).requires_grad_() for shape in SHAPES if name != "Muon" or len(shape) == 2]
    options = {key: _option(value) for key, value in OPTIONS.get(name, {"": {}})[what].items()}
    optimizer = getattr(torch.optim, name)(params, **{"lr": 0.03, **options})

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum((p.sin() * p).sum() for p in params)
        loss.backward()
        return loss

    def step() -> Any:
        if name == "LBFGS":
            return optimizer.step(closure)
        loss = closure()
        optimizer.step()
        return loss

    torch.compiler.reset()
    called = torch.compile(step) if compiles else step
    losses = [called().detach().clone() for _ in range(3)]
    kept = [value for p in params for _, value in sorted(optimizer.state[p].items()) if isinstance(value, torch.Tensor)]
    return losses + [p.detach() for p in params] + kept


@pytest.mark.filterwarnings("ignore:.*was compiled 8 times")
@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.startswith("SparseAdam") and "differentiable" not in case] + ["Muon: "]
)
def test_bits_of_eager_steps(case: str) -> None:
    eager, compiled = (trained(case, compiles, torch.float32) for compiles in (False, True))
    assert len(eager) == len(compiled)
    assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("what", ["", "decay", "eps", "maximize", "tensor lr"])
@pytest.mark.filterwarnings("ignore:.*was compiled 8 times")
def test_adafactor_in_other_dtypes(what: str, dtype: Any) -> None:
    eager, compiled = (trained(f"Adafactor: {what}", compiles, dtype) for compiles in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))
