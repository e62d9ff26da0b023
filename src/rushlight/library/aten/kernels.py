"""Kernels of aten operators that are no functions of the package, or are called otherwise.

Kernels of `*_backward` operators are the derivatives of the forward function, as the engine derives them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight._interface.operators import function_of
from rushlight.library.aten.vjps import pulled
from rushlight.nn.composites.resizing import scaled

F: Any = LazyModule("rushlight.nn.functional")

__all__ = ["FUNCTIONS", "KERNELS", "absent", "tags"]

Kernel = Callable[..., Any]
FUNCTIONS: dict[str, Kernel] = {}
KERNELS: dict[str, Kernel] = {}


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Decorator: computes these operators (`name`: every form, `name.overload`: one)."""

    def register(function: Kernel) -> Kernel:
        for name in names:
            (KERNELS if "." in name else FUNCTIONS)[name] = function
        return function

    return register


def absent(name: str, *args: Any, **kwargs: Any) -> Any:
    """NotImplementedError: nothing computes this operator."""
    raise NotImplementedError(f"rushlight has no kernel for aten::{name}")


POINTWISE = frozenset(
    "add sub mul div neg abs exp log sqrt rsqrt sin cos tan tanh sigmoid relu gelu silu pow reciprocal maximum minimum where clamp clamp_min clamp_max eq ne"
    " lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not floor ceil round trunc sign erf erfc expm1"
    " log1p log2 log10 fmod remainder atan2 hypot lerp addcmul addcdiv isnan isinf threshold_backward tanh_backward sigmoid_backward gelu_backward".split()
)
_DYNAMIC = frozenset(
    "nonzero masked_select unique_dim unique_consecutive _unique2 _unique bincount repeat_interleave".split()
)
# Operators that give a tensor another shape or memory in place.
_RESHAPING = frozenset(
    "as_strided_ detach_ resize_ resize_as_ set_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_".split()
)
# Operators that may draw random numbers, dropout of attention and recurrent layers among them.
_SEEDED = frozenset(
    "_fused_dropout _sample_dirichlet _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention"
    " _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable _standard_gamma"
    " alpha_dropout alpha_dropout_ bernoulli bernoulli_ binomial cauchy cauchy_ dropout dropout_ exponential exponential_ feature_alpha_dropout"
    " feature_alpha_dropout_ feature_dropout feature_dropout_ geometric geometric_ gru log_normal log_normal_ lstm multinomial native_dropout normal"
    " normal_ normal_functional poisson rand rand_like randint randint_like randn randn_like random random_ randperm rnn_relu rnn_tanh rrelu rrelu_"
    " rrelu_with_noise rrelu_with_noise_ rrelu_with_noise_functional scaled_dot_product_attention uniform uniform_".split()
)


def tags(overload: Any) -> Iterator[Any]:
    """Tags that follow from a schema and a name."""
    name, tag = overload._opname, rushlight.Tag
    if overload.in_place:
        yield tag.inplace
    if name in _RESHAPING:
        yield tag.inplace_view
    if overload.form is not None and overload.form.writes_out:
        yield tag.out
    if name.rstrip("_") in POINTWISE:
        yield tag.pointwise
    if name in _DYNAMIC:
        yield tag.dynamic_output_shape
    if name in ("_local_scalar_dense", "equal", "item", "allclose", "is_nonzero"):
        yield tag.data_dependent_output
    if name in _SEEDED:
        yield tag.nondeterministic_seeded
    yield tag.pt2_compliant_tag


# ***** derivatives as kernels *****


def backward_of(name: str, function: Callable[..., Any], order: str) -> None:
    """Register `name`: `order` names what stands where, `g` the gradient, `x` the input, anything else goes to the
    function in order.
    """
    words = order.split()

    @kernel(name)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(words, args, strict=False)) | kwargs
        g, x = given.pop("g"), given.pop("x")
        rest = [given[w] for w in words if w in given]
        return pulled(lambda t: function(t, *rest), [x], g)[0]


