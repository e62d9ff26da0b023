"""Optimizers against NumPy in float64, and against real PyTorch where it is installed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn, optim

SHAPES: list[tuple[int, ...]] = [(3, 2), (4,), (), (0,), (70_000,)]

# name: (options); the class is the part before the blank
CASES: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1},
    "SGD momentum": {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.05},
    "SGD nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True},
    "Adam": {"lr": 0.1},
    "Adam decay": {"lr": 0.1, "weight_decay": 0.1, "betas": (0.4, 0.9)},
    "Adam amsgrad": {"lr": 0.1, "amsgrad": True, "maximize": True},
    "AdamW": {"lr": 0.1, "weight_decay": 0.2},
    "AdamW amsgrad": {"lr": 0.1, "amsgrad": True, "eps": 1e-3},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.1},
    "RMSprop": {"lr": 0.1, "weight_decay": 0.1},
    "RMSprop momentum": {"lr": 0.1, "momentum": 0.9, "centered": True},
    "Adadelta": {"lr": 0.5, "weight_decay": 0.1},
    "Adamax": {"lr": 0.1, "maximize": True},
    "NAdam": {"lr": 0.1, "weight_decay": 0.1},
    "NAdam decoupled": {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True},
    "RAdam": {"lr": 0.1, "betas": (0.9, 0.5)},
    "RAdam early": {"lr": 0.1, "weight_decay": 0.1},
    "Rprop": {"lr": 0.1},
    "ASGD": {"lr": 0.1, "weight_decay": 0.1, "t0": 2},
}


# ***** the definitions, in NumPy *****


def sgd(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    if o["momentum"]:
        s["b"] = g if "b" not in s else o["momentum"] * s["b"] + (1 - o["dampening"]) * g
        g = g + o["momentum"] * s["b"] if o["nesterov"] else s["b"]
    return p - o["lr"] * g


def adam(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    b1, b2 = o["betas"]
    t = s["t"] = s.get("t", 0) + 1
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    s["x"] = np.maximum(s.get("x", 0), s["v"])
    root = np.sqrt((s["x"] if o["amsgrad"] else s["v"]) / (1 - b2**t))
    return p - o["lr"] * (s["m"] / (1 - b1**t)) / (root + o["eps"])


def adagrad(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    t = s["t"] = s.get("t", 0) + 1
    s["sum"] = s.get("sum", o["initial_accumulator_value"]) + g * g
    return p - o["lr"] / (1 + (t - 1) * o["lr_decay"]) * g / (np.sqrt(s["sum"]) + o["eps"])


def rmsprop(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    a = o["alpha"]
    s["v"] = a * s.get("v", 0) + (1 - a) * g * g
    s["m"] = a * s.get("m", 0) + (1 - a) * g
    step = g / (np.sqrt(s["v"] - (s["m"] ** 2 if o["centered"] else 0)) + o["eps"])
    if o["momentum"]:
        step = s["b"] = o["momentum"] * s.get("b", 0) + step
    return p - o["lr"] * step


def adadelta(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    rho = o["rho"]
    s["v"] = rho * s.get("v", 0) + (1 - rho) * g * g
    d = np.sqrt(s.get("u", 0) + o["eps"]) / np.sqrt(s["v"] + o["eps"]) * g
    s["u"] = rho * s.get("u", 0) + (1 - rho) * d * d
    return p - o["lr"] * d


def adamax(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    b1, b2 = o["betas"]
    t = s["t"] = s.get("t", 0) + 1
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["u"] = np.maximum(b2 * s.get("u", 0), np.abs(g) + o["eps"])
    return p - o["lr"] / (1 - b1**t) * s["m"] / s["u"]


def nadam(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    b1, b2 = o["betas"]
    t = s["t"] = s.get("t", 0) + 1
    mu, ahead = (b1 * (1 - 0.5 * 0.96 ** (k * o["momentum_decay"])) for k in (t, t + 1))
    product = s["product"] = s.get("product", 1) * mu
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    mean = ahead * s["m"] / (1 - product * ahead) + (1 - mu) * g / (1 - product)
    return p - o["lr"] * mean / (np.sqrt(s["v"] / (1 - b2**t)) + o["eps"])


def radam(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    b1, b2 = o["betas"]
    t = s["t"] = s.get("t", 0) + 1
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    mean, longest = s["m"] / (1 - b1**t), 2 / (1 - b2) - 1
    length = longest - 2 * t * b2**t / (1 - b2**t)
    if length <= 5:
        return p - o["lr"] * mean
    trust = np.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
    return p - o["lr"] * mean * trust * np.sqrt(1 - b2**t) / (np.sqrt(s["v"]) + o["eps"])


def rprop(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    agreement = g * s.get("g", 0)
    factor = np.where(agreement > 0, o["etas"][1], np.where(agreement < 0, o["etas"][0], 1))
    s["size"] = np.clip(s.get("size", o["lr"]) * factor, *o["step_sizes"])
    s["g"] = np.where(agreement < 0, 0, g)
    return p - np.sign(s["g"]) * s["size"]


def asgd(p: Any, g: Any, s: dict[str, Any], o: dict[str, Any]) -> Any:
    t = s["t"] = s.get("t", 0) + 1
    eta = s.get("eta", o["lr"])
    s["eta"] = o["lr"] / (1 + o["lambd"] * o["lr"] * t) ** o["alpha"]
    return p * (1 - o["lambd"] * eta) - eta * g


REFERENCES = {
    "SGD": sgd, "Adam": adam, "AdamW": adam, "Adagrad": adagrad, "RMSprop": rmsprop, "Adadelta": adadelta, "Adamax": adamax,
    "NAdam": nadam, "RAdam": radam, "Rprop": rprop, "ASGD": asgd,
}  # fmt: skip


def run(t: Any, name: str, dtype: str = "float32", steps: int = 5) -> tuple[list[Any], Any, list[Any], list[list[Any]]]:
    """Some steps with random gradients; one parameter misses one gradient."""
    rng = np.random.default_rng(0)
    start = [rng.standard_normal(shape) for shape in SHAPES]
    params = [t.nn.Parameter(t.tensor(np.asarray(x, dtype)), True) for x in start]
    cls = getattr(t.optim, name.split()[0])
    optimizer = cls([{"params": params[:1], "lr": 0.05}, {"params": params[1:]}], **CASES[name])
    grads = []
    for i in range(steps):
        step = [rng.standard_normal(shape) for shape in SHAPES]
        if i == 2:
            step[1] = None
        grads.append(step)
        for p, g in zip(params, step, strict=True):
            p.grad = None if g is None else t.tensor(np.asarray(g, dtype))
        optimizer.step()
    return params, optimizer, start, grads


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_against_the_definition(name: str, dtype: str) -> None:
    params, optimizer, start, grads = run(torch, name, dtype)
    update = REFERENCES[name.split()[0]]
    for i, param in enumerate(params):
        options = optimizer.param_groups[0 if i == 0 else 1]
        p, state = start[i].astype(dtype).astype(np.float64), {}
        for step in grads:
            if step[i] is None:
                continue
            g = step[i].astype(dtype).astype(np.float64) * (-1 if options.get("maximize") else 1)
            if name.startswith("AdamW") or options.get("decoupled_weight_decay"):
                p = p * (1 - options["lr"] * options["weight_decay"])
            else:
                g = g + options.get("weight_decay", 0) * p
            p = update(p, g, state, options)
        # The first steps of Adam divide small numbers by small numbers: an error in the last place is enlarged.
        # NAdam and ASGD keep numbers of their own, in float32 as PyTorch does.
        coarse = dtype == "float32" or name.startswith(("NAdam", "ASGD"))
        tolerance = 3e-5 if coarse else 1e-12
        np.testing.assert_allclose(param.detach().numpy(), p, rtol=tolerance, atol=tolerance)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_against_pytorch(name: str, dtype: str) -> None:
    real = pytest.importorskip("torch")
    params, optimizer, *_ = run(torch, name, dtype)
    wanted, other, *_ = run(real, name, dtype)
    # PyTorch takes its square roots from a library whose last bit is not always right; without roots the bits are equal.
    exact = name.startswith("SGD")
    rough = 1e-4 if name.startswith("RMSprop") else 3e-6
    tolerance = 0.0 if exact else (rough if dtype == "float32" else rough * 1e-8)
    for p, w in zip(params, wanted, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), w.detach().numpy(), rtol=tolerance, atol=tolerance)
    assert repr(optimizer) == repr(other)
    ours, theirs = optimizer.state_dict(), other.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert list(ours["state"]) == list(theirs["state"])
    for key, kept in theirs["state"].items():
        assert list(ours["state"][key]) == list(kept)
        for word, value in kept.items():
            mine = ours["state"][key][word]
            assert repr(mine.dtype) == repr(value.dtype) and tuple(mine.shape) == tuple(value.shape)
            np.testing.assert_allclose(mine.numpy(), value.numpy(), rtol=tolerance, atol=tolerance)


# ***** the kernel and the tensor operations agree *****


@pytest.mark.parametrize("name", ["SGD momentum", "Adam decay", "Adam amsgrad", "AdamW"])
def test_layouts_and_dtypes_that_the_kernel_does_not_take(name: str) -> None:
    cls = getattr(optim, name.split()[0])

    def make(kind: str) -> list[Any]:
        torch.manual_seed(3)
        x = torch.randn(4, 6)
        if kind == "permuted":
            return [nn.Parameter(x.T), lambda g: g.T]
        if kind == "with gaps":
            return [nn.Parameter(torch.cat([x, x], 1)[:, :6]), lambda g: g]
        if kind == "gradient of another layout":
            return [nn.Parameter(x), lambda g: g.T.contiguous().T]
        return [nn.Parameter(x), lambda g: g]

    results = []
    for kind in ("plain", "permuted", "with gaps", "gradient of another layout"):
        p, turn = make(kind)
        optimizer = cls([p], **CASES[name])
        torch.manual_seed(4)
        for _ in range(3):
            p.grad = turn(torch.randn(4, 6))
            optimizer.step()
        results.append((p.detach().T if kind == "permuted" else p.detach()).tolist())
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_parameters(dtype: Any) -> None:
    for cls in (optim.SGD, optim.AdamW):
        p = nn.Parameter(torch.ones(3, dtype=dtype))
        optimizer = cls([p], lr=0.5)
        p.grad = torch.ones(3, dtype=dtype)
        optimizer.step()
        assert p.dtype is dtype and p.detach().float().tolist() == pytest.approx([0.5] * 3, abs=0.01)


def test_nan_and_inf_gradients() -> None:
    p = nn.Parameter(torch.ones(4))
    optimizer = optim.Adam([p], lr=0.1, amsgrad=True)
    p.grad = torch.tensor([float("nan"), float("inf"), 0.0, 1.0])
    optimizer.step()
    optimizer.step()
    values = p.detach().tolist()
    assert values[0] != values[0] and values[1] != values[1] and values[2] == 1.0 and values[3] == pytest.approx(0.8)


def test_updates_count_as_in_place_changes() -> None:
    p = nn.Parameter(torch.ones(3))
    before = p._version
    y = (p * p).sum()
    p.grad = torch.ones(3)
    optim.SGD([p], lr=0.1).step()
    assert p._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_large_parameters_do_not_depend_on_the_number_of_threads() -> None:
    if not hasattr(torch, "set_num_threads"):
        pytest.skip("threads cannot be set")
    found = []
    threads = torch.get_num_threads()
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        torch.manual_seed(0)
        p = nn.Parameter(torch.randn(300_001))
        optimizer = optim.AdamW([p])
        for _ in range(2):
            p.grad = torch.randn(300_001)
            optimizer.step()
        found.append(p.detach().numpy().tobytes())
    torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


# ***** the base class *****


def test_training_goes_down() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(64, 4)
    y = x.sum(1, keepdim=True)
    optimizer = optim.AdamW(net.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_closure() -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = optim.SGD([p], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert p.detach().tolist() == [0.0, 0.0]


def test_bad_arguments() -> None:
    p = nn.Parameter(torch.ones(2))
    for bad, text in (
        (lambda: optim.SGD([p], lr=-1.0), "Invalid learning rate: -1.0"),
        (lambda: optim.SGD([p], momentum=-1), "Invalid momentum value"),
        (lambda: optim.SGD([p], nesterov=True), "Nesterov momentum requires a momentum and zero dampening"),
        (lambda: optim.Adam([p], betas=(1.0, 0.9)), "Invalid beta parameter at index 0: 1.0"),
        (lambda: optim.AdamW([p], eps=-1), "Invalid epsilon value"),
        (lambda: optim.Adagrad([p], lr_decay=-1), "Invalid lr_decay value"),
        (lambda: optim.RMSprop([p], alpha=-1), "Invalid alpha value"),
        (lambda: optim.SGD([]), "empty parameter list"),
        (lambda: optim.SGD([p * 2]), "can't optimize a non-leaf Tensor"),
        (lambda: optim.SGD([{"params": [p]}, {"params": [p]}]), "more than one parameter group"),
        (lambda: optim.SGD([("a", p), nn.Parameter(torch.ones(1))]), "Some param names are missing"),
        (lambda: optim.Adam([p], lr=torch.tensor([0.1, 0.2])), "Tensor lr must be 1-element"),
    ):
        with pytest.raises(ValueError, match=text):
            bad()
    for bad, text in (
        (lambda: optim.SGD(p), "iterable of Tensors or dicts, but got torch.FloatTensor"),
        (lambda: optim.SGD([3]), "one of the params is int"),
        (lambda: optim.SGD([{"params": {p}}]), "ordered collections"),
        (lambda: optim.SGD([p]).add_param_group([p]), "param_group must be a dict"),
    ):
        with pytest.raises(TypeError, match=text):
            bad()
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([p, p])
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        optim.AdamW([p], fused=True, foreach=True)
    with pytest.raises(AttributeError, match=r"module 'rushlight.optim' has no attribute 'Lion'"):
        optim.Lion


def test_groups_can_be_changed_and_added() -> None:
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = optim.SGD([a], lr=1.0)
    optimizer.add_param_group({"params": b, "lr": 0.0})
    a.grad, b.grad = torch.ones(1), torch.ones(1)
    optimizer.step()
    assert (a.item(), b.item()) == (0.0, 1.0)
    optimizer.param_groups[1]["lr"] = 0.5
    optimizer.step()
    assert (a.item(), b.item()) == (-1.0, 0.5)


def test_named_parameters() -> None:
    net = nn.Linear(2, 1)
    optimizer = optim.SGD(net.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="cannot add param group without names"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})


def test_zero_grad() -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = optim.SGD([p])
    p.grad = torch.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.step()
    assert p.detach().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", CASES)
def test_resuming_gives_the_same_run(name: str) -> None:
    rng = np.random.default_rng(1)
    grads = [torch.tensor(rng.standard_normal(5).astype("float32")) for _ in range(6)]
    cls, options = getattr(optim, name.split()[0]), CASES[name]

    def steps(p: Any, optimizer: Any, which: list[Any]) -> None:
        for g in which:
            p.grad = g.clone()
            optimizer.step()

    whole = nn.Parameter(torch.ones(5))
    steps(whole, cls([whole], **options), grads)
    part = nn.Parameter(torch.ones(5))
    first = cls([part], **options)
    steps(part, first, grads[:3])
    state = copy.deepcopy(first.state_dict())
    resumed = nn.Parameter(part.detach().clone())
    second = cls([resumed], lr=123.0)
    second.load_state_dict(state)
    steps(resumed, second, grads[3:])
    assert resumed.detach().tolist() == whole.detach().tolist()


def test_state_dict_layout_and_errors() -> None:
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2))
    optimizer = optim.AdamW([{"params": [a]}, {"params": [b]}], lr=0.1)
    a.grad = torch.ones(1)
    optimizer.step()
    state = optimizer.state_dict()
    assert [g["params"] for g in state["param_groups"]] == [[0], [1]] and list(state["state"]) == [0]
    assert state["state"][0]["step"].item() == 1.0 and state["state"][0]["exp_avg"] is optimizer.state[a]["exp_avg"]
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optim.AdamW([a]).load_state_dict(state)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        optim.AdamW([{"params": [a]}, {"params": [b, nn.Parameter(torch.ones(1))]}]).load_state_dict(state)
    wide = nn.Parameter(torch.ones(1, dtype=torch.float64))
    other = optim.AdamW([{"params": [wide]}, {"params": [b]}])
    other.load_state_dict(state)
    assert other.state[wide]["exp_avg"].dtype is torch.float64 and other.state[wide]["step"].dtype is torch.float32
    assert other.param_groups[0]["lr"] == 0.1


def test_hooks() -> None:
    from rushlight.optim import optimizer as page

    p = nn.Parameter(torch.ones(1))
    optimizer = optim.SGD([p], lr=0.1)
    order: list[str] = []
    handles = [
        optimizer.register_step_pre_hook(lambda o, a, k: order.append("pre")),
        optimizer.register_step_post_hook(lambda o, a, k: order.append("post")),
        page.register_optimizer_step_pre_hook(lambda o, a, k: order.append("global pre")),
        page.register_optimizer_step_post_hook(lambda o, a, k: order.append("global post")),
        optimizer.register_state_dict_pre_hook(lambda o: order.append("before saving")),
        optimizer.register_state_dict_post_hook(lambda o, s: {**s, "note": 1}),
        optimizer.register_load_state_dict_pre_hook(lambda o, s: order.append("before loading")),
        optimizer.register_load_state_dict_post_hook(lambda o: order.append("after loading")),
    ]
    optimizer.step()
    assert order == ["global pre", "pre", "post", "global post"]
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert state["note"] == 1 and order[4:] == ["before saving", "before loading", "after loading"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(order) == 7
    optimizer.register_step_pre_hook(lambda o, a, k: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimizer.step()


def test_copies() -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = optim.AdamW([p])
    p.grad = torch.ones(2)
    optimizer.step()
    twin = copy.deepcopy(optimizer)
    assert twin.param_groups[0]["params"][0] is not p
    assert twin.state[twin.param_groups[0]["params"][0]]["step"].item() == 1.0


def test_an_optimizer_of_ones_own() -> None:
    class Sign(optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: Any = None) -> None:
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.add_(p.grad.sign(), alpha=-group["lr"])

    p = nn.Parameter(torch.ones(2))
    optimizer = Sign([p], 0.25)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *a: calls.append(1))
    p.grad = torch.tensor([3.0, -5.0])
    optimizer.step()
    assert p.detach().tolist() == [0.75, 1.25] and calls == [1]
