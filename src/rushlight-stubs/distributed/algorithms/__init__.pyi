"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.distributed.algorithms.join import Join as Join
from rushlight.distributed.algorithms.join import JoinHook as JoinHook
from rushlight.distributed.algorithms.join import Joinable as Joinable
from rushlight.distributed.algorithms import ddp_comm_hooks as ddp_comm_hooks
from rushlight.distributed.algorithms import join as join
from rushlight.distributed.algorithms import model_averaging as model_averaging
