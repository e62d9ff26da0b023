"""What a recording writes down: one entry for each call of the backend protocol that reads or writes memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Call", "Check", "Copy", "Draw", "Entry", "Fill", "Read"]


class Call(NamedTuple):
    """An executable was called with `words` (addresses, then numbers); `fresh` are the addresses of its fresh outputs."""

    exe: Any
    words: Sequence[Any]
    fresh: Sequence[int]


class Fill(NamedTuple):
    """Bytes known while recording were put at an address; zeros where `data` is None."""

    address: int
    nbytes: int
    data: bytes | None


class Copy(NamedTuple):
    """Bytes were copied as they are."""

    address: int
    source: int
    nbytes: int


class Draw(NamedTuple):
    """`total` numbers of element type `kind`, of `itemsize` bytes, were drawn by the random kernel `name` with
    `parameters`, from a generator, to an address.  `first` is an earlier draw of the same numbers.
    """

    generator: Any
    name: str
    kind: str
    address: int
    total: int
    parameters: Sequence[Any]
    itemsize: int
    first: Any = None


class Read(NamedTuple):
    """An element was read to be a number of the host: `leaf` says where."""

    leaf: Any


class Check(NamedTuple):
    """The bool at an address must be False: where it is not, the program has no results and changes nothing."""

    address: int


Entry = Check | Call | Fill | Copy | Draw | Read
