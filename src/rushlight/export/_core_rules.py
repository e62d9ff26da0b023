"""The rules by which programs come to core aten operators: which operators are replaced, and by what.

Composites are replaced by what the package's own handlers of them call; others by rules of `torch._decomp`, and by those
below, which give the same operators as PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._decomp import decomposition_table
from rushlight._interface.base import LazyModule
from rushlight._interface.sizes import is_unknown, require_between
from rushlight.library.aten.schemas import find_form

functions: Any = LazyModule("rushlight.library.aten.functions")

__all__ = ["CORE", "default_rules", "rule"]

# Operators that are no core aten operators, and have a form that is.
CORE = frozenset(
    (
        "__and__.Scalar __and__.Tensor __or__.Scalar __or__.Tensor __xor__.Scalar __xor__.Tensor _add_batch_dim _backward"
        " _batch_norm_impl_index_backward _cast_Byte _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short"
        " _choose_qparams_per_tensor _chunk_cat _convolution.deprecated _convolution_double_backward _convolution_mode _cufft_clear_plan_cache"
        " _cufft_get_plan_cache_max_size _cufft_get_plan_cache_size _cufft_set_plan_cache_max_size _debug_has_internal_overlap _dim_arange"
        " _euclidean_dist _fused_rms_norm _fused_rms_norm_backward _has_compatible_shallow_copy_type _is_zerotensor _log_softmax_backward_data"
        " _lu_with_info _nnpack_available _pack_padded_sequence_backward _pad_circular _pad_enum _pad_packed_sequence _prelu_kernel"
        " _prelu_kernel_backward _propagate_xla_data _remove_batch_dim _reshape_alias _reshape_from_tensor _rowwise_prune _safe_softmax"
        " _saturate_weight_to_fp16 _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu _shape_as_tensor _sobol_engine_draw"
        " _softmax_backward_data _thnn_differentiable_gru_cell_backward _thnn_differentiable_lstm_cell_backward _thnn_fused_lstm_cell_backward _to_cpu"
        " _unsafe_index.Tensor _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view _upsample_bicubic2d_aa.vec"
        " _upsample_bilinear2d_aa.vec _upsample_lanczos2d_aa.vec _upsample_nearest_exact1d _upsample_nearest_exact1d.vec _upsample_nearest_exact2d"
        " _upsample_nearest_exact2d.vec _upsample_nearest_exact3d _upsample_nearest_exact3d.vec _use_cudnn_rnn_flatten_weight _version _weight_norm"
        " _weight_norm_differentiable_backward _weight_norm_interface _wrapped_linear_prepack absolute adaptive_avg_pool1d adaptive_avg_pool2d"
        " adaptive_avg_pool3d adaptive_max_pool1d addcdiv addcdiv_ addcmul addcmul_ addr affine_grid_generator affine_grid_generator_backward"
        " alias_copy all all.dim all.dims aminmax arange arange.start arccos arccosh arcsin arcsinh arctan arctan2 arctanh argsort argsort.stable"
        " argwhere atleast_1d.Sequence atleast_2d.Sequence atleast_3d.Sequence avg_pool1d baddbmm baddbmm.dtype bernoulli bilinear"
        " binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits block_diag broadcast_tensors can_cast cdist celu celu_"
        " chain_matmul chalf channel_shuffle choose_qparams_optimized clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor clip clip.Tensor col2im"
        " column_stack combinations concat concatenate conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding conv_tbc_backward"
        " conv_transpose1d conv_transpose2d.input conv_transpose3d.input corrcoef cosine_embedding_loss cosine_similarity count_nonzero"
        " count_nonzero.dim_IntList cov cross cross_entropy_loss ctc_loss.IntList ctc_loss.Tensor cudnn_batch_norm cudnn_batch_norm_backward"
        " cudnn_is_acceptable cummaxmin_backward cumprod_backward cumulative_trapezoid.dx cumulative_trapezoid.x data deg2rad deg2rad_ det detach diag"
        " diag_embed diagflat diagonal_backward diagonal_copy diff divide.Scalar divide.Scalar_mode divide.Tensor divide.Tensor_mode dot dstack einsum"
        " elu_ elu_backward embedding_backward embedding_bag embedding_bag.padding_idx embedding_dense_backward empty_like expand_copy eye eye.m"
        " fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask_backward fake_quantize_per_tensor_affine"
        " fake_quantize_per_tensor_affine.tensor_qparams fake_quantize_per_tensor_affine_cachemask_backward fft_fft fft_fft2 fft_fftn fft_fftshift"
        " fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn"
        " fft_rfft fft_rfft2 fft_rfftn fill.Scalar fill.Tensor fill_.Scalar fill_.Tensor fix flatten_dense_tensors fliplr flipud float_power.Scalar"
        " float_power.Tensor_Scalar float_power.Tensor_Tensor floor_divide floor_divide.Scalar frac frac_ frobenius_norm.dim gather_backward gelu_"
        " gelu_backward ger get_device get_gradients glu glu_backward gradient.array gradient.scalararray gradient.scalarint gradient.scalarrayarray"
        " gradient.scalarrayint gradient.tensorarray gradient.tensorarrayint greater.Scalar greater.Tensor greater_equal.Scalar greater_equal.Tensor"
        " grid_sampler group_norm gru.data gru.input gru_cell hann_window hann_window.periodic hardshrink hardsigmoid hardsigmoid_"
        " hardsigmoid_backward hardswish hardswish_ hardswish_backward hardtanh_ hardtanh_backward heaviside heaviside_ hinge_embedding_loss"
        " histogramdd histogramdd.TensorList_bins histogramdd.int_bins hstack huber_loss huber_loss_backward im2col index_add index_add_ index_copy"
        " index_copy_ index_fill.int_Scalar index_fill.int_Tensor index_fill_.int_Scalar index_fill_.int_Tensor index_select_backward"
        " infinitely_differentiable_gelu_backward inner instance_norm inverse is_complex is_conj is_distributed is_floating_point is_inference is_leaf"
        " is_neg is_nonzero is_signed is_vulkan_available isclose isfinite isin.Scalar_Tensor isin.Tensor_Scalar isin.Tensor_Tensor isneginf isposinf"
        " isreal istft item kl_div kron l1_loss layer_norm leaky_relu_ leaky_relu_backward lerp.Scalar lerp.Tensor lerp_.Scalar lerp_.Tensor"
        " less.Scalar less.Tensor less_equal.Scalar less_equal.Tensor linalg_cholesky linalg_cond linalg_cond.p_str linalg_cross linalg_det"
        " linalg_eigh linalg_eigvals linalg_eigvalsh linalg_inv linalg_ldl_factor linalg_lu_factor linalg_matmul linalg_matrix_norm"
        " linalg_matrix_norm.str_ord linalg_matrix_power linalg_matrix_rank linalg_matrix_rank.atol_rtol_float linalg_matrix_rank.atol_rtol_tensor"
        " linalg_matrix_rank.tol_tensor linalg_multi_dot linalg_norm linalg_norm.ord_str linalg_pinv linalg_pinv.atol_rtol_float"
        " linalg_pinv.rcond_tensor linalg_slogdet linalg_solve linalg_solve_ex linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve"
        " linalg_vander linalg_vecdot linear linspace linspace.Scalar_Tensor linspace.Tensor_Scalar linspace.Tensor_Tensor log_sigmoid"
        " log_sigmoid_backward log_sigmoid_forward log_softmax.int logaddexp logaddexp2 logdet logit logit_ logit_backward logspace"
        " logspace.Scalar_Tensor logspace.Tensor_Scalar logspace.Tensor_Tensor logsumexp lstm.data lstm.input lstm_cell lu_solve margin_ranking_loss"
        " masked_fill.Scalar masked_fill.Tensor masked_fill_.Scalar masked_fill_.Tensor masked_select_backward matmul matrix_exp matrix_exp_backward"
        " matrix_power max.other max_pool1d max_pool1d_with_indices max_pool2d max_pool3d max_unpool2d max_unpool3d meshgrid meshgrid.indexing"
        " min.other miopen_batch_norm_backward mish mish_ mish_backward mse_loss mse_loss_backward msort multi_margin_loss multilabel_margin_loss"
        " multilabel_margin_loss_forward multiply.Scalar multiply.Tensor mv mvlgamma mvlgamma_ nan_to_num nan_to_num_ nanmean nanquantile"
        " nanquantile.scalar nansum native_batch_norm_backward native_channel_shuffle native_dropout_backward native_group_norm_backward"
        " native_layer_norm_backward negative nested_to_padded_tensor new_empty new_full new_ones new_zeros nll_loss nll_loss2d nll_loss2d_backward"
        " nll_loss2d_forward nll_loss_backward nll_loss_forward nll_loss_nd nonzero_numpy norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype"
        " norm.ScalarOpt_dtype norm_except_dim not_equal.Scalar not_equal.Tensor nuclear_norm nuclear_norm.dim one_hot ones ones_like orgqr outer"
        " output_nr pad pad_sequence pairwise_distance pdist pinverse pixel_shuffle pixel_unshuffle poisson_nll_loss prelu promote_types qr quantile"
        " quantile.scalar rad2deg rad2deg_ reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d"
        " reflection_pad3d_backward relu6 renorm renorm_ repeat_interleave.self_Tensor repeat_interleave.self_int replication_pad1d replication_pad2d"
        " replication_pad3d resize_as result_type.Scalar result_type.Scalar_Scalar result_type.Scalar_Tensor result_type.Tensor retains_grad rms_norm"
        " rnn_relu.data rnn_relu.input rnn_relu_cell rnn_tanh.data rnn_tanh.input rnn_tanh_cell roll rot90 row_stack rrelu rsub.Scalar rsub.Tensor"
        " scaled_dot_product_attention select_backward select_scatter selu sgn sgn_ sigmoid_backward silu silu_ silu_backward sinc sinc_ size.int"
        " slice_backward slogdet slow_conv3d smm smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward softmax.int"
        " softplus softplus_backward softshrink special_digamma special_entr special_erf special_erfc special_erfinv special_exp2 special_expit"
        " special_expm1 special_gammainc special_gammaincc special_gammaln special_i0 special_log1p special_log_ndtr special_log_softmax special_logit"
        " special_logsumexp special_multigammaln special_ndtr special_polygamma special_psi special_round special_sinc special_softmax special_xlog1py"
        " special_xlog1py.other_scalar special_xlog1py.self_scalar special_xlogy special_xlogy.other_scalar special_xlogy.self_scalar split.Tensor"
        " split_with_sizes_copy square squeeze squeeze.dim squeeze_copy squeeze_copy.dim squeeze_copy.dims sspaddmm stack std std.correction std.dim"
        " std_mean std_mean.correction std_mean.dim stft stft.center stride.int subtract.Scalar subtract.Tensor sum sum_to_size svd sym_is_contiguous"
        " sym_size.int sym_stride.int t t_copy take take_along_dim tanh_backward tensordot thnn_conv2d threshold threshold_ threshold_backward tile"
        " to_dense to_dense_backward to_mkldnn_backward trace trace_backward transpose.int transpose_copy.int trapezoid.dx trapezoid.x trapz.dx"
        " trapz.x tril tril_ triplet_margin_loss triu triu_ true_divide.Scalar true_divide.Tensor type_as unbind.int unflatten_dense_tensors"
        " unfold_backward unfold_copy unsafe_split.Tensor unsafe_split_with_sizes unsqueeze_copy upsample_bicubic2d.vec upsample_linear1d"
        " upsample_linear1d.vec upsample_nearest1d upsample_nearest1d.vec upsample_nearest2d upsample_nearest3d upsample_nearest3d.vec"
        " upsample_trilinear3d.vec value_selecting_reduction_backward vander var var.dim var_mean var_mean.dim vdot vstack where where.Scalar"
        " where.ScalarOther where.ScalarSelf xlogy.OutScalar_Other xlogy.OutScalar_Self xlogy.OutTensor xlogy.Scalar_Other xlogy.Scalar_Self"
        " xlogy.Tensor xlogy_.Scalar_Other xlogy_.Tensor zero zero_ zeros zeros_like"
    ).split()
)

Rule = Callable[..., Any]
_OWN: dict[str, Rule] = {}
aten: Any = rushlight.ops.aten


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: the function replaces these operators."""

    def register(function: Rule) -> Rule:
        for name in names:
            _OWN[name] = function
        return function

    return register


