"""Several Python threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch


def together(*jobs: Callable[[], Any]) -> list[Any]:
    """Run jobs in threads; their results, or the first exception."""
    results: list[Any] = [None] * len(jobs)
    errors: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(i: int) -> None:
        try:
            start.wait()
            results[i] = jobs[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def trained(seed: int, steps: int = 60) -> list[float]:
    make = torch.Generator().manual_seed(seed)
    w1 = torch.randn(6, 16, generator=make).requires_grad_()
    w2 = torch.randn(16, 2, generator=make).requires_grad_()
    x, y = torch.randn(32, 6, generator=make), torch.randn(32, 2, generator=make)
    losses = []
    for _ in range(steps):
        loss = (((x @ w1).tanh() @ w2 - y) ** 2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2))
        with torch.no_grad():
            w1 -= 0.05 * g1
            w2 -= 0.05 * g2
        losses.append(loss.item())
    return losses


def test_models_train_side_by_side() -> None:
    alone = [trained(seed) for seed in range(4)]
    assert together(*[lambda seed=seed: trained(seed) for seed in range(4)]) == alone
    assert all(losses[-1] < losses[0] for losses in alone)


def test_large_kernels_side_by_side() -> None:
    def job(k: int) -> float:
        x = torch.full((500_000,), float(k))
        for _ in range(5):
            x = (x * 2 + 1).sqrt() * k
        return float(x.sum().item())

    alone = [job(k) for k in range(1, 5)]
    assert together(*[lambda k=k: job(k) for k in range(1, 5)]) == alone


def test_new_kernels_side_by_side() -> None:
    """All threads meet the same signatures for the first time."""

    def job() -> list[float]:
        x = torch.arange(1.0, 8.0, dtype=torch.float64)
        return [(x.cosh() * x.asinh() + i).log1p().sum().item() for i in range(3)]

    results = together(*[job] * 4)
    assert all(r == results[0] for r in results)


def test_threads_add_to_one_leaf() -> None:
    small, large = torch.ones(10, requires_grad=True), torch.ones(300_000, requires_grad=True)

    def job() -> None:
        for _ in range(10):
            (small * 2).sum().backward()
            (large * 3).sum().backward()

    together(*[job] * 4)
    assert small.grad.tolist() == [80.0] * 10
    assert torch.equal(large.grad, torch.full((300_000,), 120.0))


def test_grad_mode_belongs_to_a_thread() -> None:
    inside = threading.Event()
    checked = threading.Event()

    def off() -> bool:
        with torch.no_grad():
            inside.set()
            assert checked.wait(60)
            return torch.is_grad_enabled()

    def other() -> bool:
        assert inside.wait(60)
        found = torch.is_grad_enabled() and (torch.ones(1, requires_grad=True) * 2).requires_grad
        checked.set()
        return found

    assert together(off, other) == [False, True]


def test_modes_of_threads_are_apart() -> None:
    class Watch(torch.overrides.TorchFunctionMode):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def job() -> list[str]:
        with Watch() as watch:
            torch.exp(torch.ones(1))
        return watch.seen

    found = together(job, lambda: torch.exp(torch.ones(1)).item(), job)
    assert "exp" in found[0] and found[0] == found[2]


def test_backward_in_another_thread_than_forward() -> None:
    x = torch.ones(5, requires_grad=True)
    y = (x.exp() * x).sum()
    together(y.backward)
    assert abs(x.grad[0].item() - 2 * 2.718281828) < 1e-5


@pytest.mark.parametrize("count", [1, 65536, 65537, 262_144, (1 << 20) + 13])
def test_zeros_in_memory_that_was_used(count: int) -> None:
    """Large blocks are cleared by several threads, in pieces."""
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            used = torch.full((count,), 7.0)
            del used
            assert not torch.zeros(count).any()
    finally:
        torch.set_num_threads(before)


def test_threads_that_make_one_kernel_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code may hold a kernel by its address: the second thread must not put another in its place."""
    from rushlight._backends.cpu import kernels
    from rushlight._backends.cpu.program.assemble import compile_graph
    from rushlight._backends.cpu.program.steps import KernelStep
    from rushlight._graph.core import trace
    from rushlight._types.dtype import FLOAT32

    step = compile_graph(trace(lambda x: x * 3.0 + 5.0, [((1000,), FLOAT32)]), [(1,)], target=kernels.host()).steps[0]
    assert isinstance(step, KernelStep)
    both, plain, found = threading.Barrier(2), kernels.load_kernel, []

    def load(data: bytes, symbol: str) -> object:
        both.wait(60)  # neither has seen the other's
        return plain(data, symbol)

    monkeypatch.setattr(kernels, "load_kernel", load)
    monkeypatch.setattr(kernels, "_KERNELS", {})
    threads = [threading.Thread(target=lambda: found.append(kernels.kernel_of(step))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2 and found[0] is found[1]