_RED = ("none", "mean", "sum")
backward_of("gelu_backward", lambda x, approximate="none": F.gelu(x, approximate=approximate), "g x approximate")
backward_of("silu_backward", lambda x: F.silu(x), "g x")
backward_of("mish_backward", lambda x: F.mish(x), "g x")
backward_of("hardswish_backward", lambda x: F.hardswish(x), "g x")
backward_of("hardsigmoid_backward", lambda x: F.hardsigmoid(x), "g x")
backward_of("hardshrink_backward", lambda x, lambd: F.hardshrink(x, lambd), "g x lambd")
backward_of("softshrink_backward", lambda x, lambd: F.softshrink(x, lambd), "g x lambd")
backward_of("softplus_backward", lambda x, beta, threshold: F.softplus(x, beta, threshold), "g x beta threshold")
backward_of("hardtanh_backward", lambda x, low, high: F.hardtanh(x, low, high), "g x low high")
backward_of("log_sigmoid_backward", lambda x, buffer=None: F.logsigmoid(x), "g x buffer")
backward_of("glu_backward", lambda x, dim: F.glu(x, dim), "g x dim")
backward_of("leaky_relu_backward", lambda x, slope, is_result: F.leaky_relu(x, slope), "g x slope is_result")
backward_of("mse_loss_backward", lambda x, target, r: F.mse_loss(x, target, reduction=_RED[r]), "g x target r")
backward_of(
    "smooth_l1_loss_backward",
    lambda x, target, r, beta: F.smooth_l1_loss(x, target, reduction=_RED[r], beta=beta),
    "g x target r beta",
)
backward_of(
    "huber_loss_backward",
    lambda x, target, r, delta: F.huber_loss(x, target, reduction=_RED[r], delta=delta),
    "g x target r delta",
)
backward_of(
    "soft_margin_loss_backward", lambda x, target, r: F.soft_margin_loss(x, target, reduction=_RED[r]), "g x target r"
)
backward_of(
    "multi_margin_loss_backward", lambda x, target, p, margin, weight=None, r=1: F.multi_margin_loss(x, target, p, margin, weight, reduction=_RED[r]),
    "g x target p margin weight r",
)  # fmt: skip
backward_of(
    "multilabel_margin_loss_backward",
    lambda x, target, r, is_target=None: F.multilabel_margin_loss(x, target, reduction=_RED[r]),
    "g x target r is_target",
)
backward_of(
    "binary_cross_entropy_backward",
    lambda x, target, weight=None, r=1: F.binary_cross_entropy(x, target, weight, reduction=_RED[r]),
    "g x target weight r",
)
backward_of("logit_backward", lambda x, eps=None: rushlight.logit(x, eps), "g x eps")
for _n in (1, 2, 3):
    backward_of(f"reflection_pad{_n}d_backward", lambda x, pad: F.pad(x, tuple(pad), mode="reflect"), "g x pad")
    backward_of(f"replication_pad{_n}d_backward", lambda x, pad: F.pad(x, tuple(pad), mode="replicate"), "g x pad")
    FUNCTIONS[f"reflection_pad{_n}d"] = lambda x, pad: F.pad(x, tuple(pad), mode="reflect")
    FUNCTIONS[f"replication_pad{_n}d"] = lambda x, pad: F.pad(x, tuple(pad), mode="replicate")


def _pool(a: Sequence[Any]) -> list[Any]:
    made = list(a)
    if len(made) > 1 and not made[1]:
        made[1] = made[0]
    return made


@kernel("threshold_backward")
def threshold_backward(g: Any, x: Any, threshold: Any) -> Any:
    return rushlight.where(x <= threshold, 0, g).to(g.dtype)


@kernel("sigmoid_backward")
def sigmoid_backward(g: Any, y: Any) -> Any:
    return g * ((1 - y) * y).conj()


@kernel("tanh_backward")
def tanh_backward(g: Any, y: Any) -> Any:
    return g * (1 - y * y).conj()