def default_rules() -> dict[Any, Rule]:
    """Operator -> rule, for all that have one."""
    found: dict[Any, Rule] = {}
    for name in sorted({*CORE, *_OWN}):
        packet, _, overload = name.partition(".")
        form = find_form(packet, overload or "default")
        if form is None or packet.startswith("__"):
            continue
        op = getattr(getattr(aten, packet), form.overload)
        made = _OWN.get(name) or decomposition_table.get(op)
        made = composite(op) if made is None else made
        if made is not None and (name in CORE or name in _OWN):
            found[op] = made
    return found


def composite(op: Any) -> Rule | None:
    """The handler of an operator that is made of others; None for one that stands for itself."""
    form = getattr(op, "form", None)
    if form is None or not form.composite:
        return None
    found: Rule | None = functions.HANDLERS.get(form.name)
    return found


# Composites that may give an argument itself, or a view of it: no graph without changes in place has them.
ALIASING = frozenset(
    "reshape reshape_as contiguous flatten chunk unflatten view_as expand_as to type_as batch_norm dropout feature_dropout alpha_dropout movedim"
    " moveaxis swapaxes swapdims unsafe_chunk tensor_split hsplit vsplit dsplit narrow ravel mT mH adjoint squeeze_ atleast_1d atleast_2d atleast_3d"
    " _to_cpu float double half conj real imag resolve_conj resolve_neg matrix_H numpy_T instance_norm broadcast_to".split()
)


