"""Gradients that a program replaces without reading them: their memory is free before the program runs.

Eager code that begins with `zero_grad()` lets the old gradients go before it makes new ones.  A program that is given
them, because its conditions looked at them, does the same where nobody else can see their memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

from rushlight._base.references import BY_VARIABLE
from rushlight._engine.core.memory import MEMORY
from rushlight._engine.core.tensor import Tensor

__all__ = ["LEAST_BYTES", "NOT_GIVEN", "UNSEEN", "Unseen", "release", "replaced_gradients"]


class Unseen(Enum):
    """Stands for a gradient, or none, that an input comes with and nobody looks at."""

    UNSEEN = 0


UNSEEN = Unseen.UNSEEN
NOT_GIVEN = -1

LEAST_BYTES = 1 << 16  # smaller ones are not worth the look


def replaced_gradients(build: Any, used: set[int]) -> list[tuple[int, int]]:
    """(input, number of its old gradient among the inputs, NOT_GIVEN for those that nobody looked at) of gradients that
    are replaced; `used` are the inputs that the program reads, returns or changes.
    """
    numbers = {id(x): i for i, x in enumerate(build.standing)}
    found = []
    for i, _ in build.grads:
        old = build.first_grads[i]
        if old is UNSEEN:
            if build.specs[i].numel * build.specs[i].dtype.itemsize >= LEAST_BYTES:
                found.append((i, NOT_GIVEN))
            continue
        place = numbers.get(id(old)) if old is not None else None
        if place is not None and place not in used and old._spec.numel * old._spec.dtype.itemsize >= LEAST_BYTES:
            found.append((i, place))
    return found


def release(inputs: Sequence[Tensor], replaced: Sequence[tuple[int, int]]) -> None:
    """Give back the memory of old gradients that only `inputs` and the leaves still hold."""
    for i, place in replaced:
        meta = inputs[i]._autograd_meta
        if place == NOT_GIVEN:
            if meta is not None:
                meta.grad = None
            continue
        old = inputs[place]
        if meta is None or meta.grad is not old:
            continue
        meta.grad = None
        if getrefcount(old) <= _HELD and _is_alone(old):
            old._storage = MEMORY.alloc(0)  # the tensor itself goes when the call ends


_HELD = 1 + BY_VARIABLE  # by `inputs` (or a slot), and by a variable here


def _is_alone(x: Tensor) -> bool:
    """Whether a tensor's memory is the pool's, and shown by nothing else."""
    storage = x._storage
    if getrefcount(storage) > _HELD or getweakrefcount(x) or type(x) is not Tensor:
        return False
    return storage.owner is None and not storage.lent and storage.born >= 0 and x._autograd_meta is None
