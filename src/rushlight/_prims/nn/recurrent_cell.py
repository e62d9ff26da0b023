"""Cells of recurrent layers: their operands, and one step of each, forward and backward, for arrays and for graphs
alike.

Kinds of cells (`mode`), with x the projected input, u = W h the recurrent product, b the bias and s(x) = 1 / (1 +
exp(-x)):

- `tanh`, `relu`: h' = act(x + u + b).  Elman, "Finding structure in time" (1990).
- `lstm`: i, f, o = s(x + u + b), g = tanh(x + u + b); c' = f c + i g, h' = o tanh(c').  Gates in the order i, f, g, o.
  Hochreiter and Schmidhuber (1997), with the forget gate of Gers, Schmidhuber and Cummins (2000).
- `gru`: r, z = s(x + u + b), n = tanh(x + b + r (u + b')); h' = n + z (h - n).  Cho et al. (2014), the reset gate after
  the product.  The bias holds four parts: those of r, z, n and the b' inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.record import prim
from rushlight._types.symbols import truncated

__all__ = [
    "BIASES", "EXTRA_OPERANDS", "GATES", "GRAD_OPERANDS", "KEPT", "OF_ROWS", "OF_STATES", "SLOPES", "Arrays", "Call", "GradCall", "Graphs",
    "StepBack", "backward_step", "forward_step", "inner_weight", "parts_of", "single_step",
]  # fmt: skip

GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}  # parts of the projected input, and of the recurrent weight
BIASES = {"lstm": 4, "gru": 4, "tanh": 1, "relu": 1}
# values of each step that the backward needs: i f g o; r z n and u + b'
KEPT = {"lstm": 4, "gru": 4, "tanh": 0, "relu": 0}
# Gradients of each step, in the order of x; for the GRU n inside r, r, z, n
SLOPES = {"lstm": 4, "gru": 4, "tanh": 1, "relu": 1}


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
    """The operands of `recurrence_grad` by name: operands and results of `recurrence`, and the cotangents of its
    results."""

    __slots__ = (
        "c",
        "cs",
        "ct_c",
        "ct_cs",
        "ct_gates",
        "ct_h",
        "ct_hs",
        "gates",
        "h",
        "hs",
        "mode",
        "reverse",
        "sizes",
        "steps",
        "w",
    )
    w: Any
    h: Any
    hs: Any
    ct_hs: Any
    ct_h: Any

    def __init__(self, xs: Sequence[Any], mode: str, reverse: bool, extra: bool) -> None:
        names = GRAD_OPERANDS[mode] + (EXTRA_OPERANDS[mode] if extra else ())
        if len(xs) not in (len(names), len(names) + 1):
            raise TypeError(
                f"prim.recurrence_grad takes {len(names)} operands and sizes in mode {mode!r}, got {len(xs)}"
            )
        self.gates = self.cs = self.c = self.ct_c = self.ct_gates = self.ct_cs = None
        for name, value in zip(names, xs, strict=False):
            setattr(self, name, value)
        self.sizes = xs[-1] if len(xs) > len(names) else None
        self.mode, self.reverse = mode, reverse
        self.steps = _steps(self.hs, self.h, self.sizes)


GRAD_OPERANDS: dict[str, tuple[str, ...]] = {
    "lstm": ("w", "gates", "hs", "cs", "h", "c", "ct_hs", "ct_h", "ct_c"),
    "gru": ("w", "gates", "hs", "h", "ct_hs", "ct_h"),
    "tanh": ("w", "hs", "h", "ct_hs", "ct_h"),
    "relu": ("w", "hs", "h", "ct_hs", "ct_h"),
}
EXTRA_OPERANDS: dict[str, tuple[str, ...]] = {
    "lstm": ("ct_gates", "ct_cs"),
    "gru": ("ct_gates",),
    "tanh": (),
    "relu": (),
}
OF_ROWS = frozenset(("x", "gates", "hs", "cs", "ct_hs", "ct_gates", "ct_cs"))
OF_STATES = frozenset(("h", "c", "ct_h", "ct_c"))


def _steps(rows: Any, state: Any, sizes: Any) -> int:
    if sizes is not None:
        return truncated(sizes.shape[0])
    return truncated(rows.shape[0] // state.shape[0]) if state.shape[0] else 0


# ***** one step, for arrays and for graphs *****


class Arrays:
    """The operations of a step, on NumPy arrays."""

    tanh = staticmethod(lambda x: np.tanh(x))
    join = staticmethod(lambda parts, axis: np.concatenate(parts, axis))
    transposed = staticmethod(lambda x: x.T)
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


class Graphs:
    """The same on values of a graph."""

    tanh = staticmethod(lambda x: prim.tanh(x))
    transposed = staticmethod(lambda x: build.transpose(x, (1, 0)))
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


def parts_of(o: Any, x: Any, count: int) -> list[Any]:
    """The columns of x in `count` runs of equal length, which may be 0."""
    size = x.shape[-1] // count
    return [o.columns(x, k * size, (k + 1) * size) for k in range(count)]


def forward_step(o: Any, mode: str, x: Any, w: Any, b: Any, h: Any, c: Any) -> tuple[Any, Any, list[Any]]:
    """The state after a step, and the gates that the backward needs."""
    u = o.dot(h, o.transposed(w))
    if mode == "lstm":
        i, f, g, out = parts_of(o, x + u + b, GATES[mode])
        i, f, g, out = o.sigmoid(i), o.sigmoid(f), o.tanh(g), o.sigmoid(out)
        c = f * c + i * g
        return out * o.tanh(c), c, [i, f, g, out]
    if mode == "gru":
        (xr, xz, xn), (ur, uz, un), (br, bz, bn, bu) = (
            parts_of(o, v, count) for v, count in ((x, GATES[mode]), (u, GATES[mode]), (b, BIASES[mode]))
        )
        r, z, inner = o.sigmoid(xr + ur + br), o.sigmoid(xz + uz + bz), un + bu
        n = o.tanh(xn + bn + r * inner)
        return n + z * (h - n), None, [r, z, n, inner]
    return (o.tanh if mode == "tanh" else o.relu)(x + u + b), None, []


class StepBack(NamedTuple):
    """The operands of one step back.

    `dh`, `dc` are the cotangents of the state after the step, `h`, `c` that state, `before` the one before it; `more`,
    `more_c` are further cotangents of the gates and of c.
    """

    dh: Any
    dc: Any
    gates: Sequence[Any]
    h: Any
    c: Any
    before: tuple[Any, Any]
    more: Sequence[Any]
    more_c: Any


def backward_step(o: Any, mode: str, step: StepBack) -> tuple[list[Any], Any, Any]:
    """The slopes of a step, the cotangent of the previous cell, and that of the previous state without the recurrent
    product."""
    dh, dc, gates, h, c, before, more, more_c = step

    def plus(x: Any, k: int) -> Any:
        return x + more[k] if more else x

    if mode == "lstm":
        i, f, g, out = gates
        t = o.tanh(c)
        dc = dc + dh * out * (1.0 - t * t)
        dc = dc if more_c is None else dc + more_c
        slopes = [
            plus(dc * g, 0) * (i * (1.0 - i)),
            plus(dc * before[1], 1) * (f * (1.0 - f)),
            plus(dc * i, 2) * (1.0 - g * g),
            plus(dh * t, 3) * (out * (1.0 - out)),
        ]
        return slopes, dc * f, None
    if mode == "gru":
        r, z, n, inner = gates
        dn = plus(dh * (1.0 - z), 2) * (1.0 - n * n)
        slopes = [
            plus(dn * r, 3),
            plus(dn * inner, 0) * (r * (1.0 - r)),
            plus(dh * (before[0] - n), 1) * (z * (1.0 - z)),
            dn,
        ]
        return slopes, None, dh * z
    return [dh * (1.0 - h * h) if mode == "tanh" else o.where_positive(h, dh)], None, None


def inner_weight(o: Any, mode: str, w: Any) -> Any:
    """The recurrent weight with its parts in the order of the slopes that it is multiplied by."""
    if mode != "gru":
        return w
    size = w.shape[1]
    transposed = o.transposed(w)
    return o.transposed(o.join([o.columns(transposed, 2 * size, 3 * size), o.columns(transposed, 0, 2 * size)], 1))


def single_step(mode: str, x: Any, w: Any, b: Any, h: Any, c: Any = None) -> tuple[Any, ...]:
    """The state after one step in simpler primitives: (h,), or (h, c) for an LSTM."""
    h, c, _ = forward_step(Graphs, mode, x, w, b, h, c)
    return (h,) if c is None else (h, c)
