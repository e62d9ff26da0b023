"""Recurrent layers: one direction of one layer over whole sequences, and cells for one step."""

from __future__ import annotations

from typing import Any

from rushlight._ops.linalg.matmul import transposed
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._prims.nn.recurrent import back_through
from rushlight._prims.nn.recurrent_cell import BIASES, single_step

__all__: list[str] = []


def _bias(mode: str, size: int, w: Any, b_ih: Any, b_hh: Any) -> Any:
    """Both biases in one; those of a GRU's n stay separate."""
    if b_ih is None:
        return build.full((BIASES[mode] * size,), 0, w.dtype)
    total = b_ih + b_hh
    if mode != "gru":
        return total
    parts = [(total, 0, 2), (b_ih, 2, 3), (b_hh, 2, 3)]
    return prim.cat(*[prim.slice(b, starts=(a * size,), stops=(z * size,), steps=(1,)) for b, a, z in parts], dim=0)


def _layer(
    x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, states: list[Any], sizes: Any, mode: str, reverse: bool
) -> Any:
    """Project the inputs of all steps at once; only the recurrence runs step by step."""
    bias = _bias(mode, states[0].shape[1], w_hh, b_ih, b_hh)
    return prim.recurrence(
        build.dot(x, transposed(w_ih)),
        w_hh,
        bias,
        *states,
        *([] if sizes is None else [sizes]),
        mode=mode,
        reverse=reverse,
        keep=True,
    )


def _layer_gradient(
    cts: Any,
    outs: Any,
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    states: list[Any],
    sizes: Any,
    mode: str,
    reverse: bool,
) -> Any:
    """The derived gradient, except that `w_ih`'s is computed in its own layout, not as the transpose of its transpose."""
    if all(ct is None for ct in cts):
        return [None] * (len(states) + 6)
    cotangents = (*cts, *[None] * (len(outs) - len(cts)))
    to_x, to_hh, to_b, to_states = back_through(mode, reverse, w_hh, states, sizes, outs, cotangents)
    to_biases: list[Any] = [None, None]
    if b_ih is not None:
        size = w_hh.shape[1]
        parts = (
            [prim.slice(to_b, starts=(a * size,), stops=(z * size,), steps=(1,)) for a, z in ((0, 2), (2, 3), (3, 4))]
            if mode == "gru"
            else []
        )
        to_biases = [prim.cat(parts[0], part, dim=0) for part in parts[1:]] or [to_b, to_b]
    return [build.dot(to_x, w_ih), *to_states, build.dot(transposed(to_x), x), to_hh, *to_biases, None]


_WEIGHTS = "Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh"
_FLOATS = ("input", "h", "c", "w_ih", "w_hh", "b_ih", "b_hh")


@operator(
    f"lstm_layer(Tensor input, Tensor h, Tensor c, {_WEIGHTS}, Tensor? sizes=None, *, bool reverse=False) -> (Tensor output, Tensor h_n, Tensor c_n)",
    spaces=(), method=False, promote="same", promote_over=_FLOATS, like="contiguous",
)  # fmt: skip
def lstm_layer(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, sizes: Any, *, reverse: bool) -> Any:
    """One direction of an LSTM layer over rows ordered by steps; `sizes` is the number of sequences at each step (all,
    if it is None)."""
    return _layer(x, w_ih, w_hh, b_ih, b_hh, [h, c], sizes, "lstm", reverse)


@lstm_layer.gradient
def _(
    cts: Any,
    outs: Any,
    x: Any,
    h: Any,
    c: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    sizes: Any,
    *,
    reverse: bool,
) -> Any:
    return _layer_gradient(cts, outs, x, w_ih, w_hh, b_ih, [h, c], sizes, "lstm", reverse)


@operator(
    f"rnn_layer(Tensor input, Tensor h, {_WEIGHTS}, Tensor? sizes=None, *, str mode='tanh', bool reverse=False) -> (Tensor output, Tensor h_n)",
    spaces=(), method=False, promote="same", promote_over=_FLOATS, like="contiguous",
)  # fmt: skip
def rnn_layer(
    x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, sizes: Any, *, mode: str, reverse: bool
) -> Any:
    """The same for the layers whose state is one tensor: h = cell(x, h) step by step, of mode "gru", "tanh" or "relu"."""
    return _layer(x, w_ih, w_hh, b_ih, b_hh, [h], sizes, mode, reverse)


@rnn_layer.gradient
def _(
    cts: Any,
    outs: Any,
    x: Any,
    h: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    sizes: Any,
    *,
    mode: str,
    reverse: bool,
) -> Any:
    return _layer_gradient(cts, outs, x, w_ih, w_hh, b_ih, [h], sizes, mode, reverse)


def _cell(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, states: list[Any], mode: str) -> Any:
    single = len(x.shape) == 1
    if single:
        x, *states = (build.expand_dims(v, (0,)) for v in (x, *states))
    bias = _bias(mode, states[0].shape[1], w_hh, b_ih, b_hh)
    state = single_step(mode, build.dot(x, transposed(w_ih)), w_hh, bias, *states)
    return tuple(build.squeeze(v, (0,)) for v in state) if single else state


@operator(
    f"lstm_step(Tensor input, Tensor h, Tensor c, {_WEIGHTS}) -> (Tensor h_n, Tensor c_n)", spaces=(), method=False, promote="same", like="contiguous",
)  # fmt: skip
def lstm_step(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """One step of an LSTM, c = f c + i g and h = o tanh(c), from input (N, features) or (features) and the state
    before."""
    return _cell(x, w_ih, w_hh, b_ih, b_hh, [h, c], "lstm")


@operator(
    f"rnn_step(Tensor input, Tensor h, {_WEIGHTS}, *, str mode='tanh') -> Tensor",
    spaces=(),
    method=False,
    promote="same",
    like="contiguous",
)
def rnn_step(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, *, mode: str) -> Any:
    """One step of mode "tanh" or "relu", h = act(w_ih x + b_ih + w_hh h + b_hh), or of mode "gru", h = n + z (h - n)."""
    return _cell(x, w_ih, w_hh, b_ih, b_hh, [h], mode)[0]
