"""Where the calls of a whole program begin and end: what a call reads, and what it leaves in memory.

A program that is compiled gives the bits of its calls one after another.  A border says what these depend on: which
values are results of one call, and how they lie.  Without borders a graph is one call.  Calls are numbered, so that
equal computations of two calls stay two: the order of the nodes of a call decides in which kernels they are, and so in
which order sums are added.

A backend marks values of whole programs, so that they are computed as by calls of their own: `unfused`, `laid_out`.
"""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims.record import ProgramPrimitive, prim
from rushlight._prims.samples import Samples, floats, integers


def _border_spec(*xs: Any, strides: tuple[tuple[int, ...], ...]) -> Any:
    if len(xs) != len(strides) or any(len(x.shape) != len(s) for x, s in zip(xs, strides, strict=True)):
        raise ValueError(f"{len(xs)} results of a call do not lie with strides {list(strides)}")
    return [(x.shape, x.dtype) for x in xs]


def _batched(batched: Any, *xs: Any, strides: Any) -> Any:
    """The results for a batch, which lie as they like."""
    size = next(x.shape[0] for x, flag in zip(xs, batched, strict=True) if flag)
    return tuple(
        x if flag else prim.broadcast(x, shape=(size, *x.shape), dims=tuple(range(1, len(x.shape) + 1)))
        for x, flag in zip(xs, batched, strict=True)
    )


def _border_samples() -> Samples:
    yield [floats((2, 3))], {"strides": ((3, 1),)}
    yield [floats((2, 3)), integers((4,))], {"strides": ((1, 2), (1,))}


def _operand_samples() -> Samples:
    yield [floats((2, 3))], {"call": 0}
    yield [integers((4,))], {"call": 1}


ProgramPrimitive(
    "border", "The results of one call, which lie in memory with `strides`.", family="shape", spec=_border_spec, multiple=True,
    reference=lambda *xs, strides: tuple(np.array(x) for x in xs), samples=_border_samples, lower=("identity",),
    vjp=lambda cts, outs, *xs, strides: tuple(cts), jvp=lambda tangents, outs, *xs, strides: tuple(tangents),
    batch=_batched,
)  # fmt: skip
ProgramPrimitive(
    "operand", "x, as call number `call` is given it: what is before is a view of memory, what is after is the call.", family="shape",
    spec=lambda x, call: (x.shape, x.dtype), reference=lambda x, call: np.array(x), samples=_operand_samples, lower=("identity",),
    vjp=lambda ct, out, x, call: (ct,), jvp=lambda tangents, out, x, call: tangents[0],
    batch=lambda batched, x, call: prim.operand(x, call=call),
)  # fmt: skip


# ***** marks *****


def _laid_out_spec(x: Any, strides: tuple[int, ...]) -> Any:
    if len(x.shape) != len(strides):
        raise ValueError(f"{len(x.shape)} dims do not lie with strides {list(strides)}")
    return x.shape, x.dtype


def _unfused_samples() -> Samples:
    yield [floats((2, 3))], {}


def _laid_out_samples() -> Samples:
    yield [floats((2, 3))], {"strides": (1, 2)}


ProgramPrimitive(
    "unfused", "x, for a reduction that has a kernel for itself.", family="shape", spec=lambda x: (x.shape, x.dtype),
    reference=lambda x: np.array(x), samples=_unfused_samples, lower=("identity",), vjp=lambda ct, out, x: (ct,),
    jvp=lambda tangents, out, x: tangents[0], batch=lambda batched, x: prim.unfused(x),
)  # fmt: skip
ProgramPrimitive(
    "laid_out", "x, which a library call reads or leaves in memory with `strides`.", family="shape", spec=_laid_out_spec,
    reference=lambda x, strides: np.array(x), samples=_laid_out_samples, lower=("identity",),
    vjp=lambda ct, out, x, strides: (ct,), jvp=lambda tangents, out, x, strides: tangents[0],
    batch=lambda batched, x, strides: x,
)  # fmt: skip
