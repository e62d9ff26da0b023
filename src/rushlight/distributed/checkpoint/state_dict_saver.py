"""`save` and `async_save`."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.checkpoint._async_process import in_pieces, process_for
from rushlight.distributed.checkpoint._older_calls import takes_second
from rushlight.distributed.checkpoint._steps import Steps
from rushlight.distributed.checkpoint.default_planner import DefaultSavePlanner
from rushlight.distributed.checkpoint.filesystem import FileSystemWriter
from rushlight.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata
from rushlight.distributed.checkpoint.planner import SavePlan, SavePlanner
from rushlight.distributed.checkpoint.staging import AsyncStager, BlockingAsyncStager
from rushlight.distributed.checkpoint.stateful import Stateful
from rushlight.distributed.checkpoint.storage import StorageWriter

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    """Where `async_save` writes: on a thread of this process, or in a process of its own."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """Futures of the copy of the state and of the checkpoint: from the first on the state may change."""

    staging_completion: Future[None]
    upload_completion: Future[Any]


def alone(no_dist: bool, doing: str) -> bool:
    """Whether this process saves or loads by itself; warns where that is because there is no job."""
    if no_dist or dist.is_initialized():
        return no_dist
    warnings.warn(
        f"torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to {doing} in a single process.",
        stacklevel=3,
    )
    return True


def writer_for(storage_writer: StorageWriter | None, checkpoint_id: str | os.PathLike[str] | None) -> StorageWriter:
    """The writer that was given, told of the checkpoint; else one of a folder."""
    if storage_writer is not None:
        if checkpoint_id is not None:
            storage_writer.reset(checkpoint_id)
        return storage_writer
    if not checkpoint_id:
        raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
    if not FileSystemWriter.validate_checkpoint_id(checkpoint_id):
        raise RuntimeError(f"Cannot detect which StorageReader or StorageWriter to use for {checkpoint_id}")
    return FileSystemWriter(checkpoint_id, single_file_per_rank=True, sync_files=True)


@takes_second("storage_writer")
@trace_marks.changes_later_calls
def save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Save a state dict that the processes of a job have together: each writes its parts, and each thing is written once.

    Values may be tensors of any kind, dicts and lists of them, objects with `state_dict` and `load_state_dict`, and
    whatever `torch.save` writes.  `checkpoint_id` is a folder; `storage_writer` and `planner` decide otherwise.  All
    processes of `process_group` (the job) call it.  With `use_collectives=False` each process writes a checkpoint of
    its own parts, which only a job of the same processes can load.

    The checkpoint is there when `save` returns.  `CheckpointException` on all processes where one fails; the folder's
    older checkpoint is then as it was.

    >>> import rushlight as torch, tempfile, rushlight.distributed.checkpoint as dcp
    >>> folder = tempfile.mkdtemp()
    >>> done = dcp.save({"w": torch.ones(2, 3), "epoch": 4}, checkpoint_id=folder, no_dist=True)
    >>> state = {"w": torch.zeros(2, 3), "epoch": 0}
    >>> dcp.load(state, checkpoint_id=folder, no_dist=True)
    >>> state["w"].sum(), state["epoch"]
    (tensor(6.), 4)
    """
    single = alone(no_dist, "save")
    writer = writer_for(storage_writer, checkpoint_id)
    return _save_state_dict(
        _stateful_to_state_dict(state_dict), writer, process_group, 0, single, planner, use_collectives
    )


