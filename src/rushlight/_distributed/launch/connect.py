"""`connect`: make this process a rank of an MPI world, whichever launcher started it.

The ranks meet in the store process (a PMI-1 server among other things, see `pmi`), and hand their connection to the MPI
library through its environment variables: the next `from mpi4py import MPI` finds the world.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from dataclasses import dataclass, field
from datetime import timedelta

from rushlight._base.knobs import Knob
from rushlight._distributed.errors import DistBackendError, DistNetworkError
from rushlight._distributed.launch.pmi import JOINED
from rushlight._distributed.launch.segments import SHM, remove_own_segments
from rushlight._distributed.launch.store_process import LOOPBACK, StoreProcess, listen
from rushlight._distributed.stores.prefix_store import PrefixStore
from rushlight._distributed.stores.store import Store, seconds_of
from rushlight._distributed.stores.tcp_store import Client, TCPStore, is_ours
from rushlight._distributed.stores.wire import Query, as_integer_field, as_text

__all__ = ["World", "connect", "given_by_mpiexec", "host_identity", "started_alone", "store_address"]

_NODE = Knob(
    "node_name",
    env="RUSHLIGHT_NODE",
    kind=str,
    default="",
    doc="What this machine is called where ranks ask which of them share memory; "
    "another name for each group of processes pretends that they are on several machines.",
)
# What launchers of MPI tell their processes: rank and size.
_LAUNCHERS = (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
_OURS = ("PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_DEBUG")
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class World:
    """Facts of a connected rank: its place, where the store process is, the job's name, how many nodes."""

    rank: int
    size: int
    address: tuple[str, int] | None  # None in a world of one rank
    job: str
    nodes: int
    by_mpiexec: bool
    process: StoreProcess | None = field(default=None, repr=False)  # that rank 0 started, if no launcher did

    def left_alone(self) -> None:
        """Call it where MPI will not be started: this rank leaves the MPI job, and is watched all the same."""
        if self.address is not None and not self.by_mpiexec:
            os.close(int(os.environ["PMI_FD"]))
            self.started()

    def started(self) -> None:
        """Call it when MPI has started on every rank (after its first barrier).

        The environment no longer names the world, so that child processes do not take part in it. Names of shared
        memory are removed: what is mapped stays, and a killed rank leaves nothing behind.
        """
        if self.address is None or self.by_mpiexec:
            return
        for name in _OURS:
            os.environ.pop(name, None)
        remove_own_segments()


def connect(store: Store, rank: int, world_size: int, timeout: timedelta | float) -> World:
    """Make this process rank `rank` of `world_size`, for the MPI library that is imported next.

    Waits until all ranks have come; DistBackendError after `timeout`, with the ranks that have not. A world of one rank
    needs no MPI, and under mpiexec its world is used.
    """
    if world_size == 1:
        return World(0, 1, None, "", 1, False)
    seconds = seconds_of(timeout)
    address, process = store_address(store, rank, world_size)
    if rank == 0:
        store.set("rushlight/job", os.urandom(8).hex())
    job = store.get("rushlight/job").decode()
    joined, nodes = _join(address, job, (rank, world_size), seconds)
    by_mpiexec = given_by_mpiexec() == (rank, world_size)
    if by_mpiexec:
        joined.close()
    else:
        _tell_mpi(joined, rank, world_size, address[0] if nodes > 1 else "localhost")
    return World(rank, world_size, address, job, nodes, by_mpiexec, process)


def given_by_mpiexec() -> tuple[int, int] | None:
    """Rank and size, if a launcher of MPI started this process."""
    for rank, size in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def started_alone() -> bool:
    """Whether somebody has started MPI in this process before it became a rank (`from mpi4py import MPI`), or its parent."""
    found = sys.modules.get("mpi4py.MPI")
    return found is not None and found.Is_initialized() and not found.Is_finalized() and found.COMM_WORLD.size == 1


def host_identity() -> str:
    """A name for this machine and its shared memory: equal where ranks can map each other's memory."""
    if _NODE.get():
        return _NODE.get()
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat(SHM).st_dev}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def store_address(store: Store, rank: int, world_size: int) -> tuple[tuple[str, int], StoreProcess | None]:
    """Where a store process of ours is: behind `store`, or started by rank 0 and told through it."""
    base = store._underlying_non_prefix_store if isinstance(store, PrefixStore) else store
    host = "localhost"
    if isinstance(base, TCPStore):
        if is_ours(base.host, base.port, seconds_of(store.timeout)):
            return (base.host, base.port), None
        host = base.host if base.host in LOOPBACK else ""
    else:
        store.set(f"rushlight/host/{rank}", host_identity())
        hosts = store.multi_get([f"rushlight/host/{other}" for other in range(world_size)]) if rank == 0 else []
        host = "localhost" if len(set(hosts)) <= 1 else ""
    process = None
    if rank == 0:
        process = StoreProcess(listen(host, 0))
        store.set("rushlight/store", f"{host or socket.gethostname()} {process.port}")
    name, port = store.get("rushlight/store").decode().split()
    return (name, int(port)), process


def _join(address: tuple[str, int], job: str, place: tuple[int, int], seconds: float) -> tuple[Client, int]:
    """A connection that speaks PMI-1 from here on, and the number of nodes; when all ranks have come."""
    client = Client(*address, seconds)
    rank, size = place
    request = as_text(job.encode()) + as_integer_field(rank) + as_integer_field(size)
    # An MPI that is started anew cannot share memory: it has made room for one process.
    host = f"{host_identity()}/{os.getpid()}" if started_alone() else host_identity()
    client.send(bytes([Query.JOIN]) + request + as_text(host.encode()))
    try:
        with client.within(seconds):
            answer = client.read_value()
    except TimeoutError:
        raise DistBackendError(
            f"rank {rank} waited {seconds:.0f} s for the other ranks; not there: {_missing(address, job)} (of {size})"
        ) from None
    if not answer.startswith(JOINED):
        raise DistBackendError(f"rank {rank} cannot join: {answer.decode('utf-8', 'replace')}")
    return client, int(answer.split()[1])


def _missing(address: tuple[str, int], job: str) -> str:
    try:
        client = Client(*address, 5.0)
        client.send(bytes([Query.MISSING]) + as_text(job.encode()))
        with client.within(5.0):
            return client.read_value().decode("utf-8", "replace")
    except (DistNetworkError, TimeoutError):
        return "unknown"


# ***** what MPI libraries read from the environment *****


def _tell_mpi(joined: Client, rank: int, size: int, host: str) -> None:
    """The connection, and through which interfaces ranks on several machines speak: loopback if the store does."""
    interface = "lo" if host in LOOPBACK else _interface_of(joined.socket.getsockname()[0])
    os.environ.update(PMI_FD=str(joined.detach()), PMI_RANK=str(rank), PMI_SIZE=str(size), PMI_DEBUG="0")
    os.environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")
    # MPICH reads the other process's memory from 16 KB on; below 96 KB two copies through its queue are quicker.
    os.environ.setdefault("MPIR_CVAR_CH4_IPC_CMA_P2P_THRESHOLD", "98304")
    if os.environ["MPIR_CVAR_CH4_NETMOD"] == "ofi" and "FI_PROVIDER" not in os.environ:
        os.environ["FI_PROVIDER"] = "tcp"
        if interface:
            os.environ.setdefault("FI_TCP_IFACE", interface)


def _interface_of(address: str) -> str:
    """The interface with this address; empty if none has it, or it is loopback on the way to this very machine."""
    plain = address.removeprefix("::ffff:")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(found[20:24]) == plain:
                return "" if name == "lo" else name
    return ""
