"""Calls of the operators behind recurrent layers and cells."""

from __future__ import annotations

from rushlight._ops.samples import Call, Draw, give
from rushlight._types.dtype import INT64

__all__: list[str] = []

H = Draw(3, 2)
SIZES = Draw(3, dtype=INT64, values=[3, 2, 2])


def _weights(gates: int, bias: bool = True) -> list[Draw | None]:
    """Weights of a layer from 4 features to 2 units."""
    biases = [Draw(2 * gates), Draw(2 * gates)] if bias else [None, None]
    return [Draw(2 * gates, 4), Draw(2 * gates, 2), *biases]


give(
    "lstm_layer",
    Call(Draw(6, 4), H, H, *_weights(4)),
    Call(Draw(6, 4), H, H, *_weights(4, False), reverse=True),
    Call(Draw(7, 4), H, H, *_weights(4), SIZES),
    Call(Draw(7, 4), H, H, *_weights(4, False), SIZES, reverse=True),
)
give(
    "rnn_layer",
    Call(Draw(6, 4), H, *_weights(3), mode="gru"),
    Call(Draw(7, 4), H, *_weights(3, False), SIZES, mode="gru", reverse=True),
    Call(Draw(6, 4), H, *_weights(1), mode="tanh", reverse=True),
    Call(Draw(7, 4), H, *_weights(1, False), SIZES, mode="relu"),
)
give("lstm_step", Call(Draw(3, 4), H, H, *_weights(4)), Call(Draw(4), Draw(2), Draw(2), *_weights(4, False)))
give(
    "rnn_step",
    Call(Draw(3, 4), H, *_weights(3), mode="gru"),
    Call(Draw(4), Draw(2), *_weights(3, False), mode="gru"),
    Call(Draw(3, 4), H, *_weights(1), mode="tanh"),
    Call(Draw(3, 4), H, *_weights(1), mode="relu"),
)
