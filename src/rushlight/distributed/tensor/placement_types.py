"""How a tensor lies along one axis of a mesh: in parts, whole, or as terms of a reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


_INTERNED: dict[tuple[Any, ...], tuple[Any, ...]] = {}
BY_ID: dict[int, tuple[Any, ...]] = {}  # tuples that `interned` gave, which stay


def interned(placements: tuple[Any, ...]) -> tuple[Any, ...]:
    """The one tuple with these placements: its `id` stands for it."""
    if BY_ID.get(id(placements)) is placements:
        return placements
    found = _INTERNED.setdefault(placements, placements)
    BY_ID[id(found)] = found
    return found


class Placement:
    """The base of placements."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __getstate__(self) -> dict[str, Any]:
        """A dict, as in PyTorch's files."""
        return {name: getattr(self, name) for name in self._fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in self._fields:
            setattr(self, name, state[name])

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the tensor is divided, along `dim` if that is given."""
        return False

    def is_replicate(self) -> bool:
        """Whether every process has the whole tensor."""
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether every process has a term, of this reduction if it is given."""
        return False


class Shard(Placement):
    """Parts along `dim`, as `torch.chunk` divides: process i has part i, the last ones may be smaller or empty.

    >>> Shard(0), str(Shard(1)), Shard(0) == Shard(0)
    (Shard(dim=0), 'S(1)', True)
    """

    __slots__ = ("dim",)
    _fields: ClassVar[tuple[str, ...]] = ("dim",)

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or self.dim == dim

    def __eq__(self, other: object) -> bool:
        return type(other) is Shard and other.dim == self.dim

    def __hash__(self) -> int:
        return hash((Shard, self.dim))

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: Any) -> tuple[int, int]:
        """The size and the first index of part `rank` of `num_chunks` of a dim."""
        step = -(-curr_local_size // num_chunks)
        start = min(step * rank, curr_local_size)
        return min(step * (rank + 1), curr_local_size) - start, start


class Replicate(Placement):
    """The whole tensor on every process."""

    __slots__ = ()

    def is_replicate(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return type(other) is Replicate

    def __hash__(self) -> int:
        return hash(Replicate)

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


class Partial(Placement):
    """A term on every process: reduced by `reduce_op` ("sum", "avg", "product", "max", "min") they are the tensor."""

    LINEAR_REDUCE_OPS: ClassVar[tuple[str, ...]] = ("sum", "avg")
    ALL_REDUCE_OPS: ClassVar[tuple[str, ...]] = (*LINEAR_REDUCE_OPS, "min", "max", "product")
    __slots__ = ("reduce_op",)
    _fields: ClassVar[tuple[str, ...]] = ("reduce_op",)

    def __init__(self, reduce_op: str = "sum") -> None:
        self.reduce_op = reduce_op

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return reduce_op is None or self.reduce_op == reduce_op

    def __eq__(self, other: object) -> bool:
        return type(other) is Partial and other.reduce_op == self.reduce_op

    def __hash__(self) -> int:
        return hash((Partial, self.reduce_op))

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


class _StridedShard(Shard):
    """Parts along `dim` of what axes of the mesh after this one have divided along it before, into `split_factor` parts:
    parameters that tensor parallel divides, and FSDP further.
    """

    __slots__ = ("split_factor",)
    _fields: ClassVar[tuple[str, ...]] = ("dim", "split_factor")

    def __init__(self, dim: int, *, split_factor: int) -> None:
        super().__init__(dim)
        self.split_factor = split_factor

    def __eq__(self, other: object) -> bool:
        return type(other) is _StridedShard and (other.dim, other.split_factor) == (self.dim, self.split_factor)

    def __hash__(self) -> int:
        return hash((_StridedShard, self.dim, self.split_factor))

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


def nesting(placements: Sequence[Placement]) -> list[int]:
    """The axes of a mesh, those that divide first before those that divide their parts."""
    axes = range(len(placements))
    inner = [a for a in axes if type(placements[a]) is _StridedShard]
    return [a for a in axes if a not in inner] + inner if inner else list(axes)


def nested(placements: Sequence[Placement], order: Sequence[int], sizes: Sequence[int]) -> tuple[Placement, ...]:
    """Placements whose axes divide in an order: with strided parts where an axis divides after one that follows it."""
    found: list[Placement] = []
    for axis, here in enumerate(placements):
        if isinstance(here, Shard):
            before = [a for a in order[: order.index(axis)] if a > axis and placements[a].is_shard(here.dim)]
            factor = math.prod(sizes[a] for a in before)
            here = _StridedShard(here.dim, split_factor=factor) if before else Shard(here.dim)
        found.append(here)
    return tuple(found)


def fits(placements: Sequence[Placement], order: Sequence[int]) -> bool:
    """Whether axes that divide one dim do so in an order."""
    own = nesting(placements)
    dims = [p.dim if isinstance(p, Shard) else None for p in placements]
    together = [[a for a in row if dims[a] is not None] for row in (own, order)]
    return all([a for a in together[0] if dims[a] == d] == [a for a in together[1] if dims[a] == d] for d in set(dims))
