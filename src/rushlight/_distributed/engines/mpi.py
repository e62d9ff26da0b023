"""MPI between CPUs: an operation as calls of MPI's functions that return at once, by their addresses.

`mpi4py` starts MPI and makes communicators; messages do not pass through it.  Every operation is the *non-blocking* form
of a call, which `progress_native` starts and polls without the interpreter lock: a blocking call could not be left when
a process dies.  Counts are 64 bit, by the functions of MPI 4 (`MPI_Iallreduce_c`).

Gathered and scattered parts may lie anywhere: they are described by their distances from the lowest address.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import LazyModule, require
from rushlight._base.lazy import numpy as np
from rushlight._distributed.engines.buffers import HALF, Buffer, Reduction, array_at, copy_bytes, narrow, scale, widen
from rushlight._distributed.errors import DistBackendError

__all__ = ["MPI", "Call", "MPICommunicator", "error_text", "function_address", "source_of"]

MPI: Any = LazyModule("mpi4py.MPI", "mpi")
Steps = list[Any]

_OPERATIONS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX", "band": "BAND", "bor": "BOR", "bxor": "BXOR"}
_OF_BOOLS = {"sum": "LOR", "prod": "LAND", "min": "LAND", "max": "LOR", "band": "LAND", "bor": "LOR", "bxor": "LXOR"}
_TYPES = {
    "bool": "C_BOOL", "int8": "INT8_T", "int16": "INT16_T", "int32": "INT32_T", "int64": "INT64_T", "uint8": "UINT8_T", "uint16": "UINT16_T",
    "uint32": "UINT32_T", "uint64": "UINT64_T", "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip
_ADDRESSES: dict[str, int] = {}
_HANDLES: dict[str, int] = {}
_SUM = Reduction("sum")
_ROUNDED = ("sum", "avg", "premul_sum")


def function_address(name: str) -> int:
    """The address of one of MPI's functions."""
    found = _ADDRESSES.get(name)
    if found is None:
        library = ctypes.CDLL(require("mpi4py.MPI", "mpi").__file__)
        try:
            found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            version = MPI.Get_library_version().split("\n")[0]
            raise DistBackendError(f"{version} has no {name}: rushlight needs an MPI of version 4 or later") from None
        _ADDRESSES[name] = found
    return found


def error_text(code: int) -> str:
    """The text of an error code of MPI's."""
    return f"{MPI.Get_error_string(code)} (MPI error {code})"


def source_of(address: int) -> int:
    """The source in a status of MPI's in memory."""
    status = MPI.Status()
    copy_bytes(MPI._addressof(status), address, MPI._sizeof(MPI.Status))
    return int(status.source)


def _handle(name: str) -> int:
    """The handle of a predefined type or operation."""
    found = _HANDLES.get(name)
    if found is None:
        found = _HANDLES[name] = _word(MPI._handleof(getattr(MPI, name)))
    return found


def _word(value: int) -> int:
    """An unsigned word as a signed one."""
    return value - (1 << 64) if value >> 63 else value


class Call:
    """One call of MPI's: the address of a function and its arguments up to the request, which is always the last one;
    and what must live until it is done.
    """

    __slots__ = ("keep", "words")

    def __init__(self, words: tuple[int, ...], *keep: Any) -> None:
        self.words, self.keep = words, keep


