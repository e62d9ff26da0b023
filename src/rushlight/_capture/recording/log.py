"""Log of a recording: one entry for each call of the backend protocol that reads or writes memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Branch", "Call", "Check", "Collective", "Copy", "Draw", "Entry", "Fill", "Loop", "Move", "Part", "Read"]


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


class Move(NamedTuple):
    """An element of the host was copied to another device; `leaf` says which, `spec` what it becomes at `address`."""

    leaf: Any
    address: int
    spec: Any


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


class Collective(NamedTuple):
    """The primitive `name` was called with row-major memory at `operand`; `result` is where its result lies, row-major.

    Both are (address, spec); `params` are those of the primitive, the number of the group among them.
    """

    name: str
    operand: tuple[int, Any]
    result: tuple[int, Any]
    params: dict[str, Any]


class Part(NamedTuple):
    """A part of control flow: its own log, the addresses and specs of its results, and of the memory that it carries
    in; `own` are the beginnings of the memory that it allocates.
    """

    log: Sequence[Any]
    results: Sequence[tuple[int, Any]]
    own: frozenset[int]


class Branch(NamedTuple):
    """One of two parts ran, by the bool at `condition`; its results are at `fresh`.

    `base` is the entry of the forward that a backward continues: its parts begin with the logs of that one's, whose
    memory is as it was there.
    """

    condition: int
    parts: tuple[Part, Part]
    fresh: Sequence[int]
    base: Any = None


class Loop(NamedTuple):
    """A loop: values carried in at `first` go through the second part as long as the first gives true; results are
    at `fresh`.  `carried` are the addresses and specs of what stands for it in the parts.
    """

    first: Sequence[int]
    carried: Sequence[tuple[int, Any]]
    parts: tuple[Part, Part]
    fresh: Sequence[int]


Entry = Branch | Loop | Check | Collective | Call | Fill | Copy | Draw | Move | Read
