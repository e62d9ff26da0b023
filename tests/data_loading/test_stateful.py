"""Stopping in the middle of an epoch and going on elsewhere: the rest is what it would have been."""

from __future__ import annotations

import io
import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    StatefulDataLoader,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)


class Noisy(Dataset[Any]):
    """Every sample draws from all three random generators, and counts how often it was asked."""

    def __init__(self, size: int = 11) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, float(torch.rand(1)), random.random(), np.random.rand()])


class Counting(Noisy):
    """A dataset with a state of its own."""

    asked = 0

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return torch.tensor([index, self.asked])

    def state_dict(self) -> Any:
        return {"asked": self.asked}

    def load_state_dict(self, state: Any) -> None:
        self.asked = state["asked"]


class Stream(IterableDataset[Any]):
    """Without a state: it is read again."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        step, first = (info.num_workers, info.id) if info else (1, 0)
        return iter(range(first, 13 if first != 1 else 5, step))


class Reader:
    def __init__(self, numbers: range) -> None:
        self.numbers, self.at = numbers, 0

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Any:
        if self.at >= len(self.numbers):
            raise StopIteration
        self.at += 1
        return self.numbers[self.at - 1], random.random()

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


class StatefulStream(Stream):
    """Its iterator has a state."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        return iter(Reader(range(info.id if info else 0, 15, 2)))


class Keeping(Sampler[int]):
    """A sampler that keeps a state, and would begin anew without."""

    at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 9:
            self.at += 1
            yield (self.at * 5) % 11
        self.at = 0

    def __len__(self) -> int:
        return 9

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def seeded() -> Any:
    return torch.Generator().manual_seed(4)


def loaders(workers: int) -> dict[str, Any]:
    more: dict[str, Any] = {"num_workers": workers}
    noisy = Noisy()
    return {
        "shuffle": lambda: StatefulDataLoader(noisy, batch_size=2, shuffle=True, **more),
        "single": lambda: StatefulDataLoader(noisy, batch_size=None, shuffle=True, **more),
        "generator": lambda: StatefulDataLoader(
            noisy, batch_size=3, shuffle=True, generator=seeded(), drop_last=True, **more
        ),
        "replacement": lambda: StatefulDataLoader(noisy, sampler=RandomSampler(noisy, True, 20, seeded()), **more),
        "subset": lambda: StatefulDataLoader(
            noisy, batch_sampler=BatchSampler(SubsetRandomSampler(range(9)), 2, False), **more
        ),
        "weights": lambda: StatefulDataLoader(noisy, sampler=WeightedRandomSampler(torch.ones(11), 9), **more),
        "distributed": lambda: StatefulDataLoader(noisy, sampler=DistributedSampler(noisy, 2, 1, seed=3), **more),  # type: ignore[arg-type]
        "counting": lambda: StatefulDataLoader(Counting(), batch_size=2, **more),
        "keeping": lambda: StatefulDataLoader(noisy, sampler=Keeping(), batch_size=2, **more),
        "stream": lambda: StatefulDataLoader(Stream(), batch_size=2, **more),
        "iterator": lambda: StatefulDataLoader(StatefulStream(), batch_size=2, **more),
    }


def plain(batch: Any) -> Any:
    return [plain(part) for part in batch] if isinstance(batch, (list, tuple)) else torch.as_tensor(batch).tolist()


def globals_state() -> Any:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def restore(state: Any) -> None:
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    np.random.set_state(state[2])


def seed() -> None:
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)


def check(make: Any, stop: int) -> None:
    """Two epochs at a stretch, and with a break after `stop` batches of the first (by way of a file): the same batches."""
    seed()
    loader = make()
    whole = [[plain(b) for b in loader] for _ in range(2)]
    seed()
    loader, part = make(), []
    batches = iter(loader)
    for _ in range(stop):
        part.append(plain(next(batches)))
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    held = globals_state()
    del batches, loader
    torch.manual_seed(99)
    file.seek(0)
    again = make()
    again.load_state_dict(torch.load(file))
    restore(held)
    part += [plain(b) for b in again]
    assert part == whole[0]
    assert [plain(b) for b in again] == whole[1]


@pytest.mark.parametrize("name", list(loaders(0)))
def test_going_on(name: str) -> None:
    for stop in (0, 1, 3):
        check(loaders(0)[name], stop)


def test_going_on_behind_the_last_batch() -> None:
    check(loaders(0)["keeping"], 5)
    check(loaders(1)["keeping"], 5)


@pytest.mark.parametrize("name", ["shuffle", "replacement", "counting", "keeping", "stream", "iterator"])
def test_going_on_with_workers(name: str) -> None:
    make = loaders(2)[name]
    check(make, 2)


