"""Beginning and ending MPI in this process."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from rushlight._base.errors import MissingExtraError
from rushlight._base.lazy import LazyModule
from rushlight._distributed.engines.mpi import MPI, MPICommunicator

__all__ = ["finish_mpi", "require_mpi", "start_mpi"]

_mpi4py: Any = LazyModule("mpi4py", "mpi")


def require_mpi() -> None:
    """ImportError that names the extra, unless MPI is installed."""
    if find_spec("mpi4py") is None:
        raise MissingExtraError("mpi4py", "mpi")


def start_mpi() -> MPICommunicator:
    """The communicator of all processes; MPI is started by the import.  It ends by `finish_mpi` alone."""
    _mpi4py.rc.__dict__["finalize"] = False
    return MPICommunicator(MPI.COMM_WORLD)


def finish_mpi() -> None:
    """End MPI: blocks until all processes do."""
    MPI.Finalize()
