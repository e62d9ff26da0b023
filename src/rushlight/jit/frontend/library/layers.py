"""Methods of layers, in the typed subset: read by the compiler, never run as it stands."""

# mypy: ignore-errors
# The compiler of scripts checks these pages: their types are those of scripts.

from __future__ import annotations

import rushlight as torch
from rushlight import Tensor
from rushlight.jit.frontend.library import method
from rushlight.jit.frontend.library.functional import batch_norm, layer_norm

# ***** modules *****


@method("Sequential.forward")
def sequential_forward(self, input: Tensor) -> Tensor:
    for module in self:
        input = module(input)
    return input


@method("Conv1d._conv_forward")
def conv1d_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if self.padding_mode != "zeros":
        padded = torch.ops.aten.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.ops.aten.conv1d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
    return torch.ops.aten.conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


@method("Conv2d._conv_forward")
def conv2d_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if self.padding_mode != "zeros":
        padded = torch.ops.aten.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.ops.aten.conv2d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
    return torch.ops.aten.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


@method("Conv3d._conv_forward")
def conv3d_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if self.padding_mode != "zeros":
        padded = torch.ops.aten.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.ops.aten.conv3d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
    return torch.ops.aten.conv3d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


@method("ConvTranspose1d.forward")
def conv_transpose1d_forward(self, input: Tensor) -> Tensor:
    return torch.ops.aten.conv_transpose1d(
        input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
    )


@method("ConvTranspose2d.forward")
def conv_transpose2d_forward(self, input: Tensor) -> Tensor:
    return torch.ops.aten.conv_transpose2d(
        input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
    )


@method("ConvTranspose3d.forward")
def conv_transpose3d_forward(self, input: Tensor) -> Tensor:
    return torch.ops.aten.conv_transpose3d(
        input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
    )


@method("BatchNorm1d._check_input_dim")
def check_batch_norm1d(self, input: Tensor) -> None:
    if input.dim() != 2 and input.dim() != 3:
        raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


@method("BatchNorm2d._check_input_dim")
def check_batch_norm2d(self, input: Tensor) -> None:
    if input.dim() != 4:
        raise ValueError(f"expected 4D input (got {input.dim()}D input)")


@method("BatchNorm3d._check_input_dim")
def check_batch_norm3d(self, input: Tensor) -> None:
    if input.dim() != 5:
        raise ValueError(f"expected 5D input (got {input.dim()}D input)")


@method("_BatchNorm.forward")
def batch_norm_forward(self, input: Tensor) -> Tensor:
    self._check_input_dim(input)
    if self.momentum is None:
        factor = 0.0
    else:
        factor = self.momentum
    if self.training and self.track_running_stats:
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
    if self.training:
        use_batch = True
    else:
        use_batch = (self.running_mean is None) and (self.running_var is None)
    return batch_norm(
        input,
        self.running_mean if not self.training or self.track_running_stats else None,
        self.running_var if not self.training or self.track_running_stats else None,
        self.weight,
        self.bias,
        use_batch,
        factor,
        self.eps,
    )


@method("Linear.forward")
def linear_forward(self, input: Tensor) -> Tensor:
    return torch.ops.aten.linear(input, self.weight, self.bias)


@method("LayerNorm.forward")
def layer_norm_forward(self, input: Tensor) -> Tensor:
    return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


@method("GELU.forward")
def gelu_forward(self, input: Tensor) -> Tensor:
    return torch.ops.aten.gelu(input, approximate=self.approximate)


@method("Flatten.forward")
def flatten_forward(self, input: Tensor) -> Tensor:
    return input.flatten(self.start_dim, self.end_dim)


@method("Identity.forward")
def identity_forward(self, input: Tensor) -> Tensor:
    return input


# ***** recurrent layers *****


