"""A linker for one purpose: object code and tables of words become a shared library for x86-64, which needs nothing but
the C library.

    library = SharedLibrary("libmodel.so")
    number = library.add_object(object_code, {"rl_fail": "0:rl_fail"})  # what it defines is called "0:name" then
    library.add_words("table", [1, Address("0:kernel"), 2])
    library.export("model_run", "0:run")
    data = library.link()

Names are references of the caller's: what an object lacks is looked up among the references that it was given, then in
the C library.  What the C library does not have is an error that names it, before anything is written.

The file has the parts that a loader reads (program headers, the dynamic section, symbols, their hash table,
relocations) and the section headers that linkers and debuggers read.  Constants are only readable, code is readable and
executable, data writable; what is relocated when the library is loaded becomes read-only after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct, pack, pack_into
from typing import NamedTuple

from rushlight._native.objectfiles.elf import (
    EXECUTE,
    HEADER,
    MAGIC,
    NOBITS,
    RELOCATION,
    SECTION,
    SYMBOL,
    UNDEFINED,
    WRITE,
    ObjectFile,
    Unsupported,
    put_signed,
)

__all__ = ["Address", "LinkError", "SharedLibrary"]

_LIBC = frozenset(
    "abort aligned_alloc bcmp clock_gettime close free getenv getpid madvise malloc memcmp memcpy memmove memset mmap munmap open "
    "posix_memalign read sched_getaffinity sched_getcpu sched_setaffinity sched_yield sigdelset sigfillset snprintf "
    "strlen strstr syscall".split()
)
_PTHREAD = frozenset(
    "pthread_attr_destroy pthread_attr_init pthread_attr_setstacksize pthread_create pthread_join pthread_self "
    "pthread_sigmask".split()
)
_LIBM = frozenset(
    name + suffix
    for name in "acos asin atan atan2 cos exp fmod lgamma log log1p log2 pow sin sincos sinh tan tanh".split()
    for suffix in ("", "f")
)
_LIBRARIES = (("libm.so.6", _LIBM), ("libpthread.so.0", _PTHREAD), ("libc.so.6", _LIBC))

_PAGE = 4096
_X86_64, _DYNAMIC_OBJECT, _CURRENT = 62, 3, 1
_PROGRAM = Struct("<IIQQQQQQ")
_LOAD, _DYNAMIC, _STACK, _RELRO = 1, 2, 0x6474E551, 0x6474E552
_PROGBITS, _STRTAB, _RELA, _HASH, _DYNAMIC_SECTION, _NOBITS, _DYNSYM = 1, 3, 4, 5, 6, 8, 11
# relocations in objects, and in the library
_ABS64, _PC32, _PLT32, _GOTS, _PC64 = 1, 2, 4, (9, 41, 42), 24
_GLOB_DAT, _RELATIVE = 6, 8


class LinkError(Exception):
    """Code that cannot become a library, and what it lacks."""


class Address(NamedTuple):
    """A word of a table that holds the address of something: `reference`, and bytes from there."""

    reference: str
    offset: int = 0


class _Piece:
    """Something that gets a place: `content` (then zeros up to `size`), what it refers to as (offset, kind, reference,
    addend).
    """

    __slots__ = ("address", "alignment", "content", "group", "relocations", "size")

    def __init__(self, group: str, content: bytes, size: int, alignment: int) -> None:
        self.group, self.content, self.size, self.alignment = group, content, size, max(alignment, 1)
        self.relocations: list[tuple[int, int, str, int]] = []
        self.address = 0


# The groups in the order in which they lie: (name, type of the section, flags of the section, flags of the segment).
_GROUPS = {
    "constant": (".rodata", _PROGBITS, 2, 4),
    "code": (".text", _PROGBITS, 6, 5),
    "fixed": (".data.rel.ro", _PROGBITS, 3, 6),
    "data": (".data", _PROGBITS, 3, 6),
    "zero": (".bss", _NOBITS, 3, 6),
    "weights": (".weights", _PROGBITS, 2, 4),
}


class SharedLibrary:
    """See the module's text.  `name` is what programs that are linked with it remember it by."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pieces: list[_Piece] = []
        self._places: dict[str, tuple[_Piece, int]] = {}
        self._exports: list[tuple[str, str]] = []
        self._objects = 0
        self._slots: dict[str, int] = {}  # reference -> number of its slot
        self._stubs: dict[str, int] = {}  # symbol of the C library -> number of its stub
        self._externals: dict[str, int] = {}  # symbol of the C library -> its number among the symbols

    # ***** what goes in *****

    def add_object(self, data: bytes, references: Mapping[str, str]) -> int:
        """Take relocatable object code in.  Returns its number n: what it defines is called `n:name` from now on.

        `references` says what the symbols are that it lacks.  LinkError for objects that cannot be linked.
        """
        number, self._objects = self._objects, self._objects + 1
        try:
            self._add(ObjectFile(data), number, references)
        except Unsupported as error:
            raise LinkError(f"object code that cannot be linked: {error}") from None
        return number

    def _add(self, read: ObjectFile, number: int, references: Mapping[str, str]) -> None:
        if read.machine != _X86_64:
            raise Unsupported("it is not for x86-64")
        rows_of = dict(read.relocations)
        pieces: dict[int, _Piece] = {}
        for section in sorted(read.loaded):
            _, kind, flags, _, _, size, _, _, alignment, _ = read.sections[section]
            absolute = any(info & 0xFFFFFFFF == _ABS64 for _, info, _ in rows_of.get(section, ()))
            group = "zero" if kind == NOBITS else "data" if flags & WRITE else "code" if flags & EXECUTE else "constant"
            pieces[section] = piece = _Piece(
                "data" if absolute else group, read.content(section), size, max(alignment, 1)
            )
            self._pieces.append(piece)
            self._places[f"{number}#{section}"] = piece, 0
        for symbol, (name, section, value) in enumerate(read.symbols):
            if section in pieces and name:
                self._places.setdefault(f"{number}:{read.name(symbol)}", (pieces[section], value))
        for section, rows in rows_of.items():
            for place, info, addend in rows:
                reference, more = self._reference(read, number, info >> 32, pieces, references)
                pieces[section].relocations.append((place, info & 0xFFFFFFFF, reference, addend + more))

    def _reference(
        self, read: ObjectFile, number: int, symbol: int, pieces: Mapping[int, _Piece], references: Mapping[str, str]
    ) -> tuple[str, int]:
        """The library's name for a symbol of an object, and an offset in bytes from there."""
        _, section, value = read.symbols[symbol]
        if section in pieces:
            return f"{number}#{section}", value
        if section != UNDEFINED:
            raise Unsupported("symbols that are neither defined here nor elsewhere")
        name = read.name(symbol)
        found = references.get(name)
        if found is not None:
            return found, 0
        if not any(name in known for _, known in _LIBRARIES):
            raise LinkError(f"code needs {name!r}, which the C library does not have")
        self._externals.setdefault(name, 0)
        return f"@{name}", 0

    def add_words(self, reference: str, words: Sequence[int | Address], writable: bool = False) -> None:
        """A table of 64-bit words, some of which may be addresses."""
        content = bytearray(8 * len(words))
        piece = _Piece("data" if writable else "constant", b"", len(content), 64 if writable else 8)
        for k, word in enumerate(words):
            if isinstance(word, Address):
                piece.relocations.append((8 * k, _ABS64, word.reference, word.offset))
                if not writable:
                    piece.group = "fixed"
            else:
                pack_into("<Q", content, 8 * k, word & 0xFFFFFFFFFFFFFFFF)
        piece.content = bytes(content)
        self._put(reference, piece)

    def add_bytes(self, reference: str, content: bytes, alignment: int = 1, group: str = "constant") -> None:
        """Bytes that are only read; `group` "code" makes them executable, "weights" puts them on pages behind all else."""
        self._put(reference, _Piece(group, content, len(content), alignment))

    def add_zeros(self, reference: str, size: int, alignment: int = 64) -> None:
        """Memory that is zero when the library is loaded."""
        self._put(reference, _Piece("zero", b"", size, alignment))

    def _put(self, reference: str, piece: _Piece) -> None:
        if reference in self._places:
            raise LinkError(f"{reference!r} is there twice")
        self._pieces.append(piece)
        self._places[reference] = piece, 0

    def export(self, name: str, reference: str) -> None:
        """Let programs find a function by `name`."""
        self._exports.append((name, reference))

    # ***** linking *****

    @property
    def needed(self) -> list[str]:
        """The libraries that it needs."""
        return [
            name
            for name, known in _LIBRARIES
            if name == "libc.so.6" or any(symbol in known for symbol in self._externals)
        ]

    def link(self) -> bytes:
        """The file.  LinkError where a reference is to nothing."""
        for number, name in enumerate(self._externals):
            self._externals[name] = 1 + number
        self._collect()
        return _Image(self).data()

    def _collect(self) -> None:
        """Find which references need a slot, and which a stub."""
        for piece in self._pieces:
            for _, kind, reference, _ in piece.relocations:
                if not reference.startswith("@") and reference not in self._places:
                    raise LinkError(f"{reference!r} is nowhere")
                if kind in _GOTS:
                    self._slots.setdefault(reference, len(self._slots))
                elif reference.startswith("@"):
                    if kind != _ABS64 and kind != _PLT32:
                        raise LinkError(f"a relocation of kind {kind} to {reference[1:]!r}")
                    if kind == _PLT32:
                        self._stubs.setdefault(reference, len(self._stubs))
                        self._slots.setdefault(reference, len(self._slots))
        for name, reference in self._exports:
            if reference not in self._places:
                raise LinkError(f"{name!r} is exported, and nowhere")


