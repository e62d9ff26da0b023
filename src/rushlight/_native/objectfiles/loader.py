"""Loads ELF object code into the process without LLVM, so that a warm start need not load a 100 MB library.

It knows what LLVM emits for position independent x86-64 and AArch64 code on Linux; anything else raises `Unsupported`,
and `jit.load` hands the object to LLVM's linker. (On AArch64 that one is no way out: it places the parts of an object
wherever there is room, and ends the process where they lie more than 4 GB apart.)  Code and constants become read-only
and executable, data stays writable, and nothing is ever both writable and executable.  Calls out of the object go
through one stub for each symbol, because the rest of the process may be further away than a near call reaches.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from struct import pack, pack_into, unpack_from
from typing import TYPE_CHECKING, Protocol

from rushlight._base.lazy import LazyModule
from rushlight._native.objectfiles.elf import (
    ABSOLUTE,
    EXECUTE,
    MAGIC,
    RELOCATABLE,
    UNDEFINED,
    WRITE,
    ObjectFile,
    Unsupported,
    put_signed,
)

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = ["Image", "Unsupported", "can_load"]


class MissingSymbol(RuntimeError):
    """The object needs a symbol that nobody defines."""


# ***** machines *****


class _Machine(Protocol):
    """Processor-specific parts of the loader. Each symbol that is reached through a slot has 16 bytes: its address, and
    code that jumps there.
    """

    def stub(self, address: int) -> bytes:
        """The 16 bytes for a symbol."""
        ...

    def uses_slot(self, kind: int, undefined: bool) -> bool:
        """Whether a relocation of this kind needs the symbol's slot."""
        ...

    def target(self, kind: int, slot: int) -> int:
        """The target of a relocation of this kind: the slot's code for calls, else the slot."""
        ...

    def relocate(self, image: bytearray, place: int, kind: int, at: int, value: int) -> None:
        """Fill in the relocation at the offset `place`, which will lie at the address `at`, and refers to `value`.

        Raises Unsupported for kinds that are not known, and for distances that do not fit.
        """
        ...


class _X86:
    """x86-64."""

    ABSOLUTE, PC32, CALL, GOT, PC64 = 1, 2, 4, (9, 41, 42), 24

    def stub(self, address: int) -> bytes:
        return pack("<QHiH", address, 0x25FF, -14, 0xCCCC)  # jmp *slot(%rip)

    def uses_slot(self, kind: int, undefined: bool) -> bool:
        return kind in self.GOT or (kind == self.CALL and undefined)

    def relocate(self, image: bytearray, place: int, kind: int, at: int, value: int) -> None:
        if kind == self.ABSOLUTE:
            pack_into("<Q", image, place, value & 0xFFFFFFFFFFFFFFFF)
        elif kind in (self.PC32, self.CALL, *self.GOT):
            put_signed(image, place, "<i", 32, value - at)
        elif kind == self.PC64:
            pack_into("<q", image, place, value - at)
        else:
            raise Unsupported(f"relocation {kind}")

    def target(self, kind: int, slot: int) -> int:
        return slot + 8 if kind == self.CALL else slot


class _Arm64:
    """AArch64, whose instructions hold parts of an address, from their fifth or tenth bit on."""

    ABSOLUTE, PC64, PC32 = 257, 260, 261
    ADR, PAGE, GOT_PAGE, GOT_LOW = 274, (275, 276), 311, 312
    # The lowest 12 bits of an address, in units of 2^n bytes
    LOW = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, GOT_LOW: 3}
    CALLS = (282, 283)
    BRANCHES = {279: (14, 5), 280: (19, 5), 282: (26, 0), 283: (26, 0)}  # width and place of a distance in instructions

    def stub(self, address: int) -> bytes:
        return pack("<QII", address, 0x58FFFFD0, 0xD61F0200)  # ldr x16, slot; br x16

    def uses_slot(self, kind: int, undefined: bool) -> bool:
        return kind in (self.GOT_PAGE, self.GOT_LOW) or (kind in self.CALLS and undefined)

    def target(self, kind: int, slot: int) -> int:
        return slot + 8 if kind in self.CALLS else slot

    def relocate(self, image: bytearray, place: int, kind: int, at: int, value: int) -> None:
        if kind == self.ABSOLUTE:
            pack_into("<Q", image, place, value & 0xFFFFFFFFFFFFFFFF)
        elif kind == self.PC64:
            pack_into("<q", image, place, value - at)
        elif kind == self.PC32:
            put_signed(image, place, "<i", 32, value - at)
        elif kind in self.LOW:
            self._fill(image, place, (value & 0xFFF) >> self.LOW[kind], 12, 10)
        elif kind in self.BRANCHES:
            self._fill(image, place, self._fits(value - at >> 2, self.BRANCHES[kind][0]), *self.BRANCHES[kind])
        elif kind == self.ADR or kind == self.GOT_PAGE or kind in self.PAGE:
            far = self._fits(value - at if kind == self.ADR else (value >> 12) - (at >> 12), 21)
            self._fill(image, place, far & 3, 2, 29)
            self._fill(image, place, far >> 2, 19, 5)
        else:
            raise Unsupported(f"relocation {kind}")

    @staticmethod
    def _fits(value: int, bits: int) -> int:
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise Unsupported("a symbol that is too far away")
        return value

    @staticmethod
    def _fill(image: bytearray, place: int, value: int, bits: int, first: int) -> None:
        mask = (1 << bits) - 1
        word: int = unpack_from("<I", image, place)[0]
        pack_into("<I", image, place, word & ~(mask << first) | (value & mask) << first)


