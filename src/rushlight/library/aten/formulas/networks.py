"""Formulas of activations, losses, norms, convolutions, pooling, interpolation, embeddings and attention."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.library.aten.derivatives import joint, op, rule

__all__: list[str] = []

rule("relu", self=lambda g, c: op("threshold_backward")(g, c.result, 0))
rule("threshold", self=lambda g, c: op("threshold_backward")(g, c.self, c.threshold))
rule(
    "threshold_backward",
    grad_output=lambda g, c: op("threshold_backward")(g, c.self, c.threshold),
    self=lambda g, c: g.zeros_like(),
)
rule("gelu", self=lambda g, c: op("gelu_backward")(g, c.self, approximate=c.approximate))
rule("silu", self=lambda g, c: op("silu_backward")(g, c.self))
rule("mish", self=lambda g, c: op("mish_backward")(g, c.self))
rule("elu", self=lambda g, c: op("elu_backward")(g, c.alpha, c.scale, c.input_scale, False, c.self))
rule("celu", self=lambda g, c: op("elu_backward")(g, c.alpha, 1, 1.0 / c.alpha, False, c.self))
rule("hardtanh", self=lambda g, c: op("hardtanh_backward")(g, c.self, c.min_val, c.max_val))
rule("hardswish", self=lambda g, c: op("hardswish_backward")(g, c.self))
rule("hardsigmoid", self=lambda g, c: op("hardsigmoid_backward")(g, c.self))
rule("hardshrink", self=lambda g, c: op("hardshrink_backward")(g, c.self, c.lambd))
rule("softshrink", self=lambda g, c: op("softshrink_backward")(g, c.self, c.lambd))
rule("softplus", self=lambda g, c: op("softplus_backward")(g, c.self, c.beta, c.threshold))
rule("leaky_relu", self=lambda g, c: op("leaky_relu_backward")(g, c.self, c.negative_slope, False))
joint("log_sigmoid_forward", "self", lambda g, c: (op("log_sigmoid_backward")(g[0], c.self, c.result1),), only=(0,))
rule("glu", self=lambda g, c: op("glu_backward")(g, c.self, c.dim))
rule(
    "rrelu_with_noise",
    self=lambda g, c: op("rrelu_with_noise_backward")(g, c.self, c.noise, c.lower, c.upper, c.training, False),
)
joint("_prelu_kernel", "self weight", lambda g, c: op("_prelu_kernel_backward")(g[0], c.self, c.weight))
rule("_softmax", self=lambda g, c: op("_softmax_backward_data")(g, c.result, c.dim, c.spec("self").dtype))
rule("_safe_softmax", self=lambda g, c: op("_softmax_backward_data")(g, c.result, c.dim, c.spec("self").dtype))
rule("_log_softmax", self=lambda g, c: op("_log_softmax_backward_data")(g, c.result, c.dim, c.spec("self").dtype))
rule(
    "_softmax_backward_data", grad_output=lambda g, c: op("_softmax_backward_data")(g, c.output, c.dim, c.input_dtype),
    output=lambda g, c: softmax_twice(g, c),
)  # fmt: skip
rule(
    "mse_loss",
    self=lambda g, c: op("mse_loss_backward")(g, c.self, c.target, c.reduction),
    target=lambda g, c: op("mse_loss_backward")(g, c.target, c.self, c.reduction),
)
rule(
    "huber_loss", self=lambda g, c: op("huber_loss_backward")(g, c.self, c.target, c.reduction, c.delta),
    target=lambda g, c: op("huber_loss_backward")(g, c.target, c.self, c.reduction, c.delta),
)  # fmt: skip
rule(
    "smooth_l1_loss", self=lambda g, c: op("smooth_l1_loss_backward")(g, c.self, c.target, c.reduction, c.beta),
    target=lambda g, c: op("smooth_l1_loss_backward")(g, c.target, c.self, c.reduction, c.beta),
)  # fmt: skip
rule("soft_margin_loss", self=lambda g, c: op("soft_margin_loss_backward")(g, c.self, c.target, c.reduction))
rule(
    "multi_margin_loss",
    self=lambda g, c: op("multi_margin_loss_backward")(g, c.self, c.target, c.p, c.margin, c.weight, c.reduction),
)
joint(
    "multilabel_margin_loss_forward", "self",
    lambda g, c: (op("multilabel_margin_loss_backward")(g[0], c.self, c.target, c.reduction, c.result1),), only=(0,),
)  # fmt: skip
joint(
    "nll_loss_forward",
    "self",
    lambda g, c: (op("nll_loss_backward")(g[0], c.self, c.target, c.weight, c.reduction, c.ignore_index, c.result1),),
    only=(0,),
)
joint(
    "nll_loss2d_forward",
    "self",
    lambda g, c: (op("nll_loss2d_backward")(g[0], c.self, c.target, c.weight, c.reduction, c.ignore_index, c.result1),),
    only=(0,),
)
rule(
    "binary_cross_entropy", self=lambda g, c: op("binary_cross_entropy_backward")(g, c.self, c.target, c.weight, c.reduction),
    target=lambda g, c: entropy_target(g, c),
)  # fmt: skip
rule(
    "binary_cross_entropy_with_logits", self=lambda g, c: logits_input(g, c),
    target=lambda g, c: logits_target(g, c),
)  # fmt: skip
joint("native_layer_norm", "input weight bias", lambda g, c: layer_norm(g, c), only=(0,))
joint("native_group_norm", "input weight bias", lambda g, c: group_norm(g, c), only=(0, 1, 2))
joint("native_batch_norm", "input weight bias", lambda g, c: batch_norm(g, c), only=(0,))
joint("_native_batch_norm_legit", "input weight bias", lambda g, c: batch_norm(g, c), only=(0,))
joint("_native_batch_norm_legit.no_stats", "input weight bias", lambda g, c: batch_norm(g, c, False), only=(0,))
joint("_batch_norm_with_update", "input weight bias", lambda g, c: batch_norm_update(g, c), only=(0,))
joint("convolution", "input weight bias", lambda g, c: convolution(g, c))
joint("grid_sampler_2d", "input grid", lambda g, c: sampler("grid_sampler_2d_backward", g, c))
joint("grid_sampler_3d", "input grid", lambda g, c: sampler("grid_sampler_3d_backward", g, c))
rule(
    "embedding",
    weight=lambda g, c: op("embedding_dense_backward")(
        g, c.indices, c.sizes("weight")[0], c.padding_idx, c.scale_grad_by_freq
    ),
)
joint("_embedding_bag", "per_sample_weights", lambda g, c: (bag_weights(g[0], c),), only=(0,))
joint("_embedding_bag", "weight", lambda g, c: (bag(g[0], c),), only=(0,))
rule("im2col", self=lambda g, c: op("col2im")(g, c.sizes("self")[-2:], c.kernel_size, c.dilation, c.padding, c.stride))
rule("col2im", self=lambda g, c: op("im2col")(g, c.kernel_size, c.dilation, c.padding, c.stride))
rule("avg_pool2d", self=lambda g, c: average("avg_pool2d_backward", g, c))
rule("avg_pool3d", self=lambda g, c: average("avg_pool3d_backward", g, c))
rule("_adaptive_avg_pool2d", self=lambda g, c: op("_adaptive_avg_pool2d_backward")(g, c.self))
rule("_adaptive_avg_pool3d", self=lambda g, c: op("_adaptive_avg_pool3d_backward")(g, c.self))
joint(
    "adaptive_max_pool2d",
    "self",
    lambda g, c: (op("adaptive_max_pool2d_backward")(g[0], c.self, c.result1),),
    only=(0,),
)
joint(
    "adaptive_max_pool3d",
    "self",
    lambda g, c: (op("adaptive_max_pool3d_backward")(g[0], c.self, c.result1),),
    only=(0,),
)
rule("max_pool2d_with_indices", self=lambda g, c: pooled("max_pool2d_with_indices_backward", g, c))
rule("max_pool3d_with_indices", self=lambda g, c: pooled("max_pool3d_with_indices_backward", g, c))
rule(
    "fractional_max_pool2d",
    self=lambda g, c: op("fractional_max_pool2d_backward")(g, c.self, c.kernel_size, c.output_size, c.result1),
)
rule(
    "fractional_max_pool3d",
    self=lambda g, c: op("fractional_max_pool3d_backward")(g, c.self, c.kernel_size, c.output_size, c.result1),
)
rule("max_unpool2d", self=lambda g, c: unpooled(g, c, 2))
rule("max_unpool3d", self=lambda g, c: unpooled(g, c, 3))
for _n in (1, 2, 3):
    for _kind in ("reflection_pad", "replication_pad"):
        _name = f"{_kind}{_n}d"
        rule(_name, self=lambda g, c, _b=f"{_name}_backward": op(_b)(g, c.self, c.padding))
for _name in (
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
):
    rule(_name, self=lambda g, c, _b=f"{_name}_backward": nearest(_b, g, c))
for _name in (
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_trilinear3d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
):
    rule(_name, self=lambda g, c, _b=f"{_name}_backward": smooth(_b, g, c))
rule("native_dropout_backward", grad_output=lambda g, c: g * (c.mask._to_copy(dtype=g.dtype) * c.scale))
rule(
    "native_dropout",
    input=lambda g, c: op("native_dropout_backward")(
        g, c.result1, 1.0 if not c.train else 0.0 if c.p == 1 else 1.0 / (1.0 - c.p)
    ),
)
joint(
    "_ctc_loss",
    "log_probs",
    lambda g, c: (
        op("_ctc_loss_backward")(
            g[0],
            c.log_probs,
            c.targets,
            c.input_lengths,
            c.target_lengths,
            c.result0,
            c.result1,
            c.blank,
            c.zero_infinity,
        ),
    ),
    only=(0,),
)
rule(
    "segment_reduce",
    data=lambda g, c: op("_segment_reduce_backward")(
        g, c.result, c.data, c.reduce, lengths=c.lengths, offsets=c.offsets, axis=c.axis, initial=c.initial
    ),
)
joint("_scaled_dot_product_flash_attention_for_cpu", "query key value", lambda g, c: flash(g[0], c), only=(0,))
joint("_trilinear", "i1 i2 i3", lambda g, c: trilinear(g[0], c))
rule("_pdist_forward", self=lambda g, c: op("_pdist_backward")(g, c.self, c.p, c.result))
rule(
    "_cdist_forward",
    x1=lambda g, c: op("_cdist_backward")(g, c.x1, c.x2, c.p, c.result),
    x2=lambda g, c: distances_second(g, c),
)
joint("_euclidean_dist", "x1 x2", lambda g, c: euclidean(g[0], c))


def softmax_twice(g: Any, c: Any) -> Any:
    """The gradient of the softmax's result in its own backward."""
    product = c.output * c.grad_output
    total = product.call("sum.dim_IntList", [c.dim], True)
    inner = (g * c.output).call("sum.dim_IntList", [c.dim], True)
    return g * c.grad_output - (g * total) - inner * c.grad_output


