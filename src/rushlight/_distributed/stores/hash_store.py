"""`HashStore`: keys and values in the memory of one process, for its threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from rushlight._distributed.errors import DistStoreError, QueueEmptyError
from rushlight._distributed.stores.store import Store, as_bytes, seconds_of
from rushlight._distributed.stores.table import Table

__all__ = ["HashStore"]


class HashStore(Store):
    """A store in the memory of one process, for its threads.

    >>> import rushlight as torch
    >>> store = torch.distributed.HashStore()
    >>> store.set("key", "value")
    >>> store.get("key"), store.add("count", 2), store.num_keys()
    (b'value', 2, 2)
    """

    __module__ = "torch.distributed"

    def __init__(self) -> None:
        super().__init__()
        self._table = Table()
        self._changed = threading.Condition()

    def _wait_for(self, ready: Callable[[], bool], timeout: timedelta | None = None) -> None:
        """With the lock held: wait until `ready`; DistStoreError after the timeout."""
        seconds = seconds_of(self.timeout if timeout is None else timeout)
        limit = time.monotonic() + seconds
        while not ready():
            left = min(limit - time.monotonic(), 3600.0)
            if left <= 0:
                raise DistStoreError("Wait timeout")
            self._changed.wait(left)

    def set(self, key: str, value: str | bytes, /) -> None:
        with self._changed:
            self._table.values[key] = as_bytes(value)
            self._changed.notify_all()

    def get(self, key: str, /) -> bytes:
        with self._changed:
            self._wait_for(lambda: key in self._table.values)
            return self._table.values[key]

    def add(self, key: str, value: int, /) -> int:
        with self._changed:
            total = self._table.add(key, value)
            self._changed.notify_all()
            return total

    def check(self, keys: Sequence[str], /) -> bool:
        with self._changed:
            return self._table.has(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        with self._changed:
            self._wait_for(lambda: self._table.has(keys), timeout)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes, /) -> bytes:
        with self._changed:
            value = self._table.compare_set(key, as_bytes(expected_value), as_bytes(desired_value))
            self._changed.notify_all()
            return value

    def delete_key(self, key: str, /) -> bool:
        with self._changed:
            return self._table.delete(key)

    def num_keys(self) -> int:
        with self._changed:
            return self._table.count()

    def list_keys(self) -> list[str]:
        with self._changed:
            return self._table.keys()

    def append(self, key: str, value: str | bytes, /) -> None:
        with self._changed:
            self._table.append(key, as_bytes(value))
            self._changed.notify_all()

    def queue_push(self, key: str, value: str | bytes, /) -> None:
        with self._changed:
            self._table.push(key, as_bytes(value))
            self._changed.notify_all()

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        with self._changed:
            if not block and not self._table.queue_length(key):
                raise QueueEmptyError("queue is empty")
            self._wait_for(lambda: self._table.queue_length(key) > 0)
            value = self._table.pop(key)
            assert value is not None
            return value

    def queue_len(self, key: str, /) -> int:
        with self._changed:
            return self._table.queue_length(key)

    def has_extended_api(self) -> bool:
        return True
