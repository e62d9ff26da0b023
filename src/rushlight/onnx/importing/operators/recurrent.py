"""Recurrent networks: RNN, GRU, LSTM, in every direction, with masks, peepholes and activations of choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import rushlight as torch
import rushlight.nn.functional as F
from rushlight.onnx.importing.operators.shapes import reverse_sequence
from rushlight.onnx.importing.table import operator

__all__: list[str] = []

_ACTIVATIONS: dict[str, tuple[Any, tuple[float, ...]]] = {
    "Relu": (torch.relu, ()), "Tanh": (torch.tanh, ()), "Sigmoid": (torch.sigmoid, ()), "Softsign": (F.softsign, ()), "Softplus": (F.softplus, ()),
    "Affine": (lambda x, a, b: a * x + b, (1.0, 0.0)), "LeakyRelu": (F.leaky_relu, (0.01,)), "ThresholdedRelu": (lambda x, a: torch.where(x > a, x, torch.zeros_like(x)), (1.0,)),
    "ScaledTanh": (lambda x, a, b: a * torch.tanh(b * x), (1.0, 1.0)), "HardSigmoid": (lambda x, a, b: torch.clamp(a * x + b, 0.0, 1.0), (0.2, 0.5)),
    "Elu": (F.elu, (1.0,)),
}  # fmt: skip
_ATTRIBUTES = {
    "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget", "layout", "linear_before_reset", "output_sequence",
}  # fmt: skip
_BY_NAME = {name.lower(): rule for name, rule in _ACTIVATIONS.items()}


def _activations(names: Sequence[str], alphas: Any, betas: Any) -> list[Callable[[Any], Any]]:
    """The functions that are named, with their parameters taken in order from both lists."""
    alphas, betas = list(alphas or ()), list(betas or ())
    found: list[Callable[[Any], Any]] = []
    for name in names:
        if name.lower() not in _BY_NAME:
            raise ValueError(f"unknown activation {name!r}")
        function, defaults = _BY_NAME[name.lower()]
        given = [(rest.pop(0) if rest else default) for rest, default in zip((alphas, betas), defaults)]
        found.append(partial(_call, function, tuple(given)))
    return found


def _call(function: Any, given: tuple[float, ...], x: Any) -> Any:
    return function(x, *given)


class _Cell(NamedTuple):
    """Operands of a step of one direction, beside the state."""

    recurrent: Any
    recurrent_bias: Any
    functions: list[Callable[[Any], Any]]
    peephole: Any
    linear_before_reset: bool
    couple: bool
    clip: float | None

    def clipped(self, x: Any) -> Any:
        return x if self.clip is None else torch.clamp(x, -self.clip, self.clip)


def _rnn_step(cell: _Cell, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    gates = x + torch.matmul(state[0], cell.recurrent.T) + cell.recurrent_bias
    return (cell.functions[0](cell.clipped(gates)),)


def _gru_step(cell: _Cell, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    (hidden,) = state
    size = hidden.shape[-1]
    f, g = cell.functions
    weights, bias = cell.recurrent, cell.recurrent_bias
    first = x[:, : 2 * size] + torch.matmul(hidden, weights[: 2 * size].T) + bias[: 2 * size]
    update, reset = torch.chunk(f(cell.clipped(first)), 2, -1)
    if cell.linear_before_reset:
        inner = reset * (torch.matmul(hidden, weights[2 * size :].T) + bias[2 * size :])
    else:
        inner = torch.matmul(reset * hidden, weights[2 * size :].T) + bias[2 * size :]
    new = g(cell.clipped(x[:, 2 * size :] + inner))
    return ((1 - update) * new + update * hidden,)


def _lstm_step(cell: _Cell, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    hidden, memory = state
    f, g, h = cell.functions
    gates = x + torch.matmul(hidden, cell.recurrent.T) + cell.recurrent_bias
    i, o, forget, c = torch.chunk(gates, 4, -1)
    p_i, p_o, p_f = (0, 0, 0) if cell.peephole is None else torch.chunk(cell.peephole, 3)
    i = f(cell.clipped(i + p_i * memory if cell.peephole is not None else i))
    if cell.couple:
        forget = 1 - i
    else:
        forget = f(cell.clipped(forget + p_f * memory if cell.peephole is not None else forget))
    new = forget * memory + i * g(cell.clipped(c))
    o = f(cell.clipped(o + p_o * new if cell.peephole is not None else o))
    return o * h(new), new


def _direction(
    step: Any, cell: _Cell, x: Any, weights: Any, bias: Any, state: tuple[Any, ...], lengths: Any
) -> tuple[Any, tuple[Any, ...]]:
    """Run over time; items that have ended keep their state and give zeros.  (time, batch, hidden) and the last state."""
    inputs = torch.matmul(x, weights.T) + bias
    found = []
    for t in range(x.shape[0]):
        new = step(cell, inputs[t], state)
        if lengths is not None:
            alive = (lengths > t).reshape(-1, 1)
            new = tuple([torch.where(alive, one, old) for one, old in zip(new, state)])
            found.append(torch.where(alive, new[0], torch.zeros_like(new[0])))
        else:
            found.append(new[0])
        state = new
    return torch.stack(found), state


class _Network(NamedTuple):
    """A recurrent operator's inputs and attributes, read alike for the three of them."""

    x: Any
    weights: Any
    recurrent: Any
    bias: Any
    lengths: Any
    states: list[Any]
    peephole: Any
    attributes: dict[str, Any]


