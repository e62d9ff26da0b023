"""Optimizers that update all parameters of a group by few kernels, whatever else would be chosen: `foreach=True` is their
default.

>>> import rushlight as torch
>>> from rushlight.optim import _multi_tensor
>>> _multi_tensor.SGD([torch.zeros(2)], lr=0.1).defaults["foreach"]
True
"""

from __future__ import annotations

from typing import Any

from rushlight import optim

__all__ = ["ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax"]


def _with_foreach(base: Any) -> Any:
    """A subclass of an optimizer whose `foreach` is True."""

    class MultiTensor(base):
        __doc__ = f"`optim.{base.__name__}` with `foreach=True`."

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, foreach=True, **kwargs)

    MultiTensor.__name__ = MultiTensor.__qualname__ = base.__name__
    return MultiTensor


ASGD = _with_foreach(optim.ASGD)
Adadelta = _with_foreach(optim.Adadelta)
Adagrad = _with_foreach(optim.Adagrad)
Adam = _with_foreach(optim.Adam)
AdamW = _with_foreach(optim.AdamW)
Adamax = _with_foreach(optim.Adamax)
NAdam = _with_foreach(optim.NAdam)
RAdam = _with_foreach(optim.RAdam)
RMSprop = _with_foreach(optim.RMSprop)
Rprop = _with_foreach(optim.Rprop)
SGD = _with_foreach(optim.SGD)
