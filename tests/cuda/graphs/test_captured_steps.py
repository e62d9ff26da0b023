"""Steps of optimizers in CUDA graphs: each replay is a further step, as of eager calls, or the capture is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch

pytestmark = pytest.mark.cuda

optim = torch.optim
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adadelta": lambda p, **more: optim.Adadelta(p, **more),
    "adam": lambda p, **more: optim.Adam(p, lr=0.1, weight_decay=0.01, **more),
    "adam, amsgrad": lambda p, **more: optim.Adam(p, lr=0.1, amsgrad=True, maximize=True, **more),
    "adam, a rate in a tensor": lambda p, **more: optim.Adam(p, lr=torch.tensor(0.1), **more),
    "adam, all in tensors of the host": lambda p, **more: optim.Adam(
        p, lr=torch.tensor(0.1), betas=(torch.tensor(0.9), torch.tensor(0.99)), **more
    ),
    "adamw, all in tensors of the device": lambda p, **more: optim.AdamW(
        p, lr=torch.tensor(0.1).cuda(), betas=(torch.tensor(0.9).cuda(), torch.tensor(0.99).cuda()), **more
    ),
    "adamax": lambda p, **more: optim.Adamax(p, lr=0.1, **more),
    "adamw": lambda p, **more: optim.AdamW(p, lr=0.1, **more),
    "asgd": lambda p, **more: optim.ASGD(p, lr=0.1, t0=2, **more),
    "nadam": lambda p, **more: optim.NAdam(p, lr=0.1, **more),
    "radam": lambda p, **more: optim.RAdam(p, lr=0.1, **more),
    "rmsprop": lambda p, **more: optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True, **more),
    "rprop": lambda p, **more: optim.Rprop(p, lr=0.1, **more),
}


def trained(make: Callable[..., Any], steps: Callable[[Any, Callable[[int], None]], None], **more: Any) -> Any:
    """Parameters and counters after two steps and what `steps` does of further ones."""
    params = [torch.nn.Parameter(torch.linspace(-1, 1, n, device="cuda")) for n in (5, 3)]
    for p in params:
        p.grad = torch.zeros_like(p)
    optimizer = make(params, **more)

    def give(turn: int) -> None:
        for k, p in enumerate(params):
            p.grad.copy_(torch.cos(torch.arange(p.numel(), dtype=torch.float32) * (turn + k + 1)))

    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for turn in range(2):
            give(turn)
            optimizer.step()
        torch.cuda.synchronize()
        steps(optimizer, give)
        torch.cuda.synchronize()
    counts = [kept["step"].item() for kept in optimizer.state.values() if "step" in kept]
    return [p.detach().cpu().tolist() for p in params], counts


def eager(optimizer: Any, give: Callable[[int], None]) -> None:
    for turn in range(2, 8):
        give(turn)
        optimizer.step()


def replayed(optimizer: Any, give: Callable[[int], None]) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    for turn in range(2, 8):
        give(turn)
        graph.replay()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_replay_is_a_further_step(name: str) -> None:
    expected, counts = trained(OPTIMIZERS[name], eager, capturable=True)
    assert trained(OPTIMIZERS[name], replayed, capturable=True) == (expected, counts)
    assert all(count == 8 for count in counts)
    on_host, _ = trained(OPTIMIZERS[name], eager)
    for ours, theirs in zip(expected, on_host, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=2e-5)  # 1 - 0.999**step is rounded to float32


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_a_step_that_the_host_counts_is_not_captured(name: str) -> None:
    with pytest.raises(RuntimeError, match="capturable"):
        trained(OPTIMIZERS[name], replayed)


def test_counters_of_a_loaded_state_lie_where_steps_are_captured() -> None:
    p = torch.nn.Parameter(torch.ones(3, device="cuda"))
    p.grad = torch.ones_like(p)
    before = optim.Adam([p], lr=0.1)
    before.step()
    after = optim.Adam([p], lr=0.1, capturable=True)
    state = before.state_dict()
    state["param_groups"][0]["capturable"] = True
    after.load_state_dict(state)
    assert after.state[p]["step"].device.type == "cuda"
    after.step()
    assert after.state[p]["step"].item() == 2


def test_a_compiled_capturable_step_has_the_bits_of_eager() -> None:
    found = []
    for compiled in (False, True):
        torch._dynamo.utils.counters.clear()

        def steps(optimizer: Any, give: Callable[[int], None], compiled: bool = compiled) -> None:
            step = torch.compile(optimizer.step) if compiled else optimizer.step
            for turn in range(2, 5):
                give(turn)
                step()

        found.append(trained(OPTIMIZERS["adam"], steps, capturable=True))
    assert found[0] == found[1]
    assert not torch._dynamo.utils.counters["graph_break"]


def launches(function: Callable[[], Any]) -> int:
    activity = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[activity]) as seen:
        function()
        torch.cuda.synchronize()
    return sum("cuda" in str(event.device_type).lower() for event in seen.events())


@pytest.mark.parametrize("name", ["adam", "asgd", "nadam", "rmsprop"])
def test_launches_of_a_capturable_step_do_not_grow_with_parameters(name: str) -> None:
    counts = []
    for count in (2, 24):
        params = [torch.nn.Parameter(torch.ones(n % 5 * 8 + 3, device="cuda")) for n in range(count)]
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer = OPTIMIZERS[name](params, capturable=True)
        optimizer.step()
        counts.append(launches(optimizer.step))
    assert counts[1] <= counts[0] + 2  # a table has rows for 64 counters
    assert counts[0] < 40


def test_capturable_parameters_of_many_kinds_in_one_group() -> None:
    """Double, complex, gaps, no dims, no elements, a rate in memory of the device, other numbers of steps."""
    found = []
    for capturable in (False, True):
        torch.manual_seed(0)
        made = [
            torch.randn(3, 4, dtype=torch.float64),
            torch.randn(5, dtype=torch.complex64),
            torch.randn(6, 4)[:, ::2],
        ]
        made += [torch.randn(()), torch.randn(0), torch.randn(2, 3).t(), torch.randn(40)]
        device = "cuda" if capturable else "cpu"
        params = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device) for x in made]
        for p, x in zip(params, made, strict=True):
            p.copy_(x).requires_grad_()
        rate = torch.tensor(0.25, device=device)
        optimizer = optim.AdamW(params, lr=rate, capturable=capturable, weight_decay=0.5)
        for turn in range(4):
            for k, (p, x) in enumerate(zip(params, made, strict=True)):
                p.grad = None if turn == 1 and k % 2 else (x * (turn + 1)).to(device)
            optimizer.step()
        found.append([p.detach().cpu() for p in params])
        assert [int(optimizer.state[p]["step"]) for p in params] == [4, 3, 4, 3, 4, 3, 4]
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def test_a_compiled_step_that_the_host_counts_is_not_captured() -> None:
    def steps(optimizer: Any, give: Callable[[int], None]) -> None:
        step = torch.compile(optimizer.step)
        step()
        with pytest.raises(RuntimeError, match="capturable"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            step()

    trained(OPTIMIZERS["adam"], steps)


def test_a_compiled_capturable_step_is_captured() -> None:
    def steps(optimizer: Any, give: Callable[[int], None]) -> None:
        step, graph = torch.compile(optimizer.step), torch.cuda.CUDAGraph()
        give(2)
        step()
        with torch.cuda.graph(graph):
            step()
        for turn in range(3, 8):
            give(turn)
            graph.replay()

    assert trained(OPTIMIZERS["adam"], steps, capturable=True) == trained(OPTIMIZERS["adam"], eager, capturable=True)
