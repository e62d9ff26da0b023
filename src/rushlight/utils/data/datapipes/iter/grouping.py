"""Steps from samples to batches and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.utils.data.datapipes.datapipe import DataChunk, IterDataPipe
from rushlight.utils.data.datapipes.decorators import functional_datapipe

__all__ = ["BatcherIterDataPipe", "GrouperIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[Any]):
    """Lists of `batch_size` samples; a shorter last one is left out with `drop_last`.

    >>> import rushlight as torch
    >>> list(torch.utils.data.datapipes.iter.IterableWrapper(range(5)).batch(2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: type[DataChunk] = DataChunk
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe = datapipe
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        size = len(self.datapipe)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """The samples of batches, through `unbatch_level` levels of them; -1: through all.

    >>> import rushlight as torch
    >>> list(torch.utils.data.datapipes.iter.IterableWrapper([[1, 2], [3]]).unbatch())
    [1, 2, 3]
    """

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        self.datapipe = datapipe
        self.unbatch_level = unbatch_level

    def __iter__(self) -> Iterator[Any]:
        for batch in self.datapipe:
            yield from self._samples(batch, self.unbatch_level)

    def _samples(self, batch: Any, level: int) -> Iterator[Any]:
        if level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        if level == 0 or (level == -1 and not isinstance(batch, (list, DataChunk))):
            yield batch
        elif isinstance(batch, (list, DataChunk)):
            for part in batch:
                yield from self._samples(part, level if level == -1 else level - 1)
        else:
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Lists of samples with the same key `group_key_fn(sample)`.

    A group is yielded when it has `group_size` samples, or in the end. When `buffer_size` samples wait, the largest
    group is yielded if it has `guaranteed_group_size` samples, is dropped with `drop_remaining`, and is a RuntimeError
    else.
    """

    def __init__(
        self,
        datapipe: Any,
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError("group_size must be > 0 and <= buffer_size")
        if guaranteed_group_size is not None and (group_size is None or not 0 < guaranteed_group_size <= group_size):
            raise AssertionError("guaranteed_group_size must be > 0 and <= group_size and group_size must be set")
        self.datapipe = datapipe
        self.group_key_fn = group_key_fn
        self.keep_key = keep_key
        self.max_buffer_size = buffer_size
        self.group_size = group_size
        self.guaranteed_group_size = group_size if guaranteed_group_size is None else guaranteed_group_size
        self.drop_remaining = drop_remaining
        self.wrapper_class = DataChunk

    def _group(self, key: Any, samples: list[Any]) -> Any:
        group = self.wrapper_class(samples)
        return (key, group) if self.keep_key else group

    def _make_room(self, groups: dict[Any, list[Any]]) -> tuple[Any, list[Any]]:
        """Take out the largest group."""
        key = max(groups, key=lambda k: len(groups[k]))
        samples = groups.pop(key)
        if (
            self.guaranteed_group_size is not None
            and len(samples) < self.guaranteed_group_size
            and not self.drop_remaining
        ):
            raise RuntimeError("Failed to group items", str(samples))
        return key, samples

    def __iter__(self) -> Iterator[Any]:
        groups: defaultdict[Any, list[Any]] = defaultdict(list)
        waiting = 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            groups[key].append(sample)
            waiting += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                waiting -= self.group_size
                yield self._group(key, groups.pop(key))
            if waiting == self.max_buffer_size:
                key, samples = self._make_room(groups)
                waiting -= len(samples)
                if self.guaranteed_group_size is None or len(samples) >= self.guaranteed_group_size:
                    yield self._group(key, samples)
        for key, samples in groups.items():
            yield self._group(key, samples)
