"""Recurrent layers of floats whose weights are of integers; the input of a layer and each hidden state are quantized on the way."""

from __future__ import annotations

import numbers
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight._interface.tensors import STATE
from rushlight.ao.nn.quantized.dynamic.layers import dynamic_weight
from rushlight.ao.operators import layers as cells
from rushlight.ao.operators.namespace import operators as ops
from rushlight.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "RNNCell"]


class CellParameters:
    """The packed weights of one direction of one layer; with `reduce_range` inputs are quantized to seven bits."""

    def __init__(self, ih: Any, hh: Any, reduce_range: bool = True) -> None:
        self.ih, self.hh, self.reduce_range = ih, hh, reduce_range

    def __getstate__(self) -> Any:
        return (self.ih, self.hh) if self.reduce_range else (self.ih, self.hh, False)

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]


class PackedParameter(nn.Module):
    """A module whose state is the packed weights of a cell."""

    def __init__(self, param: Any) -> None:
        super().__init__()
        self.param = param

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "param"] = self.param

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        self.param = state_dict.pop(prefix + "param", self.param)
        super()._load_from_state_dict(state_dict, prefix, more[0], False, *more[2:])


def _pack(dtype: Any, weight: Any, bias: Any) -> Any:
    return ops.linear_prepack(weight, bias) if dtype is torch.qint8 else ops.linear_prepack_fp16(weight, bias)


