"""Reads the tables of an executable: a word that is the address of a table or of code becomes a reference.

`main` runs in a process of its own (see `variant`).  It makes the program callable as `torch.compile` does.  Its own runtime is
that of this machine, which is compiled already, and never leaves it: what kernels call of a runtime is part of the front.
"""

from __future__ import annotations

import os
import pickle
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rushlight._backends.ahead import Request
from rushlight._backends.cpu.ahead.variant import Code, Front, Table, Variant, Zeros
from rushlight._backends.cpu.fft.fourier import memory_of
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.pinned_native import PINNED
from rushlight._backends.cpu.program.linked import LinkedExecutable
from rushlight._backends.cpu.program.linking import linked_program
from rushlight._backends.cpu.program.wiring import wired
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._base.errors import PackageError
from rushlight._graph.packing import unpacked_graph
from rushlight._native import jit
from rushlight._native.objectfiles.elf import UNDEFINED, ObjectFile
from rushlight._native.target import aim_at

__all__ = ["main"]


def main(level: str) -> None:
    """Answer one request from standard input on standard output, with code for a generic machine."""
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed is no answer
    requests = pickle.loads(sys.stdin.buffer.read())
    try:
        answer: tuple[str, Any] = "made", _made(requests, level)
    except PackageError as error:
        answer = "refused", str(error)
    sink.write(pickle.dumps(answer))
    sink.close()


# ***** making one *****

SHARED = ("rl_fail", "rl_parallel_for")
MOST_PACKED = 2  # packed forms of one weight
STORAGE_BYTES = 128  # what stands for the storage of a weight


class _Origins:
    """Every object that this process loads, and at which address which of its symbols lies."""

    def __init__(self) -> None:
        self.objects: list[tuple[Any, bytes, Mapping[str, int]]] = []
        self.code: dict[int, Code] = {}
        self.own = 0  # the first objects, which are the runtime of this process

    def __call__(self, image: Any, data: bytes, names: Iterable[str], imports: Mapping[str, int]) -> None:
        number = len(self.objects)
        self.objects.append((image, data, imports))
        for name, address in image._addresses.items():
            self.code[address] = Code(number, name)


def _made(requests: Sequence[Request], level: str) -> Variant:
    """The variant that this process is for."""
    origins = _Origins()
    jit.RECORD.append(origins)
    runtime()
    origins.own = len(origins.objects)
    aim_at(level)
    snapshot = _Snapshot(origins)
    for request in requests:
        graph = unpacked_graph(request.graph)
        options = {"packed_weights": True, **request.options}
        linked = linked_program(graph, request.in_layouts, request.out_layouts, target=host(), options=options)
        executable = LinkedExecutable.kept(wired(linked)._replace(phases=1), partial(_program_of, linked))
        _check(executable)
        snapshot.add(request, executable)
    return snapshot.variant()


def _program_of(linked: Any) -> Any:
    return linked


def _check(executable: Any) -> None:
    """PackageError for steps that need this process."""
    for x in executable.launches:
        name = executable.reports[x.step].name if 0 <= x.step < len(executable.reports) else "a step"
        if x.launch.ints is None:
            raise PackageError(f"the step '{name}' is a Python function, which a package cannot have")
        if x.launch.host or (x.launch.keep is not None and not memory_of(x.launch.keep)):
            raise PackageError(f"the step '{name}' uses objects of this process, which a package cannot have")


