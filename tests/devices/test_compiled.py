"""Whole programs on a device whose memory the host cannot read: captured, compiled and trained as on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.devices import guarded

import rushlight as torch
from rushlight._capture.recording import Recording
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.trace import COUNTERS


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    with guarded.registered():
        yield
        torch.compiler.reset()


def test_forward_and_backward_are_one_program_with_eagers_bits() -> None:
    def loss(x: Any, weight: Any) -> Any:
        return torch.nn.functional.gelu(x @ weight).square().mean()

    compiled = torch.compile(loss, fullgraph=True)
    results = []
    for function in (loss, compiled):
        torch.manual_seed(1)
        x, weight = torch.randn(5, 4).to("guarded"), torch.randn(4, 3).to("guarded").requires_grad_()
        made = function(x, weight)
        made.backward()
        assert made.device == weight.grad.device == torch.device("guarded", 0)
        results.append((made.item(), weight.grad.cpu().tolist()))
    assert results[0] == results[1]


def _training(wrap: Callable[[Any], Any]) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to("guarded")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.arange(20.0).reshape(5, 4).to("guarded")

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step)
    return [run().item() for _ in range(4)]


def test_a_training_step_gives_eagers_losses() -> None:
    assert _training(torch.compile) == _training(lambda step: step)


def test_a_program_says_its_devices() -> None:
    def made(x: Any) -> Any:
        y = torch.zeros(3, device=x.device) + torch.arange(3, device="guarded")
        return y if y.device.type == x.device.type == "guarded" else y - 1

    x = torch.ones(3).to("guarded")
    assert torch.compile(made, fullgraph=True)(x).tolist() == [0.0, 1.0, 2.0]


def test_transfers_part_a_program_and_are_right() -> None:
    def there_and_back(x: Any) -> Any:
        y = (x * 2).to("guarded")
        return (y + 1).cpu() * 3

    for asked in (False, True):  # they run between two programs, which fullgraph allows
        COUNTERS["graph_break"].clear()
        compiled = torch.compile(there_and_back, fullgraph=asked)
        for _ in range(2):
            assert compiled(torch.tensor([1.0, 2.0])).tolist() == [9.0, 15.0]
        assert bool(COUNTERS["graph_break"]) is not asked


def test_other_shapes_are_other_programs() -> None:
    compiled = torch.compile(lambda x: (x * 2).sum())
    for n in (3, 4, 5, 4):
        assert compiled(torch.ones(n).to("guarded")).item() == 2 * n


def test_in_place_changes_reach_the_device() -> None:
    def change(x: Any) -> Any:
        x[1:].add_(5)
        return x.sum()

    x = torch.zeros(3).to("guarded")
    assert torch.compile(change, fullgraph=True)(x).item() == 10 and x.tolist() == [0.0, 5.0, 5.0]


def test_one_recording_is_for_one_device_beside_the_host() -> None:
    here, there, elsewhere, recording = (
        torch.ones(2),
        torch.ones(2).to("guarded:0"),
        torch.ones(2).to("guarded:1"),
        Recording(),
    )
    with recording:
        recording.stand_in(there)
        recording.stand_in(here)
        assert not recording.on_host
        with pytest.raises(RecordingError, match="guarded:0, and another for those on guarded:1"):
            recording.stand_in(elsewhere)


def test_random_numbers_go_on_as_in_eager() -> None:
    def noisy(x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    x, compiled = torch.ones(8).to("guarded"), torch.compile(noisy)
    found = []
    for function in (noisy, compiled):
        torch.manual_seed(3)
        found.append([function(x).tolist() for _ in range(2)])
    assert found[0] == found[1]
