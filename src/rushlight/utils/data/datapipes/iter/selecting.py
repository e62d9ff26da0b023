"""`torch.utils.data.datapipes.iter.selecting`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.iter.callable import FilterIterDataPipe

__all__ = ["FilterIterDataPipe"]
