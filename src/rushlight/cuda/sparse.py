"""The older tensor classes of sparse tensors on GPUs, as `torch.cuda.sparse`: classes without objects."""

from __future__ import annotations

from rushlight.cuda.access import gpu_class

__all__ = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]

BFloat16Tensor = gpu_class("sparse.BFloat16Tensor")
ByteTensor = gpu_class("sparse.ByteTensor")
CharTensor = gpu_class("sparse.CharTensor")
DoubleTensor = gpu_class("sparse.DoubleTensor")
FloatTensor = gpu_class("sparse.FloatTensor")
HalfTensor = gpu_class("sparse.HalfTensor")
IntTensor = gpu_class("sparse.IntTensor")
LongTensor = gpu_class("sparse.LongTensor")
ShortTensor = gpu_class("sparse.ShortTensor")
