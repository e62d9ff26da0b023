"""Files of ONNX: parsed, and the data outside of them read from their folder and nowhere else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from rushlight.onnx.importing.errors import InvalidModelError
from rushlight.onnx.importing.values import byte_count, check_dims, from_proto, onnx

__all__ = ["Initializers", "read_model"]


def read_model(source: Any) -> tuple[Any, Path | None]:
    """The ModelProto of a path, of bytes, or itself; and the folder that data outside of the file lies in."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return _parsed(path.read_bytes(), str(path)), path.parent
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parsed(bytes(source), "the model"), None
    if isinstance(source, onnx.ModelProto):
        return source, None
    raise TypeError(f"a model is a path, bytes or a ModelProto, not {type(source).__name__}")


def _parsed(data: bytes, what: str) -> Any:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf has its own classes, which differ by implementation
        raise InvalidModelError(f"{what} is no ONNX model: {error}") from error
    if not model.HasField("graph"):
        raise InvalidModelError(f"{what} has no graph")
    return model


class Initializers:
    """Reads TensorProtos whose data may lie in files beside the model."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def value(self, proto: Any) -> Any:
        """The value of an initializer."""
        if proto.data_location != onnx.TensorProto.EXTERNAL:
            return from_proto(proto)
        copy = onnx.TensorProto(name=proto.name, data_type=proto.data_type, dims=proto.dims)
        copy.raw_data = self._outside(proto)
        return from_proto(copy)

    def _outside(self, proto: Any) -> bytes:
        what = f"tensor {proto.name!r}"
        entries = {entry.key: entry.value for entry in proto.external_data}
        size = byte_count(proto.data_type, check_dims(proto, what))
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries.get("length", str(size)))
        except ValueError as error:
            raise InvalidModelError(f"{what} has an offset or a length that is no number") from error
        if length != size:
            raise InvalidModelError(f"{what} needs {size} bytes, and its file is said to have {length}")
        path = self._inside(entries.get("location", ""), what)
        # Opened without following a link, and without waiting for the other end of a pipe.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidModelError(f"the data of {what} cannot be read: {error}") from error
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidModelError(f"the data of {what} lies in no ordinary file")
            if offset < 0 or offset + length > status.st_size:
                raise InvalidModelError(f"the data of {what} ends outside of its file of {status.st_size} bytes")
            file.seek(offset)
            return file.read(length)

    def _inside(self, location: str, what: str) -> Path:
        if self.folder is None:
            raise InvalidModelError(f"the data of {what} lies in a file, and the model was not read from a folder")
        parts = Path(location).parts
        if not location or "\0" in location or Path(location).is_absolute() or ".." in parts or "\\" in location:
            raise InvalidModelError(f"the data of {what} lies in {location!r}, outside of the model's folder")
        folder = self.folder.resolve()
        path = folder.joinpath(location)
        if folder not in path.parent.resolve().joinpath(path.name).parents:
            raise InvalidModelError(f"the data of {what} lies in {location!r}, outside of the model's folder")
        return path
