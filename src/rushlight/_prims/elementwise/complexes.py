"""Complex numbers from their parts, and their parts.

Gradients follow PyTorch: the cotangent of z is dL/d(re z) + i dL/d(im z).
"""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import batch_pointwise, pointwise, require, require_equal
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, floats, pointwise_samples
from rushlight._types.dtype import FLOAT16

__all__: list[str] = []

COMPLEX = ("complex128", "complex64")


def _part_spec(name: str) -> Any:
    def spec(x: Any) -> Aval:
        require(name, x, "c", half=True)
        return x.shape, x.dtype.to_real()

    return spec


def _complex_spec(re: Any, im: Any) -> Aval:
    require("complex", re, "f", half=re.dtype is FLOAT16)
    require_equal("complex", re, im)
    return re.shape, re.dtype.to_complex()


def _complex_jvp(tangents: Any, out: Any, re: Any, im: Any) -> Any:
    if tangents[0] is None and tangents[1] is None:
        return None
    return prim.complex(*(build.zeros_like(re) if t is None else t for t in tangents))


def _complex_samples() -> Samples:
    for dtype in ("float64", "float32"):
        for shape in ((3, 5), (), (0, 2)):
            yield [floats(shape, 1, dtype=dtype), floats(shape, 2, dtype=dtype)], {}


def _join(re: Any, im: Any) -> Any:
    result = np.empty(np.shape(re), dtype="complex128" if re.dtype == "float64" else "complex64")
    result.real, result.imag = re, im
    return result


Primitive(
    "complex", "re + i im.", family="pointwise", spec=_complex_spec, lower=("scalar", "complex"), samples=_complex_samples,
    reference=_join, vjp=lambda ct, out, re, im: (prim.real(ct), prim.imag(ct)), jvp=_complex_jvp, batch=batch_pointwise("complex"),
)  # fmt: skip
Primitive(
    "real", "The real part.", family="pointwise", spec=_part_spec("real"), lower=("scalar", "real"), reference=lambda x: x.real,
    vjp=lambda ct, out, x: (build.complex_(ct),), jvp=lambda tangents, out, x: prim.real(tangents[0]),
    batch=batch_pointwise("real"), samples=pointwise_samples(COMPLEX),
)  # fmt: skip
Primitive(
    "imag", "The imaginary part.", family="pointwise", spec=_part_spec("imag"), lower=("scalar", "imag"), reference=lambda x: x.imag,
    vjp=lambda ct, out, x: (prim.complex(build.zeros_like(ct), ct),), jvp=lambda tangents, out, x: prim.imag(tangents[0]),
    batch=batch_pointwise("imag"), samples=pointwise_samples(COMPLEX),
)  # fmt: skip
pointwise(
    "conj", "re - i im.", kinds="c", half=True, reference=lambda x: np.conj(x), samples=pointwise_samples(COMPLEX),
    rules=[lambda t, c, out, x: prim.conj(t)],
)  # fmt: skip
