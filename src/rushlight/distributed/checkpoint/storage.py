"""Where checkpoints lie: the interface of readers and writers."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from rushlight.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from rushlight.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from rushlight.futures import Future

__all__ = ["StorageReader", "StorageWriter", "WriteResult"]


@dataclass(frozen=True)
class WriteResult:
    """The record of one written item: its key, its bytes, and where it lies in the storage's own words."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(ABC):
    """Writes plans.  In order: `reset`, `set_up_storage_writer` and `prepare_local_plan` on every process,
    `prepare_global_plan` on the coordinator, `write_data` on every process, `finish` on the coordinator.
    """

    @abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new save begins, to `checkpoint_id` if that is given."""

    @abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Say whether this process is the coordinator; with `**kwargs` its `rank` too."""

    @abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Note in this process's plan what the storage needs."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Note in all plans what the storage needs; on the coordinator only."""

    @abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write all items of a plan; `planner.resolve_data` gives each."""

    @abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the metadata; from then on the checkpoint is there.  On the coordinator only."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this storage can hold a checkpoint of this name."""

    def storage_meta(self) -> StorageMeta | None:
        """Which checkpoint and which save this is."""
        return None


class StorageReader(ABC):
    """Reads plans.  In order: `reset`, `read_metadata`, `set_up_storage_reader` and `prepare_local_plan` on every
    process, `prepare_global_plan` on the coordinator, `read_data` on every process.
    """

    @abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new load begins, from `checkpoint_id` if that is given."""

    @abstractmethod
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The metadata of the checkpoint."""

    @abstractmethod
    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Take the metadata; say whether this process is the coordinator; with `**kwargs` its `rank` too."""

    @abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Note in this process's plan what the storage needs."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Note in all plans what the storage needs; on the coordinator only."""

    @abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read all items of a plan into what `planner` gives."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this storage can have a checkpoint of this name."""
