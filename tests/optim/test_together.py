"""The kernel that takes a step for many parameters beside tensor operations on each, and the functions on lists."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from tests.optim.steps import OPTIONS

import rushlight as torch
from rushlight.optim import _functional as functions

FAMILIES = ("Adadelta", "Adafactor", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
CASES = [
    f"{name}: {what}"
    for name in FAMILIES
    for what in OPTIONS[name]
    if what not in ("differentiable", "foreach", "tensor lr")
]
SHAPES = [(), (1,), (7,), (3, 5), (4, 1, 33), (0, 3), (1000,), (65, 1031)]


def problem(case: str, dtype: Any, seed: int) -> tuple[Any, list[Any], list[list[Any]]]:
    """An optimizer, its parameters (one transposed), and gradients for a few steps."""
    name, _, what = case.partition(": ")
    torch.manual_seed(seed)
    params = [
        torch.randn(shape, dtype=dtype) for shape in SHAPES if name != "Adafactor" or 0 not in shape
    ]  # of no elements is no mean
    if name != "Adafactor":  # whose kernel knows rows and columns
        params[3] = params[3].t()
    grads = [[torch.randn_like(p) * random.Random(seed + k).choice([0.1, 1.0, 30.0]) for p in params] for k in range(4)]
    return (
        getattr(torch.optim, name)([p.requires_grad_() for p in params], **{"lr": 0.03, **OPTIONS[name][what]}),
        params,
        grads,
    )


def train(optimizer: Any, params: list[Any], grads: list[list[Any]]) -> list[Any]:
    for step in grads:
        for p, g in zip(params, step, strict=True):
            p.grad = g.clone()
        optimizer.step()
    return [p.detach() for p in params] + [value for p in params for value in optimizer.state[p].values()]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_tensor_operations(case: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        getattr(torch.optim, case.partition(":")[0]), "_update_one", None
    )  # all are taken by the kernel
    together = train(*problem(case, dtype, 3))
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert all(torch.equal(x, y) for x, y in zip(together, train(*problem(case, dtype, 3)), strict=True))
    finally:
        torch.set_num_threads(threads)
    monkeypatch.undo()
    monkeypatch.setattr(
        getattr(torch.optim, case.partition(":")[0]),
        "_update_together",
        classmethod(lambda cls, changes, group: changes),
    )
    alone = train(*problem(case, dtype, 3))
    exact = not case.startswith(
        "Adafactor"
    )  # which sums; all others are one rule, in a kernel and as tensor operations
    for x, y in zip(together, alone, strict=True):
        rtol, atol = (0.0, 0.0) if exact else (1e-5, 2e-5) if dtype is torch.float32 else (1e-12, 1e-13)
        torch.testing.assert_close(x, y, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", FAMILIES)
def test_numbers_that_are_not_finite(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        p = torch.linspace(-1, 1, 40).requires_grad_()
        grad = torch.linspace(-2, 2, 40)
        grad[3], grad[5], grad[9], grad[20] = float("nan"), float("inf"), -float("inf"), 0.0
        return train(getattr(torch.optim, name)([p], lr=0.1), [p], [[grad], [-grad], [grad]])

    together = run()
    monkeypatch.setattr(
        getattr(torch.optim, name), "_update_together", classmethod(lambda cls, changes, group: changes)
    )
    for x, y in zip(together, run(), strict=True):
        torch.testing.assert_close(x, y, equal_nan=True, rtol=1e-5, atol=1e-6)


STATES = {
    "Adadelta": ("square_avg", "acc_delta"), "Adagrad": ("sum",), "Adamax": ("exp_avg", "exp_inf"), "ASGD": ("ax", "mu", "eta"),
    "NAdam": ("exp_avg", "exp_avg_sq", "mu_product"), "RAdam": ("exp_avg", "exp_avg_sq"),
    "RMSprop": ("square_avg", "grad_avg", "momentum_buffer"), "Rprop": ("prev", "step_size"), "Adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    "AdamW": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"), "Adafactor": ("row_var", "col_var", "variance"),
}  # fmt: skip
RENAMED = {
    "etas": ("etaminus", "etaplus"),
    "step_sizes": ("step_size_min", "step_size_max"),
    "betas": ("beta1", "beta2"),
    "eps": ("eps1", "eps2"),
}


@pytest.mark.parametrize("name", STATES)
def test_functions_step_as_their_classes(name: str) -> None:
    """The second step, taken by the class and by the function on copies of everything."""
    torch.manual_seed(0)
    extra = {"amsgrad": True} if name.startswith("Adam") and name != "Adamax" else {}
    params = [torch.randn(3, 4).requires_grad_(), torch.randn(5).requires_grad_()]
    grads = [torch.randn_like(p) for p in params]
    optimizer = getattr(torch.optim, name)(params, lr=0.05, **extra)
    train(optimizer, params, [grads])
    lists = [
        [optimizer.state[p][key].clone() if key in optimizer.state[p] else None for p in params]
        for key in (*STATES[name], "step")
    ]
    lists = [[] if all(value is None for value in values) else values for values in lists]
    copies = [p.detach().clone() for p in params]
    options: dict[str, Any] = {}
    for key, value in optimizer.param_groups[0].items():
        if isinstance(value, tuple) and key in RENAMED:
            options.update(zip(RENAMED[key], value, strict=True))
        elif key not in (
            "params",
            "foreach",
            "capturable",
            "differentiable",
            "fused",
            "initial_accumulator_value",
            "decoupled_weight_decay",
        ) or (key == "decoupled_weight_decay" and name != "AdamW"):
            options[key] = value
    if name == "Rprop":  # the step sizes hold the rate
        del options["lr"]
    assert (
        getattr(functions if name != "Adafactor" else torch.optim._adafactor, name.lower())(
            copies, grads, *lists, **options
        )
        is None
    )
    train(optimizer, params, [grads])
    for p, copy in zip(params, copies, strict=True):
        assert torch.equal(p, copy)


def test_sgd_on_lists() -> None:
    params, grads = [torch.ones(3), torch.ones(2)], [torch.full((3,), 2.0), torch.full((2,), 4.0)]
    buffers: list[Any] = [None, torch.ones(2)]
    options: dict[str, Any] = {
        "weight_decay": 0.0,
        "momentum": 0.5,
        "lr": 0.1,
        "dampening": 0.0,
        "nesterov": False,
        "maximize": False,
    }
    functions.sgd(params, grads, buffers, **options)
    assert buffers[0].tolist() == [2.0] * 3 and buffers[1].tolist() == [4.5] * 2
    torch.testing.assert_close(params, [torch.full((3,), 0.8), torch.full((2,), 0.55)])


def test_what_lists_must_hold() -> None:
    options: dict[str, Any] = {"lr": 0.1, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0, "maximize": False}
    one = [torch.ones(2)]
    with pytest.raises(RuntimeError, match="`state_steps` argument must contain a list of singleton tensors"):
        functions.adadelta(one, one, one, one, [1], **options)
    adam: dict[str, Any] = {
        "amsgrad": False,
        "beta1": 0.9,
        "beta2": 0.99,
        "lr": 0.1,
        "weight_decay": 0.0,
        "eps": 1e-8,
        "maximize": False,
    }
    with pytest.raises(AssertionError, match="grad_scale and found_inf"):
        functions.adam(one, one, one, one, [], [torch.zeros(())], grad_scale=torch.ones(()), **adam)
    p, g = torch.ones(2), torch.full((2,), 8.0)
    functions.adam(
        [p],
        [g],
        [torch.zeros(2)],
        [torch.zeros(2)],
        [],
        [torch.zeros(())],
        fused=True,
        grad_scale=torch.tensor(4.0),
        **adam,
    )
    assert g.tolist() == [2.0, 2.0] and p[0] < 1
    functions.adam([p], [g], [], [], [], [], fused=True, found_inf=torch.ones(()), **adam)
    assert g.tolist() == [2.0, 2.0]


def test_a_step_may_be_the_first_work_of_a_process() -> None:
    """Nothing has been computed before: parameters and gradients come from files, say."""
    program = (
        "import numpy, rushlight as t; p = t.nn.Parameter(t.from_numpy(numpy.ones(3))); p.grad = t.from_numpy(numpy.ones(3)); "
        "t.optim.Adam([p], lr=0.5).step(); print(p.detach().numpy().round(6).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["[0.5,", "0.5,", "0.5]"], done.stderr


@pytest.mark.parametrize(
    "name", ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]
)
def test_complex_and_real_parameters_in_one_list(name: str) -> None:
    """Complex numbers are two elements each, whichever kind comes first."""
    torch.manual_seed(0)
    kinds = (torch.complex64, torch.float32)
    values, grads = ([torch.randn(301, dtype=kind) for kind in kinds] for _ in range(2))

    def after(*chosen: int) -> dict[int, Any]:
        params = {i: values[i].clone().requires_grad_() for i in chosen}
        optimizer = getattr(torch.optim, name)(params.values(), lr=0.1)
        for _ in range(2):
            for i, p in params.items():
                p.grad = grads[i].clone()
            optimizer.step()
        return {i: p.detach() for i, p in params.items()}

    alone = {**after(0), **after(1)}
    for order in ((0, 1), (1, 0)):
        together = after(*order)
        assert all(torch.equal(together[i], alone[i]) for i in order)
        assert all((together[i] != values[i]).all() for i in order)


def test_multi_tensor_classes_update_together() -> None:
    from rushlight.optim import _multi_tensor

    weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]
    for w in weights:
        w.grad = torch.full_like(w, 0.5)
    optimizer = _multi_tensor.SGD(weights, lr=0.1)
    assert optimizer.defaults["foreach"] is True and isinstance(optimizer, torch.optim.SGD)
    optimizer.step()
    torch.testing.assert_close(weights[1].detach(), torch.full((3,), 0.95))
