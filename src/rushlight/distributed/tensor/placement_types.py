"""How a tensor lies along one axis of a mesh: in parts, whole, or as terms of a reduction."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import absent_class

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """The base of placements."""

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

    __slots__ = ("reduce_op",)

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


_StridedShard = absent_class(
    "torch.distributed.tensor.placement_types._StridedShard", "a dim is cut by one dim of the mesh at a time", (Shard,)
)
