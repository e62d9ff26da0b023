"""Steps from folders to files to their contents."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rushlight.utils.data.datapipes.datapipe import IterDataPipe
from rushlight.utils.data.datapipes.decorators import functional_datapipe

__all__ = ["FileListerIterDataPipe", "FileOpenerIterDataPipe", "StreamReaderIterDataPipe"]


def _files(folder: str, masks: Any, recursive: bool, abspath: bool) -> Iterator[str]:
    patterns = [masks] if isinstance(masks, str) else list(masks)
    for path, folders, files in os.walk(folder):
        if abspath:
            path = os.path.abspath(path)
        if not recursive:
            folders.clear()
        folders.sort()
        for name in sorted(files):
            if not any(patterns) or any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                yield os.path.join(path, name)


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe[str]):
    """The paths of the files in folders, sorted; `masks` are patterns such as "*.txt"."""

    def __init__(
        self,
        root: Any = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        self.datapipe: Iterable[str] = [os.fspath(root)] if isinstance(root, (str, os.PathLike)) else root
        self.masks = masks
        self.recursive = recursive
        self.abspath = abspath
        self.non_deterministic = non_deterministic
        self.length = length

    def __iter__(self) -> Iterator[str]:
        for folder in self.datapipe:
            yield from _files(os.fspath(folder), self.masks, self.recursive, self.abspath)

    def __len__(self) -> int:
        return _said(self, self.length)


def _said(pipe: Any, length: int) -> int:
    if length == -1:
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length")
    return length


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(IterDataPipe[Any]):
    """Pairs of a path and its open file; whoever reads it closes it."""

    def __init__(self, datapipe: Iterable[str], mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe = datapipe
        self.mode = mode if mode.startswith("r") else f"r{mode}"
        self.encoding = encoding
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        for path in self.datapipe:
            yield path, open(path, self.mode, encoding=self.encoding)

    def __len__(self) -> int:
        return _said(self, self.length)


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe[Any]):
    """Pairs of a path and what its file holds, in pieces of `chunk` bytes or at once; files are closed after it."""

    def __init__(self, datapipe: Sequence[Any] | IterDataPipe[Any], chunk: int | None = None) -> None:
        self.datapipe = datapipe
        self.chunk = chunk

    def __iter__(self) -> Iterator[Any]:
        for path, stream in self.datapipe:
            with stream:
                if self.chunk is None:
                    yield path, stream.read()
                    continue
                while piece := stream.read(self.chunk):
                    yield path, piece
