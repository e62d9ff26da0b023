"""Loops over iterators that a trace cannot look into: their body is compiled once, whatever they give."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import CompiledFunction, compile_function
from rushlight.utils.data import DataLoader, TensorDataset


def segments(compiled: CompiledFunction) -> int:
    return sum(len(each.segments) for each in (compiled.entry, *compiled.positions.values()))


def constant_count(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]], most: int) -> None:
    """Require that calls do what eager ones do, and that those after the second add no segment to `most`."""
    compiled, counts = compile_function(function), []
    eager, given = make(), make()
    for _ in range(4):
        assert repr(compiled(*given)) == repr(function(*eager))
        counts.append(segments(compiled))
        eager, given = (make(), make()) if hasattr(eager[-1], "__next__") else (eager, given)
    assert counts[1:] == counts[1:2] * 3
    assert counts[-1] <= most


def batches(n: int) -> Iterator[torch.Tensor]:
    for i in range(n):
        yield torch.full((3,), float(i))


def summed(x, iterator):
    for item in iterator:
        x = torch.sin(x * 2) + (item[1] if isinstance(item, tuple) else item)
    return x + 1


@pytest.mark.parametrize("make", [
    lambda: batches(9), lambda: enumerate(batches(9)), lambda: iter([float(i) for i in range(9)]), lambda: zip(range(9), batches(9), strict=True),
    lambda: itertools.islice(batches(20), 9),
])  # fmt: skip
def test_the_body_of_a_loop_over_an_iterator_from_outside(make: Callable[[], Any]) -> None:
    constant_count(summed, lambda: (torch.ones(3), make()), 4)


def listed(x, iterator):
    return [torch.sin(x) + item for item in iterator]


def test_a_list_that_grows_is_no_reason_to_compile_again() -> None:
    constant_count(listed, lambda: (torch.ones(3), batches(12)), 3)


def train(model, optimizer, epochs, loader):
    losses = []
    for _ in range(epochs):
        for number, (x, y) in enumerate(loader):
            loss = torch.nn.functional.mse_loss(model(x), y) * (1 + 0.1 * number)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def test_a_training_loop_over_a_loader() -> None:
    data = TensorDataset(torch.arange(48.0).reshape(12, 4) / 48, torch.arange(12.0).reshape(12, 1))

    def make() -> tuple[Any, ...]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        shuffled = torch.Generator().manual_seed(1)
        return model, optimizer, 3, DataLoader(data, batch_size=2, shuffle=True, generator=shuffled)

    constant_count(train, make, 9)


class Squares:
    """Items by the old protocol of iteration."""

    def __getitem__(self, place: int) -> int:
        if place == 4:
            raise IndexError
        return place * place


class Countdown:
    def __init__(self) -> None:
        self.left = 4

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left


def produce(number: int) -> Iterator[int]:
    yield from range(number)


NATIVE: dict[str, Callable[[], Iterator[Any]]] = {
    "zip": lambda: zip(produce(3), Squares(), strict=False),
    "zip of a class": lambda: zip(Countdown(), "abc", strict=False),
    "enumerate": lambda: enumerate(Countdown()),
    "map": lambda: map(lambda a, b: a * b, produce(3), [3, 4, 5]),
    "filter": lambda: filter(lambda a: a % 2, produce(5)),
    "items": lambda: iter(Squares()),
    "accumulate": lambda: itertools.accumulate(produce(3)),
    "groupby": lambda: ((key, sum(group)) for key, group in itertools.groupby([1, 1, 2])),
}


@pytest.mark.parametrize("name", NATIVE)
def test_native_iterators_over_ones_in_python_go_on_behind_a_break(name: str) -> None:
    make = NATIVE[name]

    def function(x: torch.Tensor) -> Any:
        found, iterator = [], make()
        found.append(next(iterator))
        for item in iterator:
            torch._dynamo.graph_break()
            found.append((x + len(found), item))
        return found

    torch._dynamo.utils.counters.clear()
    assert repr(torch.compile(function)(torch.ones(2))) == repr(function(torch.ones(2)))
    assert not torch._dynamo.utils.counters["failures"]


def shifted(x: torch.Tensor, *more: int, scale: int = 2, **named: int) -> Iterator[torch.Tensor]:
    def scaled() -> torch.Tensor:  # so `x` and `scale` are cells
        return x * scale

    for number in range(3):
        yield scaled() + number + sum(more) + len(named)


def in_parts(x: torch.Tensor, left: list[Any]) -> Any:
    y = x + 1
    left.append(shifted(y, 1, scale=3, other=1))
    return (y * number for number in range(2)), shifted(x)


def test_generators_that_leave_a_function_are_those_of_cpython() -> None:
    """Their bodies run eagerly, as in PyTorch: no interpreter in Python goes on with them."""
    x = torch.ones(2)
    found, expected = torch.compile(shifted)(x, 4), shifted(x, 4)
    assert type(found) is types.GeneratorType and repr([*found]) == repr([*expected])
    sides: list[list[Any]] = []
    for run in (in_parts, torch.compile(in_parts)):
        left: list[Any] = []
        made = [*run(x, left), *left]
        assert all(type(each) is types.GeneratorType for each in made)
        sides.append([[each.__qualname__, [*each]] for each in made])
    assert repr(sides[0]) == repr(sides[1])