# ***** rules *****


@rule("t")
def t(self: Any) -> Any:
    return aten.permute.default(self, [1, 0]) if self.dim() == 2 else aten.alias.default(self)


@rule("transpose.int")
def transpose(self: Any, dim0: int, dim1: int) -> Any:
    dims = list(range(self.dim()))
    if not dims:
        return aten.alias.default(self)
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return aten.permute.default(self, dims)


@rule("split.Tensor")
def split(self: Any, split_size: Any, dim: int = 0) -> Any:
    length = self.shape[dim]
    sizes = [min(split_size, length - start) for start in range(0, length, split_size)] or [0]
    return aten.split_with_sizes.default(self, sizes, dim)


@rule("squeeze.dim")
def squeeze_dim(self: Any, dim: int) -> Any:
    return aten.squeeze.dims(self, [dim])


@rule("squeeze")
def squeeze(self: Any) -> Any:
    return aten.squeeze.dims(self, [d for d, n in enumerate(self.shape) if n == 1])


@rule("sum")
def sum_all(self: Any, *, dtype: Any = None) -> Any:
    return aten.sum.dim_IntList(self, [], dtype=dtype)


@rule("hardswish")
def hardswish(self: Any) -> Any:
    low = aten.clamp.default(aten.add.Tensor(self, 3), 0)
    return aten.div.Tensor(aten.mul.Tensor(self, aten.clamp.default(low, None, 6)), 6)