def _run(step: Any, defaults: list[str], gates: int, net: _Network) -> tuple[Any, ...]:
    """Y and the last states, in the layout that was asked for."""
    a = net.attributes
    if not set(a) <= _ATTRIBUTES:
        raise NotImplementedError(f"unknown attributes {sorted(set(a) - _ATTRIBUTES)}")
    batch_first = bool(a.get("layout", 0))
    x = net.x.transpose(0, 1) if batch_first else net.x
    states = [None if s is None else s.transpose(0, 1) if batch_first else s for s in net.states]
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[a.get("direction", "forward")]
    hidden = a.get("hidden_size") or net.recurrent.shape[-1]
    names = a.get("activations") or defaults * len(ways)
    functions = _activations(names, a.get("activation_alpha"), a.get("activation_beta"))
    each, outputs, ends = len(functions) // len(ways), [], []
    for way, backwards in enumerate(ways):
        bias = x.new_zeros(2 * gates * hidden) if net.bias is None else net.bias[way]
        state = tuple([x.new_zeros(x.shape[1], hidden) if s is None else s[way] for s in states])
        cell = _Cell(
            net.recurrent[way], bias[gates * hidden :], functions[way * each : (way + 1) * each], None if net.peephole is None else net.peephole[way],
            bool(a.get("linear_before_reset", 0)), bool(a.get("input_forget", 0)), a.get("clip"),
        )  # fmt: skip
        source = _turned(x, net.lengths) if backwards else x
        y, state = _direction(step, cell, source, net.weights[way], bias[: gates * hidden], state, net.lengths)
        outputs.append(_turned(y, net.lengths) if backwards else y)
        ends.append(state)
    y = torch.stack(outputs, 1)
    last = [torch.stack(parts) for parts in zip(*ends)]
    if batch_first:
        return (y.permute(2, 0, 1, 3), *[one.transpose(0, 1) for one in last])
    return (y, *last)


def _turned(x: Any, lengths: Any) -> Any:
    return torch.flip(x, [0]) if lengths is None else reverse_sequence(x, lengths.to(torch.int64))


@operator("RNN")
def rnn(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, **attributes: Any) -> Any:
    return _run(_rnn_step, ["Tanh"], 1, _Network(x, w, r, b, lengths, [h], None, attributes))


@operator("GRU")
def gru(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, **attributes: Any) -> Any:
    return _run(_gru_step, ["Sigmoid", "Tanh"], 3, _Network(x, w, r, b, lengths, [h], None, attributes))


@operator("LSTM")
def lstm(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
    **attributes: Any,
) -> Any:
    return _run(_lstm_step, ["Sigmoid", "Tanh", "Tanh"], 4, _Network(x, w, r, b, lengths, [h, c], p, attributes))
