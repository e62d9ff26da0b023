"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.distributed.algorithms import ddp_comm_hooks as ddp_comm_hooks
from rushlight.distributed.algorithms import model_averaging as model_averaging
