"""From files of parts of tensors to files of whole tensors."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.checkpoint._hf_reader import INDEX, SUFFIX, HuggingFaceStorageReader
from rushlight.distributed.checkpoint.metadata import TensorStorageMetadata
from rushlight.distributed.checkpoint.state_dict_loader import _load_state_dict
from rushlight.serialization.replacing import replacing

safetensors: Any = LazyModule("rushlight.serialization.safetensors")

__all__ = ["consolidate_safetensors_files", "consolidate_safetensors_files_on_every_rank"]


def file_name(number: int, last: int, shard: int | None = None) -> str:
    """The name of a file of a checkpoint, or of a rank's part of it.

    >>> file_name(1, 2), file_name(1, 2, 3)
    ('model-00001-of-00002.safetensors', 'shard-00003-model-00001-of-00002.safetensors')
    """
    return f"{'' if shard is None else f'shard-{shard:05d}-'}model-{number:05d}-of-{last:05d}{SUFFIX}"


def write_index(folder: str, places: dict[str, str], total: int) -> None:
    """Write what says which tensor is in which file."""
    held = {"metadata": {"total_size": total}, "weight_map": places}
    with replacing(os.path.join(folder, INDEX)) as out:
        out.write(json.dumps(held, indent=2).encode())


def consolidate_safetensors_files(
    input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int], num_threads: int = 1
) -> None:
    """Make files of whole tensors, and their index, of what `HuggingFaceStorageWriter` wrote with `save_distributed`.

    `fqn_to_index_mapping` says into which file, 1, 2, ..., a tensor goes.  `num_threads` files are made at once; each is
    in memory while it is made.
    """
    last = max(fqn_to_index_mapping.values())
    sizes = _consolidated(input_dir, output_dir, fqn_to_index_mapping, last, num_threads)
    _finish(output_dir, fqn_to_index_mapping, last, sum(sizes.values()))


def consolidate_safetensors_files_on_every_rank(
    input_dir: str,
    output_dir: str,
    fqn_to_index_mapping: dict[str, int],
    num_threads: int = 1,
    process_group: Any = None,
) -> None:
    """`consolidate_safetensors_files`, with the files divided among the ranks of a group."""
    together = dist.is_initialized()
    rank = dist.get_rank(process_group) if together else 0
    size = dist.get_world_size(process_group) if together else 1
    last = max(fqn_to_index_mapping.values())
    mine = {name: number for name, number in fqn_to_index_mapping.items() if number % size == rank}
    made = _consolidated(input_dir, output_dir, mine, last, num_threads)
    sizes: list[Any] = [made] * size
    if together:
        dist.all_gather_object(sizes, made, group=process_group)
    if rank == 0:
        _finish(output_dir, fqn_to_index_mapping, last, sum(n for part in sizes for n in part.values()))
    if together:
        dist.barrier(group=process_group)


def _finish(output_dir: str, numbers: dict[str, int], last: int, total: int) -> None:
    write_index(output_dir, {name: file_name(number, last) for name, number in numbers.items()}, total)


def _consolidated(
    input_dir: str, output_dir: str, numbers: dict[str, int], last: int, num_threads: int
) -> dict[str, int]:
    """Make the files of some tensors; the bytes of each tensor."""
    os.makedirs(output_dir, exist_ok=True)
    held = HuggingFaceStorageReader(input_dir).read_metadata().state_dict_metadata
    absent = sorted(numbers.keys() - held.keys())
    if absent:
        raise ValueError(f"{input_dir} has no {absent[:5]}")

    def make(number: int) -> dict[str, int]:
        names = [name for name in numbers if numbers[name] == number]
        tensors: dict[str, Any] = {}
        for name in names:
            about = held[name]
            assert isinstance(about, TensorStorageMetadata)
            tensors[name] = rushlight.empty(about.size, dtype=about.properties.dtype)
        _load_state_dict(tensors, HuggingFaceStorageReader(input_dir), None, 0, True)
        safetensors.save_file(tensors, os.path.join(output_dir, file_name(number, last)), {"format": "pt"})
        return {name: x.nbytes for name, x in tensors.items()}

    with ThreadPoolExecutor(max(num_threads, 1)) as threads:
        parts = list(threads.map(make, sorted(set(numbers.values()))))
    return {name: n for part in parts for name, n in part.items()}
