"""`torch.distributed.elastic.multiprocessing`: where the output of workers goes.

>>> from rushlight.distributed.elastic.multiprocessing import Std
>>> Std.from_str("0:1,1:3")
{0: <Std.OUT: 1>, 1: <Std.ALL: 3>}
"""

from __future__ import annotations

from enum import IntFlag

from rushlight._distributed.launch.agent import SignalException as SignalException
from rushlight._distributed.launch.failures import ProcessFailure as ProcessFailure
from rushlight._interface.base import lazy_files

__all__ = ["DefaultLogsSpecs", "LogsSpecs", "ProcessFailure", "SignalException", "Std", "to_map"]

__getattr__ = lazy_files(__name__, {}, ("api", "errors"))


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


class LogsSpecs:
    """Where output goes: the folder, what is written to files (`redirects`), what is shown as well (`tee`), and of which
    workers anything is shown.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        self._root_log_dir, self._redirects, self._tee, self._local_ranks_filter = (
            log_dir,
            redirects,
            tee,
            local_ranks_filter,
        )

    @property
    def root_log_dir(self) -> str | None:
        """The folder."""
        return self._root_log_dir


class DefaultLogsSpecs(LogsSpecs):
    """A folder for each attempt, and in it for each worker: `stdout.log`, `stderr.log`, `error.json`."""

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, tee={self._tee}, "
            f"local_ranks_filter={self._local_ranks_filter})"
        )
