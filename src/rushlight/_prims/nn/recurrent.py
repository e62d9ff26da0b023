"""Recurrent layers over whole sequences: `recurrence` runs one direction of one layer, `recurrence_grad` is its
derivative.

Rows are ordered by steps: of the N rows, those of step t follow those of step t - 1, and row b of a step belongs to
sequence b.  Without `sizes` each step has as many rows as there are sequences; with `sizes` (int64, one number a step,
never growing) sequences end, the last ones first.

`recurrent_cell` defines one step of each kind of cell (`mode`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require, size_of_batch
from rushlight._prims.nn.recurrent_cell import (
    BIASES,
    EXTRA_OPERANDS,
    GATES,
    GRAD_OPERANDS,
    KEPT,
    OF_ROWS,
    OF_STATES,
    SLOPES,
    Arrays,
    Call,
    GradCall,
    Graphs,
    StepBack,
    backward_step,
    forward_step,
    inner_weight,
    parts_of,
)
from rushlight._prims.record import PRIMITIVES, Aval, ByDecomposition, Primitive, Steps, prim
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import INT64

__all__ = ["back_through"]


class _ArraySteps:
    """Rows by steps, for arrays: `at(x, t)` reads, `put` writes; states belong to the sequences still running."""

    def __init__(self, steps: int, batch: int, sizes: Any) -> None:
        self.sizes = [batch] * steps if sizes is None else [int(n) for n in sizes]
        self.starts = np.cumsum([0, *self.sizes])

    def at(self, x: Any, t: int) -> Any:
        return x[self.starts[t] : self.starts[t] + self.sizes[t]]


def _doubled(xs: Sequence[Any]) -> list[Any]:
    return [x.astype("float64") if x.dtype.name == "float32" else x for x in xs]


def _reference(*xs: Any, mode: str, reverse: bool, keep: bool) -> tuple[Any, ...]:
    call = Call(_doubled(xs), mode, reverse)
    h = call.h.copy()
    c = None if call.c is None else call.c.copy()
    rows = _ArraySteps(call.steps, len(h), call.sizes)
    n, size = call.x.shape[0], h.shape[1]
    hs, gates, cs = np.zeros((n, size)), np.zeros((n, KEPT[mode] * size)), np.zeros((n, size))
    for t in reversed(range(call.steps)) if reverse else range(call.steps):
        k = rows.sizes[t]
        state = None if c is None else c[:k]
        after, cell, kept = forward_step(Arrays, mode, rows.at(call.x, t), call.w, call.b, h[:k], state)
        h[:k] = rows.at(hs, t)[...] = after
        if c is not None:
            c[:k] = rows.at(cs, t)[...] = cell
        if kept:
            rows.at(gates, t)[...] = np.concatenate(kept, 1)
    results = [
        hs,
        h,
        *([] if c is None else [c]),
        *(([gates] if KEPT[mode] else []) + ([] if c is None else [cs]) if keep else []),
    ]
    return tuple(v.astype(xs[0].dtype) for v in results)


def _grad_reference(*xs: Any, mode: str, reverse: bool, extra: bool) -> tuple[Any, ...]:
    call = GradCall(_doubled(xs), mode, reverse, extra)
    dh = call.ct_h.copy()
    dc = None if call.c is None else call.ct_c.copy()
    rows = _ArraySteps(call.steps, len(dh), call.sizes)
    n, size = call.hs.shape
    slopes, befores = np.zeros((n, SLOPES[mode] * size)), np.zeros((n, size))
    w = inner_weight(Arrays, mode, call.w)
    for t in range(call.steps) if reverse else reversed(range(call.steps)):
        k, other = rows.sizes[t], t + 1 if reverse else t - 1
        old = rows.sizes[other] if 0 <= other < call.steps else 0

        def before(state: Any, all_: Any, k: int = k, other: int = other, old: int = min(old, k)) -> Any:
            return np.concatenate([rows.at(all_, other)[:old], state[old:k]]) if old else state[:k]

        at: dict[str, Any] = {
            name: None if getattr(call, name) is None else rows.at(getattr(call, name), t)
            for name in ("gates", "cs", "ct_gates", "ct_cs")
        }
        kept, more = (
            [] if at[name] is None else parts_of(Arrays, at[name], KEPT[mode]) for name in ("gates", "ct_gates")
        )
        h_before, c_before = before(call.h, call.hs), None if dc is None else before(call.c, call.cs)
        parts_of_slopes, dc_before, part = backward_step(
            Arrays,
            mode,
            StepBack(
                dh=rows.at(call.ct_hs, t) + dh[:k],
                dc=None if dc is None else dc[:k],
                gates=kept,
                h=rows.at(call.hs, t),
                c=at["cs"],
                before=(h_before, c_before),
                more=more,
                more_c=at["ct_cs"],
            ),
        )
        rows.at(slopes, t)[...] = np.concatenate(parts_of_slopes, 1)
        rows.at(befores, t)[...] = h_before
        dh[:k] = rows.at(slopes, t)[:, : w.shape[0]] @ w + (0 if part is None else part)
        if dc is not None:
            dc[:k] = dc_before
    return tuple(v.astype(xs[0].dtype) for v in (slopes, befores, slopes.sum(0), dh, *([] if dc is None else [dc])))


class _GraphSteps:
    """Rows by steps, for graphs: all steps have all sequences, and `kept` restores the states of those that have ended."""

    def __init__(self, steps: int, batch: int, rows: int, sizes: Any) -> None:
        self.steps, self.batch, self.sizes = steps, batch, sizes
        if sizes is None or not rows:
            return
        ends = prim.cumsum(sizes, dim=0, reverse=False)
        first = ends - sizes
        shape = (steps, batch)
        column = prim.iota(shape=shape, dim=1, dtype=INT64)
        spread = {"shape": shape, "dims": (0,)}
        self.running = prim.lt(column, prim.broadcast(sizes, **spread))
        slot = prim.broadcast(first, **spread) + column
        self.slots = build.reshape(
            build.select(slot < rows, slot, build.full(shape, rows - 1, INT64)), (steps * batch,)
        )
        row = prim.iota(shape=(rows, steps), dim=0, dtype=INT64)
        over = build.convert(row >= prim.broadcast(ends, shape=(rows, steps), dims=(1,)), INT64)
        step = prim.sum(over, dims=(1,))  # number of steps that end before a row
        number = prim.iota(shape=(rows,), dim=0, dtype=INT64)
        self.rows = step * batch + number - prim.index(first, step)

    def split(self, x: Any) -> list[Any]:
        """[batch, columns] of each step."""
        if self.sizes is not None:
            x = prim.index(x, self.slots)
        n = self.batch
        return [
            prim.slice(x, starts=(t * n, 0), stops=((t + 1) * n, x.shape[1]), steps=(1, 1)) for t in range(self.steps)
        ]

    def join(self, parts: Sequence[Any]) -> Any:
        """The rows of parts in the order of time."""
        whole = Graphs.join(parts, 0)
        return whole if self.sizes is None else prim.index(whole, self.rows)

    def kept(self, t: int, new: Any, old: Any) -> Any:
        """`new` where the step has a row, else `old`."""
        if self.sizes is None:
            return new
        mask = prim.slice(self.running, starts=(t, 0), stops=(t + 1, self.batch), steps=(1, 1))
        return build.select(build.broadcast_to(build.reshape(mask, (self.batch, 1)), new.shape), new, old)


def _nothing(name: str, xs: Sequence[Any], p: dict[str, Any]) -> tuple[Any, ...]:
    """No rows, no steps: the states are unchanged."""
    shapes = PRIMITIVES[name].spec(*xs, **p)
    results = [build.full(shape, 0, dtype) for shape, dtype in shapes]
    if name == "recurrence":
        call = Call(xs, p["mode"], p["reverse"])
        states = [call.h] + ([] if call.c is None else [call.c])
        return (results[0], *states, *results[1 + len(states) :])
    grad = GradCall(xs, p["mode"], p["reverse"], p["extra"])
    return (*results[:3], grad.ct_h, *([] if grad.ct_c is None else [grad.ct_c]))


def _decompose(*xs: Any, mode: str, reverse: bool, keep: bool) -> tuple[Any, ...]:
    """Step by step."""
    call = Call(xs, mode, reverse)
    if not call.x.shape[0] or not call.steps:
        return _nothing("recurrence", xs, {"mode": mode, "reverse": reverse, "keep": keep})
    steps = _GraphSteps(call.steps, call.h.shape[0], call.x.shape[0], call.sizes)
    inputs = steps.split(call.x)
    h, c = call.h, call.c
    hs, cs, gates = ([None] * call.steps for _ in range(3))
    for t in reversed(range(call.steps)) if reverse else range(call.steps):
        hs[t], cs[t], kept = forward_step(Graphs, mode, inputs[t], call.w, call.b, h, c)
        gates[t] = Graphs.join(kept, 1) if kept else None
        h = steps.kept(t, hs[t], h)
        c = None if c is None else steps.kept(t, cs[t], c)
    results = [steps.join(hs), h, *([] if c is None else [c])]
    if keep:
        results += [steps.join(v) for v in (gates, cs) if v[0] is not None]
    return tuple(results)


def _grad_step(mode: str, names: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
    """One step of the derivative over values in the order of `names`: slopes, the cotangent of the previous state, and
    that of the previous cell."""

    def step(*xs: Any) -> tuple[Any, ...]:
        at: dict[str, Any] = dict(zip(names, xs, strict=True))
        kept, more = (
            [] if name not in at else parts_of(Graphs, at[name], KEPT[mode]) for name in ("gates", "ct_gates")
        )
        parts_of_slopes, dc, part = backward_step(
            Graphs,
            mode,
            StepBack(
                dh=at["ct_hs"] + at["dh"],
                dc=at.get("dc"),
                gates=kept,
                h=at["hs"],
                c=at.get("cs"),
                before=(at["before"], at.get("before_c")),
                more=more,
                more_c=at.get("ct_cs"),
            ),
        )
        slopes = Graphs.join(parts_of_slopes, 1)
        through = build.dot(Graphs.columns(slopes, 0, at["w"].shape[0]), at["w"])
        return slopes, through if part is None else through + part, *([] if dc is None else [dc])

    return step


def _grad_in_steps(run: Steps, *xs: Any, mode: str, reverse: bool, extra: bool) -> tuple[Any, ...]:
    """Step by step, from the last, as calls of one small function."""
    call = GradCall(xs, mode, reverse, extra)
    if not call.hs.shape[0] or not call.steps:
        return run.call(
            "nothing",
            lambda *xs: _nothing("recurrence_grad", xs, {"mode": mode, "reverse": reverse, "extra": extra}),
            *xs,
        )
    batch = call.h.shape[0]
    counts = [batch] * call.steps if call.sizes is None else run.numbers(call.sizes)
    at = {
        name: run.split(getattr(call, name), counts)
        for name in GradCall.__slots__
        if name in OF_ROWS and getattr(call, name) is not None
    }
    (w,) = run.call("inner weight", lambda w: (inner_weight(Graphs, mode, w),), call.w) if mode == "gru" else (call.w,)
    states = [call.ct_h] if call.ct_c is None else [call.ct_h, call.ct_c]
    names = (
        "w",
        *at,
        "dh",
        *(("dc",) if call.ct_c is not None else ()),
        "before",
        *(("before_c",) if call.ct_c is not None else ()),
    )
    slopes: list[Any] = [None] * call.steps
    befores: list[Any] = [None] * call.steps

    def before(state: Any, rows: Sequence[Any], other: int, k: int) -> Any:
        """The state before a step of k rows: that after the step `other`, and the initial one of sequences that had not
        begun."""
        old = min(counts[other], k) if 0 <= other < call.steps else 0
        ran = (
            [rows[other] if counts[other] == old else run.split(rows[other], [old, counts[other] - old])[0]]
            if old
            else []
        )
        fresh = [state if k == batch and not old else run.split(state, [old, k - old, batch - k])[1]] if old < k else []
        return run.join(ran + fresh) if ran and fresh else (ran or fresh)[0]

    for t in range(call.steps) if reverse else reversed(range(call.steps)):
        k, other = counts[t], t + 1 if reverse else t - 1
        befores[t] = before(call.h, at["hs"], other, k)
        cells: list[Any] = [] if call.c is None else [before(call.c, at["cs"], other, k)]
        parts = [(x,) if k == batch else run.split(x, [k, batch - k]) for x in states]
        operands = [w, *[rows[t] for rows in at.values()], *[part[0] for part in parts], befores[t], *cells]
        slopes[t], *results = run.call((mode, names), _grad_step(mode, names), *operands)
        states = [x if len(part) == 1 else run.join([x, part[1]]) for x, part in zip(results, parts, strict=True)]
    rows = run.join(slopes)
    return rows, run.join(befores), *run.call("total", lambda x: (build.total(x, (0,)),), rows), *states


def _grad_decompose(*xs: Any, mode: str, reverse: bool, extra: bool) -> tuple[Any, ...]:
    """Step by step, from the last."""
    call = GradCall(xs, mode, reverse, extra)
    if not call.hs.shape[0] or not call.steps:
        return _nothing("recurrence_grad", xs, {"mode": mode, "reverse": reverse, "extra": extra})
    steps = _GraphSteps(call.steps, call.h.shape[0], call.hs.shape[0], call.sizes)
    of_rows = [(name, getattr(call, name)) for name in GradCall.__slots__ if name in OF_ROWS]
    at: dict[str, Any] = {name: None if value is None else steps.split(value) for name, value in of_rows}
    w = inner_weight(Graphs, mode, call.w)
    dh, dc = call.ct_h, call.ct_c
    slopes: list[Any] = [None] * call.steps
    befores: list[Any] = [None] * call.steps
    for t in range(call.steps) if reverse else reversed(range(call.steps)):
        other = t + 1 if reverse else t - 1
        inside = 0 <= other < call.steps

        def before(state: Any, all_: Any, other: int = other, inside: bool = inside) -> Any:
            return steps.kept(other, all_[other], state) if inside else state

        kept, more = (
            [] if at[name] is None else parts_of(Graphs, at[name][t], KEPT[mode]) for name in ("gates", "ct_gates")
        )
        h_before, c_before = before(call.h, at["hs"]), None if dc is None else before(call.c, at["cs"])
        parts_of_slopes, dc_before, part = backward_step(
            Graphs,
            mode,
            StepBack(
                dh=at["ct_hs"][t] + dh,
                dc=dc,
                gates=kept,
                h=at["hs"][t],
                c=None if dc is None else at["cs"][t],
                before=(h_before, c_before),
                more=more,
                more_c=None if at["ct_cs"] is None else at["ct_cs"][t],
            ),
        )
        slopes[t], befores[t] = Graphs.join(parts_of_slopes, 1), h_before
        through = build.dot(Graphs.columns(slopes[t], 0, w.shape[0]), w)
        dh = steps.kept(t, through if part is None else through + part, dh)
        dc = None if dc is None else steps.kept(t, dc_before, dc)
    rows = steps.join(slopes)
    return (rows, steps.join(befores), build.total(rows, (0,)), dh, *([] if dc is None else [dc]))


# ***** specs *****


def _check(name: str, sizes: Any, *named: tuple[str, Any, tuple[int, ...]]) -> None:
    first = named[0][1]
    for what, x, shape in named:
        require(name, x, "f")
        if x.dtype is not first.dtype:
            raise TypeError(f"prim.{name} takes operands of one dtype, got {first.dtype.name} and {x.dtype.name}")
        if x.shape != shape:
            raise ValueError(f"prim.{name}: {what} is {list(x.shape)}, needs {list(shape)}")
    if sizes is not None and (sizes.dtype is not INT64 or len(sizes.shape) != 1):
        raise TypeError(f"prim.{name} takes sizes as one row of int64, got {sizes.dtype.name}{list(sizes.shape)}")


def _rows_fit(name: str, n: int, batch: int, sizes: Any) -> None:
    if sizes is None and (n % batch if batch else n):
        raise ValueError(f"prim.{name}: {n} rows are no whole steps of {batch}")


def _spec(*xs: Any, mode: str, reverse: bool, keep: bool) -> list[Aval]:
    call = Call(xs, mode, reverse)
    (n, _), (batch, size) = call.x.shape, call.h.shape
    states = [("h", call.h, (batch, size))] + ([] if call.c is None else [("c", call.c, (batch, size))])
    parts = GATES[mode] * size
    _check(
        "recurrence",
        call.sizes,
        ("x", call.x, (n, parts)),
        ("w", call.w, (parts, size)),
        ("b", call.b, (BIASES[mode] * size,)),
        *states,
    )
    _rows_fit("recurrence", n, batch, call.sizes)
    shapes = [(n, size)] + [(batch, size)] * len(states)
    if keep:
        shapes += [(n, KEPT[mode] * size)] * bool(KEPT[mode]) + [(n, size)] * (mode == "lstm")
    return [(shape, call.x.dtype) for shape in shapes]


def _grad_spec(*xs: Any, mode: str, reverse: bool, extra: bool) -> list[Aval]:
    call = GradCall(xs, mode, reverse, extra)
    (n, size), batch = call.hs.shape, call.h.shape[0]
    shapes = dict.fromkeys(OF_ROWS, (n, size)) | dict.fromkeys(OF_STATES, (batch, size))
    shapes |= {"w": (GATES[mode] * size, size), "gates": (n, KEPT[mode] * size), "ct_gates": (n, KEPT[mode] * size)}
    named = [
        (k, getattr(call, k), shapes[k])
        for k in GRAD_OPERANDS[mode] + EXTRA_OPERANDS[mode]
        if getattr(call, k) is not None
    ]
    _check("recurrence_grad", call.sizes, *named)
    _rows_fit("recurrence_grad", n, batch, call.sizes)
    sizes_of: list[tuple[int, ...]] = [(n, SLOPES[mode] * size), (n, size), (SLOPES[mode] * size,)]
    sizes_of += [(batch, size)] * (2 if mode == "lstm" else 1)
    return [(shape, call.hs.dtype) for shape in sizes_of]


# ***** gradients *****


def back_through(
    mode: str, reverse: bool, w: Any, states: Sequence[Any], sizes: Any, outs: Sequence[Any], cts: Sequence[Any]
) -> tuple[Any, Any, Any, list[Any]]:
    """Cotangents of x, w, b and the initial states from those of all results of `recurrence` (None where there is
    none); `states` are h, or h and c.

    A sum over all steps is a product of all rows at once.
    """
    count = 1 + len(states)
    cotangents = [build.zeros_like(o) if ct is None else ct for ct, o in zip(cts[:count], outs, strict=False)]
    residuals, more = list(outs[count:]), list(cts[count:])
    extra = any(ct is not None for ct in more)
    gates, cells = {"lstm": (residuals[:1], residuals[1:]), "gru": (residuals, [])}.get(mode, ([], []))
    operands = [w, *gates, outs[0], *cells, *states, *cotangents]
    if extra:
        operands += [build.zeros_like(o) if ct is None else ct for ct, o in zip(more, residuals, strict=True)]
    operands += [] if sizes is None else [sizes]
    slopes, before, to_b, *to_states = prim.recurrence_grad(*operands, mode=mode, reverse=reverse, extra=extra)
    if mode != "gru":
        return slopes, build.dot(Graphs.transposed(slopes), before), to_b, to_states
    size = w.shape[1]
    to_w = build.dot(Graphs.transposed(Graphs.columns(slopes, 0, 3 * size)), before)
    rotated = [prim.slice(to_w, starts=(a, 0), stops=(z, size), steps=(1, 1)) for a, z in ((size, 3 * size), (0, size))]
    to_b = Graphs.join([Graphs.columns(to_b, size, 4 * size), Graphs.columns(to_b, 0, size)], 0)
    return Graphs.columns(slopes, size, 4 * size), Graphs.join(rotated, 0), to_b, to_states


def _vjp(cts: Sequence[Any], outs: Sequence[Any], *xs: Any, mode: str, reverse: bool, keep: bool) -> tuple[Any, ...]:
    call = Call(xs, mode, reverse)
    if not keep:
        outs = prim.recurrence(*xs, mode=mode, reverse=reverse, keep=True)
        cts = (*cts, *[None] * (len(outs) - len(cts)))
    states = [call.h] if call.c is None else [call.h, call.c]
    to_x, to_w, to_b, to_states = back_through(mode, reverse, call.w, states, call.sizes, outs, cts)
    return (to_x, to_w, to_b, *to_states, *([] if call.sizes is None else [None]))


# ***** batching *****


def _batch(name: str, names: Callable[[Sequence[Any], dict[str, Any]], Sequence[str]]) -> Any:
    """More sequences, if all steps have as many and the weights are shared; else one call for each item."""

    def rule(batched: Sequence[bool], *xs: Any, **p: Any) -> tuple[Any, ...]:
        primitive, size, named = PRIMITIVES[name], size_of_batch(batched, xs), names(xs, p)
        free = all(n in OF_ROWS or n in OF_STATES for n, flag in zip(named, batched, strict=True) if flag)
        if free and "sizes" not in named and size:
            return _folded(primitive, batched, xs, p, named, size)

        def item(x: Any, i: int) -> Any:
            rest = tuple(x.shape[1:])
            return build.reshape(
                prim.slice(x, starts=(i, *[0] * len(rest)), stops=(i + 1, *rest), steps=(1,) * len(x.shape)), rest
            )

        results = [
            primitive(*[item(x, i) if flag else x for x, flag in zip(xs, batched, strict=True)], **p)
            for i in range(size)
        ]
        if not results:
            singles = [build.full(x.shape[1:], 0, x.dtype) if flag else x for x, flag in zip(xs, batched, strict=True)]
            return tuple(build.full((0, *shape), 0, dtype) for shape, dtype in primitive.spec(*singles, **p))
        return tuple(
            Graphs.join([build.expand_dims(v, (0,)) for v in parts], 0) for parts in zip(*results, strict=True)
        )

    return rule


def _folded(
    primitive: Primitive, batched: Sequence[bool], xs: Sequence[Any], p: dict[str, Any], named: Sequence[str], size: int
) -> tuple[Any, ...]:
    lifted = [
        x if flag or n not in OF_ROWS | OF_STATES else build.broadcast_to(x, (size, *x.shape))
        for x, n, flag in zip(xs, named, batched, strict=True)
    ]
    state = next(x for x, n in zip(lifted, named, strict=True) if n == "h")
    rows = next(x for x, n in zip(lifted, named, strict=True) if n in OF_ROWS)
    batch = state.shape[1]
    steps = rows.shape[1] // batch if batch else 0

    def fold(x: Any, name: str) -> Any:
        if name in OF_STATES:
            return build.reshape(x, (size * batch, x.shape[2]))
        if name not in OF_ROWS:
            return x
        parts = build.transpose(build.reshape(x, (size, steps, batch, x.shape[2])), (1, 0, 2, 3))
        return build.reshape(parts, (steps * size * batch, x.shape[2]))

    results = primitive(*[fold(x, n) for x, n in zip(lifted, named, strict=True)], **p)

    def unfold(x: Any, rows: int) -> Any:
        if rows == batch * size:
            return build.reshape(x, (size, batch, x.shape[1]))
        parts = build.transpose(build.reshape(x, (steps, size, batch, x.shape[1])), (1, 0, 2, 3))
        return build.reshape(parts, (size, steps * batch, x.shape[1]))

    grad = primitive.name == "recurrence_grad"
    states = range(3 if grad else 1, len(results) if grad else 3 if p["mode"] == "lstm" else 2)
    unfolded = [
        None if len(x.shape) == 1 else unfold(x, batch * size if k in states else 0) for k, x in enumerate(results)
    ]
    return tuple(build.total(unfolded[0], (1,)) if x is None else x for x in unfolded)


def _names(xs: Sequence[Any], p: dict[str, Any]) -> tuple[str, ...]:
    names = ("x", "w", "b", "h") + (("c",) if p["mode"] == "lstm" else ())
    return names + (("sizes",) if len(xs) > len(names) else ())


def _grad_names(xs: Sequence[Any], p: dict[str, Any]) -> tuple[str, ...]:
    names = GRAD_OPERANDS[p["mode"]] + (EXTRA_OPERANDS[p["mode"]] if p["extra"] else ())
    return names + (("sizes",) if len(xs) > len(names) else ())


# ***** samples *****

_LENGTHS = (3, 2, 2, 1)  # number of sequences that run at each step


def _sampled(mode: str, packed: bool, dtype: str, batch: int = 3, size: int = 2, steps: int = 4) -> list[Any]:
    n = sum(_LENGTHS) if packed else batch * steps
    gates = GATES[mode] * size
    xs = [
        floats((n, gates), 1, dtype=dtype),
        floats((gates, size), 2, dtype=dtype),
        floats((BIASES[mode] * size,), 3, dtype=dtype),
    ]
    xs += [floats((batch, size), 4 + k, dtype=dtype) for k in range(2 if mode == "lstm" else 1)]
    return xs + ([np.array(_LENGTHS, dtype="int64")] if packed else [])


def _samples() -> Samples:
    for mode in GATES:
        for packed in (False, True):
            yield (
                _sampled(mode, packed, "float64"),
                {"mode": mode, "reverse": packed == (mode in ("lstm", "tanh")), "keep": True},
            )
    yield _sampled("lstm", False, "float32", 2, 19, 3), {"mode": "lstm", "reverse": True, "keep": True}
    yield _sampled("gru", True, "float32", 3, 17), {"mode": "gru", "reverse": False, "keep": False}


def _grad_samples() -> Samples:
    for k, (mode, packed, extra) in enumerate((m, p, e) for m in GATES for p in (False, True) for e in (False, True)):
        if extra and mode in ("tanh", "relu"):
            continue
        params = {"mode": mode, "reverse": k % 3 == 0, "extra": extra}
        dtype, size, batch = "float64", 2, 3
        n = sum(_LENGTHS) if packed else 2 * batch
        shapes = dict.fromkeys(OF_ROWS, (n, size)) | dict.fromkeys(OF_STATES, (batch, size))
        shapes |= {"w": (GATES[mode] * size, size), "gates": (n, KEPT[mode] * size), "ct_gates": (n, KEPT[mode] * size)}
        names = GRAD_OPERANDS[mode] + (EXTRA_OPERANDS[mode] if extra else ())
        xs = [floats(shapes[name], i + 1, -0.9, 0.9, dtype=dtype) for i, name in enumerate(names)]
        yield xs + ([np.array(_LENGTHS, dtype="int64")] if packed else []), params


Primitive(
    "recurrence", "All steps of one direction of a recurrent layer: (outputs, last states..., gates and cells that the gradient needs).", family="heavy",
    spec=_spec, reference=_reference, lower=("extern", "recurrence"), multiple=True, decompose=_decompose, samples=_samples, vjp=_vjp,
    jvp=ByDecomposition(), batch=_batch("recurrence", _names),
)  # fmt: skip
Primitive(
    "recurrence_grad", "The way back through `recurrence`: (slopes of all rows, the state before each row, the sum of the slopes, cotangents of the first states...).",
    family="heavy", spec=_grad_spec, reference=_grad_reference, lower=("extern", "recurrence"), multiple=True, decompose=_grad_decompose,
    samples=_grad_samples, vjp=ByDecomposition(), jvp=ByDecomposition(), batch=_batch("recurrence_grad", _grad_names), steps=_grad_in_steps,
)  # fmt: skip
