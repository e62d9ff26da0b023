"""Checks of elements that only decide whether an error is raised: while a program is recorded they are left to it."""

from __future__ import annotations

from collections.abc import Callable

from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor

__all__ = ["deferred"]


def deferred(x: Tensor, failed: Callable[[Tensor], Tensor]) -> bool:
    """Whether a check of the elements of `x` is left to the program that is being recorded.

    `failed(x)` gives a tensor that is true where an element is wrong.  Calls of the program look at it, and where it is
    true the calls that were recorded run one by one, so that this check raises its error where it stands.
    """
    recording = STATE.recording
    if recording is None or not recording.is_recorded(x):
        return False
    word, STATE.word = STATE.word, STATE.word & ~GRAD
    try:
        recording.check(failed(x.detach()).any())
    finally:
        STATE.word = word
    return True
