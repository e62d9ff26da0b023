"""LSTM and attention of modules that can be observed one by one: products, sums and gates."""

from __future__ import annotations

import numbers
from typing import Any

import rushlight as torch
from rushlight import nn

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]


class LSTMCell(nn.Module):
    """One step of an LSTM, each of whose sums and gates is a module."""

    _FLOAT_MODULE = nn.LSTMCell

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias, self.split_gates = input_dim, hidden_dim, bias, split_gates
        self.igates = nn.Linear(input_dim, 4 * hidden_dim, bias=bias)
        self.hgates = nn.Linear(hidden_dim, 4 * hidden_dim, bias=bias)
        self.gates = torch.ao.nn.quantized.FloatFunctional()
        self.input_gate, self.forget_gate, self.cell_gate, self.output_gate = (
            nn.Sigmoid(),
            nn.Sigmoid(),
            nn.Tanh(),
            nn.Sigmoid(),
        )
        self.fgate_cx, self.igate_cgate, self.fgate_cx_igate_cgate, self.ogate_cy = (
            torch.ao.nn.quantized.FloatFunctional() for _ in range(4)
        )
        self.initial_hidden_state_qparams: Any = (1.0, 0)
        self.initial_cell_state_qparams: Any = (1.0, 0)
        self.hidden_state_dtype = self.cell_state_dtype = torch.quint8

    def forward(self, x: Any, hidden: Any = None) -> tuple[Any, Any]:
        """The next hidden and cell state."""
        if hidden is None or hidden[0] is None or hidden[1] is None:
            hidden = self.initialize_hidden(x.shape[0], x.is_quantized)
        hx, cx = hidden
        gates = self.gates.add(self.igates(x), self.hgates(hx))
        i, f, g, o = gates.chunk(4, 1)
        kept = self.fgate_cx.mul(self.forget_gate(f), cx)
        new = self.igate_cgate.mul(self.input_gate(i), self.cell_gate(g))
        cy = self.fgate_cx_igate_cgate.add(kept, new)
        return self.ogate_cy.mul(self.output_gate(o), torch.tanh(cy)), cy

    def initialize_hidden(self, batch_size: int, is_quantized: bool = False) -> tuple[Any, Any]:
        """Zeros."""
        h, c = torch.zeros(batch_size, self.hidden_size), torch.zeros(batch_size, self.hidden_size)
        if is_quantized:
            h = torch.quantize_per_tensor(h, *self.initial_hidden_state_qparams, self.hidden_state_dtype)
            c = torch.quantize_per_tensor(c, *self.initial_cell_state_qparams, self.cell_state_dtype)
        return h, c

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"

    @classmethod
    def from_params(cls, wi: Any, wh: Any, bi: Any = None, bh: Any = None, split_gates: bool = False) -> Any:
        """The cell with these weights [4 H, C], [4 H, H] and biases."""
        if (bi is None) != (bh is None):
            raise AssertionError("both bias terms must be given or none")
        made = cls(wi.shape[1], wh.shape[1], bias=bi is not None, split_gates=split_gates)
        for layer, weight, bias in ((made.igates, wi, bi), (made.hgates, wh, bh)):
            layer.weight = nn.Parameter(weight)
            if bias is not None:
                layer.bias = nn.Parameter(bias)
        return made

    @classmethod
    def from_float(cls, other: Any, use_precomputed_fake_quant: bool = False, split_gates: bool = False) -> Any:
        """The cell of a float one."""
        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"expected {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        made = cls.from_params(other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh, split_gates)
        for part in (made, made.igates, made.hgates):
            part.qconfig = other.qconfig
        return made


