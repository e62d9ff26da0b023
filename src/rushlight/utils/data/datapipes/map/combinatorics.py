"""`torch.utils.data.datapipes.map.combinatorics`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.map.steps import ShufflerIterDataPipe

__all__ = ["ShufflerIterDataPipe"]
