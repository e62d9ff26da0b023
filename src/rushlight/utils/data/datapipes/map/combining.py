"""`torch.utils.data.datapipes.map.combining`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.map.steps import ConcaterMapDataPipe, ZipperMapDataPipe

__all__ = ["ConcaterMapDataPipe", "ZipperMapDataPipe"]