class _Direction(nn.Module):
    """One direction of one layer."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Any, hidden: Any = None) -> tuple[Any, Any]:
        found = []
        for step in x:
            hidden = self.cell(step, hidden)
            found.append(hidden[0])
        return torch.stack(found, 0), hidden


class _Layer(nn.Module):
    """One layer, of one or two directions."""

    def __init__(self, forward_cell: Any, backward_cell: Any, batch_first: bool) -> None:
        super().__init__()
        self.batch_first, self.bidirectional = batch_first, backward_cell is not None
        self.layer_fw = _Direction(forward_cell)
        if backward_cell is not None:
            self.layer_bw = _Direction(backward_cell)

    def forward(self, x: Any, hidden: Any = None) -> tuple[Any, Any]:
        if self.batch_first:
            x = x.transpose(0, 1)
        if not self.bidirectional:
            y, state = self.layer_fw(x, None if hidden is None else (hidden[0][0], hidden[1][0]))
            states: Any = tuple(s.unsqueeze(0) for s in state)
        else:
            ahead = None if hidden is None else (hidden[0][0], hidden[1][0])
            back = None if hidden is None else (hidden[0][1], hidden[1][1])
            a, s = self.layer_fw(x, ahead)
            b, r = self.layer_bw(x.flip(0), back)
            y = torch.cat([a, b.flip(0)], a.dim() - 1)
            states = tuple(torch.stack([p, q], 0) for p, q in zip(s, r, strict=True))
        return (y.transpose(0, 1) if self.batch_first else y), states


class LSTM(nn.Module):
    """An LSTM each of whose steps is a `LSTMCell`."""

    _FLOAT_MODULE = nn.LSTM

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None, *, split_gates: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.training = (
            batch_first,
            float(dropout),
            bidirectional,
            False,
        )
        self.split_gates = split_gates
        layers = []
        for layer in range(num_layers):
            depth = input_size if layer == 0 else hidden_size * (2 if bidirectional else 1)
            cells = [
                LSTMCell(depth, hidden_size, bias, split_gates=split_gates) if d < (2 if bidirectional else 1) else None
                for d in range(2)
            ]
            layers.append(_Layer(cells[0], cells[1], False))
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any, hidden: Any = None) -> tuple[Any, Any]:
        """The layers over sequences [T, B, C] ([B, T, C] with `batch_first`): (output, (hidden, cell))."""
        if self.batch_first:
            x = x.transpose(0, 1)
        n, states = 2 if self.bidirectional else 1, []
        for k, layer in enumerate(self.layers):
            part = None if hidden is None else tuple(h[k * n : (k + 1) * n] for h in hidden)
            x, state = layer(x, part)
            states.append(state)
        found = tuple(torch.cat([s[i] for s in states], 0) for i in range(2))
        return (x.transpose(0, 1) if self.batch_first else x), found

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> Any:
        """The layers of float ones."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"expected {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig") and not qconfig:
            raise AssertionError("other must have qconfig or qconfig must be given")
        made = cls(
            other.input_size, other.hidden_size, other.num_layers, other.bias, other.batch_first, other.dropout, other.bidirectional,
            split_gates=split_gates,
        )  # fmt: skip
        made.qconfig = getattr(other, "qconfig", qconfig)
        for k, layer in enumerate(made.layers):
            for suffix, name in (("", "layer_fw"), ("_reverse", "layer_bw")):
                if hasattr(layer, name):
                    weights: Any = [
                        getattr(other, f"{w}_l{k}{suffix}", None)
                        for w in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                    ]
                    getattr(layer, name).cell = LSTMCell.from_params(
                        weights[0], weights[1], weights[2], weights[3], split_gates
                    )
        if other.training:
            made.train()
            return torch.ao.quantization.prepare_qat(made, inplace=True)
        made.eval()
        return torch.ao.quantization.prepare(made, inplace=True)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """NotImplementedError: what is observed becomes `torch.ao.nn.quantized.LSTM`."""
        raise NotImplementedError("It looks like you are trying to convert a non-quantizable LSTM module. Please, see the examples on quantizable LSTMs.")  # fmt: skip


class MultiheadAttention(nn.MultiheadAttention):
    """Attention whose projections are modules of their own, and whose scores are floats."""

    _FLOAT_MODULE: Any = nn.MultiheadAttention

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: Any = None, vdim: Any = None, batch_first: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first)
        self.linear_Q = nn.Linear(self.embed_dim, self.embed_dim, bias=bias)
        self.linear_K = nn.Linear(self.kdim, self.embed_dim, bias=bias)
        self.linear_V = nn.Linear(self.vdim, self.embed_dim, bias=bias)
        self.out_proj = nn.Linear(self.embed_dim, self.embed_dim, bias=bias)
        self.q_scaling_product = torch.ao.nn.quantized.FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = (torch.ao.quantization.QuantStub() for _ in range(2))
        self.dequant_q, self.dequant_k, self.dequant_v = (torch.ao.quantization.DeQuantStub() for _ in range(3))

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """The attention of a float one, with a qconfig."""
        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"expected {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        made = cls(
            other.embed_dim, other.num_heads, other.dropout, other.in_proj_bias is not None, other.bias_k is not None,
            other.add_zero_attn, other.kdim, other.vdim, other.batch_first,
        )  # fmt: skip
        made.bias_k, made.bias_v, made.qconfig = other.bias_k, other.bias_v, other.qconfig
        made.out_proj.weight, made.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        made._take_projections(other)
        made.eval()
        return torch.ao.quantization.prepare(made, inplace=True)

    def _take_projections(self, other: Any) -> None:
        size = self.embed_dim
        layers = (self.linear_Q, self.linear_K, self.linear_V)
        if other._qkv_same_embed_dim:
            weights: Any = [other.in_proj_weight[k * size : (k + 1) * size] for k in range(3)]
        else:
            weights = [other.q_proj_weight, other.k_proj_weight, other.v_proj_weight]
        for k, (layer, weight) in enumerate(zip(layers, weights, strict=True)):
            layer.weight = nn.Parameter(weight.detach())
            if other.in_proj_bias is not None:
                layer.bias = nn.Parameter(other.in_proj_bias[k * size : (k + 1) * size].detach())

    def dequantize(self) -> Any:
        """The float attention of this one."""
        made = self._FLOAT_MODULE if self._FLOAT_MODULE is nn.MultiheadAttention else nn.MultiheadAttention
        found = made(
            self.embed_dim, self.num_heads, self.dropout, self.in_proj_bias is not None or self._bias_of(self.linear_Q) is not None,
            self.bias_k is not None, self.add_zero_attn, self.kdim, self.vdim, self.batch_first,
        )  # fmt: skip
        parts = (self.linear_Q, self.linear_K, self.linear_V)
        weights = [self._weight_of(p) for p in parts]
        with torch.no_grad():
            if found._qkv_same_embed_dim:
                found.in_proj_weight.copy_(torch.cat(weights))
            else:
                for name, weight in zip("qkv", weights, strict=True):
                    getattr(found, f"{name}_proj_weight").copy_(weight)
            if found.in_proj_bias is not None:
                found.in_proj_bias.copy_(torch.cat([self._bias_of(p) for p in parts]))
            found.out_proj.weight.copy_(self._weight_of(self.out_proj))
            if found.out_proj.bias is not None:
                found.out_proj.bias.copy_(self._bias_of(self.out_proj))
        return found

    @staticmethod
    def _weight_of(layer: Any) -> Any:
        weight = layer.weight() if callable(layer.weight) else layer.weight
        return weight.dequantize() if weight.is_quantized else weight

    @staticmethod
    def _bias_of(layer: Any) -> Any:
        return layer.bias() if callable(layer.bias) else layer.bias

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The quantized attention of an observed one."""
        return torch.ao.nn.quantized.MultiheadAttention.from_observed(other)

    def forward(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Attention of `query` to `key` and `value`: (result, weights or None)."""
        if self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        steps, batch, _ = query.shape
        heads, width = self.num_heads, self.embed_dim // self.num_heads
        q = self.q_scaling_product.mul_scalar(self.linear_Q(query), width**-0.5)
        q, k, v = self.dequant_q(q), self.dequant_k(self.linear_K(key)), self.dequant_v(self.linear_V(value))
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                torch.cat([x, (b.dequantize() if b.is_quantized else b).expand(1, batch, -1)])
                for x, b in ((k, self.bias_k), (v, self.bias_v))
            )
        q, k, v = (x.reshape(x.shape[0], batch * heads, width).transpose(0, 1) for x in (q, k, v))
        if self.add_zero_attn:
            k, v = (torch.cat([x, x.new_zeros(x.shape[0], 1, width)], 1) for x in (k, v))
        scores = torch.bmm(q, k.transpose(1, 2))
        scores = self._masked(scores, attn_mask, key_padding_mask, (batch, heads, steps))
        weights = nn.functional.dropout(torch.softmax(scores, -1), self.dropout, self.training)
        found = torch.bmm(weights, v).transpose(0, 1).reshape(steps, batch, self.embed_dim)
        found = self.out_proj(self.quant_attn_output(found))
        weights = self.quant_attn_output_weights(weights)
        if self.batch_first:
            found = found.transpose(0, 1)
        if not need_weights:
            return found, None
        shaped = weights.reshape(batch, heads, steps, -1)
        if average_attn_weights:
            return found, shaped.mean(dim=1)
        return found, shaped

    def _masked(self, scores: Any, attn_mask: Any, key_padding_mask: Any, sizes: tuple[int, int, int]) -> Any:
        batch, heads, steps = sizes
        more = scores.shape[-1]
        if attn_mask is not None:
            mask = attn_mask if attn_mask.dim() == 3 else attn_mask.unsqueeze(0)
            mask = nn.functional.pad(mask, (0, more - mask.shape[-1]))
            scores = scores.masked_fill(mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
        if key_padding_mask is not None:
            mask = nn.functional.pad(key_padding_mask, (0, more - key_padding_mask.shape[-1]))
            shaped = scores.reshape(batch, heads, steps, more)
            scores = shaped.masked_fill(mask[:, None, None], float("-inf")).reshape(scores.shape)
        return scores
