"""`DistributedSampler`: each of several processes gets a part of the data of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import rushlight
from rushlight.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """The indices of part `rank` of `num_replicas`: every one of them gets equally many, none twice if it divides.

    The order depends on `seed` and on the epoch: call `set_epoch` before each epoch, else all have the same order. A
    length that does not divide is filled up with indices from the start, or with `drop_last` cut. Without process
    groups `num_replicas` and `rank` must be given: RuntimeError.

    Example: `DataLoader(data, sampler=DistributedSampler(data, num_replicas=4, rank=0))`
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            groups = rushlight.distributed
            if not groups.is_available():
                raise ValueError("There is no process group that num_replicas and rank could be asked of: give both")
            num_replicas = groups.get_world_size() if num_replicas is None else num_replicas
            rank = groups.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        size = len(dataset)
        self.num_samples = size // num_replicas if drop_last else math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        indices = list(range(size))
        if self.shuffle:
            generator = rushlight.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = rushlight.randperm(size, generator=generator).tolist()
        if not self.drop_last and indices:
            repeats = math.ceil(self.total_size / len(indices))
            indices = indices * repeats
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self.epoch = epoch
