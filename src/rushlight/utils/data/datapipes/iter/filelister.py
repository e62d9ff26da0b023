"""`torch.utils.data.datapipes.iter.filelister`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.iter.files import FileListerIterDataPipe

__all__ = ["FileListerIterDataPipe"]
