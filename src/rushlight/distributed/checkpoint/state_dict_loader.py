"""`load`."""

from __future__ import annotations

import inspect
import os
import warnings
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.checkpoint._older_calls import takes_second
from rushlight.distributed.checkpoint._steps import Steps
from rushlight.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from rushlight.distributed.checkpoint.filesystem import FileSystemReader
from rushlight.distributed.checkpoint.metadata import Metadata
from rushlight.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from rushlight.distributed.checkpoint.state_dict_saver import alone
from rushlight.distributed.checkpoint.stateful import Stateful
from rushlight.distributed.checkpoint.storage import StorageReader

__all__ = ["load", "load_state_dict"]


def reader_for(storage_reader: StorageReader | None, checkpoint_id: str | os.PathLike[str] | None) -> StorageReader:
    """The reader that was given, told of the checkpoint; else one of a folder."""
    if storage_reader is not None:
        if checkpoint_id is not None:
            storage_reader.reset(checkpoint_id)
        return storage_reader
    if not checkpoint_id:
        raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
    if not FileSystemReader.validate_checkpoint_id(checkpoint_id):
        raise RuntimeError(f"Cannot detect which StorageReader or StorageWriter to use for {checkpoint_id}")
    return FileSystemReader(checkpoint_id)


@takes_second("storage_reader")
@trace_marks.changes_later_calls
def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fill a state dict from a checkpoint, whatever number of processes and whatever layout it was saved with.

    Each process reads what it has parts of.  Tensors are filled in place; objects with `load_state_dict` get their
    state; other values are replaced.  All processes of `process_group` (the job) call it.

    `CheckpointException` on all processes where one fails: for a name that the checkpoint lacks, another shape, damaged
    files.  Nothing in a checkpoint is run; see `DefaultLoadPlanner`.

    Example: `dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id="checkpoint")`
    """
    single = alone(no_dist, "load")
    reader = reader_for(storage_reader, checkpoint_id)
    keys = sorted(state_dict) if single else _keys_of_all(state_dict, process_group)
    state = {}
    for key in keys:  # in one order everywhere: `state_dict` may call collectives
        if key in state_dict:
            held = state_dict[key]
            state[key] = held.state_dict() if isinstance(held, Stateful) else held
    _load_state_dict(state, reader, process_group, 0, single, planner)
    for key in keys:
        if key in state_dict:
            held = state_dict[key]
            if isinstance(held, Stateful):
                held.load_state_dict(state[key])
            else:
                state_dict[key] = state[key]


def _keys_of_all(state_dict: dict[str, Any], group: Any) -> list[str]:
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, list(state_dict), group=group)
    return sorted({key for part in parts for key in part})


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """Deprecated: `load`."""
    warnings.warn(
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """The steps of a load: plan, read."""
    steps = Steps(process_group, not no_dist, coordinator_rank)
    planner = planner or DefaultLoadPlanner()

    def plan_here() -> LoadPlan:
        metadata, together = _metadata(storage_reader, steps.rank)
        planner.set_up_planner(state_dict, metadata, steps.is_coordinator)
        if "kwargs" in inspect.signature(storage_reader.set_up_storage_reader).parameters:
            storage_reader.set_up_storage_reader(
                metadata, steps.is_coordinator, rank=steps.rank, use_collectives=together
            )
        else:
            storage_reader.set_up_storage_reader(metadata, steps.is_coordinator)
        return storage_reader.prepare_local_plan(planner.create_local_plan())

    def plan_all(plans: list[LoadPlan]) -> list[LoadPlan]:
        return storage_reader.prepare_global_plan(planner.create_global_plan(plans))

    def read() -> None:
        storage_reader.read_data(planner.finish_plan(plan), planner).wait()

    plan = steps.reduce_scatter("plan", plan_here, plan_all)
    steps.all_gather("read", read)


def _metadata(reader: StorageReader, rank: int) -> tuple[Metadata, bool]:
    """The metadata of all processes; where there is none, that of this process."""
    try:
        return reader.read_metadata(), True
    except FileNotFoundError:
        if "kwargs" not in inspect.signature(reader.read_metadata).parameters:
            raise
        try:
            return reader.read_metadata(rank=rank), False
        except FileNotFoundError:
            pass
        raise


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    process_group: Any = None,
) -> dict[str, Any]:
    """All of a checkpoint, or what `keys` name (whole names, or the first parts of paths), whole on each process."""
    single = alone(False, "load")
    reader = reader_for(storage_reader, checkpoint_id)
    names = {keys} if isinstance(keys, str) else keys
    found: dict[str, Any] = {}
    _load_state_dict(found, reader, process_group, 0, single, _EmptyStateDictLoadPlanner(names or None))
    return found
