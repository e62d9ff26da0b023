"""Compiled functions on a GPU beside tensors of the host: counters of steps, learning rates, scales of gradients.

Eager calls are the truth, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn

pytestmark = pytest.mark.cuda

COUNTERS = torch._dynamo.utils.counters


def bits(x: Any) -> Any:
    """A value as plain data that is equal for equal bits alone."""
    if isinstance(x, torch.Tensor):
        return (
            x.device.type,
            x.dtype,
            tuple(x.shape),
            x.stride(),
            x._version,
            x.detach().cpu().reshape(-1).view(torch.uint8).tolist(),
        )
    if isinstance(x, (tuple, list)):
        return [bits(item) for item in x]
    return x


def scalar(value: Any, dtype: Any = torch.float32) -> Any:
    return torch.tensor(value, dtype=dtype).reshape(1)[0].clone()


# a function of a tensor on the device and one on the host, and the one on the host
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "a factor": (lambda x, s: x * s, scalar(2.5)),
    "a factor of half precision": (lambda x, s: x + s, scalar(2.5, torch.bfloat16)),
    "a factor of double precision": (lambda x, s: x / s, scalar(1 / 3, torch.float64)),
    "a condition": (lambda x, s: torch.where(s, x, -x), scalar(True, torch.bool)),
    "a whole number": (lambda x, s: x.int() + s, scalar(200, torch.uint8)),
    "one element of many dims": (lambda x, s: x + s.to("cuda"), torch.full((1, 1), 4.0)),
    "a counter behind": (lambda x, s: (x * s, s.add_(1)), scalar(3.0)),
    "a counter before": (lambda x, s: (s.add_(1), x * s), scalar(3.0)),
    "a counter that goes on": (lambda x, s: (x * s, s.add_(1), x - s, s.mul_(2), x / s), scalar(3.0)),
    "a power of a number": (lambda x, s: x * (1 - 0.9 ** s.item()), scalar(3.0)),
    "a copy": (lambda x, s: x.clone().copy_(s), scalar(3.0)),
    "a fill": (lambda x, s: x.clone().fill_(s), scalar(3.0)),
    "results of the host": (lambda x, s: (x + 1, s * 2, torch.zeros(3), s[1:].add_(1)), torch.arange(4.0)),
    "an element of many": (lambda x, s: x + s[1] * s[2], torch.arange(4.0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_tensor_of_the_host_is_an_input(name: str) -> None:
    function, given = FUNCTIONS[name]
    COUNTERS.clear()
    compiled = torch.compile(function)
    x, ours, theirs = torch.arange(6.0, device="cuda").reshape(2, 3), given.clone(), given.clone()
    for turn in range(3):
        assert bits([compiled(x, ours), ours]) == bits([function(x, theirs), theirs])
        for host in (ours, theirs):
            host.copy_(given) if host.dtype is torch.bool else host.add_(turn)
    assert COUNTERS["stats"]["unique_graphs"] == 1
    assert not COUNTERS["graph_break"]
    assert not COUNTERS["recompiles"]


def test_gradients_go_past_a_number_of_the_host() -> None:
    compiled = torch.compile(lambda w, s: (w * s).exp())
    for number in (2.0, 3.0):
        found = []
        for function in (compiled, lambda w, s: (w * s).exp()):
            w = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
            function(w, torch.tensor(number)).sum().backward()
            found.append(bits(w.grad))
        assert found[0] == found[1]


def test_a_number_of_the_host_that_wants_a_gradient_gets_one() -> None:
    w, s = torch.tensor([1.0, 2.0], device="cuda"), torch.tensor(0.5, requires_grad=True)
    torch.compile(lambda w, s: (w * s).exp())(w, s).sum().backward()
    found, s.grad = s.grad, None
    (w * s).exp().sum().backward()
    assert bits(found) == bits(s.grad)


def test_vectors_of_the_host_are_refused_as_by_eager() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.compile(lambda x, v: x + v)(torch.ones(3, device="cuda"), torch.arange(3.0))


# ***** steps of training *****


class Training:
    """A small model in training: `step` is what is compiled."""

    def __init__(self, optimizer: Callable[[Any], Any], scaled: bool = False, schedule: Any = None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("cuda")
        self.optimizer = optimizer(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2) if scaled else None
        self.schedule = None if schedule is None else schedule(self.optimizer)

    def step(self, x: Any, y: Any) -> Any:
        loss = nn.functional.mse_loss(self.model(x), y)
        if self.scaler is None:
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()
        return loss

    def run(self, step: Callable[[Any, Any], Any], overflow: int = -1) -> Any:
        """What five steps leave behind."""
        torch.manual_seed(1)
        losses = []
        for turn in range(5):
            x, y = torch.randn(5, 8, device="cuda"), torch.randn(5, 4, device="cuda")
            if turn == overflow:
                x[0, 0] = float("inf")
            losses.append(bits(step(x, y)))
            if self.schedule is not None:
                self.schedule.step()
        state = [bits(list(kept.values())) for kept in self.optimizer.state.values()]
        scale = None if self.scaler is None else self.scaler.get_scale()
        return losses, bits([p.detach() for p in self.model.parameters()]), state, scale


optim = torch.optim
STEPS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": lambda p: optim.SGD(p, lr=0.1, momentum=0.9)},
    "adam": {"optimizer": lambda p: optim.Adam(p, lr=0.01)},
    "adamw, scaled": {"optimizer": lambda p: optim.AdamW(p, lr=0.01), "scaled": True},
    "adam, fused and scaled": {"optimizer": lambda p: optim.Adam(p, lr=0.01, fused=True), "scaled": True},
    "sgd, a rate that falls": {
        "optimizer": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        "schedule": lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 5),
    },
    "adam, a rate in a tensor": {
        "optimizer": lambda p: optim.Adam(p, lr=torch.tensor(0.01)),
        "schedule": lambda o: optim.lr_scheduler.ExponentialLR(o, 0.5),
    },
    "nadam": {"optimizer": lambda p: optim.NAdam(p, lr=0.01)},
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_training_is_one_program(name: str) -> None:
    eager = Training(**STEPS[name])
    expected = eager.run(eager.step)
    COUNTERS.clear()
    compiled = Training(**STEPS[name])
    assert compiled.run(torch.compile(compiled.step)) == expected
    assert not COUNTERS["graph_break"]
    assert COUNTERS["stats"]["unique_graphs"] <= 2  # the first step makes the states of the optimizer


def test_a_step_that_overflows_is_skipped() -> None:
    eager = Training(**STEPS["adamw, scaled"])
    expected = eager.run(eager.step, overflow=3)
    compiled = Training(**STEPS["adamw, scaled"])
    assert compiled.run(torch.compile(compiled.step), overflow=3) == expected
    assert all(kept["step"].item() == 4 for kept in compiled.optimizer.state.values())


# a module or function, and its inputs for a size
SIZED: dict[str, tuple[Callable[[], Any], Callable[[int], list[Any]]]] = {
    "layers": (lambda: nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.LayerNorm(6)), lambda n: [torch.randn(n, 8)]),
    "numbers of sizes": (lambda: lambda x: x * x.shape[0] + torch.arange(x.shape[1], device=x.device), lambda n: [torch.randn(n, n + 1)]),
    "attention": (
        lambda: lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda n: [torch.randn(1, 2, n, 16) for _ in range(3)],
    ),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.AdaptiveAvgPool2d(1)), lambda n: [torch.randn(2, 2, n, n)]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "mode"), [*[(name, "default") for name in SIZED], ("layers", "reduce-overhead")])
def test_one_trace_serves_all_sizes(name: str, mode: str) -> None:
    make, inputs = SIZED[name]
    function = make()
    function = function.cuda() if isinstance(function, nn.Module) else function
    torch._dynamo.reset()
    compiled = torch.compile(function, mode=mode)
    before = COUNTERS["stats"]["unique_graphs"]
    for size in (3, 5, 7, 10):
        given = [x.cuda().requires_grad_() for x in inputs(size)]
        found = []
        for call in (compiled, function):
            made = call(*given)
            found.append(bits([made, *torch.autograd.grad(made.square().sum(), given)]))
        assert found[0] == found[1], size
    assert COUNTERS["stats"]["unique_graphs"] - before == 2  # for the first size, then for all
