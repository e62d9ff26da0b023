"""`HashStore`: keys and values in the memory of one process, for its threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from rushlight._distributed.errors import DistStoreError, QueueEmptyError
from rushlight._distributed.stores.store import Store, as_bytes, as_integer, seconds_of

__all__ = ["HashStore", "Table"]


class Table:
    """Keys, values and queues: what a store does to them, without waiting or locks."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, deque[bytes]] = {}

    def add(self, key: str, amount: int) -> int:
        """The counter after adding; ValueError for a value that is no number."""
        total = as_integer(self.values.get(key, b"0")) + amount
        self.values[key] = b"%d" % total
        return total

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """The value afterwards; of a key that is not set and was expected to be, what was expected, as in PyTorch."""
        if key not in self.values:
            if expected:
                return expected
            self.values[key] = desired
        elif self.values[key] == expected:
            self.values[key] = desired
        return self.values[key]

    def has(self, keys: Sequence[str]) -> bool:
        """Whether all keys have a value, or a queue that is not empty."""
        return all(key in self.values or key in self.queues for key in keys)

    def delete(self, key: str) -> bool:
        """Whether there was a value or a queue to forget."""
        value, queue = self.values.pop(key, None), self.queues.pop(key, None)
        return value is not None or queue is not None

    def append(self, key: str, value: bytes) -> None:
        """Put a value behind another."""
        self.values[key] = self.values.get(key, b"") + value

    def push(self, key: str, value: bytes) -> None:
        """Put a value at the end of a queue."""
        self.queues.setdefault(key, deque()).append(value)

    def pop(self, key: str) -> bytes | None:
        """The first value of a queue; an empty queue is forgotten."""
        queue = self.queues.get(key)
        if queue is None:
            return None
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        return value

    def queue_length(self, key: str) -> int:
        """How many values a queue holds."""
        return len(self.queues.get(key, ()))

    def count(self) -> int:
        """How many values there are; an unfinished queue counts as one."""
        return len(self.values) + len(self.queues)

    def keys(self) -> list[str]:
        """The keys of values."""
        return list(self.values)


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
