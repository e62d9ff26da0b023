"""Masked tensors, and reductions and normalisations that leave elements out: where the mask is False, an element does
not count.

>>> import rushlight as torch
>>> x, mask = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])
>>> torch.masked.sum(x, mask=mask)
tensor(4.)

A `MaskedTensor` carries its mask along, through operators and through backward:

>>> import warnings
>>> warnings.simplefilter("ignore")
>>> torch.masked.masked_tensor(x, mask).exp()
MaskedTensor(
  [  2.7183,       --,  20.0855]
)
"""

from rushlight.masked import operators, shapes  # say what operators mean for masked tensors
from rushlight.masked.masked_tensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor
from rushlight.masked.reductions import (
    amax,
    amin,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    normalize,
    prod,
    softmax,
    softmin,
    std,
    sum,
    var,
)

__all__ = [
    "MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor", "log_softmax", "logaddexp",
    "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip
