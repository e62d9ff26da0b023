"""Levels of function transforms, for packages that must know of them."""

from __future__ import annotations

from rushlight._engine.functorch.batched import BatchedTensor
from rushlight._engine.functorch.gradients import vjp_rows
from rushlight._engine.functorch.transformed import LEVELS, root, top_level
from rushlight._surface.functorch.reverse import basis

__all__ = [
    "LEVELS",  # `LEVELS.stack`: the levels that are open
    "top_level",  # the value of the innermost level among tensors
    "root",  # the plain tensor below all levels
    "BatchedTensor",  # a batch that looks like one item
    "vjp_rows",  # vector-Jacobian products of many rows at once
    "basis",  # unit vectors of the space of tensors
]
