"""Who the workers are: their numbers, names and addresses, which they tell each other through a store."""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from typing import Any, NamedTuple

from rushlight._interface.calls import TCPStore, address_of_interface, interface_towards
from rushlight.distributed import DistStoreError, PrefixStore, Store

__all__ = ["Members", "WorkerInfo", "own_host"]

_NAME = re.compile(r"[A-Za-z0-9_:-]{1,128}")
_MOST_WORKERS = 1 << 15  # numbers of references and contexts hold a worker's in 15 bits


class WorkerInfo:
    """A worker: its `name` and its number `id`."""

    __module__ = "torch.distributed.rpc"

    def __init__(self, name: str, id: int) -> None:
        self._name, self._id = name, id

    @property
    def name(self) -> str:
        """The name, as `init_rpc` got it."""
        return self._name

    @property
    def id(self) -> int:
        """The number: the rank."""
        return self._id

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self._id}, name={self._name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkerInfo) and (self._id, self._name) == (other._id, other._name)

    def __hash__(self) -> int:
        return hash((self._name, self._id))

    def __reduce__(self) -> Any:
        return _worker_info, (self._name, self._id)


def _worker_info(name: str, number: int) -> WorkerInfo:
    return WorkerInfo(name, number)


class _Member(NamedTuple):
    info: WorkerInfo
    address: tuple[str, int]


def own_host(store: Store) -> str:
    """The address to listen on: loopback, unless the store is elsewhere, or `TP_SOCKET_IFNAME` names an interface."""
    base: Any = store
    while isinstance(base, PrefixStore):
        base = base.underlying_store
    named = os.environ.get("TP_SOCKET_IFNAME")
    if named:
        return address_of_interface(named)
    return interface_towards(base.host, base.port) if isinstance(base, TCPStore) else "127.0.0.1"


class Members:
    """The workers of a job; those that come later are found when they are named."""

    def __init__(self, store: Store, name: str, number: int) -> None:
        if not _NAME.fullmatch(name):
            raise RuntimeError(
                f"Worker name must match ^[A-Za-z0-9-_:]*$ and have at most 128 characters, found {name!r}"
            )
        if not 0 <= number < _MOST_WORKERS:
            raise RuntimeError(f"a worker's rank is from 0 to {_MOST_WORKERS - 1}, not {number}")
        self.store, self.me = store, WorkerInfo(name, number)
        self._by_number: dict[int, _Member] = {}
        self._by_name: dict[str, _Member] = {}
        self.token = bytes.fromhex(store.compare_set("token", "", os.urandom(32).hex()).decode())
        taken = int(store.compare_set(f"name/{name}", "", str(number)))
        if taken != number:
            raise RuntimeError(f"RPC worker name {name} is not unique: rank {taken} has it, and so wants rank {number}")

    def announce(self, address: tuple[str, int]) -> None:
        """Let others know where this worker is."""
        self._keep(self.me, address)
        self.store.set(f"worker/{self.me.id}", json.dumps([self.me.name, *address]))

    def leave(self) -> None:
        """Nobody finds this worker from now on."""
        for key in (f"worker/{self.me.id}", f"name/{self.me.name}"):
            self.store.delete_key(key)

    def await_all(self, size: int, seconds: float) -> None:
        """Wait until workers 0 to `size - 1` have come; RuntimeError that names those that have not."""
        keys = [f"worker/{number}" for number in range(size)]
        try:
            self.store.wait(keys, timedelta(seconds=seconds))
        except DistStoreError:
            missing = [number for number, key in enumerate(keys) if not self.store.check([key])]
            raise RuntimeError(
                f"{self.me} waited {seconds:.0f} s for the other workers; not there: {missing} (of {size})"
            ) from None
        for number, value in enumerate(self.store.multi_get(keys)):
            self._take(number, value)

    def _keep(self, info: WorkerInfo, address: tuple[str, int]) -> None:
        self._by_number[info.id] = self._by_name[info.name] = _Member(info, address)

    def _take(self, number: int, value: bytes) -> None:
        name, host, port = json.loads(value)
        self._keep(WorkerInfo(str(name), number), (str(host), int(port)))

    def _find(self, number: int) -> bool:
        """Ask the store for a worker."""
        if not self.store.check([f"worker/{number}"]):
            return False
        self._take(number, self.store.get(f"worker/{number}"))
        return True

    def __len__(self) -> int:
        return len(self._by_number)

    def all(self) -> list[WorkerInfo]:
        """The workers that are known, by their numbers."""
        return [self._by_number[number].info for number in sorted(self._by_number)]

    def address_of(self, number: int) -> tuple[str, int]:
        """Host and port of a worker; RuntimeError for one that is unknown."""
        return self._member(number).address

    def _member(self, number: int) -> _Member:
        if number not in self._by_number and not self._find(number):
            raise RuntimeError(f"name:{self.me.name},rank:{self.me.id} could not find destination id {number}")
        return self._by_number[number]

    def name_of(self, number: int) -> str:
        """A worker's name in errors."""
        known = self._by_number.get(number)
        return f"worker {number}" if known is None else f"worker {known.info.name!r} (rank {number})"

    def info(self, number: int) -> WorkerInfo:
        """The worker with a number."""
        return self._member(number).info

    def worker(self, to: Any) -> WorkerInfo:
        """The worker that a name, a number or a `WorkerInfo` stands for; RuntimeError for one that is unknown."""
        if isinstance(to, WorkerInfo):
            return self.info(to.id)
        if isinstance(to, str):
            if to not in self._by_name and self.store.check([f"name/{to}"]):
                self._find(int(self.store.get(f"name/{to}")))
            if to not in self._by_name:
                raise RuntimeError(f"name:{self.me.name},rank:{self.me.id} could not find destination name {to}")
            return self._by_name[to].info
        if isinstance(to, int) and not isinstance(to, bool):
            return self.info(to)
        raise ValueError(f"Cannot get WorkerInfo from name {to}")
