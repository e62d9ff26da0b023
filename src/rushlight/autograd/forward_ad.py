"""Forward mode by hand: tensors with tangents inside of a `dual_level`.

>>> import rushlight as torch
>>> import rushlight.autograd.forward_ad as fwAD
>>> with fwAD.dual_level():
...     x = fwAD.make_dual(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0]))
...     fwAD.unpack_dual(torch.sin(x)).tangent
tensor([1.0000, 0.5403])
"""

from __future__ import annotations

from rushlight._interface.base import no_name
from rushlight._surface.functorch.dual_levels import (
    UnpackedDualTensor,
    dual_level,
    enter_dual_level,
    exit_dual_level,
    make_dual,
    unpack_dual,
)

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


def __getattr__(name: str) -> int:
    if name == "_current_level":  # of the level that is open, or -1
        return dual_level.current()
    raise no_name(__name__, name)
