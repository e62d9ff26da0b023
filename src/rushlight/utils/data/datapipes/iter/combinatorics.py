"""`torch.utils.data.datapipes.iter.combinatorics`: names at the place where PyTorch has them."""

from rushlight.utils.data.datapipes.iter.sources import SamplerIterDataPipe, ShufflerIterDataPipe

__all__ = ["SamplerIterDataPipe", "ShufflerIterDataPipe"]
