"""Fused optimizers under a `GradScaler`: a device skips steps and adapts the scale by itself, eager, captured and compiled.

Truth is what plain optimizers do on the CPU, where the host reads each flag.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn, optim

pytestmark = pytest.mark.cuda

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adam": lambda p, **more: optim.Adam(p, lr=0.1, weight_decay=0.01, **more),
    "adam, amsgrad": lambda p, **more: optim.Adam(p, lr=0.1, amsgrad=True, maximize=True, **more),
    "adamw": lambda p, **more: optim.AdamW(p, lr=0.1, weight_decay=0.1, **more),
    "sgd": lambda p, **more: optim.SGD(p, lr=0.1, weight_decay=0.1, **more),
    "sgd, momentum": lambda p, **more: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **more),
    "sgd, dampening": lambda p, **more: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5, maximize=True, **more),
    "sgd, a rate in a tensor": lambda p, **more: optim.SGD(
        p, lr=torch.tensor(0.1, device=p[0].device), momentum=0.5, **more
    ),
    "adagrad, a rate in a tensor": lambda p, **more: optim.Adagrad(p, lr=torch.tensor(0.1, device=p[0].device), **more),
    "adagrad": lambda p, **more: optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.01, **more),
}
TURNS = 9
WARM = 3  # turns before a capture, which a graph of a first step would repeat


class Training:
    """Two parameters, their optimizer and a scaler: the gradients of a turn are the inputs', infinite at turns `bad`."""

    def __init__(
        self, name: str, device: str, bad: tuple[int, ...], dtype: Any = torch.float32, **options: Any
    ) -> None:
        self.device, self.bad, self.dtype = device, bad, dtype
        self.params = [nn.Parameter(torch.linspace(-1, 1, n, dtype=dtype, device=device)) for n in (5, 3)]
        self.optimizer = OPTIMIZERS[name](self.params, **options)
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**8, growth_interval=2)
        self.inputs = [torch.zeros_like(p) for p in self.params]

    def give(self, turn: int) -> None:
        for k, x in enumerate(self.inputs):
            values = torch.cos(torch.arange(x.numel(), dtype=torch.float32) * (turn + k + 1)).to(self.dtype)
            if turn in self.bad and k == turn % 2:
                values[-1] = math.nan if turn % 3 else math.inf
            x.copy_(values)

    def step(self) -> None:
        loss = sum((p * x).sum() for p, x in zip(self.params, self.inputs, strict=True))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def run(self, turns: range, step: Callable[[], None]) -> None:
        for turn in turns:
            self.give(turn)
            step()

    def values(self) -> list[Any]:
        """Parameters, states, steps, the scale and its tracker."""
        kept = [self.optimizer.state[p] for p in self.params]
        named = [(name, value) for each in kept for name, value in sorted(each.items()) if name != "skipped"]
        found = [p.detach() for p in self.params] + [value for _, value in named]
        numbers = [torch.tensor(self.scaler.get_scale()), torch.tensor(float(self.scaler._get_growth_tracker()))]
        return [x.cpu().double() for x in [*found, *numbers]]


def eager(training: Training) -> None:
    training.run(range(TURNS), training.step)


def captured(training: Training) -> None:
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        training.run(range(WARM), training.step)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            training.step()
        training.run(range(WARM, TURNS), graph.replay)
        torch.cuda.synchronize()


def compiled(training: Training) -> None:
    training.run(range(TURNS), torch.compile(training.step))


def graphed(training: Training) -> None:
    training.run(range(TURNS), torch.compile(training.step, mode="reduce-overhead"))


def expected(name: str, bad: tuple[int, ...], dtype: Any = torch.float32) -> list[Any]:
    """What the CPU gives without fusing."""
    training = Training(name, "cpu", bad, dtype)
    eager(training)
    return training.values()


def is_close(ours: list[Any], theirs: list[Any], tolerance: float = 2e-5) -> bool:
    return len(ours) == len(theirs) and all(
        torch.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("way", [eager, captured, compiled, graphed])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_device_skips_as_the_host_does(name: str, way: Callable[[Training], None]) -> None:
    for bad in ((), (0, 4), (2, 3, 8)):
        options = {"fused": True} | ({"capturable": True} if way is captured and "adam" in name else {})
        training = Training(name, "cuda", bad, **options)
        way(training)
        assert is_close(training.values(), expected(name, bad)), bad


MODES = {"eager": None, "compiled": {}, "reduce-overhead": {"mode": "reduce-overhead"}}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_the_host_waits_for_a_flag_of_plain_optimizers_alone(fused: bool, mode: str) -> None:
    for name in ("adam", "sgd, momentum", "adagrad"):
        training, options = Training(name, "cuda", (), fused=fused), MODES[mode]
        step = training.step if options is None else torch.compile(training.step, **options)
        training.run(range(WARM), step)
        torch.cuda.set_sync_debug_mode("error")
        try:
            if fused:
                step()
            else:
                with pytest.raises(RuntimeError, match="synchroniz"):
                    step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["adamw", "sgd, momentum", "adagrad"])
def test_other_dtypes(name: str, dtype: Any) -> None:
    tolerance = {torch.float16: 0.01, torch.bfloat16: 0.06, torch.float64: 2e-5}[dtype]
    for way in (eager, captured):
        training = Training(
            name, "cuda", (1, 5), dtype, fused=True, **({"capturable": True} if name == "adamw" else {})
        )
        way(training)
        theirs = Training(name, "cpu", (1, 5), dtype, fused=True)
        eager(theirs)
        assert is_close(training.values(), theirs.values(), tolerance)


