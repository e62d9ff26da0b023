"""Recurrent layers: `RNN`, `LSTM`, `GRU` over sequences, and their cells for one step."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import casts
from rushlight._interface.tensors import STATE
from rushlight.nn import init
from rushlight.nn.composites.recurrence import Uniform, run_cell, run_layers
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}

_run_lower = casts("lower", None)(run_layers)


def _apply_permutation(tensor: Any, permutation: Any, dim: int = 1) -> Any:
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """Base of the recurrent layers: weights named as in PyTorch, arguments, packed and padded sequences."""

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

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def __getstate__(self) -> dict[str, Any]:
        # PyTorch keeps these as attributes, and asks for them when it reads a module.
        return {
            **super().__getstate__(),
            "_flat_weights": self._flat_weights,
            "_flat_weights_names": self._flat_weights_names,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(
            {name: value for name, value in state.items() if name not in ("_flat_weights", "_flat_weights_names")}
        )

    def _weights(self) -> list[list[Any]]:
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        tables = [{name.split("_l")[0]: getattr(self, name) for name in names} for names in self._all_weights]
        return [[table.get(kind) for kind in kinds] for table in tables]

    # ***** what is checked before a call *****

    def check_input(self, input: Any, batch_sizes: Any) -> None:
        """Check dtype, dimensions and features of the input (of the packed data, if there are `batch_sizes`)."""
        weight = getattr(self, self._all_weights[0][0])
        if input.dtype != weight.dtype and not rushlight.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        dims = 3 if batch_sizes is None else 2
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def get_expected_hidden_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """The size that the hidden state must have for this input."""
        return self._state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def _state_size(self, input: Any, batch_sizes: Any, features: int) -> tuple[int, int, int]:
        batch = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return self.num_layers * (2 if self.bidirectional else 1), batch, features

    def check_hidden_size(
        self, hx: Any, expected_hidden_size: tuple[int, ...], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """RuntimeError unless `hx` has the size; `msg` is filled with both sizes."""
        if tuple(hx.size()) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """Check input and state together."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """The state in the order of `permutation` (none: as it is)."""
        return hx if permutation is None else _apply_permutation(hx, permutation)

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
        state = self._state(input, hx, None, batched)
        if rushlight.compiler.is_exporting() or STATE.dispatch_modes and STATE.dispatch_modes[-1].pre_dispatch:
            output, *last = self._as_operator(input, state)
            if not batched:
                output, last = output.squeeze(batch_dim), [part.squeeze(1) for part in last]
            return output, tuple(last) if self.mode == "LSTM" else last[0]
        sequence = input.transpose(0, 1) if self.batch_first else input
        length, batch = sequence.size(0), sequence.size(1)
        data, last = self._run(
            sequence.reshape(length * batch, sequence.size(2)), Uniform(batch, length), state, whole=not self.proj_size
        )
        output = data.reshape(length, batch, data.size(1))
        output = output.transpose(0, 1) if self.batch_first else output
        if not batched:
            output, last = output.squeeze(batch_dim), tuple(part.squeeze(1) for part in last)
        return output, last if self.mode == "LSTM" else last[0]

    def _as_operator(self, input: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """All layers as one aten operator, as exported graphs have them."""
        params = [w for row in self._weights() for w in row if w is not None]
        operator = getattr(rushlight.ops.aten, self.mode.lower()).input
        hx = list(state) if self.mode == "LSTM" else state[0]
        found: tuple[Any, ...] = operator(
            input, hx, params, self.bias, self.num_layers, float(self.dropout), self.training, self.bidirectional, self.batch_first
        )  # fmt: skip
        return found

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[Any, Any]:
        data, batch_sizes, sorted_indices, unsorted_indices = input
        state = self._state(data, hx, batch_sizes, True, sorted_indices)
        output, last = self._run(data, batch_sizes, state)
        packed = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        return packed, self.permute_hidden(last if self.mode == "LSTM" else last[0], unsorted_indices)

    def _state(self, input: Any, hx: Any, batch_sizes: Any, batched: bool, order: Any = None) -> tuple[Any, ...]:
        """The state that was given, with a batch and in the order of the packed sequences, or zeros; and everything
        checked.
        """
        pair = self.mode == "LSTM"
        if hx is None:
            features = (self.proj_size or self.hidden_size, self.hidden_size)[: 2 if pair else 1]
            sizes = [self._state_size(input, batch_sizes, n) for n in features]
            state = tuple(rushlight.zeros(size, dtype=input.dtype, device=input.device) for size in sizes)
        else:
            state = tuple(hx) if pair else (hx,)
            dims = 3 if batched else 2
            if any(part.dim() != dims for part in state):
                found = ", ".join(f"{part.dim()}-D" for part in state)
                raise RuntimeError(
                    f"For {'batched' if batched else 'unbatched'} {dims}-D input, {'hx and cx' if pair else 'hx'} should also be {dims}-D but got "
                    + (f"({found}) tensors" if pair else f"{found} tensor")
                )
            if not batched:
                state = tuple(part.unsqueeze(1) for part in state)
            permuted = self.permute_hidden(state if pair else state[0], order)
            state = permuted if pair else (permuted,)
        self.check_forward_args(input, state if pair else state[0], batch_sizes)
        return state

    def _run(
        self, data: Any, batch_sizes: Any, state: tuple[Any, ...], whole: bool = False
    ) -> tuple[Any, tuple[Any, ...]]:
        """All layers over packed data; an LSTM over `whole` sequences is one operation for `torch.autocast`, as
        PyTorch's is.
        """
        steps = batch_sizes.steps if isinstance(batch_sizes, Uniform) else len(batch_sizes)
        if not steps:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        directions = 2 if self.bidirectional else 1
        run = _run_lower if whole and self.mode == "LSTM" else run_layers
        return run(self.mode, data, batch_sizes, state, self._weights(), directions, self.dropout, self.training)

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
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
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

    def get_expected_cell_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """The size that the cell state must have for this input."""
        return self._state_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """Check the input and both parts of the state."""
        self.check_input(input, batch_sizes)
        sizes = self.get_expected_hidden_size(input, batch_sizes), self.get_expected_cell_size(input, batch_sizes)
        for i, size in enumerate(sizes):
            self.check_hidden_size(hidden[i], size, f"Expected hidden[{i}] size {{}}, got {{}}")

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """Both parts of the state in the order of `permutation` (none: as they are)."""
        if permutation is None:
            return hx
        return _apply_permutation(hx[0], permutation), _apply_permutation(hx[1], permutation)


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
    """Base of the cells."""

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
        states = [(f"hx[{i}]" if mode == "LSTM" else "hidden", part) for i, part in enumerate(state or ())]
        for what, part in (("input", input), *states):
            if part.dim() not in (1, 2):
                raise ValueError(f"{name}: Expected {what} to be 1D or 2D, got {part.dim()}D instead")
        if input.size(-1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(-1)} expected {self.input_size}")
        batched = input.dim() == 2
        for i, part in enumerate(state or ()):
            self._check_state(input, part, f"hidden{i}")
        if state is None:
            shape = (input.size(0), self.hidden_size) if batched else (self.hidden_size,)
            zeros = rushlight.zeros(shape, dtype=input.dtype, device=input.device)
            state = (zeros,) * (2 if mode == "LSTM" else 1)
        if rushlight.compiler.is_exporting() and batched:
            operator = getattr(rushlight.ops.aten, f"{mode.lower()}_cell").default
            hx = list(state) if mode == "LSTM" else state[0]
            made = operator(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
            return tuple(made) if mode == "LSTM" else (made,)
        return run_cell(mode, input, state, [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh])

    def _check_state(self, input: Any, part: Any, what: str) -> None:
        batched = input.dim() == 2
        if batched and input.size(0) != part.size(0):
            raise RuntimeError(f"Input batch size {input.size(0)} doesn't match {what} batch size {part.size(0)}")
        features = part.size(1 if batched else 0)
        if features != self.hidden_size:
            raise RuntimeError(f"{what} has inconsistent hidden_size: got {features}, expected {self.hidden_size}")


class RNNCell(RNNCellBase):
    """One step of `RNN`: input (N, input_size) or (input_size) and the state before, to the state after.

    >>> import rushlight as torch
    >>> torch.nn.RNNCell(4, 3)(torch.randn(2, 4)).shape
    torch.Size([2, 3])
    """

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
    """One step of `LSTM`; the state is a pair (h, c).

    >>> import rushlight as torch
    >>> h, c = torch.nn.LSTMCell(4, 3)(torch.randn(2, 4))
    >>> h.shape, c.shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Any, Any]:
        """The next hidden and cell state."""
        hidden, cell = self._step("LSTM", input, None if hx is None else tuple(hx))
        return hidden, cell


class GRUCell(RNNCellBase):
    """One step of `GRU`.

    >>> import rushlight as torch
    >>> torch.nn.GRUCell(4, 3)(torch.randn(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Tensor:
        """The next hidden state."""
        return self._step("GRU", input, None if hx is None else (hx,))[0]
