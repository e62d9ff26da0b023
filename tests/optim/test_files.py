"""Optimizers' states in files: real PyTorch's load here and the run goes on with its numbers, and ours load there."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import numpy as np
import pytest

import rushlight

HERE = pathlib.Path(__file__).parent
OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Adagrad": {"lr_decay": 0.1},
    "NAdam": {},
    "ASGD": {"t0": 2},
    "Rprop": {},
    "Adafactor": {},
    "LBFGS": {"max_iter": 2, "history_size": 2},
}


def make(t: Any, name: str) -> tuple[list[Any], Any]:
    params = [t.nn.Parameter(t.arange(6.0).reshape(2, 3) / 4), t.nn.Parameter(t.tensor([0.5, -1.0]))]
    groups = params if name == "LBFGS" else [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}]
    return params, getattr(t.optim, name)(groups, lr=0.05, **OPTIONS[name])


def run(t: Any, params: list[Any], optimizer: Any, count: int) -> None:
    def closure() -> Any:
        for p in params:
            p.grad = p.detach() * 1.1 - 0.3
        return t.tensor(float(sum((p.detach() ** 2).sum() for p in params)))

    for _ in range(count):
        closure()
        optimizer.step(closure)


def numbers(params: list[Any]) -> list[float]:
    return [float(x) for p in params for x in p.detach().reshape(-1).tolist()]


def carried(source: Any, target: Any, name: str) -> tuple[list[float], list[float]]:
    """Six steps in `source`, against three there and, through a file, three in `target`."""
    params, optimizer = make(source, name)
    run(source, params, optimizer, 3)
    file = io.BytesIO()
    source.save({"params": [p.detach() for p in params], "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = target.load(file)
    others, other = make(target, name)
    other.load_state_dict(loaded["optimizer"])
    with target.no_grad():
        for p, value in zip(others, loaded["params"], strict=True):
            p.copy_(value)
    run(source, params, optimizer, 3)
    run(target, others, other, 3)
    return numbers(params), numbers(others)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_file_of_our_own(name: str) -> None:
    wanted, found = carried(rushlight, rushlight, name)
    assert wanted == found


@pytest.mark.oracle
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("here", ["loads", "saves"])
def test_files_travel(name: str, here: str) -> None:
    real = pytest.importorskip("torch")
    wanted, found = carried(real, rushlight, name) if here == "loads" else carried(rushlight, real, name)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-7)


@pytest.mark.oracle
@pytest.mark.parametrize("name", OPTIONS)
def test_states_hold_what_pytorchs_hold(name: str) -> None:
    def form(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: form(item) for key, item in value.items()}
        if isinstance(value, list):
            return [form(item) for item in value]
        return (str(value.dtype), tuple(value.shape)) if hasattr(value, "shape") else type(value)

    forms = []
    for t in (rushlight, pytest.importorskip("torch")):
        params, optimizer = make(t, name)
        run(t, params, optimizer, 3)
        state = optimizer.state_dict()
        forms.append((form(state), [list(kept) for kept in state["state"].values()]))
    assert forms[0] == forms[1]


def test_a_file_that_pytorch_wrote() -> None:
    """`adam_of_pytorch.bin` holds three steps of Adam, `adam_of_pytorch.json` the parameters after three more."""
    loaded = rushlight.load(HERE / "adam_of_pytorch.bin")
    params, optimizer = make(rushlight, "Adam")
    optimizer.load_state_dict(loaded["optimizer"])
    with rushlight.no_grad():
        for p, value in zip(params, loaded["params"], strict=True):
            p.copy_(value)
    run(rushlight, params, optimizer, 3)
    np.testing.assert_allclose(numbers(params), json.loads((HERE / "adam_of_pytorch.json").read_text()), rtol=1e-6)
