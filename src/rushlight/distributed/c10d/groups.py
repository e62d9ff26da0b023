"""Making process groups, ending them, and asking who is in them."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import rushlight.distributed as dist
from rushlight._interface.distributed import (
    FLIGHT,
    WATCH,
    FakeCommunicator,
    FakeGroup,
    Group,
    HashStore,
    Monitor,
    SingleCommunicator,
    apart,
    connect,
    finish_mpi,
    given_by_mpiexec,
    require_mpi,
    start_mpi,
    subset,
)
from rushlight.distributed.c10d import user_groups
from rushlight.distributed.c10d.devices import device_groups, is_nccl_available, require_nccl
from rushlight.distributed.c10d.methods import WAYS, ProcessGroup
from rushlight.distributed.c10d.options import Backend, BackendConfig, DebugLevel, default_pg_timeout, get_debug_level
from rushlight.distributed.c10d.world import WORLD, BaseGroup, GroupMember, default_group, group_of
from rushlight.distributed.rendezvous import rendezvous

__all__ = [
    "destroy_process_group", "get_backend", "get_backend_config", "get_default_backend_for_device", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "is_ucc_available", "is_xccl_available", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "shrink_group", "split_group",
]  # fmt: skip

_SERVED = (Backend.GLOO, Backend.MPI, Backend.FAKE)
_FINISHES_WITHIN = 10.0
_DRAINS_WITHIN = 30.0
_TAGS = 32000  # MPI has at least so many
_FIRST_LOCAL = 1 << 20  # numbers of groups that only their members know of


class _Engine:
    """The MPI of this process, which begins once and is used by every default group after."""

    def __init__(self) -> None:
        self.communicator: Any = None
        self.place: tuple[int, int] | None = None
        self.rounds = 0

    def connect(self, store: Any, rank: int, size: int, timeout: float) -> Any:
        """A communicator of all `size` processes."""
        joined = None
        if size == 1:
            return SingleCommunicator()
        if self.place is None:
            joined = connect(store, rank, size, timeout) if store is not None else None
            if joined is not None and joined.address is not None:
                WATCH.watched_by(Monitor(joined.address, joined.job, rank, size))
            self.communicator = apart(start_mpi, timeout, "start MPI")
            self.place = (rank, size)
            atexit.register(self.finish)
        if self.place != (rank, size):
            raise RuntimeError(
                f"this process is rank {self.place[0]} of {self.place[1]} and cannot become rank {rank} of {size}: "
                "start new processes for another world"
            )
        self.rounds += 1
        made = subset(self.communicator, range(size), self.rounds % 30000, timeout)
        if self.rounds == 1 and joined is not None:
            joined.started()
        return made

    def watch(self, store: Any, rank: int, size: int, timeout: float) -> None:
        """Know who of the other processes lives, without MPI."""
        if size == 1 or WATCH.monitor is not None:
            return
        joined = connect(store, rank, size, timeout)
        if joined.address is not None:
            WATCH.watched_by(Monitor(joined.address, joined.job, rank, size))
        joined.left_alone()

    def finish(self) -> None:
        """End MPI, where nothing has failed; with an end to waiting."""
        if WATCH.failed:
            return
        try:
            apart(finish_mpi, _FINISHES_WITHIN, "end MPI")
        except Exception:  # the process ends, and nobody is left who could act on it
            pass


_ENGINE = _Engine()


def _seconds(timeout: Any) -> float:
    if timeout is None:
        timeout = default_pg_timeout
    if not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    return timeout.total_seconds()


def _checked_backend(backend: str | None) -> tuple[str, BackendConfig]:
    """The backend that was asked for and what it means; an error for one that is not there."""
    asked = Backend(backend) if backend else Backend.UNDEFINED
    config = BackendConfig(asked)
    for device, name in config.device_backend_map.items():
        if name == Backend.NCCL and device != "cuda":
            raise RuntimeError(f"NCCL works between GPUs, not between devices of type {device!r}")
        if name == Backend.NCCL and asked != Backend.UNDEFINED:
            require_nccl()
        elif name not in (*_SERVED, Backend.NCCL) and name.upper() not in Backend._plugins:
            raise RuntimeError(f"Distributed package doesn't have {name.upper()} built in")
    return asked, config


def _on_cpu(config: BackendConfig) -> bool:
    """Whether tensors of the CPU are served."""
    return "cpu" in config.device_backend_map


def _pretends(config: BackendConfig) -> bool:
    """Whether nothing is sent between the CPUs."""
    return config.device_backend_map.get("cpu") == Backend.FAKE


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None, world_size: int = -1, rank: int = -1,
    store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None, _ranks: Any = None,
) -> None:  # fmt: skip
    """Make this process one of a job: the default group.

    Processes find one another by `init_method` ("env://", the default, reads `RANK`, `WORLD_SIZE`, `MASTER_ADDR`,
    `MASTER_PORT`; "tcp://host:port"; "file:///path"), or by a `store` with `rank` and `world_size`.

    `backend` is "gloo", "mpi", None or a pairing like "cpu:gloo": all are served by the MPI of the extra
    `rushlight[mpi]`, which a world of one process does not need.  "fake" sends nothing: one process runs as a rank of many,
    and its results are wrong.  ValueError where there is a default group already;
    ImportError that names the extra where it is missing.

    Example: `dist.init_process_group("gloo")` in a program that `torchrun` started
    """
    if WORLD.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    seconds = _seconds(timeout)
    asked, config = _checked_backend(backend)
    plugin = user_groups.plugin_of(config)
    if asked == Backend.FAKE and store is None and rank >= 0 and world_size > 0:
        store = HashStore()  # nobody has to be found
    if store is not None:
        if init_method is not None:
            raise AssertionError("Cannot specify both init_method and store.")
        if not world_size > 0:
            raise AssertionError("world_size must be positive if using store")
        if not rank >= 0:
            raise AssertionError("rank must be non-negative if using store")
    elif init_method is None and plugin is None and _on_cpu(config) and (place := given_by_mpiexec()):
        rank, world_size = place
    else:
        store, rank, world_size = _meet(init_method or "env://", rank, world_size, seconds)
    communicator = None if plugin is not None else _world_communicator(config, store, rank, world_size, seconds)
    WORLD.store, WORLD.count, WORLD.rank, WORLD.rounds = store, 0, rank, WORLD.rounds + 1
    name, ranks = group_name or "0", range(world_size)
    if plugin is not None:
        made = _users_group(plugin, name, ranks, seconds, asked, config, "default_pg", pg_options)
    else:
        made = _process_group(0, name, ranks, communicator, seconds, asked, config, "default_pg")
    WORLD.default = made
    made.bound_device_id = device_id
    FLIGHT.dump_on_signal()


def _world_communicator(config: BackendConfig, store: Any, rank: int, size: int, seconds: float) -> Any:
    """The communicator of all processes between their CPUs; None where `config` serves none."""
    if _pretends(config):
        return FakeCommunicator(rank, size)
    if not _on_cpu(config):
        _ENGINE.watch(store, rank, size, seconds)
        return None
    if size > 1:
        require_mpi()
    return _ENGINE.connect(store, rank, size, seconds)


def _users_group(
    plugin: Any, name: str, ranks: Sequence[int], seconds: float, backend: str, config: BackendConfig, description: str, pg_options: Any
) -> BaseGroup:  # fmt: skip
    """This process's group of a registered backend."""
    unique = f"{WORLD.rounds}/{name}/"
    place = user_groups.Place(
        name, ranks, list(ranks).index(WORLD.rank), dist.PrefixStore(unique, WORLD.store), seconds
    )
    made: Any = user_groups.make(plugin, place, pg_options)
    made._adopt(name, ranks, seconds, backend, config, description)
    return WORLD.add(made)