def save_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """Deprecated: `save`."""
    warnings.warn(
        "`save_state_dict` is deprecated and will be removed in future versions.Please use `save` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_writer.reset()
    return _save_state_dict(state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner)


def _stateful_to_state_dict(state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
    return {key: held.state_dict() if isinstance(held, Stateful) else held for key, held in state_dict.items()}


def _save_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
    use_collectives: bool = True,
) -> Metadata:
    """The steps of a save: plan, write, finish."""
    steps = Steps(process_group, not no_dist, coordinator_rank)
    planner = planner or DefaultSavePlanner()
    metadata: Metadata | None = None

    def plan_here() -> SavePlan:
        _set_up(planner, storage_writer, state_dict, steps, use_collectives)
        return storage_writer.prepare_local_plan(planner.create_local_plan())

    def plan_all(plans: list[SavePlan]) -> list[SavePlan]:
        nonlocal metadata
        plans, metadata = planner.create_global_plan(plans)
        return storage_writer.prepare_global_plan(plans)

    def write() -> list[Any]:
        results = storage_writer.write_data(planner.finish_plan(plan), planner)
        return results.wait()

    def finish(results: list[Any]) -> Metadata:
        assert metadata is not None
        storage_writer.finish(metadata, results)
        return metadata

    if use_collectives:
        plan = steps.reduce_scatter("plan", plan_here, plan_all)
        return steps.all_reduce("write", write, finish)
    plan = plan_all([plan_here()])[0]
    made = finish([write()])
    steps.barrier()
    return made


def _set_up(
    planner: SavePlanner, writer: StorageWriter, state_dict: STATE_DICT_TYPE, steps: Steps, use_collectives: bool
) -> None:
    meta = writer.storage_meta()
    if "storage_meta" in inspect.signature(planner.set_up_planner).parameters:
        planner.set_up_planner(state_dict=state_dict, storage_meta=meta, is_coordinator=steps.is_coordinator)
    else:
        warnings.warn(
            "The function definition for SavePlanner.set_up_planner has been updated to include the storage_meta argument. "
            "Please update your implementation to include this parameter.",
            stacklevel=2,
        )
        planner.set_up_planner(state_dict, steps.is_coordinator)  # type: ignore[arg-type]
    if "kwargs" in inspect.signature(writer.set_up_storage_writer).parameters:
        writer.set_up_storage_writer(steps.is_coordinator, rank=steps.rank, use_collectives=use_collectives)
    else:
        writer.set_up_storage_writer(steps.is_coordinator)


# ***** beside the training *****

_apart: list[tuple[Any, Any]] = []  # the job's group, and one of the same processes for saves beside the training


def _group_apart() -> Any:
    """A group of all processes whose collectives do not get between those of the training."""
    world = dist.group.WORLD
    if not _apart or _apart[0][0] is not world:
        _apart[:] = [(world, dist.new_group())]
    return _apart[0][1]


def async_save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: AsyncStager | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Any] | AsyncSaveResponse:
    """`save` beside the training: the state is copied, and the copy written by another thread, or by a process of its own,
    which takes no turns of this one's interpreter lock.  Such a process stays for the next save; it starts as those of
    `multiprocessing` do, and needs the program's main part below `if __name__ == "__main__"`.

    A future of the metadata; where `async_stager` copies later too, an `AsyncSaveResponse` of two futures.  Wait for the
    future before the next save.  All processes of the job call it; without a `process_group` one is made once for such
    saves, so that their collectives and those of the training do not get in each other's way.

    >>> import rushlight as torch, tempfile, rushlight.distributed.checkpoint as dcp
    >>> weights = torch.ones(2)
    >>> future = dcp.async_save({"w": weights}, checkpoint_id=tempfile.mkdtemp(), no_dist=True)
    >>> weights.zero_()
    tensor([0., 0.])
    >>> future.result().state_dict_metadata["w"].size
    torch.Size([2])
    """
    single = no_dist or not dist.is_initialized()
    group = process_group if single or process_group is not None else _group_apart()
    own = async_stager is None and not isinstance(storage_writer, AsyncStager)
    stager: Any = async_stager or (BlockingAsyncStager() if own else storage_writer)
    staged = stager.stage(_stateful_to_state_dict(state_dict))

    def request() -> tuple[Any, ...]:
        state = staged.result() if isinstance(staged, Future) else staged
        return state, writer_for(storage_writer, checkpoint_id), planner, use_collectives

    if async_checkpointer_type == AsyncCheckpointerType.PROCESS:
        written = process_for(group, single, _save_there).submit(lambda: (in_pieces(request()[0]), *request()[1:]))
    else:
        written = _on_a_thread(request, group, single)
    if own:
        written.add_done_callback(lambda _: stager.close())
    if not isinstance(staged, Future):
        if stager.should_synchronize_after_execute:
            stager.synchronize_staging()
        return written
    complete: Future[None] = Future()
    staged.add_done_callback(lambda done: _pass_on(done, complete))
    return AsyncSaveResponse(complete, written)


def _on_a_thread(request: Callable[[], tuple[Any, ...]], group: Any, single: bool) -> Future[Any]:
    thread = ThreadPoolExecutor(1, "checkpoint")

    def write() -> Metadata:
        state, writer, planner, use_collectives = request()
        return _save_state_dict(state, writer, group, 0, single, planner, use_collectives)

    written = thread.submit(write)
    written.add_done_callback(lambda _: thread.shutdown(wait=False))
    return written


def _save_there(state: Any, writer: StorageWriter, planner: Any, use_collectives: bool, single: bool) -> Metadata:
    """Save a state in the process that saves: its job is that of the group."""
    return _save_state_dict(state, writer, None, 0, single, planner, use_collectives)


def _pass_on(done: Future[Any], to: Future[None]) -> None:
    error = done.exception()
    if error is None:
        to.set_result(None)
    else:
        to.set_exception(error)