def permuted(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    return tensor.index_select(dim, permutation)


@method("LSTM.forward")
def lstm_forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    if input.dim() not in (2, 3):
        raise ValueError(f"LSTM: Expected input to be 2D or 3D, got {input.dim()}D instead")
    is_batched = input.dim() == 3
    if not is_batched:
        input = input.unsqueeze(0 if self.batch_first else 1)
    batch = input.size(0) if self.batch_first else input.size(1)
    directions = 2 if self.bidirectional else 1
    size = self.proj_size if self.proj_size > 0 else self.hidden_size
    if hx is None:
        h = torch.zeros(self.num_layers * directions, batch, size, dtype=input.dtype, device=input.device)
        c = torch.zeros(self.num_layers * directions, batch, self.hidden_size, dtype=input.dtype, device=input.device)
    else:
        h, c = hx
        if not is_batched:
            if h.dim() != 2 or c.dim() != 2:
                raise RuntimeError(
                    f"For unbatched 2-D input, hx and cx should also be 2-D but got ({h.dim()}-D, {c.dim()}-D) tensors"
                )
            h = h.unsqueeze(1)
            c = c.unsqueeze(1)
        elif h.dim() != 3 or c.dim() != 3:
            raise RuntimeError(
                f"For batched 3-D input, hx and cx should also be 3-D but got ({h.dim()}-D, {c.dim()}-D) tensors"
            )
    output, hn, cn = torch.ops.aten.lstm(
        input, [h, c], self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if not is_batched:
        output = output.squeeze(0 if self.batch_first else 1)
        hn = hn.squeeze(1)
        cn = cn.squeeze(1)
    return output, (hn, cn)


def recurrent_input(input: Tensor, batch_first: bool) -> Tensor:
    if input.dim() == 2:
        if batch_first:
            return input.unsqueeze(0)
        return input.unsqueeze(1)
    if input.dim() != 3:
        raise ValueError(f"Expected input to be 2D or 3D, got {input.dim()}D instead")
    return input


def recurrent_state(input: Tensor, hx: Tensor | None, batched: bool, batch_first: bool, rows: int, size: int) -> Tensor:
    if hx is None:
        batch = input.size(0) if batch_first else input.size(1)
        return torch.zeros(rows, batch, size, dtype=input.dtype, device=input.device)
    if not batched:
        if hx.dim() != 2:
            raise RuntimeError(f"For unbatched 2-D input, hx should also be 2-D but got {hx.dim()}-D tensor")
        return hx.unsqueeze(1)
    if hx.dim() != 3:
        raise RuntimeError(f"For batched 3-D input, hx should also be 3-D but got {hx.dim()}-D tensor")
    return hx


@method("GRU.forward")
def gru_forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 3
    given = recurrent_input(input, self.batch_first)
    rows = self.num_layers * (2 if self.bidirectional else 1)
    state = recurrent_state(given, hx, batched, self.batch_first, rows, self.hidden_size)
    output, hn = torch.ops.aten.gru(
        given, state, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if not batched:
        output = output.squeeze(0 if self.batch_first else 1)
        hn = hn.squeeze(1)
    return output, hn


@method("RNN.forward")
def rnn_forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 3
    given = recurrent_input(input, self.batch_first)
    rows = self.num_layers * (2 if self.bidirectional else 1)
    state = recurrent_state(given, hx, batched, self.batch_first, rows, self.hidden_size)
    if self.mode == "RNN_TANH":
        output, hn = torch.ops.aten.rnn_tanh(
            given, state, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training,
            self.bidirectional, self.batch_first,
        )  # fmt: skip
    else:
        output, hn = torch.ops.aten.rnn_relu(
            given, state, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training,
            self.bidirectional, self.batch_first,
        )  # fmt: skip
    if not batched:
        output = output.squeeze(0 if self.batch_first else 1)
        hn = hn.squeeze(1)
    return output, hn


@method("LSTMCell.forward")
def lstm_cell_forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 2
    if not batched:
        input = input.unsqueeze(0)
    if hx is None:
        zeros = torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
        state = (zeros, zeros)
    else:
        state = (hx[0].unsqueeze(0), hx[1].unsqueeze(0)) if not batched else hx
    made = torch.ops.aten.lstm_cell(
        input, [state[0], state[1]], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
    )
    if not batched:
        return made[0].squeeze(0), made[1].squeeze(0)
    return made


@method("RNNCell.forward")
def rnn_cell_forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
    batched = input.dim() == 2
    if not batched:
        input = input.unsqueeze(0)
    if hx is None:
        state = torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
    else:
        state = hx.unsqueeze(0) if not batched else hx
    if self.nonlinearity == "tanh":
        made = torch.ops.aten.rnn_tanh_cell(input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    else:
        made = torch.ops.aten.rnn_relu_cell(input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if not batched:
        made = made.squeeze(0)
    return made


@method("GRUCell.forward")
def gru_cell_forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
    batched = input.dim() == 2
    if not batched:
        input = input.unsqueeze(0)
    if hx is None:
        state = torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
    else:
        state = hx.unsqueeze(0) if not batched else hx
    made = torch.ops.aten.gru_cell(input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if not batched:
        made = made.squeeze(0)
    return made
