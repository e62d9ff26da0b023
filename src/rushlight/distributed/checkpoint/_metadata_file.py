"""`.metadata` files: pickles that PyTorch reads, read here without running anything.

The reader knows the metadata's classes, dtypes and sizes, and nothing else.  What it made is then looked through: names,
numbers and places must be such that reading the checkpoint stays in its folder and asks for no more memory than the
folder has bytes.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pickle import UnpicklingError
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributed.checkpoint import metadata as md
from rushlight.distributed.checkpoint.resharding import check_boxes
from rushlight.serialization.rebuild import get_layout
from rushlight.serialization.saving import pickled
from rushlight.serialization.unpickler import SafeUnpickler

__all__ = ["check_places", "dump_metadata", "parse_metadata"]

_PAGE = "torch.distributed.checkpoint"
_OLDER_PAGE = "torch.distributed._shard.sharded_tensor.metadata"  # of properties, up to PyTorch 2.2


# ***** writing *****


def dump_metadata(metadata: md.Metadata) -> bytes:
    """The bytes of a `.metadata` file."""
    once = _Once()
    return pickled(
        replace(
            metadata,
            state_dict_metadata={name: once.stored(held) for name, held in metadata.state_dict_metadata.items()},
            storage_data={
                md.MetadataIndex(key.fqn, key.offset and once(key.offset), key.index): place
                for key, place in metadata.storage_data.items()
            },
        )
    )


class _Once:
    """One object for all that are equal: a pickle then writes it once."""

    def __init__(self) -> None:
        self._held: dict[Any, Any] = {}

    def __call__(self, value: Any) -> Any:
        return self._held.setdefault(value, value)

    def stored(self, held: md.STORAGE_TYPES) -> md.STORAGE_TYPES:
        """A thing with its parts replaced."""
        if isinstance(held, md.BytesStorageMetadata):
            return self._held.setdefault(md.BytesStorageMetadata, held)
        properties = self._held.setdefault(held.properties.__getstate__(), held.properties)
        boxes = [md.ChunkStorageMetadata(self(box.offsets), self(box.sizes)) for box in held.chunks]
        return md.TensorStorageMetadata(properties, self(held.size), boxes)


# ***** reading *****


def parse_metadata(data: bytes, where: str, place: type) -> md.Metadata:
    """The metadata in the bytes of a `.metadata` file, where `place` says where a thing lies.

    `pickle.UnpicklingError` for what is none, or not harmless.
    """
    try:
        return _Checked(place).metadata(_Unpickler(data, place).load())
    except (AttributeError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise UnpicklingError(f"{where}: no metadata of a checkpoint: {type(error).__name__}: {error}") from None


def _no_storage(pid: Any) -> Any:
    raise UnpicklingError("metadata refers to no storages")


def _path(*parts: Any) -> str:
    if not all(isinstance(part, str) for part in parts):
        raise UnpicklingError("a path is made of texts")
    return str(pathlib.PurePath(*parts))


def _memory_format(value: Any) -> Any:
    return md._MEM_FORMAT_ENCODING(value)


def _attribute(owner: Any, name: Any) -> Any:
    """Some versions of Python pickle members of enums as `getattr(class, name)`."""
    if owner is not _memory_format or not isinstance(name, str) or name not in md._MEM_FORMAT_ENCODING.__members__:
        raise UnpicklingError("refused to take an attribute")
    return md._MEM_FORMAT_ENCODING[name]


_CLASSES: dict[str, Any] = {
    **{
        f"{_PAGE}.metadata.{cls.__name__}": cls
        for cls in (
            md.BytesStorageMetadata,
            md.ChunkStorageMetadata,
            md.Metadata,
            md.MetadataIndex,
            md.StorageMeta,
            md.TensorProperties,
            md.TensorStorageMetadata,
        )
    }
}
_CLASSES[f"{_OLDER_PAGE}.TensorProperties"] = md.TensorProperties
_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path", "PurePath")
_CALLED: dict[str, Callable[..., Any]] = {
    f"{_PAGE}.metadata._MEM_FORMAT_ENCODING": _memory_format,
    f"{_OLDER_PAGE}.MEM_FORMAT_ENCODING": _memory_format,
    "builtins.getattr": _attribute,
    "torch.serialization._get_layout": get_layout,
    **{f"{module}.{name}": _path for module in ("pathlib", "pathlib._local") for name in _PATHS},
}


class _Unpickler(SafeUnpickler):
    """Knows the names that metadata has."""

    def __init__(self, data: bytes, place: type) -> None:
        super().__init__(data, _no_storage)
        plain = ("torch.Size", "collections.OrderedDict", "_codecs.encode")
        kept = {name: self._always[name] for name in plain}
        kept.update({name: kind for name, kind in self._always.items() if isinstance(kind, rushlight.dtype)})
        self._always = {**kept, **_CALLED}
        self._by_user = {**self._by_user, **_CLASSES, f"{_PAGE}.filesystem.{place.__name__}": place}


_MOST, _LONGEST_PATH = 1 << 60, 1000


def _whole(value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(f"{what} is no such number: {value!r:.80}")
    return value


def _text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{what} is a text, found {type(value).__name__}")
    return value


class _Checked:
    """Makes metadata anew from what a file said, field by field."""

    def __init__(self, place: type) -> None:
        self.place = place

    def metadata(self, held: Any) -> md.Metadata:
        """All of it."""
        self._is(held, md.Metadata)
        fields = vars(held)
        known = fields["state_dict_metadata"] if "state_dict_metadata" in fields else {}
        self._is(known, dict)
        found = {_text(name, "a name"): self._stored(name, value) for name, value in known.items()}
        return md.Metadata(
            found,
            self._paths(fields.get("planner_data"), found),
            self._places(fields.get("storage_data")),
            self._storage_meta(fields.get("storage_meta")),
            fields.get("version") if isinstance(fields.get("version"), str) else None,
        )

    def _is(self, value: Any, kind: type) -> None:
        if type(value) is not kind:
            raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")

    def _size(self, value: Any) -> Size:
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"expected a size, found {type(value).__name__}")
        return Size([_whole(n, "a size") for n in value])

    def _stored(self, name: str, value: Any) -> md.STORAGE_TYPES:
        if type(value) is md.BytesStorageMetadata:
            return md.BytesStorageMetadata()
        self._is(value, md.TensorStorageMetadata)
        size, boxes = self._size(value.size), []
        self._is(value.chunks, list)
        for chunk in value.chunks:
            self._is(chunk, md.ChunkStorageMetadata)
            boxes.append(md.ChunkStorageMetadata(self._size(chunk.offsets), self._size(chunk.sizes)))
            if len(boxes[-1].offsets) != len(size) or len(boxes[-1].sizes) != len(size):
                raise ValueError(f"{name}: a chunk has another number of dims than the tensor")
        for error in check_boxes(name, size, boxes, whole=False):
            raise ValueError(error)
        return md.TensorStorageMetadata(self._properties(value.properties), size, boxes)

    def _properties(self, value: Any) -> md.TensorProperties:
        self._is(value, md.TensorProperties)
        made = md.TensorProperties(dtype=value.dtype, layout=value.layout, memory_format=value.memory_format)
        if not isinstance(made.dtype, rushlight.dtype) or not isinstance(made.layout, rushlight.layout):
            raise ValueError("properties of a tensor have a dtype and a layout")
        made.requires_grad, made.pin_memory = value.requires_grad is True, value.pin_memory is True
        return made

    def _paths(self, value: Any, names: dict[str, Any]) -> Any:
        """Planner data: by the default planner the path of each name; lists are no longer than there are names."""
        for name, path in value.items() if isinstance(value, dict) else ():
            if name not in names:  # a planner of one's own may note what it likes
                continue
            if not isinstance(path, tuple) or not path or len(path) > _LONGEST_PATH:
                raise ValueError(f"a path of a name is a tuple, found {path!r:.80}")
            for part in path:
                if type(part) is not str and not (type(part) is int and 0 <= part < max(len(names), 1)):
                    raise ValueError(f"a path has texts and numbers, found {part!r:.80}")
            if type(path[0]) is not str:
                raise ValueError("a path begins with a text")
        return value

    def _places(self, value: Any) -> Any:
        """Storage data: where each thing lies."""
        if not isinstance(value, dict):
            raise ValueError("there is no storage data")
        return {self._index(key): self._place(place) for key, place in value.items()}

    def _index(self, value: Any) -> md.MetadataIndex:
        self._is(value, md.MetadataIndex)
        offset = vars(value).get("offset")
        hint = vars(value).get("index")
        return md.MetadataIndex(
            _text(value.fqn, "a name"),
            None if offset is None else self._size(offset),
            None if hint is None else _whole(hint, "a place"),
        )

    def _place(self, value: Any) -> Any:
        self._is(value, self.place)
        path = _text(value.relative_path, "a file")
        parts = path.replace("\\", "/").split("/")
        if not path or "\0" in path or ":" in parts[0] or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"a file must lie in the folder of the checkpoint, found {path!r:.80}")
        done = value.transform_descriptors
        return self.place(
            path,
            _whole(value.offset, "an offset"),
            _whole(value.length, "a length"),
            None if done is None else [_text(one, "a descriptor") for one in done],
        )

    def _storage_meta(self, value: Any) -> md.StorageMeta | None:
        if value is None:
            return None
        self._is(value, md.StorageMeta)
        texts = {
            name: held if isinstance(held := vars(value).get(name), str) else None
            for name in ("checkpoint_id", "save_id", "load_id")
        }
        modules = vars(value).get("modules")
        return md.StorageMeta(**texts, modules=[m for m in modules or () if isinstance(m, str)])


def check_places(metadata: md.Metadata, size_of: Callable[[str], int | None], where: str) -> None:
    """RuntimeError for things that lie behind the ends of their files, over each other, or in fewer bytes than they need.

    `size_of` gives the bytes of a file; None for one that is not here, of which nothing is known.
    """
    needed = {
        md.MetadataIndex(name, box.offsets): box.sizes.numel() * held.properties.dtype.itemsize
        for name, held in metadata.state_dict_metadata.items()
        if isinstance(held, md.TensorStorageMetadata)
        for box in held.chunks
    }
    spans: dict[str, list[tuple[int, int]]] = {}
    for key, place in metadata.storage_data.items():
        spans.setdefault(place.relative_path, []).append((place.offset, place.offset + place.length))
        if place.transform_descriptors is None and needed.get(key, 0) > place.length:
            raise RuntimeError(
                f"{where}: {key.fqn!r} needs {needed[key]} bytes, and the checkpoint has {place.length} of it"
            )
    for path, held in spans.items():
        size = size_of(path)
        if size is not None:
            _check_spans(path, sorted(held), size, where)


def _check_spans(path: str, spans: Iterable[tuple[int, int]], size: int, where: str) -> None:
    last = 0
    for start, stop in spans:
        if start < last or stop > size:
            raise RuntimeError(f"{where}: things overlap in {path!r}, or lie behind its end; the checkpoint is damaged")
        last = stop
