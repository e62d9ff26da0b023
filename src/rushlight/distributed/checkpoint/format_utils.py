"""From a checkpoint to a file of `torch.save`, and back.

`python -m rushlight.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE`, and `torch_to_dcp FILE FOLDER`.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.checkpoint._nested_dict import flatten_state_dict
from rushlight.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner, narrowed
from rushlight.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, fill
from rushlight.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata, TensorProperties, TensorStorageMetadata
from rushlight.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from rushlight.distributed.checkpoint.planner_helpers import _create_chunk_list
from rushlight.distributed.checkpoint.state_dict_loader import _load_state_dict
from rushlight.distributed.checkpoint.state_dict_saver import _save_state_dict
from rushlight.distributed.checkpoint.storage import StorageReader
from rushlight.futures import Future

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of `torch.save` on the coordinator, and sends each tensor to all; with `DynamicMetaLoadPlanner`.

    Example: `dcp.load(state, storage_reader=BroadcastingTorchSaveReader(), planner=DynamicMetaLoadPlanner(),
    checkpoint_id="model.pt")`
    """

    def __init__(self, checkpoint_id: str | os.PathLike[str] | None = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id = checkpoint_id
        self.coordinator_rank = coordinator_rank
        self.is_coordinator = False

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Nothing: the planner makes the metadata from what is to be filled."""
        return Metadata(state_dict_metadata={})

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Every process's plan must want the same tensors in one order."""
        held: dict[str, Any] = {}
        if self.is_coordinator:
            if self.checkpoint_id is None:
                raise AssertionError("checkpoint_id must be set before reading data")
            held, _ = flatten_state_dict(rushlight.load(self.checkpoint_id, map_location="cpu"))
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                raise RuntimeError(
                    f"Non-tensor value identified at {item.storage_index.fqn}. At this time {type(self).__name__} only supports loading Tensors."
                )
            whole = self._sent(held.get(item.storage_index.fqn))
            fill(planner, item, narrowed(whole, item.storage_offsets, item.lengths))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _sent(self, tensor: Tensor | None) -> Tensor:
        """The coordinator's tensor, on every process."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            assert tensor is not None
            return tensor
        about = [None if tensor is None else (tuple(tensor.shape), tensor.dtype)]
        dist.broadcast_object_list(about, self.coordinator_rank)
        assert about[0] is not None
        whole = rushlight.empty(about[0][0], dtype=about[0][1]) if tensor is None else tensor.detach().contiguous()
        dist.broadcast(whole, self.coordinator_rank)
        return whole

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.is_coordinator = is_coordinator
        if is_coordinator and dist.is_initialized() and dist.get_rank() != self.coordinator_rank:
            raise AssertionError(f"the coordinator is rank {dist.get_rank()}, not {self.coordinator_rank}")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.checkpoint_id = checkpoint_id

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Takes the names and shapes from what is to be filled, for storage that has no metadata."""

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        found: dict[str, Any] = {}
        for name, value in self.state_dict.items():
            if not isinstance(value, Tensor):
                raise RuntimeError(
                    f"Non-tensor value identified at {name}. At this time {type(self).__name__} only supports loading Tensors."
                )
            whole = rushlight.empty(value.shape, dtype=value.dtype, device="meta")
            found[name] = TensorStorageMetadata(
                TensorProperties(dtype=value.dtype), value.size(), _create_chunk_list(whole)
            )
        self.metadata = Metadata(state_dict_metadata=found)


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]) -> None:
    """Write all of a checkpoint, ours or PyTorch's, into one file, by this process alone."""
    state: STATE_DICT_TYPE = {}
    _load_state_dict(state, FileSystemReader(dcp_checkpoint_dir), None, 0, True, _EmptyStateDictLoadPlanner())
    rushlight.save(state, os.fspath(torch_save_path))


def torch_save_to_dcp(torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]) -> None:
    """Write what a file of `torch.save` has as a checkpoint, by this process alone.  Nothing in the file is run."""
    state = rushlight.load(os.fspath(torch_save_path))
    _save_state_dict(state, FileSystemWriter(dcp_checkpoint_dir), None, 0, True)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="checkpoints as files of torch.save, and back")
    parser.add_argument("mode", choices=["torch_to_dcp", "dcp_to_torch"])
    parser.add_argument("src")
    parser.add_argument("dst")
    given = parser.parse_args(arguments)
    if not os.path.exists(given.src):
        parser.error(f"there is no {given.src}")
    (torch_save_to_dcp if given.mode == "torch_to_dcp" else dcp_to_torch_save)(given.src, given.dst)


if __name__ == "__main__":
    main()
