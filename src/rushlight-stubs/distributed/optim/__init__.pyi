"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.distributed.optim.optimizer import DistributedOptimizer as DistributedOptimizer
from rushlight.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from rushlight.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer
from rushlight.distributed.optim import apply_optimizer_in_backward as apply_optimizer_in_backward
from rushlight.distributed.optim.functional import as_functional_optim as as_functional_optim
from rushlight.distributed.optim import functional as functional
from rushlight.distributed.optim import optimizer as optimizer
from rushlight.distributed.optim import post_localSGD_optimizer as post_localSGD_optimizer
from rushlight.distributed.optim import zero_redundancy_optimizer as zero_redundancy_optimizer
