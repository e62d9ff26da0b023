"""Methods of layers whose own Python is more than scripts have, in the typed subset: read by the compiler, never run as
they stand.
"""

# mypy: ignore-errors
# The compiler of scripts checks these pages: their types are those of scripts.

from __future__ import annotations

import rushlight as torch
from rushlight import Tensor
from rushlight.jit.frontend.library import method


@method("Sequential.forward")
def sequential_forward(self, input: Tensor) -> Tensor:
    for module in self:
        input = module(input)
    return input


@method("Linear.forward")
def linear_forward(self, input: Tensor) -> Tensor:
    return torch.nn.functional.linear(input, self.weight, self.bias)


@method("LayerNorm.forward")
def layer_norm_forward(self, input: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


@method("_TransposedConvolution.forward")
def transposed_forward(self, input: Tensor) -> Tensor:
    convolve = getattr(torch.nn.functional, self._operator)
    return convolve(
        input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
    )


# ***** attention: what depends on gradients is decided without them *****


@method("MultiheadAttention._takes_no_hint")
def takes_no_hint(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
    return False


@method("TransformerEncoder._drops_padding")
def drops_padding(self, src: Tensor, padding: Tensor) -> bool:
    return False


# ***** recurrent layers *****


def opened(input: Tensor, state: Tensor | None, dims: int, dim: int, rows: int, size: int) -> tuple[Tensor, Tensor]:
    """Input and state with a batch, in `dim` of the input; zeros where there is no state (of `rows`, if there are any)."""
    if input.dim() not in (dims - 1, dims):
        raise ValueError(f"Expected input to be {dims - 1}D or {dims}D, got {input.dim()}D instead")
    given = input if input.dim() == dims else input.unsqueeze(dim)
    if state is None:
        sizes = [given.size(dim), size]
        return given, torch.zeros([rows] + sizes if rows > 0 else sizes, dtype=input.dtype, device=input.device)
    if state.dim() != input.dim():
        kind = "batched" if input.dim() == dims else "unbatched"
        raise RuntimeError(
            f"For {kind} {input.dim()}-D input, hx should also be {input.dim()}-D but got {state.dim()}-D tensor"
        )
    return given, state if input.dim() == dims else state.unsqueeze(1 if rows > 0 else 0)


@method("LSTM.forward")
def lstm_forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    at = 0 if self.batch_first else 1
    rows = self.num_layers * (2 if self.bidirectional else 1)
    size = self.proj_size if self.proj_size > 0 else self.hidden_size
    given, h = opened(input, None if hx is None else hx[0], 3, at, rows, size)
    _, c = opened(input, None if hx is None else hx[1], 3, at, rows, self.hidden_size)
    output, hn, cn = torch.ops.aten.lstm(
        given, [h, c], self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if input.dim() == 2:
        return output.squeeze(at), (hn.squeeze(1), cn.squeeze(1))
    return output, (hn, cn)


def _recurrent(operator, relu):
    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        at = 0 if self.batch_first else 1
        rows = self.num_layers * (2 if self.bidirectional else 1)
        given, state = opened(input, hx, 3, at, rows, self.hidden_size)
        if self.mode == "RNN_RELU":
            output, hn = relu(given, state, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training,
                              self.bidirectional, self.batch_first)  # fmt: skip
        else:
            output, hn = operator(given, state, self._flat_weights, self.bias, self.num_layers, self.dropout,
                                  self.training, self.bidirectional, self.batch_first)  # fmt: skip
        if input.dim() == 2:
            return output.squeeze(at), hn.squeeze(1)
        return output, hn

    return forward


method("GRU.forward")(_recurrent(torch.ops.aten.gru, torch.ops.aten.gru))
method("RNN.forward")(_recurrent(torch.ops.aten.rnn_tanh, torch.ops.aten.rnn_relu))


@method("LSTMCell.forward")
def lstm_cell_forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    given, h = opened(input, None if hx is None else hx[0], 2, 0, 0, self.hidden_size)
    _, c = opened(input, None if hx is None else hx[1], 2, 0, 0, self.hidden_size)
    h, c = torch.ops.aten.lstm_cell(given, [h, c], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return (h, c) if input.dim() == 2 else (h.squeeze(0), c.squeeze(0))


@method("GRUCell.forward")
def gru_cell_forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
    given, state = opened(input, hx, 2, 0, 0, self.hidden_size)
    step = torch.ops.aten.gru_cell(given, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return step if input.dim() == 2 else step.squeeze(0)


@method("RNNCell.forward")
def rnn_cell_forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
    given, state = opened(input, hx, 2, 0, 0, self.hidden_size)
    if self.nonlinearity == "tanh":
        step = torch.ops.aten.rnn_tanh_cell(given, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    else:
        step = torch.ops.aten.rnn_relu_cell(given, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return step if input.dim() == 2 else step.squeeze(0)
