"""Rows inside of a kernel's row: which of PyTorch's operators one kernel does the work of.

An operator of ours is one kernel where PyTorch calls several operators, and a node of backward is one kernel too.  What
they are is read from what ran: for operators from their names and sizes, for nodes from the graph of primitives that
the kernel was made of.  Their times are not measured apart: the one part that does the work (the only one, or the only
product) has the kernel's time, others have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

__all__ = ["Part", "node_parts", "operator_parts"]


class Part(NamedTuple):
    """A part of a kernel's work: its names from the outermost to the innermost, and the sizes of the arguments of the
    innermost.
    """

    names: tuple[str, ...]
    shapes: tuple[Sequence[int], ...] = ()

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product."""
        return self.names[-1] in ("mm", "bmm", "addmm", "baddbmm")


# ***** operators *****

_Sizes = list[Sequence[int]]


def _product(a: Sequence[int], b: Sequence[int]) -> Part:
    """(m, k) @ (k, n), or the same for a batch; sizes that only `matmul` takes are brought to these."""
    if len(a) == 1 and len(b) == 1:
        return Part(("dot",), (a, b))
    if len(b) == 1:
        return Part(("mv",), ((prod(a[:-1]), a[-1]), b))
    if len(b) == 2:
        return Part(("mm",), ((prod(a[:-1]), a[-1]), b))
    batch = max(prod(a[:-2]), prod(b[:-2]))
    return Part(("bmm",), ((batch, *(a if len(a) > 1 else (1, *a))[-2:]), (batch, *b[-2:])))


def _linear(sizes: _Sizes) -> Part | None:
    a, w = sizes[0], sizes[1]
    if not a or len(w) != 2:
        return None
    turned = (w[1], w[0])
    if len(sizes) > 2 and sizes[2] and len(a) > 1:
        return Part(("addmm",), (sizes[2], (prod(a[:-1]), a[-1]), turned))
    part = _product(a, turned) if len(a) > 1 else Part(("mv",), (w, a))
    return Part(("matmul", *part.names), part.shapes)


def _matmul(sizes: _Sizes) -> Part | None:
    return _product(sizes[0], sizes[1]) if sizes[0] and sizes[1] else None


_CHAINS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), (("convolution", "_convolution"),)),
    "relu": (("clamp_min",),), "relu_": (("clamp_min_",),), "softmax": (("_softmax",),), "log_softmax": (("_log_softmax",),),
    "layer_norm": (("native_layer_norm",),), "group_norm": (("native_group_norm",),), "batch_norm": (("_batch_norm_impl_index", "native_batch_norm"),),
    "nll_loss_nd": (("nll_loss", "nll_loss_forward"),), "embedding": (("index_select",),),
    "cross_entropy_loss": (("log_softmax",), ("_log_softmax",), ("nll_loss_nd",), ("nll_loss",), ("nll_loss_forward",)),
}  # fmt: skip
_SIZED: dict[str, Callable[[_Sizes], Part | None]] = {"linear": _linear, "matmul": _matmul}
# Parts with the sizes of the arguments, for which those must be known.
SIZED = frozenset(f"aten::{name}" for name in _SIZED)


def operator_parts(name: str, sizes: _Sizes) -> list[Part]:
    """The parts of an operator's row; `sizes` are those of its arguments, which `SIZED` operators need."""
    word = name.removeprefix("aten::")
    rule = _SIZED.get(word)
    if rule is not None:
        part = rule(sizes) if len(sizes) > 1 else None
        return [] if part is None else [part]
    return [Part(names) for names in _CHAINS.get(word, ())]


# ***** nodes of backward *****

_BACKWARD: dict[str, tuple[str, ...]] = {
    "ReluBackward0": ("threshold_backward",), "EmbeddingBackward0": ("embedding_backward", "embedding_dense_backward"),
    "SoftmaxBackward0": ("_softmax_backward_data",), "LogSoftmaxBackward0": ("_log_softmax_backward_data",),
    "ScaledDotProductFlashAttentionForCpuBackward0": ("_scaled_dot_product_flash_attention_for_cpu_backward",),
    "NativeLayerNormBackward0": ("native_layer_norm_backward",), "NativeGroupNormBackward0": ("native_group_norm_backward",),
    "NativeBatchNormBackward0": ("native_batch_norm_backward",), "ConvolutionBackward0": ("convolution_backward",),
    "MaxPool2DWithIndicesBackward0": ("max_pool2d_with_indices_backward",), "AvgPool2DBackward0": ("avg_pool2d_backward",),
    "NllLossBackward0": ("nll_loss_backward",), "GeluBackward0": ("gelu_backward",), "SiluBackward0": ("silu_backward",), "EluBackward0": ("elu_backward",),
    "SigmoidBackward0": ("sigmoid_backward",), "TanhBackward0": ("tanh_backward",), "LeakyReluBackward0": ("leaky_relu_backward",),
    "HardtanhBackward0": ("hardtanh_backward",), "SoftplusBackward0": ("softplus_backward",), "MishBackward0": ("mish_backward",),
    "HardswishBackward0": ("hardswish_backward",), "HardsigmoidBackward0": ("hardsigmoid_backward",), "LogSigmoidBackward0": ("log_sigmoid_backward",),
    "MseLossBackward0": ("mse_loss_backward",), "SmoothL1LossBackward0": ("smooth_l1_loss_backward",), "HuberLossBackward0": ("huber_loss_backward",),
    "TBackward0": ("t",), "TransposeBackward0": ("transpose",), "PermuteBackward0": ("permute",), "ViewBackward0": ("reshape",),
    "ReshapeAliasBackward0": ("reshape",), "UnsafeViewBackward0": ("reshape",), "UnsqueezeBackward0": ("squeeze",), "SqueezeBackward0": ("unsqueeze",),
    "SqueezeBackward1": ("unsqueeze",), "SelectBackward0": ("select_backward",), "SliceBackward0": ("slice_backward",),
}  # fmt: skip
_PRIMITIVES = {
    **{name: name for name in (
        "abs", "add", "ceil", "conj", "cos", "cosh", "cumsum", "div", "erf", "exp", "expm1", "floor", "gather", "log", "log1p", "maximum", "minimum", "mul", "neg",
        "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sort", "sqrt", "sub", "sum", "tan", "tanh",
    )},
    "broadcast": "expand", "reshape": "view", "select": "where", "convert": "_to_copy", "pad": "constant_pad_nd", "conv": "convolution",
}  # fmt: skip


def node_parts(name: str, node: Any) -> list[Part]:
    """The parts of the row of a node of backward."""
    info = getattr(node, "info", None)
    steps = [] if info is None else info.graph.nodes
    names = _BACKWARD.get(name)
    # A product of many dims goes by the name of its view
    if names is not None and not any(step.prim.name == "dot" for step in steps):
        fused = info is not None and info.origin is not None and info.origin[0].name == "cross_entropy"
        return [Part(names), Part(("_log_softmax_backward_data",))] if fused else [Part(names)]
    return [part for step in steps for part in _primitive(step)]


def _primitive(step: Any) -> list[Part]:
    """A primitive as an operator of PyTorch's, if there is one."""
    shapes = tuple(tuple(value.shape) for value in step.inputs)
    word = step.prim.name
    if word == "dot":
        return [Part(("bmm" if len(shapes[0]) == 3 else "mm",), shapes)]
    if word == "transpose":
        return [Part(("t" if len(shapes[0]) == 2 else "permute",), shapes)]
    known = _PRIMITIVES.get(word)
    return [] if known is None else [Part((known,), shapes)]