def test_the_second_epoch_of_workers_that_stay() -> None:
    def make() -> Any:
        return StatefulDataLoader(Noisy(), batch_size=2, shuffle=True, num_workers=2, persistent_workers=True)

    seed()
    loader = make()
    whole = [[plain(b) for b in loader] for _ in range(2)]
    seed()
    loader = make()
    assert [plain(b) for b in loader] == whole[0]
    batches = iter(loader)
    part = [plain(next(batches)) for _ in range(3)]
    again = make()
    again.load_state_dict(loader.state_dict())
    assert part + [plain(b) for b in again] == whole[1]


def test_states_taken_now_and_then() -> None:
    def make() -> Any:
        return StatefulDataLoader(Noisy(), batch_size=2, shuffle=True, num_workers=2, snapshot_every_n_steps=3)

    seed()
    whole = [plain(b) for b in make()]
    for stop in (2, 3, 5):
        seed()
        loader = make()
        batches = iter(loader)
        part = [plain(next(batches)) for _ in range(stop)]
        again = make()
        again.load_state_dict(loader.state_dict())
        assert part + [plain(b) for b in again] == whole


def test_at_the_ends_of_an_epoch() -> None:
    loader = StatefulDataLoader(list(range(4)), batch_size=2)
    fresh = loader.state_dict()
    assert len(list(loader)) == 2
    for state in (fresh, loader.state_dict()):
        again = StatefulDataLoader(list(range(4)), batch_size=2)
        again.load_state_dict(state)
        assert again.state_dict() == state and len(list(again)) == 2
    batches = iter(loader)
    next(batches)
    again = StatefulDataLoader(
        list(range(4)), batch_size=2, num_workers=1
    )  # the order of samples needs no workers' states
    again.load_state_dict(loader.state_dict())
    assert [b.tolist() for b in again] == [[2, 3]]


def test_states_that_do_not_fit() -> None:
    state = StatefulDataLoader(list(range(4))).state_dict()
    with pytest.raises(ValueError, match="other kind of dataset"):
        StatefulDataLoader(Stream()).load_state_dict(state)
    with pytest.raises(ValueError, match="num_workers=0, and the loader has num_workers=1"):
        StatefulDataLoader(Stream(), num_workers=1).load_state_dict(StatefulDataLoader(Stream()).state_dict())
    with pytest.raises(ValueError, match="format None"):
        StatefulDataLoader([1]).load_state_dict({})
    with pytest.raises(ValueError, match="snapshot_every_n_steps"):
        StatefulDataLoader([1], snapshot_every_n_steps=0)


class Uneven(Noisy):
    """The first worker is slow, so the other one overtakes it."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is not None and info.id == 0:
            time.sleep(0.03)
        return super().__getitem__(index)


class UnevenStream(StatefulStream):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for each in super().__iter__():
            time.sleep(0.03 if info.id == 0 else 0.0)
            yield each


def without_order(kind: str, prefetch: int, workers: int = 2) -> Any:
    more: dict[str, Any] = {"num_workers": workers, "in_order": False, "prefetch_factor": prefetch} if workers else {}
    if kind == "stream":
        return StatefulDataLoader(UnevenStream(), batch_size=2, **more)
    if kind == "keeping":
        return StatefulDataLoader(Uneven(), sampler=Keeping(), batch_size=2, **more)
    return StatefulDataLoader(Uneven(), batch_size=2, shuffle=True, **more)


@pytest.mark.parametrize("kind", ["shuffle", "keeping", "stream"])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_without_an_order_the_same_batches_are_to_come(kind: str, stop: int) -> None:
    """With all tasks handed out, who makes what is settled: the rest is the same to the last random number."""
    seed()
    loader = without_order(kind, 8)
    batches = iter(loader)
    for _ in range(stop):
        next(batches)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    rest = sorted(plain(b) for b in batches)
    torch.manual_seed(99)
    file.seek(0)
    again = without_order(kind, 8)
    again.load_state_dict(torch.load(file))
    assert sorted(plain(b) for b in again) == rest
    assert len(list(again)) == len(rest) + stop  # and an epoch after it is whole


@pytest.mark.parametrize("kind", ["shuffle", "keeping"])
def test_without_an_order_none_is_lost_and_none_comes_twice(kind: str) -> None:
    for workers in (2, 1, 0):  # the order of samples needs no workers' states
        seed()
        loader = without_order(kind, 1)
        seen: list[int] = []
        for resumed in (2, 1, 9):  # broken off twice
            for batch in itertools.islice(loader, resumed):
                seen += [int(i) for i in batch[:, 0]]
            state = loader.state_dict()
            loader = without_order(kind, 1, workers)
            loader.load_state_dict(state)
        assert sorted(seen) == (list(range(11)) if kind == "shuffle" else sorted(i * 5 % 11 for i in range(1, 10)))
