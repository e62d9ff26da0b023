"""Records of an archive, of which some may be compressed."""

from __future__ import annotations

import zipfile
import zlib
from typing import Any

from rushlight.serialization.archive import ArchiveReader

__all__ = ["ModelArchive"]

_LARGEST = 1 << 28  # bytes of one compressed record, unpacked
_MOST = 1 << 30  # bytes of all of them


class ModelArchive(ArchiveReader):
    """Reads records from a seekable binary file; text and pickles may be compressed by deflate."""

    def __init__(self, file: Any, where: str) -> None:
        self.unpacked = 0
        super().__init__(file, where)

    def _check_directory(self) -> None:
        end = 0
        for info in sorted(self._zip.infolist(), key=lambda i: i.header_offset):
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise RuntimeError(
                    f"{self._where}: record {info.filename!r} is compressed in a way that is not supported"
                )
            if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
                raise RuntimeError(f"{self._where}: record {info.filename!r} has two sizes; the file is damaged")
            if info.flag_bits & 1:
                raise RuntimeError(f"{self._where}: record {info.filename!r} is encrypted, which is not supported")
            if info.header_offset < end or info.header_offset + info.compress_size > self._size:
                raise RuntimeError(
                    f"{self._where}: record {info.filename!r} overlaps another one or the end of the file; the file is damaged"
                )
            end = info.header_offset + 30 + info.compress_size

    def is_packed(self, name: str) -> bool:
        """Whether a record is compressed."""
        return name in self._infos and self._infos[name].compress_type == zipfile.ZIP_DEFLATED

    def locate(self, name: str) -> tuple[int, int]:
        """Where the data of a record begin in the file, and how many bytes they are there."""
        info = self._infos.get(name)
        if info is None or info.compress_type == zipfile.ZIP_STORED:
            return super().locate(name)
        size, info.file_size = info.file_size, info.compress_size
        try:
            return super().locate(name)
        finally:
            info.file_size = size

    def read_into(self, name: str, target: memoryview) -> None:
        """Read the first bytes of a record."""
        if self.is_packed(name):
            target[:] = self.read(name)[: len(target)]
            return
        super().read_into(name, target)

    def read(self, name: str) -> bytes:
        """The bytes of a record, unpacked."""
        if not self.is_packed(name):
            return super().read(name)
        info = self._infos[name]
        self.unpacked += info.file_size
        if info.file_size > _LARGEST or self.unpacked > _MOST:
            raise RuntimeError(
                f"{self._where}: record {name!r} would be {info.file_size} bytes, which is more than is allowed"
            )
        start, size = self.locate(name)
        self._file.seek(start)
        packed = self._file.read(size)
        unpacker = zlib.decompressobj(-15)
        try:
            data = unpacker.decompress(packed, info.file_size + 1)
        except zlib.error as error:
            raise RuntimeError(f"{self._where}: record {name!r} is damaged ({error})") from None
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC and info.CRC:
            raise RuntimeError(f"{self._where}: record {name!r} is damaged (its size or its checksum does not match)")
        return data
