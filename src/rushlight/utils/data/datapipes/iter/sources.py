"""Where samples come from and in which order: wrapped iterables, samplers, shuffling, sharing among workers."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from rushlight.utils.data.datapipes.datapipe import IterDataPipe
from rushlight.utils.data.datapipes.decorators import functional_datapipe
from rushlight.utils.data.sampler import SequentialSampler, draw_seed

__all__ = ["IterableWrapperIterDataPipe", "SamplerIterDataPipe", "ShardingFilterIterDataPipe", "ShufflerIterDataPipe"]


class IterableWrapperIterDataPipe(IterDataPipe[Any]):
    """The items of an iterable, of a copy of it unless `deepcopy` is False.

    >>> import rushlight as torch
    >>> list(torch.utils.data.datapipes.iter.IterableWrapper(range(3)))
    [0, 1, 2]
    """

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(source)
            except TypeError:
                warnings.warn(
                    "The input iterable can not be deepcopied, please be aware of in-place modification would affect source data.",
                    stacklevel=2,
                )
        yield from source

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


class SamplerIterDataPipe(IterDataPipe[Any]):
    """Yields what a sampler over another pipe yields."""

    def __init__(
        self,
        datapipe: Any,
        sampler: Any = SequentialSampler,
        sampler_args: tuple[Any, ...] | None = None,
        sampler_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.datapipe = datapipe
        self.sampler_args = sampler_args or ()
        self.sampler_kwargs = {**(sampler_kwargs or {}), "data_source": datapipe}
        self.sampler = sampler(*self.sampler_args, **self.sampler_kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe[Any]):
    """The samples in an order drawn from a buffer of `buffer_size` of them; batches are taken apart through
    `unbatch_level` levels first.

    Every pass draws a seed from the default generator, unless `set_seed` gave one.

    >>> import rushlight as torch
    >>> sorted(torch.utils.data.datapipes.iter.IterableWrapper(range(3)).shuffle())
    [0, 1, 2]
    """

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
        self.datapipe = datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level=unbatch_level)
        self.buffer_size = buffer_size
        self._enabled = True
        self._seed: int | None = None
        self._random = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Whether to shuffle at all."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """The seed of the next pass."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Seed a new pass."""
        if self._enabled:
            self._random.seed(draw_seed() if self._seed is None else self._seed)
            self._seed = None

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        kept: list[Any] = []
        for sample in self.datapipe:
            if len(kept) < self.buffer_size:
                kept.append(sample)
                continue
            place = self._random.randint(0, self.buffer_size - 1)
            chosen, kept[place] = kept[place], sample
            yield chosen
        while kept:
            yield kept.pop(self._random.randint(0, len(kept) - 1))

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(IterDataPipe[Any]):
    """Every n-th sample, where n processes share the work: a loader tells its workers which part is theirs."""

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        self.source_datapipe = source_datapipe
        self.sharding_group_filter = sharding_group_filter
        self.groups: dict[int, tuple[int, int]] = {}
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: int = 1) -> None:
        """Of `num_of_instances` processes, this one is number `instance_id`; groups of processes within each other have
        numbers of their own.
        """
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        if sharding_group == 1:
            if any(group != 1 for group in self.groups):
                raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        elif 1 in self.groups:
            raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.groups[sharding_group] = (num_of_instances, instance_id)
        self.num_of_instances, self.instance_id = 1, 0
        for group in sorted(self.groups):
            if self.sharding_group_filter is None or group == self.sharding_group_filter:
                count, number = self.groups[group]
                self.instance_id += self.num_of_instances * number
                self.num_of_instances *= count

    def is_shardable(self) -> bool:
        """True."""
        return True

    def __iter__(self) -> Iterator[Any]:
        for place, sample in enumerate(self.source_datapipe):
            if place % self.num_of_instances == self.instance_id:
                yield sample

    def __len__(self) -> int:
        size = len(self.source_datapipe)
        return size // self.num_of_instances + (self.instance_id < size % self.num_of_instances)
