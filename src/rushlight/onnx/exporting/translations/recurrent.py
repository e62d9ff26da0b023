"""LSTM, GRU and plain recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value

# Gates in PyTorch's order, by their places in ONNX's.
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _gates(call: Call, kind: str, weight: Value) -> Value:
    """Rows of a weight in ONNX's order of gates."""
    order = _ORDER[kind]
    if len(order) == 1:
        return weight
    hidden = (weight.shape or ())[0] // len(order)  # type: ignore[operator]
    parts = [
        call.slice(weight, 0, i * hidden, (i + 1) * hidden, shape=(hidden, *(weight.shape or ())[1:])) for i in order
    ]
    return call.concat(parts, 0, shape=weight.shape)


def _stacked(call: Call, directions: Sequence[Value]) -> Value:
    return call.concat([call.unsqueeze(d, [0]) for d in directions], 0)


def layer(
    call: Call,
    kind: str,
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Sequence[Value | None]],
    activation: str = "",
) -> list[Value]:
    """One layer over (steps, batch, features): ONNX's results, Y of (steps, directions, batch, hidden) and the last states.

    `weights` has w_ih, w_hh, b_ih, b_hh for each direction.
    """
    w, r = (_stacked(call, [_gates(call, kind, d[i]) for d in weights]) for i in (0, 1))  # type: ignore[arg-type]
    bias = None
    if weights[0][2] is not None:
        rows = [call.concat([_gates(call, kind, d[2]), _gates(call, kind, d[3])], 0) for d in weights]  # type: ignore[arg-type]
        bias = _stacked(call, rows)
    hidden = (weights[0][1].shape or ())[1]  # type: ignore[union-attr]
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": "bidirectional" if len(weights) > 1 else "forward"}
    if activation:
        attrs["activations"] = [activation] * len(weights)
    if kind == "GRU":
        attrs["linear_before_reset"] = 1
    results: list[tuple[Any, Any]] = [(x.dtype, tuple("tdbh")), *[(x.dtype, tuple("dbh"))] * len(states)]
    return call.ops(kind, x, w, r, bias, None, *states, results=results, **attrs)


def _network(
    call: Call, kind: str, x: Value, states: Sequence[Value], params: Sequence[Value], how: tuple[Any, ...]
) -> list[Value]:
    """All layers; `how` is (has_biases, num_layers, dropout, train, bidirectional, batch_first, activation)."""
    biased, layers, dropout, train, both, batch_first, activation = how
    if train and dropout:
        raise call.refuse("dropout while training", "call model.eval() first")
    if len(params) != layers * (1 + both) * (4 if biased else 2):
        raise call.refuse("proj_size above 0")
    alone = x.ndim == 2
    if alone:
        x = call.unsqueeze(x, [1])
        states = [call.unsqueeze(s, [1]) for s in states]
    elif batch_first:
        x = call.transpose(x, [1, 0, 2])
    sides, step = 1 + both, 4 if biased else 2
    ends: list[list[Value]] = [[] for _ in states]
    for n in range(layers):
        first = n * sides
        weights = []
        for d in range(sides):
            own = list(params[(first + d) * step : (first + d + 1) * step])
            weights.append(own if biased else [*own, None, None])
        mine = [_part(call, s, first, sides, layers) for s in states]
        made, *last = layer(call, kind, x, mine, weights, activation)
        x = _flat(call, made, sides)
        for end, value in zip(ends, last, strict=True):
            end.append(value)
    if alone:
        x = call.squeeze(x, [1])
    elif batch_first:
        x = call.transpose(x, [1, 0, 2])
    finals = [call.concat(end, 0) for end in ends]
    finals = [call.squeeze(f, [1]) for f in finals] if alone else finals
    x.shape = call.shape
    return [x, *finals]


def _part(call: Call, state: Value, first: int, sides: int, layers: int) -> Value:
    return state if layers == 1 else call.slice(state, 0, first, first + sides, shape=(sides, *(state.shape or ())[1:]))


def _flat(call: Call, made: Value, sides: int) -> Value:
    """(steps, directions, batch, hidden) as (steps, batch, directions * hidden)."""
    if sides == 1:
        return call.squeeze(made, [1])
    turned = call.transpose(made, [0, 2, 1, 3])
    return call.op("Reshape", turned, call.ints([0, 0, -1]), shape=tuple("tbh"))  # 0 keeps a size


