"""`DataLoader`: batches of a dataset, one after the other, made in this process or by workers."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from rushlight._interface.base import LazyModule, require, shorten
from rushlight._interface.devices import accelerator
from rushlight.utils.data._utils.collate import default_collate, default_convert
from rushlight.utils.data._utils.datasets import create_fetcher, is_pipe, seeded
from rushlight.utils.data._utils.pin_memory import pin_memory
from rushlight.utils.data._utils.worker import ExceptionWrapper, Setup, StreamEnded, WorkerInfo, get_worker_info
from rushlight.utils.data.dataset import Dataset, IterableDataset
from rushlight.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

graph_settings: Any = LazyModule("rushlight.utils.data.graph_settings")
worker_pool: Any = LazyModule("rushlight.utils.data._utils.worker_pool")

__all__ = ["DataLoader", "WorkerInfo", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)
# What annotations call a function that makes a batch of samples.
_T = TypeVar("_T")
_collate_fn_t: TypeAlias = Callable[[list[_T]], Any]
_worker_init_fn_t: TypeAlias = Callable[[int], None]

_FIXED = frozenset(("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"))


class _DatasetKind:
    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> Any:
        return create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler[None]):
    """The sampler of streams: they have no indices."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


def _sharding_worker_init_fn(worker_init_fn: Any, world_size: int, rank_id: int, worker_id: int) -> None:
    """Take a worker's part of a data pipe in a job of several processes, then call the program's own function."""
    info = get_worker_info()
    if info is None:
        raise AssertionError("Worker info is None in sharding worker init function")
    graph_settings.apply_sharding(info.dataset, info.num_workers * world_size, worker_id * world_size + rank_id)
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


class DataLoader(Generic[T_co]):
    """Iterates over batches of `dataset`.

    The indices of a batch come from `batch_sampler`, or from `sampler` in groups of `batch_size` (by default in order,
    or at random with `shuffle`); the samples are combined by `collate_fn` (default: `default_collate`).
    `batch_size=None` yields single samples. `drop_last` leaves out a last batch that is too short. `generator` seeds
    the random order and the workers. A dataset that is a stream (`IterableDataset`) has no sampler.

    `num_workers` processes make batches in advance, `prefetch_factor` (2) each; what they make lies in shared memory
    and is not copied. They are started by `multiprocessing_context` (Python's default), call `worker_init_fn(worker)`
    first, are seeded as PyTorch's are, and stay for further passes with `persistent_workers`. `in_order=False` yields
    batches as they become ready.  With `pin_memory` they are in pinned memory, where there is
    an accelerator to copy from it.

    `ValueError` for combinations that make no sense. While iterating: what the dataset raises, in a worker with the
    worker's traceback in the message; `RuntimeError` when a worker dies, or needs more than `timeout` seconds (0: any
    time is fine).

    Example: `for x, y in DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2): ...`
    """

    _iterator: Any = None
    __initialized = False
    __multiprocessing_context: Any = None

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
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._dataset_kind = _DatasetKind.Iterable if isinstance(dataset, IterableDataset) else _DatasetKind.Map
        self._check_sampling(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            # The sampler of a stream yields no indices, only as many Nones as are asked for.
            if self._dataset_kind == _DatasetKind.Iterable:
                sampler = _InfiniteConstantSampler()
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
        self._IterableDataset_len_called: int | None = None
        self.__initialized = True
        self.check_worker_number_rationality()

    def _check_sampling(self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool) -> None:
        if self._dataset_kind == _DatasetKind.Iterable:
            wrong = () if is_pipe(self.dataset) else (("shuffle", shuffle or None),)
            for name, value in (*wrong, ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
            if shuffle is not None and not wrong:
                self.dataset = graph_settings.apply_shuffle_settings(self.dataset, shuffle=shuffle)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")

    @property
    def multiprocessing_context(self) -> Any:
        """The context that workers are started by; None: Python's default."""
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if self.num_workers <= 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
                    f"but got num_workers={self.num_workers}"
                )
            if isinstance(context, str):
                known = multiprocessing.get_all_start_methods()
                if context not in known:
                    raise ValueError(
                        f"multiprocessing_context option should specify a valid start method in {known!r}, "
                        f"but got multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string specifying the start "
                    f"method, but got multiprocessing_context={context}"
                )
        self.__multiprocessing_context = context

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

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.persistent_workers or self.num_workers == 0:
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def __len__(self) -> int:
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)  # type: ignore[arg-type]  # a stream has no length, and says so
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Warn when there are more workers than processors that this process may use."""
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        most = allowed or os.cpu_count()
        if not self.num_workers or most is None or self.num_workers <= most:
            return
        warnings.warn(
            f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of worker in current "
            f"system is {most}{'' if allowed else ' (`cpuset` is not taken into account)'}, which is smaller than what this DataLoader is "
            "going to create. Please be aware that excessive worker creation might get DataLoader running slow or even freeze, lower the "
            "worker number to avoid potential slowness/freeze if necessary.",
            stacklevel=3,
        )


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


class _BaseDataLoaderIter:
    """One pass over a loader."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        # A loader holds its iterator: in a circle, workers would wait for the collector
        self._loader_reference = weakref.ref(loader)
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._shared_seed: int | None = None
        self._pins = self._pin_memory = _pins(loader)
        self._pin_memory_device = None
        self._num_yielded = 0
        self._said_length = loader._IterableDataset_len_called  # before this pass
        self._draw(first=True)

    @property
    def _loader(self) -> Any:
        """The loader, which begins every pass; between two calls of it a pass does without."""
        return self._loader_reference()

    def _draw(self, first: bool) -> None:
        """Begin a pass: what is drawn from the loader's stream of random numbers, in the order in which PyTorch draws
        it.
        """
        generator = self._loader.generator
        if first:
            self._shared_seed = draw_seed(generator) if is_pipe(self._dataset) else None
            self._sampler_iter = iter(self._index_sampler)
            # The workers are seeded with this. It is drawn without workers as well, so that the numbers that a program
            # draws do not depend on how many there are.
            self._base_seed = draw_seed(generator)
        else:
            self._sampler_iter = iter(self._index_sampler)
            self._shared_seed = draw_seed(generator) if is_pipe(self._dataset) else None

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        self._num_yielded = 0
        self._said_length = loader._IterableDataset_len_called  # before this pass
        self._draw(first=first_iter)

    @property
    def _IterableDataset_len_called(self) -> int | None:
        return self._said_length

    @_IterableDataset_len_called.setter
    def _IterableDataset_len_called(self, said: int | None) -> None:
        self._said_length = said

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        try:
            data = self._next_data()
            self._num_yielded += 1
            said = self._said_length
            if said is not None and self._num_yielded > said and self._dataset_kind == _DatasetKind.Iterable:
                self._warn_of_length(said)
            return pin_memory(data) if self._pins else data
        except BaseException as error:
            shorten(error)
            raise

    def _warn_of_length(self, said: int) -> None:
        text = (
            f"Length of IterableDataset {self._dataset} was reported to be {said}(when accessing len(dataloader)), "
            f"but {self._num_yielded} samples have been fetched. "
        )
        if self._num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at "
                "each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
            )
        warnings.warn(text, stacklevel=3)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


