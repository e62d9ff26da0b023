"""Arrays without operands: `full` and `iota`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims.numbers import stored
from rushlight._prims.record import Aval, Primitive, Rule
from rushlight._prims.samples import Samples
from rushlight._types.dtype import BOOL, FLOAT32, INT64, DType

__all__: list[str] = []


def _check_shape(name: str, shape: Sequence[int]) -> None:
    if not isinstance(shape, tuple) or any(not isinstance(s, int) or s < 0 for s in shape):
        raise ValueError(f"prim.{name} takes a tuple of sizes >= 0, got {shape!r}")


def _full_spec(shape: tuple[int, ...], value: Any, dtype: DType) -> Aval:
    _check_shape("full", shape)
    return shape, dtype


def _iota_spec(shape: tuple[int, ...], dim: int, dtype: DType) -> Aval:
    _check_shape("iota", shape)
    if not 0 <= dim < len(shape):
        raise ValueError(f"prim.iota: dim {dim} is not a dim of {list(shape)}")
    if dtype is BOOL or dtype.is_complex:
        raise TypeError(f"prim.iota counts in integers or floats, not in {dtype.name}")
    return shape, dtype


def _iota(shape: tuple[int, ...], dim: int, dtype: DType) -> Any:
    steps = [1] * len(shape)
    steps[dim] = shape[dim]
    return stored(np.broadcast_to(np.arange(shape[dim]).reshape(steps), shape), dtype)


def _never_batched(name: str) -> Rule:
    def rule(batched: Any, *xs: Any, **p: Any) -> Any:
        raise AssertionError(f"prim.{name} has no inputs, so nothing of it can be batched")

    return rule


def _full_samples() -> Samples:
    for shape in ((2, 3), (), (0, 4)):
        yield [], {"shape": shape, "value": 2.5, "dtype": FLOAT32}
    yield [], {"shape": (3,), "value": True, "dtype": BOOL}
    yield [], {"shape": (3,), "value": -7, "dtype": INT64}


def _iota_samples() -> Samples:
    yield [], {"shape": (3, 4), "dim": 1, "dtype": INT64}
    yield [], {"shape": (3, 4), "dim": 0, "dtype": FLOAT32}
    yield [], {"shape": (0,), "dim": 0, "dtype": INT64}


def _no_inputs(*args: Any, **p: Any) -> tuple[Any, ...]:
    return ()


Primitive(
    "full", "Every element is `value`.", family="create", spec=_full_spec, samples=_full_samples, lower=("index", "full"),
    reference=lambda shape, value, dtype: stored(np.full(shape, value), dtype),
    vjp=_no_inputs, jvp=lambda tangents, out, **p: None, batch=_never_batched("full"),
)  # fmt: skip
Primitive(
    "iota", "The index along `dim`.", family="create", spec=_iota_spec, samples=_iota_samples, lower=("index", "iota"),
    reference=_iota, vjp=_no_inputs, jvp=lambda tangents, out, **p: None, batch=_never_batched("iota"),
)  # fmt: skip