@kernel("elu_backward")
def elu_backward(g: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    if is_result:
        return rushlight.where(x <= 0, g * input_scale * (x + alpha * scale), g * scale)
    return rushlight.where(x <= 0, g * input_scale * alpha * scale * rushlight.exp(x * input_scale), g * scale)


@kernel("elu")
def elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    if scale == 1 and input_scale == 1:
        return F.elu(x, alpha)
    if input_scale == 1 and abs(scale - 1.0507009873554805) < 1e-12 and abs(alpha - 1.6732632423543772) < 1e-12:
        return F.selu(x)
    return rushlight.where(x > 0, x * scale, rushlight.expm1(x * input_scale) * (alpha * scale))


@kernel("elu_")
def elu_(x: Any, *args: Any) -> Any:
    return x.copy_(elu(x, *args))


@kernel("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_backward(g: Any, x: Any) -> Any:
    function, n = (
        (F.adaptive_avg_pool2d, 2) if x.dim() - g.dim() == 0 and _rank(g, x) == 2 else (F.adaptive_avg_pool3d, 3)
    )
    return _laid_out_as(x, pulled(lambda t: function(t, list(g.shape[-n:])), [x], g)[0])


def _rank(g: Any, x: Any) -> int:
    return 2 if x.dim() == 3 or x.dim() == 4 and list(g.shape[:2]) == list(x.shape[:2]) else 3


def _pooling(n: int) -> None:
    """Register the poolings over n dims."""
    average, adaptive = getattr(F, f"avg_pool{n}d"), getattr(F, f"adaptive_avg_pool{n}d")
    largest, adaptive_largest = getattr(F, f"max_pool{n}d"), getattr(F, f"adaptive_max_pool{n}d")
    FUNCTIONS[f"_adaptive_avg_pool{n}d"] = lambda x, size: adaptive(x, list(size))
    FUNCTIONS[f"avg_pool{n}d"] = lambda x, *a: average(x, *_pool(a))
    FUNCTIONS[f"adaptive_max_pool{n}d"] = lambda x, size: adaptive_largest(x, list(size), True)
    FUNCTIONS[f"max_pool{n}d_with_indices"] = lambda x, k, s=(), p=0, d=1, ceil=False: largest(
        x, k, s or None, p, d, ceil, True
    )
    backward_of(f"avg_pool{n}d_backward", lambda x, *a: average(x, *_pool(a)), "g x k s p ceil count divisor")


for _n in (2, 3):
    _pooling(_n)


def _laid_out_as(x: Any, made: Any) -> Any:
    """Images in the memory format of others."""
    last = {4: rushlight.channels_last, 5: rushlight.channels_last_3d}.get(x.dim())
    if last is None or x.is_contiguous() or not x.is_contiguous(memory_format=last):
        return made
    return made.contiguous(memory_format=last)


def _placed(g: Any, x: Any, *rest: Any, n: int) -> Any:
    """The gradient at the places of the greatest elements, which the last argument holds."""
    lead = list(x.shape[:-n])
    flat = rushlight.zeros([*lead, math.prod(x.shape[-n:])], dtype=g.dtype, device=g.device)
    size = math.prod(g.shape[-n:])
    made = flat.scatter_add(-1, rest[-1].reshape([*lead, size]), g.reshape([*lead, size])).reshape(x.shape)
    return _laid_out_as(x, made)


for _n in (2, 3):
    for _name in ("max_pool{}d_with_indices", "adaptive_max_pool{}d", "fractional_max_pool{}d"):
        FUNCTIONS[f"{_name.format(_n)}_backward"] = functools.partial(_placed, n=_n)


@kernel("fractional_max_pool2d")
def fractional_max_pool2d(x: Any, k: Any, size: Any, samples: Any) -> Any:
    return F.fractional_max_pool2d_with_indices(x, k, size, return_indices=True, _random_samples=samples)


@kernel("fractional_max_pool3d")
def fractional_max_pool3d(x: Any, k: Any, size: Any, samples: Any) -> Any:
    return F.fractional_max_pool3d_with_indices(x, k, size, return_indices=True, _random_samples=samples)


def _unpooled(x: Any, indices: Any, size: Any, n: int) -> Any:
    lead = list(x.shape[:-n])
    flat = rushlight.zeros([*lead, math.prod(size)], dtype=x.dtype, device=x.device)
    return flat.scatter(-1, indices.reshape([*lead, -1]), x.reshape([*lead, -1])).reshape([*lead, *size])


@kernel("max_unpool2d")
def max_unpool2d(x: Any, indices: Any, size: Any) -> Any:
    return _unpooled(x, indices, list(size), 2)


@kernel("max_unpool3d")
def max_unpool3d(x: Any, indices: Any, size: Any, stride: Any, padding: Any) -> Any:
    return _unpooled(x, indices, list(size), 3)


# ***** products and norms *****


@kernel("convolution", "_convolution")
def convolution(
    x: Any,
    w: Any,
    b: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *flags: Any,
) -> Any:
    n = w.dim() - 2
    if transposed:
        return getattr(F, f"conv_transpose{n}d")(
            x, w, b, tuple(stride), tuple(padding), tuple(output_padding), groups, tuple(dilation)
        )
    return getattr(F, f"conv{n}d")(x, w, b, tuple(stride), tuple(padding), tuple(dilation), groups)


@kernel("convolution_backward")
def convolution_backward(
    g: Any,
    x: Any,
    w: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> Any:
    b = (
        rushlight.zeros([w.shape[1] * groups if transposed else w.shape[0]], dtype=w.dtype, device=w.device)
        if mask[2]
        else None
    )
    return tuple(
        pulled(
            lambda x, w, b: convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups),
            [x, w, b],
            g,
            list(mask),
        )
    )


@kernel("native_layer_norm_backward")
def layer_norm_backward(g: Any, x: Any, shape: Any, mean: Any, rstd: Any, w: Any, b: Any, mask: Any) -> Any:
    k = x.dim() - len(shape)
    dims, lead = list(range(k, x.dim())), list(range(k))
    scaled = (x - mean) * rstd
    inner = g if w is None else g * w
    return _normalised(g, inner, scaled, rstd, dims, lambda t: t.sum(lead) if lead else t.clone(), mask)


def _normalised(
    g: Any, inner: Any, scaled: Any, rstd: Any, dims: list[int], total: Any, mask: Any
) -> tuple[Any, Any, Any]:
    """Gradients of a norm's input, weight and bias; `scaled` is the normalised input."""
    made = (
        rstd * (inner - inner.mean(dims, keepdim=True) - scaled * (inner * scaled).mean(dims, keepdim=True))
        if mask[0]
        else None
    )
    made = made if made is None or made.dtype is g.dtype else made.to(g.dtype)
    return made, total(g * scaled) if mask[1] else None, total(g) if mask[2] else None


@kernel("native_group_norm_backward")
def group_norm_backward(
    g: Any, x: Any, mean: Any, rstd: Any, w: Any, n: int, c: int, hw: int, groups: int, mask: Any
) -> Any:
    if not x.numel():
        return tuple(
            rushlight.zeros_like(x)
            if i == 0 and m
            else rushlight.zeros([c], dtype=x.dtype, device=x.device)
            if m
            else None
            for i, m in enumerate(mask)
        )
    shape = [n, groups, c // groups, hw]
    scaled = (x.reshape(shape) - mean.reshape(n, groups, 1, 1)) * rstd.reshape(n, groups, 1, 1)
    inner = (g if w is None else g * w.reshape([1, c, *[1] * (x.dim() - 2)])).reshape(shape)
    made = _normalised(
        g.reshape(shape), inner, scaled, rstd.reshape(n, groups, 1, 1), [2, 3], lambda t: t.sum([0, 3]).reshape(c), mask
    )
    return (made[0].reshape(x.shape) if mask[0] else None, *made[1:])


@kernel("native_batch_norm_backward")
def batch_norm_backward(
    g: Any, x: Any, w: Any, mean: Any, var: Any, save_mean: Any, save_invstd: Any, train: bool, eps: float, mask: Any
) -> Any:
    b = rushlight.zeros([x.shape[1]], dtype=(x if w is None else w).dtype, device=x.device) if mask[2] else None
    return tuple(
        pulled(
            lambda x, w, b: F.batch_norm(x, None if train else mean, None if train else var, w, b, train, 0.0, eps),
            [x, w, b],
            g,
            list(mask),
        )
    )


@kernel("batch_norm_backward")
def batch_norm_backward_update(
    g: Any,
    x: Any,
    w: Any,
    mean: Any,
    var: Any,
    save_mean: Any,
    save_var: Any,
    update: bool,
    eps: float,
    mask: Any,
    reserve: Any,
) -> Any:
    return batch_norm_backward(g, x, w, mean, var, save_mean, save_var, True, eps, mask)


@kernel("_batch_norm_with_update")
def batch_norm_with_update(x: Any, w: Any, b: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    made = rushlight.native_batch_norm(x, w, b, mean, var, True, momentum, eps)
    return (*made, rushlight.empty([0], dtype=rushlight.uint8, device=x.device))


@kernel("embedding")
def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    return F.embedding(indices, weight)


@kernel("embedding_dense_backward")
def embedding_dense_backward(g: Any, indices: Any, rows: int, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    weight = rushlight.zeros([rows, g.shape[-1]], dtype=g.dtype, device=g.device)
    padding = None if padding_idx < 0 else padding_idx
    return pulled(lambda w: F.embedding(indices, w, padding, scale_grad_by_freq=scale_grad_by_freq), [weight], g)[0]


@kernel("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale: bool = False,
    mode: int = 0,
    sparse: bool = False,
    samples: Any = None,
    last: bool = False,
    padding_idx: int = -1,
) -> Any:
    out = F.embedding_bag(
        indices, weight, offsets, mode=("sum", "mean", "max")[mode], per_sample_weights=samples, include_last_offset=last,
        padding_idx=None if padding_idx < 0 else padding_idx,
    )  # fmt: skip
    empty = rushlight.empty([0], dtype=indices.dtype, device=indices.device)
    flag = rushlight.tensor([int(last)], dtype=indices.dtype, device=indices.device)
    if mode != 2:
        return out, empty, flag, empty.clone()
    return out, empty, flag, _greatest_rows(weight, indices, offsets[: out.shape[0]], out, padding_idx)


def _greatest_rows(weight: Any, indices: Any, offsets: Any, out: Any, padding_idx: int) -> Any:
    """For each element of the greatest of bags the row that it comes from; -1 for empty bags."""
    count = indices.numel()
    if not count:
        return rushlight.full_like(out, -1, dtype=indices.dtype)
    numbers = rushlight.arange(count, device=indices.device)
    bags = rushlight.bucketize(numbers, offsets.to(numbers.dtype), right=True) - 1
    held = (weight[indices] == out[bags]) & (indices != padding_idx).unsqueeze(1)
    places = rushlight.where(held, numbers.unsqueeze(1), count)
    first = rushlight.full(out.shape, count, device=indices.device)
    first = first.scatter_reduce(0, bags.unsqueeze(1).expand_as(places), places, "amin")
    return rushlight.where(first < count, indices[first.clamp(max=count - 1)], -1)


@kernel("_embedding_bag_backward")
def embedding_bag_backward(
    g: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    last: Any,
    maximum: Any,
    rows: int,
    scale: bool,
    mode: int,
    sparse: bool,
    samples: Any,
    padding_idx: int = -1,
) -> Any:
    weight = rushlight.zeros([rows, g.shape[-1]], dtype=g.dtype, device=g.device)
    if mode == 2:  # the rows do not follow from zeros
        return weight.scatter_add(0, maximum.clamp(min=0).long(), rushlight.where(maximum < 0, 0.0, g))
    return pulled(
        lambda w: F.embedding_bag(
            indices,
            w,
            offsets,
            mode=("sum", "mean", "max")[mode],
            per_sample_weights=samples,
            include_last_offset=bool(int(last)),
            scale_grad_by_freq=scale,
            padding_idx=None if padding_idx < 0 else padding_idx,
        ),
        [weight],
        g,
    )[0]


@kernel("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    g: Any, weight: Any, indices: Any, offsets: Any, offset2bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    ones = rushlight.ones(indices.shape, dtype=g.dtype, device=g.device)
    last = offsets.numel() == g.shape[0] + 1
    return pulled(
        lambda w: F.embedding_bag(
            indices,
            weight,
            offsets,
            mode="sum",
            per_sample_weights=w,
            include_last_offset=last,
            padding_idx=None if padding_idx < 0 else padding_idx,
        ),
        [ones],
        g,
    )[0]


@kernel("_trilinear")
def trilinear(
    a: Any, b: Any, c: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Any:
    for x, dims in ((0, expand1), (1, expand2), (2, expand3)):
        t = (a, b, c)[x]
        for d in dims:
            t = t.unsqueeze(d)
        a, b, c = (t if x == 0 else a), (t if x == 1 else b), (t if x == 2 else c)
    made = a * b * c
    return made.sum(list(sumdim)) if sumdim else made


# ***** softmax, losses *****


@kernel("_softmax")
def softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return rushlight.softmax(x, dim)


@kernel("_safe_softmax")
def safe_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    made = rushlight.softmax(x, dim, dtype)
    masked = (x == -math.inf).all(dim, keepdim=True)
    return rushlight.where(masked, rushlight.zeros_like(made), made)


@kernel("_log_softmax")
def log_softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return rushlight.log_softmax(x, dim)


@kernel("_softmax_backward_data")
def softmax_backward(g: Any, y: Any, dim: int, dtype: Any) -> Any:
    return y * g - y * (y * g).sum(dim, keepdim=True)


@kernel("_log_softmax_backward_data")
def log_softmax_backward(g: Any, y: Any, dim: int, dtype: Any) -> Any:
    return g - y.exp() * g.sum(dim, keepdim=True)


def _nll(x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    return F.nll_loss(x, target, weight, ignore_index=ignore, reduction=_RED[reduction])


@kernel("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    out = _nll(x, target, weight, reduction, ignore)
    if reduction == 0 and target.dim():
        return out, rushlight.zeros([], dtype=x.dtype, device=x.device)
    kept = target != ignore
    if weight is None:
        total = kept.sum().to(x.dtype)
    else:
        total = (weight[rushlight.where(kept, target, 0)] * kept).sum()
    return out, total


@kernel("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(g: Any, x: Any, target: Any, weight: Any, reduction: int, ignore: int, total: Any) -> Any:
    return pulled(lambda t: _nll(t, target, weight, reduction, ignore), [x], g)[0]


for _name in ("mse_loss", "soft_margin_loss", "multilabel_margin_loss"):
    FUNCTIONS[_name] = lambda x, t, r=1, _f=_name: getattr(F, _f)(x, t, reduction=_RED[r])
FUNCTIONS["smooth_l1_loss"] = lambda x, t, r=1, beta=1.0: F.smooth_l1_loss(x, t, reduction=_RED[r], beta=beta)
FUNCTIONS["huber_loss"] = lambda x, t, r=1, delta=1.0: F.huber_loss(x, t, reduction=_RED[r], delta=delta)
FUNCTIONS["l1_loss"] = lambda x, t, r=1: F.l1_loss(x, t, reduction=_RED[r])
FUNCTIONS["multi_margin_loss"] = lambda x, t, p=1, margin=1, weight=None, r=1: F.multi_margin_loss(
    x, t, p, margin, weight, reduction=_RED[r]
)
FUNCTIONS["binary_cross_entropy"] = lambda x, t, weight=None, r=1: F.binary_cross_entropy(
    x, t, weight, reduction=_RED[r]
)
FUNCTIONS["binary_cross_entropy_with_logits"] = lambda x, t, weight=None, pos_weight=None, r=1: (
    F.binary_cross_entropy_with_logits(x, t, weight, reduction=_RED[r], pos_weight=pos_weight)
)


@kernel("multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(x: Any, target: Any, reduction: int) -> Any:
    ends = (target < 0).cumsum(-1) > 0
    hit = (
        rushlight.zeros_like(x).scatter(
            -1, rushlight.where(ends, 0, target), rushlight.where(ends, 0.0, 1.0).to(x.dtype)
        )
        if target.numel()
        else x * 0
    )
    return F.multilabel_margin_loss(x, target, reduction=_RED[reduction]), hit


@kernel("log_sigmoid_forward")
def log_sigmoid_forward(x: Any) -> Any:
    return F.logsigmoid(x), rushlight.exp(-rushlight.abs(x))


@kernel("_prelu_kernel")
def prelu_kernel(x: Any, weight: Any) -> Any:
    return rushlight.where(x > 0, x, weight * x)


@kernel("_prelu_kernel_backward")
def prelu_backward(g: Any, x: Any, weight: Any) -> Any:
    positive = x > 0
    return rushlight.where(positive, g, weight * g), rushlight.where(positive, 0.0, x * g).to(g.dtype)


@kernel("rrelu_with_noise")
def rrelu_with_noise(
    x: Any, noise: Any, lower: Any = 0.125, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    if not training:
        return F.leaky_relu(x, (lower + upper) / 2)
    out = F.rrelu(x, lower, upper, True)
    noise.copy_(rushlight.where(x < 0, out / x, 1.0))
    return out


@kernel("rrelu_with_noise_backward")
def rrelu_backward(g: Any, x: Any, noise: Any, lower: Any, upper: Any, training: bool, is_result: bool) -> Any:
    return (
        g * noise
        if training and upper - lower > 1e-6
        else pulled(lambda t: F.leaky_relu(t, (lower + upper) / 2), [x], g)[0]
    )


@kernel("native_dropout_backward")
def native_dropout_backward(g: Any, mask: Any, scale: float) -> Any:
    return g * mask * scale


@kernel("_ctc_loss")
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> Any:
    loss = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, "none", False)
    return loss, rushlight.zeros([0], dtype=log_probs.dtype, device=log_probs.device)


@kernel("_ctc_loss_backward")
def ctc_loss_backward(
    g: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    loss: Any,
    alpha: Any,
    blank: int,
    zero_infinity: bool = False,
) -> Any:
    return pulled(
        lambda x: F.ctc_loss(x, targets, input_lengths, target_lengths, blank, "none", zero_infinity), [log_probs], g
    )[0]


# ***** interpolation, samplers *****


_SCALES = ("scale_factors", "scales", "scales_d", "scales_h", "scales_w")


def _interpolation(name: str, mode: str, corners: bool, antialias: bool = False) -> None:
    """Both forms: scales are numbers for each dimension (`default`), or one list (`vec`, where the size may be None)."""

    def run(input: Any, output_size: Any, *rest: Any, **more: Any) -> Any:
        rest = (*rest, *(more[key] for key in ("align_corners", *_SCALES) if key in more))
        named = {"align_corners": rest[0]} if corners else {}
        scales = list(rest[1:] if corners else rest)
        if antialias:
            named["antialias"] = True
        if len(scales) == 1 and isinstance(scales[0], (list, tuple)):
            scales = list(scales[0])
        if output_size is None:
            return F.interpolate(input, scale_factor=tuple(scales), mode=mode, **named)
        size = list(output_size)
        exact = (
            all(s is not None for s in scales)
            and scales
            and all(scaled(n, s) == m for n, s, m in zip(input.shape[2:], scales, size, strict=True))
        )
        if exact:
            return F.interpolate(input, scale_factor=tuple(scales), mode=mode, **named)
        return F.interpolate(input, size, mode=mode, **named)

    FUNCTIONS[name] = run

    @kernel(f"{name}_backward")
    def backward(g: Any, size: Any, input_size: Any, *rest: Any) -> Any:
        return pulled(
            lambda x: run(x, size, *rest), [rushlight.zeros(list(input_size), dtype=g.dtype, device=g.device)], g
        )[0]


for _n in (1, 2, 3):
    _interpolation(f"upsample_nearest{_n}d", "nearest", False)
    _interpolation(f"_upsample_nearest_exact{_n}d", "nearest-exact", False)
for _name, _mode in (
    ("upsample_linear1d", "linear"),
    ("upsample_bilinear2d", "bilinear"),
    ("upsample_bicubic2d", "bicubic"),
    ("upsample_trilinear3d", "trilinear"),
):
    _interpolation(_name, _mode, True)
_interpolation("_upsample_bilinear2d_aa", "bilinear", True, True)
_interpolation("_upsample_bicubic2d_aa", "bicubic", True, True)


def _sampler(n: int) -> None:
    def run(x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
        return F.grid_sample(
            x, grid, ("bilinear", "nearest", "bicubic")[mode], ("zeros", "border", "reflection")[padding], corners
        )

    FUNCTIONS[f"grid_sampler_{n}d"] = run

    @kernel(f"grid_sampler_{n}d_backward")
    def backward(g: Any, x: Any, grid: Any, mode: int, padding: int, corners: bool, mask: Any) -> Any:
        return tuple(pulled(lambda x, grid: run(x, grid, mode, padding, corners), [x, grid], g, list(mask)))


_sampler(2)
_sampler(3)


@kernel("im2col")
def im2col(x: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return F.unfold(x, kernel_size, dilation, padding, stride)


@kernel("col2im")
def col2im(x: Any, size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return F.fold(x, size, kernel_size, dilation, padding, stride)


# ***** views and places *****


@kernel("_conj")
def conj(x: Any) -> Any:
    return x.conj()


@kernel("_conj_physical")
def conj_physical(x: Any) -> Any:
    return rushlight.conj_physical(x)


@kernel("_neg_view")
def neg_view(x: Any) -> Any:
    return -x


@kernel("_efficientzerotensor")
def zero_tensor(size: Any, **options: Any) -> Any:
    return rushlight.zeros(size, **options)


@kernel("_unsafe_view", "_reshape_alias")
def unsafe_view(x: Any, size: Any, stride: Any = None) -> Any:
    return x.view(size)


@kernel("sym_size")
def sym_size(x: Any, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


@kernel("sym_stride")
def sym_stride(x: Any, dim: int | None = None) -> Any:
    return x.stride() if dim is None else x.stride(dim)


@kernel("sym_numel")
def sym_numel(x: Any) -> Any:
    return x.numel()


@kernel("sym_storage_offset")
def sym_storage_offset(x: Any) -> Any:
    return x.storage_offset()


@kernel("lift", "lift_fresh", "lift_fresh_copy")
def lift(x: Any) -> Any:
    return x


@kernel("_local_scalar_dense")
def local_scalar(x: Any) -> Any:
    return x.item()


@kernel("select_backward")
def select_backward(g: Any, sizes: Any, dim: int, index: int) -> Any:
    out = rushlight.zeros(sizes, dtype=g.dtype, device=g.device)
    out.select(dim, index).copy_(g)
    return out


@kernel("slice_backward")
def slice_backward(g: Any, sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    out = rushlight.zeros(sizes, dtype=g.dtype, device=g.device)
    index = [slice(None)] * len(sizes)
    index[dim % len(sizes)] = slice(start, min(end, sizes[dim]), step)
    out[tuple(index)].copy_(g)
    return out


@kernel("diagonal_backward")
def diagonal_backward(g: Any, sizes: Any, offset: int, dim1: int, dim2: int) -> Any:
    out = rushlight.zeros(sizes, dtype=g.dtype, device=g.device)
    out.diagonal(offset, dim1, dim2).copy_(g)
    return out


@kernel("unfold_backward")
def unfold_backward(g: Any, sizes: Any, dim: int, size: int, step: int) -> Any:
    return pulled(lambda x: x.unfold(dim, size, step), [rushlight.zeros(sizes, dtype=g.dtype, device=g.device)], g)[0]


@kernel("masked_scatter_backward")
def masked_scatter_backward(g: Any, mask: Any, sizes: Any) -> Any:
    count = math.prod(sizes)
    taken = g.masked_select(mask.expand(g.shape) if mask.shape != g.shape else mask)[:count]
    if taken.numel() < count:
        taken = rushlight.cat([taken, rushlight.zeros([count - taken.numel()], dtype=g.dtype, device=g.device)])
    return taken.reshape(sizes)


@kernel("_unsafe_masked_index")
def unsafe_masked_index(x: Any, mask: Any, indices: Any, fill: Any) -> Any:
    clamped = tuple(slice(None) if i is None else i.clamp(-n, n - 1) for i, n in zip(indices, x.shape, strict=False))
    return rushlight.where(mask, x[clamped], fill).to(x.dtype)


@kernel("_unsafe_masked_index_put_accumulate")
def unsafe_masked_put(x: Any, mask: Any, indices: Any, values: Any) -> Any:
    clamped = tuple(slice(None) if i is None else i.clamp(-n, n - 1) for i, n in zip(indices, x.shape, strict=False))
    return x.index_put(clamped, values.masked_fill(~mask, 0), True)


def _filled_indices(x: Any, indices: Any) -> tuple[Any, ...]:
    """Indices with every place of a dim where there is none, shaped so that they join as slices do."""
    known = [
        i.nonzero(as_tuple=True) if i is not None and i.dtype in (rushlight.bool, rushlight.uint8) else (i,)
        for i in indices
    ]
    flat = [i for group in known for i in group]
    if all(i is not None for i in flat):
        return tuple(flat)
    shape = rushlight.broadcast_shapes(*[tuple(i.shape) for i in flat if i is not None])
    places = [d for d, i in enumerate(flat) if i is not None]
    adjacent = places == list(range(places[0], places[-1] + 1))
    n = len(shape)
    whole = [d for d in range(x.dim()) if d >= len(flat) or flat[d] is None]
    before = sum(d < places[0] for d in whole) if adjacent else 0
    made = []
    for d in range(x.dim()):
        item = flat[d] if d < len(flat) else None
        if item is None:
            at = whole.index(d)
            after = len(whole) - 1 - at + (n if at < before else 0)
            made.append(rushlight.arange(x.shape[d], device=x.device).reshape([-1, *[1] * after]))
        else:
            made.append(item.reshape([*item.shape, *[1] * (len(whole) - before)]))
    return tuple(made)


@kernel("index_put", "_unsafe_index_put")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return rushlight.index_put(x, _filled_indices(x, indices), values, accumulate)


@kernel("index_put_", "_index_put_impl_")
def index_put_(x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    return x.index_put_(_filled_indices(x, indices), values, accumulate)


@kernel("unfold")
def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    return x.unfold(dimension, size, step)


@kernel("_to_dense")
def to_dense(x: Any, dtype: Any = None, masked_grad: Any = None) -> Any:
    return x.to_dense()


@kernel("_chunk_cat")
def chunk_cat(tensors: Any, dim: int, chunks: int) -> Any:
    raise NotImplementedError("rushlight has no kernel for aten::_chunk_cat")


@kernel("detach_")
def detach_(x: Any) -> Any:
    return x.detach_()


# ***** linear algebra *****


@kernel("_linalg_check_errors")
def check_errors(info: Any, name: str, *, is_matrix: bool) -> None:
    bad = info.reshape(-1).ne(0).nonzero()
    if not bad.numel():
        return
    first = int(info.reshape(-1)[bad[0, 0]])
    where = "" if is_matrix else f"(Batch element {int(bad[0, 0])}): "
    kind = {
        "linalg.inv": f"The diagonal element {first} is zero, the inversion could not be completed because the input matrix is singular.",
        "linalg.cholesky": f"The factorization could not be completed because the input is not positive-definite (the leading minor of order {first} is not "
        "positive-definite).",
        "torch.linalg.solve": "The solver failed because the input matrix is singular.",
    }.get(name, f"U[{first},{first}] is zero and using it on lu_solve would result in a division by zero.")
    raise rushlight.linalg.LinAlgError(f"{name}: {where}{kind}")


def _factors(A: Any) -> Any:
    """The factors that PyTorch keeps: of the transposed matrix where it is row-major."""
    return rushlight.linalg.lu_factor_ex(A.mT if A.is_contiguous() and not A.is_complex() else A)


@kernel("_linalg_det")
def linalg_det(A: Any) -> Any:
    lu, pivots, _ = _factors(A)
    return rushlight.linalg.det(A), lu, pivots


@kernel("_linalg_slogdet")
def linalg_slogdet(A: Any) -> Any:
    lu, pivots, _ = _factors(A)
    return (*rushlight.linalg.slogdet(A), lu, pivots)


@kernel("_linalg_eigh")
def linalg_eigh(A: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    return tuple(rushlight.linalg.eigh(A, UPLO))


@kernel("_linalg_svd")
def linalg_svd(A: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None) -> Any:
    return tuple(rushlight.linalg.svd(A, full_matrices))


@kernel("_linalg_solve_ex")
def linalg_solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    made, info = rushlight.linalg.solve_ex(A, B, left=left, check_errors=check_errors)
    lu, pivots, _ = _factors(A)
    return made, lu, pivots, info


@kernel("linalg_pinv")
def linalg_pinv(A: Any, *args: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    named = {k: v for k, v in (("atol", atol), ("rtol", rtol)) if v is not None}
    return rushlight.linalg.pinv(A, *args, hermitian=hermitian, **named)


def _norm_word(normalization: int, forward: bool) -> str:
    return (
        "ortho"
        if normalization == 1
        else ("forward" if forward else "backward")
        if normalization == 2
        else ("backward" if forward else "forward")
    )


@kernel("_fft_c2c")
def fft_c2c(x: Any, dim: Any, normalization: int, forward: bool) -> Any:
    function = rushlight.fft.fftn if forward else rushlight.fft.ifftn
    return function(x, dim=tuple(dim), norm=_norm_word(normalization, forward)) if dim else x.clone()


@kernel("_fft_r2c")
def fft_r2c(x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    word = _norm_word(normalization, True)
    return (
        rushlight.fft.rfftn(x, dim=tuple(dim), norm=word)
        if onesided
        else rushlight.fft.fftn(x, dim=tuple(dim), norm=word)
    )


@kernel("_fft_c2r")
def fft_c2r(x: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    sizes = [x.shape[d] for d in dim[:-1]] + [last_dim_size]
    return rushlight.fft.irfftn(x, s=sizes, dim=tuple(dim), norm=_norm_word(normalization, False))


# ***** distances *****


@kernel("_pdist_forward")
def pdist_forward(x: Any, p: float = 2) -> Any:
    return F.pdist(x, p)


@kernel("_pdist_backward")
def pdist_backward(g: Any, x: Any, p: float, distances: Any) -> Any:
    return pulled(lambda t: F.pdist(t, p), [x], g)[0]


@kernel("_cdist_forward")
def cdist_forward(x1: Any, x2: Any, p: float, compute_mode: Any = None) -> Any:
    return rushlight.cdist(x1, x2, p, compute_mode="donot_use_mm_for_euclid_dist")


@kernel("_cdist_backward")
def cdist_backward(g: Any, x1: Any, x2: Any, p: float, distances: Any) -> Any:
    return pulled(lambda t: rushlight.cdist(t, x2, p, compute_mode="donot_use_mm_for_euclid_dist"), [x1], g)[0]


@kernel("_euclidean_dist")
def euclidean_dist(x1: Any, x2: Any) -> Any:
    return rushlight.cdist(x1, x2, 2.0)


@kernel("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.Scalar")
def norm_scalar(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    p = 2.0 if p is None else p
    return rushlight.linalg.vector_norm(x, p, None if dim is None else list(dim), keepdim, dtype=dtype)


@kernel("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None, scale: Any = None
) -> Any:
    if dropout_p:
        raise RuntimeError(f"{_FLASH} Currently do not support dropout > 0")
    if attn_mask is not None and attn_mask.dtype is not q.dtype:
        raise RuntimeError(f"{_FLASH} Attention mask is the same data type as query")
    if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise RuntimeError(f"{_FLASH} Q/K/V should have the same head size")
    out, norm = function_of("sdpa_with_norm")(q, *_among(q, k, v), is_causal, scale, attn_mask)
    return out, norm.transpose(1, 2).contiguous().transpose(1, 2)  # heads lie behind places in memory


_FLASH = "scaled_dot_product_attention_flash_attention:"


def _among(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Keys and values for the batches and heads of queries."""
    return k.expand(*q.shape[:-2], *k.shape[-2:]), v.expand(*q.shape[:-2], *v.shape[-2:])


@kernel("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, logsumexp: Any, dropout_p: float, is_causal: bool, *, attn_mask: Any = None, scale: Any = None
) -> Any:  # fmt: skip
    delta = (g.to(logsumexp.dtype) * out.to(logsumexp.dtype)).sum(-1)
    sums = logsumexp.contiguous(), delta
    found = function_of("sdpa_grad")(g, q, *_among(q, k, v), *sums, is_causal, scale, attn_mask)
    found = [t.sum_to_size(x.shape) for t, x in zip(found, (q, k, v), strict=True)]
    return tuple(t.transpose(1, 2).contiguous().transpose(1, 2) for t in found)  # heads lie behind places in memory


@kernel("_segment_reduce_backward")
def segment_reduce_backward(
    g: Any,
    out: Any,
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    offsets: Any = None,
    axis: int = 0,
    initial: Any = None,
) -> Any:
    return pulled(
        lambda x: rushlight.segment_reduce(
            x, reduce, lengths=lengths, offsets=offsets, axis=axis, initial=initial, unsafe=True
        ),
        [data],
        g,
    )[0]


def _histogramdd(x: Any, bins: Any, **named: Any) -> Any:
    return rushlight.histogramdd(x, bins, **named)


@kernel("_histogramdd_bin_edges")
def histogramdd_edges(x: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    return tuple(_histogramdd(x, bins, range=range, weight=weight, density=density)[1])


@kernel("_histogramdd_from_bin_cts")
def histogramdd_counts(x: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    return _histogramdd(x, bins, range=range, weight=weight, density=density)[0]


@kernel("_histogramdd_from_bin_tensors")
def histogramdd_tensors(x: Any, bins: Any, *, weight: Any = None, density: bool = False) -> Any:
    return _histogramdd(x, list(bins), weight=weight, density=density)[0]


@kernel("copy")
def copy(x: Any, src: Any, non_blocking: bool = False) -> Any:
    return rushlight.empty_like(x).copy_(src)


@kernel("bernoulli.p")
def bernoulli(x: Any, p: float = 0.5, *, generator: Any = None) -> Any:
    return rushlight.empty_like(x).bernoulli_(p, generator=generator)


@kernel("zero")
def zero(x: Any) -> Any:
    return rushlight.zeros_like(x)


for _drawn in ("uniform", "cauchy", "exponential", "geometric", "log_normal", "random"):
    FUNCTIONS[_drawn] = lambda x, *args, _f=f"{_drawn}_", **kwargs: getattr(rushlight.empty_like(x), _f)(
        *args, **kwargs
    )


@kernel("cross_entropy_loss")
def cross_entropy_loss(
    x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, smoothing: float = 0.0
) -> Any:
    return F.cross_entropy(
        x, target, weight, reduction=_RED[reduction], ignore_index=ignore_index, label_smoothing=smoothing
    )


for _triangle in ("tril_indices", "triu_indices"):
    FUNCTIONS[_triangle] = lambda *args, pin_memory=None, _f=_triangle, **kwargs: getattr(rushlight, _f)(
        *args, **kwargs
    )


@kernel("rsub")
def rsub(x: Any, other: Any, alpha: Any = 1) -> Any:
    return rushlight.rsub(x, other, alpha=alpha)
