"""Process groups below tensors."""

from __future__ import annotations

from rushlight._backends.registry import backend_of
from rushlight._distributed.engines.buffers import Buffer, Reduction
from rushlight._distributed.engines.fake import FakeCommunicator
from rushlight._distributed.engines.nccl_library import find_library, nccl_library
from rushlight._distributed.engines.single import SingleCommunicator
from rushlight._distributed.engines.starting import finish_mpi, require_mpi, start_mpi
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.fake_group import FakeGroup
from rushlight._distributed.groups.flight import FLIGHT
from rushlight._distributed.groups.group import GROUPS, Group
from rushlight._distributed.groups.making import apart, subset
from rushlight._distributed.groups.nccl_groups import nccl_group
from rushlight._distributed.groups.operation import Operation
from rushlight._distributed.groups.watch import WATCH
from rushlight._distributed.launch.connect import connect, given_by_mpiexec
from rushlight._distributed.launch.monitor import Monitor
from rushlight._distributed.stores.hash_store import HashStore
from rushlight._engine.core.memory import is_host_memory, own
from rushlight._engine.core.state import RECORDING, STATE

__all__ = [
    "connect",  # make this process a rank of an MPI world
    "Monitor",  # signs of life, and news of ranks that fail
    "WATCH",  # what this process knows of the others
    "given_by_mpiexec",  # rank and size, from launchers of MPI's own
    "Buffer",  # address, count and dtype of a tensor's elements
    "Reduction",
    "require_mpi",  # ImportError where the extra is missing
    "start_mpi",  # the communicator of all processes
    "finish_mpi",
    "apart",  # a blocking call that can be left
    "subset",  # a communicator of some of the ranks
    "nccl_group",  # ranks that work together on devices
    "find_library",  # where NCCL is, or None
    "nccl_library",  # ImportError where the extra is missing
    "SingleCommunicator",  # that of one
    "FakeCommunicator",  # of many that are not there
    "FakeGroup",
    "DistBackendError",
    "FLIGHT",  # the last operations of this process
    "GROUPS",  # number -> group
    "Group",
    "Operation",
    "HashStore",  # a store of one process
    "backend_of",  # the backend of a device
    "is_host_memory",
    "own",
    "RECORDING",
    "STATE",
]
