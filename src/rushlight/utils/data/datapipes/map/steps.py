"""The steps of pipes with keys."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, MapDataPipe
from rushlight.utils.data.datapipes.decorators import functional_datapipe
from rushlight.utils.data.sampler import draw_seed

__all__ = [
    "BatcherMapDataPipe", "ConcaterMapDataPipe", "MapperMapDataPipe", "SequenceWrapperMapDataPipe", "ShufflerIterDataPipe", "ZipperMapDataPipe",
]  # fmt: skip


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """The items of a sequence or mapping, of a copy of it unless `deepcopy` is False.

    >>> import rushlight as torch
    >>> torch.utils.data.datapipes.map.SequenceWrapper([10, 20])[1]
    20
    """

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        self.sequence = sequence
        if deepcopy:
            try:
                self.sequence = copy.deepcopy(sequence)
            except TypeError:
                warnings.warn(
                    "The input sequence can not be deepcopied, please be aware of in-place modification would affect source data",
                    stacklevel=2,
                )

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


def _same(sample: Any) -> Any:
    return sample


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """`fn` of every sample.

    >>> import rushlight as torch
    >>> torch.utils.data.datapipes.map.SequenceWrapper([10, 20]).map(lambda n: n + 1)[1]
    21
    """

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any] = _same) -> None:
        self.datapipe = datapipe
        self.fn = fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[Any]):
    """Lists of `batch_size` samples with keys 0, 1, ...; a shorter last one is left out with `drop_last`.

    >>> import rushlight as torch
    >>> torch.utils.data.datapipes.map.SequenceWrapper([10, 20, 30]).batch(2)[0]
    [10, 20]
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

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        places = range(index * self.batch_size, min((index + 1) * self.batch_size, len(self.datapipe)))
        return self.wrapper_class([self.datapipe[place] for place in places])

    def __len__(self) -> int:
        size = len(self.datapipe)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


def _check_pipes(pipes: tuple[Any, ...]) -> None:
    if not pipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, MapDataPipe) for pipe in pipes):
        raise TypeError("Expected all inputs to be `MapDataPipe`")


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe[Any]):
    """Pipes one behind the other.

    >>> import rushlight as torch
    >>> torch.utils.data.datapipes.map.SequenceWrapper([10, 20]).concat(torch.utils.data.datapipes.map.SequenceWrapper([30]))[2]
    30
    """

    def __init__(self, *datapipes: Any) -> None:
        _check_pipes(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index: int) -> Any:
        place = index
        for pipe in self.datapipes:
            if place < len(pipe):
                return pipe[place]
            place -= len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe[Any]):
    """Tuples of the samples that pipes have under one key.

    >>> import rushlight as torch
    >>> torch.utils.data.datapipes.map.SequenceWrapper([10, 20]).zip(torch.utils.data.datapipes.map.SequenceWrapper(["a", "b"]))[1]
    (20, 'b')
    """

    def __init__(self, *datapipes: Any) -> None:
        _check_pipes(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        found = []
        for pipe in self.datapipes:
            try:
                found.append(pipe[index])
            except IndexError as error:
                raise IndexError(f"Index {index} is out of range for one of the input MapDataPipes {pipe}.") from error
        return tuple(found)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


class ShufflerIterDataPipe(IterDataPipe[Any]):
    """The samples of a pipe with keys (0, 1, ... or `indices`), in random order: a pipe that yields."""

    def __init__(self, datapipe: Any, *, indices: list[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._enabled = True
        self._seed: int | None = None
        self._order: list[Any] = []

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Whether to shuffle at all."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """The seed of the next pass."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Draw the order of a new pass."""
        self._order = list(self.indices)
        if self._enabled:
            random.Random(draw_seed() if self._seed is None else self._seed).shuffle(self._order)
            self._seed = None

    def __iter__(self) -> Iterator[Any]:
        for index in self._order:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
