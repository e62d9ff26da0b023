"""`torch.utils.data.datapipes.map.grouping`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.map.steps import BatcherMapDataPipe

__all__ = ["BatcherMapDataPipe"]
