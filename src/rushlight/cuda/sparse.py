"""The older tensor classes of sparse tensors on GPUs, as `torch.cuda.sparse`."""

from __future__ import annotations

from typing import Any

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

_classes: Any = sparse
BFloat16Tensor = on_gpus(_classes.BFloat16Tensor)
ByteTensor = on_gpus(_classes.ByteTensor)
CharTensor = on_gpus(_classes.CharTensor)
DoubleTensor = on_gpus(_classes.DoubleTensor)
FloatTensor = on_gpus(_classes.FloatTensor)
HalfTensor = on_gpus(_classes.HalfTensor)
IntTensor = on_gpus(_classes.IntTensor)
LongTensor = on_gpus(_classes.LongTensor)
ShortTensor = on_gpus(_classes.ShortTensor)