def _pins(loader: DataLoader[Any]) -> bool:
    """Whether batches go to pinned memory: where that was asked for, and there is an accelerator."""
    if not loader.pin_memory:
        return False
    if loader.pin_memory_device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{loader.pin_memory_device}'.",
            stacklevel=5,
        )
    if accelerator() is not None:
        return True
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
        stacklevel=5,
    )
    return False


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Batches made in this process."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if loader.timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        if loader.num_workers != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires num_workers == 0")
        if self._shared_seed is not None:
            self._dataset = seeded(self._dataset, self._shared_seed)
        self._dataset_fetcher = create_fetcher(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        return self._dataset_fetcher.fetch(self._next_index())


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches made by workers.

    Tasks have numbers and go to the workers in turn; results are put in the order of the numbers. A worker whose stream
    has ended is left out from then on, and its tasks are skipped.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._pool: Any = None
        super().__init__(loader)
        if not loader.prefetch_factor or loader.prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        self._in_order = loader.in_order
        self._persistent_workers = loader.persistent_workers
        self._prefetch = loader.prefetch_factor
        self._epoch = 0
        self._start_workers()
        self._begin()
        self._prime()

    def _draw(self, first: bool) -> None:
        super()._draw(first)
        if first and self._shared_seed is not None:
            draw_seed(self._loader.generator)  # PyTorch draws it once more, and gives the workers the first one

    def _start_workers(self) -> None:
        require("numpy.random")  # workers seed it; those that are forked find it loaded
        loader = self._loader
        context = loader.multiprocessing_context or multiprocessing.get_context()
        common: dict[str, Any] = {
            "workers": self._num_workers, "base_seed": self._base_seed, "kind": self._dataset_kind, "dataset": self._dataset,
            "auto_collation": self._auto_collation, "collate_fn": self._collate_fn, "drop_last": self._drop_last,
            "init_fn": loader.worker_init_fn, "shared_seed": self._shared_seed,
        }  # fmt: skip
        self._pool = worker_pool.WorkerPool(
            context, self._num_workers, lambda **own: Setup(**common, **own, state=self._state_of(own["worker"]))
        )
        self._links = self._pool.links
        # Not `__del__`: in a circle of garbage, the connections might go first.
        self._at_end = weakref.finalize(self, self._pool.close)
        self._at_end.atexit = False  # at the program's end `multiprocessing` ends them, and waits for none

    @property
    def _workers(self) -> list[Any]:
        """The processes, as PyTorch's iterator names them."""
        return [link.process for link in self._links]

    def _state_of(self, worker: int) -> dict[str, Any] | None:
        """The state that a worker starts from."""
        return None

    def _begin(self) -> None:
        """Nothing sent, nothing received."""
        self._send_idx = self._rcvd_idx = 0
        self._tasks: dict[int, tuple[int, Any]] = {}  # by number: worker, index
        self._arrived: dict[int, Any] = {}
        self._ready: list[int] = []  # what has arrived, in that order; for `in_order=False`
        self._active = [True] * self._num_workers
        self._load = [0] * self._num_workers
        self._turn = 0
        self._exhausted = False

    def _prime(self) -> None:
        for _ in range(self._prefetch * self._num_workers):
            self._try_put_index()

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        super()._reset(loader)
        self._epoch += 1
        self._begin()
        for link in self._links:
            link.send(self._epoch, -1, self._shared_seed, False)
        self._prime()

    # ***** tasks *****

    def _try_put_index(self) -> None:
        if self._exhausted:
            return
        try:
            index = self._next_index()
        except StopIteration:
            self._exhausted = True
            if not self._persistent_workers:
                for link in self._links:
                    link.dismiss()
            return
        worker = self._choose()
        if worker is not None:
            self._tasks[self._send_idx] = (worker, index)
            self._links[worker].send(self._epoch, self._send_idx, index, self._wants_state(self._send_idx))
            self._load[worker] += 1
            self._send_idx += 1

    def _wants_state(self, number: int) -> bool:
        return False

    def _choose(self) -> int | None:
        """The worker whose turn it is."""
        fair = self._prefetch * self._num_workers // max(sum(self._active), 1)
        for _ in range(self._num_workers):
            worker, self._turn = self._turn, (self._turn + 1) % self._num_workers
            if self._active[worker] and (self._in_order or self._load[worker] < fair):
                return worker
        return None

    # ***** results *****

    def _next_data(self) -> Any:
        if self._pool is None:
            raise StopIteration
        while True:
            number = self._next_number()
            if number is not None:
                worker, _ = self._tasks.pop(number)
                self._load[worker] -= 1
                self._try_put_index()
                data, state = self._arrived.pop(number)
                self._yields(number, worker, state)
                if isinstance(data, ExceptionWrapper):
                    data.reraise()
                return data
            self._receive()

    def _yields(self, number: int, worker: int, state: Any) -> None:
        """Called for every result, before it is yielded."""

    def _next_number(self) -> int | None:
        """The task whose result is to be yielded now; None when it has yet to arrive. StopIteration when all is done."""
        if not self._in_order and self._ready:
            return self._ready.pop(0)
        while self._rcvd_idx < self._send_idx:
            task = self._tasks.get(self._rcvd_idx)
            if task is not None and self._rcvd_idx in self._arrived and self._in_order:
                self._rcvd_idx += 1
                return self._rcvd_idx - 1
            if task is not None and self._active[task[0]]:
                return None
            self._tasks.pop(self._rcvd_idx, None)  # of a worker whose stream has ended; or yielded already
            self._rcvd_idx += 1
        if not self._persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _receive(self) -> None:
        """Wait for results and keep them. RuntimeError when a worker died, or when there are none in time."""
        try:
            messages = self._pool.wait(self._timeout or None, self._doing)
        except RuntimeError:
            self._shutdown_workers(at_once=True)
            raise
        if not messages:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        for link, (epoch, number, data, state) in messages:
            if epoch != self._epoch:
                continue  # of a pass that was broken off
            if isinstance(data, StreamEnded):
                self._active[link.worker] = False
                if not self._persistent_workers:
                    link.dismiss()
                self._try_put_index()
                continue
            self._arrived[number] = (data, state)
            if not self._in_order:
                self._ready.append(number)

    def _doing(self, worker: int) -> str:
        """Task of a worker when it died."""
        for number, (of, index) in self._tasks.items():
            if of == worker and number not in self._arrived:
                if self._dataset_kind == _DatasetKind.Iterable:
                    return " while it read its stream"
                text = repr(index)
                return f" while it loaded {text if len(text) < 100 else text[:100] + '...'}"
        return ""

    # ***** the end *****

    def _shutdown_workers(self, at_once: bool = False) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._at_end.detach()
            pool.close(at_once)
