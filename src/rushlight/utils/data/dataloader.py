"""`DataLoader`: batches of a dataset, one after the other, in this process."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import rushlight
from rushlight import Tensor
from rushlight.utils.data.collate import default_collate, default_convert
from rushlight.utils.data.dataset import Dataset, IterableDataset, Subset, TensorDataset
from rushlight.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)

_FIXED = frozenset(("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"))


def get_worker_info() -> None:
    """What a loader's worker process knows of itself; None in the main process, and there are no workers yet."""
    return None


class _Endless(Sampler[None]):
    """The sampler of streams: they have no indices."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """Iterates over batches of `dataset`.

    The indices of a batch come from `batch_sampler`, or from `sampler` in groups of `batch_size` (by default in order, or at
    random with `shuffle`); the samples are combined by `collate_fn` (default: `default_collate`). `batch_size=None` yields
    single samples. `drop_last` leaves out a last batch that is too short. `generator` seeds the random order. A dataset that
    is a stream (`IterableDataset`) has no sampler.

    `num_workers > 0` raises `NotImplementedError`: samples are made in this process. Combinations that make no sense raise
    `ValueError`.

    Example: `for x, y in DataLoader(dataset, batch_size=32, shuffle=True): ...`
    """

    __initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co] | Sequence[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._is_stream = isinstance(dataset, IterableDataset)
        self._check_sampling(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            # The sampler of a stream yields no indices, only as many Nones as are asked for.
            if self._is_stream:
                sampler = _Endless()
            else:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._reported_length: int | None = None
        self.__initialized = True

    def _check_sampling(
        self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
    ) -> None:
        if self._is_stream:
            for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self) -> Iterator[Any]:
        return _Iteration(self)

    def __len__(self) -> int:
        if not self._is_stream:
            return len(self._index_sampler)
        length = self._reported_length = len(self.dataset)  # type: ignore[arg-type]  # a stream has no length, and says so
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool, context: Any
) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if prefetch_factor is not None and (num_workers == 0 or prefetch_factor < 0):
        raise ValueError(
            "prefetch_factor option should be non-negative"
            if num_workers
            else "prefetch_factor option could only be specified in multiprocessing. "
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if context is not None and num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
            f"but got num_workers={num_workers}"
        )
    if num_workers > 0:
        raise NotImplementedError(
            f"DataLoader with num_workers={num_workers} is not supported yet: use num_workers=0, "
            "which loads in the main process"
        )


class _Iteration:
    """One pass over a loader."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.pin_memory:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=3,
            )
        if loader.timeout != 0:
            raise AssertionError("timeout needs num_workers > 0")
        self._loader = loader
        self._sampler_iter = iter(loader._index_sampler)
        # Workers would be seeded with this. It is drawn without them as well, so that the numbers that a program draws do
        # not depend on the number of workers.
        self._base_seed = draw_seed(loader.generator)
        self._stream = iter(loader.dataset) if loader._is_stream else None
        self._rows = _row_gatherer(loader)
        self._ended = False
        self._num_yielded = 0

    def __iter__(self) -> _Iteration:
        return self

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    def __next__(self) -> Any:
        loader = self._loader
        index = next(self._sampler_iter)
        if self._rows is not None:
            batch = self._rows(index)
        elif self._stream is not None:
            batch = loader.collate_fn(self._from_stream(self._stream, index))
        elif loader._auto_collation:
            batch = loader.collate_fn(_fetch(loader.dataset, index))
        else:
            batch = loader.collate_fn(loader.dataset[index])
        self._num_yielded += 1
        said = loader._reported_length
        if self._stream is not None and said is not None and self._num_yielded > said:
            warnings.warn(
                f"Length of IterableDataset {loader.dataset} was reported to be {said} (when accessing len(dataloader)), "
                f"but {self._num_yielded} samples have been fetched. ",
                stacklevel=2,
            )
        return batch

    def _from_stream(self, stream: Iterator[Any], indices: Any) -> Any:
        if self._ended:
            raise StopIteration
        if not self._loader._auto_collation:
            return next(stream)
        samples = []
        for _ in indices:
            try:
                samples.append(next(stream))
            except StopIteration:
                self._ended = True
                break
        if not samples or (self._loader.drop_last and len(samples) < len(indices)):
            raise StopIteration
        return samples


def _row_gatherer(loader: DataLoader[Any]) -> Callable[[list[int]], list[Any]] | None:
    """A shorter way to the same batch where samples are rows of tensors: gather all rows at once instead of stacking them."""
    dataset = loader.dataset
    subset = dataset.indices if type(dataset) is Subset else None
    source = dataset.dataset if type(dataset) is Subset else dataset
    if type(source) is not TensorDataset or loader.collate_fn is not default_collate or not loader._auto_collation:
        return None
    tensors = source.tensors
    if not all(type(tensor) is Tensor for tensor in tensors):
        return None
    length = len(source)

    def gather(indices: list[int]) -> list[Any]:
        wanted = list(indices) if subset is None else [subset[i] for i in indices]
        # Negative indices count from the end, as they do one by one.
        places = rushlight.tensor([i + length if i < 0 else i for i in wanted], dtype=rushlight.int64)
        return [tensor.index_select(0, places) for tensor in tensors]

    return gather


def _fetch(dataset: Any, indices: Iterable[int]) -> list[Any]:
    many = getattr(dataset, "__getitems__", None)
    if many is not None:
        found: list[Any] = many(indices)
        return found
    return [dataset[i] for i in indices]
