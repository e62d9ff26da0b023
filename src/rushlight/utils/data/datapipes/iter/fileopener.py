"""`torch.utils.data.datapipes.iter.fileopener`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.iter.files import FileOpenerIterDataPipe

__all__ = ["FileOpenerIterDataPipe"]
