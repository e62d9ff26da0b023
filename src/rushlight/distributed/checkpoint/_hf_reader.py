"""Reading checkpoints in Hugging Face's form."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rushlight import Size, Tensor
from rushlight._interface.base import LazyModule
from rushlight.distributed.checkpoint.filesystem import OFFSETS, SHARDING, FileSystemReader, fill
from rushlight.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from rushlight.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from rushlight.distributed.checkpoint.resharding import check_boxes
from rushlight.futures import Future

safetensors: Any = LazyModule("rushlight.serialization.safetensors")

__all__ = ["INDEX", "SUFFIX", "HuggingFaceStorageReader", "files_of", "spans"]

INDEX, SUFFIX = "model.safetensors.index.json", ".safetensors"


@dataclass
class _Place:
    """Where a box lies."""

    relative_path: str
    shape: Size
    dtype: Any


class HuggingFaceStorageReader(FileSystemReader):
    """Reads folders of safetensors files: with an index the files that it names, else all of them.

    Example: `dcp.load(model.state_dict(), storage_reader=HuggingFaceStorageReader("model"))`
    """

    def __init__(self, path: str, thread_count: int = 1) -> None:
        super().__init__(path)
        self.thread_count = thread_count

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        found: dict[str, TensorStorageMetadata] = {}
        places: dict[MetadataIndex, _Place] = {}
        for name in files_of(os.fspath(self.path)):
            with safetensors.safe_open(os.path.join(self.path, name), device="meta") as file:
                boxes = _boxes((file.metadata() or {}).get(SHARDING), name)
                for key in file.keys():
                    tensor = file.get_tensor(key)
                    self._add(found, places, key, _Place(name, Size(tensor.shape), tensor.dtype), boxes)
        for key, held in found.items():
            for error in check_boxes(key, held.size, held.chunks, whole=True):
                raise RuntimeError(f"{self.path}: {error}")
        return Metadata(dict(found), storage_data=places, storage_meta=StorageMeta(load_id=self.load_id))

    def _add(
        self,
        found: dict[str, TensorStorageMetadata],
        places: dict[MetadataIndex, _Place],
        key: str,
        place: _Place,
        boxes: dict[str, list[int]] | None,
    ) -> None:
        offset = [0] * len(place.shape) if boxes is None else boxes.get(key, [0] * len(place.shape))
        index = MetadataIndex(key, offset)
        if len(offset) != len(place.shape) or index in places:
            raise RuntimeError(f"{place.relative_path}: {key!r} is twice in the folder, or its place fits it not")
        places[index] = place
        held = found.setdefault(key, TensorStorageMetadata(TensorProperties(dtype=place.dtype), place.shape, []))
        held.chunks.append(ChunkStorageMetadata(Size(offset), place.shape))
        ends = [o + n for o, n in zip(offset, place.shape, strict=True)]
        held.size = Size([max(a, b) for a, b in zip(held.size, ends, strict=True)])

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        files: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            files.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)

        def read(one: tuple[str, list[ReadItem]]) -> None:
            with safetensors.safe_open(os.path.join(self.path, one[0])) as file:
                for item in one[1]:
                    fill(planner, item, self._part(file, item))

        if self.thread_count > 1 and len(files) > 1:
            with ThreadPoolExecutor(self.thread_count) as threads:
                list(threads.map(read, files.items()))
        else:
            for one in files.items():
                read(one)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _part(self, file: Any, item: ReadItem) -> Tensor:
        """The part of a tensor of an open file that an item asks for."""
        return file.get_tensor(item.storage_index.fqn)[spans(item)]


def spans(item: ReadItem) -> tuple[slice, ...]:
    """An item's box as an index."""
    return tuple(slice(o, o + n) for o, n in zip(item.storage_offsets, item.lengths, strict=True))


def files_of(folder: str) -> list[str]:
    """The safetensors files of a checkpoint.  ValueError for an index that names a file elsewhere."""
    index = os.path.join(folder, INDEX)
    if not os.path.exists(index):
        return sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    with open(index, encoding="utf-8") as file:
        held = json.load(file)
    names = held.get("weight_map") if isinstance(held, dict) else None
    if not isinstance(names, dict):
        raise ValueError(f"{index}: expected an index with a 'weight_map'")
    for name in names.values():
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            raise ValueError(f"{index}: a file must lie in the same folder, found {name!r}")
    return sorted(set(names.values()))


def _boxes(text: str | None, name: str) -> dict[str, list[int]] | None:
    """Where the tensors of a file begin in their wholes, from the text beside them."""
    if not text:
        return None
    held: Any = json.loads(text)
    found: dict[str, list[int]] = {}
    for key, about in held.items() if isinstance(held, dict) else ():
        offset: Any = about.get(OFFSETS) if isinstance(about, dict) else None
        if not isinstance(offset, Sequence) or not all(type(o) is int and o >= 0 for o in offset):
            raise RuntimeError(f"{name}: no place of {key!r} in its whole: {about!r:.80}")
        found[key] = list(offset)
    return found
