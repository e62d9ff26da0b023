"""Calls among the processes of a group, as records: their meaning, and their group.

`group` is the number of a process group.  Nothing runs them yet: there are no process groups.  The reference computes
the result for a group of one process.
"""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import MissingFeatureError
from rushlight._base.lazy import numpy as np
from rushlight._prims.record import (
    Aval,
    Effect,
    EffectPrimitive,
    ProgramPrimitive,
    never_batched,
    not_differentiable,
    prim,
)
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import INT64

__all__ = ["REDUCTIONS"]

REDUCTIONS = ("sum", "prod", "min", "max", "avg")
LATER = not_differentiable("collectives have no derivative before process groups run them")


def _check(name: str, order: Any, group: int, size: int) -> None:
    if order.shape != () or order.dtype is not INT64:
        raise TypeError(f"prim.{name} takes the order of calls in group {group} first, int64[]")
    if not isinstance(group, int) or group < 0 or size < 1:
        raise ValueError(f"prim.{name}: {group!r} with {size!r} processes is no process group")


def _all_reduce_spec(order: Any, x: Any, group: int, size: int, reduce: str) -> list[Aval]:
    _check("all_reduce", order, group, size)
    if reduce not in REDUCTIONS:
        raise ValueError(f"prim.all_reduce: reduce is one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    return [((), INT64), (x.shape, x.dtype)]


def _all_gather_spec(order: Any, x: Any, group: int, size: int) -> list[Aval]:
    _check("all_gather", order, group, size)
    return [((), INT64), ((size, *x.shape), x.dtype)]


def _alone(name: str, group: int, size: int) -> None:
    if size != 1:
        raise MissingFeatureError(
            f"prim.{name} among {size} processes of group {group}: there are no process groups yet"
        )


def _all_reduce(order: Any, x: Any, group: int, size: int, reduce: str) -> Any:
    _alone("all_reduce", group, size)
    return order + 1, x


def _all_gather(order: Any, x: Any, group: int, size: int) -> Any:
    _alone("all_gather", group, size)
    return order + 1, x[None]


def _all_reduce_samples() -> Samples:
    yield [np.array(0), floats((2, 3))], {"group": 0, "size": 1, "reduce": "sum"}


def _all_gather_samples() -> Samples:
    yield [np.array(4), floats((3,), dtype="float32")], {"group": 2, "size": 1}


EffectPrimitive(
    "all_reduce", "The reduction of x over the processes of a group, for each of them.", Effect("communicates"), family="collective",
    multiple=True, spec=_all_reduce_spec, reference=_all_reduce, samples=_all_reduce_samples, vjp=LATER, jvp=LATER,
    batch=never_batched,
)  # fmt: skip
EffectPrimitive(
    "all_gather", "The x of every process of a group, along a new first dim.", Effect("communicates"), family="collective",
    multiple=True, spec=_all_gather_spec, reference=_all_gather, samples=_all_gather_samples, vjp=LATER, jvp=LATER,
    batch=never_batched,
)  # fmt: skip

# ***** in graphs of one process of a mesh *****


def _reduce_terms_samples() -> Samples:
    yield [floats((2, 3))], {"axis": 0, "kind": "sum"}


ProgramPrimitive(
    "reduce_terms", "The reduction of every process's x along an axis of a mesh; whoever runs the graph cuts it here.", family="collective",
    spec=lambda x, axis, kind: (x.shape, x.dtype), reference=lambda x, axis, kind: np.array(x), samples=_reduce_terms_samples,
    lower=("identity",), vjp=LATER, jvp=LATER, batch=lambda batched, x, axis, kind: prim.reduce_terms(x, axis=axis, kind=kind),
)  # fmt: skip