_MACHINES: dict[int, _Machine] = {62: _X86(), 183: _Arm64()}
_CODES = {"x86_64": 62, "aarch64": 183}


def can_load(data: bytes) -> bool:
    """Whether `data` looks like an object for this loader, and for this machine."""
    if sys.platform != "linux" or data[:7] != MAGIC:
        return False
    kind, machine = unpack_from("<HH", data, 16)
    return kind == RELOCATABLE and machine == _CODES.get(os.uname().machine)


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
        self.page = os.sysconf("SC_PAGE_SIZE")

    def forget_old_code(self, base: int, size: int) -> None:
        """Let the processor fetch instructions anew where code was written: that of AArch64 does not notice by itself."""
        if os.uname().machine == "aarch64":
            clear = self.symbol("__clear_cache")
            if not clear:
                raise Unsupported("no __clear_cache")
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(clear)(base, base + size)

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
        _SYSTEM[0].forget_old_code(base, plan.code_size)
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
        self.imports = imports
        self.object = read = ObjectFile(data)
        if read.machine not in _MACHINES:
            raise Unsupported("not a relocatable object for x86-64 or AArch64")
        self.machine = _MACHINES[read.machine]
        self.page = _SYSTEM[0].page
        self.sections, self.symbols, self.relocations = read.sections, read.symbols, read.relocations
        self._known: dict[int, int] = {}  # symbol number -> address
        self.stubs: dict[int, int] = {}  # symbol number -> offset of its slot in the table of addresses
        self._place()

    def _place(self) -> None:
        """Give every section its offset; count the symbols that need a slot."""
        needed = set()
        for _, rows in self.relocations:
            for _, info, _ in rows:
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                if self.machine.uses_slot(kind, self.symbols[symbol][1] == UNDEFINED):
                    needed.add(symbol)
        self.offsets: dict[int, int] = {}
        position = 0
        loaded = sorted(
            self.object.loaded, key=lambda n: (self.sections[n][2] & WRITE, not self.sections[n][2] & EXECUTE)
        )
        for writable in (0, WRITE):
            for number in loaded:
                _, _, flags, _, _, size, _, _, alignment, _ = self.sections[number]
                if flags & WRITE == writable:
                    position = -(-position // max(alignment, 1)) * max(alignment, 1)
                    self.offsets[number] = position
                    position += size
            if not writable:  # slots and stubs close the read-only part
                position = -(-position // 16) * 16
                for symbol in sorted(needed):
                    self.stubs[symbol] = position
                    position += 16
                self.code_size = position = -(-max(position, 1) // self.page) * self.page
        self.size = -(-position // self.page) * self.page

    def address(self, symbol: int, base: int) -> int:
        """The address of a symbol, defined here or elsewhere."""
        found = self._known.get(symbol)
        if found is None:
            found = self._known[symbol] = self._find(symbol, base)
        return found

    def _find(self, symbol: int, base: int) -> int:
        _, section, value = self.symbols[symbol]
        if section in self.offsets:
            return base + self.offsets[section] + value
        if section == ABSOLUTE:
            return value
        if section != UNDEFINED:
            raise Unsupported("common symbols, or symbols of sections that are not loaded")
        text = self.object.name(symbol)
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
            content = self.object.content(number)
            image[offset : offset + len(content)] = content
        for symbol, slot in self.stubs.items():
            image[slot : slot + 16] = self.machine.stub(self.address(symbol, base))
        for target, rows in self.relocations:
            for place, info, addend in rows:
                self._relocate(image, base, self.offsets[target] + place, info & 0xFFFFFFFF, info >> 32, addend)
        return image

    def _relocate(self, image: bytearray, base: int, place: int, kind: int, symbol: int, addend: int) -> None:
        if self.machine.uses_slot(kind, self.symbols[symbol][1] == UNDEFINED):
            value = self.machine.target(kind, base + self.stubs[symbol])
        else:
            value = self.address(symbol, base)
        self.machine.relocate(image, place, kind, base + place, value + addend)

    def offset_of(self, name: str) -> int:
        """The offset of a symbol defined here; KeyError when there is none."""
        wanted, read = name.encode() + b"\0", self.object
        for text, section, value in self.symbols:
            start = read.names + text
            if section in self.offsets and read.data[start : start + len(wanted)] == wanted:
                return self.offsets[section] + value
        raise KeyError(f"machine code does not define {name!r}")
