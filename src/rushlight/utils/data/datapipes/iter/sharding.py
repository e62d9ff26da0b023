"""`torch.utils.data.datapipes.iter.sharding`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.iter.sources import ShardingFilterIterDataPipe

__all__ = ["ShardingFilterIterDataPipe"]
