"""Beginning and ending MPI in this process."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from typing import Any

from rushlight._base.errors import MissingExtraError
from rushlight._base.lazy import LazyModule
from rushlight._distributed.engines.mpi import MPI, MPICommunicator
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.launch.connect import started_alone

__all__ = ["finish_mpi", "require_mpi", "start_mpi"]

_mpi4py: Any = LazyModule("mpi4py", "mpi")
_LOG = logging.getLogger("rushlight.distributed")
_ANEW: list[Any] = []  # the session and the communicator of an MPI that was started anew
_FORKED: list[bool] = []  # whether this process is a copy of one in which MPI ran


def require_mpi() -> None:
    """ImportError that names the extra, unless MPI is installed."""
    if find_spec("mpi4py") is None:
        raise MissingExtraError("mpi4py", "mpi")


def start_mpi() -> MPICommunicator:
    """The communicator of all processes; MPI is started by the import.  It ends by `finish_mpi` alone."""
    _mpi4py.rc.__dict__["finalize"] = False
    if "PMI_FD" in os.environ and started_alone():
        return _start_anew()
    return MPICommunicator(MPI.COMM_WORLD)


def _start_anew() -> MPICommunicator:
    """Where MPI runs already, for this process alone: end it, and begin a session, which asks for its world again."""
    _LOG.warning(
        "MPI was started before init_process_group (somebody has imported mpi4py.MPI): it is started anew, and reaches "
        "the other ranks by TCP, on this machine too; MPI.COMM_WORLD cannot be used any more"
    )
    if _FORKED and os.environ.get("MPIR_CVAR_CH4_NETMOD") != "ofi":
        raise DistBackendError(
            "MPI was started before this process was forked (somebody has imported mpi4py.MPI), and UCX does not live on in a "
            "fork: set MPIR_CVAR_CH4_NETMOD=ofi and FI_PROVIDER=tcp before the program starts, or start processes by spawn"
        )
    MPI.Finalize()
    session = MPI.Session.Init()
    world = MPI.Intracomm.Create_from_group(session.Create_group("mpi://WORLD"), "rushlight")
    _ANEW[:] = [session, world]
    return MPICommunicator(world)


def finish_mpi() -> None:
    """End MPI: blocks until all processes do."""
    if _ANEW:
        _ANEW[1].Barrier()  # communicators are never freed, so the session ends with the process
    else:
        MPI.Finalize()


def _forked() -> None:
    if started_alone():
        _FORKED.append(True)


os.register_at_fork(after_in_child=_forked)
