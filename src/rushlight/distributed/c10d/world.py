"""The process groups of this process: the default one, and those made of it."""

from __future__ import annotations

import time
from typing import Any

from rushlight import device
from rushlight._interface.base import warn_user
from rushlight._interface.distributed import GROUPS

__all__ = ["WORLD", "GroupMember", "BaseGroup", "group", "group_of", "member", "place_in", "warn_not_in_group"]

NO_GROUP = "Default process group has not been initialized, please make sure to call init_process_group."


class BaseGroup:
    """The state of a process group: its operations below tensors, its name, the backend that was asked for."""

    bound_device_id: Any = None
    is_users = False  # whether a program's own class carries collectives out

    def _set_up(
        self, group: Any, backend: str, config: Any, description: str, devices: dict[str, Any] | None = None
    ) -> None:
        self._group, self._backend, self._config = group, backend, config
        self._devices = devices or {}  # type of device -> the group of its engine, beside or instead of the CPU's
        self._on_host = group not in self._devices.values()
        self._name, self._description = group.name, description
        self._coalescing: list[Any] | None = None
        self._batched: list[Any] = []  # messages on a device that start together, and their tensors
        self.splits = 0  # how often it was split
        self.shrinks = 0  # likewise: those who are left out do not count these

    def rank(self) -> int:
        """This process's place in the group."""
        return self._group.rank

    def size(self) -> int:
        """How many processes there are."""
        return self._group.size

    @property
    def group_name(self) -> str:
        """The name by which all of its processes know the group."""
        return self.getGroupName()

    @property
    def group_desc(self) -> str:
        """The purpose of the group, in the words of who made it."""
        return self.getGroupDesc()

    def getGroupName(self) -> str:
        """`group_name`, which subclasses may give otherwise."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Take a name."""
        self._name = name

    def getGroupDesc(self) -> str:
        """`group_desc`, which subclasses may give otherwise."""
        return self._description

    def setGroupDesc(self, group_desc: str) -> None:
        """Take a description."""
        self._description = group_desc

    def _set_group_name(self, name: str) -> None:
        self.setGroupName(name)

    def _set_group_desc(self, group_desc: str) -> None:
        self.setGroupDesc(group_desc)

    def name(self) -> str:
        """The name of the backend."""
        return self.getBackendName()

    def getBackendName(self) -> str:
        """`name()`, which subclasses may give otherwise."""
        return self._backend

    def _get_backend_name(self) -> str:
        return self.getBackendName()

    @property
    def _device_types(self) -> list[Any]:
        return [*([device("cpu")] if self._on_host else []), *(device(kind) for kind in self._devices)]

    def _get_sequence_number_for_group(self) -> int:
        return self._group.count

    def set_timeout(self, timeout: Any) -> None:
        """How long operations that begin from now on may take."""
        for one in self._all_groups():
            one.timeout = timeout.total_seconds()

    def get_group_store(self) -> Any:
        """The store by which the processes found one another."""
        return WORLD.store

    def abort(self) -> None:
        """Give the group up without asking the others."""
        if self.is_users:
            return
        error = RuntimeError("the process group was aborted")
        self._group.broken = self._group.broken or error
        for one in self._devices.values():
            one.fail(error)

    shutdown = abort

    def _wait_for_pending_works(self, seconds: float = float("inf")) -> bool:
        """Wait until nothing runs or waits; False where the time was not enough."""
        until = time.monotonic() + seconds
        while any(one.is_busy() for one in self._all_groups()):
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return True

    def _all_groups(self) -> list[Any]:
        """Those below tensors: the CPU's, and those of other devices."""
        return [*([self._group] if self._on_host else []), *self._devices.values()]

    def __repr__(self) -> str:
        return f"<torch.distributed.ProcessGroup {self.group_name!r}: rank {self.rank()} of {self.size()}, {self._backend}>"


class _World:
    """State of `torch.distributed` in this process."""

    def __init__(self) -> None:
        self.default: BaseGroup | None = None
        self.groups: list[BaseGroup] = []
        self.store: Any = None
        self.count = 0  # groups that were asked for, in this world
        self.rank = self.rounds = 0  # this process's rank, and how many worlds there were
        self.names: dict[str, BaseGroup] = {}

    def add(self, made: BaseGroup) -> BaseGroup:
        """Remember a group."""
        self.groups.append(made)
        self.names[made.group_name] = made
        return made

    def remove(self, gone: BaseGroup) -> None:
        """Forget a group."""
        self.groups.remove(gone)
        del self.names[gone.group_name]
        GROUPS.pop(gone._group.number, None)


WORLD = _World()


class _GroupMeta(type):
    @property
    def WORLD(cls) -> BaseGroup | None:
        """The default group; None before `init_process_group`."""
        return WORLD.default

    @WORLD.setter
    def WORLD(cls, value: BaseGroup | None) -> None:
        WORLD.default = value


class group(metaclass=_GroupMeta):
    """`group.WORLD` is the default process group."""


class GroupMember(metaclass=_GroupMeta):
    """`GroupMember.NON_GROUP_MEMBER` is what `new_group` gives to processes that are not in the group."""

    NON_GROUP_MEMBER = -100


def default_group() -> BaseGroup:
    """The default group; ValueError before `init_process_group`."""
    if WORLD.default is None:
        raise ValueError(NO_GROUP)
    return WORLD.default


def group_of(given: Any) -> Any:
    """The group that an argument names: the default one for None."""
    return default_group() if given is None else given


def member(given: Any, name: str) -> BaseGroup | None:
    """The group that a collective runs in; None, with a warning, where this process is not in it."""
    if given is None:
        return default_group()
    if given is GroupMember.NON_GROUP_MEMBER or given == GroupMember.NON_GROUP_MEMBER:
        warn_not_in_group(name)
        return None
    if not isinstance(given, BaseGroup):
        raise TypeError(f"Invalid type for argument group: expected ProcessGroup or None, got {type(given)}")
    return given


def warn_not_in_group(name: str) -> None:
    """Warn that this process takes no part."""
    rank = WORLD.default.rank() if WORLD.default is not None else -1
    warn_user(f"Running {name} on global rank {rank} which does not belong to the given group.", UserWarning)


def place_in(pg: BaseGroup, rank: int | None, place: int | None) -> int:
    """A rank's place in a group, from its rank in the whole job or from the place itself."""
    if rank is not None and place is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    if rank is None and place is None:
        raise ValueError("Must specify global_rank or group_rank")
    if place is not None:
        if not 0 <= place < pg.size():
            raise ValueError(f"Group rank {place} is not part of group {pg.group_name!r} of {pg.size()} processes")
        return place
    ranks = pg._group.ranks
    if rank not in ranks:
        raise ValueError(f"Global rank {rank} is not part of group {pg!r}")
    return ranks.index(rank)
