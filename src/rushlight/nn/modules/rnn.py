"""Recurrent layers: `RNN`, `LSTM`, `GRU` over sequences, and their cells for one step."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import init
from rushlight.nn.composites.recurrence import CELLS, run_layers
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """What the recurrent layers share: weights named as in PyTorch, arguments, packed and padded sequences."""

    __constants__ = [
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size",
    ]  # fmt: skip

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_arguments()
        self.dropout = float(dropout)
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(2 if bidirectional else 1):
                self._add_layer(layer, "_reverse" if direction else "", device, dtype)
        self.reset_parameters()

    def _check_arguments(self) -> None:
        dropout = self.dropout
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
                f"greater than 1, but got dropout={dropout} and num_layers={self.num_layers}",
                stacklevel=4,
            )
        for name, kind in (("bias", bool), ("batch_first", bool), ("input_size", int), ("hidden_size", int)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")

    def _add_layer(self, layer: int, suffix: str, device: Any, dtype: Any) -> None:
        gates = _GATES[self.mode] * self.hidden_size
        out = self.proj_size or self.hidden_size
        inputs = self.input_size if layer == 0 else out * (2 if self.bidirectional else 1)
        sizes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, inputs), "weight_hh": (gates, out)}
        if self.bias:
            sizes.update(bias_ih=(gates,), bias_hh=(gates,))
        if self.proj_size:
            sizes["weight_hr"] = (self.proj_size, self.hidden_size)
        names = []
        for word, size in sizes.items():
            names.append(f"{word}_l{layer}{suffix}")
            setattr(self, names[-1], Parameter(rushlight.empty(size, device=device, dtype=dtype)))
        self._all_weights.append(names)

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform on [-1/sqrt(hidden_size), 1/sqrt(hidden_size)]."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do here: on a GPU it puts the weights into one block of memory."""

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def _weights(self) -> list[list[Any]]:
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        tables = [{name.split("_l")[0]: getattr(self, name) for name in names} for names in self._all_weights]
        return [[table.get(kind) for kind in kinds] for table in tables]

    # ***** the call *****

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Any, Any]:
        """Run over `input` from the state `hx` (zeros by default); returns (outputs, last state).

        Shapes: input (L, N, features), (N, L, features) if `batch_first`, (L, features), or a `PackedSequence`; states
        (num_layers * directions, N, hidden).
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        name = type(self).__name__
        if input.dim() not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D tensor instead")
        batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        if not batched:
            input = input.unsqueeze(batch_dim)
        state = self._unpacked_state(hx, batched)
        sequence = input.transpose(0, 1) if self.batch_first else input
        length, batch = sequence.size(0), sequence.size(1)
        state = self._checked(sequence, 3, batch, state)
        data, last = self._run(sequence.reshape(length * batch, sequence.size(2)), [batch] * length, state)
        output = data.reshape(length, batch, -1)
        output = output.transpose(0, 1) if self.batch_first else output
        if not batched:
            output, last = output.squeeze(batch_dim), tuple(part.squeeze(1) for part in last)
        return output, last if self.mode == "LSTM" else last[0]

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[Any, Any]:
        data, batch_sizes, sorted_indices, unsorted_indices = input
        sizes = batch_sizes.tolist()
        state = self._unpacked_state(hx, batched=True)
        if state is not None and sorted_indices is not None:
            state = tuple(part.index_select(1, sorted_indices) for part in state)
        state = self._checked(data, 2, sizes[0], state)
        output, last = self._run(data, sizes, state)
        if unsorted_indices is not None:
            last = tuple(part.index_select(1, unsorted_indices) for part in last)
        packed = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        return packed, last if self.mode == "LSTM" else last[0]

    def _unpacked_state(self, hx: Any, batched: bool) -> tuple[Any, ...] | None:
        if hx is None:
            return None
        state = tuple(hx) if self.mode == "LSTM" else (hx,)
        for part in state:
            if part.dim() != (3 if batched else 2):
                what = "batched 3-D" if batched else "unbatched 2-D"
                want = "3-D" if batched else "2-D"
                raise RuntimeError(f"For {what} input, hx should also be {want} but got {part.dim()}-D tensor")
        return state if batched else tuple(part.unsqueeze(1) for part in state)

    def _checked(self, input: Any, dims: int, batch: int, state: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """Check shapes and dtype, and make the state if there is none."""
        weight = getattr(self, self._all_weights[0][0])
        if input.dtype != weight.dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [(count, batch, self.proj_size or self.hidden_size), (count, batch, self.hidden_size)]
        sizes = sizes if self.mode == "LSTM" else sizes[:1]
        if state is None:
            return tuple(rushlight.zeros(size, dtype=input.dtype, device=input.device) for size in sizes)
        for i, (part, size) in enumerate(zip(state, sizes, strict=True)):
            if tuple(part.size()) != size:
                which = f"hidden[{i}]" if self.mode == "LSTM" else "hidden"
                raise RuntimeError(f"Expected {which} size {size}, got {list(part.size())}")
        return state

    def _run(self, data: Any, batch_sizes: list[int], state: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        if not batch_sizes:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        directions = 2 if self.bidirectional else 1
        return run_layers(
            self.mode, data, batch_sizes, state, self._weights(), directions, self.dropout, self.training
        )

    def extra_repr(self) -> str:
        """The sizes, and the options that are not at their defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(RNNBase):
    """The plain recurrent layer: h' = tanh(W x + b + U h + c), or relu with `nonlinearity="relu"`.

    Example: `output, h = nn.RNN(10, 20, 2)(torch.randn(5, 3, 10))`
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", *args: Any, **kwargs: Any
    ) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if nonlinearity not in modes:
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(modes[nonlinearity], input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory. The state is a pair (h, c); `proj_size` makes h smaller by a projection.

    Example: `output, (h, c) = nn.LSTM(10, 20, 2)(torch.randn(5, 3, 10))`
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """The gated recurrent unit.

    Example: `output, h = nn.GRU(10, 20, bidirectional=True)(torch.randn(5, 3, 10))`
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