class MPICommunicator:
    """A communicator; `rank` and `size` are those in it.

    Methods give the steps of an operation: `Call`s, and Python functions to call before or after.  See
    `single.SingleCommunicator` for what each does.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.handle = _word(MPI._handleof(comm))
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.in_place = _word(int(MPI.IN_PLACE) & 0xFFFFFFFFFFFFFFFF)
        self.byte = _handle("BYTE")

    # ***** reductions *****

    def all_reduce(self, x: Buffer, reduction: Reduction) -> Steps:
        if x.dtype in HALF or reduction.name not in _OPERATIONS:
            return self._around(x, reduction, self.all_reduce, True)
        kind, operation = _kinds(x.dtype, reduction)
        function = function_address("MPI_Iallreduce_c")
        return [Call((function, self.in_place, x.address, x.count, kind, operation, self.handle))]

    def reduce(self, x: Buffer, reduction: Reduction, root: int) -> Steps:
        here = self.rank == root
        if x.dtype in HALF or reduction.name not in _OPERATIONS:
            return self._around(x, reduction, lambda y, plain: self.reduce(y, plain, root), here)
        kind, operation = _kinds(x.dtype, reduction)
        sent, received = (self.in_place, x.address) if here else (x.address, 0)
        function = function_address("MPI_Ireduce_c")
        return [Call((function, sent, received, x.count, kind, operation, root, self.handle))]

    def _around(
        self, x: Buffer, reduction: Reduction, reduce: Callable[[Buffer, Reduction], Steps], here: bool
    ) -> Steps:
        """Steps of a reduction with arithmetic before and after: widened, multiplied; divided, rounded."""
        plain = _SUM if reduction.name in _ROUNDED else reduction
        if not x.count:
            return reduce(x._replace(dtype="float32"), plain)
        half = x.dtype in HALF
        values = np.empty(x.count, np.float32) if half else array_at(x)
        moved = Buffer(values.ctypes.data, x.count, "float32", 4) if half else x

        def before() -> None:
            if half:
                values[:] = widen(x)
            if reduction.factor is not None:
                scale(values, reduction.factor, 1)

        return [before, *reduce(moved, plain), lambda: self._finish(x, values, reduction) if here else values.size]

    def _finish(self, x: Buffer, values: Any, reduction: Reduction) -> None:
        if reduction.name == "avg":
            scale(values, None, self.size)
        if x.dtype in HALF:
            narrow(values, x)

    def reduce_scatter(self, x: Buffer, parts: Sequence[Buffer], reduction: Reduction, together: bool = False) -> Steps:
        half, plain = x.dtype in HALF, _SUM if reduction.name in _ROUNDED else reduction
        together = not half and reduction.factor is None and _lie_together(parts)
        steps: Steps = []
        source, packed = parts[0].address, None
        if not together:
            packed = np.empty(sum(p.count for p in parts), np.float32 if half else array_at(x._replace(count=0)).dtype)
            source = packed.ctypes.data
            steps.append(lambda: _pack(packed, parts, reduction.factor))
        values = np.empty(x.count, np.float32) if half else array_at(x)
        counts = array("q", [p.count for p in parts])
        even = min(counts) == max(counts)
        function = function_address("MPI_Ireduce_scatter_block_c" if even else "MPI_Ireduce_scatter_c")
        kind, operation = _kinds("float32" if half else x.dtype, plain)
        target = values.ctypes.data if half else x.address
        count = x.count if even else counts.buffer_info()[0]
        words = (function, source, target, count, kind, operation, self.handle)
        return [*steps, Call(words, counts, packed, values), lambda: self._finish(x, values, reduction)]

    # ***** copies *****

    def broadcast(self, x: Buffer, root: int) -> Steps:
        return [Call((function_address("MPI_Ibcast_c"), x.address, x.nbytes, self.byte, root, self.handle))]

    def all_gather(self, x: Buffer, out: Sequence[Buffer], together: bool = False) -> Steps:
        """`together` says on every rank that the parts are equal and lie one behind the other: ranks must not choose
        the function by what each sees, as those of MPI do not talk to one another.
        """
        byte = self.byte
        if together:
            function = function_address("MPI_Iallgather_c")
            words = (function, x.address, x.nbytes, byte, out[0].address, x.nbytes, byte, self.handle)
            return [Call(words)]
        base, counts, places = _spread(out)
        function = function_address("MPI_Iallgatherv_c")
        words = (function, x.address, x.nbytes, byte, base, _at(counts), _at(places), byte, self.handle)
        return [Call(words, counts, places)]

    def gather(self, x: Buffer, out: Sequence[Buffer] | None, root: int) -> Steps:
        base, counts, places = _spread(out or ())
        byte, function = self.byte, function_address("MPI_Igatherv_c")
        words = (function, x.address, x.nbytes, byte, base, _at(counts), _at(places), byte, root, self.handle)
        return [Call(words, counts, places)]

    def scatter(self, x: Buffer, parts: Sequence[Buffer] | None, root: int) -> Steps:
        base, counts, places = _spread(parts or ())
        byte, function = self.byte, function_address("MPI_Iscatterv_c")
        words = (function, base, _at(counts), _at(places), byte, x.address, x.nbytes, byte, root, self.handle)
        return [Call(words, counts, places)]

    def all_to_all(self, out: Sequence[Buffer], parts: Sequence[Buffer], together: bool = False) -> Steps:
        """`together`: see `all_gather`."""
        byte, size = self.byte, parts[0].nbytes
        if together:
            function = function_address("MPI_Ialltoall_c")
            words = (function, parts[0].address, size, byte, out[0].address, size, byte, self.handle)
            return [Call(words)]
        sent, counts, places = _spread(parts)
        got, counts2, places2 = _spread(out)
        words = (
            function_address("MPI_Ialltoallv_c"), sent, _at(counts), _at(places), byte, got, _at(counts2), _at(places2), byte, self.handle,
        )  # fmt: skip
        return [Call(words, counts, places, counts2, places2)]

    def barrier(self) -> Steps:
        return [Call((function_address("MPI_Ibarrier"), self.handle))]

    # ***** point to point *****

    def send(self, x: Buffer, to: int, tag: int) -> Steps:
        function = function_address("MPI_Isend_c")
        return [Call((function, x.address, x.nbytes, self.byte, to, tag, self.handle))]

    def receive(self, x: Buffer, source: int, tag: int) -> Steps:
        """Receive `x`; a source of -1 is any."""
        function = function_address("MPI_Irecv_c")
        source = MPI.ANY_SOURCE if source < 0 else source
        return [Call((function, x.address, x.nbytes, self.byte, source, tag, self.handle))]

    # ***** other communicators *****

    def subset(self, ranks: Sequence[int], tag: int) -> MPICommunicator:
        """A communicator of some of the ranks, made by these alone; blocks until they all came."""
        chosen = self.comm.group.Incl(list(ranks))
        try:
            return MPICommunicator(self.comm.Create_group(chosen, tag))
        finally:
            chosen.Free()

    def free(self) -> None:
        """Nothing: freeing is collective, and a process may be gone; communicators end with the process."""


def _kinds(dtype: str, reduction: Reduction) -> tuple[int, int]:
    """Handles of a type and of an operation."""
    return _handle(_TYPES[dtype]), _handle((_OF_BOOLS if dtype == "bool" else _OPERATIONS)[reduction.name])


def _lie_together(parts: Sequence[Buffer]) -> bool:
    """Whether parts lie one behind the other."""
    address = parts[0].address
    for part in parts:
        if part.address != address and part.count:
            return False
        address += part.nbytes
    return True


def _spread(parts: Sequence[Buffer]) -> tuple[int, array[int], array[int]]:
    """The lowest address of parts, their sizes and their distances from it, in bytes."""
    base = min((p.address for p in parts if p.nbytes), default=0)
    sizes = array("q", [p.nbytes for p in parts])
    return base, sizes, array("q", [p.address - base if p.nbytes else 0 for p in parts])


def _at(words: array[int]) -> int:
    return words.buffer_info()[0]


def _pack(packed: Any, parts: Sequence[Buffer], factor: float | None) -> None:
    """Put parts one behind the other into an array, widened where it is wider, and multiply."""
    start = 0
    for part in parts:
        place = packed[start : start + part.count]
        start += part.count
        if part.count and part.dtype in HALF:
            place[:] = widen(part)
        elif part.nbytes:
            copy_bytes(place.ctypes.data, part.address, part.nbytes)
    if factor is not None:
        scale(packed, factor, 1)