@translates("aten::lstm.input")
def lstm(call: Call, x: Value, states: Sequence[Value], params: Sequence[Value], biased: bool, layers: int, dropout: float, train: bool,
         both: bool, batch_first: bool) -> list[Value]:  # fmt: skip
    return _network(call, "LSTM", x, states, params, (biased, layers, dropout, train, both, batch_first, ""))


@translates("aten::gru.input")
def gru(call: Call, x: Value, state: Value, params: Sequence[Value], biased: bool, layers: int, dropout: float, train: bool, both: bool,
        batch_first: bool) -> list[Value]:  # fmt: skip
    return _network(call, "GRU", x, [state], params, (biased, layers, dropout, train, both, batch_first, ""))


@translates("aten::rnn_tanh.input", "aten::rnn_relu.input")
def rnn(call: Call, x: Value, state: Value, params: Sequence[Value], biased: bool, layers: int, dropout: float, train: bool, both: bool,
        batch_first: bool) -> list[Value]:  # fmt: skip
    activation = "Tanh" if "tanh" in call.name else "Relu"
    return _network(call, "RNN", x, [state], params, (biased, layers, dropout, train, both, batch_first, activation))


# ***** cells, and layers of this package over rows of steps *****


def _cell(
    call: Call, kind: str, x: Value, states: Sequence[Value], weights: Sequence[Value | None], activation: str = ""
) -> list[Value]:
    alone = x.ndim == 1
    x = call.unsqueeze(x, [0, 1] if alone else [0])
    states = [call.unsqueeze(s, [0, 1] if alone else [0]) for s in states]
    _, *last = layer(call, kind, x, states, [weights], activation)
    return [call.squeeze(s, [0, 1] if alone else [0]) for s in last]


@translates("aten::lstm_cell")
def lstm_cell(
    call: Call,
    x: Value,
    states: Sequence[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> list[Value]:
    return _cell(call, "LSTM", x, states, (w_ih, w_hh, b_ih, b_hh))


@translates("aten::gru_cell")
def gru_cell(
    call: Call, x: Value, state: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None, b_hh: Value | None = None
) -> Value:
    return _cell(call, "GRU", x, [state], (w_ih, w_hh, b_ih, b_hh))[0]


@translates("aten::rnn_tanh_cell", "aten::rnn_relu_cell")
def rnn_cell(
    call: Call, x: Value, state: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None, b_hh: Value | None = None
) -> Value:
    return _cell(call, "RNN", x, [state], (w_ih, w_hh, b_ih, b_hh), "Tanh" if "tanh" in call.name else "Relu")[0]


def _rows(
    call: Call,
    kind: str,
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Value | None],
    reverse: bool,
    activation: str,
) -> list[Value]:
    """A layer of the package: rows of (steps * batch) in order of steps, of one direction."""
    batch = call.dim(states[0], 0)
    width = (x.shape or ())[1]
    steps = call.reshape(x, [-1, batch, width], shape=("t", (states[0].shape or ())[0], width))
    given = [call.unsqueeze(s, [0]) for s in states]
    if reverse:
        steps = _reversed(call, steps)
    made, *last = layer(call, kind, steps, given, [weights], activation)
    made = call.squeeze(made, [1])
    if reverse:
        made = _reversed(call, made)
    rows = call.reshape(made, [-1, (states[0].shape or ())[1]], shape=call.shape)
    return [rows, *[call.squeeze(s, [0]) for s in last]]


def _reversed(call: Call, x: Value) -> Value:
    ends = [call.ints([n]) for n in (-1, -(2**63) + 1, 0, -1)]
    return call.op("Slice", x, *ends, shape=x.shape)


@translates("rushlight::lstm_layer")
def lstm_layer(call: Call, x: Value, h: Value, c: Value, *weights: Any, reverse: bool = False) -> list[Value]:
    _unpacked(call, weights)
    return _rows(call, "LSTM", x, [h, c], weights[:4], reverse, "")


@translates("rushlight::rnn_layer")
def rnn_layer(call: Call, x: Value, h: Value, *weights: Any, mode: str = "tanh", reverse: bool = False) -> list[Value]:
    _unpacked(call, weights)
    kind, activation = ("GRU", "") if mode == "gru" else ("RNN", mode.capitalize())
    return _rows(call, kind, x, [h], weights[:4], reverse, activation)


def _unpacked(call: Call, weights: Sequence[Any]) -> None:
    if len(weights) > 4 and weights[4] is not None:
        raise call.refuse("a packed sequence", "export with padded sequences of one length")
