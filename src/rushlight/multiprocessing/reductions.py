"""How `multiprocessing`'s messages take tensors apart: see `rushlight._engine.handing`."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler as ForkingPickler
from typing import Any

from rushlight._engine.handing import join, reduce_storage, reduce_tensor
from rushlight._engine.pickling import rebuild_tensor
from rushlight._engine.shared import share_tensor
from rushlight.nn.parameter import Parameter

__all__ = ["init_reductions", "rebuild_tensor", "reduce_storage", "reduce_tensor"]


def _reduce_parameter(parameter: Parameter) -> tuple[Any, ...]:
    # Its memory moves as a whole: what its own way of pickling hands over is another tensor over the same memory.
    share_tensor(parameter)
    return parameter.__reduce_ex__(2)  # type: ignore[no-any-return]


def init_reductions() -> None:
    """Teach `multiprocessing` to hand tensors over by their memory."""
    join()
    ForkingPickler.register(Parameter, _reduce_parameter)
