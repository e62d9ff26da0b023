"""Zip archives as PyTorch writes them: records stored uncompressed, their data aligned to 64 bytes, nothing else.

The writer streams: it needs `write` and nothing more. The reader takes the directory from `zipfile`, and checks what
that does not: records must be stored as they are, must not overlap, and must lie inside the file, so a small file
cannot ask for much memory.
"""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

from rushlight import get_num_threads
from rushlight._interface.files import crc32, joined

__all__ = ["ArchiveReader", "ArchiveWriter"]

ALIGNMENT = 64
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
# What stands for "see the wider field", and from which numbers on it does.
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_FROM16, _FROM32 = _MAX16, _MAX32
_UTF8_NAMES, _SUM_BEHIND = 0x800, 0x8
_CHUNK, _BESIDE = 1 << 20, 1 << 24
_HALVED = 1 << 21  # bytes from which on two threads read a record: copying from the system's cache is work for a core
_DATE_1980 = 0x21  # the first day that the format can express: equal contents give equal files


def _narrow(n: int) -> int:
    return n if n < _FROM32 else _MAX32


class ArchiveWriter:
    """Writes records one after the other to `out`, then the directory.  Without `checksums` every record gets 0 for
    one.
    """

    def __init__(self, out: Any, name: str, alignment: int = ALIGNMENT, checksums: bool = True) -> None:
        self._out = out
        self._name = name
        self._at = 0
        self._alignment = alignment
        self._checksums = checksums
        self._records: list[tuple[bytes, int, int, int, int]] = []

    def _write(self, data: Any) -> None:
        self._out.write(data)
        self._at += len(data)

    def record(self, name: str, data: Any) -> None:
        """Write one record; `data` is bytes-like, one byte an element."""
        size = len(data)
        if size <= _CHUNK:
            crc = crc32(data) if self._checksums else 0
            flags, start, full = self._header(name, size, crc)
            self._write(data)
        else:
            # The checksum of a large record comes behind it, so that every chunk is looked at while it is in the
            # caches.
            flags, start, full = self._header(name, size, None)
            crc = self._chunks(memoryview(data))
            sizes = struct.pack("<2Q" if size >= _FROM32 else "<2L", size, size)
            self._write(b"PK\x07\x08" + struct.pack("<L", crc) + sizes)
        self._records.append((full, crc, size, start, flags))

    def room(self, name: str, size: int) -> None:
        """Write a record of zeros, to be filled later."""
        flags, start, full = self._header(name, size, 0)
        empty = bytes(min(size, _CHUNK))
        for at in range(0, size, _CHUNK):
            self._write(empty[: size - at])
        self._records.append((full, 0, size, start, flags))

    def _chunks(self, data: memoryview) -> int:
        """Write large data and say their checksum."""
        found = [0]
        beside = None
        if self._checksums and len(data) >= _BESIDE:  # adding up and writing take about as long: both at once
            beside = threading.Thread(target=lambda: found.__setitem__(0, crc32(data)), name="checksum")
            beside.start()
        try:
            for at in range(0, len(data), _CHUNK):
                chunk = data[at : at + _CHUNK]
                if self._checksums and beside is None:
                    found[0] = crc32(chunk, found[0])
                self._out.write(chunk)
        finally:
            if beside is not None:
                beside.join()
        self._at += len(data)
        return found[0]

    def _header(self, name: str, size: int, crc: int | None) -> tuple[int, int, bytes]:
        """Write what comes before the data; with `crc` None, the checksum will come behind them."""
        full, start = f"{self._name}/{name}".encode(), self._at
        wide = size >= _FROM32
        extra = struct.pack("<2H2Q", 1, 16, size, size) if wide else b""
        # Filler in front of the data, in an extra field of its own ("FB"), puts the data on the boundary.
        bare = start + _LOCAL.size + len(full) + len(extra) + 4
        filler = -bare % self._alignment
        extra += struct.pack("<2sH", b"FB", filler) + b"Z" * filler
        flags = _UTF8_NAMES | (0 if crc is not None else _SUM_BEHIND)
        short = _MAX32 if wide else size
        version = 45 if wide else 20
        self._write(
            _LOCAL.pack(b"PK\x03\x04", version, flags, 0, 0, _DATE_1980, crc or 0, short, short, len(full), len(extra))
        )
        self._write(full + extra)
        return flags, start, full

    @property
    def digests(self) -> list[tuple[str, int]]:
        """Name and checksum of every record so far."""
        return [(name.decode().split("/", 1)[1], crc) for name, crc, *_ in self._records]

    def close(self) -> None:
        """Write the directory."""
        start = self._at
        for name, crc, size, offset, flags in self._records:
            wide = [n for n in (size, size, offset) if n >= _FROM32]
            extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
            version = 45 if wide else 20
            short = _narrow(size)
            fields = (b"PK\x01\x02", version, version, flags, 0, 0, _DATE_1980, crc, short, short)
            self._write(_CENTRAL.pack(*fields, len(name), len(extra), 0, 0, 0, 0, _narrow(offset)))
            self._write(name + extra)
        end, count = self._at, len(self._records)
        if count >= _FROM16 or start >= _FROM32 or end - start >= _FROM32:
            self._write(_END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, end - start, start))
            self._write(_LOCATOR64.pack(b"PK\x06\x07", 0, end, 1))
        short_count = count if count < _FROM16 else _MAX16
        self._write(_END.pack(b"PK\x05\x06", 0, 0, short_count, short_count, _narrow(end - start), _narrow(start), 0))


