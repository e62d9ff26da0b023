"""NCCL between GPUs: an operation as calls that put work on a stream of the device.

Communicators are *non-blocking*: a call may say that it is in progress, and `ncclCommGetAsyncError` says when it is not any
longer.  While it is polled, the caller looks for ranks that died, and leaves by `abort`.

A communicator is made by the first operation that needs it.  Its methods give steps, as those of `MPICommunicator` do;
they are Python functions alone, and run while the communicator's own stream is the current one.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._distributed.engines.buffers import Buffer, Reduction
from rushlight._distributed.engines.nccl_library import (
    DTYPES,
    IN_PROGRESS,
    NO_COLOR,
    OPERATIONS,
    SUCCESS,
    NCCLLibrary,
    UniqueId,
    non_blocking,
)
from rushlight._distributed.errors import DistBackendError

__all__ = ["DeviceStreams", "NCCLCommunicator"]

Steps = list[Any]

_BYTES = DTYPES["uint8"]
_HOST_SCALAR = 1
_OF_BOOLS = {"sum": "max", "max": "max", "prod": "min", "min": "min"}
_SCALARS = {"float32": ctypes.c_float, "float64": ctypes.c_double}
_SPINS, _NAP = 100, 1e-4  # polls of a call in progress without a pause, and seconds between later ones


class DeviceStreams:
    """A device and the stream on which a communicator works; `backend` is the device's, of `_backends.protocol`.

    The handle that NCCL gets is `backend.stream(device).id`.
    """

    def __init__(self, backend: Any, device: Any) -> None:
        self.backend, self.device = backend, device
        self.own = backend.stream(device)

    def enter(self) -> Any:
        """Make the own stream the current one, behind all that the current one has; what `leave` takes."""
        current = self.backend.current_stream(self.device)
        mark = self.backend.event(self.device)
        mark.record(current)
        self.own.wait(mark)
        self.backend.set_stream(self.own)
        return current

    def leave(self, current: Any) -> Any:
        """Make the former stream the current one; an event behind all that the own stream has."""
        mark = self.backend.event(self.device)
        mark.record(self.own)
        self.backend.set_stream(current)
        return mark

    def await_in_stream(self, mark: Any) -> None:
        """Let what is given to the current stream from now on wait for an event."""
        self.backend.current_stream(self.device).wait(mark)


class NCCLCommunicator:
    """A communicator of NCCL's; `rank` and `size` are those in it.

    `identify` gives the bytes of its identity on every rank.
    """

    def __init__(self, rank: int, size: int, library: Callable[[], NCCLLibrary], identify: Callable[[], bytes]) -> None:
        self.rank, self.size = rank, size
        self._library, self._identify = library, identify
        self.handle: Any = None
        self.streams: Any = None
        self.aborted = False
        self._changing = threading.Lock()
        self._scratch: Any = None
        self._depth = 0
        self._created: list[int] = []
        self.look: Callable[[], None] = lambda: None  # called while a call is in progress; raises to leave

    @property
    def library(self) -> NCCLLibrary:
        """NCCL's functions."""
        return self._library()

    # ***** beginning and ending *****

    def begin(self, streams: DeviceStreams, look: Callable[[], None]) -> None:
        """Make the communicator, on the device of `streams`: all its ranks do."""
        library, handle = self.library, ctypes.c_void_p()
        identity, config = UniqueId.from_buffer_copy(self._identify()), non_blocking(library.version)
        code = library.call(
            "ncclCommInitRankConfig", ctypes.byref(handle), self.size, identity, self.rank, ctypes.byref(config)
        )
        self._made(handle, streams, code, look)

    def split(
        self, places: Sequence[int] | None, part: NCCLCommunicator | None, streams: Any, look: Callable[[], None]
    ) -> None:  # fmt: skip
        """Make `part`, a communicator of some places of this one: all ranks call it at once, those without a part too."""
        library, handle, config = self.library, ctypes.c_void_p(), non_blocking(self.library.version)
        color, key = (NO_COLOR, 0) if places is None else (1 + min(places), places.index(self.rank))
        code = library.call("ncclCommSplit", self.handle, color, key, ctypes.byref(handle), ctypes.byref(config))
        self.settle(code, look)
        if part is not None:
            part._made(handle, streams, IN_PROGRESS, look)

    def _made(self, handle: Any, streams: DeviceStreams, code: int, look: Callable[[], None]) -> None:
        self.handle, self.streams = handle, streams
        try:
            self.settle(code, look)
        except BaseException:
            self.abort()
            raise

    def settle(self, code: int, look: Callable[[], None]) -> None:
        """Wait until no call is in progress any longer; DistBackendError for one that failed."""
        polls = 0
        while code == IN_PROGRESS:
            code = self.state()
            if code == IN_PROGRESS:
                polls += 1
                if polls > _SPINS:
                    look()
                    time.sleep(_NAP)
        if code != SUCCESS:
            raise DistBackendError(f"NCCL failed: {self.library.error_text(code)}")

    def state(self) -> int:
        """SUCCESS, IN_PROGRESS, or the code of an error that came later than the call."""
        found = ctypes.c_int()
        with self._changing:
            if self.handle is None or self.aborted:
                return SUCCESS
            self.library.call("ncclCommGetAsyncError", self.handle, ctypes.byref(found))
        return found.value

    def abort(self) -> None:
        """Give the communicator up, with what it has on its stream; other ranks are not asked."""
        with self._changing:
            if self.handle is not None and not self.aborted:
                self.aborted = True
                self.library.functions["ncclCommAbort"](self.handle)

    def free(self, look: Callable[[], None] = lambda: None) -> None:
        """End it in good order: what is on its stream is done before; all ranks do so."""
        if self.handle is None or self.aborted:
            return
        try:
            self.settle(self.library.call("ncclCommFinalize", self.handle), look)
            with self._changing:
                self.library.call("ncclCommDestroy", self.handle)
                self.aborted = True
        except BaseException:
            self.abort()
            raise

    # ***** calls *****

    def _call(self, name: str, *arguments: Any) -> None:
        """One call, waited for unless it is part of a group."""
        code = self.library.call(name, *arguments, self.handle, self.streams.own.id)
        if not self._depth:
            self.settle(code, self.look)

    def together(self, steps: Steps) -> Steps:
        """The same steps as one group of calls: none waits for another one."""

        def run() -> None:
            library = self.library
            library.call("ncclGroupStart")
            self._depth += 1
            try:
                for step in steps:
                    step()
            finally:
                self._depth -= 1
                code = library.functions["ncclGroupEnd"]()
            if code not in (SUCCESS, IN_PROGRESS):
                raise DistBackendError(f"NCCL error in ncclGroupEnd: {library.error_text(code)}")
            self.settle(code, self.look)
            self._forget_operations()

        return [run]

    def _forget_operations(self) -> None:
        created, self._created = self._created, []
        for operation in created:
            self.library.call("ncclRedOpDestroy", operation, self.handle)

    def _operation(self, reduction: Reduction, dtype: str) -> int:
        """The number of a reduction; one with a factor is made for this call."""
        if reduction.factor is None:
            return OPERATIONS[_OF_BOOLS[reduction.name] if dtype == "bool" else reduction.name]
        made, factor = ctypes.c_int(), _scalar(reduction.factor, dtype)
        self.library.call(
            "ncclRedOpCreatePreMulSum",
            ctypes.byref(made),
            ctypes.byref(factor),
            DTYPES[dtype],
            _HOST_SCALAR,
            self.handle,
        )
        self._created.append(made.value)
        return made.value

    def _reduce(
        self, name: str, reduction: Reduction, x: Buffer, addresses: tuple[int, int], *root: int
    ) -> Callable[[], None]:
        """A step that reduces `x.count` elements from an address to another one."""
        _check_reduction(reduction, x.dtype)

        def run() -> None:
            operation = self._operation(reduction, x.dtype)
            self._call(name, *addresses, x.count, DTYPES[x.dtype], operation, *root)
            if not self._depth:
                self._forget_operations()

        return run

    # ***** reductions *****

    def all_reduce(self, x: Buffer, reduction: Reduction) -> Steps:
        return [self._reduce("ncclAllReduce", reduction, x, (x.address, x.address))]

    def reduce(self, x: Buffer, reduction: Reduction, root: int) -> Steps:
        # NCCL writes to the root alone.
        return [self._reduce("ncclReduce", reduction, x, (x.address, x.address), root)]

    def reduce_scatter(self, x: Buffer, parts: Sequence[Buffer], reduction: Reduction, together: bool = False) -> Steps:
        """`together`: see `MPICommunicator.all_gather`."""
        if together and len({part.count for part in parts}) == 1:
            return [self._reduce("ncclReduceScatter", reduction, x, (parts[0].address, x.address))]
        steps = [
            self._reduce("ncclReduce", reduction, part, (part.address, x.address), place)
            for place, part in enumerate(parts)
            if part.count
        ]
        return self.together(steps)

    # ***** copies *****

    def _bytes(self, name: str, *arguments: int) -> Callable[[], None]:
        """A step that moves bytes: `arguments` are addresses, their number, and a place behind the dtype."""
        place = arguments[-1:] if name != "ncclAllGather" else ()
        before = arguments[:-1] if place else arguments
        return lambda: self._call(name, *before, _BYTES, *place)

    def broadcast(self, x: Buffer, root: int) -> Steps:
        return [self._bytes("ncclBroadcast", x.address, x.address, x.nbytes, root)]

    def all_gather(self, x: Buffer, out: Sequence[Buffer], together: bool = False) -> Steps:
        """`together`: see `MPICommunicator.all_gather`."""
        if together:
            return [self._bytes("ncclAllGather", x.address, out[0].address, x.nbytes)]
        steps = [
            self._bytes("ncclBroadcast", x.address if place == self.rank else part.address, part.address, part.nbytes, place)
            for place, part in enumerate(out)
            if part.nbytes
        ]  # fmt: skip
        return self.together(steps)

    def gather(self, x: Buffer, out: Sequence[Buffer] | None, root: int) -> Steps:
        steps = self.send(x, root, 0)
        for place, part in enumerate(out or ()):
            steps += self.receive(part, place, 0)
        return self.together(steps)

    def scatter(self, x: Buffer, parts: Sequence[Buffer] | None, root: int) -> Steps:
        steps = self.receive(x, root, 0)
        for place, part in enumerate(parts or ()):
            steps += self.send(part, place, 0)
        return self.together(steps)

    def all_to_all(self, out: Sequence[Buffer], parts: Sequence[Buffer], together: bool = False) -> Steps:
        steps: Steps = []
        for place, (part, got) in enumerate(zip(parts, out, strict=True)):
            steps += self.send(part, place, 0) if part.nbytes else []
            steps += self.receive(got, place, 0) if got.nbytes else []
        return self.together(steps)

    def barrier(self) -> Steps:
        """An `all_reduce` of a word; whoever calls it waits for its event."""

        def run() -> None:
            if self._scratch is None:
                self._scratch = self.streams.backend.zeros(8, self.streams.device)
            word = int(self._scratch.ptr)
            self._call("ncclAllReduce", word, word, 1, DTYPES["int32"], OPERATIONS["sum"])

        return [run]

    # ***** point to point *****

    def send(self, x: Buffer, to: int, tag: int) -> Steps:
        """NCCL has no tags: messages between two ranks come in the order in which they were sent."""
        return [self._bytes("ncclSend", x.address, x.nbytes, to)]

    def receive(self, x: Buffer, source: int, tag: int) -> Steps:
        """As `send`; a source must be named."""
        if source < 0:
            raise ValueError("recv: NCCL cannot receive from any rank: name the source")
        return [self._bytes("ncclRecv", x.address, x.nbytes, source)]


def _scalar(factor: float, dtype: str) -> Any:
    """A factor in memory, as elements of a dtype."""
    if dtype in _SCALARS:
        return _SCALARS[dtype](factor)
    if dtype == "float16":
        return (ctypes.c_ubyte * 2).from_buffer_copy(_half(factor))
    if dtype == "bfloat16":
        bits = ctypes.c_uint32.from_buffer_copy(ctypes.c_float(factor)).value
        return ctypes.c_uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    raise RuntimeError(f"ReduceOp.PREMUL_SUM is there for floating-point numbers with NCCL, not for {dtype}")


def _half(factor: float) -> bytes:
    return struct.pack("e", factor)


def _check_reduction(reduction: Reduction, dtype: str) -> None:
    if reduction.name in ("band", "bor", "bxor"):
        raise ValueError(f"Cannot use ReduceOp.{reduction.name.upper()} with NCCL")
    if dtype not in DTYPES:
        raise RuntimeError(f"NCCL has no reductions of {dtype}")
    if dtype == "bool" and reduction.name not in _OF_BOOLS:
        raise TypeError(f"Cannot use ReduceOp.{reduction.name.upper()} with boolean inputs with NCCL")
    if reduction.factor is not None:
        _scalar(reduction.factor, dtype)