def test_gradients_are_unscaled_where_a_step_is_taken() -> None:
    p = nn.Parameter(torch.ones(3, device="cuda"))
    optimizer, scaler = optim.SGD([p], lr=1.0, fused=True), torch.amp.GradScaler("cuda", init_scale=4.0)
    for bad, grads in ((False, [2.0, 2.0, 2.0]), (True, [8.0, 8.0, math.inf])):
        p.grad = None
        scaler.scale(p.sum() * 2).backward()
        if bad:
            p.grad[2] = math.inf
        scaler.step(optimizer)
        scaler.update()
        assert p.grad.tolist() == grads and p.tolist() == [-1.0] * 3


def test_a_model_that_was_unscaled_and_clipped_before() -> None:
    found = []
    for device, fused in (("cpu", False), ("cuda", True)):
        training = Training("adamw", device, (2,), fused=fused)
        for turn in range(5):
            training.give(turn)
            loss = sum((p * x).sum() for p, x in zip(training.params, training.inputs, strict=True))
            training.scaler.scale(loss).backward()
            training.scaler.unscale_(training.optimizer)
            nn.utils.clip_grad_norm_(training.params, 0.5)
            training.scaler.step(training.optimizer)
            training.scaler.update()
            training.optimizer.zero_grad()
        found.append(training.values())
    assert is_close(*found)


def test_graphed_callables() -> None:
    """Forward and backward are graphs; an overflow of a replay's gradients lets a fused step be skipped."""
    found = []
    for device, graphed_model in (("cpu", False), ("cuda", True)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
        optimizer = optim.Adam(model.parameters(), lr=0.1, fused=graphed_model)
        scaler = torch.amp.GradScaler(device, init_scale=64.0, growth_interval=2)
        run = torch.cuda.make_graphed_callables(model, (torch.zeros(5, 3, device=device),)) if graphed_model else model
        for turn in range(6):
            x = torch.sin(torch.arange(15.0).view(5, 3) * (turn + 1)).to(device)
            weight = math.inf if turn in (1, 4) else 1.0
            optimizer.zero_grad()
            scaler.scale(run(x).square().sum() * weight).backward()
            scaler.step(optimizer)
            scaler.update()
        steps = {kept["step"].item() for kept in optimizer.state.values()}
        found.append([*[p.detach().cpu() for p in model.parameters()], torch.tensor(scaler.get_scale())])
        assert steps == {4.0}
    assert is_close(*found)


def test_where_a_fused_step_is_counted() -> None:
    for name in ("adam", "adamw", "adagrad"):
        training = Training(name, "cuda", (), fused=True)
        training.run(range(2), training.step)
        after = Training(name, "cuda", (), fused=True)
        state = training.optimizer.state_dict()
        for kept in state["state"].values():
            assert kept["step"].device.type == "cuda" and kept["step"].dtype is torch.float32
            kept["step"] = kept["step"].cpu()
        after.optimizer.load_state_dict(state)
        assert {(kept["step"].device.type, kept["step"].item()) for kept in after.optimizer.state.values()} == {
            ("cuda", 2.0)
        }


def test_functions_on_lists() -> None:
    p, g = torch.ones(2, device="cuda"), torch.full((2,), 8.0, device="cuda")
    m, v, step = torch.zeros_like(p), torch.zeros_like(p), torch.zeros((), device="cuda")
    numbers: dict[str, Any] = {
        "amsgrad": False,
        "beta1": 0.9,
        "beta2": 0.99,
        "lr": 0.5,
        "weight_decay": 0.0,
        "eps": 1e-8,
        "maximize": False,
    }
    scale, flag = torch.tensor(4.0, device="cuda"), torch.ones((), device="cuda")

    def call(counter: Any) -> None:
        optim.adam.adam([p], [g], [m], [v], [], [counter], fused=True, grad_scale=scale, found_inf=flag, **numbers)

    call(step)
    assert (p.tolist(), g.tolist(), m.tolist(), step.item()) == ([1.0, 1.0], [8.0, 8.0], [0.0, 0.0], 0.0)
    flag.zero_()
    call(step)
    assert g.tolist() == [2.0, 2.0] and step.item() == 1.0 and p.tolist() == pytest.approx([0.5, 0.5], abs=1e-6)
    with pytest.raises(RuntimeError, match="steps must be counted there"):
        call(torch.zeros(()))
    buffers: list[Any] = [None]
    flag.fill_(2.0)  # two devices found one each
    optim.sgd.sgd(
        [p],
        [g],
        buffers,
        fused=True,
        found_inf=flag,
        weight_decay=0.0,
        momentum=0.9,
        lr=1.0,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )
    assert p.tolist() == pytest.approx([0.5, 0.5], abs=1e-6) and buffers[0].tolist() == [0.0, 0.0]


def test_what_is_refused() -> None:
    p = nn.Parameter(torch.ones(2, device="cuda"))
    p.grad = torch.ones_like(p)
    plain = optim.Adam([p])
    plain.found_inf = torch.zeros((), device="cuda")
    with pytest.raises(AssertionError, match="Expected grad_scale and found_inf to be None"):
        plain.step()
    with pytest.raises(RuntimeError, match="pass capturable=True"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optim.Adam([p], fused=True).step()
    with pytest.raises(RuntimeError, match="pass fused=True"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optim.Adagrad([p]).step()
    p.grad = torch.ones(2, device="cuda").to_sparse()
    for kind, why in (
        (optim.SGD, "`_fused_sgd` does not"),
        (optim.Adagrad, "`fused` does not"),
        (optim.Adam, "Adam does not"),
    ):
        with pytest.raises(RuntimeError, match=why + " support sparse grad"):
            kind([p], fused=True).step()
