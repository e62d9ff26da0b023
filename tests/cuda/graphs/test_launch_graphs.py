"""Programs that are launched as one CUDA graph (`mode="reduce-overhead"`): its nodes follow the addresses and the numbers of
each call, and nothing is launched by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._backends.registry import backend_of

pytestmark = pytest.mark.cuda


class Counted:
    """How many graphs and kernels the driver launched, and how many nodes got other parameters."""

    def __init__(self, monkeypatch: Any) -> None:
        self.driver: Any = backend_of(torch.device("cuda")).driver  # type: ignore[attr-defined]
        self.counts = {"graphs": 0, "nodes": 0, "kernels": 0}
        for name, counter in (("_launch_graph", "graphs"), ("node_row", "nodes"), ("_launch_on", "kernels")):
            monkeypatch.setattr(self.driver, name, self._counting(getattr(self.driver, name), counter))

    def _counting(self, function: Callable[..., Any], counter: str) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.counts[counter] += 1
            return function(*args)

        return counted

    def during(self, call: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
        """What a call gives, and what it launched."""
        torch.cuda.synchronize()
        before = dict(self.counts)
        found = call()
        torch.cuda.synchronize()
        return found, {name: n - before[name] for name, n in self.counts.items()}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    yield Counted(monkeypatch)


def chain(x: Any, w: Any) -> Any:
    y = torch.softmax(x @ w, -1)
    return y.sum(0), y.cumsum(1)


def test_a_call_is_one_launch(counted: Counted) -> None:
    compiled = torch.compile(chain, mode="reduce-overhead")
    x, w, kept = torch.randn(20, 30, device="cuda"), torch.randn(30, 40, device="cuda"), []
    for turn in range(6):
        x.copy_(torch.randn(20, 30))
        expected = chain(x, w)
        found, launched = counted.during(lambda: compiled(x, w))
        if turn:
            assert launched["graphs"] == 1
            assert launched["kernels"] == 0
        kept.append((found, expected))
    for found, expected in kept:  # results that are held are not overwritten
        for a, b in zip(found, expected, strict=True):
            assert a.cpu().tolist() == b.cpu().tolist()
    del kept, found, expected
    compiled(x, w)
    _, launched = counted.during(lambda: compiled(x, w))
    assert launched == {"graphs": 1, "nodes": 0, "kernels": 0}


def test_inputs_at_other_addresses_are_those_of_the_call(counted: Counted) -> None:
    compiled = torch.compile(chain, mode="reduce-overhead")
    w = torch.randn(30, 40, device="cuda")
    for _ in range(3):
        x = torch.randn(20, 30, device="cuda")
        for a, b in zip(compiled(x, w), chain(x, w), strict=True):
            assert a.cpu().tolist() == b.cpu().tolist()


def test_unaligned_inputs_are_launched_one_by_one(counted: Counted) -> None:
    def function(x: Any) -> Any:
        return torch.softmax(x * 2, 0).cumsum(0), x + 1

    compiled = torch.compile(function, mode="reduce-overhead")
    base = torch.randn(4097, device="cuda")
    for start in (0, 1, 1, 0, 1, 0):
        x = base[start : start + 4096]
        expected = function(x)
        found, launched = counted.during(lambda x=x: compiled(x))  # type: ignore[misc]
        assert launched["graphs"] == (0 if start else 1)
        for a, b in zip(found, expected, strict=True):
            assert a.cpu().tolist() == b.cpu().tolist()


def test_streams_run_the_same_graph() -> None:
    compiled = torch.compile(chain, mode="reduce-overhead")
    streams = [torch.cuda.Stream() for _ in range(2)]
    given = [(torch.randn(20, 30, device="cuda"), torch.randn(30, 40, device="cuda")) for _ in streams]
    torch.cuda.synchronize()
    found = []
    for _ in range(3):
        for stream, (x, w) in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                found.append((compiled(x, w), chain(x, w)))
    torch.cuda.synchronize()
    for ours, theirs in found:
        assert [a.cpu().tolist() for a in ours] == [b.cpu().tolist() for b in theirs]


def test_a_graph_that_is_captured_meanwhile_has_the_kernels() -> None:
    compiled = torch.compile(chain, mode="reduce-overhead")
    x, w = torch.randn(20, 30, device="cuda"), torch.randn(30, 40, device="cuda")
    compiled(x, w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = compiled(x, w)
    x.copy_(torch.randn(20, 30))
    graph.replay()
    assert [a.cpu().tolist() for a in found] == [b.cpu().tolist() for b in chain(x, w)]


def test_numbers_of_the_host_reach_the_nodes_of_each_call(counted: Counted) -> None:
    """A step with counters on the host, and a rate that changes: only the nodes that take numbers are given others."""
    found = []
    for mode in (None, "reduce-overhead"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to("cuda")
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        x, y = torch.randn(5, 8, device="cuda"), torch.randn(5, 4, device="cuda")

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> Any:
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run, losses = step if mode is None else torch.compile(step, mode=mode), []
        for turn in range(6):
            loss, launched = counted.during(run)
            losses.append(loss.item())
            del loss
            schedule.step()
            if mode is not None and turn > 3:
                assert launched["graphs"] == 1 and launched["kernels"] == 0
                assert 0 < launched["nodes"] <= 4  # of each parameter's step
        found.append((losses, [p.detach().cpu().tolist() for p in model.parameters()]))
    assert found[0] == found[1]


@pytest.mark.parametrize("options", [{"fused": True}, {"capturable": True}, {"capturable": True, "fused": True}])
def test_a_step_over_many_parameters_is_one_launch(options: dict[str, bool], counted: Counted) -> None:
    found = []
    for mode in (None, "reduce-overhead"):
        torch.manual_seed(0)
        params = [nn.Parameter(torch.randn(*shape, device="cuda")) for shape in ((64, 32), (64,), (5, 7))]
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer = torch.optim.AdamW(params, lr=0.1, **options)
        optimizer.step()
        step = optimizer.step if mode is None else torch.compile(optimizer.step, mode=mode)
        for turn in range(3):
            _, launched = counted.during(step)
            if mode is not None and turn:
                assert launched["graphs"] == 1 and launched["kernels"] == 0
                assert launched["nodes"] <= (0 if options.get("capturable") else 3)  # numbers of the host
        found.append([p.detach().cpu().tolist() for p in params])
    assert found[0] == found[1]