class RNNBase(nn.Module):
    """Base of layers over whole sequences."""

    _version = 2
    _FLOAT_MODULE: Any = nn.RNNBase
    _GATES = {"LSTM": 4, "GRU": 3}

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, dtype: Any = torch.qint8,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.dtype, self.version, self.training = dtype, 2, False
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if mode not in self._GATES:
            raise ValueError("Only LSTM/GRU is supported for QuantizedRNN")
        rows = self._GATES[mode] * hidden_size
        cells = []
        for layer in range(num_layers):
            for _ in range(self.directions):
                depth = input_size if layer == 0 else hidden_size * self.directions
                cells.append(self._empty(rows, depth))
        self._all_weight_values = nn.ModuleList([PackedParameter(cell) for cell in cells])

    @property
    def directions(self) -> int:
        """One, or two."""
        return 2 if self.bidirectional else 1

    def _empty(self, rows: int, depth: int) -> Any:
        bias = torch.zeros(rows) if self.bias else None
        packed = []
        for size in (depth, self.hidden_size):
            weight = torch.zeros(rows, size)
            if self.dtype is torch.qint8:
                weight = torch.quantize_per_tensor(weight, 1.0, 0, torch.qint8)
            packed.append(_pack(self.dtype, weight, bias))
        return CellParameters(*packed)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        """Sizes."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    # ***** checks *****

    def check_input(self, input: Any, batch_sizes: Any) -> None:
        """RuntimeError for an input of another number of dims or of another size."""
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def get_expected_hidden_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """The shape of a hidden state."""
        batch = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return self.num_layers * self.directions, batch, self.hidden_size

    def check_hidden_size(
        self, hx: Any, expected_hidden_size: Any, msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """RuntimeError for a hidden state of another shape."""
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """The checks of a call."""
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        for state in hidden if isinstance(hidden, tuple) else (hidden,):
            self.check_hidden_size(state, expected, msg="Expected hidden size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """Hidden states in another order of the batch."""
        if permutation is None:
            return hx
        if isinstance(hx, tuple):
            return tuple(x.index_select(1, permutation) for x in hx)
        return hx.index_select(1, permutation)

    # ***** the layers *****

    def _step(self, ih: Any, hidden: Any, cell: Any) -> Any:
        raise NotImplementedError

    def _states(self, hx: Any, place: int) -> Any:
        return tuple(x[place] for x in hx) if isinstance(hx, tuple) else hx[place]

    def _direction(self, x: Any, hidden: Any, cell: Any, backward: bool, sizes: Any = None) -> tuple[Any, Any]:
        """One direction of one layer over [T, B, C] (or rows packed as `sizes` says): the hidden states, and the last one.

        One scale serves the whole input; each hidden state has its own.
        """
        ih = cell.ih.apply_dynamic(x, cell.reduce_range)
        steps = list(ih) if sizes is None else list(ih.split(sizes))
        found = []
        for rows in steps[::-1] if backward else steps:
            hidden = self._next(rows, hidden, cell)
            found.append(self._first(hidden)[: rows.shape[0]])
        found = found[::-1] if backward else found
        return (torch.stack(found) if sizes is None else torch.cat(found)), hidden

    @staticmethod
    def _first(hidden: Any) -> Any:
        return hidden[0] if isinstance(hidden, tuple) else hidden

    def _next(self, rows: Any, hidden: Any, cell: Any) -> Any:
        """The next hidden state: that of sequences which ended, or have not begun, stays."""
        n = rows.shape[0]
        if n == self._first(hidden).shape[0]:
            return self._step(rows, hidden, cell)
        parts = hidden if isinstance(hidden, tuple) else (hidden,)
        made = self._step(rows, tuple(p[:n] for p in parts) if isinstance(hidden, tuple) else hidden[:n], cell)
        made = made if isinstance(made, tuple) else (made,)
        joined = tuple(torch.cat([m, p[n:]]) for m, p in zip(made, parts, strict=True))
        return joined if isinstance(hidden, tuple) else joined[0]

    def _layers(self, x: Any, hx: Any, sizes: Any = None) -> tuple[Any, Any]:
        last, n = [], self.directions
        for layer in range(self.num_layers):
            parts = []
            for d in range(n):
                cell = self._all_weight_values[layer * n + d].param
                part, state = self._direction(x, self._states(hx, layer * n + d), cell, d == 1, sizes)
                parts.append(part)
                last.append(state)
            x = parts[0] if n == 1 else torch.cat(parts, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = nn.functional.dropout(x, self.dropout, True)
        if isinstance(hx, tuple):
            return x, tuple(torch.stack([s[i] for s in last]) for i in range(2))
        return x, torch.stack(last)

    def _first_hidden(self, input: Any, batch_sizes: Any) -> Any:
        zeros = torch.zeros(*self.get_expected_hidden_size(input, batch_sizes), dtype=input.dtype)
        return (zeros, zeros) if self.mode == "LSTM" else zeros

    def forward_impl(
        self, input: Any, hx: Any, batch_sizes: Any, max_batch_size: int, sorted_indices: Any
    ) -> tuple[Any, Any]:
        """The layers over a sequence, or over packed ones with their `batch_sizes`."""
        hx = self._first_hidden(input, batch_sizes) if hx is None else self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(input, hx, batch_sizes)
        if batch_sizes is not None:
            return self._layers(input, hx, batch_sizes.tolist())
        x, hidden = self._layers(input.transpose(0, 1) if self.batch_first else input, hx)
        return (x.transpose(0, 1) if self.batch_first else x), hidden

    def forward_tensor(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """The layers over sequences [T, B, C] ([B, T, C] with `batch_first`)."""
        batch = input.size(0 if self.batch_first else 1)
        output, hidden = self.forward_impl(input, hx, None, batch, None)
        return output, hidden

    def forward_packed(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """The layers over a `PackedSequence`."""
        data, sizes, in_order, back = input
        output, hidden = self.forward_impl(data, hx, sizes, int(sizes[0]), in_order)
        return PackedSequence(output, sizes, in_order, back), self.permute_hidden(hidden, back)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """The layers over sequences: (output, hidden state)."""
        if isinstance(input, PackedSequence):
            return self.forward_packed(input, hx)
        return self.forward_tensor(input, hx)

    # ***** weights *****

    @classmethod
    def over_cells(cls, cells: Any, num_layers: int, dropout: float, bidirectional: bool, training: bool) -> Any:
        """A layer over packed weights alone, as graphs call it: sizes and checks are the caller's."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.num_layers, made.dropout, made.bidirectional = num_layers, dropout, bidirectional
        made._all_weight_values = nn.ModuleList([PackedParameter(cell) for cell in cells])
        return made.train(training)

    @classmethod
    def _given(cls, mod: Any, dtype: Any) -> Any:
        return cls(
            mod.input_size,
            mod.hidden_size,
            mod.num_layers,
            mod.bias,
            mod.batch_first,
            mod.dropout,
            mod.bidirectional,
            dtype=dtype,
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layers of float ones."""
        if type(mod) not in (nn.LSTM, nn.GRU):
            raise AssertionError("nn.quantized.dynamic.RNNBase.from_float only works for nn.LSTM and nn.GRU")
        made, cells = None, []
        for layer in range(mod.num_layers):
            for suffix in ("", "_reverse")[: 2 if mod.bidirectional else 1]:
                packed = []
                for side in ("ih", "hh"):
                    dtype, weight = dynamic_weight(mod, getattr(mod, f"weight_{side}_l{layer}{suffix}"))
                    packed.append(
                        _pack(dtype, weight, getattr(mod, f"bias_{side}_l{layer}{suffix}") if mod.bias else None)
                    )
                    made = made or cls._given(mod, dtype)
                cells.append(PackedParameter(CellParameters(*packed)))
        assert made is not None
        made._all_weight_values = nn.ModuleList(cells)
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """The layers of reference ones."""
        raise NotImplementedError(
            f"{cls.__name__}.from_reference: reference models of recurrent layers are not converted yet"
        )

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Pack other weights and biases, by their names in the float module."""
        n = self.directions
        for layer in range(self.num_layers):
            for d, suffix in enumerate(("", "_reverse")[:n]):
                packed = [
                    _pack(
                        self.dtype,
                        weight_bias_dict[f"weight_{s}_l{layer}{suffix}"],
                        weight_bias_dict.get(f"bias_{s}_l{layer}{suffix}"),
                    )
                    for s in ("ih", "hh")
                ]
                self._all_weight_values[layer * n + d].param = CellParameters(*packed)

    def _by_name(self, part: int, word: str) -> dict[str, Any]:
        found, n = {}, self.directions
        for layer in range(self.num_layers):
            for d, suffix in enumerate(("", "_reverse")[:n]):
                cell = self._all_weight_values[layer * n + d].param
                for side in ("ih", "hh"):
                    found[f"{word}_{side}_l{layer}{suffix}"] = getattr(cell, side).unpack()[part]
        return found

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        return {"weight": self._by_name(0, "weight"), "bias": self._by_name(1, "bias") if self.bias else {}}

    def get_weight(self) -> dict[str, Any]:
        """The weights, by their names in the float module."""
        return self._by_name(0, "weight")

    def get_bias(self) -> dict[str, Any]:
        """The biases, by their names in the float module."""
        return self._by_name(1, "bias") if self.bias else {}


class LSTM(RNNBase):
    """An LSTM of floats whose weights are of integers.

    >>> import rushlight as torch
    >>> lstm = torch.ao.nn.quantized.dynamic.LSTM(3, 4)
    >>> lstm(torch.zeros(5, 1, 3))[0].shape
    torch.Size([5, 1, 4])
    """

    _FLOAT_MODULE = nn.LSTM

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def _step(self, ih: Any, hidden: Any, cell: Any) -> Any:
        return cells.lstm_step(ih + cell.hh.apply_dynamic(hidden[0], cell.reduce_range), hidden[1])


class GRU(RNNBase):
    """A GRU of floats whose weights are of integers."""

    _FLOAT_MODULE = nn.GRU

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)

    def _step(self, ih: Any, hidden: Any, cell: Any) -> Any:
        return cells.gru_step(ih, cell.hh.apply_dynamic(hidden, cell.reduce_range), hidden)


