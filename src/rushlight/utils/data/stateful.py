"""`StatefulDataLoader`: a loader that can be stopped in the middle of an epoch and go on from there in another process."""

from __future__ import annotations

import itertools
from typing import Any

from rushlight.utils.data._utils.randomness import get_random, set_random
from rushlight.utils.data.dataloader import (
    DataLoader,
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)
from rushlight.utils.data.distributed import DistributedSampler

__all__ = ["StatefulDataLoader"]

_FORMAT = 1


class StatefulDataLoader(DataLoader[Any]):
    """A `DataLoader` with `state_dict()` and `load_state_dict(state)`, after torchdata's class of that name.

    The state says where the epoch stands: after loading it, the next pass yields exactly the batches that were still to
    come, in a new process too. What the samplers drew from random generators is drawn again; the workers' random
    numbers go on where they were.  (The main process' own random state is the program's: keep `torch.get_rng_state()`
    beside it, so that the next epochs are the same too.)

    Datasets, their iterators, and samplers that keep a state of their own say so by `state_dict()` and
    `load_state_dict(state)`. A stream without is read again up to where it was. With workers a state is taken every
    `snapshot_every_n_steps` batches, and the batches since then are made again after loading. A state from the end of
    an epoch starts the next one.

    With `in_order=False` what is still to come has no order, and a state (taken with every batch) keeps which batches
    are under way, and with whom: none comes twice, none is lost, and each is what its worker would have made.

    `ValueError` for a state that does not fit (another kind of dataset, another number of workers of a stream).

        >>> from rushlight.utils.data import StatefulDataLoader
        >>> loader = StatefulDataLoader(list(range(6)), batch_size=2)
        >>> batches = iter(loader)
        >>> next(batches)
        tensor([0, 1])
        >>> state = loader.state_dict()
        >>> again = StatefulDataLoader(list(range(6)), batch_size=2)
        >>> again.load_state_dict(state)
        >>> list(again)
        [tensor([2, 3]), tensor([4, 5])]
    """

    _pending: dict[str, Any] | None = None
    _current: Any = None

    def __init__(self, *args: Any, snapshot_every_n_steps: int = 1, **kwargs: Any) -> None:
        if snapshot_every_n_steps < 1:
            raise ValueError(f"snapshot_every_n_steps should be a positive integer, but got {snapshot_every_n_steps}")
        super().__init__(*args, **kwargs)
        self.snapshot_every_n_steps = snapshot_every_n_steps

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleResumable(self)
        self.check_worker_number_rationality()
        return _MultiResumable(self)

    def __iter__(self) -> _BaseDataLoaderIter:
        if self._pending is not None:
            self._iterator = None  # persistent workers of a pass that is given up
        self._current = super().__iter__()
        again, self._pending = self._pending, None
        if again is not None:
            for _ in range(again["again"]):
                next(self._current)
        return self._current

    def state_dict(self) -> dict[str, Any]:
        """Where the latest pass stands: ints, tensors, and what datasets and samplers say of themselves."""
        if self._pending is not None:
            return self._pending
        if self._current is None:
            return {
                "format": _FORMAT,
                "kind": self._dataset_kind,
                "workers": self.num_workers,
                "finished": True,
                "again": 0,
            }
        return self._current.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next pass go on from a state."""
        if state_dict.get("format") != _FORMAT:
            raise ValueError(
                f"not a state of a StatefulDataLoader of this version: format {state_dict.get('format')!r}, expected {_FORMAT}"
            )
        if state_dict["kind"] != self._dataset_kind:
            raise ValueError("the state was taken with the other kind of dataset (one of map-style and iterable)")
        if state_dict["workers"] != self.num_workers and self._dataset_kind == 1:
            raise ValueError(
                f"the state was taken with num_workers={state_dict['workers']}, and the loader has num_workers={self.num_workers}"
            )
        self._pending = dict(state_dict)


class _Resumable(_BaseDataLoaderIter):
    """Common base of both iterators, for their states."""

    def _restored(self) -> dict[str, Any] | None:
        """The state of a pass that is to be gone on with."""
        state = self._loader._pending
        return None if state is None or state["finished"] else state

    def _draw(self, first: bool) -> None:
        state = self._restored() if first else None
        self._finished = self._begun = False
        self._position = self._drawn = 0
        self._held: list[tuple[int, Any]] = []  # worker and index of batches that were under way
        self._drained = False
        self._keeper = _keeper(self._index_sampler)
        if state is None:
            self._from: tuple[int, int, list[Any]] = (0, 0, [])
            self._start: dict[str, Any] = {
                "first": first,
                "random": get_random(),
                "generators": [g.get_state() for g in self._generators()],
            }
            if isinstance(self._inner_sampler(), DistributedSampler):
                self._start["epoch"] = self._inner_sampler().epoch
            super()._draw(first)
            return
        self._start, self._position = state["start"], state["position"]
        self._drawn, self._held = state.get("drawn", self._position), list(state.get("pending", ()))
        self._from = self._position, self._drawn, list(self._held)
        now = get_random()
        try:
            set_random(self._start["random"])
            for generator, held in zip(self._generators(), self._start["generators"], strict=True):
                generator.set_state(held)
            if "epoch" in self._start:
                self._inner_sampler().set_epoch(self._start["epoch"])
            self._draw_again(state)
        finally:
            set_random(now)

    def _draw_again(self, state: dict[str, Any]) -> None:
        """Draw what the pass drew, up to where it was."""
        if self._keeper is not None:
            self._keeper.load_state_dict(state["sampler"])
        super()._draw(self._start["first"])
        self._drained = state.get("drained", False)
        if self._drained:
            self._sampler_iter = iter(())
        if not self._start["first"]:
            self._base_seed = state["base_seed"]
        if self._keeper is None and self._dataset_kind == 0:
            for _ in range(self._drawn):
                next(self._sampler_iter, None)
            if state["begun"]:  # what it drew with its first index, it draws here and now
                self._sampler_iter = itertools.chain([*itertools.islice(self._sampler_iter, 1)], self._sampler_iter)

    def _next_index(self) -> Any:
        self._begun = True
        if self._held:
            return self._next_held()
        index = super()._next_index()
        self._drawn += 1
        return index

    def _next_held(self) -> Any:
        return self._held.pop(0)[1]

    def _inner_sampler(self) -> Any:
        return getattr(self._index_sampler, "sampler", self._index_sampler)

    def _generators(self) -> list[Any]:
        """The generators that the program gave to the loader and its samplers."""
        found: dict[int, Any] = {}
        for holder in (self._loader, self._index_sampler, self._inner_sampler()):
            generator = getattr(holder, "generator", None)
            if hasattr(generator, "get_state"):
                found[id(generator)] = generator
        return list(found.values())

    def _to_come(self) -> dict[str, Any]:
        """Where the sampler stands, and what was drawn from it and is still to come, when batches come in order."""
        position, drawn, held = self._from
        taken = self._position - position
        return self._standing(drawn + max(taken - len(held), 0), held[taken:])

    def _standing(self, drawn: int, pending: list[Any]) -> dict[str, Any]:
        try:  # who yields the last samples as a smaller batch has asked the sampler for more: it is ready for the next pass by now
            drained = self._drained or self._keeper is not None and drawn >= len(self._index_sampler)
        except (TypeError, NotImplementedError):  # a sampler without a length
            drained = self._drained
        return {"drawn": drawn, "pending": pending, "drained": drained}

    def _state(self, **more: Any) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "kind": self._dataset_kind,
            "workers": self._num_workers,
            "finished": self._finished,
            "start": self._start,
            "base_seed": self._base_seed,
            "shared_seed": self._shared_seed,
            "position": self._position,
            "begun": self._begun,
            "again": 0,
            **self._to_come(),
            **more,
        }

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except StopIteration:
            self._finished = True
            raise


def _keeper(index_sampler: Any) -> Any:
    """The sampler that keeps a state of its own."""
    for sampler in (index_sampler, getattr(index_sampler, "sampler", None)):
        if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
            return sampler
    return None


class _SingleResumable(_Resumable, _SingleProcessDataLoaderIter):
    """Nothing is made in advance, so the state is what everybody says now."""

    def __init__(self, loader: StatefulDataLoader) -> None:
        super().__init__(loader)
        state = self._restored()
        if state is not None:
            self._dataset_fetcher.restore(state["fetcher"] if state["workers"] == 0 else {})

    def _next_data(self) -> Any:
        index = self._next_index()
        self._position += 1
        return self._dataset_fetcher.fetch(index)

    def state_dict(self) -> dict[str, Any]:
        """See `StatefulDataLoader.state_dict`."""
        return self._state(
            fetcher=self._dataset_fetcher.state(),
            sampler=self._keeper.state_dict() if self._keeper is not None else None,
        )


class _MultiResumable(_Resumable, _MultiProcessingDataLoaderIter):
    """Workers send their state along with a batch; it counts once the batch is yielded."""

    def __init__(self, loader: StatefulDataLoader) -> None:
        self._states: dict[int, Any] = {}
        self._sampler_states: dict[int, Any] = {}
        self._last = -1
        # Without an order none can be counted off
        self._every = loader.snapshot_every_n_steps if loader.in_order else 1
        self._wanted: int | None = None
        super().__init__(loader)

    def _begin(self) -> None:
        super()._begin()
        state = self._restored()
        self._base = self._position
        self._sampler_states = {}
        if state is not None:
            same = state["workers"] == self._num_workers
            if not same:
                self._held = [(-1, index) for _, index in self._held]  # whoever comes takes them
            self._last, self._states = (state["last"], dict(state["states"])) if same else (-1, {})
            self._turn = (self._last + 1) % self._num_workers
        else:
            # Of the pass before, what workers that stay keep: their random numbers, and a dataset of samples.
            keep = {} if self._dataset_kind == 0 else {"fetcher": {}, "ended": False}
            self._states = {worker: {**held, **keep} for worker, held in self._states.items()}
            self._last = -1
        self._snapshot = state or self._take()
        self._since = 0

    def _state_of(self, worker: int) -> dict[str, Any] | None:
        state = self._restored()
        if state is None or state["workers"] != self._num_workers:
            return None
        return state["states"].get(worker)

    def _next_index(self) -> Any:
        index = super()._next_index()
        if self._keeper is not None and self._in_order:
            self._sampler_states[self._send_idx] = self._keeper.state_dict()
        return index

    def _next_held(self) -> Any:
        worker, index = self._held.pop(0)
        self._wanted = worker if worker >= 0 else None
        return index

    def _choose(self) -> int | None:
        wanted, self._wanted = self._wanted, None
        return super()._choose() if wanted is None else wanted

    def _wants_state(self, number: int) -> bool:
        position = self._base + number + 1
        # Whoever yields last before a snapshot: with streams that may be any task, as those of workers that have ended
        # are skipped.
        return not self._in_order or self._dataset_kind == 1 or -position % self._every < self._num_workers

    def _yields(self, number: int, worker: int, state: Any) -> None:
        self._position += 1
        self._last = worker
        if state is not None:
            self._states[worker] = state
        self._sampler_state = self._sampler_states.pop(number, None)
        self._since += 1
        if self._position % self._every == 0:
            self._snapshot, self._since = self._take(), 0

    _sampler_state: Any = None

    def _take(self) -> dict[str, Any]:
        sampler = self._sampler_state
        if sampler is None and self._keeper is not None:
            sampler = self._keeper.state_dict()
        return self._state(last=self._last, states=dict(self._states), sampler=sampler)

    def _to_come(self) -> dict[str, Any]:
        if self._in_order or self._dataset_kind == 1:
            return super()._to_come()
        under_way = [self._tasks[number] for number in sorted(self._tasks)]
        self._drained = self._drained or self._exhausted
        return self._standing(self._drawn, [*under_way, *self._held])

    def state_dict(self) -> dict[str, Any]:
        """See `StatefulDataLoader.state_dict`."""
        return {
            **self._snapshot,
            "begun": self._begun,
            "finished": self._finished,
            "again": 0 if self._finished else self._since,
        }
