"""Messages between the clients of a TCP store and its server: PyTorch's protocol, and requests of our own.

A request is a byte that says which, then its fields: integers of eight bytes (little endian), texts and values as their
length and their bytes. Keys of users begin with "/". The first request is VALIDATE. Nothing is ever unpickled, and every
length has a bound: what exceeds it ends the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

__all__ = [
    "COUNTER", "INIT_KEY", "KEY_PREFIX", "LIMITS", "LONGEST_KEY", "LONGEST_NOTICE", "LONGEST_VALUE", "MAGIC", "MOST_KEYS", "MOST_RANKS", "OURS", "Query",
    "as_integer_field", "as_list", "as_text",
]  # fmt: skip

MAGIC = 0x3C85F7CE
OURS = b"rushlight store 1"
KEY_PREFIX, INIT_KEY = "/", "init/"
LONGEST_KEY, LONGEST_VALUE, MOST_KEYS = 8 << 10, 64 << 20, 128 << 10
LONGEST_NOTICE, MOST_RANKS = 4 << 10, 1 << 20
COUNTER = struct.Struct("<q")
LIMITS = f"keys of {LONGEST_KEY} bytes, values of {LONGEST_VALUE}, {MOST_KEYS} keys at once"


class Query:
    """Kinds of requests: the first nineteen are PyTorch's."""

    (
        VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK, WAIT, COUNT_KEYS, DELETE_KEY, APPEND, MULTI_GET, MULTI_SET, CANCEL_WAIT, PING, QUEUE_PUSH,
        QUEUE_POP, QUEUE_LENGTH, LIST_KEYS, BARRIER,
    ) = range(19)  # fmt: skip
    WHO = 200  # whether the server is ours: answered by `OURS`
    JOIN = 201  # become a rank of a job; afterwards the connection speaks PMI-1
    MISSING = 202  # which ranks of a job have not joined
    WATCH = 203  # be watched, and told of ranks that fail


def as_integer_field(value: int) -> bytes:
    """A 64-bit field."""
    return COUNTER.pack(value)


def as_text(value: bytes) -> bytes:
    """A text or value: its length and its bytes."""
    return COUNTER.pack(len(value)) + value


def as_list(values: Iterable[bytes]) -> bytes:
    """A number of texts, and the texts."""
    parts = [as_text(value) for value in values]
    return COUNTER.pack(len(parts)) + b"".join(parts)
