"""The primitives: 133 strict operations; every operator is written over them.

    from rushlight._prims import prim
    y = prim.exp(x)             # inside a trace

Each family is one file and each primitive one record (`record.Primitive`) with all its rules.
"""

from rushlight._prims.record import PRIMITIVES, Primitive, not_differentiable, prim

# The families, in the order of their dependencies.  Importing a family declares its primitives.
from rushlight._prims.shapes import create  # isort: skip
from rushlight._prims.elementwise import pointwise, arithmetic, requirements  # isort: skip
from rushlight._prims import stepwise  # isort: skip
from rushlight._prims.elementwise import logic, complexes  # isort: skip
from rushlight._prims.linalg import contraction, diagonal  # isort: skip
from rushlight._prims.shapes import indexed  # isort: skip
from rushlight._prims.reductions import ordering  # isort: skip
from rushlight._prims.nn import recurrent  # isort: skip
from rushlight._prims.reductions import reduce  # isort: skip
from rushlight._prims.nn import resample  # isort: skip
from rushlight._prims.reductions import scan  # isort: skip
from rushlight._prims.shapes import shape, weighted_gather  # isort: skip
from rushlight._prims.nn import windowed, windows, window_dot, attention, ragged_attention  # isort: skip
from rushlight._prims.linalg import grouped  # isort: skip
from rushlight._prims.linalg import fourier, factor, factor_qr, factor_spectral, factor_ldl, factor_least  # isort: skip

__all__ = ["PRIMITIVES", "Primitive", "not_differentiable", "prim"]
