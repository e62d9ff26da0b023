"""Recurrent networks over tensors: layers over (packed) sequences, whole where one operator does it, else step by step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import rushlight
from rushlight._interface.operators import casts, function_of
from rushlight._interface.tensors import AUTOCAST, STATE

__all__ = ["Uniform", "run_cell", "run_layers"]

# The operators' names of the kinds of cells.
_MODES = {"RNN_TANH": "tanh", "RNN_RELU": "relu", "LSTM": "lstm", "GRU": "gru"}


# Layers and cells whole: on GPUs their libraries want all in one dtype.
_CAST = casts(None, "lower")


class Uniform(NamedTuple):
    """The batch sizes of sequences of one length, which may be symbolic: `count` at each of `steps`."""

    count: Any
    steps: Any


# A cell takes the projected input, the state (a tuple) and the weights of the recurrence, and returns the next state;
# the first part of a state is what the layer puts out.


def tanh_cell(projected: Any, state: tuple[Any, ...], weight: Any, bias: Any, _: Any) -> tuple[Any, ...]:
    """h' = tanh(projected + W h + b)."""
    return (rushlight.tanh(projected + rushlight.nn.functional.linear(state[0], weight, bias)),)


def relu_cell(projected: Any, state: tuple[Any, ...], weight: Any, bias: Any, _: Any) -> tuple[Any, ...]:
    """h' = max(projected + W h + b, 0)."""
    return (rushlight.relu(projected + rushlight.nn.functional.linear(state[0], weight, bias)),)


def lstm_cell(projected: Any, state: tuple[Any, ...], weight: Any, bias: Any, shrink: Any) -> tuple[Any, ...]:
    """c' = f * c + i * g, h' = o * tanh(c'), with the gates i, f, g, o in this order; `shrink` projects h'."""
    hidden, cell = state
    gates = projected + rushlight.nn.functional.linear(hidden, weight, bias)
    i, f, g, o = gates.chunk(4, -1)
    cell = rushlight.sigmoid(f) * cell + rushlight.sigmoid(i) * rushlight.tanh(g)
    hidden = rushlight.sigmoid(o) * rushlight.tanh(cell)
    return (hidden if shrink is None else rushlight.nn.functional.linear(hidden, shrink)), cell


def gru_cell(projected: Any, state: tuple[Any, ...], weight: Any, bias: Any, _: Any) -> tuple[Any, ...]:
    """h' = n + z * (h - n) with the gates r, z and the candidate n = tanh(. + r * .), in this order."""
    hidden = state[0]
    input_r, input_z, input_n = projected.chunk(3, -1)
    hidden_r, hidden_z, hidden_n = rushlight.nn.functional.linear(hidden, weight, bias).chunk(3, -1)
    r = rushlight.sigmoid(input_r + hidden_r)
    z = rushlight.sigmoid(input_z + hidden_z)
    n = rushlight.tanh(input_n + r * hidden_n)
    return ((hidden - n) * z + n,)


CELLS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "RNN_TANH": tanh_cell,
    "RNN_RELU": relu_cell,
    "LSTM": lstm_cell,
    "GRU": gru_cell,
}


@_CAST
def run_cell(mode: str, input: Any, state: tuple[Any, ...], weights: list[Any]) -> tuple[Any, ...]:
    """One step; `weights` are [w_ih, w_hh, b_ih, b_hh], None for what is absent."""
    if not _suits([input, *state, *weights]):
        projected = rushlight.nn.functional.linear(input, weights[0], weights[2])
        return CELLS[mode](projected, state, weights[1], weights[3], None)
    if mode == "LSTM":
        return function_of("lstm_step")(input, *state, *weights)
    return (function_of("rnn_step")(input, *state, *weights, mode=_MODES[mode]),)


def _suits(tensors: list[Any]) -> bool:
    """Whether one operator serves these tensors (and Nones): real floats of one dtype that nothing will cast.

    Forward mode goes step by step: the whole layer's tangent is a graph of all steps, which takes long to compile.
    """
    dtype = tensors[0].dtype
    if STATE.word & AUTOCAST or not dtype.is_floating_point:
        return False
    return all(t is None or t.dtype is dtype and getattr(type(t), "backend", None) != "FuncTorchDual" for t in tensors)


