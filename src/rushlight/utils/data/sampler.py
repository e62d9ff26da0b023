"""Samplers: in which order the samples come. The same seed gives the same order as PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import rushlight

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Yields indices (or, for batch samplers, lists of them). A subclass defines `__iter__`, and `__len__` if it can."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... to the end of `data_source`.

    >>> import rushlight as torch
    >>> list(torch.utils.data.SequentialSampler([10, 20, 30]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order, each once; with `replacement`, `num_samples` independent draws.

    Without a `generator`, each pass draws a seed from the default generator. More samples than there are data come from
    several orders one after the other.

    >>> import rushlight as torch
    >>> sorted(torch.utils.data.RandomSampler([10, 20, 30]))
    [0, 1, 2]
    """

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self) -> int:
        """How many indices a pass yields; the size of the data may change between passes."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = rushlight.Generator()
            generator.manual_seed(draw_seed())
        if self.replacement:
            # In blocks of 32: the block size is part of "the same order as PyTorch".
            blocks = [32] * (self.num_samples // 32) + [self.num_samples % 32]
            for size in blocks:
                drawn = rushlight.randint(high=n, size=(size,), dtype=rushlight.int64, generator=generator)
                yield from drawn.tolist()
        else:
            for _ in range(self.num_samples // n):
                yield from rushlight.randperm(n, generator=generator).tolist()
            yield from rushlight.randperm(n, generator=generator).tolist()[: self.num_samples % n]

    def __len__(self) -> int:
        return self.num_samples


def draw_seed(generator: Any = None) -> int:
    """A seed for a new generator, drawn as PyTorch draws it."""
    return int(rushlight.empty((), dtype=rushlight.int64).random_(generator=generator).item())


class SubsetRandomSampler(Sampler[int]):
    """The given `indices` in random order, each once.

    >>> import rushlight as torch
    >>> sorted(torch.utils.data.SubsetRandomSampler([4, 0, 2]))
    [0, 2, 4]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in rushlight.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices drawn with the given probabilities (weights, which need not sum to 1).

    Example: `WeightedRandomSampler([0.1, 0.9, 0.4], 5)`
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: Any = None) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = rushlight.as_tensor(weights, dtype=rushlight.float64)
        if self.weights.dim() != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = rushlight.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of `sampler`; with `drop_last` a shorter last one is left out.

    >>> import rushlight as torch
    >>> list(torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(range(5)), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        size = len(self.sampler)  # type: ignore[arg-type]
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
