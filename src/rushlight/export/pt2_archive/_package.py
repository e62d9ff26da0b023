"""Archives of exported programs: a zip file with the graph as JSON, tensors as their bytes, and example inputs.

What comes from outside is checked before use: records lie in the file and do not overlap (`ArchiveReader`), a tensor's
sizes and strides lie within its bytes, the graph calls operators alone, and example inputs are read as `torch.load` with
`weights_only` reads them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._export.serde.reading import program_of_json
from rushlight._export.serde.schema import DTYPES, LAYOUTS, SchemaError
from rushlight._export.serde.writing import program_as_json, tensor_meta
from rushlight.export.exported_program import ExportedProgram
from rushlight.export.pt2_archive import constants as names
from rushlight.nn.parameter import Parameter
from rushlight.serialization.archive import ArchiveReader, ArchiveWriter
from rushlight.utils._pytree import tree_map

__all__ = ["PT2ArchiveContents", "is_pt2_package", "load_pt2", "package_pt2"]

_MOST_JSON = 1 << 30  # bytes of a graph


@dataclass
class PT2ArchiveContents:
    """Contents of an archive: programs by name, and further records."""

    exported_programs: dict[str, ExportedProgram] = field(default_factory=dict)
    extra_files: dict[str, Any] = field(default_factory=dict)


# ***** writing *****


def _bytes_of(t: Tensor) -> memoryview:
    plain = t.detach().contiguous().reshape(-1)
    return memoryview(plain.view(rushlight.uint8).numpy()).cast("B") if plain.numel() else memoryview(b"")


def _payloads(archive: ArchiveWriter, values: dict[str, Any], folder: str, prefix: str) -> dict[str, Any]:
    """Write tensors, each once, and say where they are."""
    config: dict[str, Any] = {}
    known: dict[int, str] = {}
    for name, value in values.items():
        if not isinstance(value, Tensor) or value.layout is not rushlight.strided or value.is_quantized:
            raise SchemaError(f"torch.export.save: {name} is no plain tensor")
        path = known.get(id(value))
        if path is None:
            path = known[id(value)] = f"{prefix}{len(known)}"
            archive.record(f"{folder}{path}", _bytes_of(value))
        meta = tensor_meta(value.detach().contiguous()) | {"requires_grad": bool(value.requires_grad)}
        meta["storage_offset"] = {"as_int": 0}
        config[name] = {
            "path_name": path,
            "is_param": isinstance(value, Parameter),
            "use_pickle": False,
            "tensor_meta": meta,
        }
    return {"config": config}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _write(out: Any, root: str, programs: dict[str, ExportedProgram], extra: dict[str, Any], opset: Any) -> None:
    archive = ArchiveWriter(out, root)
    for name, program in programs.items():
        table = program_as_json(program, opset)
        hidden = set(program.graph_signature.non_persistent_buffers)
        state = {k: v for k, v in program.state_dict.items() if k not in hidden}
        weights = _payloads(archive, state, names.WEIGHTS_DIR, _prefix(name, programs, names.WEIGHT_FILENAME_PREFIX))
        archive.record(names.WEIGHTS_CONFIG_FILENAME_FORMAT.format(name), _json(weights))
        prefix = _prefix(name, programs, names.TENSOR_CONSTANT_FILENAME_PREFIX)
        held = _payloads(archive, program.constants, names.CONSTANTS_DIR, prefix)
        archive.record(names.CONSTANTS_CONFIG_FILENAME_FORMAT.format(name), _json(held))
        archive.record(names.MODELS_FILENAME_FORMAT.format(name), _json(table))
        if program.example_inputs is not None:
            buffer = io.BytesIO()
            rushlight.save(
                tree_map(lambda v: v.detach() if isinstance(v, Tensor) else v, program.example_inputs), buffer
            )
            archive.record(names.SAMPLE_INPUTS_FILENAME_FORMAT.format(name), buffer.getvalue())
    for name, value in extra.items():
        archive.record(f"{names.EXTRA_DIR}{name}", value.encode() if isinstance(value, str) else bytes(value))
    archive.record(names.ARCHIVE_FORMAT_PATH, names.ARCHIVE_FORMAT_VALUE.encode())
    archive.record(names.ARCHIVE_VERSION_PATH, names.ARCHIVE_VERSION_VALUE.encode())
    archive.record(".data/version", b"6\n")
    archive.record("byteorder", b"little")
    archive.close()


def _prefix(name: str, programs: dict[str, ExportedProgram], word: str) -> str:
    return word if len(programs) == 1 else f"{name}_{word}"


def package_pt2(
    f: Any,
    *,
    exported_programs: Any = None,
    aoti_files: Any = None,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> Any:
    """Write programs to a file (a path, or what can be written to); a path gets the file when it is whole.

    NotImplementedError for compiled files: packages of `rushlight` hold those.
    """
    if aoti_files:
        raise NotImplementedError("package_pt2: rushlight packs no files of AOTInductor")
    programs = exported_programs if isinstance(exported_programs, dict) else {"model": exported_programs}
    for name, program in programs.items():
        if not isinstance(program, ExportedProgram):
            raise TypeError(
                f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(program).__name__}' instead."
            )
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"{name!r} is no name of a program")
    if hasattr(f, "write"):
        _write(f, "archive", programs, extra_files or {}, opset_version)
        return f
    path = Path(os.fspath(f))
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            _write(out, path.stem, programs, extra_files or {}, opset_version)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return f


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ***** reading *****


class _Archive:
    """Records of one file."""

    def __init__(self, file: Any, where: str) -> None:
        try:
            self.reader = ArchiveReader(file, where)
        except RuntimeError as error:
            raise SchemaError(str(error)) from error
        self.where = where

    def __contains__(self, name: str) -> bool:
        return name in self.reader

    def bytes(self, name: str, most: int | None = None) -> bytearray:
        """A record."""
        try:
            _, size = self.reader.locate(name)
            if most is not None and size > most:
                raise SchemaError(f"{self.where}: the record {name!r} has {size} bytes")
            made = bytearray(size)
            if size:
                self.reader.read_into(name, memoryview(made))
        except RuntimeError as error:
            raise error if isinstance(error, SchemaError) else SchemaError(str(error)) from error
        return made

    def json(self, name: str) -> Any:
        """A record of JSON."""
        try:
            return json.loads(bytes(self.bytes(name, _MOST_JSON)))
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"{self.where}: the record {name!r} is no JSON") from error


def _tensors(archive: _Archive, config: str, folder: str) -> dict[str, Any]:
    if config not in archive:
        return {}
    found: dict[str, Any] = {}
    known: dict[str, Any] = {}
    table = archive.json(config)
    try:
        for name, row in table["config"].items():
            path = row["path_name"]
            if not isinstance(path, str) or "/" in path or path.startswith("."):
                raise SchemaError(f"{archive.where}: {name!r} lies at {str(path)[:80]!r}")
            if row["use_pickle"] or row["tensor_meta"] is None:
                raise SchemaError(f"{archive.where}: {name!r} is a pickled object, which is not read")
            if path not in known:
                known[path] = archive.bytes(f"{folder}{path}")
            found[name] = _tensor(known[path], row, archive.where, name)
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"{archive.where}: the record {config!r} is damaged ({error})") from error
    return found


def _tensor(data: bytearray, row: dict[str, Any], where: str, name: str) -> Any:
    """A tensor over bytes: its sizes and strides must lie in them."""
    meta = row["tensor_meta"]
    dtype = DTYPES.get(meta["dtype"])
    numbers = [n["as_int"] for n in (*meta["sizes"], *meta["strides"], meta["storage_offset"])]
    plain = all(type(n) is int and 0 <= n < 1 << 60 for n in numbers)
    sizes, strides, offset = numbers[: len(meta["sizes"])], numbers[len(meta["sizes"]) : -1], numbers[-1]
    if dtype is None or LAYOUTS.get(meta["layout"]) is not rushlight.strided or not plain or len(sizes) != len(strides):
        raise SchemaError(f"{where}: the description of {name!r} is damaged")
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if all(sizes) else -1
    if (last + 1) * dtype.itemsize > len(data):
        raise SchemaError(f"{where}: {name!r} has {len(data)} bytes, and sizes {sizes} with strides {strides}")
    count = len(data) // dtype.itemsize
    flat = (
        rushlight.frombuffer(data, dtype=rushlight.uint8)[: count * dtype.itemsize].view(dtype)
        if count
        else rushlight.empty(0, dtype=dtype)
    )
    made = flat.as_strided(sizes, strides, offset) if all(sizes) else rushlight.empty(sizes, dtype=dtype)
    wants = meta["requires_grad"] is True and (dtype.is_floating_point or dtype.is_complex)
    return Parameter(made, requires_grad=wants) if row["is_param"] is True else made.requires_grad_(wants)


@contextlib.contextmanager
def _opened(f: Any) -> Iterator[tuple[Any, str]]:
    if hasattr(f, "read") and hasattr(f, "seek"):
        yield f, str(getattr(f, "name", "the file"))
        return
    with open(os.fspath(f), "rb") as file:
        yield file, os.fspath(f)


def is_pt2_package(serialized_model: Any) -> bool:
    """Whether bytes, or a file, are an archive of exported programs."""
    try:
        given = io.BytesIO(serialized_model) if isinstance(serialized_model, (bytes, bytearray)) else serialized_model
        with _opened(given) as (file, where):
            archive = _Archive(file, where)
            return bytes(archive.bytes(names.ARCHIVE_FORMAT_PATH, 16)) == names.ARCHIVE_FORMAT_VALUE.encode()
    except (SchemaError, OSError):
        return False


def load_pt2(
    f: Any,
    *,
    expected_opset_version: dict[str, int] | None = None,
    run_single_threaded: bool = False,
    num_runners: int = 1,
    device_index: int = -1,
    load_weights_from_disk: bool = False,
) -> PT2ArchiveContents:
    """All programs of an archive; SchemaError (a RuntimeError) for a file that is none, or is damaged."""
    with _opened(f) as (file, where):
        archive = _Archive(file, where)
        kind = bytes(archive.bytes(names.ARCHIVE_FORMAT_PATH, 16))
        if kind != names.ARCHIVE_FORMAT_VALUE.encode():
            raise SchemaError(f"{where}: no archive of exported programs ({kind!r})")
        version = bytes(archive.bytes(names.ARCHIVE_VERSION_PATH, 64)).strip()
        if not version.isdigit() or int(version) > int(names.ARCHIVE_VERSION_VALUE):
            raise SchemaError(f"{where}: an archive of the version {version[:20]!r}; 0 is read")
        found = PT2ArchiveContents()
        for record in archive.reader.names():
            if record.startswith(names.MODELS_DIR) and record.endswith(".json"):
                name = record[len(names.MODELS_DIR) : -len(".json")]
                found.exported_programs[name] = _program(archive, name, record)
            elif record.startswith(names.EXTRA_DIR):
                found.extra_files[record[len(names.EXTRA_DIR) :]] = bytes(archive.bytes(record))
        return found


def _program(archive: _Archive, name: str, record: str) -> ExportedProgram:
    table = archive.json(record)
    state = _tensors(archive, names.WEIGHTS_CONFIG_FILENAME_FORMAT.format(name), names.WEIGHTS_DIR)
    constants = _tensors(archive, names.CONSTANTS_CONFIG_FILENAME_FORMAT.format(name), names.CONSTANTS_DIR)
    example, sample = None, names.SAMPLE_INPUTS_FILENAME_FORMAT.format(name)
    if sample in archive:
        try:
            example = rushlight.load(io.BytesIO(bytes(archive.bytes(sample))), weights_only=True)
        except Exception as error:  # whatever the unpickler refuses
            raise SchemaError(f"{archive.where}: the example inputs cannot be read ({error})") from error
        if not isinstance(example, (tuple, list)) or len(example) != 2:
            raise SchemaError(f"{archive.where}: the example inputs are no pair")
        example = tuple(example[0]), dict(example[1])
    return program_of_json(table, state, constants, example)
