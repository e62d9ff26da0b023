"""Generators while a CUDA graph is captured: replays go on from where a generator is, so that it is neither set nor read."""

from __future__ import annotations

import pytest

import rushlight as torch

pytestmark = pytest.mark.cuda


# what is called while a graph is captured
CAPTURED = {
    "another seed": lambda generator: generator.manual_seed(9),
    "a seed of the system": lambda generator: generator.seed(),
    "the seed": lambda generator: generator.initial_seed(),
    "the state": lambda generator: generator.get_state(),
    "a state": lambda generator: generator.set_state(torch.zeros(16, dtype=torch.uint8)),
    "the offset": lambda generator: generator.get_offset(),
    "an offset": lambda generator: generator.set_offset(8),
    "all seeds": lambda generator: torch.manual_seed(9),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_generators_are_not_set_while_a_graph_is_captured(name: str) -> None:
    torch.manual_seed(5)
    generator = torch.cuda.default_generators[0]
    with pytest.raises(RuntimeError, match="while a graph is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.rand(2, device="cuda")
        CAPTURED[name](generator)
    torch.cuda.synchronize()
    assert generator.initial_seed() == 5


def test_the_seed_that_a_generator_has_may_be_set_in_a_capture() -> None:
    torch.cuda.manual_seed(5)
    expected = torch.rand(2, device="cuda")
    torch.cuda.manual_seed(5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = torch.rand(2, device="cuda")
        torch.cuda.manual_seed(5)
        torch.cuda.default_generators[0].graphsafe_get_state()
    graph.replay()
    assert first.cpu().tolist() == expected.cpu().tolist()
