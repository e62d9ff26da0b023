"""From indices to batches: a fetcher asks the dataset for samples and collates them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.memory import is_host_memory
from rushlight._interface.tensors import Spec
from rushlight.utils.data._utils import worker
from rushlight.utils.data._utils.collate import default_collate
from rushlight.utils.data.dataset import Subset, TensorDataset

__all__ = ["IterableFetcher", "MapFetcher"]


class MapFetcher:
    """Samples by index."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        gather = _row_gatherer(dataset) if auto_collation and collate_fn is default_collate else None
        if gather is not None:
            self.fetch = gather  # type: ignore[method-assign, assignment]

    def fetch(self, index: Any) -> Any:
        """The batch for a list of indices, or the sample for one."""
        dataset = self.dataset
        if not self.auto_collation:
            return self.collate_fn(dataset[index])
        many = getattr(dataset, "__getitems__", None)
        return self.collate_fn(many(index) if many else [dataset[i] for i in index])

    def state(self) -> dict[str, Any]:
        """The dataset's state, if it has one."""
        return {"dataset": self.dataset.state_dict()} if hasattr(self.dataset, "state_dict") else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` said."""
        if "dataset" in state:
            self.dataset.load_state_dict(state["dataset"])


class IterableFetcher:
    """Samples in sequence. `StopIteration` at the end of the stream."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.ended = False
        self.samples = 0
        self.dataset_iter: Iterator[Any] | None = iter(dataset)

    def fetch(self, index: Any) -> Any:
        """The next batch, of as many samples as `index` is long."""
        stream = self.dataset_iter
        if self.ended or stream is None:
            raise StopIteration
        if not self.auto_collation:
            sample = next(stream)
            self.samples += 1
            return self.collate_fn(sample)
        samples = []
        for _ in index:
            try:
                samples.append(next(stream))
            except StopIteration:
                self.ended = True
                break
        self.samples += len(samples)
        if not samples or (self.drop_last and len(samples) < len(index)):
            raise StopIteration
        return self.collate_fn(samples)

    def state(self) -> dict[str, Any]:
        """How far the stream has been read, and what the dataset and its iterator say of their state, if they do."""
        found: dict[str, Any] = {"samples": self.samples, "ended": self.ended}
        for name, held in (("dataset", self.dataset), ("iterator", self.dataset_iter)):
            if held is not None and hasattr(held, "state_dict") and not (name == "iterator" and held is self.dataset):
                found[name] = held.state_dict()
        return found

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` said; a stream that keeps no state is read again up to there."""
        if "dataset" in state:
            self.dataset.load_state_dict(state["dataset"])
            self.dataset_iter = iter(self.dataset)
        if "iterator" in state:
            self.dataset_iter.load_state_dict(state["iterator"])  # type: ignore[union-attr]
        self.samples, self.ended = state.get("samples", 0), state.get("ended", False)
        if "dataset" not in state and "iterator" not in state:
            for _ in range(self.samples):
                next(self.dataset_iter, None)  # type: ignore[arg-type]


def _row_gatherer(dataset: Any) -> Callable[[list[int]], list[Any]] | None:
    """A shorter way to the same batch where samples are rows of tensors: gather all rows at once instead of stacking
    them.
    """
    subset = dataset.indices if type(dataset) is Subset else None
    source = dataset.dataset if type(dataset) is Subset else dataset
    if type(source) is not TensorDataset or not all(type(tensor) is Tensor for tensor in source.tensors):
        return None
    tensors = source.tensors
    length = len(source)

    def gather(indices: list[int]) -> list[Any]:
        wanted = list(indices) if subset is None else [subset[i] for i in indices]
        # Negative indices count from the end, as they do one by one.
        places = rushlight.tensor([i + length if i < 0 else i for i in wanted], dtype=rushlight.int64)
        arena = worker.arena()
        if arena is None:
            return [tensor.index_select(0, places) for tensor in tensors]
        made = []
        for tensor in tensors:
            spec = tensor._spec
            plain = not tensor._rg and is_host_memory(spec) and not (spec.conj or spec.released)
            out = arena.empty(Spec.of(spec.dtype, spec.device, (len(wanted), *spec.shape[1:]))) if plain else None
            made.append(rushlight.index_select(tensor, 0, places, out=out))
        return made

    return gather