def entropy_target(g: Any, c: Any) -> Any:
    """The gradient of the targets: minus the logit."""
    slope = c.self.logit().call("neg_") * g
    if c.weight is not None:
        slope = slope * c.weight
    return slope.call("div_.Scalar", c.self.tensor.numel()) if c.reduction == 1 else slope


def logits_input(g: Any, c: Any) -> Any:
    """The gradient of the logits."""
    if c.pos_weight is not None:
        slope = _weighted(c, c.pos_weight * c.target)
    else:
        slope = c.self.sigmoid() - c.target
    slope = slope * g if c.pos_weight is None else slope.call("mul_.Tensor", g)
    if c.weight is not None:
        slope = slope * c.weight
    return slope.call("div_.Scalar", c.self.tensor.numel()) if c.reduction == 1 else slope


def _weighted(c: Any, t: Any) -> Any:
    return ((t + 1).call("sub_.Tensor", c.target)).call("mul_.Tensor", c.self.sigmoid()).call("sub_.Tensor", t)


def logits_target(g: Any, c: Any) -> Any:
    """The gradient of the targets."""
    if c.pos_weight is not None:
        slope = _log_ratio(c) * g
    else:
        slope = -c.self * g
    if c.weight is not None:
        slope = slope * c.weight
    return slope.call("div_.Scalar", c.self.tensor.numel()) if c.reduction == 1 else slope


