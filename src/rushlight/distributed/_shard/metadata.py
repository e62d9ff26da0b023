"""One part of a sharded tensor: where it begins in the whole, its shape, and who has it."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.distributed.remote_device import _remote_device

__all__ = ["ShardMetadata"]


class ShardMetadata:
    """A box of a tensor and its place (a device of a rank, as "rank:1/cpu").

    ValueError for offsets and sizes of different lengths, or negative ones.

    >>> ShardMetadata([0, 2], [4, 2], "rank:1/cpu")
    ShardMetadata(shard_offsets=[0, 2], shard_sizes=[4, 2], placement=rank:1/cpu)
    """

    __slots__ = ["placement", "shard_offsets", "shard_sizes"]

    def __init__(
        self, shard_offsets: list[int], shard_sizes: list[int], placement: str | _remote_device | None = None
    ) -> None:
        self.shard_offsets, self.shard_sizes = shard_offsets, shard_sizes
        self.placement = _remote_device(placement) if isinstance(placement, str) else placement
        if len(shard_offsets) != len(shard_sizes):
            raise ValueError(
                "shard_offsets and shard_sizes should have the same number of elements, found"
                f" {len(shard_offsets)} and {shard_sizes} respectively"
            )
        _check_signs("shard_offsets should be >=0", shard_offsets)
        _check_signs("shard_sizes should be >= 0", shard_sizes)

    def __repr__(self) -> str:
        return (
            f"ShardMetadata(shard_offsets={self.shard_offsets}, shard_sizes={self.shard_sizes},"
            f" placement={self.placement})"
        )

    def _all(self) -> tuple[list[int], list[int], _remote_device | None]:
        return self.shard_offsets, self.shard_sizes, self.placement

    def __eq__(self, other: object) -> bool:
        return self._all() == other._all() if isinstance(other, ShardMetadata) else NotImplemented

    def __hash__(self) -> int:
        return hash((tuple(self.shard_offsets), tuple(self.shard_sizes), self.placement))


def _check_signs(message: str, values: Sequence[int]) -> None:
    if any(value < 0 for value in values):
        raise ValueError(message)
