"""Checkpoints as folders: files of tensors, and `.metadata`, which says what lies where.

A file is written under another name, put on the disk and moved; `.metadata` comes last and takes the place of the old one
in one step.  The files of an older checkpoint in the same folder go only after that, so a process that is killed at any
time leaves the older checkpoint or the new one, whole.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import LazyModule
from rushlight.distributed.checkpoint._extension import ExtensionRegistry, StaysOpen, StreamTransformExtension
from rushlight.distributed.checkpoint._metadata_file import check_places, dump_metadata, parse_metadata
from rushlight.distributed.checkpoint.default_planner import narrowed
from rushlight.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from rushlight.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from rushlight.distributed.checkpoint.staging import BlockingAsyncStager
from rushlight.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from rushlight.futures import Future

safetensors: Any = LazyModule("rushlight.serialization.safetensors")


__all__ = ["FileSystem", "FileSystemBase", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]

CURRENT_DCP_VERSION = "1.0.0"
_METADATA, _SUFFIX, _UNFINISHED = ".metadata", ".distcp", ".tmp"
# A save over an older checkpoint takes the names that the older one does not have.
_OTHER = "alt_"
_OURS = re.compile(rf"__\d+_({_OTHER})?\d+{re.escape(_SUFFIX)}({re.escape(_UNFINISHED)})?")


@dataclass
class _StorageInfo:
    """Where a thing lies: a file of the checkpoint's folder, from which byte, how many, and what was done to them."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class _StoragePrefix:
    """How the names of a process's files begin."""

    prefix: str


