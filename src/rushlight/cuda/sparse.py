"""The older tensor classes of sparse tensors on GPUs, as `torch.cuda.sparse`."""

from __future__ import annotations

from rushlight import sparse
from rushlight.cuda.access import on_gpus

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

BFloat16Tensor = on_gpus(sparse.BFloat16Tensor)
ByteTensor = on_gpus(sparse.ByteTensor)
CharTensor = on_gpus(sparse.CharTensor)
DoubleTensor = on_gpus(sparse.DoubleTensor)
FloatTensor = on_gpus(sparse.FloatTensor)
HalfTensor = on_gpus(sparse.HalfTensor)
IntTensor = on_gpus(sparse.IntTensor)
LongTensor = on_gpus(sparse.LongTensor)
ShortTensor = on_gpus(sparse.ShortTensor)
