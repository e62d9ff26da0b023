"""Statistics of the caching allocator, under PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rushlight._backends.cuda.native.unit import DeviceUnit

__all__ = ["STATISTICS", "Statistics"]

STATISTICS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
_POOLS = ("all", "small_pool", "large_pool")
# What a chunk that comes or goes changes
_LENT = ("allocation", "active", "allocated_bytes", "active_bytes", "requested_bytes")
_OVERSIZE = ("oversize_allocations", "oversize_segments")


class _Stat:
    """A number with its peak, and all that was ever added and taken off."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        self.current += amount
        if amount > 0:
            self.allocated += amount
            if self.current > self.peak:
                self.peak = self.current
        else:
            self.freed -= amount

    def nested(self) -> dict[str, int]:
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": self.freed}


def _word(place: int) -> Any:
    """A number of a statistic in native memory."""

    def get(self: _NativeStat) -> int:
        found: int = self.words[self.first + place]
        return found

    def put(self: _NativeStat, value: int) -> None:
        self.words[self.first + place] = value

    return property(get, put)


class _NativeStat(_Stat):
    """One that native code counts, too: four words."""

    __slots__ = ("first", "words")

    current, peak, allocated, freed = (_word(place) for place in range(4))

    def __init__(self, words: Any, first: int) -> None:
        self.words, self.first = words, first


class Statistics:
    """The statistics of one device; of what is lent, its native half `unit` counts."""

    def __init__(self, unit: DeviceUnit | None = None) -> None:
        self._unit = unit
        self._stats = {name: (_Stat(), _Stat(), _Stat()) for name in STATISTICS}
        self._oversize = {name: _Stat() for name in _OVERSIZE}
        self.num_alloc_retries = self.num_ooms = self.num_sync_all_streams = 0
        self.num_device_alloc = self.num_device_free = 0
        self.max_split_size = -1
        if unit is None:
            return
        for number, name in enumerate(_LENT):
            first = [20 * pool + 4 * number for pool in (2, 0, 1)]
            self._stats[name] = tuple(_NativeStat(unit.statistics, at) for at in first)  # type: ignore[assignment]

    def lend(self, small: bool, nbytes: int, requested: int) -> None:
        """A chunk is lent."""
        assert self._unit is not None
        self._unit.lend(small, nbytes, requested)

    def take_back(self, small: bool, nbytes: int, requested: int, active: bool) -> None:
        """A chunk is freed; one that streams still use stays `active`."""
        assert self._unit is not None
        self._unit.take_back(small, nbytes, requested, active)

    def add(self, name: str, small: bool, amount: int) -> None:
        """Add to a statistic, of its pool and of all."""
        stats = self._stats[name]
        stats[0].add(amount)
        stats[1 if small else 2].add(amount)

    def add_oversize(self, name: str, amount: int) -> None:
        """Add to the statistics of blocks above `max_split_size_mb`."""
        self._oversize[name].add(amount)

    def current(self, name: str) -> int:
        """The present value of a statistic, of all pools."""
        return self._stats[name][0].current

    def peak(self, name: str) -> int:
        """Its greatest value since the last reset."""
        return self._stats[name][0].peak

    def _all(self) -> list[_Stat]:
        return [s for stats in self._stats.values() for s in stats] + list(self._oversize.values())

    def reset_peaks(self) -> None:
        """Let peaks begin with the present values."""
        for stat in self._all():
            stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """Forget what was added and taken off."""
        for stat in self._all():
            stat.allocated = stat.freed = 0
        self.num_alloc_retries = self.num_ooms = self.num_sync_all_streams = 0
        self.num_device_alloc = self.num_device_free = 0

    def nested(self) -> dict[str, Any]:
        """Everything, as nested dicts."""
        return {
            **{
                name: {pool: stat.nested() for pool, stat in zip(_POOLS, stats, strict=True)}
                for name, stats in self._stats.items()
            },
            **{name: stat.nested() for name, stat in self._oversize.items()},
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "num_sync_all_streams": self.num_sync_all_streams,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            "max_split_size": self.max_split_size,
        }
