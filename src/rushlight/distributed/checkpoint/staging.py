"""Copies of a state dict for `async_save`, so that training may go on while they are written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import rushlight
from rushlight import Tensor
from rushlight.distributed.checkpoint.metadata import STATE_DICT_TYPE
from rushlight.distributed.tensor import DTensor

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]


def copied(value: Any, into: Any = None) -> Any:
    """A copy of nested dicts, lists and tuples, whose tensors are in memory of their own on the CPU.

    `into` is an older copy, whose tensors are filled where they fit.
    """
    if isinstance(value, DTensor):
        local = copied(value._local_tensor, into._local_tensor if isinstance(into, DTensor) else None)
        return DTensor(local, value.device_mesh, value.placements, value.shape, value.stride())
    if isinstance(value, Tensor):
        fits = type(into) is Tensor and into.shape == value.shape and into.dtype == value.dtype
        return into.copy_(value.detach()) if fits else value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        older = into if isinstance(into, dict) else {}
        return {key: copied(inner, older.get(key)) for key, inner in value.items()}
    if type(value) in (list, tuple):
        held = into if type(into) is type(value) and len(into) == len(value) else [None] * len(value)
        return type(value)(copied(inner, place) for inner, place in zip(value, held, strict=True))
    return value


@runtime_checkable
class AsyncStager(Protocol):
    """Copies a state dict.  `stage` gives the copy, or a future of it; then `synchronize_staging` is called if
    `should_synchronize_after_execute` says so.
    """

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether `async_save` waits for the copy."""
        return self._synchronize_after_execute

    def stage(self, state_dict: STATE_DICT_TYPE) -> Future[STATE_DICT_TYPE] | STATE_DICT_TYPE:
        """A copy of a state dict."""
        raise NotImplementedError(f"{self.__class__.__name__} must implement stage method")

    def synchronize_staging(self) -> None:
        """Wait until the copy is complete."""

    def close(self) -> None:
        """Give back what the stager has."""


class BlockingAsyncStager(AsyncStager):
    """Copies on the caller's thread; with `cache_staged_state_dict` into the memory of the last copy.

    >>> import rushlight as torch
    >>> x = torch.ones(2)
    >>> copy = BlockingAsyncStager().stage({"x": x})
    >>> x.zero_(), copy
    (tensor([0., 0.]), {'x': tensor([1., 1.])})
    """

    _synchronize_after_execute: bool = False

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict = cache_staged_state_dict
        self.type_check = type_check
        self.state_dict_cache: STATE_DICT_TYPE | None = None

    @rushlight.no_grad()
    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        copy = copied(state_dict, self.state_dict_cache)
        if self.cache_staged_state_dict:
            self.state_dict_cache = copy
        return copy

    def synchronize_staging(self) -> None:
        """Nothing: `stage` returns when the copy is made."""

    def close(self) -> None:
        self.state_dict_cache = None


@dataclass
class StagingOptions:
    """How `DefaultStager` copies.  Of these only `use_async_staging` matters between CPUs."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager(AsyncStager):
    """Copies into the memory of the last copy; with `use_async_staging` on a thread of its own, and gives a future.

    The state must not change until the future is done.
    """

    _synchronize_after_execute: bool = True

    def __init__(self, config: StagingOptions | None = None) -> None:
        self._config = config or StagingOptions()
        self._thread = ThreadPoolExecutor(1, "stager") if self._config.use_async_staging else None
        self._last: Future[STATE_DICT_TYPE] | None = None
        self._cache: STATE_DICT_TYPE | None = None

    def stage(self, state_dict: STATE_DICT_TYPE, **kwargs: Any) -> STATE_DICT_TYPE | Future[STATE_DICT_TYPE]:
        if self._thread is None:
            return self._stage(state_dict)
        self._last = self._thread.submit(self._stage, state_dict)
        return self._last

    @rushlight.no_grad()
    def _stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        self._cache = copied(state_dict, self._cache)
        return self._cache

    def synchronize_staging(self) -> None:
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        self._cache = None
