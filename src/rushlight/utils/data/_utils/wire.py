"""Messages between the main process and a worker, over a pair of sockets.

A worker's results are pickled, except for the memory of tensors (and of NumPy arrays, and pickles that are large): that
lies in shared chunks, and the message says where.  The descriptor of a chunk goes with the first message that names it.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import select
import socket
import struct
import weakref
from collections import ChainMap, Counter, deque
from multiprocessing.reduction import ForkingPickler
from typing import Any

from rushlight import Tensor
from rushlight._interface.memory import MEMORY
from rushlight._interface.processes import NON_LEAF, NamedBlock, SharedBlock, place_of
from rushlight.multiprocessing.reductions import rebuild_tensor
from rushlight.nn.parameter import Parameter
from rushlight.storage import UntypedStorage
from rushlight.utils.data._utils.arena import Arena

__all__ = ["ENDS", "forked", "Inbox", "Outbox", "ParentGone", "Sender"]

# The main process' ends of all connections, to be closed by a worker that was forked with copies of them: a worker
# whose main process is gone must find its connection closed.
ENDS: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def forked() -> None:
    """In a new worker: let go of what belongs to the main process alone."""
    for end in list(ENDS):
        end.close()
    ENDS.clear()


# Bytes of the pickle, new chunks, forgotten chunks, buffers, whether the pickle is in a chunk
_HEAD = struct.Struct("<QHHHH")
_NEW, _PLACE = struct.Struct("<QQ"), struct.Struct("<QQQ")
_LARGE = 1 << 15  # bytes from which a pickle or a buffer goes through shared memory: sockets hold little
_AT_ONCE = 1 << 17
_HANDLES = 32  # descriptors in one piece of a message


class ParentGone(Exception):
    """The main process has closed the connection, or has ended."""


# ***** in the worker *****


class Sender:
    """A worker's end: takes tasks, sends results."""

    def __init__(self, sock: socket.socket, key: int, check: float) -> None:
        self.sock = sock
        self.key = key
        self.check = check
        self.arena = Arena()
        self._parent = os.getppid()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._data = bytearray()
        self._leases: list[int] = []
        own: dict[Any, Any] = {
            Tensor: self._reduce_tensor,
            MEMORY.Storage: self._reduce_storage,
            UntypedStorage: _reduce_untyped,
            Parameter: _reduce_parameter,
        }
        # Looked up live: what the program registers later is found too.
        self._table = ChainMap(own, ForkingPickler._extra_reducers, copyreg.dispatch_table)  # type: ignore[attr-defined]

    def receive(self) -> Any:
        """The next task; ParentGone when there will be none."""
        while True:
            if len(self._data) >= 8:
                size = int.from_bytes(self._data[:8], "little")
                if len(self._data) >= 8 + size:
                    content = pickle.loads(memoryview(self._data)[8 : 8 + size])
                    del self._data[: 8 + size]
                    return content
            if not self._poll.poll(self.check * 1000):
                if os.getppid() != self._parent:
                    raise ParentGone
                continue
            try:
                piece = self.sock.recv(_AT_ONCE)
            except ConnectionError:
                raise ParentGone from None
            if not piece:
                raise ParentGone
            self._data += piece

    def send(self, message: Any) -> None:
        """Send a message; what cannot be pickled raises, and nothing was sent."""
        arena, out = self.arena, io.BytesIO()
        buffers: list[tuple[int, int, int]] = []
        leases = self._leases = []

        def aside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < _LARGE:
                return True
            buffers.append((*self._put(raw), raw.nbytes | (int(raw.readonly) << 63)))
            return False

        pickler = pickle.Pickler(out, 5, buffer_callback=aside)
        pickler.dispatch_table = self._table
        try:
            pickler.dump(message)
        except BaseException:
            arena.returned(Counter([*leases, *(place[0] for place in buffers)]))
            raise
        body: Any = out.getbuffer()
        nbytes = len(body)
        inside = nbytes >= _LARGE
        if inside:
            body = _PLACE.pack(*self._put(body), nbytes)
        new = [chunk for chunk in arena.unknown if chunk.number in arena.chunks]
        arena.unknown.clear()
        forgotten, arena.forgotten = arena.forgotten, []
        parts = [_HEAD.pack(len(body), len(new), len(forgotten), len(buffers), inside)]
        parts += [_NEW.pack(chunk.number, chunk.block.nbytes) for chunk in new]
        parts += [number.to_bytes(8, "little") for number in forgotten]
        parts += [_PLACE.pack(*place) for place in buffers]
        parts.append(bytes(body))
        self._write(b"".join(parts), [chunk.block.handle for chunk in new])
        for chunk in new:
            arena.announced(chunk)

    def _put(self, raw: memoryview) -> tuple[int, int]:
        """Copy bytes to shared memory; the main process becomes their user."""
        chunk, at = self.arena.take(raw.nbytes)
        room = MEMORY.from_owner(chunk.block.address + at, raw.nbytes, None)
        memoryview(room).cast("B")[:] = raw.cast("B")
        return chunk.number, at

    def _write(self, data: bytes, handles: list[int]) -> None:
        try:
            sent = 0
            while handles[_HANDLES:]:  # a few with each of the first bytes
                sent += socket.send_fds(self.sock, [data[sent : sent + 1]], handles[:_HANDLES])
                handles = handles[_HANDLES:]
            if handles:
                sent += socket.send_fds(self.sock, [data[sent:]], handles)
            if sent < len(data):
                self.sock.sendall(memoryview(data)[sent:])
        except ConnectionError:
            raise ParentGone from None

    def _reduce_tensor(self, x: Tensor) -> Any:
        spec, storage = x._spec, x._storage
        if x._rg and x._node is not None:
            raise RuntimeError(NON_LEAF)
        if storage is None or spec.conj or spec.released:
            return Tensor.__reduce_ex__(x, 2)
        place = x._ptr - storage.ptr
        # Of a large private storage only what the tensor shows is sent.
        if 2 * spec.nbytes < storage.nbytes and place_of(storage) is None:
            extent = sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)) + 1 if spec.numel else 0
            if 2 * extent * spec.dtype.itemsize < storage.nbytes:
                storage, place = self.arena.copy(x._ptr, extent * spec.dtype.itemsize), 0
        return (
            rebuild_tensor,
            (Tensor, storage, spec.dtype, place, tuple(spec.shape), spec.strides, x._rg),
            x.__dict__ or None,
        )

    def _reduce_storage(self, storage: Any) -> Any:
        place = place_of(storage)
        if place is not None and (isinstance(place[0], NamedBlock) or place[0].handle < 0):
            known = self.arena.chunks.values()
            if not any(chunk.block is place[0] for chunk in known):
                place = None  # it has no descriptor to be handed over by
        if place is None:
            storage = self.arena.copy(storage.ptr, storage.nbytes)
            place = place_of(storage)
            assert place is not None
        chunk = self.arena.chunk_of(storage, place[0])
        self._leases.append(chunk.number)
        return _attach, (self.key, chunk.number, place[1], storage.nbytes)


