"""Extensions: what is done to the bytes of a checkpoint when they are written, and undone when they are read."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from rushlight._interface.base import LazyModule

__all__ = ["Extension", "ExtensionRegistry", "StreamTransformExtension", "ZStandard"]

zstandard: Any = LazyModule("zstandard")


class Extension(ABC):
    """Something that is noted in a checkpoint by its descriptor, `name/version`, and found again by it."""

    @staticmethod
    @abstractmethod
    def registry_name() -> str:
        """The name before the version."""

    @staticmethod
    @abstractmethod
    def from_descriptor(version: str) -> Extension:
        """The extension of a version.  ValueError for one that is not known."""

    @abstractmethod
    def get_descriptor(self) -> str:
        """Name and version."""


class StreamTransformExtension(Extension):
    """Something that is done to a stream of bytes: compression, encryption."""

    @abstractmethod
    def transform_to(self, output: Any) -> Any:
        """A stream to write to, of which `output` gets what was made of it."""

    @abstractmethod
    def transform_from(self, input: Any) -> Any:
        """A stream to read from, of what `input` was made of."""


class ZStandard(StreamTransformExtension):
    """Compression by the package `zstandard`."""

    def __init__(self) -> None:
        if not self.is_available():
            raise ValueError("ZStandard extension is unavailable because no module named 'zstandard'")

    @staticmethod
    def is_available() -> bool:
        """Whether the package is here."""
        return find_spec("zstandard") is not None

    @staticmethod
    def registry_name() -> str:
        return "stream.zstd"

    @staticmethod
    def from_descriptor(version: str) -> ZStandard:
        if version.partition(".")[0] != "1":
            raise ValueError(f"Unknown extension {version=}")
        return ZStandard()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: Any) -> Any:
        return zstandard.ZstdCompressor().stream_writer(output)

    def transform_from(self, input: Any) -> Any:
        return zstandard.ZstdDecompressor().stream_reader(input)


class ExtensionRegistry:
    """Extensions by their names."""

    def __init__(self) -> None:
        self.extensions: dict[str, type[Extension]] = {ZStandard.registry_name(): ZStandard}

    def register(self, cls: type[Extension]) -> None:
        """Know a class of extensions."""
        self.extensions[cls.registry_name()] = cls

    def from_descriptor_list(self, descriptors: Sequence[str]) -> Sequence[Extension]:
        """The extensions of descriptors.  ValueError for one that is not known."""
        found = []
        for descriptor in descriptors:
            name, _, version = descriptor.partition("/")
            if name not in self.extensions:
                raise ValueError(f"Unknown extension {name=}")
            found.append(self.extensions[name].from_descriptor(version or "0"))
        return found


class StaysOpen(io.RawIOBase):
    """A stream whose end does not end the one below it."""

    def __init__(self, below: Any) -> None:
        self._below = below

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._below.write(data)

    def close(self) -> None:
        if not self.closed:
            self._below.flush()
            super().close()
