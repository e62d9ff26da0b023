"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


class DistributedOptimizer: ...
from rushlight.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from rushlight.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer
from rushlight.distributed.optim import post_localSGD_optimizer as post_localSGD_optimizer
from rushlight.distributed.optim import zero_redundancy_optimizer as zero_redundancy_optimizer