@rule("hardsigmoid")
def hardsigmoid(self: Any) -> Any:
    low = aten.clamp.default(aten.add.Tensor(self, 3), 0)
    return aten.div.Tensor(aten.clamp.default(low, None, 6), 6)


@rule("relu6")
def relu6(self: Any) -> Any:
    return aten.hardtanh.default(self, 0, 6)


@rule("softplus")
def softplus(self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = self if beta == 1 else aten.mul.Tensor(self, beta)
    made = aten.log1p.default(aten.exp.default(scaled))
    made = made if beta == 1 else aten.div.Tensor(made, beta)
    return aten.where.self(aten.gt.Scalar(scaled, threshold), self, made)


@rule("mish")
def mish(self: Any) -> Any:
    return aten.mul.Tensor(self, aten.tanh.default(softplus(self)))


@rule("glu")
def glu(self: Any, dim: int = -1) -> Any:
    dim %= self.dim()
    half = self.shape[dim] // 2
    first, second = (aten.slice.Tensor(self, dim, k * half, (k + 1) * half) for k in range(2))
    return aten.mul.Tensor(first, aten.sigmoid.default(second))


@rule("batch_norm")
def batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float,
    cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    if not training:
        given = (input, weight, bias, running_mean, running_var, momentum, eps)
        return aten._native_batch_norm_legit_no_training.default(*given)[0]
    if running_mean is None:
        return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)[0]
    given = (input, weight, bias, running_mean, running_var, training, momentum, eps)
    found = aten._native_batch_norm_legit_functional.default(*given)
    aten.copy_.default(running_mean, found[3])
    aten.copy_.default(running_var, found[4])
    return found[0]