class SerializationFormat(Enum):
    """How a tensor is written: as `torch.save` does, or all tensors of a file in the safetensors format."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


class FileSystemBase(ABC):
    """Operations of a file system for readers and writers."""

    @contextmanager
    @abstractmethod
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[Any, None, None]:
        """An open file for the time of a block."""
        yield

    @abstractmethod
    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str | os.PathLike[str]:
        """A name in a folder."""

    @abstractmethod
    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Move a file; one that is there is replaced."""

    @abstractmethod
    def init_path(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """A path in the file system's own form."""

    @abstractmethod
    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Make a folder, if it is not there."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether a checkpoint may have this name."""

    @abstractmethod
    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Whether a file is there."""

    @abstractmethod
    def rm_file(self, path: str | os.PathLike[str]) -> None:
        """Remove a file."""


class FileSystem(FileSystemBase):
    """The files of this machine."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[Any, None, None]:
        with open(path, mode) as stream:
            yield stream

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str | os.PathLike[str]:
        return Path(path) / suffix

    def init_path(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        return Path(path)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        os.replace(path, new_path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        if isinstance(checkpoint_id, Path):
            return True
        if "://" in str(checkpoint_id):
            return False
        return any(p.exists() and os.access(p, os.W_OK) for p in Path(checkpoint_id).parents)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return Path(path).exists()

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        Path(path).unlink()

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        """The names in a folder."""
        return [str(p) for p in Path(path).iterdir()]


def _put_on_disk(stream: Any) -> None:
    stream.flush()
    try:
        os.fsync(stream.fileno())
    except (AttributeError, io.UnsupportedOperation):
        os.sync()


class _FileSystemWriter(StorageWriter):
    """Writes plans into a folder."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        overwrite: bool = True,
        _extensions: Sequence[StreamTransformExtension] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.fs: Any = FileSystem()
        self.path = self.fs.init_path(path)
        self.single_file_per_rank = single_file_per_rank
        self.sync_files = sync_files
        self.thread_count = thread_count
        self.per_thread_copy_ahead = per_thread_copy_ahead
        self.overwrite = overwrite
        self.extensions = tuple(_extensions or ())
        self.serialization_format = serialization_format
        self.save_id = str(uuid.uuid4())
        self.rank: int | None = None
        self.use_collectives = True

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.fs.mkdir(self.path)
        own = None if self.use_collectives else self.rank
        if self.fs.exists(self._get_metadata_path(None if self.use_collectives else 0)):
            if not self.overwrite:
                raise RuntimeError(f"Checkpoint already exists and {self.overwrite=}.")
            warnings.warn(f"a checkpoint is in {self.path}, and is overwritten: {self.overwrite=}", stacklevel=2)
        if own is not None:
            plan = dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{own}_{self._free_names(own)}"))
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        free = self._free_names(None)
        return [
            plan
            if plan.storage_data is not None
            else dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{number}_{free}"))
            for number, plan in enumerate(plans)
        ]

    def _older(self, rank: int | None) -> set[str]:
        """The files of the checkpoint that is in the folder."""
        path = self._get_metadata_path(rank)
        if not self.fs.exists(path):
            return set()
        try:
            with self.fs.create_stream(path, "rb") as stream:
                held = parse_metadata(stream.read(), str(path), _StorageInfo)
        except OSError:  # it may be whole, and its files must not be written over
            raise
        except Exception:  # what is damaged is no checkpoint
            return set()
        return {place.relative_path for place in held.storage_data.values()}

    def _free_names(self, rank: int | None) -> str:
        """A suffix behind the rank that no name of the older checkpoint has."""
        older = self._older(rank)
        return _OTHER if older and not any(_OTHER in name for name in older) else ""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        parts = _divided(plan.items, self.thread_count) if self.single_file_per_rank else [[i] for i in plan.items]
        names = [f"{plan.storage_data.prefix}{number}{_SUFFIX}" for number in range(len(parts))]
        return self._write_files(planner, zip(names, parts, strict=True))

    def _write_files(
        self, planner: SavePlanner, files: Iterable[tuple[str, list[WriteItem]]]
    ) -> Future[list[WriteResult]]:
        """Write files of items, several at a time where there are threads."""

        def write(file: tuple[str, list[WriteItem]]) -> list[WriteResult]:
            return self._write_file(planner, *file)

        if self.thread_count > 1:
            with ThreadPoolExecutor(self.thread_count) as threads:
                written = list(threads.map(write, files))
        else:
            written = [write(file) for file in files]
        if written:
            self._sync_folder(self.path)
        done: Future[list[WriteResult]] = Future()
        done.set_result([result for results in written for result in results])
        return done

    def _write_file(self, planner: SavePlanner, name: str, items: list[WriteItem]) -> list[WriteResult]:
        path = self.fs.concat_path(self.path, name)
        with self._replacing(path) as stream:
            bytes_first = sorted(items, key=lambda item: item.type != WriteItemType.BYTE_IO)
            if self.serialization_format == SerializationFormat.SAFETENSORS:
                return _write_safetensors(stream, name, bytes_first, planner)
            return [self._write_item(stream, name, item, planner.resolve_data(item)) for item in bytes_first]

    @contextmanager
    def _replacing(self, path: str | os.PathLike[str]) -> Generator[Any, None, None]:
        """A file that has its name only when it is complete."""
        unfinished = f"{path}{_UNFINISHED}"
        with self.fs.create_stream(unfinished, "wb") as stream:
            yield stream
            if self.sync_files:
                _put_on_disk(stream)
        self.fs.rename(unfinished, path)

    def _sync_folder(self, path: str | os.PathLike[str]) -> None:
        """Put the names in a folder on the disk."""
        if not self.sync_files or os.name != "posix" or not os.path.isdir(path):
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _write_item(self, stream: Any, name: str, item: WriteItem, data: Any) -> WriteResult:
        start, out = stream.tell(), stream
        if self.extensions:
            out = StaysOpen(stream)
            for extension in self.extensions:
                out = extension.transform_to(out)
        if item.type == WriteItemType.BYTE_IO:
            out.write(data.getbuffer())
        else:
            rushlight.save(_in_own_memory(data), out)
        if self.extensions:
            out.close()
        descriptors = [extension.get_descriptor() for extension in reversed(self.extensions)]
        size = stream.tell() - start
        return WriteResult(item.index, size, _StorageInfo(name, start, size, descriptors or None))

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {result.index: result.storage_data for part in results for result in part}
        metadata.storage_meta = self.storage_meta()
        own = None if self.use_collectives else self.rank
        older = self._older(own)
        with self._replacing(self._get_metadata_path(own)) as stream:
            stream.write(dump_metadata(metadata))
        self._sync_folder(self.path)
        self._remove_older(older, {place.relative_path for place in metadata.storage_data.values()})

    def _remove_older(self, older: set[str], kept: set[str]) -> None:
        """Remove the files of the checkpoint that was here, and those of saves that were never finished."""
        if self.use_collectives and isinstance(self.fs, FileSystem):
            names = {os.path.basename(path) for path in self.fs.ls(self.path)}
            if not any(re.fullmatch(rf"__\d+{re.escape(_METADATA)}", name) for name in names):
                older = older | {name for name in names if _OURS.fullmatch(name)}
        for name in older - kept:
            path = self.fs.concat_path(self.path, name)
            if self.fs.exists(path):
                self.fs.rm_file(path)

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=str(self.checkpoint_id), save_id=self.save_id)

    def _get_metadata_path(self, rank: int | None = None) -> Any:
        return self.fs.concat_path(self.path, _METADATA if rank is None else f"__{rank}{_METADATA}")

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        """The folder."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def _in_own_memory(tensor: Tensor) -> Tensor:
    """A tensor whose storage holds nothing else."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _divided(items: list[WriteItem], count: int) -> list[list[WriteItem]]:
    """Items for several files: large tensors first, each to the file that has the fewest bytes."""
    if count == 1:
        return [items]
    parts: list[list[WriteItem]] = [[] for _ in range(count)]
    sizes = [0] * count
    for item in sorted(items, key=lambda item: -(item.tensor_storage_size() or 0)):
        place = sizes.index(min(sizes))
        parts[place].append(item)
        sizes[place] += item.tensor_storage_size() or 1
    return [part for part in parts if part]


# What the texts of a safetensors file say of the boxes in it.
SHARDING = "DCP_SHARDING_INFO"
VERSION = "DCP_VERSION"
OFFSETS = "saved_offsets"


def _write_safetensors(stream: Any, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
    """One file of all tensors, each of its own name."""
    if any(item.type == WriteItemType.BYTE_IO for item in items):
        named = [item.index.fqn for item in items if item.type == WriteItemType.BYTE_IO]
        raise ValueError(f"the safetensors format has tensors only, found {named[:5]}")
    data: dict[str, Any] = {item.index.fqn: planner.resolve_data(item) for item in items}
    tensors = {key: _in_own_memory(tensor).contiguous() for key, tensor in data.items()}
    if len(tensors) < len(items):
        raise ValueError(f"{name}: a file in the safetensors format has one part of a tensor")
    boxes = {i.index.fqn: {OFFSETS: list(i.tensor_data.chunk.offsets)} for i in items if i.tensor_data}
    stream.write(safetensors.save(tensors, {SHARDING: json.dumps(boxes), VERSION: "1.0", "format": "pt"}))
    return [
        WriteResult(item.index, size, _StorageInfo(name, 0, size))
        for item in items
        for size in (tensors[item.index.fqn].nbytes,)
    ]


class FileSystemWriter(_FileSystemWriter, BlockingAsyncStager):
    """Writes checkpoints into the folder `path`, at most one at a time.

    `single_file_per_rank=False` writes a file for each item.  `thread_count` files are written at once.  Without
    `sync_files` a checkpoint may be lost when the machine fails.  `overwrite=False` makes a checkpoint that is there
    already a RuntimeError.  `per_thread_copy_ahead` has no effect: tensors are in memory.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Sequence[StreamTransformExtension] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        _FileSystemWriter.__init__(
            self,
            path,
            single_file_per_rank,
            sync_files,
            thread_count,
            per_thread_copy_ahead,
            overwrite,
            _extensions,
            serialization_format,
        )
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)


# ***** reading *****


class _Slice(io.RawIOBase):
    """Some bytes of an open file as a file."""

    def __init__(self, file: Any, start: int, length: int) -> None:
        self._file, self._start, self._length, self._at = file, start, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        if base + offset < 0:
            raise OSError(22, "a place before the beginning")
        self._at = base + offset
        return self._at

    def readinto(self, target: Any) -> int:
        view = memoryview(target)
        room = max(min(len(view), self._length - self._at), 0)
        self._file.seek(self._start + self._at)
        count = self._file.readinto(view[:room])
        self._at += count
        return count


class FileSystemReader(StorageReader):
    """Reads checkpoints from the folder `path`: ours and PyTorch's.  Nothing in them is run.

    `pickle.UnpicklingError` and RuntimeError for what is damaged or refused.
    """

    def __init__(self, path: str | os.PathLike[str], _extension_registry: ExtensionRegistry | None = None) -> None:
        super().__init__()
        self.fs: Any = FileSystem()
        self.path = self.fs.init_path(path)
        self.storage_data: dict[Any, Any] = {}
        self.metadata: Metadata | None = None
        self.load_id = str(uuid.uuid4())
        self.extensions = _extension_registry or ExtensionRegistry()
        self.rank: int | None = None
        self.use_collectives = True

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.storage_data = {}
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    def _get_metadata_path(self, rank: int | None = None) -> Any:
        return self.fs.concat_path(self.path, _METADATA if rank is None else f"__{rank}{_METADATA}")

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = self._get_metadata_path(kwargs.get("rank"))
        with self.fs.create_stream(path, "rb") as stream:
            metadata = parse_metadata(stream.read(), str(path), _StorageInfo)
        if isinstance(self.fs, FileSystem):
            check_places(metadata, self._size_of, str(path))
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def _size_of(self, name: str) -> int | None:
        """The bytes of a file of the folder; links out of it are refused."""
        path, folder = os.path.realpath(os.path.join(self.path, name)), os.path.realpath(self.path)
        if os.path.commonpath([path, folder]) != folder:
            raise RuntimeError(f"{name!r} lies outside of {self.path}")
        try:
            return os.path.getsize(path)
        except FileNotFoundError:
            return None

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if metadata.storage_data is None:
            raise AssertionError("storage_data must not be None in metadata")
        self.metadata = metadata
        self.storage_data = metadata.storage_data
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        files: dict[str, list[tuple[_StorageInfo, ReadItem]]] = {}
        for item in plan.items:
            place = self.storage_data.get(item.storage_index)
            if place is None:
                raise RuntimeError(f"the checkpoint does not say where {item.storage_index} lies")
            files.setdefault(place.relative_path, []).append((place, item))
        for name, wanted in files.items():
            wanted.sort(key=lambda one: one[0].offset)
            with self.fs.create_stream(self.fs.concat_path(self.path, name), "rb") as stream:
                self._read_file(stream, wanted, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read_file(self, stream: Any, wanted: list[tuple[_StorageInfo, ReadItem]], planner: LoadPlanner) -> None:
        """Read each thing once, for all the items that want a part of it."""
        last: _StorageInfo | None = None
        tensor: Any = None
        for place, item in wanted:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(self._open(stream, place).read()))
                continue
            if place is not last:
                tensor, last = self._tensor(stream, place, item.storage_index), place
            fill(planner, item, narrowed(tensor, item.storage_offsets, item.lengths))

    def _open(self, stream: Any, place: _StorageInfo) -> Any:
        """The bytes of a thing, as they were before extensions."""
        found: Any = _Slice(stream, place.offset, place.length)
        for extension in self.extensions.from_descriptor_list(place.transform_descriptors or ()):
            if isinstance(extension, StreamTransformExtension):
                found = extension.transform_from(found)
        return found

    def _tensor(self, stream: Any, place: _StorageInfo, index: MetadataIndex) -> Tensor:
        opened = self._open(stream, place)
        if not isinstance(opened, _Slice):
            opened = io.BytesIO(opened.read())
        found = rushlight.load(opened, map_location="cpu", weights_only=True)
        held = self.metadata.state_dict_metadata.get(index.fqn) if self.metadata is not None else None
        boxes = held.chunks if isinstance(held, TensorStorageMetadata) else []
        sizes = next((box.sizes for box in boxes if box.offsets == index.offset), None)
        if not isinstance(found, Tensor) or (sizes is not None and found.shape != sizes):
            shown = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise RuntimeError(f"{place.relative_path!r} has {shown} for {index.fqn}, the metadata says {sizes}")
        return found

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        """The folder."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def fill(planner: LoadPlanner, item: ReadItem, part: Tensor) -> None:
    """Copy a part of a tensor to where an item wants it."""
    target = planner.resolve_tensor(item).detach()
    if target.size() != part.size():
        raise AssertionError(f"req {item.storage_index} mismatch sizes {target.size()} vs {part.size()}")
    target.copy_(part)
    planner.commit_tensor(item, target)
