"""Conditions that data must fulfil while a kernel runs, with what is said where they do not hold.

Kernels note a code; who called them says the text, as a RuntimeError.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight._base.lazy import numpy as np
from rushlight._prims.families import lift
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, any_dtype
from rushlight._types.dtype import BOOL

__all__ = ["REQUIREMENTS", "Requirement"]


class Requirement(NamedTuple):
    """A condition that can fail while a kernel runs."""

    code: int  # what a CPU kernel notes
    text: str  # of the RuntimeError


REQUIREMENTS = {
    "input is a probability": Requirement(5, "all elements of input should be between 0 and 1"),
    "target is a probability": Requirement(7, "all elements of target should be between 0 and 1"),
    "zero point is in range": Requirement(8, "`zero_point` must be between `quant_min` and `quant_max`."),
    "range is ordered": Requirement(10, "In ChooseQuantizationParams, min should be less than or equal to max"),
}


def _spec(x: Any, holds: Any, requirement: str) -> Aval:
    if holds.dtype is not BOOL:
        raise TypeError(f"prim.require takes a bool condition, got {holds.dtype.name}")
    if holds.shape != x.shape:
        raise ValueError(f"prim.require takes operands of one shape, got {list(x.shape)} and {list(holds.shape)}")
    if requirement not in REQUIREMENTS:
        raise ValueError(f"there is no requirement {requirement!r}; the table is {__name__}.REQUIREMENTS")
    return x.shape, x.dtype


def _reference(x: Any, holds: Any, requirement: str) -> Any:
    if not holds.all():
        raise RuntimeError(REQUIREMENTS[requirement].text)
    return x


def _samples() -> Samples:
    for requirement, dtype in zip(REQUIREMENTS, ("float32", "float64", "int64", "complex64"), strict=True):
        for shape in ((3, 5), (), (0, 2)):
            yield [any_dtype(shape, dtype), np.ones(shape, bool)], {"requirement": requirement}


Primitive(
    "require", "x; RuntimeError with the text of `requirement` unless `holds` is true everywhere.", family="pointwise", spec=_spec,
    reference=_reference, lower=("scalar", "require"), samples=_samples, vjp=lambda ct, out, x, holds, requirement: (ct, None),
    jvp=lambda tangents, out, x, holds, requirement: tangents[0],
    batch=lambda batched, *xs, requirement: prim.require(*lift(batched, xs), requirement=requirement),
)  # fmt: skip
