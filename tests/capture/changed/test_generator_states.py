"""States of random generators in compiled programs: given, read, changed and set again."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch


def given(x: Any, g: Any) -> Any:
    return torch.rand(2, generator=g), g.get_state()


def part(x: Any, g: Any) -> Any:
    state = torch.get_rng_state()
    return state[:16], torch.rand(2), state.sum()


def read_and_set(x: Any, g: Any) -> Any:
    state = g.get_state()
    first = torch.rand(2, generator=g) + state.sum()
    g.set_state(state.clone())
    return first, torch.rand(2, generator=g)


def changed(x: Any, g: Any) -> Any:
    state = torch.get_rng_state()
    state[24:30] = 5
    torch.set_rng_state(state)
    return torch.rand(2)


def asked(x: Any, g: Any) -> Any:
    state = torch.get_rng_state()
    return x + torch.rand(2) if int(state[0]) == 0 else x


def own(x: Any, g: Any) -> Any:
    other = torch.Generator().manual_seed(3)
    before = other.get_state()
    return before, torch.rand(1, generator=other), other.get_state()


def told(value: Any) -> Any:
    return [told(v) for v in value] if isinstance(value, tuple) else value.tolist()


@pytest.mark.filterwarnings("ignore:.*runs as it is")
@pytest.mark.parametrize("f", [given, part, read_and_set, changed, asked, own])
def test_states_are_those_of_eager_programs(f):
    seen = []
    for call in (f, torch.compile(f)):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(1)
        seen.append([told(call(torch.ones(2), generator)) for _ in range(3)])
        seen[-1].append([torch.rand(2).tolist(), torch.rand(2, generator=generator).tolist()])
    assert seen[0] == seen[1]


def test_a_state_that_is_only_set_again_is_part_of_one_program():
    def go(x: Any) -> Any:
        state = torch.get_rng_state()
        first = torch.rand(2)
        torch.set_rng_state(state)
        return first * x, torch.rand(2)

    first, second = torch.compile(go, fullgraph=True)(torch.ones(2))
    assert first.tolist() == second.tolist()
