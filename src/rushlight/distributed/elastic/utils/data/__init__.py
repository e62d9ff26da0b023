"""`torch.distributed.elastic.utils.data`: data for training that continues where it was stopped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sized
from typing import Any, TypeVar

import rushlight as torch
from rushlight.utils.data.distributed import DistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]

T = TypeVar("T")


class CyclingIterator(Iterator[T]):
    """The items of `generator_fn(epoch)` for the epochs from `start_epoch` to `n - 1`.

    >>> list(CyclingIterator(3, lambda epoch: iter([epoch, epoch]), start_epoch=1))
    [1, 1, 2, 2]
    """

    def __init__(self, n: int, generator_fn: Callable[[int], Iterator[T]], start_epoch: int = 0) -> None:
        self._n, self._epoch, self._generator_fn = n, start_epoch, generator_fn
        self._iter = generator_fn(start_epoch)

    def __iter__(self) -> CyclingIterator[T]:
        return self

    def __next__(self) -> T:
        while True:
            try:
                return next(self._iter)
            except StopIteration:
                if self._epoch >= self._n - 1:
                    raise
            self._epoch += 1
            self._iter = self._generator_fn(self._epoch)


class ElasticDistributedSampler(DistributedSampler):
    """The part of a rank of the items from `start_index` on, shuffled by epoch.

    As in PyTorch the order is that of the remaining items.  ValueError for a start beyond the end.
    """

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0
    ) -> None:
        super().__init__(dataset=dataset, num_replicas=num_replicas, rank=rank)
        if not isinstance(dataset, Sized):
            raise TypeError("Dataset must be an instance of collections.abc.Sized")
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator()
        generator.manual_seed(self.epoch)
        left = len(self.dataset) - self.start_index
        places = torch.randperm(left, generator=generator).add(self.start_index).tolist()
        places += places[: self.total_size - len(places)]
        if len(places) != self.total_size:
            raise AssertionError(f"{left} items are too few for {self.num_replicas} replicas")
        return iter(places[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
