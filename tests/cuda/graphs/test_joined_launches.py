"""Steps of optimizers over all parameters in few launches: compiled, eager, and captured.  One launch each is the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._backends.cuda.program import assemble
from rushlight._backends.cuda.program.assemble import compile_graph
from rushlight._backends.cuda.program.joining import joined
from rushlight._graph.core import trace
from rushlight._prims import prim
from rushlight._types.dtype import FLOAT32

pytestmark = pytest.mark.cuda
optim = torch.optim

MANY = [1024, 7, 4096, 2048, 300] * 30
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw, fused": lambda p: optim.AdamW(p, lr=0.01, fused=True),
    "adam, capturable": lambda p: optim.Adam(p, lr=0.01, capturable=True),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
}


def parameters(device: str, sizes: list[int], dtype: Any = torch.float32) -> list[Any]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(n, dtype=dtype).to(device)) for n in sizes]


def give_gradients(params: list[Any], seed: int, some: bool = False) -> None:
    torch.manual_seed(seed)
    for k, p in enumerate(params):
        grad = torch.randn(p.shape, dtype=p.dtype)
        p.grad = None if some and k % 3 == 0 else grad.to(p.device)


def equal(a: list[Any], b: list[Any]) -> bool:
    return all(torch.equal(x.detach().cpu(), y.detach().cpu()) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_step_is_few_launches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, launches = [4096, 48, 2048, 48, 1024, 200, 7], [0]

    def noted(steps: Any) -> Any:
        made = joined(steps)
        launches.append(len(made[0]))
        return made

    monkeypatch.setattr(assemble, "joined", noted)
    found = []
    for compiled in (False, True):
        params = parameters("cuda", sizes)
        optimizer = OPTIMIZERS[name](params)
        step = torch.compile(lambda o=optimizer: o.step()) if compiled else optimizer.step
        for turn in range(3):
            give_gradients(params, turn)
            step()
        found.append(params + [v for kept in optimizer.state.values() for v in kept.values()])
    assert equal(*found)
    assert max(launches) < len(sizes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["sgd", "adamw, fused", "nadam"])
def test_an_eager_step_gives_the_bits_of_the_host(name: str, dtype: Any) -> None:
    both = [parameters(device, [*MANY, 0], dtype) for device in ("cpu", "cuda")]
    optimizers = [OPTIMIZERS[name](params) for params in both]
    for turn in range(3):
        for params, optimizer in zip(both, optimizers, strict=True):
            give_gradients(
                params, turn, some=turn == 1
            )  # afterwards parameters have counted different numbers of steps
            optimizer.step()
    if "fused" in name and dtype is torch.float64:  # a device's power of the coefficients is rounded by itself
        for ours, theirs in zip(*both, strict=True):
            torch.testing.assert_close(theirs.cpu(), ours, rtol=1e-14, atol=1e-14)
    else:
        assert equal(*both)


def test_a_step_without_counters_is_captured() -> None:
    captured, eager = parameters("cuda", [3, 5, 1000]), parameters("cuda", [3, 5, 1000])
    for params in (captured, eager):
        give_gradients(params, 0)
    graph, step = torch.cuda.CUDAGraph(), optim.SGD(captured, lr=0.5).step
    with torch.cuda.graph(graph):
        step()
    assert equal(captured, eager)  # nothing ran
    for _ in range(3):
        graph.replay()
        optim.SGD(eager, lr=0.5).step()
        assert equal(captured, eager)


def test_launches_that_depend_on_each_other_stay_apart() -> None:
    rows = (64, 48, 32)

    def chain(*xs: Any) -> Any:
        first = [prim.exp(x) for x in xs]
        return (*first, *[prim.exp(prim.sum(x, dims=(1,))) for x in first])

    program = compile_graph(trace(chain, [((n, 100), FLOAT32) for n in rows]), [(100, 1)] * 3)
    written: set[Any] = set(program.inputs)
    for step in program.steps:
        assert written.issuperset(set(step.reads) - set(step.writes))
        written.update(step.writes)
    assert [note for note in program.notes if note.startswith("join")]
    xs = [torch.randn(n, 100, device="cuda") for n in rows]

    def function(*xs: Any) -> Any:
        first = [x.exp() for x in xs]
        return [*first, *[x.sum(1).exp() for x in first]]

    assert equal(torch.compile(function)(*xs), function(*xs))