def _log_ratio(c: Any) -> Any:
    negative = op("log_sigmoid_forward")(-c.self)[0]
    return negative - c.pos_weight * op("log_sigmoid_forward")(c.self)[0]


def layer_norm(g: Any, c: Any) -> Any:
    """The gradients of input, weight and bias."""
    mask = [c.needs("input"), c.needs("weight"), c.needs("bias")]
    return op("native_layer_norm_backward")(
        g[0], c.input, c.normalized_shape, c.result1, c.result2, c.weight, c.bias, mask
    )


def group_norm(g: Any, c: Any) -> Any:
    """The gradients of input, weight and bias."""
    if g[1] is not None or g[2] is not None:
        raise NotImplementedError("the gradient of native_group_norm's mean and rstd in aten operators")
    mask = [c.needs("input"), c.needs("weight"), c.needs("bias")]
    return op("native_group_norm_backward")(
        g[0], c.input, c.result1, c.result2, c.weight, c.N, c.C, c.HxW, c.group, mask
    )


def batch_norm(g: Any, c: Any, statistics: bool = True) -> Any:
    """The gradients of input, weight and bias."""
    mask = [c.needs("input"), c.needs("weight"), c.needs("bias")]
    mean, var = (c.running_mean, c.running_var) if statistics else (None, None)
    return op("native_batch_norm_backward")(
        g[0], c.input, c.weight, mean, var, c.result1, c.result2, c.training, c.eps, mask
    )


def batch_norm_update(g: Any, c: Any) -> Any:
    """The gradients of input, weight and bias."""
    mask = [c.needs("input"), c.needs("weight"), c.needs("bias")]
    return op("batch_norm_backward")(
        g[0], c.input, c.weight, c.running_mean, c.running_var, c.result1, c.result2, True, c.eps, mask, c.result3
    )


