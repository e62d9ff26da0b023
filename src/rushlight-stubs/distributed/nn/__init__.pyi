"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight._engine.autograd.function import Function as Function
from rushlight.distributed.c10d.options import ReduceOp as ReduceOp
from rushlight.distributed.nn.api.remote_module import RemoteModule as RemoteModule
from rushlight.distributed.nn.functional import all_gather as all_gather
from rushlight.distributed.nn.functional import all_reduce as all_reduce
from rushlight.distributed.nn.functional import all_to_all as all_to_all
from rushlight.distributed.nn.functional import all_to_all_single as all_to_all_single
from rushlight.distributed.nn import api as api
from rushlight.distributed.nn.functional import broadcast as broadcast
from rushlight.distributed.nn import functional as functional
from rushlight.distributed.nn.functional import gather as gather
from rushlight.distributed.c10d.world import group as group
from rushlight.distributed.nn.functional import reduce as reduce
from rushlight.distributed.nn.functional import reduce_scatter as reduce_scatter
from rushlight.distributed.nn.functional import scatter as scatter
