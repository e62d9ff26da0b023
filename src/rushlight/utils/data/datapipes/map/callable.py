"""`torch.utils.data.datapipes.map.callable`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.map.steps import MapperMapDataPipe

__all__ = ["MapperMapDataPipe"]
