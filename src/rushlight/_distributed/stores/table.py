"""Contents of a store: keys, values and queues of one process, without waiting or locks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["Table", "as_integer"]


def as_integer(value: bytes) -> int:
    """A counter's value; ValueError for what is no number."""
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"add() needs a key that holds a number, and this one holds {value[:40]!r}") from None


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