_STUB = 8  # bytes: jmp *slot(%rip), and two that are never reached


class _Image:
    """The library in its final places."""

    def __init__(self, library: SharedLibrary) -> None:
        self.library = library
        self.names = bytearray(b"\0")
        self.symbols: list[bytes] = []
        self.relocations: list[bytes] = []
        self.sections: list[tuple[str, int, int, int, int, int, int, int, int]] = []
        self.segments: list[tuple[int, int, int, int, int, int, int]] = []
        self.image = bytearray()
        self.bss = 0

    def data(self) -> bytes:
        """The bytes of the file."""
        self._name_symbols()
        self._lay()
        for piece in self.library._pieces:
            if piece.group != "weights":
                self.image[piece.address : piece.address + len(piece.content)] = piece.content
        self._fill_slots()
        for piece in self.library._pieces:
            for place, kind, reference, addend in piece.relocations:
                self._relocate(piece, place, kind, reference, addend)
        self._write_tables()
        return bytes(self._with_sections())

    # ***** names *****

    def _name(self, text: str) -> int:
        at = len(self.names)
        self.names += text.encode() + b"\0"
        return at

    def _name_symbols(self) -> None:
        library = self.library
        self.external_names = [self._name(name) for name in library._externals]
        self.export_names = [self._name(name) for name, _ in library._exports]
        self.soname = self._name(library.name)
        self.needed = [self._name(name) for name in library.needed]
        self.symbol_count = 1 + len(library._externals) + len(library._exports)

    # ***** places *****

    def _lay(self) -> None:
        """Give everything its address; an address is a place in the file, too, but for zeros and what follows them."""
        library = self.library
        absolutes = sum(kind == _ABS64 for piece in library._pieces for _, kind, _, _ in piece.relocations)
        self.n_relocations = absolutes + len(library._slots)
        self.at: dict[str, int] = {}
        position = HEADER.size + _PROGRAM.size * 8
        tables = (
            (".hash", 4 * (2 + self._buckets() + self.symbol_count)),
            (".dynsym", SYMBOL.size * self.symbol_count),
            (".dynstr", len(self.names)),
            (".rela.dyn", RELOCATION.size * self.n_relocations),
        )
        for name, size in tables:
            position = _up(position, 8)
            self.at[name] = position
            position += size
        position = self._group("constant", position)
        readable = position
        position = begin = _up(position, _PAGE)
        self.at[".stubs"] = begin
        position = self._group("code", begin + _STUB * len(library._stubs), begin)
        code = begin, position
        position = begin = _up(position, _PAGE)
        self.at[".dynamic"] = begin
        self.dynamic = 16 * (len(self.needed) + 13)
        self.at[".got"] = _up(begin + self.dynamic, 8)
        position = self._group("fixed", self.at[".got"] + 8 * len(library._slots), self.at[".got"])
        fixed = _up(position, _PAGE)
        filled = self._group("data", fixed)
        end = self._group("zero", _up(filled, 64))
        self.bss = end - filled
        weights = _up(end, _PAGE)
        last = self._group("weights", weights)
        self.weights = weights, last, _up(filled, _PAGE)
        self.image = bytearray(filled)
        self.segments = [
            (_LOAD, 4, 0, 0, readable, readable, _PAGE),
            (_LOAD, 5, code[0], code[0], code[1] - code[0], code[1] - code[0], _PAGE),
            (_LOAD, 6, begin, begin, filled - begin, end - begin, _PAGE),
            (_DYNAMIC, 6, begin, begin, self.dynamic, self.dynamic, 8),
            (_RELRO, 4, begin, begin, fixed - begin, fixed - begin, 1),
            (_STACK, 6, 0, 0, 0, 0, 16),
        ]
        if last > weights:
            self.segments.append((_LOAD, 4, self.weights[2], weights, last - weights, last - weights, _PAGE))

    def _group(self, group: str, position: int, begin: int | None = None) -> int:
        """Place the pieces of a group from `position` on; the end of them."""
        first = None
        for piece in self.library._pieces:
            if piece.group == group:
                position = _up(position, piece.alignment)
                first = position if first is None else first
                piece.address = position
                position += piece.size
        name, kind, flags, _ = _GROUPS[group]
        start = begin if begin is not None else position if first is None else first
        if position > start:
            self.sections.append((name, kind, flags, start, start, position - start, 0, 64, 0))
        return position

    def _buckets(self) -> int:
        return max(1, self.symbol_count // 2)

    # ***** contents *****

    def _address(self, reference: str) -> int:
        piece, offset = self.library._places[reference]
        return piece.address + offset

    def _slot(self, reference: str) -> int:
        return self.at[".got"] + 8 * self.library._slots[reference]

    def _dynamic_relocation(self, place: int, reference: str, addend: int, kind: int) -> None:
        """Let the loader write the address of a reference at `place`."""
        if reference.startswith("@"):
            symbol = self.library._externals[reference[1:]]
            self.relocations.append(RELOCATION.pack(place, symbol << 32 | kind, addend))
            return
        value = self._address(reference) + addend
        pack_into("<Q", self.image, place, value)
        self.relocations.append(RELOCATION.pack(place, _RELATIVE, value))

    def _fill_slots(self) -> None:
        library = self.library
        for reference in library._slots:
            self._dynamic_relocation(self._slot(reference), reference, 0, _GLOB_DAT)
        for reference, number in library._stubs.items():
            at = self.at[".stubs"] + _STUB * number
            pack_into("<HiH", self.image, at, 0x25FF, self._slot(reference) - at - 6, 0xCCCC)

    def _relocate(self, piece: _Piece, place: int, kind: int, reference: str, addend: int) -> None:
        at = piece.address + place
        if kind == _ABS64:
            self._dynamic_relocation(at, reference, addend, _ABS64)
            return
        if kind in _GOTS:
            target = self._slot(reference)
        elif reference.startswith("@"):
            target = self.at[".stubs"] + _STUB * self.library._stubs[reference]
        else:
            target = self._address(reference)
        if kind == _PC64:
            pack_into("<q", self.image, at, target + addend - at)
        elif kind in (_PC32, _PLT32, *_GOTS):
            try:
                put_signed(self.image, at, "<i", 32, target + addend - at)
            except Unsupported as error:
                raise LinkError(str(error)) from None
        else:
            raise LinkError(f"a relocation of kind {kind}")

    def _write_tables(self) -> None:
        library = self.library
        rows = [SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        rows += [SYMBOL.pack(name, 0x10, 0, 0, 0, 0) for name in self.external_names]
        code = 1 + 4 + [name for name, *_ in self.sections].index(".text")
        for name, (_, reference) in zip(self.export_names, library._exports, strict=True):
            rows.append(SYMBOL.pack(name, 0x12, 0, code, self._address(reference), 0))
        self._put(".dynsym", b"".join(rows))
        self._put(".dynstr", bytes(self.names))
        relative = [r for r in self.relocations if RELOCATION.unpack(r)[1] == _RELATIVE]
        others = [r for r in self.relocations if RELOCATION.unpack(r)[1] != _RELATIVE]
        self._put(".rela.dyn", b"".join([*relative, *others]))
        self._put(".hash", self._hash())
        words = [(1, name) for name in self.needed]
        words += [
            (14, self.soname), (4, self.at[".hash"]), (5, self.at[".dynstr"]), (6, self.at[".dynsym"]), (10, len(self.names)), (11, SYMBOL.size),
            (7, self.at[".rela.dyn"]), (8, RELOCATION.size * self.n_relocations), (9, RELOCATION.size), (0x6FFFFFF9, len(relative)),
            (30, 8), (0x6FFFFFFB, 1 | 8),  # all symbols at once; worker threads live in the library, so it stays
            (0, 0),
        ]  # fmt: skip
        self._put(".dynamic", b"".join(pack("<QQ", *word) for word in words))
        segments = b"".join(_PROGRAM.pack(*segment[:3], segment[3], *segment[3:]) for segment in self.segments)
        self.image[HEADER.size : HEADER.size + len(segments)] = segments

    def _put(self, name: str, content: bytes) -> None:
        self.image[self.at[name] : self.at[name] + len(content)] = content

    def _hash(self) -> bytes:
        """The table by which a loader finds symbols."""
        names = [*self.library._externals, *(name for name, _ in self.library._exports)]
        buckets, chains = [0] * self._buckets(), [0] * self.symbol_count
        for number, name in enumerate(names, 1):
            bucket = _hashed(name) % len(buckets)
            chains[number], buckets[bucket] = buckets[bucket], number
        words = [len(buckets), len(chains), *buckets, *chains]
        return pack(f"<{len(words)}I", *words)

    def _with_sections(self) -> bytearray:
        """The file with the weights behind the rest, and the headers of all sections."""
        begin, end, place = self.weights
        data = self.image
        if end > begin:
            data = data + bytes(place - len(data) + end - begin)
            for piece in self.library._pieces:
                if piece.group == "weights":
                    at = piece.address - begin + place
                    data[at : at + len(piece.content)] = piece.content
        links = {".hash": 2, ".dynsym": 3, ".rela.dyn": 2, ".dynamic": 3}
        kinds = {
            ".hash": (_HASH, 4, 8), ".dynsym": (_DYNSYM, SYMBOL.size, 8), ".dynstr": (_STRTAB, 0, 1), ".rela.dyn": (_RELA, RELOCATION.size, 8),
        }  # fmt: skip
        sizes = {
            ".hash": 4 * (2 + self._buckets() + self.symbol_count), ".dynsym": SYMBOL.size * self.symbol_count, ".dynstr": len(self.names),
            ".rela.dyn": RELOCATION.size * self.n_relocations,
        }  # fmt: skip
        rows: list[tuple[str, int, int, int, int, int, int, int, int, int]] = []
        for name, (kind, entry, alignment) in kinds.items():
            at = self.at[name]
            rows.append(
                (name, kind, 2, at, at, sizes[name], links.get(name, 0), int(name == ".dynsym"), alignment, entry)
            )
        for name, kind, flags, address, offset, size, _, alignment, _ in self.sections:
            offset = place + address - begin if name == ".weights" else min(offset, len(self.image))
            rows.append((name, kind, flags, address, offset, size, 0, 0, alignment, 0))
        at = self.at[".dynamic"]
        rows.append((".dynamic", _DYNAMIC_SECTION, 3, at, at, self.dynamic, 3, 0, 8, 16))
        return self._headed(data, rows)

    def _headed(
        self, data: bytearray, rows: Sequence[tuple[str, int, int, int, int, int, int, int, int, int]]
    ) -> bytearray:
        names = bytearray(b"\0")
        table = [SECTION.pack(*[0] * 10)]
        for name, *rest in rows:
            kind, flags, address, offset, size, link, info, alignment, entry = rest
            table.append(SECTION.pack(len(names), kind, flags, address, offset, size, link, info, alignment, entry))
            names += name.encode() + b"\0"
        start = len(data)
        table.append(SECTION.pack(len(names), _STRTAB, 0, 0, start, len(names) + 10, 0, 0, 1, 0))
        names += b".shstrtab\0"
        data += names
        data += bytes(-len(data) % 8)
        header = HEADER.pack(
            MAGIC + bytes(16 - len(MAGIC)), _DYNAMIC_OBJECT, _X86_64, _CURRENT, 0, HEADER.size, len(data), 0, HEADER.size, _PROGRAM.size,
            len(self.segments), SECTION.size, len(table), len(table) - 1,
        )  # fmt: skip
        data[: HEADER.size] = header
        return data + b"".join(table)


def _up(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def _hashed(name: str) -> int:
    """The hash of the System V ABI."""
    h = 0
    for byte in name.encode():
        h = (h << 4) + byte
        high = h & 0xF0000000
        h = (h ^ high >> 24) & ~high & 0xFFFFFFFF
    return h