# ***** single steps *****


class RNNCellBase(Module):
    """What the cells share."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(rushlight.empty((gates, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(rushlight.empty((gates, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            value = Parameter(rushlight.empty(gates, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform on [-1/sqrt(hidden_size), 1/sqrt(hidden_size)]."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        """The sizes, and the options that are not at their defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _step(self, mode: str, input: Any, state: tuple[Any, ...] | None) -> tuple[Any, ...]:
        name = type(self).__name__
        for what, part in (("input", input), *((f"hx[{i}]", part) for i, part in enumerate(state or ()))):
            if part.dim() not in (1, 2):
                raise ValueError(f"{name}: Expected {what} to be 1D or 2D, got {part.dim()}D instead")
        if input.size(-1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(-1)} expected {self.input_size}")
        batched = input.dim() == 2
        if state is None:
            shape = (input.size(0), self.hidden_size) if batched else (self.hidden_size,)
            zeros = rushlight.zeros(shape, dtype=input.dtype, device=input.device)
            state = (zeros,) * (2 if mode == "LSTM" else 1)
        projected = rushlight.nn.functional.linear(input, self.weight_ih, self.bias_ih)
        return CELLS[mode](projected, state, self.weight_hh, self.bias_hh, None)


class RNNCell(RNNCellBase):
    """One step of `RNN`: input (N, input_size) or (input_size) and the state before, to the state after."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Any = None) -> Tensor:
        """The next hidden state."""
        mode = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}.get(self.nonlinearity)
        if mode is None:
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(mode, input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of `LSTM`; the state is a pair (h, c)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Any, Any]:
        """The next hidden and cell state."""
        hidden, cell = self._step("LSTM", input, None if hx is None else tuple(hx))
        return hidden, cell


class GRUCell(RNNCellBase):
    """One step of `GRU`."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Tensor:
        """The next hidden state."""
        return self._step("GRU", input, None if hx is None else (hx,))[0]