def _reduce_untyped(storage: UntypedStorage) -> Any:
    return _untyped, (storage._native,)


def _untyped(native: Any) -> UntypedStorage:
    return UntypedStorage(native=native)


def _reduce_parameter(parameter: Parameter) -> Any:
    return parameter.__reduce_ex__(2)


# ***** in the main process *****

_FLAGS = socket.MSG_DONTWAIT | getattr(socket, "MSG_CMSG_CLOEXEC", 0)

_INBOXES: weakref.WeakValueDictionary[int, Inbox] = weakref.WeakValueDictionary()


class _Lease:
    """Owns a storage in the main process: its end is told to the worker with the next task."""

    __slots__ = ("number", "returns", "shared_block")

    def __init__(self, shared_block: SharedBlock, number: int, returns: deque[int]) -> None:
        self.shared_block = shared_block
        self.number = number
        self.returns = returns

    def __del__(self) -> None:
        self.returns.append(self.number)


def _attach(key: int, number: int, offset: int, nbytes: int) -> Any:
    """A storage over what a worker wrote."""
    return _INBOXES[key].storage(number, offset, nbytes)


class Inbox:
    """The main process' receiving end of one worker's messages."""

    def __init__(self, sock: socket.socket, key: int) -> None:
        self.sock = sock
        self.returns: deque[int] = deque()
        self._blocks: dict[int, SharedBlock] = {}
        self._data = bytearray()
        self._handles: list[int] = []
        _INBOXES[key] = self

    def read(self) -> bool:
        """Take what has arrived; False at the end of the connection."""
        try:
            piece, handles, _, _ = socket.recv_fds(self.sock, _AT_ONCE, _HANDLES, _FLAGS)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self._handles += handles
        self._data += piece
        return bool(piece)

    def message(self) -> Any:
        """The next message; None while it is not complete."""
        data = self._data
        if len(data) < _HEAD.size:
            return None
        size, new, forgotten, buffers, inside = _HEAD.unpack_from(data)
        start = _HEAD.size + new * _NEW.size + forgotten * 8 + buffers * _PLACE.size
        if len(data) < start + size or len(self._handles) < new:
            return None
        whole = bytes(memoryview(data)[: start + size])
        del data[: start + size]
        at = _HEAD.size
        for k in range(new):
            number, nbytes = _NEW.unpack_from(whole, at + k * _NEW.size)
            self._blocks[number] = block = SharedBlock(nbytes, self._handles.pop(0))
            if len(self._blocks) > 64:
                block.close_handle()
        at += new * _NEW.size
        for k in range(forgotten):
            self._blocks.pop(int.from_bytes(whole[at + 8 * k : at + 8 * k + 8], "little"), None)
        at += forgotten * 8
        aside = [self._buffer(*_PLACE.unpack_from(whole, at + k * _PLACE.size)) for k in range(buffers)]
        body: Any = memoryview(whole)[start:]
        if inside:
            body = memoryview(self.storage(*_PLACE.unpack(body)))
        return pickle.loads(body, buffers=aside)

    def storage(self, number: int, offset: int, nbytes: int) -> Any:
        """A storage over a part of a chunk."""
        block = self._blocks[number]
        if offset + nbytes > block.nbytes:
            raise RuntimeError(f"a worker named bytes {offset} to {offset + nbytes} of a chunk of {block.nbytes}")
        return MEMORY.from_owner(block.address + offset, nbytes, _Lease(block, number, self.returns))

    def _buffer(self, number: int, offset: int, nbytes: int) -> memoryview:
        view = memoryview(self.storage(number, offset, nbytes & ~(1 << 63)))
        return view.toreadonly() if nbytes >> 63 else view

    def returned(self) -> Counter[int]:
        """The chunks that storages were taken from which are gone by now."""
        found: Counter[int] = Counter()
        while self.returns:
            found[self.returns.popleft()] += 1
        return found

    def close(self) -> None:
        """Close the descriptors that were not used yet."""
        while self._handles:
            os.close(self._handles.pop())


class Outbox:
    """The main process' sending end: it never waits, what the socket does not take is sent later."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waiting = bytearray()

    def send(self, message: Any) -> None:
        """Send a message, now or later."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self.waiting += len(body).to_bytes(8, "little") + body
        self.flush()

    def flush(self) -> None:
        """Send as much as goes; a worker that is gone is noticed elsewhere."""
        try:
            while self.waiting:
                del self.waiting[: self.sock.send(self.waiting, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except (ConnectionError, OSError):
            self.waiting.clear()
