"""Calls among the processes of a group: shapes, derivatives, batching, and their meaning over a list of ranks.

A collective takes the *order* of its group first, an int64, and gives the order after it: calls of one group are a chain
of data dependences, which no pass can change.  `group` is the number of a process group, `size` how many processes it
has, `place` which of them runs the graph.

`OVER_RANKS[name](xs, **params)` is the reference: the operands of all ranks in, their results out.

    >>> import numpy as np
    >>> from rushlight._prims.collectives import OVER_RANKS
    >>> OVER_RANKS["all_reduce"]([np.array([1.0, 2.0]), np.array([3.0, 5.0])], group=0, size=2, reduce="sum", factor=None)
    [array([4., 7.]), array([4., 7.])]

Derivatives take the loss to be the sum of the losses of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from rushlight._base.errors import NotDifferentiableError
from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.record import Aval, ProgramPrimitive, building, not_differentiable, prim
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import INT64

__all__ = ["COLLECTIVES", "LINEAR", "OVER_RANKS", "REDUCTIONS"]

BITWISE = ("band", "bor", "bxor")
LINEAR = ("sum", "avg", "premul_sum")
REDUCTIONS = (*LINEAR, "prod", "min", "max", *BITWISE)

Ranks = Callable[..., list[Any]]

# name -> the results of all ranks from the operands of all ranks.
OVER_RANKS: dict[str, Ranks] = {}
COLLECTIVES = (
    "all_reduce", "reduce_to", "broadcast_from", "all_gather", "reduce_scatter", "all_to_all", "permute_ranks",
)  # fmt: skip

# ***** checks and shapes *****


def _check(name: str, order: Any, group: int, size: int, **places: int) -> None:
    """ValueError unless a group and places in it are such; TypeError unless the order comes first."""
    if order.shape != () or order.dtype is not INT64:
        raise TypeError(f"prim.{name} takes the order of calls in group {group} first, int64[]")
    if not isinstance(group, int) or group < 0 or size < 1:
        raise ValueError(f"prim.{name}: {group!r} with {size!r} processes is no process group")
    for what, place in places.items():
        if not 0 <= place < size:
            raise ValueError(f"prim.{name}: {what} is a place among {size} processes, got {place!r}")


def _check_reduction(name: str, x: Any, reduce: str, factor: float | None) -> None:
    if reduce not in REDUCTIONS:
        raise ValueError(f"prim.{name}: reduce is one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    if (factor is not None) != (reduce == "premul_sum"):
        raise ValueError(f"prim.{name}: a factor goes with premul_sum, and with nothing else")
    if reduce in BITWISE and not (x.dtype.is_integer or x.dtype.name == "bool"):
        raise TypeError(f"prim.{name}: {reduce} takes integers, got {x.dtype.name}")


def _check_rows(name: str, x: Any, sizes: Sequence[int], size: int) -> None:
    if len(sizes) != size or min(sizes) < 0:
        raise ValueError(f"prim.{name}: {list(sizes)} are not the rows of {size} processes")
    if not x.shape:
        raise ValueError(f"prim.{name} takes rows, got a scalar")


def _all_reduce_spec(order: Any, x: Any, group: int, size: int, reduce: str, factor: float | None) -> list[Aval]:
    _check("all_reduce", order, group, size)
    _check_reduction("all_reduce", x, reduce, factor)
    return [((), INT64), (x.shape, x.dtype)]


def _reduce_spec(
    order: Any, x: Any, group: int, size: int, reduce: str, factor: float | None, root: int, place: int
) -> list[Aval]:
    _check("reduce_to", order, group, size, root=root, place=place)
    _check_reduction("reduce_to", x, reduce, factor)
    return [((), INT64), (x.shape, x.dtype)]


def _broadcast_spec(order: Any, x: Any, group: int, size: int, root: int, place: int) -> list[Aval]:
    _check("broadcast_from", order, group, size, root=root, place=place)
    return [((), INT64), (x.shape, x.dtype)]


def _all_gather_spec(
    order: Any, x: Any, group: int, size: int, sizes: tuple[int, ...], place: int, together: bool
) -> list[Aval]:
    _check("all_gather", order, group, size, place=place)
    _check_rows("all_gather", x, sizes, size)
    if x.shape[0] != sizes[place]:
        raise ValueError(f"prim.all_gather: process {place} gives {sizes[place]} rows, got {x.shape[0]}")
    return [((), INT64), ((sum(sizes), *x.shape[1:]), x.dtype)]


def _reduce_scatter_spec(
    order: Any, x: Any, group: int, size: int, reduce: str, factor: float | None, sizes: tuple[int, ...], place: int
) -> list[Aval]:
    _check("reduce_scatter", order, group, size, place=place)
    _check_reduction("reduce_scatter", x, reduce, factor)
    _check_rows("reduce_scatter", x, sizes, size)
    if x.shape[0] != sum(sizes):
        raise ValueError(f"prim.reduce_scatter: parts of {list(sizes)} rows are not the {x.shape[0]} of x")
    return [((), INT64), ((sizes[place], *x.shape[1:]), x.dtype)]


def _all_to_all_spec(
    order: Any, x: Any, group: int, size: int, sent: tuple[int, ...], got: tuple[int, ...], place: int, together: bool
) -> list[Aval]:
    _check("all_to_all", order, group, size, place=place)
    _check_rows("all_to_all", x, sent, size)
    _check_rows("all_to_all", x, got, size)
    if x.shape[0] != sum(sent):
        raise ValueError(f"prim.all_to_all: parts of {list(sent)} rows are not the {x.shape[0]} of x")
    return [((), INT64), ((sum(got), *x.shape[1:]), x.dtype)]


def _permute_spec(order: Any, x: Any, group: int, size: int, to: tuple[int, ...], place: int) -> list[Aval]:
    _check("permute_ranks", order, group, size, place=place)
    if sorted(to) != list(range(size)):
        raise ValueError(f"prim.permute_ranks: {list(to)} is no permutation of {size} processes")
    return [((), INT64), (x.shape, x.dtype)]


# ***** the reference *****


def _reduced(xs: Sequence[Any], reduce: str, factor: float | None) -> Any:
    """The reduction of the arrays of all ranks, in their order; half types are summed in float32."""
    dtype = xs[0].dtype
    wide = [x.astype(np.float32) if dtype == np.float16 else x for x in xs]
    function = _FUNCTIONS["bor" if dtype.kind == "b" and reduce == "sum" else reduce]
    if factor is not None:
        wide = [x * factor for x in wide]
    total = wide[0]
    for x in wide[1:]:
        total = function(total, x)
    if reduce == "avg":
        total = np.trunc(total / len(xs)) if dtype.kind in "iu" else total / len(xs)
    return total.astype(dtype)


_FUNCTIONS: dict[str, Any] = {
    "sum": lambda a, b: a + b, "avg": lambda a, b: a + b, "premul_sum": lambda a, b: a + b, "prod": lambda a, b: a * b,
    "min": lambda a, b: np.minimum(a, b), "max": lambda a, b: np.maximum(a, b), "band": lambda a, b: a & b, "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
}  # fmt: skip


def _split(x: Any, sizes: Sequence[int]) -> list[Any]:
    ends = list(accumulate(sizes))
    return [x[end - n : end] for n, end in zip(sizes, ends, strict=True)]


def _reduce_ranks(xs: Sequence[Any], *, root: int, reduce: str, factor: float | None, **params: Any) -> list[Any]:
    return [_reduced(xs, reduce, factor) if k == root else np.zeros_like(x) for k, x in enumerate(xs)]


def _reduce_scatter_ranks(
    xs: Sequence[Any], *, reduce: str, factor: float | None, sizes: Sequence[int], **params: Any
) -> list[Any]:
    return _split(_reduced(xs, reduce, factor), sizes)


def _all_to_all_ranks(xs: Sequence[Any], *, sent: Any, **params: Any) -> list[Any]:
    """`sent` is that of one rank where all send alike, else a list with those of all."""
    rows = sent if isinstance(sent, list) else [sent] * len(xs)
    parts = [_split(x, sizes) for x, sizes in zip(xs, rows, strict=True)]
    return [np.concatenate([part[k] for part in parts]) for k in range(len(xs))]


def _permute_ranks(xs: Sequence[Any], *, to: Sequence[int], **params: Any) -> list[Any]:
    return [np.array(xs[list(to).index(k)]) for k in range(len(xs))]


OVER_RANKS |= {
    "all_reduce": lambda xs, *, reduce, factor, **params: [_reduced(xs, reduce, factor) for _ in xs],
    "reduce_to": _reduce_ranks, "broadcast_from": lambda xs, *, root, **params: [np.array(xs[root]) for _ in xs],
    "all_gather": lambda xs, **params: [np.concatenate(list(xs)) for _ in xs], "reduce_scatter": _reduce_scatter_ranks,
    "all_to_all": _all_to_all_ranks, "permute_ranks": _permute_ranks,
}  # fmt: skip


def _alone(name: str, order: Any, x: Any, group: int, size: int, **params: Any) -> Any:
    """The results in a group of one process."""
    if size != 1:
        raise RuntimeError(
            f"prim.{name} among {size} processes has no result on one: `run_ranks` computes those of all ranks"
        )
    return order + 1, OVER_RANKS[name]([x], group=group, size=size, **params)[0]


# ***** derivatives *****


def _after_all(group: int, order: Any) -> Any:
    """The order after the calls of a group that the graph has so far."""
    for node in reversed(getattr(building.builders[-1], "nodes", ())):
        if node.prim.family == "collective" and node.params.get("group") == group:
            return node.outputs[0]
    return order


def _refused(name: str, reduce: str) -> not_differentiable:
    return not_differentiable(f"prim.{name} has a gradient for {', '.join(LINEAR)}, not for {reduce}")


def _transposed(name: str, ct: Any, params: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """The collective that brings cotangents back: its name, operand and parameters."""
    p = dict(params)
    if name == "reduce_to":
        del p["reduce"], p["factor"]
        return "broadcast_from", _scaled(ct, params), p
    if name == "broadcast_from":
        return "reduce_to", ct, {**p, "reduce": "sum", "factor": None}
    if name == "all_gather":
        del p["together"]
        return "reduce_scatter", ct, {**p, "reduce": "sum", "factor": None}
    if name == "reduce_scatter":
        del p["reduce"], p["factor"]
        return "all_gather", _scaled(ct, params), {**p, "together": min(p["sizes"]) == max(p["sizes"])}
    if name == "all_to_all":
        return "all_to_all", ct, {**p, "sent": p["got"], "got": p["sent"]}
    if name == "permute_ranks":
        return name, ct, {**p, "to": tuple(p["to"].index(k) for k in range(p["size"]))}
    return name, ct, p


def _scaled(ct: Any, params: dict[str, Any]) -> Any:
    """A cotangent times what a reduction multiplies by."""
    factor = 1 / params["size"] if params["reduce"] == "avg" else params["factor"]
    return ct if factor is None else build.binary("mul", ct, factor)


def _vjp(name: str, cts: Any, outs: Any, order: Any, x: Any, **params: Any) -> tuple[Any, ...]:
    if cts[1] is None:
        return None, None
    if params.get("reduce", "sum") not in LINEAR:
        return None, _refused(name, params["reduce"])
    back, operand, given = _transposed(name, cts[1], params)
    _, found = getattr(prim, back)(_after_all(params["group"], outs[0]), operand, **given)
    return None, found


def _jvp(name: str, tangents: Any, outs: Any, order: Any, x: Any, **params: Any) -> tuple[Any, ...]:
    if tangents[1] is None:
        return None, None
    if params.get("reduce", "sum") not in LINEAR:
        raise NotDifferentiableError(_refused(name, params["reduce"]).why)
    _, pushed = getattr(prim, name)(_after_all(params["group"], outs[0]), tangents[1], **params)
    return None, pushed


# ***** batching *****


def _batch(name: str, batched: Sequence[bool], order: Any, x: Any, **params: Any) -> tuple[Any, ...]:
    """One call for the whole batch: rows stay the first dim, the batch becomes the second one."""
    count = (x if batched[1] else order).shape[0]
    if batched[0]:
        order = build.reshape(prim.slice(order, starts=(0,), stops=(1,), steps=(1,)), ())
    if not batched[1]:
        after, found = getattr(prim, name)(order, x, **params)
        return build.broadcast_to(after, (count,)), build.broadcast_to(found, (count, *found.shape))
    rows = name in ("all_gather", "reduce_scatter", "all_to_all")
    perm = (1, 0, *range(2, len(x.shape))) if rows else tuple(range(len(x.shape)))
    after, found = getattr(prim, name)(order, build.transpose(x, perm), **params)
    return build.broadcast_to(after, (count,)), build.transpose(found, perm)


# ***** records *****


def _samples(**params: Any) -> Samples:
    yield [np.array(0), floats((2, 3))], {"group": 0, "size": 1, **params}
    yield [np.array(4), floats((2,), dtype="float32")], {"group": 2, "size": 1, **params}


_REDUCING = {"reduce": "sum", "factor": None}
_RECORDS: tuple[tuple[str, str, Any, dict[str, Any]], ...] = (
    ("all_reduce", "The reduction of every process's x, on all.", _all_reduce_spec, _REDUCING),
    ("reduce_to", "The reduction of every process's x on process `root`, zeros elsewhere.", _reduce_spec, {**_REDUCING, "root": 0, "place": 0}),
    ("broadcast_from", "The x of process `root`, on all.", _broadcast_spec, {"root": 0, "place": 0}),
    ("all_gather", "The rows of all processes, of which each gives `sizes[its place]`.", _all_gather_spec,
     {"sizes": (2,), "place": 0, "together": True}),
    ("reduce_scatter", "The reduction of every process's x; each gets its `sizes[place]` rows of it.", _reduce_scatter_spec,
     {**_REDUCING, "sizes": (2,), "place": 0}),
    ("all_to_all", "`sent[k]` rows go to process k, and `got[k]` rows come from there.", _all_to_all_spec,
     {"sent": (2,), "got": (2,), "place": 0, "together": True}),
    ("permute_ranks", "The x of the process k with `to[k]` equal to this one's place.", _permute_spec, {"to": (0,), "place": 0}),
)  # fmt: skip

for _name, _doc, _spec, _params in _RECORDS:
    ProgramPrimitive(
        _name, _doc, family="collective", multiple=True, spec=_spec, reference=partial(_alone, _name), samples=partial(_samples, **_params),
        lower=("extern", "collective"), vjp=partial(_vjp, _name), jvp=partial(_jvp, _name), batch=partial(_batch, _name),
    )  # fmt: skip

# ***** in graphs of one process of a mesh *****


def _reduce_terms_samples() -> Samples:
    yield [floats((2, 3))], {"axis": 0, "kind": "sum"}


ProgramPrimitive(
    "reduce_terms", "The reduction of every process's x along an axis of a mesh; whoever runs the graph cuts it here.", family="mesh",
    spec=lambda x, axis, kind: (x.shape, x.dtype), reference=lambda x, axis, kind: np.array(x), samples=_reduce_terms_samples,
    lower=("identity",), vjp=not_differentiable("the gradient of a graph is taken before it is divided among processes"),
    jvp=not_differentiable("the gradient of a graph is taken before it is divided among processes"),
    batch=lambda batched, x, axis, kind: prim.reduce_terms(x, axis=axis, kind=kind),
)  # fmt: skip
