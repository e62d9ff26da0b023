"""Errors between processes: the exceptions of `torch.distributed`, and one that names the rank that failed."""

from __future__ import annotations

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError", "RankFailedError"]


class DistError(RuntimeError):
    """The base of what goes wrong between processes."""

    __module__ = "torch.distributed"


class DistBackendError(DistError):
    """A backend failed."""

    __module__ = "torch.distributed"


class DistNetworkError(DistError):
    """The network failed."""

    __module__ = "torch.distributed"


class DistStoreError(DistError):
    """The store of the processes failed."""

    __module__ = "torch.distributed"


class QueueEmptyError(DistStoreError):
    """A queue of the store holds nothing."""

    __module__ = "torch.distributed"


class RankFailedError(DistBackendError):
    """A rank died, or no longer gives signs of life: `rank` says which (-1: the store process, by which ranks are known)."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank
