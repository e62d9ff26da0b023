"""`Store`: what every key-value store of processes can do, derived from four methods of a store of one's own."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rushlight._distributed.errors import DistStoreError

__all__ = ["DEFAULT_TIMEOUT", "Store", "as_bytes", "seconds_of"]

DEFAULT_TIMEOUT = timedelta(seconds=300)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


def as_bytes(value: str | bytes) -> bytes:
    """A value as the store keeps it; TypeError for anything but text and bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a store holds str or bytes, not {type(value).__name__}")


def seconds_of(timeout: timedelta | float | None) -> float:
    """A time limit in seconds; None and negative ones mean: forever."""
    if timeout is None:
        return math.inf
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    return math.inf if seconds < 0 else seconds


class Store:
    """The base of key-value stores that processes share.

    A store of one's own defines `set`, `get`, `add` and `check`, and what else it can do; `wait` and the operations over
    many keys follow from these. Keys are text; values are text or bytes when set, and bytes when got.

    >>> class Ours(Store):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.values = {}
    ...
    ...     def set(self, key, value):
    ...         self.values[key] = value
    ...
    ...     def get(self, key):
    ...         return self.values[key]
    >>> store = Ours()
    >>> store.multi_set(["a", "b"], [b"1", b"2"])
    >>> store.multi_get(["a", "b"])
    [b'1', b'2']
    """

    __module__ = "torch.distributed"

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    def _refuse(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"Not implemented. {type(self).__name__} has no {name}()")

    @property
    def timeout(self) -> timedelta:
        """How long operations wait for a key."""
        return self._timeout

    def set_timeout(self, timeout: timedelta, /) -> None:
        """Wait so long for a key from now on."""
        if not isinstance(timeout, timedelta):
            raise TypeError(f"set_timeout() takes a datetime.timedelta, not {type(timeout).__name__}")
        self._timeout = timeout

    # ***** what a store of one's own defines *****

    def set(self, key: str, value: str | bytes, /) -> None:
        """Let `key` have this value."""
        raise self._refuse("set")

    def get(self, key: str, /) -> bytes:
        """The value of `key`; waits until it is set, DistStoreError after the timeout."""
        raise self._refuse("get")

    def add(self, key: str, value: int, /) -> int:
        """Add to the counter `key` (0 if it is new); returns what it is then."""
        raise self._refuse("add")

    def check(self, keys: Sequence[str], /) -> bool:
        """Whether all keys are set."""
        raise self._refuse("check")

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes, /) -> bytes:
        """Set `key` if its value is the expected one (empty: if it is not set); returns the value it has then."""
        raise self._refuse("compare_set")

    def delete_key(self, key: str, /) -> bool:
        """Forget `key`; returns whether it was set."""
        raise self._refuse("delete_key")

    def num_keys(self) -> int:
        """How many keys there are."""
        raise self._refuse("num_keys")

    def list_keys(self) -> list[str]:
        """All keys, in no order."""
        raise self._refuse("list_keys")

    def append(self, key: str, value: str | bytes, /) -> None:
        """Put `value` behind the value of `key`; of a store of one's own, by `compare_set` if it has that."""
        if type(self).compare_set is Store.compare_set:
            raise self._refuse("append")
        more, before = as_bytes(value), b""
        while True:
            after = before + more
            found = self.compare_set(key, before, after)
            if found == after:
                return
            before = found

    def queue_push(self, key: str, value: str | bytes, /) -> None:
        """Put a value at the end of the queue `key`."""
        raise self._refuse("queue_push")

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of the queue `key`; waits for one, or raises QueueEmptyError with `block=False`."""
        raise self._refuse("queue_pop")

    def queue_len(self, key: str, /) -> int:
        """How many values the queue `key` holds."""
        raise self._refuse("queue_len")

    # ***** what follows *****

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        """Wait until all keys are set; DistStoreError after `timeout`, else the store's own."""
        limit = time.monotonic() + seconds_of(self.timeout if timeout is None else timeout)
        pause = _FIRST_PAUSE
        while not self.check(keys):
            if time.monotonic() >= limit:
                raise DistStoreError(f"wait timeout, keys: {', '.join(keys)}")
            time.sleep(min(pause, max(limit - time.monotonic(), 0)))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def multi_get(self, keys: Sequence[str], /) -> list[bytes]:
        """The values of several keys; waits for all of them."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes], /) -> None:
        """Set several keys; ValueError unless there are as many values."""
        if len(keys) != len(values):
            raise ValueError(f"multi_set() got {len(keys)} keys and {len(values)} values")
        for key, value in zip(keys, values):
            self.set(key, value)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Wait until `world_size` callers have called it with this key."""
        done = f"{key}/done"
        if self.add(f"{key}/count", 1) == world_size:
            self.set(done, b"1")
        self.wait([done], *([] if timeout is None else [timeout]))

    def has_extended_api(self) -> bool:
        """Whether the store has `append`, `multi_get` and `multi_set` of its own."""
        return False

    def clone(self) -> Any:
        """The same store for another thread."""
        return self
