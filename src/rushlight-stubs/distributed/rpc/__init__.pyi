"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool

from rushlight.distributed.rpc.api import AllGatherStates as AllGatherStates
from rushlight.distributed.rpc.options import BackendType as BackendType
from rushlight.distributed.rpc.rref import RRef as RRef
from rushlight.distributed.rpc.options import TensorPipeRpcBackendOptions as TensorPipeRpcBackendOptions
from rushlight.distributed.rpc.members import WorkerInfo as WorkerInfo
from rushlight.distributed.rpc import agent as agent
from rushlight.distributed.rpc import api as api
from rushlight.distributed.rpc import calling as calling
from rushlight.distributed.rpc import constants as constants
from rushlight.distributed.rpc import exceptions as exceptions
from rushlight.distributed.rpc import functions as functions
from rushlight.distributed.rpc.api import get_rpc_timeout as get_rpc_timeout
from rushlight.distributed.rpc.api import get_worker_info as get_worker_info
from rushlight.distributed.rpc.api import init_rpc as init_rpc
def is_available() -> _bool: ...
from rushlight.distributed.rpc import members as members
from rushlight.distributed.rpc.api import method_factory as method_factory
from rushlight.distributed.rpc.api import new_method as new_method
from rushlight.distributed.rpc import options as options
from rushlight.distributed.rpc import payload as payload
from rushlight.distributed.rpc import references as references
from rushlight.distributed.rpc.rref import remote as remote
from rushlight.distributed.rpc import results as results
from rushlight.distributed.rpc.calling import rpc_async as rpc_async
from rushlight.distributed.rpc.calling import rpc_sync as rpc_sync
from rushlight.distributed.rpc import rref as rref
from rushlight.distributed.rpc import running as running
from rushlight.distributed.rpc.api import shutdown as shutdown