@_CAST
def run_layers(
    mode: str,
    data: Any,
    batch_sizes: Any,
    state: tuple[Any, ...],
    weights: list[list[Any]],
    directions: int,
    dropout: float,
    training: bool,
) -> tuple[Any, tuple[Any, ...]]:
    """Run all layers over packed data.

    `data` (sum of batch_sizes, features) holds the sequences step by step, longest first, and `batch_sizes` (a list, a
    tensor of int64, or `Uniform`) how many of them still run at each step. `state` holds tensors (layers * directions, batch,
    features), `weights` for each layer and direction [w_ih, w_hh, b_ih, b_hh, w_hr], None for what is absent. Returns
    the outputs, packed alike, and the last state.
    """
    uniform = isinstance(batch_sizes, Uniform)
    sizes = [] if uniform else batch_sizes if isinstance(batch_sizes, list) else batch_sizes.tolist()
    given = None if uniform or sizes[0] == sizes[-1] else batch_sizes
    whole = uniform or _are_lengths(sizes, data.size(0), state[0].size(1))
    for size, following in () if whole else pairwise(sizes):
        if following > size:
            raise RuntimeError(
                f"batch_sizes of packed sequences must not increase, but {size} is followed by {following}"
            )
    last: list[tuple[Any, ...]] = []
    layers = len(weights) // directions
    for layer in range(layers):
        parts = []
        for direction in range(directions):
            k = layer * directions + direction
            start = tuple(part[k] for part in state)
            if whole and weights[k][4] is None and _suits([data, *start, *weights[k]]):
                out, end = _whole_direction(mode, data, given, start, weights[k][:4], direction == 1)
            else:
                sizes = sizes or [batch_sizes.count] * batch_sizes.steps
                out, end = _run_direction(CELLS[mode], data, sizes, start, weights[k], backwards=direction == 1)
            parts.append(out)
            last.append(end)
        data = parts[0] if directions == 1 else rushlight.cat(parts, -1)
        if dropout and layer < layers - 1:
            data = rushlight.nn.functional.dropout(data, dropout, training)
    if len(last) == 1:
        return data, tuple(part.unsqueeze(0) for part in last[0])
    return data, tuple(rushlight.stack(list(part)) for part in zip(*last, strict=True))


def _are_lengths(sizes: list[int], rows: int, batch: int) -> bool:
    """Whether these numbers of sequences at each step are those of lengths, and fit the rows."""
    return 0 < sizes[-1] and sizes[0] == batch and sum(sizes) == rows and all(a >= b for a, b in pairwise(sizes))


def _whole_direction(
    mode: str, data: Any, sizes: Any, start: tuple[Any, ...], weights: list[Any], backwards: bool
) -> tuple[Any, tuple[Any, ...]]:
    """One direction of one layer by one operator; `sizes` is None where all sequences run to the end."""
    sizes = sizes if sizes is None else sizes.to(data.device)
    if mode == "LSTM":
        found = function_of("lstm_layer")(data, *start, *weights, sizes, reverse=backwards)
    else:
        found = function_of("rnn_layer")(data, *start, *weights, sizes, mode=_MODES[mode], reverse=backwards)
    return found[0], tuple(found[1:])


def _run_direction(
    cell: Callable[..., tuple[Any, ...]],
    data: Any,
    batch_sizes: list[int],
    start: tuple[Any, ...],
    weights: list[Any],
    backwards: bool,
) -> tuple[Any, tuple[Any, ...]]:
    w_ih, w_hh, b_ih, b_hh, shrink = weights
    # The inputs of all steps are projected at once; only the recurrence goes step by step.
    steps = rushlight.nn.functional.linear(data, w_ih, b_ih).split(batch_sizes)
    outputs: list[Any] = []
    finished: list[tuple[Any, ...]] = []
    order = range(len(steps) - 1, -1, -1) if backwards else range(len(steps))
    running = batch_sizes[-1] if backwards else batch_sizes[0]
    state = tuple(part[:running] for part in start)
    for t in order:
        size = batch_sizes[t]
        if size < running:  # forwards: the shortest sequences end here
            finished.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
        elif size > running:  # backwards: longer sequences begin here
            state = tuple(rushlight.cat([part, first[running:size]]) for part, first in zip(state, start, strict=True))
        running = size
        state = cell(steps[t], state, w_hh, b_hh, shrink)
        outputs.append(state[0])
    if backwards:
        outputs.reverse()
    if finished:
        state = tuple(rushlight.cat(list(parts)) for parts in zip(state, *reversed(finished), strict=True))
    return rushlight.cat(outputs), state
