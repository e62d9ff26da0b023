"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.distributed.elastic import agent as agent
from rushlight.distributed.elastic import events as events
from rushlight.distributed.elastic import metrics as metrics
from rushlight.distributed.elastic import multiprocessing as multiprocessing
from rushlight.distributed.elastic import rendezvous as rendezvous
from rushlight.distributed.elastic import timer as timer
from rushlight.distributed.elastic import utils as utils