@rule("max_pool2d")
def max_pool2d(
    self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    return aten.max_pool2d_with_indices.default(self, kernel_size, list(stride), padding, dilation, ceil_mode)[0]


@rule("group_norm")
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    count = 1
    for n in input.shape[2:]:
        count = count * n
    n, c = input.shape[:2]
    return aten.native_group_norm.default(input, weight, bias, n, c, count, num_groups, eps)[0]


@rule("layer_norm")
def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    return aten.native_layer_norm.default(input, list(normalized_shape), weight, bias, eps)[0]


@rule("instance_norm")
def instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    if not use_input_stats or running_mean is not None:
        return NotImplemented
    shape = list(input.shape)
    n, c = shape[:2]
    plain = input if input.is_contiguous() else aten.clone.default(input, memory_format=rushlight.contiguous_format)
    rows = aten.view.default(plain, [1, n * c, *shape[2:]])
    weight = None if weight is None else aten.repeat.default(weight, [n])
    bias = None if bias is None else aten.repeat.default(bias, [n])
    made = aten._native_batch_norm_legit.no_stats(rows, weight, bias, True, momentum, eps)[0]
    return aten.view.default(made, shape)


@rule("rms_norm")
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    eps = rushlight.finfo(input.dtype).eps if eps is None else eps
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    mean = aten.mean.dim(aten.pow.Tensor_Scalar(input, 2), dims, True)
    made = aten.mul.Tensor(input, aten.rsqrt.default(aten.add.Scalar(mean, eps)))
    return made if weight is None else aten.mul.Tensor(made, weight)


@rule("masked_fill.Scalar")
def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    number = aten.scalar_tensor.default(value, dtype=self.dtype, layout=rushlight.strided, device=self.device)
    return aten.where.self(mask, number, self)


@rule("masked_fill.Tensor")
def masked_fill_tensor(self: Any, mask: Any, value: Any) -> Any:
    return aten.where.self(
        mask, aten._to_copy.default(value, dtype=self.dtype) if value.dtype != self.dtype else value, self
    )


@rule("fill.Tensor")
def fill_tensor(self: Any, value: Any) -> Any:
    return aten.copy.default(self, value)


@rule("fill.Scalar", "zero")
def fill(self: Any, value: Any = 0) -> Any:
    return aten.full_like.default(self, value, pin_memory=False, memory_format=rushlight.preserve_format)


@rule("zeros_like")
def zeros_like(self: Any, *, pin_memory: Any = False, memory_format: Any = None, **kind: Any) -> Any:
    form = rushlight.preserve_format if memory_format is None else memory_format
    return aten.full_like.default(self, 0, pin_memory=False, memory_format=form, **kind)


@rule("ones_like")
def ones_like(self: Any, *, pin_memory: Any = False, memory_format: Any = None, **kind: Any) -> Any:
    form = rushlight.preserve_format if memory_format is None else memory_format
    return aten.full_like.default(self, 1, pin_memory=False, memory_format=form, **kind)


def _full(size: Any, value: Any, kind: dict[str, Any], like: Any = None) -> Any:
    dtype = kind.get("dtype") or (rushlight.get_default_dtype() if like is None else like.dtype)
    device = kind.get("device") or (rushlight.get_default_device() if like is None else like.device)
    layout = kind.get("layout") or rushlight.strided
    return aten.full.default(list(size), value, dtype=dtype, layout=layout, device=device, pin_memory=False)


@rule("zeros")
def zeros(size: Any, **kind: Any) -> Any:
    return _full(size, 0, kind)


@rule("ones")
def ones(size: Any, **kind: Any) -> Any:
    return _full(size, 1, kind)


@rule("new_zeros")
def new_zeros(self: Any, size: Any, **kind: Any) -> Any:
    return _full(size, 0, kind, self)


@rule("new_ones")
def new_ones(self: Any, size: Any, **kind: Any) -> Any:
    return _full(size, 1, kind, self)


@rule("new_full")
def new_full(self: Any, size: Any, fill_value: Any, **kind: Any) -> Any:
    return _full(size, fill_value, kind, self)


@rule("arange")
def arange(end: Any, **kind: Any) -> Any:
    return _steps(0, end, kind)


@rule("arange.start")
def arange_start(start: Any, end: Any, **kind: Any) -> Any:
    return _steps(start, end, kind)


def _steps(start: Any, end: Any, kind: dict[str, Any]) -> Any:
    named = {"layout": rushlight.strided, "device": rushlight.get_default_device(), "pin_memory": False}
    named = {**({"dtype": kind["dtype"]} if kind.get("dtype") else {}), **named}
    named["device"] = kind.get("device") or named["device"]
    return aten.arange.start_step(start, end, **named)


@rule("stack")
def stack(tensors: Any, dim: int = 0) -> Any:
    dim = dim if dim >= 0 else dim + tensors[0].dim() + 1
    return aten.cat.default([aten.unsqueeze.default(t, dim) for t in tensors], dim)


@rule("rsub.Scalar")
def rsub_scalar(self: Any, other: Any, alpha: Any = 1) -> Any:
    return (
        aten.add.Tensor(aten.mul.Tensor(self, -alpha), other)
        if alpha != 1
        else aten.add.Tensor(aten.neg.default(self), other)
    )


@rule("square")
def square(self: Any) -> Any:
    return aten.pow.Tensor_Scalar(self, 2)


@rule("max.other")
def max_other(self: Any, other: Any) -> Any:
    return aten.maximum.default(self, other)


@rule("min.other")
def min_other(self: Any, other: Any) -> Any:
    return aten.minimum.default(self, other)


@rule("var")
def var(self: Any, unbiased: bool = True) -> Any:
    return aten.var.correction(self, correction=1 if unbiased else 0)


@rule("var.dim")
def var_dim(self: Any, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
    return aten.var.correction(self, dim, correction=1 if unbiased else 0, keepdim=keepdim)


@rule("std.correction")
def std(self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return aten.sqrt.default(aten.var.correction(self, dim, correction=correction, keepdim=keepdim))


@rule("std", "std.dim")
def std_dim(self: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    return std(self, dim, correction=1.0 if unbiased else 0.0, keepdim=keepdim)


@rule("mse_loss")
def mse_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    loss = aten.pow.Tensor_Scalar(aten.sub.Tensor(self, target), 2)
    return loss if reduction == 0 else aten.mean.default(loss) if reduction == 1 else aten.sum.dim_IntList(loss, [])


@rule("lift_fresh_copy")
def lift_fresh_copy(self: Any) -> Any:
    return aten.clone.default(self)


@rule("select_scatter")
def select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    dim %= self.dim()
    length = self.shape[dim]
    places = aten.view.default(
        _steps(0, length, {"device": self.device}), [-1 if d == dim else 1 for d in range(self.dim())]
    )
    if is_unknown(index):  # also from the end
        require_between(index + length, 0, math.inf)
        require_between(length - 1 - index, 0, math.inf)
        index = index % length
    mask = aten.eq.Scalar(places, index if index >= 0 else index + length)
    spread = aten.expand.default(aten.unsqueeze.default(src, dim), list(self.shape))
    return aten.where.self(mask, spread, self)


@rule("detach", "detach_")
def detach(self: Any) -> Any:
    return self


@rule("dropout")
def dropout(input: Any, p: float, train: bool) -> Any:
    return aten.native_dropout.default(input, p, True)[0] if train and p else input


@rule("one_hot")
def one_hot(self: Any, num_classes: int = -1) -> Any:
    if num_classes < 0:
        return NotImplemented
    classes = _steps(0, num_classes, {"device": self.device, "dtype": rushlight.int64})
    return aten._to_copy.default(aten.eq.Tensor(aten.unsqueeze.default(self, -1), classes), dtype=rushlight.int64)
