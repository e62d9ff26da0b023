"""Checkpoints in Hugging Face's form: files in the safetensors format, and an index that says which tensor is where.

Needs the extra `rushlight[safetensors]`.
"""

from __future__ import annotations

import dataclasses
import os

from rushlight.distributed.checkpoint._consolidate_hf_safetensors import (
    consolidate_safetensors_files,
    file_name,
    write_index,
)
from rushlight.distributed.checkpoint._hf_reader import INDEX, HuggingFaceStorageReader
from rushlight.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
from rushlight.distributed.checkpoint.metadata import Metadata
from rushlight.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from rushlight.distributed.checkpoint.storage import WriteResult
from rushlight.futures import Future

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes tensors as Hugging Face's libraries read them.

    `fqn_to_index_mapping` says which tensor goes into file 1, 2, ...; by default all go into one.  As it is, every tensor
    must be whole, and one rank writes all.  With `save_distributed` each rank writes its parts, into files that
    `HuggingFaceStorageReader` reads; with `enable_consolidation` too these go to `path/sharded`, and whole tensors are
    made of them in `path`.

    Example: `dcp.save(state, storage_writer=HuggingFaceStorageWriter("model", save_distributed=True,
    enable_consolidation=True))`
    """

    def __init__(
        self,
        path: str,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
    ) -> None:
        super().__init__(path, thread_count=thread_count, serialization_format=SerializationFormat.SAFETENSORS)
        self.fqn_to_index_mapping = fqn_to_index_mapping
        self.save_distributed = save_distributed
        self.enable_consolidation = enable_consolidation
        self.thread_count_consolidation = thread_count_consolidation
        self.consolidated_output_path: str | None = None
        if enable_consolidation:
            self.consolidated_output_path = str(self.path)
            self.path = self.fs.concat_path(self.path, "sharded")

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        about = {} if self.fqn_to_index_mapping is None else {"fqn_to_index_mapping": self.fqn_to_index_mapping}
        if not self.save_distributed and sum(bool(plan.items) for plan in plans) > 1:
            raise ValueError(
                "several ranks have something to write: `save_distributed=True` gives each its own files, and "
                "`DefaultSavePlanner(dedup_save_to_lowest_rank=True)` lets rank 0 write what all have"
            )
        return [
            dataclasses.replace(plan, storage_data={**about, "shard_index": number} if self.save_distributed else about)
            for number, plan in enumerate(plans, 1)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        places = plan.storage_data.get("fqn_to_index_mapping")
        last = max(places.values()) if places else 1
        files: dict[str, list[WriteItem]] = {}
        for item in plan.items:
            number = places[item.index.fqn] if places else 1
            files.setdefault(file_name(number, last, plan.storage_data.get("shard_index")), []).append(item)
        return self._write_files(planner, files.items())

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        if not self.save_distributed:
            written = [result for part in results for result in part]
            places = {result.index.fqn: result.storage_data.relative_path for result in written}
            if len(places) < len(written):
                raise ValueError("parts of a tensor were written: `save_distributed=True` keeps them apart")
            write_index(os.fspath(self.path), places, sum(result.size_in_bytes for result in written))
        elif self.consolidated_output_path is not None:
            numbers = self.fqn_to_index_mapping or dict.fromkeys(metadata.state_dict_metadata, 1)
            consolidate_safetensors_files(
                os.fspath(self.path), self.consolidated_output_path, numbers, self.thread_count_consolidation
            )

    @property
    def metadata_path(self) -> str:
        """The name of the index."""
        return INDEX