def convolution(g: Any, c: Any) -> Any:
    """The gradients of input, weight and bias."""
    mask = [c.needs("input"), c.needs("weight"), c.needs("bias")]
    sizes = c.sizes("bias") if c.has("bias") else [0]
    return op("convolution_backward")(
        g[0], c.input, c.weight, sizes, c.stride, c.padding, c.dilation, c.transposed, c.output_padding, c.groups, mask
    )


def sampler(name: str, g: Any, c: Any) -> Any:
    """The gradients of image and grid."""
    return op(name)(
        g[0],
        c.input,
        c.grid,
        c.interpolation_mode,
        c.padding_mode,
        c.align_corners,
        [c.needs("input"), c.needs("grid")],
    )


def bag(g: Any, c: Any) -> Any:
    """The gradient of the embeddings of bags."""
    return op("_embedding_bag_backward")(
        g,
        c.indices,
        c.offsets,
        c.result1,
        c.result2,
        c.result3,
        c.sizes("weight")[0],
        c.scale_grad_by_freq,
        c.mode,
        c.sparse,
        c.per_sample_weights,
        c.padding_idx,
    )


def bag_weights(g: Any, c: Any) -> Any:
    """The gradient of the weights of a bag's items."""
    return op("_embedding_bag_per_sample_weights_backward")(
        g, c.weight, c.indices, c.offsets, c.result1, c.mode, c.padding_idx
    )


def average(name: str, g: Any, c: Any) -> Any:
    """The gradient of an average pooling."""
    return op(name)(g, c.self, c.kernel_size, c.stride, c.padding, c.ceil_mode, c.count_include_pad, c.divisor_override)


def pooled(name: str, g: Any, c: Any) -> Any:
    """The gradient of a maximum pooling."""
    return op(name)(g, c.self, c.kernel_size, c.stride, c.padding, c.dilation, c.ceil_mode, c.result1)


def unpooled(g: Any, c: Any, n: int) -> Any:
    """The gradient at the places that were written."""
    sizes = c.sizes("self")
    lead = sizes[:-n]
    flat = g.view([*lead, -1])
    places = c.indices
    if not places.tensor.is_contiguous():
        places = places.clone(memory_format=rushlight.contiguous_format)
    return flat.gather(-1, places.view([*lead, -1])).view(sizes)


def nearest(name: str, g: Any, c: Any) -> Any:
    """The gradient of an interpolation by the nearest element."""
    scales = [getattr(c, n) for n in ("scales", "scales_d", "scales_h", "scales_w") if n in c.arguments]
    return op(name)(g, c.output_size, c.sizes("self"), *scales)


def smooth(name: str, g: Any, c: Any) -> Any:
    """The gradient of a linear or cubic interpolation."""
    scales = [getattr(c, n) for n in ("scales", "scales_d", "scales_h", "scales_w") if n in c.arguments]
    return op(name)(g, c.output_size, c.sizes("self"), c.align_corners, *scales)


def flash(g: Any, c: Any) -> Any:
    """The gradients of attention."""
    return op("_scaled_dot_product_flash_attention_for_cpu_backward")(
        g, c.query, c.key, c.value, c.result0, c.result1, c.dropout_p, c.is_causal, attn_mask=c.attn_mask, scale=c.scale
    )


def trilinear(g: Any, c: Any) -> Any:
    """The gradients of the three factors of a bilinear form."""
    made = (
        op("_trilinear")(g, c.i2, c.i3, c.sumdim, c.expand2, c.expand3, c.expand1) if c.needs("i1") else None,
        op("_trilinear")(c.i1, g, c.i3, c.expand1, c.sumdim, c.expand3, c.expand2) if c.needs("i2") else None,
        op("_trilinear")(c.i1, c.i2, g, c.expand1, c.expand2, c.sumdim, c.expand3) if c.needs("i3") else None,
    )
    return made


def distances_second(g: Any, c: Any) -> Any:
    """The gradient of the second set of points."""

    def turned(x: Any) -> Any:
        x = x.call("transpose.int", -2, -1)
        return x if x.tensor.is_contiguous() else x.clone(memory_format=rushlight.contiguous_format)

    distances = turned(c.result)
    return op("_cdist_backward")(turned(g), c.x2, c.x1, c.p, distances)


def euclidean(g: Any, c: Any) -> Any:
    """The gradients of both sets of points."""
    ratio = g / c.result
    ratio = ratio.call("masked_fill_.Scalar", c.result.call("eq.Scalar", 0), 0)
    return (
        c.x1 * ratio.call("sum.dim_IntList", [-1], True) - ratio.matmul(c.x2) if c.needs("x1") else None,
        c.x2 * ratio.call("sum.dim_IntList", [-2], False).unsqueeze(-1)
        - ratio.call("transpose.int", -2, -1).matmul(c.x1)
        if c.needs("x2")
        else None,
    )