def _meet(init_method: str, rank: int, world_size: int, seconds: float) -> tuple[Any, int, int]:
    """Store, rank and number of processes, by a URL."""
    place: tuple[Any, int, int] = next(rendezvous(init_method, rank, world_size, timeout=timedelta(seconds=seconds)))
    return place


def _process_group(
    number: int, name: str, ranks: Sequence[int], communicator: Any, seconds: float, *rest: Any
) -> BaseGroup:
    backend, config, description = rest
    kind = FakeGroup if isinstance(communicator, FakeCommunicator) else Group
    on_cpu: Any = None if communicator is None else kind(number, name, ranks, communicator, seconds)
    if on_cpu is not None and on_cpu.size > 1 and get_debug_level() is DebugLevel.DETAIL:
        on_cpu.compare_calls()
    devices = device_groups(config, name, ranks, seconds, on_cpu)
    group = next(iter(devices.values())) if on_cpu is None else on_cpu
    for one in (group, *devices.values()):
        one.description = description
    group.backend = backend
    return WORLD.add(ProcessGroup._of(group, backend, config, description, devices))


def destroy_process_group(group: Any = None) -> None:
    """End a group; without one, all of them.

    Operations that run are waited for, for half a minute at most, and not while an exception is handled: it never hangs
    after an error.
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    pg = WORLD.default if group is None else group
    if pg is None:
        raise AssertionError("Process group cannot be None")
    if pg not in WORLD.groups:
        raise ValueError("Invalid process group specified or has been destroyed.")
    gone = list(WORLD.groups) if pg is WORLD.default else [pg]
    patience = 0.0 if WATCH.failed or sys.exc_info()[1] is not None else _DRAINS_WITHIN
    for one in gone:
        if not one._wait_for_pending_works(patience):
            WATCH.failed = True  # the end of the process must not wait for it either
    for one in gone:
        for below in one._all_groups():
            below.free()
        WORLD.remove(one)
    if pg is WORLD.default:
        WORLD.default = WORLD.store = None


# ***** other groups *****


def new_group(
    ranks: Iterable[int] | None = None, timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
    use_local_synchronization: bool = False, group_desc: str | None = None, device_id: Any = None, sort_ranks: bool = True,
) -> Any:  # fmt: skip
    """A group of some of the processes; all processes call it, those outside get `GroupMember.NON_GROUP_MEMBER`.

    Its members alone talk to one another, so its cost does not depend on the size of the world.  With
    `use_local_synchronization=True` only members need to call it.
    """
    default = default_group()
    size, here = default.size(), default.rank()
    asked, config = _checked_backend(backend) if backend else (default._backend, default._config)
    chosen = list(range(size)) if ranks is None else list(ranks)
    if sort_ranks:
        chosen.sort()
    _check_ranks(chosen, size)
    if use_local_synchronization and here not in chosen:
        return None
    if use_local_synchronization:  # the count is that of calls which all processes make
        same = sum(chosen == list(other._group.ranks) for other in WORLD.groups)
        name = f"{_digest(f'{chosen} {same}'):x}"
    else:
        WORLD.count += 1
        name = str(WORLD.count)
    if here not in chosen:
        return GroupMember.NON_GROUP_MEMBER
    seconds, plugin = _seconds(timeout), user_groups.plugin_of(config)
    if plugin is not None:
        description = group_desc or "undefined"
        return _users_group(plugin, name, chosen, seconds, asked, config, description, pg_options)
    tag = _digest(f"{default.group_name} {name}") % _TAGS
    communicator = _part(default, chosen, tag, seconds, config)
    number = _FIRST_LOCAL + _digest(name) if use_local_synchronization else WORLD.count
    return _process_group(number, name, chosen, communicator, seconds, asked, config, group_desc or "undefined")


def _part(parent: BaseGroup, places: list[int], tag: int, seconds: float, config: BackendConfig) -> Any:
    """A communicator of some places of a group, between CPUs; None where `config` serves none."""
    if not _on_cpu(config):
        return None
    if _pretends(config):
        return FakeCommunicator(places.index(parent.rank()), len(places))
    if len(places) == 1:
        return SingleCommunicator()
    if not parent._on_host:
        raise RuntimeError(
            f"the process group {parent.group_name!r} works between {', '.join(parent._devices)} devices alone: call "
            "init_process_group with 'cpu:gloo,cuda:nccl' for groups between CPUs"
        )
    return subset(parent._group.communicator, places, tag, seconds)


def _digest(text: str) -> int:
    """A number of 48 bits that all processes derive alike."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def _check_ranks(ranks: list[int], size: int) -> None:
    if len(ranks) > size:
        raise ValueError(
            "the new group's world size should be less or equal to the world size set by init_process_group"
        )
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"ranks list must not contain duplicate entries, got {ranks}")
    if any(not 0 <= rank < size for rank in ranks):
        raise ValueError("The new group's rank should be within the world_size set by init_process_group")


