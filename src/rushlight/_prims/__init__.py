"""The primitives: 127 strict operations; every operator is written over them.

    from rushlight._prims import prim
    y = prim.exp(x)             # inside a trace

Each family is one file and each primitive one record (`record.Primitive`) with all its rules.
"""

from rushlight._prims.record import PRIMITIVES, Primitive, not_differentiable, prim

# The families, in the order of their dependencies.  Importing a family declares its primitives.
from rushlight._prims import create, pointwise, arithmetic, stepwise, logic, complexes  # isort: skip
from rushlight._prims import (
    contraction,
    diagonal,
    indexed,
    ordering,
    recurrent,
    reduce,
    resample,
    scan,
    shape,
    weighted_gather,
    windowed,
    windows,
)  # isort: skip

from rushlight._prims import attention, fourier, factor, factor_qr, factor_spectral, factor_ldl, factor_least  # isort: skip

__all__ = ["PRIMITIVES", "Primitive", "not_differentiable", "prim"]
