"""Saves in a process of its own: it has a job of its own with the like processes of the other ranks.

The state goes over in shared memory.  The process stays for the next save, and ends with the one that started it.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rushlight import Size, Tensor
from rushlight._interface.base import LazyModule
from rushlight.distributed import TCPStore
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.checkpoint.api import CheckpointException, _is_wrapped_exception, _wrap_exception
from rushlight.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from rushlight.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from rushlight.distributed.checkpoint.planner_helpers import _box_of, is_elsewhere
from rushlight.distributed.tensor import DTensor

multiprocessing: Any = LazyModule("rushlight.multiprocessing")

__all__ = ["CheckpointProcess", "Piece", "in_pieces", "process_for"]

_LONGEST_START, _LONGEST_END = 120.0, 10.0


@dataclass
class Piece:
    """This rank's part of a spread tensor, without the mesh, which other processes do not have."""

    local: Tensor
    offsets: Size
    size: Size

    def __create_write_items__(self, fqn: str, obj: Any) -> list[WriteItem]:
        box = ChunkStorageMetadata(self.offsets, Size(self.local.shape))
        data = TensorWriteData(box, TensorProperties.create_from_tensor(self.local), self.size)
        return [WriteItem(MetadataIndex(fqn, self.offsets), WriteItemType.SHARD, tensor_data=data)]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        return self.local


def in_pieces(value: Any) -> Any:
    """A staged state without meshes; tensors that lie elsewhere are left out."""
    if isinstance(value, DTensor):
        return Piece(value._local_tensor, _box_of(value).offsets, Size(value.shape))
    if isinstance(value, dict):
        return {key: in_pieces(inner) for key, inner in value.items() if not is_elsewhere(inner)}
    if type(value) in (list, tuple):
        return type(value)(in_pieces(inner) for inner in value)
    return value


def _serve(connection: Any, save: Callable[..., Any], rank: int, size: int, address: tuple[str, int] | None) -> None:
    """The life of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if address is not None:
        dist.init_process_group("gloo", store=TCPStore(*address), rank=rank, world_size=size)
    connection.send(None)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            break
        if request is None:
            break
        try:
            answer = save(*request, address is None)
        except BaseException as error:
            answer = error if isinstance(error, CheckpointException) else _wrap_exception(error)
        connection.send(answer)
    if address is not None:
        dist.destroy_process_group()


class CheckpointProcess:
    """A process that saves for this rank; `save(state, writer, planner, use_collectives, alone)` is what it calls."""

    def __init__(self, group: Any, single: bool, save: Callable[..., Any]) -> None:
        self.key = (None if single else dist.group.WORLD, group)
        self._threads = ThreadPoolExecutor(1, "checkpoint-process")
        address = None if single else self._meeting_place(group)
        rank, size = (0, 1) if single else (dist.get_rank(group), dist.get_world_size(group))
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, save, rank, size, address), daemon=True)
        self._process.start()
        other.close()
        self._begun = self._threads.submit(self._await_start)
        atexit.register(self.close)

    def _meeting_place(self, group: Any) -> tuple[str, int]:
        """Where the processes of all ranks find one another: a store that rank 0 starts."""
        about: list[Any] = [None]
        if dist.get_rank(group) == 0:
            host = os.environ.get("MASTER_ADDR", "127.0.0.1")
            try:
                self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
                about = [(host, self._store.port)]
            except Exception as error:  # the others wait for news
                about = [f"{type(error).__name__}: {error}"]
        dist.broadcast_object_list(about, group=group, group_src=0)
        if isinstance(about[0], str):
            raise RuntimeError(f"rank 0 could not start a store for the processes that save: {about[0]}")
        return about[0]

    def _await_start(self) -> None:
        if not self._connection.poll(_LONGEST_START):
            raise RuntimeError(f"the process that saves did not start within {_LONGEST_START:.0f} s")
        self._receive()

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, ConnectionError) as error:
            self._process.join(1.0)
            raise RuntimeError(f"the process that saves has ended, with code {self._process.exitcode}") from error

    def alive(self) -> bool:
        """Whether it can save."""
        return self._process.is_alive()

    def submit(self, request: Callable[[], tuple[Any, ...]]) -> Future[Any]:
        """Save what `request` gives, after what was given before; a future of the metadata."""
        return self._threads.submit(self._run, request)

    def _run(self, request: Callable[[], tuple[Any, ...]]) -> Any:
        self._begun.result()
        self._connection.send(request())
        answer = self._receive()
        if isinstance(answer, CheckpointException):
            raise answer
        if _is_wrapped_exception(answer):
            raise answer[0]
        return answer

    def close(self) -> None:
        """Let the process end, when it has saved what it was given."""
        atexit.unregister(self.close)
        self._threads.shutdown()
        try:
            self._connection.send(None)
        except OSError:  # it has ended
            pass
        self._process.join(_LONGEST_END)
        if self._process.is_alive():
            self._process.kill()


_held: list[CheckpointProcess] = []


def process_for(group: Any, single: bool, save: Callable[..., Any]) -> CheckpointProcess:
    """The process of this rank; all ranks of a group start theirs together."""
    key = (None if single else dist.group.WORLD, group)
    if _held and (_held[0].key != key or not _held[0].alive()):
        _held.pop().close()
    if not _held:
        _held.append(CheckpointProcess(group, single, save))
    return _held[0]
