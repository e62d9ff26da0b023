"""`next()` of iterators from outside: their items are read ahead, guarded, and the steps taken as in eager calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._dynamo.utils import counters


def tensors(n: int) -> list[torch.Tensor]:
    return [torch.full((3,), float(k + 1)) for k in range(n)]


def total(values: Any) -> Any:
    """The sum of all numbers and tensors in nested tuples."""
    return sum(map(total, values)) if isinstance(values, tuple) else values


def drawn(x, it):
    first = next(it)
    y = x * total(first)
    return y + total(next(it))


def times_two(v):
    return v * 2


def is_large(v):
    return v > 2


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter(tensors(6)),
    "tuple": lambda: iter(tuple(tensors(6))),
    "reversed": lambda: reversed(tensors(6)),
    "range": lambda: iter(range(3, 30, 3)),
    "dict": lambda: iter(dict(zip("abcdef", tensors(6), strict=True)).values()),
    "items": lambda: zip(iter(dict(zip(range(6), tensors(6), strict=True)).items())),
    "zip": lambda: zip(tensors(6), range(9), strict=False),
    "pairs": lambda: zip(*[iter(tensors(8))] * 2, strict=True),
    "enumerate": lambda: enumerate(tensors(6), 5),
    "enumerated pairs": lambda: enumerate(zip(tensors(6), range(6), strict=True)),
    "map": lambda: map(times_two, tensors(6)),
    "filter": lambda: filter(is_large, [1, 2, 3, 4, 5, 6, 7]),
    "count": lambda: itertools.count(4),
    "zipped map": lambda: zip(map(times_two, tensors(6)), itertools.count(1, 2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_next_traces_whole(kind: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(drawn, fullgraph=True)
    mine, theirs = KINDS[kind](), KINDS[kind]()
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3), mine), drawn(torch.ones(3), theirs))
    assert repr(next(mine, "end")) == repr(next(theirs, "end"))


@pytest.mark.parametrize("kind", ["list", "zip", "dict", "enumerate", "map"])
def test_later_places_need_no_further_trace(kind: str) -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(lambda x, it: x * total(next(it)), fullgraph=True)
    mine, theirs = KINDS[kind](), KINDS[kind]()
    for k in range(5):
        assert torch.equal(compiled(torch.ones(3), mine), torch.ones(3) * total(next(theirs))), k
    assert counters["stats"]["unique_graphs"] <= 2


def defaulted(x, it):
    found = next(it, None)
    return x - 1 if found is None else x * total(found)


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "zip", "pairs", "enumerate", "map", "filter"])
def test_the_end_is_guarded(kind: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(defaulted, fullgraph=True)
    mine, theirs = KINDS[kind](), KINDS[kind]()
    for _ in range(9):
        assert torch.equal(compiled(torch.ones(3), mine), defaulted(torch.ones(3), theirs))


def test_stop_iteration_leaves_a_compiled_function() -> None:
    compiled = torch.compile(lambda x, it: x * next(it))
    it = iter(tensors(1))
    compiled(torch.ones(3), it)
    with pytest.raises(StopIteration):
        compiled(torch.ones(3), it)


def test_all_that_is_left_at_once() -> None:
    compiled = torch.compile(lambda x, it: (x * next(it), list(it)), fullgraph=True)
    mine = iter(tensors(3))
    first, rest = compiled(torch.ones(3), mine)
    assert torch.equal(first, torch.ones(3))
    assert [t[0].item() for t in rest] == [2, 3]
    assert next(mine, None) is None


def grown(x, items, it):
    items.append(x * 3)
    return x + next(it)


def test_a_list_that_grows_under_its_iterator() -> None:
    compiled = torch.compile(grown)
    for start in ([], tensors(1)):
        mine, theirs = list(start), list(start)
        given, others = iter(mine), iter(theirs)
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(3), mine, given), grown(torch.ones(3), theirs, others))
        assert torch.equal(torch.stack(mine), torch.stack(theirs))


def test_a_dict_that_grows_under_its_iterator_is_an_error() -> None:
    table = dict(zip("abc", tensors(3), strict=True))

    def step(x, it):
        table["z" * len(table)] = x
        return x * next(it)

    with pytest.raises(RuntimeError, match="changed size"):
        torch.compile(step)(torch.ones(3), iter(table.values()))
    assert len(table) == 4


def test_one_iterator_under_two() -> None:
    def step(x, a, b):
        return x * total(next(a)) + total(next(b)) * total(next(a))

    for make in (
        lambda it: (it, enumerate(it)),
        lambda it: (zip(it, it, strict=False), it),
        lambda it: (enumerate(it), it),
    ):
        torch._dynamo.reset()
        compiled = torch.compile(step, fullgraph=True)
        left, right = iter(tensors(20)), iter(tensors(20))
        mine, theirs = make(left), make(right)
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(3), *mine), step(torch.ones(3), *theirs))
        assert torch.equal(next(left), next(right))
        assert repr(next(mine[0])) == repr(next(theirs[0]))


def test_an_iterator_that_an_object_keeps() -> None:
    class Feeder:
        def __init__(self) -> None:
            self.data, self.ids = iter(tensors(9)), itertools.count()

        def step(self, x):
            return x * next(self.data) + next(self.ids)

    mine, theirs = Feeder(), Feeder()
    compiled = torch.compile(mine.step, fullgraph=True)
    for _ in range(6):
        assert torch.equal(compiled(torch.ones(3)), theirs.step(torch.ones(3)))
    assert next(mine.ids) == 6


def test_a_function_under_map_is_called_once_per_step() -> None:
    seen = []

    def noted(v):
        seen.append(v)
        return v + 1

    compiled = torch.compile(lambda x, it: x * next(it))
    it = map(noted, range(5))
    for _ in range(4):
        compiled(torch.ones(3), it)
    assert seen == [0, 1, 2, 3]


def test_errors_of_iterators_are_the_programs() -> None:
    def step(x, it):
        try:
            return x * total(next(it)[1])
        except ValueError as error:
            return x, str(error)

    compiled = torch.compile(step, fullgraph=True)
    for make in (
        lambda: enumerate(zip([2.0], [3.0, 4.0], strict=True)),
        lambda: zip(enumerate([1.0]), iter([]), strict=True),
    ):
        mine, theirs = make(), make()
        for _ in range(2):
            assert repr(_told(compiled, torch.ones(3), mine)) == repr(_told(step, torch.ones(3), theirs))


def _told(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except StopIteration:
        return "stop"


def test_what_cannot_be_followed_breaks_with_a_reason() -> None:
    def step(x, it):
        return x * total(next(it))

    for it in (
        iter(lambda: 2.0, 1.0),
        itertools.chain([1.0, 2.0]),
        (float(i) for i in range(3)),
        zip(itertools.cycle([2.0])),
    ):
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="from outside"):
            torch.compile(step, fullgraph=True)(torch.ones(3), it)
        assert isinstance(torch.compile(step)(torch.ones(3), it), torch.Tensor)


def test_a_break_behind_a_step_takes_it_once() -> None:
    def step(x, it):
        y = x * next(it)
        torch._dynamo.graph_break()
        return y + next(it)

    mine, theirs = iter(tensors(6)), iter(tensors(6))
    compiled = torch.compile(step)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3), mine), step(torch.ones(3), theirs))