# ***** cells *****


class RNNCellBase(nn.Module):
    """Base of one step of a recurrent layer."""

    _FLOAT_MODULE: Any = nn.RNNCellBase

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, num_chunks: int = 4, dtype: Any = torch.qint8
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias, self.weight_dtype = input_size, hidden_size, bias, dtype
        rows = num_chunks * hidden_size
        held = torch.zeros(rows) if bias else None
        for name, size in (("ih", input_size), ("hh", hidden_size)):
            weight = torch.zeros(rows, size)
            if dtype is torch.qint8:
                weight = torch.quantize_per_tensor(weight, 1.0, 0, torch.qint8)
            setattr(self, f"_packed_weight_{name}", _pack(dtype, weight, held))

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        """Sizes."""
        text = f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")
        mode = getattr(self, "nonlinearity", "tanh")
        return text + ("" if mode == "tanh" else f", nonlinearity={mode}")

    def check_forward_input(self, input: Any) -> None:
        """RuntimeError for an input of another size."""
        if input.size(1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(1)}, expected {self.input_size}")

    def check_forward_hidden(self, input: Any, hx: Any, hidden_label: str = "") -> None:
        """RuntimeError for a hidden state of another shape."""
        if input.size(0) != hx.size(0):
            raise RuntimeError(
                f"Input batch size {input.size(0)} doesn't match hidden{hidden_label} batch size {hx.size(0)}"
            )
        if hx.size(1) != self.hidden_size:
            raise RuntimeError(
                f"hidden{hidden_label} has inconsistent hidden_size: got {hx.size(1)}, expected {self.hidden_size}"
            )

    def _hidden(self, input: Any, hx: Any) -> Any:
        self.check_forward_input(input)
        if hx is None:
            hx = torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype)
        self.check_forward_hidden(input, hx, "")
        return hx

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The cell of a float one."""
        more = {"nonlinearity": mod.nonlinearity} if isinstance(mod, nn.RNNCell) else {}
        dtype, ih = dynamic_weight(mod, mod.weight_ih)
        hh = dynamic_weight(mod, mod.weight_hh)[1]
        made = cls(mod.input_size, mod.hidden_size, bias=mod.bias, dtype=dtype, **more)
        made._packed_weight_ih = _pack(dtype, ih, mod.bias_ih if mod.bias else None)
        made._packed_weight_hh = _pack(dtype, hh, mod.bias_hh if mod.bias else None)
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """The cell of a reference one."""
        raise NotImplementedError(
            f"{cls.__name__}.from_reference: reference models of recurrent layers are not converted yet"
        )

    def _weight_bias(self) -> dict[str, Any]:
        return {"weight": self.get_weight(), "bias": self.get_bias()}

    def get_weight(self) -> dict[str, Any]:
        """The weights, by their names in the float module."""
        return {f"weight_{s}": getattr(self, f"_packed_weight_{s}").unpack()[0] for s in ("ih", "hh")}

    def get_bias(self) -> dict[str, Any]:
        """The biases, by their names in the float module."""
        return {f"bias_{s}": getattr(self, f"_packed_weight_{s}").unpack()[1] for s in ("ih", "hh")}

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Pack other weights and biases, by their names in the float module."""
        for s in ("ih", "hh"):
            packed = _pack(self.weight_dtype, weight_bias_dict[f"weight_{s}"], weight_bias_dict.get(f"bias_{s}"))
            setattr(self, f"_packed_weight_{s}", packed)

    def _weights(self) -> tuple[Any, ...]:
        """Packed weights, which have the biases; these alone too where a call is recorded, whose schema has them."""
        packed = self._packed_weight_ih, self._packed_weight_hh
        if not STATE.function_modes:
            return packed
        biases = [weight.unpack()[1] for weight in packed]
        return (*packed, *[torch.zeros(0) if bias is None else bias for bias in biases])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in ("_packed_weight_ih", "_packed_weight_hh"):
            destination[prefix + name] = getattr(self, name)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        for name in ("_packed_weight_ih", "_packed_weight_hh"):
            setattr(self, name, state_dict.pop(prefix + name))
        super()._load_from_state_dict(state_dict, prefix, more[0], False, *more[2:])


class RNNCell(RNNCellBase):
    """One step of an RNN of floats whose weights are of integers."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", dtype: Any = torch.qint8
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The next hidden state."""
        steps = {"tanh": ops.quantized_rnn_tanh_cell_dynamic, "relu": ops.quantized_rnn_relu_cell_dynamic}
        if self.nonlinearity not in steps:
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return steps[self.nonlinearity](input, self._hidden(input, hx), *self._weights())


class LSTMCell(RNNCellBase):
    """One step of an LSTM of floats whose weights are of integers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, num_chunks=4, **kwargs)  # type: ignore[misc]

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """The next hidden and cell state."""
        if hx is None:
            zeros = self._hidden(input, None)
            hx = (zeros, zeros)
        self._hidden(input, hx[0])
        return ops.quantized_lstm_cell_dynamic(input, hx, *self._weights())


class GRUCell(RNNCellBase):
    """One step of a GRU of floats whose weights are of integers."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = torch.qint8) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, dtype=dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The next hidden state."""
        return ops.quantized_gru_cell_dynamic(input, self._hidden(input, hx), *self._weights())
