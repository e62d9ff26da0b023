"""Activation functions as modules, each applying the function of `nn.functional` with its name; and attention."""

from __future__ import annotations

import warnings
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.modules.linear import NonDynamicallyQuantizableLinear
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
    "LogSoftmax", "Mish", "MultiheadAttention", "PReLU", "ReLU", "ReLU6", "RReLU", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
    "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _Inplace(Module):
    """Activations without an argument of their own; `inplace=True` writes the result over the input."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Says so if the module works in place."""
        return "inplace=True" if self.inplace else ""


def _inplace_suffix(module: Any) -> str:
    return ", inplace=True" if module.inplace else ""


class ReLU(_Inplace):
    """max(x, 0).

    Example: `nn.ReLU()(torch.tensor([-1.0, 2.0]))  # tensor([0., 2.])`
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.relu(input, inplace=True) if self.inplace else F.relu(input)


class SiLU(_Inplace):
    """x * sigmoid(x), also called swish.

    >>> import rushlight as torch
    >>> torch.nn.SiLU()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-0.1423, -0.2689,  0.0000,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.silu(input, inplace=self.inplace)


class Mish(_Inplace):
    """x * tanh(softplus(x)).

    >>> import rushlight as torch
    >>> torch.nn.Mish()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-0.1456, -0.3034,  0.0000,  1.9440])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.mish(input, inplace=self.inplace)


class SELU(_Inplace):
    """The scaled ELU whose constants keep mean 0 and variance 1.

    >>> import rushlight as torch
    >>> torch.nn.SELU()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-1.6706, -1.1113,  0.0000,  2.1014])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.selu(input, self.inplace)


class Hardswish(_Inplace):
    """x * relu6(x + 3) / 6.

    >>> import rushlight as torch
    >>> torch.nn.Hardswish()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-0.0000, -0.3333,  0.0000,  1.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing: PyTorch prints no arguments here."""
        return ""


class Hardsigmoid(_Inplace):
    """relu6(x + 3) / 6.

    >>> import rushlight as torch
    >>> torch.nn.Hardsigmoid()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([0.0000, 0.3333, 0.5000, 0.8333])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing: PyTorch prints no arguments here."""
        return ""


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> import rushlight as torch
    >>> torch.nn.Sigmoid()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([0.0474, 0.2689, 0.5000, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return rushlight.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent.

    >>> import rushlight as torch
    >>> torch.nn.Tanh()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-0.9951, -0.7616,  0.0000,  0.9640])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return rushlight.tanh(input)


