"""Random programs of views, writes and arithmetic: recorded and eager are the same, gradients and versions included.

`python tests/capture/recording/test_recording_random.py FIRST LAST` runs more of them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.recording import Recording

PROGRAMS = 40


def step(x: Any, other: Any, rng: random.Random) -> Any:
    """A tensor made of one or two, or one of them after a write; IndexError where the choice does not go with its shape."""
    kind = rng.randrange(16)
    if kind == 0:
        dim = rng.randrange(x.ndim)
        start = rng.randrange(x.shape[dim])
        return x.narrow(dim, start, rng.randint(1, x.shape[dim] - start))
    if kind == 5:
        return x.unsqueeze(rng.randint(0, x.ndim)).expand([-1] * (x.ndim + 1))
    views: dict[int, Callable[[], Any]] = {
        1: lambda: x.transpose(0, -1), 2: lambda: x.reshape(-1), 3: lambda: x[rng.randrange(x.shape[0])], 4: lambda: x[::2],
        6: lambda: x.mul_(1.25), 7: lambda: x.add_(other.sum() * 0.1), 8: lambda: x.sin(), 9: lambda: x * other.mean(),
        10: lambda: x.__setitem__(0, rng.choice([0.5, other.sum()])) or x, 11: lambda: x.copy_(other.flatten()[0]), 12: lambda: x.detach(),
        13: lambda: x.diagonal(), 14: lambda: x.clone(), 15: lambda: torch.cat([x.flatten(), other.flatten()]),
    }  # fmt: skip
    return views[kind]()


def program_of(seed: int) -> Callable[..., list[Any]]:
    """A function of three tensors; what an operator refuses is left out."""

    def run(*given: Any) -> list[Any]:
        rng, tensors = random.Random(seed), [*given, given[0] * 1.5]
        for _ in range(rng.randint(3, 12)):
            x, other = rng.choice(tensors), rng.choice(tensors)
            try:
                tensors.append(step(x, other, rng))
            except (IndexError, ValueError):
                continue
            except RuntimeError as error:
                if "recorded" in str(error):
                    raise
        chosen = rng.sample(range(len(tensors)), min(len(tensors), rng.randint(1, 4)))
        return [tensors[i] for i in sorted(chosen)]

    return run


def arguments(seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    shapes = (3, 4), (4, 3), (2, 3, 2)
    made = [torch.randn(shape, generator=generator) for shape in shapes]
    made[1].requires_grad_()
    return made


def facts(x: Any, counts: bool = True) -> Any:
    """What is compared; how often a gradient's memory was written is the engine's affair."""
    found = x.shape, x.stride(), x.dtype, x.requires_grad, x.is_leaf, x._version if counts else 0
    return *found, x.detach().contiguous().reshape(-1).view(torch.uint8).tolist()


def backward(outputs: list[Any]) -> str:
    """Go backward from all outputs with a history; what was wrong with that."""
    torch.manual_seed(1)
    wanting = [x for x in outputs if x.grad_fn is not None]
    try:
        torch.autograd.backward(wanting, [torch.randn(x.shape) for x in wanting])
    except RuntimeError as error:
        return str(error)[:60]
    return ""


def check(seed: int) -> None:
    function, eager, mine = program_of(seed), arguments(seed), arguments(seed)
    with Recording() as recording:
        program = recording.finish(function(*[recording.stand_in(x) for x in mine]))
    want, found = function(*eager), program(mine)
    assert [facts(x) for x in want] == [facts(x) for x in found]
    assert [facts(x) for x in eager] == [facts(x) for x in mine]
    assert backward(want) == backward(found)
    for a, b in zip(eager, mine, strict=True):
        if a.is_leaf:
            assert (a.grad is None) == (b.grad is None)
            assert a.grad is None or facts(a.grad, False) == facts(b.grad, False)


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    for seed in range(part, PROGRAMS, 4):
        check(seed)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            check(number)
        except Exception as error:
            print(number, type(error).__name__, str(error)[:200])
