"""Which streams of a worker are meant."""

from __future__ import annotations

from enum import IntFlag

__all__ = ["Std", "to_map"]


class Std(IntFlag):
    """Streams of a worker: output, error stream, both or none."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """One for all workers ("3"), or by local rank ("0:1,1:3"); ValueError for another text."""
        try:
            if ":" not in vm:
                return cls(int(vm))
            pairs = (pair.split(":") for pair in vm.split(","))
            return {int(rank): cls(int(bits)) for rank, bits in pairs}
        except ValueError:
            raise ValueError(f"{vm!r} names no streams: write a number from 0 to 3, or 0:1,1:3") from None


def to_map(val_or_map: Std | dict[int, Std], local_world_size: int) -> dict[int, Std]:
    """The streams of every worker."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}
