"""Recurrent layers over whole sequences: `recurrence` runs one direction of one layer, `recurrence_grad` runs back through it.

Rows lie step by step: of the N rows, those of step t follow those of step t - 1, and row b of a step belongs to sequence b.  Without `sizes` each
step has as many rows as there are sequences; with `sizes` (int64, one number a step, never growing) sequences end, the last ones first.

Kinds of cells (`mode`), with x the projected input, u = W h the recurrent product, b the bias and s(x) = 1 / (1 + exp(-x)):

- `tanh`, `relu`: h' = act(x + u + b).  Elman, "Finding structure in time" (1990).
- `lstm`: i, f, o = s(x + u + b), g = tanh(x + u + b); c' = f c + i g, h' = o tanh(c').  Gates in the order i, f, g, o.  Hochreiter and Schmidhuber
  (1997), with the forget gate of Gers, Schmidhuber and Cummins (2000).
- `gru`: r, z = s(x + u + b), n = tanh(x + b + r (u + b')); h' = n + z (h - n).  Cho et al. (2014), the reset gate after the product.  The bias
  holds four parts: those of r, z, n and the b' inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require, size_of_batch
from rushlight._prims.record import PRIMITIVES, Aval, ByDecomposition, Primitive, Steps, prim
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import INT64
from rushlight._types.symbols import truncated

__all__ = ["BIASES", "GATES", "KEPT", "SLOPES", "Call", "GradCall", "back_through", "single_step"]

GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}  # parts of the projected input, and of the recurrent weight
BIASES = {"lstm": 4, "gru": 4, "tanh": 1, "relu": 1}
KEPT = {"lstm": 4, "gru": 4, "tanh": 0, "relu": 0}  # what the way back needs of each step: i f g o; r z n and u + b'
SLOPES = {"lstm": 4, "gru": 4, "tanh": 1, "relu": 1}  # gradients of each step: as x has them; for the GRU n inside r, r, z, n


class Call:
    """The operands of `recurrence` by name; `c` and `sizes` may be None."""

    __slots__ = ("b", "c", "h", "mode", "reverse", "sizes", "steps", "w", "x")

    def __init__(self, xs: Sequence[Any], mode: str, reverse: bool) -> None:
        base = 5 if mode == "lstm" else 4
        if mode not in GATES or len(xs) not in (base, base + 1):
            raise TypeError(f"prim.recurrence takes {base} operands and sizes in mode {mode!r}, got {len(xs)}")
        self.x, self.w, self.b, self.h = xs[:4]
        self.c = xs[4] if mode == "lstm" else None
        self.sizes = xs[base] if len(xs) > base else None
        self.mode, self.reverse = mode, reverse
        self.steps = _steps(self.x, self.h, self.sizes)


class GradCall:
    """The operands of `recurrence_grad` by name: what `recurrence` took and gave, and the cotangents of what it gave."""

    __slots__ = ("c", "cs", "ct_c", "ct_cs", "ct_gates", "ct_h", "ct_hs", "gates", "h", "hs", "mode", "reverse", "sizes", "steps", "w")
    w: Any
    h: Any
    hs: Any
    ct_hs: Any
    ct_h: Any

    def __init__(self, xs: Sequence[Any], mode: str, reverse: bool, extra: bool) -> None:
        names = GRAD_OPERANDS[mode] + (EXTRA_OPERANDS[mode] if extra else ())
        if len(xs) not in (len(names), len(names) + 1):
            raise TypeError(f"prim.recurrence_grad takes {len(names)} operands and sizes in mode {mode!r}, got {len(xs)}")
        self.gates = self.cs = self.c = self.ct_c = self.ct_gates = self.ct_cs = None
        for name, value in zip(names, xs, strict=False):
            setattr(self, name, value)
        self.sizes = xs[-1] if len(xs) > len(names) else None
        self.mode, self.reverse = mode, reverse
        self.steps = _steps(self.hs, self.h, self.sizes)


GRAD_OPERANDS: dict[str, tuple[str, ...]] = {
    "lstm": ("w", "gates", "hs", "cs", "h", "c", "ct_hs", "ct_h", "ct_c"), "gru": ("w", "gates", "hs", "h", "ct_hs", "ct_h"),
    "tanh": ("w", "hs", "h", "ct_hs", "ct_h"), "relu": ("w", "hs", "h", "ct_hs", "ct_h"),
}  # fmt: skip
EXTRA_OPERANDS: dict[str, tuple[str, ...]] = {"lstm": ("ct_gates", "ct_cs"), "gru": ("ct_gates",), "tanh": (), "relu": ()}
_OF_ROWS = frozenset(("x", "gates", "hs", "cs", "ct_hs", "ct_gates", "ct_cs"))
_OF_STATES = frozenset(("h", "c", "ct_h", "ct_c"))


def _steps(rows: Any, state: Any, sizes: Any) -> int:
    if sizes is not None:
        return truncated(sizes.shape[0])
    return truncated(rows.shape[0] // state.shape[0]) if state.shape[0] else 0


# ***** one step, for arrays and for graphs *****


class _Arrays:
    """What a step is made of, on NumPy arrays."""

    tanh = staticmethod(lambda x: np.tanh(x))
    join = staticmethod(lambda parts, axis: np.concatenate(parts, axis))
    turned = staticmethod(lambda x: x.T)
    dot = staticmethod(lambda a, b: a @ b)
    relu = staticmethod(lambda x: np.maximum(x, 0.0))

    @staticmethod
    def sigmoid(x: Any) -> Any:
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-x))

    @staticmethod
    def where_positive(x: Any, y: Any) -> Any:
        return np.where(x > 0, y, 0.0)

    @staticmethod
    def columns(x: Any, first: int, last: int) -> Any:
        return x[..., first:last]


class _Graphs:
    """The same on values of a graph."""

    tanh = staticmethod(lambda x: prim.tanh(x))
    turned = staticmethod(lambda x: build.transpose(x, (1, 0)))
    dot = staticmethod(build.dot)
    relu = staticmethod(lambda x: build.binary("maximum", x, 0.0))

    @staticmethod
    def join(parts: Sequence[Any], axis: int) -> Any:
        return parts[0] if len(parts) == 1 else prim.cat(*parts, dim=axis)

    @staticmethod
    def sigmoid(x: Any) -> Any:
        return 1.0 / (1.0 + prim.exp(-x))

    @staticmethod
    def where_positive(x: Any, y: Any) -> Any:
        return build.select(x > 0.0, y, build.zeros_like(y))

    @staticmethod
    def columns(x: Any, first: int, last: int) -> Any:
        lead = len(x.shape) - 1
        starts, stops = (0,) * lead + (first,), (*x.shape[:-1], last)
        return prim.slice(x, starts=starts, stops=stops, steps=(1,) * (lead + 1))


def _parts(o: Any, x: Any, size: int) -> list[Any]:
    """The columns of x, in runs of `size`."""
    return [o.columns(x, k, k + size) for k in range(0, x.shape[-1], size)]


def _forward_step(o: Any, mode: str, x: Any, w: Any, b: Any, h: Any, c: Any) -> tuple[Any, Any, list[Any]]:
    """The state after a step, and the gates that are kept of it."""
    size = h.shape[-1]
    u = o.dot(h, o.turned(w))
    if mode == "lstm":
        i, f, g, out = _parts(o, x + u + b, size)
        i, f, g, out = o.sigmoid(i), o.sigmoid(f), o.tanh(g), o.sigmoid(out)
        c = f * c + i * g
        return out * o.tanh(c), c, [i, f, g, out]
    if mode == "gru":
        (xr, xz, xn), (ur, uz, un), (br, bz, bn, bu) = (_parts(o, v, size) for v in (x, u, b))
        r, z, inner = o.sigmoid(xr + ur + br), o.sigmoid(xz + uz + bz), un + bu
        n = o.tanh(xn + bn + r * inner)
        return n + z * (h - n), None, [r, z, n, inner]
    return (o.tanh if mode == "tanh" else o.relu)(x + u + b), None, []


def _backward_step(
    o: Any, mode: str, dh: Any, dc: Any, gates: Sequence[Any], h: Any, c: Any, before: tuple[Any, Any], more: Sequence[Any], more_c: Any
) -> tuple[list[Any], Any, Any]:
    """The slopes of a step, the cotangent of the cell before, and that of the state before, but for the recurrent product.

    `h`, `c` are the state after the step, `before` that before it; `more`, `more_c` further cotangents of the gates and of c.
    """
    def plus(x: Any, k: int) -> Any:
        return x + more[k] if more else x

    if mode == "lstm":
        i, f, g, out = gates
        t = o.tanh(c)
        dc = dc + dh * out * (1.0 - t * t)
        dc = dc if more_c is None else dc + more_c
        slopes = [
            plus(dc * g, 0) * (i * (1.0 - i)), plus(dc * before[1], 1) * (f * (1.0 - f)), plus(dc * i, 2) * (1.0 - g * g),
            plus(dh * t, 3) * (out * (1.0 - out)),
        ]  # fmt: skip
        return slopes, dc * f, None
    if mode == "gru":
        r, z, n, inner = gates
        dn = plus(dh * (1.0 - z), 2) * (1.0 - n * n)
        slopes = [
            plus(dn * r, 3), plus(dn * inner, 0) * (r * (1.0 - r)), plus(dh * (before[0] - n), 1) * (z * (1.0 - z)), dn,
        ]  # fmt: skip
        return slopes, None, dh * z
    return [dh * (1.0 - h * h) if mode == "tanh" else o.where_positive(h, dh)], None, None


def _inner_weight(o: Any, mode: str, w: Any) -> Any:
    """The recurrent weight with its parts in the order of the slopes that go through it."""
    if mode != "gru":
        return w
    size = w.shape[1]
    turned = o.turned(w)
    return o.turned(o.join([o.columns(turned, 2 * size, 3 * size), o.columns(turned, 0, 2 * size)], 1))


def single_step(mode: str, x: Any, w: Any, b: Any, h: Any, c: Any = None) -> tuple[Any, ...]:
    """The state after one step in simpler primitives: (h,), or (h, c) for an LSTM."""
    h, c, _ = _forward_step(_Graphs, mode, x, w, b, h, c)
    return (h,) if c is None else (h, c)


# ***** sequences of steps *****


class _ArraySteps:
    """Rows by steps, for arrays: `at(x, t)` reads, `put` writes; states hold what the sequences still running have."""

    def __init__(self, steps: int, batch: int, sizes: Any) -> None:
        self.sizes = [batch] * steps if sizes is None else [int(n) for n in sizes]
        self.places = np.cumsum([0, *self.sizes])

    def at(self, x: Any, t: int) -> Any:
        return x[self.places[t] : self.places[t] + self.sizes[t]]


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
        after, cell, kept = _forward_step(_Arrays, mode, rows.at(call.x, t), call.w, call.b, h[:k], state)
        h[:k] = rows.at(hs, t)[...] = after
        if c is not None:
            c[:k] = rows.at(cs, t)[...] = cell
        if kept:
            rows.at(gates, t)[...] = np.concatenate(kept, 1)
    found = [hs, h, *([] if c is None else [c]), *(([gates] if KEPT[mode] else []) + ([] if c is None else [cs]) if keep else [])]
    return tuple(v.astype(xs[0].dtype) for v in found)


def _grad_reference(*xs: Any, mode: str, reverse: bool, extra: bool) -> tuple[Any, ...]:
    call = GradCall(_doubled(xs), mode, reverse, extra)
    dh = call.ct_h.copy()
    dc = None if call.c is None else call.ct_c.copy()
    rows = _ArraySteps(call.steps, len(dh), call.sizes)
    n, size = call.hs.shape
    slopes, befores = np.zeros((n, SLOPES[mode] * size)), np.zeros((n, size))
    w = _inner_weight(_Arrays, mode, call.w)
    for t in range(call.steps) if reverse else reversed(range(call.steps)):
        k, other = rows.sizes[t], t + 1 if reverse else t - 1
        old = rows.sizes[other] if 0 <= other < call.steps else 0

        def before(state: Any, all_: Any, k: int = k, other: int = other, old: int = min(old, k)) -> Any:
            return np.concatenate([rows.at(all_, other)[:old], state[old:k]]) if old else state[:k]

        at: dict[str, Any] = {name: None if getattr(call, name) is None else rows.at(getattr(call, name), t) for name in ("gates", "cs", "ct_gates", "ct_cs")}
        kept, more = ([] if at[name] is None else _parts(_Arrays, at[name], size) for name in ("gates", "ct_gates"))
        h_before, c_before = before(call.h, call.hs), None if dc is None else before(call.c, call.cs)
        found, dc_before, part = _backward_step(
            _Arrays, mode, rows.at(call.ct_hs, t) + dh[:k], None if dc is None else dc[:k], kept, rows.at(call.hs, t), at["cs"], (h_before, c_before),
            more, at["ct_cs"],
        )  # fmt: skip
        rows.at(slopes, t)[...] = np.concatenate(found, 1)
        rows.at(befores, t)[...] = h_before
        dh[:k] = rows.at(slopes, t)[:, : w.shape[0]] @ w + (0 if part is None else part)
        if dc is not None:
            dc[:k] = dc_before
    return tuple(v.astype(xs[0].dtype) for v in (slopes, befores, slopes.sum(0), dh, *([] if dc is None else [dc])))


class _GraphSteps:
    """Rows by steps, for graphs: all steps have all sequences, and `kept` undoes what a step did to those that do not take part."""

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
        place = prim.broadcast(first, **spread) + column
        self.places = build.reshape(build.select(place < rows, place, build.full(shape, rows - 1, INT64)), (steps * batch,))
        row = prim.iota(shape=(rows, steps), dim=0, dtype=INT64)
        over = build.convert(row >= prim.broadcast(ends, shape=(rows, steps), dims=(1,)), INT64)
        step = prim.sum(over, dims=(1,))  # how many steps end before a row
        number = prim.iota(shape=(rows,), dim=0, dtype=INT64)
        self.rows = step * batch + number - prim.index(first, step)

    def split(self, x: Any) -> list[Any]:
        """[batch, columns] of each step."""
        if self.sizes is not None:
            x = prim.index(x, self.places)
        n = self.batch
        return [prim.slice(x, starts=(t * n, 0), stops=((t + 1) * n, x.shape[1]), steps=(1, 1)) for t in range(self.steps)]

    def join(self, parts: Sequence[Any]) -> Any:
        """The rows again, of parts in the order of time."""
        whole = _Graphs.join(parts, 0)
        return whole if self.sizes is None else prim.index(whole, self.rows)

    def kept(self, t: int, new: Any, old: Any) -> Any:
        """`new` where the step has a row, else `old`."""
        if self.sizes is None:
            return new
        mask = prim.slice(self.running, starts=(t, 0), stops=(t + 1, self.batch), steps=(1, 1))
        return build.select(build.broadcast_to(build.reshape(mask, (self.batch, 1)), new.shape), new, old)


def _nothing(name: str, xs: Sequence[Any], p: dict[str, Any]) -> tuple[Any, ...]:
    """No rows, no steps: the states are what they were."""
    shapes = PRIMITIVES[name].spec(*xs, **p)
    found = [build.full(shape, 0, dtype) for shape, dtype in shapes]
    if name == "recurrence":
        call = Call(xs, p["mode"], p["reverse"])
        states = [call.h] + ([] if call.c is None else [call.c])
        return (found[0], *states, *found[1 + len(states) :])
    grad = GradCall(xs, p["mode"], p["reverse"], p["extra"])
    return (*found[:3], grad.ct_h, *([] if grad.ct_c is None else [grad.ct_c]))


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
        hs[t], cs[t], kept = _forward_step(_Graphs, mode, inputs[t], call.w, call.b, h, c)
        gates[t] = _Graphs.join(kept, 1) if kept else None
        h = steps.kept(t, hs[t], h)
        c = None if c is None else steps.kept(t, cs[t], c)
    found = [steps.join(hs), h, *([] if c is None else [c])]
    if keep:
        found += [steps.join(v) for v in (gates, cs) if v[0] is not None]
    return tuple(found)


def _grad_step(mode: str, names: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
    """One step back over values in the order of `names`: slopes, the cotangent of the state before, and that of the cell before."""

    def step(*xs: Any) -> tuple[Any, ...]:
        at: dict[str, Any] = dict(zip(names, xs, strict=True))
        size = at["hs"].shape[-1]
        kept, more = ([] if name not in at else _parts(_Graphs, at[name], size) for name in ("gates", "ct_gates"))
        found, dc, part = _backward_step(
            _Graphs, mode, at["ct_hs"] + at["dh"], at.get("dc"), kept, at["hs"], at.get("cs"), (at["before"], at.get("before_c")), more,
            at.get("ct_cs"),
        )  # fmt: skip
        slopes = _Graphs.join(found, 1)
        through = build.dot(_Graphs.columns(slopes, 0, at["w"].shape[0]), at["w"])
        return slopes, through if part is None else through + part, *([] if dc is None else [dc])

    return step


def _grad_in_steps(run: Steps, *xs: Any, mode: str, reverse: bool, extra: bool) -> tuple[Any, ...]:
    """Step by step, from the last, as calls of one small function."""
    call = GradCall(xs, mode, reverse, extra)
    if not call.hs.shape[0] or not call.steps:
        return run.call("nothing", lambda *xs: _nothing("recurrence_grad", xs, {"mode": mode, "reverse": reverse, "extra": extra}), *xs)
    batch = call.h.shape[0]
    counts = [batch] * call.steps if call.sizes is None else run.numbers(call.sizes)
    at = {name: run.split(getattr(call, name), counts) for name in GradCall.__slots__ if name in _OF_ROWS and getattr(call, name) is not None}
    (w,) = run.call("inner weight", lambda w: (_inner_weight(_Graphs, mode, w),), call.w) if mode == "gru" else (call.w,)
    states = [call.ct_h] if call.ct_c is None else [call.ct_h, call.ct_c]
    names = ("w", *at, "dh", *(("dc",) if call.ct_c is not None else ()), "before", *(("before_c",) if call.ct_c is not None else ()))
    slopes: list[Any] = [None] * call.steps
    befores: list[Any] = [None] * call.steps

    def before(state: Any, rows: Sequence[Any], other: int, k: int) -> Any:
        """The state before a step of k rows: that after the step `other`, and the first one of sequences that had not begun."""
        old = min(counts[other], k) if 0 <= other < call.steps else 0
        ran = [rows[other] if counts[other] == old else run.split(rows[other], [old, counts[other] - old])[0]] if old else []
        fresh = [state if k == batch and not old else run.split(state, [old, k - old, batch - k])[1]] if old < k else []
        return run.join(ran + fresh) if ran and fresh else (ran or fresh)[0]

    for t in range(call.steps) if reverse else reversed(range(call.steps)):
        k, other = counts[t], t + 1 if reverse else t - 1
        befores[t] = before(call.h, at["hs"], other, k)
        cells: list[Any] = [] if call.c is None else [before(call.c, at["cs"], other, k)]
        parts = [(x,) if k == batch else run.split(x, [k, batch - k]) for x in states]
        given = [w, *[rows[t] for rows in at.values()], *[part[0] for part in parts], befores[t], *cells]
        slopes[t], *made = run.call((mode, names), _grad_step(mode, names), *given)
        states = [x if len(part) == 1 else run.join([x, part[1]]) for x, part in zip(made, parts, strict=True)]
    rows = run.join(slopes)
    return rows, run.join(befores), *run.call("total", lambda x: (build.total(x, (0,)),), rows), *states


def _grad_decompose(*xs: Any, mode: str, reverse: bool, extra: bool) -> tuple[Any, ...]:
    """Step by step, from the last."""
    call = GradCall(xs, mode, reverse, extra)
    if not call.hs.shape[0] or not call.steps:
        return _nothing("recurrence_grad", xs, {"mode": mode, "reverse": reverse, "extra": extra})
    size = call.hs.shape[1]
    steps = _GraphSteps(call.steps, call.h.shape[0], call.hs.shape[0], call.sizes)
    of_rows = [(name, getattr(call, name)) for name in GradCall.__slots__ if name in _OF_ROWS]
    at: dict[str, Any] = {name: None if value is None else steps.split(value) for name, value in of_rows}
    w = _inner_weight(_Graphs, mode, call.w)
    dh, dc = call.ct_h, call.ct_c
    slopes: list[Any] = [None] * call.steps
    befores: list[Any] = [None] * call.steps
    for t in range(call.steps) if reverse else reversed(range(call.steps)):
        other = t + 1 if reverse else t - 1
        inside = 0 <= other < call.steps

        def before(state: Any, all_: Any, other: int = other, inside: bool = inside) -> Any:
            return steps.kept(other, all_[other], state) if inside else state

        kept, more = ([] if at[name] is None else _parts(_Graphs, at[name][t], size) for name in ("gates", "ct_gates"))
        h_before, c_before = before(call.h, at["hs"]), None if dc is None else before(call.c, at["cs"])
        found, dc_before, part = _backward_step(
            _Graphs, mode, at["ct_hs"][t] + dh, dc, kept, at["hs"][t], None if dc is None else at["cs"][t], (h_before, c_before), more,
            None if at["ct_cs"] is None else at["ct_cs"][t],
        )  # fmt: skip
        slopes[t], befores[t] = _Graphs.join(found, 1), h_before
        through = build.dot(_Graphs.columns(slopes[t], 0, w.shape[0]), w)
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
    _check("recurrence", call.sizes, ("x", call.x, (n, parts)), ("w", call.w, (parts, size)), ("b", call.b, (BIASES[mode] * size,)), *states)
    _rows_fit("recurrence", n, batch, call.sizes)
    shapes = [(n, size)] + [(batch, size)] * len(states)
    if keep:
        shapes += [(n, KEPT[mode] * size)] * bool(KEPT[mode]) + [(n, size)] * (mode == "lstm")
    return [(shape, call.x.dtype) for shape in shapes]


def _grad_spec(*xs: Any, mode: str, reverse: bool, extra: bool) -> list[Aval]:
    call = GradCall(xs, mode, reverse, extra)
    (n, size), batch = call.hs.shape, call.h.shape[0]
    shapes = dict.fromkeys(_OF_ROWS, (n, size)) | dict.fromkeys(_OF_STATES, (batch, size))
    shapes |= {"w": (GATES[mode] * size, size), "gates": (n, KEPT[mode] * size), "ct_gates": (n, KEPT[mode] * size)}
    named = [(k, getattr(call, k), shapes[k]) for k in GRAD_OPERANDS[mode] + EXTRA_OPERANDS[mode] if getattr(call, k) is not None]
    _check("recurrence_grad", call.sizes, *named)
    _rows_fit("recurrence_grad", n, batch, call.sizes)
    found: list[tuple[int, ...]] = [(n, SLOPES[mode] * size), (n, size), (SLOPES[mode] * size,)]
    found += [(batch, size)] * (2 if mode == "lstm" else 1)
    return [(shape, call.hs.dtype) for shape in found]


# ***** gradients *****


def back_through(
    mode: str, reverse: bool, w: Any, states: Sequence[Any], sizes: Any, outs: Sequence[Any], cts: Sequence[Any]
) -> tuple[Any, Any, Any, list[Any]]:
    """Cotangents of x, w, b and the first states from those of all results of `recurrence` (None for none); `states` are h, or h and c.

    What sums over all steps is a product of all rows at once.
    """
    count = 1 + len(states)
    given = [build.zeros_like(o) if ct is None else ct for ct, o in zip(cts[:count], outs, strict=False)]
    residuals, more = list(outs[count:]), list(cts[count:])
    extra = any(ct is not None for ct in more)
    gates, cells = {"lstm": (residuals[:1], residuals[1:]), "gru": (residuals, [])}.get(mode, ([], []))
    operands = [w, *gates, outs[0], *cells, *states, *given]
    if extra:
        operands += [build.zeros_like(o) if ct is None else ct for ct, o in zip(more, residuals, strict=True)]
    operands += [] if sizes is None else [sizes]
    slopes, before, to_b, *to_states = prim.recurrence_grad(*operands, mode=mode, reverse=reverse, extra=extra)
    if mode != "gru":
        return slopes, build.dot(_Graphs.turned(slopes), before), to_b, to_states
    size = w.shape[1]
    to_w = build.dot(_Graphs.turned(_Graphs.columns(slopes, 0, 3 * size)), before)
    rotated = [prim.slice(to_w, starts=(a, 0), stops=(z, size), steps=(1, 1)) for a, z in ((size, 3 * size), (0, size))]
    to_b = _Graphs.join([_Graphs.columns(to_b, size, 4 * size), _Graphs.columns(to_b, 0, size)], 0)
    return _Graphs.columns(slopes, size, 4 * size), _Graphs.join(rotated, 0), to_b, to_states


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
    """More sequences, where all steps have as many and the weights are shared; else one call for each item."""

    def rule(batched: Sequence[bool], *xs: Any, **p: Any) -> tuple[Any, ...]:
        primitive, size, named = PRIMITIVES[name], size_of_batch(batched, xs), names(xs, p)
        free = all(n in _OF_ROWS or n in _OF_STATES for n, flag in zip(named, batched, strict=True) if flag)
        if free and "sizes" not in named and size:
            return _folded(primitive, batched, xs, p, named, size)

        def item(x: Any, i: int) -> Any:
            rest = tuple(x.shape[1:])
            return build.reshape(prim.slice(x, starts=(i, *[0] * len(rest)), stops=(i + 1, *rest), steps=(1,) * len(x.shape)), rest)

        made = [primitive(*[item(x, i) if flag else x for x, flag in zip(xs, batched, strict=True)], **p) for i in range(size)]
        if not made:
            singles = [build.full(x.shape[1:], 0, x.dtype) if flag else x for x, flag in zip(xs, batched, strict=True)]
            return tuple(build.full((0, *shape), 0, dtype) for shape, dtype in primitive.spec(*singles, **p))
        return tuple(_Graphs.join([build.expand_dims(v, (0,)) for v in parts], 0) for parts in zip(*made, strict=True))

    return rule


def _folded(primitive: Primitive, batched: Sequence[bool], xs: Sequence[Any], p: dict[str, Any], named: Sequence[str], size: int) -> tuple[Any, ...]:
    lifted = [x if flag or n not in _OF_ROWS | _OF_STATES else build.broadcast_to(x, (size, *x.shape))
              for x, n, flag in zip(xs, named, batched, strict=True)]  # fmt: skip
    state = next(x for x, n in zip(lifted, named, strict=True) if n == "h")
    rows = next(x for x, n in zip(lifted, named, strict=True) if n in _OF_ROWS)
    batch = state.shape[1]
    steps = rows.shape[1] // batch if batch else 0

    def fold(x: Any, name: str) -> Any:
        if name in _OF_STATES:
            return build.reshape(x, (size * batch, x.shape[2]))
        if name not in _OF_ROWS:
            return x
        parts = build.transpose(build.reshape(x, (size, steps, batch, x.shape[2])), (1, 0, 2, 3))
        return build.reshape(parts, (steps * size * batch, x.shape[2]))

    made = primitive(*[fold(x, n) for x, n in zip(lifted, named, strict=True)], **p)

    def unfold(x: Any, rows: int) -> Any:
        if rows == batch * size:
            return build.reshape(x, (size, batch, x.shape[1]))
        parts = build.transpose(build.reshape(x, (steps, size, batch, x.shape[1])), (1, 0, 2, 3))
        return build.reshape(parts, (size, steps * batch, x.shape[1]))

    grad = primitive.name == "recurrence_grad"
    states = range(3 if grad else 1, len(made) if grad else 3 if p["mode"] == "lstm" else 2)
    found = [None if len(x.shape) == 1 else unfold(x, batch * size if k in states else 0) for k, x in enumerate(made)]
    return tuple(build.total(found[0], (1,)) if x is None else x for x in found)


def _names(xs: Sequence[Any], p: dict[str, Any]) -> tuple[str, ...]:
    names = ("x", "w", "b", "h") + (("c",) if p["mode"] == "lstm" else ())
    return names + (("sizes",) if len(xs) > len(names) else ())


def _grad_names(xs: Sequence[Any], p: dict[str, Any]) -> tuple[str, ...]:
    names = GRAD_OPERANDS[p["mode"]] + (EXTRA_OPERANDS[p["mode"]] if p["extra"] else ())
    return names + (("sizes",) if len(xs) > len(names) else ())


# ***** samples *****

_LENGTHS = (3, 2, 2, 1)  # how many sequences run at each step


def _sampled(mode: str, packed: bool, dtype: str, batch: int = 3, size: int = 2, steps: int = 4) -> list[Any]:
    n = sum(_LENGTHS) if packed else batch * steps
    gates = GATES[mode] * size
    xs = [floats((n, gates), 1, dtype=dtype), floats((gates, size), 2, dtype=dtype), floats((BIASES[mode] * size,), 3, dtype=dtype)]
    xs += [floats((batch, size), 4 + k, dtype=dtype) for k in range(2 if mode == "lstm" else 1)]
    return xs + ([np.array(_LENGTHS, dtype="int64")] if packed else [])


def _samples() -> Samples:
    for mode in GATES:
        for packed in (False, True):
            yield _sampled(mode, packed, "float64"), {"mode": mode, "reverse": packed == (mode in ("lstm", "tanh")), "keep": True}
    yield _sampled("lstm", False, "float32", 2, 19, 3), {"mode": "lstm", "reverse": True, "keep": True}
    yield _sampled("gru", True, "float32", 3, 17), {"mode": "gru", "reverse": False, "keep": False}


def _grad_samples() -> Samples:
    for k, (mode, packed, extra) in enumerate((m, p, e) for m in GATES for p in (False, True) for e in (False, True)):
        if extra and mode in ("tanh", "relu"):
            continue
        params = {"mode": mode, "reverse": k % 3 == 0, "extra": extra}
        dtype, size, batch = "float64", 2, 3
        n = sum(_LENGTHS) if packed else 2 * batch
        shapes = dict.fromkeys(_OF_ROWS, (n, size)) | dict.fromkeys(_OF_STATES, (batch, size))
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
