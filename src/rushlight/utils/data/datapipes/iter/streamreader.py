"""`torch.utils.data.datapipes.iter.streamreader`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.iter.files import StreamReaderIterDataPipe

__all__ = ["StreamReaderIterDataPipe"]
