"""Where gradients stop: `detach` and `no_grad` in the graph of a whole program."""

from __future__ import annotations

from rushlight._base.lazy import numpy as np
from rushlight._prims.record import ProgramPrimitive, prim
from rushlight._prims.samples import Samples, floats, integers

__all__: list[str] = []


def _samples() -> Samples:
    yield [floats((2, 3))], {}
    yield [integers((4,))], {}


ProgramPrimitive(
    "stop_gradient", "x, through which no derivative goes.", family="shape", spec=lambda x: (x.shape, x.dtype), reference=lambda x: np.array(x),
    samples=_samples, lower=("identity",), vjp=lambda ct, out, x: (None,), jvp=lambda tangents, out, x: None,
    batch=lambda batched, x: prim.stop_gradient(x),
)  # fmt: skip