def new_subgroups(
    group_size: int | None = None, group: Any = None, timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Groups of `group_size` consecutive ranks each: this process's, and all of them."""
    size = get_world_size(group)
    if group_size is None:
        raise ValueError(
            "Default group size only takes effect when CUDA is available. If your subgroup using a backend that does not depend on CUDA, please pass in 'group_size' explicitly."
        )
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    ranks = get_process_group_ranks(group)
    rows = [ranks[k : k + group_size] for k in range(0, size, group_size)]
    return new_subgroups_by_enumeration(rows, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """A group for each list of ranks: this process's (None where it is in none), and all of them."""
    if ranks_per_subgroup_list is None or not len(ranks_per_subgroup_list):
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen: dict[int, Any] = {}
    mine, groups = None, []
    for ranks in ranks_per_subgroup_list:
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        groups.append(made)
        for rank in ranks:
            if rank in seen:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {seen[rank]} and {ranks}")
            seen[rank] = ranks
            mine = made if rank == get_rank() else mine
    return mine, groups


def split_group(
    parent_pg: Any = None, split_ranks: list[list[int]] | None = None, timeout: timedelta | None = None, pg_options: Any = None,
    group_desc: str | None = None, backend: Any = None,
) -> Any:  # fmt: skip
    """Split a group: every process of it names the same lists of places in it, and gets its own part, or None.

    The parts' members alone talk to one another.
    """
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent: BaseGroup = group_of(parent_pg)
    mine = next((sorted(part) for part in split_ranks if parent.rank() in part), None)
    seconds = parent._group.timeout if timeout is None else _seconds(timeout)
    parent.splits += 1
    begun = [one for one in parent._devices.values() if one.communicator.handle is not None]
    if mine is None:
        for one in begun:
            one.split(None, None)
        return None
    if len(set(mine)) != len(mine):
        raise ValueError("the split group cannot have duplicate ranks")
    name = f"{parent.group_name}:split:{parent.splits}:{_digest(str(mine)):x}"
    tag = _digest(name) % _TAGS
    ranks = [parent._group.ranks[place] for place in mine]
    config = BackendConfig(backend) if backend else parent._config
    plugin = user_groups.plugin_of(config)
    if plugin is not None:
        description = group_desc or f"{parent.group_desc}:split"
        return _users_group(plugin, name, ranks, seconds, backend or parent._backend, config, description, pg_options)
    communicator = _part(parent, mine, tag, seconds, config)
    description = group_desc or f"{parent.group_desc}:split"
    made = _process_group(
        WORLD.count, name, ranks, communicator, seconds, backend or parent._backend, config, description
    )
    for one in begun:
        one.split(mine, made._devices.get("cuda"))
    return made


SHRINK_DEFAULT, SHRINK_ABORT = 0, 1


def shrink_group(
    ranks_to_exclude: Sequence[int], group: Any = None, shrink_flags: int = SHRINK_DEFAULT, pg_options: Any = None
) -> Any:
    """The group without some of its places (`ranks_to_exclude`); those who stay call it, the others need not.

    With the default group, the result is the new default group, in which processes have new ranks; other groups are
    ended. With `SHRINK_ABORT` operations of the former group are given up first.  ValueError for places that are not
    there, none, all of them, or this process's own.
    """
    parent: BaseGroup = group_of(group)
    if parent.is_users:
        raise NotImplementedError(f"shrink_group() of groups that a program defines: {type(parent).__name__}")
    excluded = sorted(ranks_to_exclude)
    if not excluded:
        raise ValueError("ranks_to_exclude cannot be empty")
    if len(set(excluded)) != len(excluded):
        raise ValueError(f"ranks_to_exclude must not contain duplicates, got {excluded}")
    if not 0 <= excluded[0] <= excluded[-1] < parent.size():
        raise ValueError(f"ranks_to_exclude {excluded} has a rank that is not within the group of {parent.size()}")
    if len(excluded) == parent.size():
        raise ValueError("ranks_to_exclude cannot exclude all ranks")
    if parent.rank() in excluded:
        raise ValueError(f"rank {parent.rank()} is excluded, and must not call shrink_group()")
    if shrink_flags & SHRINK_ABORT:
        parent.abort()
    places = [place for place in range(parent.size()) if place not in excluded]
    seconds = parent._group.timeout
    parent.shrinks += 1
    name = f"{parent.group_name}:shrunk:{parent.shrinks}"
    communicator = _part(parent, places, _digest(f"{name} {places}") % _TAGS, seconds, parent._config)
    rest = (parent._backend, parent._config, f"{parent.group_desc}:shrunken")
    if parent is not WORLD.default:
        ranks = [parent._group.ranks[place] for place in places]
        return _process_group(WORLD.count, name, ranks, communicator, seconds, *rest)
    store, WORLD.rank = WORLD.store, places.index(parent.rank())
    for one in list(WORLD.groups):
        WORLD.remove(one)
    WORLD.default = _process_group(0, name, range(len(places)), communicator, seconds, *rest)
    WORLD.store = store
    return WORLD.default


def _new_gloo(store: Any, rank: int, size: int, seconds: float) -> Group:
    """All processes, below the default group."""
    if size > 1:
        require_mpi()
    communicator = _ENGINE.connect(store, rank, size, seconds)
    return Group(
        _FIRST_LOCAL + _digest(f"gloo {_ENGINE.rounds}"), f"gloo:{_ENGINE.rounds}", range(size), communicator, seconds
    )


WAYS.update(split_group=split_group, shrink_group=shrink_group, new_gloo=_new_gloo)


# ***** questions *****


def is_initialized() -> bool:
    """Whether there is a default group."""
    return WORLD.default is not None


def get_rank(group: Any = None) -> int:
    """This process's place in a group; -1 where it is not in it; ValueError before `init_process_group`."""
    default = default_group()
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return default.rank() if group is None else group.rank()


def get_world_size(group: Any = None) -> int:
    """How many processes a group has; -1 where this one is not in it; ValueError before `init_process_group`."""
    default = default_group()
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return default.size() if group is None else group.size()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number among those of its machine: `LOCAL_RANK` (or Slurm's), else `fallback_rank`; RuntimeError
    without all of them.
    """
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, assuming you are not running in a multi-device context and want the code to run locally instead."
    )


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks of a group's processes in the whole job."""
    return list(group_of(group)._group.ranks)


def get_group_rank(group: Any, global_rank: int) -> int:
    """The place in a group of a process of the job."""
    if group is GroupMember.WORLD:
        return global_rank
    ranks = _registered(group)._group.ranks
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the whole job of a place in a group."""
    if group is GroupMember.WORLD:
        return group_rank
    ranks = _registered(group)._group.ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def _registered(group: Any) -> Any:
    if group not in WORLD.groups:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    return group


def get_backend(group: Any = None) -> str:
    """The backend that was asked for when a group was made: "gloo", "mpi"; "gloo" where none was."""
    pg = group_of(group)
    if pg not in WORLD.groups:
        raise ValueError("Invalid process group specified")
    return (
        pg._config.device_backend_map["cpu"] if pg._backend == Backend.UNDEFINED or ":" in pg._backend else pg._backend
    )


def get_backend_config(group: Any = None) -> str:
    """The backends of a group by type of device, as "cpu:gloo,cuda:gloo"."""
    return str(_registered(group_of(group))._config)


def get_pg_count() -> int:
    """How many groups this process is in."""
    return len(WORLD.groups)


def get_default_backend_for_device(device: Any) -> str:
    """The backend of a type of device where none is asked for; ValueError for a type without one."""
    kind = (device if isinstance(device, str) else device.type).partition(":")[0]
    found = Backend.default_device_backend_map.get(kind)
    if found is None:
        raise ValueError(f"Default backend not registered for device : {device}")
    return found


def is_mpi_available() -> bool:
    """Whether groups of several processes can be made: the extra `rushlight[mpi]` is installed."""
    return find_spec("mpi4py") is not None


def is_gloo_available() -> bool:
    """The same: "gloo" is a name for rushlight's engine between CPUs, MPI."""
    return is_mpi_available()


def is_ucc_available() -> bool:
    """False: there is no such engine."""
    return False


is_xccl_available = is_ucc_available


def is_backend_available(backend: str) -> bool:
    """Whether a backend is there, by its name."""
    name = backend.lower()
    return (
        name.upper() in Backend._plugins
        or (name in _SERVED and is_mpi_available())
        or (name == Backend.NCCL and is_nccl_available())
    )


def is_torchelastic_launched() -> bool:
    """Whether `torchrun` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ
