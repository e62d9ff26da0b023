"""ELF object files as they are read: sections, symbols and relocations of relocatable code for x86-64 and AArch64.

Both who loads an object into this process (`loader`) and who links several into a shared library (`shared_library`)
read it here.
"""

from __future__ import annotations

from struct import Struct, pack_into

__all__ = [
    "ABSOLUTE", "ALLOC", "EXECUTE", "HEADER", "MAGIC", "NOBITS", "RELOCATABLE", "RELOCATION", "SECTION", "SYMBOL", "UNDEFINED", "WRITE", "ObjectFile", "Unsupported",
    "put_signed",
]  # fmt: skip

HEADER = Struct("<16sHHIQQQIHHHHHH")
SECTION = Struct("<IIQQQQIIQQ")
SYMBOL = Struct("<IBBHQQ")
RELOCATION = Struct("<QQq")
MAGIC = b"\x7fELF\x02\x01\x01"
RELOCATABLE = 1
_SYMTAB, _RELA, NOBITS, _INIT_ARRAY, _FINI_ARRAY = 2, 4, 8, 14, 15
WRITE, ALLOC, EXECUTE, _TLS = 1, 2, 4, 0x400
UNDEFINED, ABSOLUTE = 0, 0xFFF1


class Unsupported(Exception):
    """The object uses something that only a full linker knows."""


def put_signed(image: bytearray, place: int, code: str, bits: int, value: int) -> None:
    """Write a signed number of so many bits; Unsupported where it does not fit."""
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Unsupported("a symbol that is too far away")
    pack_into(code, image, place, value)


class ObjectFile:
    """A relocatable object: `sections` are rows of the table, `loaded` the numbers of those that take part, `symbols`
    (name offset, section, value), `relocations` for each loaded section that has some (section, rows).
    """

    __slots__ = ("data", "loaded", "machine", "names", "relocations", "sections", "symbols")

    def __init__(self, data: bytes) -> None:
        self.data = data
        header = HEADER.unpack_from(data)
        self.machine: int = header[2]
        if header[1] != RELOCATABLE:
            raise Unsupported("not a relocatable object")
        table, count = header[6], header[12]
        self.sections = list(SECTION.iter_unpack(data[table : table + count * SECTION.size]))
        self.symbols: list[tuple[int, int, int]] = []
        self.names = 0
        for _, kind, _, _, offset, size, link, *_ in self.sections:
            if kind == _SYMTAB:
                self.names = self.sections[link][4]
                rows = SYMBOL.iter_unpack(data[offset : offset + size])
                self.symbols = [(name, section, value) for name, _, _, section, value, _ in rows]
        self.loaded = self._loaded_sections(self.sections[header[13]][4])
        self.relocations = [
            (target, list(RELOCATION.iter_unpack(data[offset : offset + size])))
            for _, kind, _, _, offset, size, _, target, _, _ in self.sections
            if kind == _RELA and target in self.loaded
        ]

    def _loaded_sections(self, names: int) -> set[int]:
        found = set()
        for number, (name, kind, flags, *_) in enumerate(self.sections):
            if flags & ALLOC and not self.text(names, name).startswith(".eh_frame"):
                if kind in (_INIT_ARRAY, _FINI_ARRAY) or flags & _TLS:
                    raise Unsupported("initialisers and thread-local data")
                found.add(number)
        return found

    def text(self, table: int, offset: int) -> str:
        """A name in a table of names."""
        start = table + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def name(self, symbol: int) -> str:
        """The name of a symbol."""
        return self.text(self.names, self.symbols[symbol][0])

    def content(self, section: int) -> bytes:
        """The bytes of a section; empty for one of zeros."""
        _, kind, _, _, start, size, *_ = self.sections[section]
        return b"" if kind == NOBITS else self.data[start : start + size]