class LogSigmoid(Module):
    """log(sigmoid(x)), without overflow.

    >>> import rushlight as torch
    >>> torch.nn.LogSigmoid()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-3.0486, -1.3133, -0.6931, -0.1269])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|).

    >>> import rushlight as torch
    >>> torch.nn.Softsign()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-0.7500, -0.5000,  0.0000,  0.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x).

    >>> import rushlight as torch
    >>> torch.nn.Tanhshrink()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-2.0049, -0.2384,  0.0000,  1.0360])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.tanhshrink(input)


class Threshold(Module):
    """x where x > `threshold`, else `value`.

    >>> import rushlight as torch
    >>> torch.nn.Threshold(0.5, 9.0)(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([9., 9., 9., 2.])
    """

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"threshold={self.threshold}, value={self.value}{_inplace_suffix(self)}"


class RReLU(Module):
    """Leaky ReLU whose slope is drawn uniformly from [lower, upper] in training, and their mean in evaluation.

    >>> import rushlight as torch
    >>> torch.nn.RReLU(0.1, 0.3).eval()(torch.tensor([-1.0, 2.0]))
    tensor([-0.2000,  2.0000])
    """

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"lower={self.lower}, upper={self.upper}{_inplace_suffix(self)}"


class Hardtanh(Module):
    """x clipped to [min_val, max_val].

    >>> import rushlight as torch
    >>> torch.nn.Hardtanh()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-1., -1.,  0.,  1.])
    """

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for old, new, given in (("min_value", "min_val", min_value), ("max_value", "max_val", max_value)):
            if given is not None:
                warnings.warn(
                    f"keyword argument `{old}` is deprecated and renamed to `{new}`", FutureWarning, stacklevel=2
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError("max_val must be larger than min_val")

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"min_val={self.min_val}, max_val={self.max_val}{_inplace_suffix(self)}"


class ReLU6(Hardtanh):
    """x clipped to [0, 6].

    >>> import rushlight as torch
    >>> torch.nn.ReLU6()(torch.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """Says so if the module works in place."""
        return "inplace=True" if self.inplace else ""


class _Exponential(Module):
    """Common base of ELU and CELU."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        """The arguments."""
        return f"alpha={self.alpha}{_inplace_suffix(self)}"


class ELU(_Exponential):
    """x where x > 0, else alpha * (exp(x) - 1).

    >>> import rushlight as torch
    >>> torch.nn.ELU()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-0.9502, -0.6321,  0.0000,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Exponential):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    >>> import rushlight as torch
    >>> torch.nn.CELU(2.0)(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-1.5537, -0.7869,  0.0000,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope * x.

    >>> import rushlight as torch
    >>> torch.nn.LeakyReLU(0.1)(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-0.3000, -0.1000,  0.0000,  2.0000])
    """

    __constants__ = ["inplace", "negative_slope"]

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"negative_slope={self.negative_slope}{_inplace_suffix(self)}"


class PReLU(Module):
    """Leaky ReLU with a trained slope: one for all channels, or one for each of `num_parameters` (dimension 1).

    >>> import rushlight as torch
    >>> torch.nn.PReLU()(torch.tensor([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    __constants__ = ["num_parameters"]

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(rushlight.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every slope to `init`."""
        with rushlight.no_grad():
            self.weight.fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"num_parameters={self.num_parameters}"


class GELU(Module):
    """x * Phi(x) with the normal distribution function, or its tanh approximation (`approximate="tanh"`).

    >>> import rushlight as torch
    >>> torch.nn.GELU()(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1587,  0.0000,  1.9545])
    """

    __constants__ = ["approximate"]

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"approximate={self.approximate!r}"


class _Shrink(Module):
    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """The arguments."""
        return str(self.lambd)


class Hardshrink(_Shrink):
    """x where |x| > lambd, else 0.

    >>> import rushlight as torch
    >>> torch.nn.Hardshrink(1.5)(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-3.,  0.,  0.,  2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    >>> import rushlight as torch
    >>> torch.nn.Softshrink()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([-2.5000, -0.5000,  0.0000,  1.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.softshrink(input, self.lambd)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, linear where beta * x > threshold.

    >>> import rushlight as torch
    >>> torch.nn.Softplus()(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
    tensor([0.0486, 0.3133, 0.6931, 2.1269])
    """

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"beta={self.beta}, threshold={self.threshold}"


# ***** functions along a dimension *****


class GLU(Module):
    """a * sigmoid(b), where a and b are the halves of the input along `dim`.

    >>> import rushlight as torch
    >>> torch.nn.GLU()(torch.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """

    __constants__ = ["dim"]

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Halve the size of the input along `dim`."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"dim={self.dim}"


class _AlongDim(Module):
    __constants__ = ["dim"]

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(x) / sum(exp(x)) along `dim`.

    Example: `nn.Softmax(dim=1)(torch.randn(2, 3))`
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function along `dim`."""
        return F.softmax(input, self.dim)


class LogSoftmax(_AlongDim):
    """log(softmax(x)) along `dim`, without overflow.

    >>> import rushlight as torch
    >>> torch.nn.LogSoftmax(dim=0)(torch.tensor([0.0, 0.0]))
    tensor([-0.6931, -0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function along `dim`."""
        return F.log_softmax(input, self.dim)


class Softmin(_AlongDim):
    """softmax(-x) along `dim`.

    >>> import rushlight as torch
    >>> torch.nn.Softmin(dim=0)(torch.tensor([0.0, 1.0]))
    tensor([0.7311, 0.2689])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function along `dim`."""
        return F.softmin(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W).

    >>> import rushlight as torch
    >>> torch.nn.Softmax2d()(torch.zeros(1, 4, 1, 2))[0, :, 0]
    tensor([[0.2500, 0.2500],
            [0.2500, 0.2500],
            [0.2500, 0.2500],
            [0.2500, 0.2500]])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply softmax at each position."""
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


# ***** attention *****


class MultiheadAttention(Module):
    """Attention with `num_heads` heads, each over embed_dim / num_heads features.

    Inputs are query (L, N, E), key (S, N, kdim) and value (S, N, vdim), batch first if `batch_first`, or without a
    batch.  `key_padding_mask` (N, S) leaves keys out, `attn_mask` (L, S) or (N * heads, L, S) pairs; true (or -inf)
    means: left out.  Returns the output and, if `need_weights`, the weights, averaged over the heads if
    `average_attn_weights`.

    Example: `output, weights = nn.MultiheadAttention(8, 2)(x, x, x)  # x: (5, 3, 8)`
    """

    __constants__ = ["batch_first"]

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, "
                f"got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def parameter(name: str, wanted: bool, *size: int) -> None:
            made = Parameter(rushlight.empty(size, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)

        same = self._qkv_same_embed_dim
        if same:
            parameter("in_proj_weight", True, 3 * embed_dim, embed_dim)
        for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            parameter(f"{name}_proj_weight", not same, embed_dim, size)
        if not same:
            self.register_parameter("in_proj_weight", None)
        parameter("in_proj_bias", bias, 3 * embed_dim)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        if add_bias_kv:
            parameter("bias_k", True, 1, 1, embed_dim)
            parameter("bias_v", True, 1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("_qkv_same_embed_dim", True)

    def merge_masks(self, attn_mask: Any, key_padding_mask: Any, query: Any) -> tuple[Any, int | None]:
        """One mask out of two, and its kind: 0 an attention mask, 1 a padding mask, 2 both; (None, None) without masks.

        With an attention mask the result is (N, num_heads, L, S), the sum of the two.
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        pairs = attn_mask.dim() == 3
        merged = attn_mask.view(batch, -1, length, length) if pairs else attn_mask.view(1, 1, length, length)
        merged = merged.expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            keys = key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
            merged = merged + keys
        return merged, 2

    def _takes_no_hint(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether PyTorch would compute this call natively: then it leaves out no keys where `is_causal` comes without
        a mask.
        """
        weights = (self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias)
        if self.training or not self.batch_first or query.dim() != 3 or not query is key is value:
            return False
        if not rushlight.backends.mha.get_fastpath_enabled():
            return False
        if (
            self.num_heads % 2
            or self.bias_k is not None
            or self.bias_v is not None
            or self.add_zero_attn
            or not self._qkv_same_embed_dim
        ):
            return False
        if any(w is None or w.dtype != query.dtype for w in weights[:2]):
            return False
        if rushlight.is_autocast_enabled(query.device.type):
            return False
        return not (rushlight.is_grad_enabled() and any(w is not None and w.requires_grad for w in (query, *weights)))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output and the weights (None if not wanted)."""
        is_causal = is_causal and not (attn_mask is None and self._takes_no_hint(query, key, value))
        turned = self.batch_first and query.dim() == 3
        if turned:
            query, key, value = _turned(query, key, value)
        separate, bias = not self._qkv_same_embed_dim, self.in_proj_bias
        attn_output, attn_output_weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=separate,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        if turned:
            attn_output = attn_output.transpose(1, 0)
        return attn_output, attn_output_weights


def _turned(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Batch second. Inputs that are one tensor stay one, so that they are projected by one product."""
    given = query, key
    query = query.transpose(1, 0)
    key = query if key is given[0] else key.transpose(1, 0)
    value = key if value is given[1] else query if value is given[0] else value.transpose(1, 0)
    return query, key, value
