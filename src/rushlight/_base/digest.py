"""Digests that name compiled code in the cache.

BLAKE2b, from the module that implements it: importing `hashlib` starts OpenSSL, which takes longer than all the hashing
at a program's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b
else:
    try:
        from _blake2 import blake2b
    except ImportError:  # not CPython
        from hashlib import blake2b

__all__ = ["DIGEST_BYTES", "digest", "hasher"]

DIGEST_BYTES = 32


def hasher(start: bytes = b"") -> blake2b:
    """An object with `update(bytes)` and `digest()`."""
    return blake2b(start, digest_size=DIGEST_BYTES)


def digest(data: bytes) -> bytes:
    """The digest of some bytes.

    >>> len(digest(b"text"))
    32
    """
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