class _Snapshot:
    """Reads the tables of executables from the words `LINKED` on.  Equal tables are there once."""

    def __init__(self, origins: _Origins) -> None:
        self.origins = origins
        self.tables: list[tuple[list[Any], bool]] = []
        self.known: dict[tuple[Any, ...], int] = {}
        self.zeros: list[int] = []
        self.pins: list[tuple[int, int, int]] = []
        self.panels: dict[tuple[Any, ...], int] = {}  # what a packed weight depends on -> its table
        self.linked: list[int] = []
        self.used: dict[int, int] = {}  # object -> its number in the variant
        self.objects: list[tuple[bytes, dict[str, Any]]] = []

    def add(self, request: Request, executable: Any) -> None:
        """Take the tables of an executable."""
        self.request, self.mapped = request, _mapped()
        self.arrays: dict[int, array[int]] = {}
        self.pinned: dict[int, Any] = {}
        self.plain: set[int] = set()
        for held in executable._keep:
            if isinstance(held, array):
                self.arrays[held.buffer_info()[0]] = held
            elif hasattr(held, "place"):  # an operand that stays packed
                self.arrays[held.words.buffer_info()[0]] = held.words
                self.pinned[held.words.buffer_info()[0]] = held
        self.packing: dict[int, tuple[Any, ...]] = {}  # address of a PINNED -> what its packed form depends on
        for x in executable.launches:
            if x.pin is not None and x.launch.pinned.operand >= 0:
                kernel = id(x.launch.call), x.pin.nbytes, len(x.pin.words), *x.launch.pinned.form
                self.packing[x.pin.words.buffer_info()[0]] = kernel
            for held in memory_of(x.launch.keep):
                if isinstance(held, array):
                    self.arrays[held.buffer_info()[0]] = held
                elif held.nbytes:  # numbers, none of which is an address
                    self.arrays[held.ptr] = array("q", bytes(memoryview(held).cast("B")))
                    self.plain.add(held.ptr)
        self.numbers: dict[int, int] = {}  # address of an array -> number of its table
        self.linked.append(self._table(executable.head.buffer_info()[0]))

    def variant(self) -> Variant:
        """All that was reached."""
        return Variant("", self.objects, self.tables, self.zeros, self.linked, self.pins)

    def _table(self, address: int) -> int:
        number = self.numbers.get(address)
        if number is None:
            held = self.arrays[address]
            if address in self.pinned:
                number = self._pin(address)
            else:
                words = list(held) if address in self.plain else [self._word(w) for w in held]
                number = self.known.setdefault(tuple(words), len(self.tables))
                if number == len(self.tables):
                    self.tables.append((words, False))
            self.numbers[address] = number
        return number

    def _pin(self, address: int) -> int:
        """The table of an operand that is a weight, and stays packed: nobody ever writes to it.

        Choices of sizes share it where they pack the weight in the same way; of each weight a few packed forms are kept.
        """
        pin = self.pinned[address]
        _, word, offset = pin.place
        begin = self.request.weights[word] + offset if self.request.weights[word] >= 0 else -1
        key = begin, *self.packing.get(address, ())
        if key in self.panels:
            return self.panels[key]
        number, words = len(self.tables), list[Any](self.arrays[address])
        self.tables.append((words, True))
        if begin < 0 or len(key) == 1 or sum(known[0] == begin for known in self.panels) >= MOST_PACKED:
            return number
        self.panels[key] = number
        storage = len(self.zeros)
        self.zeros += [STORAGE_BYTES, pin.nbytes]
        words[PINNED.storage.place] = words[PINNED.root.place] = Zeros(storage)
        words[PINNED.panels.place] = Zeros(storage + 1)
        self.pins.append((number, begin, pin.nbytes))
        return number

    def _word(self, word: int) -> Any:
        if word in self.arrays:
            return Table(self._table(word))
        found = self.origins.code.get(word)
        if found is not None:
            return self._code(found)
        if 1 << 32 < word < 1 << 47 and any(begin <= word < end for begin, end in self.mapped):
            for begin, held in self.arrays.items():
                if begin <= word < begin + 8 * len(held):
                    return Table(self._table(begin), word - begin)
            raise PackageError("a kernel's constants hold an address of this process, which a package cannot have")
        return word

    def _code(self, found: Code) -> Any:
        if found.symbol in SHARED:
            return Front(found.symbol)
        return Code(self._object(found.number), found.symbol)

    def _object(self, origin: int) -> int:
        number = self.used.get(origin)
        if number is None:
            if origin < self.origins.own:
                raise PackageError("code needs a function of this process, which a package does not have")
            number = self.used[origin] = len(self.objects)
            _, data, imports = self.origins.objects[origin]
            self.objects.append((data, {}))
            references: dict[str, Any] = {}
            for name in _undefined(data):
                if name in SHARED:
                    references[name] = Front(name)
                elif name in imports:
                    code = self.origins.code.get(imports[name])
                    if code is None:
                        raise PackageError(f"code needs {name!r} of a library that a package does not have")
                    references[name] = self._code(code)
            self.objects[number] = data, references
        return number


def _undefined(data: bytes) -> list[str]:
    """The symbols that an object lacks."""
    read = ObjectFile(data)
    return [read.name(k) for k, (name, section, _) in enumerate(read.symbols) if section == UNDEFINED and name]


def _mapped() -> list[tuple[int, int]]:
    """Where this process has memory."""
    with open("/proc/self/maps") as file:
        ranges = [line.split(" ", 1)[0].split("-") for line in file]
    return [(int(begin, 16), int(end, 16)) for begin, end in ranges]