class ArchiveReader:
    """Reads records from a seekable binary file."""

    def __init__(self, file: Any, where: str) -> None:
        self._file = file
        # Only of these is it known that what they read is what lies in the file of their number.
        plain = (
            type(file) in (io.BufferedReader, io.BufferedRandom)
            and type(file.raw) is io.FileIO
            and hasattr(os, "preadv")
        )
        self._descriptor: int | None = file.fileno() if plain else None
        self._where = where
        file.seek(0, 2)
        self._size = file.tell()
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise RuntimeError(
                f"{where}: failed reading zip archive ({error}). The file is truncated or not a checkpoint."
            ) from None
        except (OSError, MemoryError) as error:
            raise RuntimeError(f"{where}: failed reading zip archive ({error!r}). The directory is damaged.") from None
        self._infos: dict[str, zipfile.ZipInfo] = {}
        for info in self._zip.infolist():
            # Every name starts with the archive's own name, which may be anything.
            name = info.filename.split("/", 1)[-1]
            if name in self._infos:
                raise RuntimeError(f"{where}: there are two records {name!r}; the file is damaged")
            self._infos[name] = info
        self._check_directory()

    def _check_directory(self) -> None:
        end = 0
        for info in sorted(self._zip.infolist(), key=lambda i: i.header_offset):
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise RuntimeError(f"{self._where}: record {info.filename!r} is compressed, which is not supported")
            if info.flag_bits & 1:
                raise RuntimeError(f"{self._where}: record {info.filename!r} is encrypted, which is not supported")
            if info.header_offset < end or info.header_offset + info.file_size > self._size:
                raise RuntimeError(
                    f"{self._where}: record {info.filename!r} overlaps another one or the end of the file; "
                    "the file is damaged"
                )
            end = info.header_offset + _LOCAL.size + info.file_size

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def names(self) -> list[str]:
        """The names of the records, without the archive's own name."""
        return list(self._infos)

    def locate(self, name: str) -> tuple[int, int]:
        """Where the data of a record begin in the file, and how many bytes they are."""
        info = self._infos.get(name)
        if info is None:
            raise RuntimeError(f"{self._where}: there is no record {name!r}; the file is damaged")
        self._file.seek(info.header_offset)
        header = self._file.read(_LOCAL.size)
        if len(header) != _LOCAL.size or header[:4] != b"PK\x03\x04":
            raise RuntimeError(f"{self._where}: the header of record {name!r} is damaged")
        name_length, extra_length = _LOCAL.unpack(header)[-2:]
        start = info.header_offset + _LOCAL.size + name_length + extra_length
        if start + info.file_size > self._size:
            raise RuntimeError(f"{self._where}: record {name!r} ends behind the end of the file; the file is truncated")
        return start, info.file_size

    def read_into(self, name: str, target: memoryview) -> None:
        """Read the first bytes of a record into `target`, checking the checksum of the whole record.

        Where it does not match, the numbers of a tensor are a warning, anything else an error.
        """
        start, size = self.locate(name)
        expected = self._infos[name].CRC
        wanted = len(target)
        if wanted >= _HALVED and self._descriptor is not None and get_num_threads() > 1:
            crc = self._read_halves(name, start, target)
        else:
            crc = self._read_part(name, start, target, self._fill)
        if wanted < size and expected:
            self._file.seek(start + wanted)
            crc = crc32(self._file.read(size - wanted), crc)
        if crc == expected:
            return
        if not name.startswith("data/"):
            raise RuntimeError(f"{self._where}: record {name!r} is damaged (its checksum does not match)")
        # Tensors of a file that is mapped with MAP_SHARED may be changed in place, and nobody renews the checksum.
        warnings.warn(
            f"{self._where}: the checksum of record {name!r} does not match: its numbers were changed after the file was written, or the file is "
            "damaged",
            UserWarning,
            stacklevel=2,
        )

    def _read_halves(self, name: str, start: int, target: memoryview) -> int:
        """`_read_part` by two threads at once."""
        half = len(target) // 2
        found: list[int | BaseException] = []

        def read() -> None:
            try:
                found.append(self._read_part(name, start + half, target[half:], self._fill_at))
            except BaseException as error:  # for the caller's thread
                found.append(error)

        beside = threading.Thread(target=read, name="archive")
        try:
            beside.start()
        except RuntimeError:  # the interpreter is ending, or the system has no more threads
            return self._read_part(name, start, target, self._fill)
        try:
            first = self._read_part(name, start, target[:half], self._fill_at)
        finally:
            beside.join()
        second = found[0]
        if isinstance(second, BaseException):
            raise second
        return joined(first, second, len(target) - half)

    def _read_part(self, name: str, start: int, target: memoryview, fill: Callable[[memoryview, int], int]) -> int:
        """Fill `target` with what lies from `start` on in the file, and say its checksum: 0 where the record has none."""
        filled = crc = 0
        summed = self._infos[name].CRC != 0
        while filled < len(target):
            count = fill(target[filled : filled + _CHUNK], start + filled)
            if not count:
                raise RuntimeError(f"{self._where}: record {name!r} is truncated")
            if summed:  # looked at while it is in the caches
                crc = crc32(target[filled : filled + count], crc)
            filled += count
        return crc

    def _fill_at(self, target: memoryview, start: int) -> int:
        assert self._descriptor is not None
        return os.preadv(self._descriptor, [target], start)

    def _fill(self, target: memoryview, start: int) -> int:
        self._file.seek(start)
        count = self._file.readinto(target) if hasattr(self._file, "readinto") else None
        if count is None:
            chunk = self._file.read(len(target))
            count = len(chunk)
            target[:count] = chunk
        return int(count)

    def read(self, name: str) -> bytes:
        """The bytes of a record."""
        _, size = self.locate(name)
        data = bytearray(size)
        self.read_into(name, memoryview(data))
        return bytes(data)
