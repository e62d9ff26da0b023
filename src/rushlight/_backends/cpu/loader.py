"""Loads ELF object code into the process without LLVM, so that a warm start need not load a 100 MB library.

It knows what LLVM emits for position independent x86-64 code on Linux; anything else raises `Unsupported`, and
`jit.load` hands the object to LLVM's linker.  Code and constants become read-only and executable, data stays writable,
and nothing is ever both writable and executable.  Calls out of the object go through one stub for each symbol, because
the rest of the process may be further away than a near call reaches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from struct import Struct, pack_into
from typing import TYPE_CHECKING

from rushlight._base.lazy import LazyModule

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = ["Image", "Unsupported", "can_load"]

_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELOCATION = Struct("<QQq")
_ELF = b"\x7fELF\x02\x01\x01"
_X86_64, _RELOCATABLE = 62, 1
_SYMTAB, _RELA, _NOBITS, _INIT_ARRAY, _FINI_ARRAY = 2, 4, 8, 14, 15
_WRITE, _ALLOC, _EXECUTE, _TLS = 1, 2, 4, 0x400
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_R_64, _R_PC32, _R_PLT32, _R_GOT, _R_PC64 = 1, 2, 4, (9, 41, 42), 24
_PAGE = 4096


class Unsupported(Exception):
    """The object uses something that only a full linker knows."""


class MissingSymbol(RuntimeError):
    """The object needs a symbol that nobody defines."""


def can_load(data: bytes) -> bool:
    """Whether `data` looks like an object for this loader."""
    return data[:7] == _ELF and sys.platform == "linux" and data[16:20] == b"\x01\x00\x3e\x00"


class _System:
    """The few functions of libc that the loader calls."""

    def __init__(self) -> None:
        process = ctypes.CDLL(None, use_errno=True)
        self.dlsym, self.mmap, self.mprotect, self.munmap = (
            process.dlsym,
            process.mmap,
            process.mprotect,
            process.munmap,
        )
        self.dlsym.restype, self.dlsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
        self.mmap.restype = ctypes.c_void_p
        self.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._found: dict[str, int] = {}

    def _others(self) -> list[ctypes.CDLL]:
        """Libraries to ask after the process itself; libgcc has what no instruction of an older processor does."""
        found: list[ctypes.CDLL] = [ctypes.pythonapi]
        for name in ("libm.so.6", "libgcc_s.so.1"):
            try:
                found.append(ctypes.CDLL(name))
            except OSError:
                continue
        return found

    def symbol(self, name: str) -> int:
        """The address of a symbol of the process; 0 when there is none."""
        found = self._found.get(name)
        if found is None:
            found = self.dlsym(None, name.encode())
            if not found:
                for library in self._others():
                    found = found or self.dlsym(library._handle, name.encode())
            self._found[name] = found = found or 0
        return found


_SYSTEM: list[_System] = []


class Image:
    """Object code in memory; `image["name"]` is an address, valid as long as the image lives.

    Raises `Unsupported` for objects it cannot load, and `MissingSymbol` naming a symbol that nobody defines.
    """

    __slots__ = ("_addresses", "_base", "_munmap", "_size")

    def __init__(self, data: bytes, names: Iterable[str], imports: Mapping[str, int]) -> None:
        if not _SYSTEM:
            _SYSTEM.append(_System())
        self._base = 0
        self._munmap = _SYSTEM[0].munmap
        plan = _Plan(data, imports)
        self._size = plan.size
        base = _SYSTEM[0].mmap(None, plan.size, 3, 0x22, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"no memory for {plan.size} bytes of machine code")
        self._base = base
        image = plan.build(base)
        ctypes.memmove(base, bytes(image), len(image))
        if _SYSTEM[0].mprotect(base, plan.code_size, 5) != 0:
            raise OSError(ctypes.get_errno(), "the system does not allow memory to become executable")
        self._addresses = {name: base + plan.offset_of(name) for name in names}

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]

    def pin(self) -> None:
        """Never unload this image."""
        self._base = 0

    def __del__(self) -> None:
        if self._base:
            self._munmap(self._base, self._size)


class _Plan:
    """Where everything in an object goes: code, constants and stubs first, then (on its own pages) data."""

    def __init__(self, data: bytes, imports: Mapping[str, int]) -> None:
        self.data, self.imports = data, imports
        header = _HEADER.unpack_from(data)
        if header[1] != _RELOCATABLE or header[2] != _X86_64:
            raise Unsupported("not a relocatable x86-64 object")
        table, count = header[6], header[12]
        self.sections = list(_SECTION.iter_unpack(data[table : table + count * _SECTION.size]))
        self._read_symbols()
        self.loaded = self._loaded_sections()
        self._known: dict[int, int] = {}  # symbol number -> address
        self.stubs: dict[int, int] = {}  # symbol number -> offset of its slot in the table of addresses
        self.relocations = [
            (target, list(_RELOCATION.iter_unpack(data[offset : offset + size])))
            for _, kind, _, _, offset, size, _, target, _, _ in self.sections
            if kind == _RELA and target in self.loaded
        ]
        self._place()

    def _loaded_sections(self) -> set[int]:
        found = set()
        for number, (name, kind, flags, *_) in enumerate(self.sections):
            if flags & _ALLOC and not self._text(self.section_names, name).startswith(".eh_frame"):
                if kind in (_INIT_ARRAY, _FINI_ARRAY) or flags & _TLS:
                    raise Unsupported("initialisers and thread-local data")
                found.add(number)
        return found

    @property
    def section_names(self) -> int:
        number: int = _HEADER.unpack_from(self.data)[13]
        return int(self.sections[number][4])

    def _text(self, table: int, offset: int) -> str:
        start = table + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def _read_symbols(self) -> None:
        self.symbols: list[tuple[int, int, int]] = []  # name offset, section, value
        self.names = 0
        for _, kind, _, _, offset, size, link, *_ in self.sections:
            if kind == _SYMTAB:
                self.names = self.sections[link][4]
                rows = _SYMBOL.iter_unpack(self.data[offset : offset + size])
                self.symbols = [(name, section, value) for name, _, _, section, value, _ in rows]

    def _place(self) -> None:
        """Give every section its offset; count the symbols that need a slot."""
        needed = set()
        for _, rows in self.relocations:
            for _, info, _ in rows:
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                if kind in _R_GOT or (kind == _R_PLT32 and self.symbols[symbol][1] == _UNDEFINED):
                    needed.add(symbol)
        self.offsets: dict[int, int] = {}
        position = 0
        loaded = sorted(self.loaded, key=lambda n: (self.sections[n][2] & _WRITE, not self.sections[n][2] & _EXECUTE))
        for writable in (0, _WRITE):
            for number in loaded:
                _, _, flags, _, _, size, _, _, alignment, _ = self.sections[number]
                if flags & _WRITE == writable:
                    position = -(-position // max(alignment, 1)) * max(alignment, 1)
                    self.offsets[number] = position
                    position += size
            if not writable:  # slots (8 bytes: an address) and stubs (8 bytes: jmp *slot) close the read-only part
                position = -(-position // 16) * 16
                for symbol in sorted(needed):
                    self.stubs[symbol] = position
                    position += 16
                self.code_size = position = -(-max(position, 1) // _PAGE) * _PAGE
        self.size = -(-position // _PAGE) * _PAGE

    def address(self, symbol: int, base: int) -> int:
        """The address of a symbol, defined here or elsewhere."""
        found = self._known.get(symbol)
        if found is None:
            found = self._known[symbol] = self._find(symbol, base)
        return found

    def _find(self, symbol: int, base: int) -> int:
        name, section, value = self.symbols[symbol]
        if section in self.offsets:
            return base + self.offsets[section] + value
        if section == _ABSOLUTE:
            return value
        if section != _UNDEFINED:
            raise Unsupported("common symbols, or symbols of sections that are not loaded")
        text = self._text(self.names, name)
        found = self.imports.get(text) or _SYSTEM[0].symbol(text)
        if not found:
            raise MissingSymbol(
                f"machine code needs the symbol {text!r}, which neither the runtime nor the process defines"
            )
        return found

    def build(self, base: int) -> bytearray:
        """The bytes of the image for an address."""
        image = bytearray(self.size)
        for number, offset in self.offsets.items():
            _, kind, _, _, start, size, *_ = self.sections[number]
            if kind != _NOBITS:
                image[offset : offset + size] = self.data[start : start + size]
        for symbol, slot in self.stubs.items():
            pack_into("<QHiH", image, slot, self.address(symbol, base), 0x25FF, -14, 0xCCCC)  # jmp *slot(%rip)
        for target, rows in self.relocations:
            for place, info, addend in rows:
                self._relocate(image, base, self.offsets[target] + place, info & 0xFFFFFFFF, info >> 32, addend)
        return image

    def _relocate(self, image: bytearray, base: int, place: int, kind: int, symbol: int, addend: int) -> None:
        if kind in _R_GOT:
            value = self.stubs[symbol] + addend - place
        elif kind == _R_PLT32 and symbol in self.stubs and self.symbols[symbol][1] == _UNDEFINED:
            value = self.stubs[symbol] + 8 + addend - place
        elif kind in (_R_PC32, _R_PLT32, _R_PC64):
            value = self.address(symbol, base) + addend - (base + place)
        elif kind == _R_64:
            pack_into("<Q", image, place, (self.address(symbol, base) + addend) & 0xFFFFFFFFFFFFFFFF)
            return
        else:
            raise Unsupported(f"relocation {kind}")
        if kind == _R_PC64:
            pack_into("<q", image, place, value)
        elif -(1 << 31) <= value < 1 << 31:
            pack_into("<i", image, place, value)
        else:
            raise Unsupported("a symbol that is too far away")

    def offset_of(self, name: str) -> int:
        """The offset of a symbol defined here; KeyError when there is none."""
        wanted = name.encode() + b"\0"
        for text, section, value in self.symbols:
            start = self.names + text
            if section in self.offsets and self.data[start : start + len(wanted)] == wanted:
                return self.offsets[section] + value
        raise KeyError(f"machine code does not define {name!r}")
