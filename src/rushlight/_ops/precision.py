"""The dtype rules of automatic casting, by operator: the lists of `torch.autocast`, one for the CPU and one for GPUs.

A name is a row of the table or a composite (with its space before it for `linalg` and `fft`).  Everything else keeps
its dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from rushlight._ops.linalg.einsum import parse_equation

__all__ = [
    "GPU_POLICIES",
    "KEEP",
    "LOWER",
    "POLICIES",
    "SINGLE",
    "SINGLE_DEFAULT",
    "UNSAFE",
    "WIDEST",
    "Casting",
    "casting_of",
    "choose",
]

LOWER, SINGLE, WIDEST, KEEP = "lower", "single", "widest", "keep"
SINGLE_DEFAULT = "single unless a dtype is given"
UNSAFE = "unsafe"

# Much arithmetic for each element read, and a wide accumulator inside: fast in 16 bits, and accurate enough.
_LOWER = """
    _addmm_activation addbmm addmm affine_grid affine_grid_generator baddbmm bmm conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d linalg_vecdot linear matmul mm prelu scaled_dot_product_attention
"""

# Losses, and functions that lose too much in 16 bits or have no 16-bit form: computed in float32.
_SINGLE = """
    adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits cdist cholesky cholesky_inverse
    cholesky_solve cosine_embedding_loss cross_entropy ctc_loss fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft
    fft_ifft2 fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d fractional_max_pool3d
    geqrf grid_sample grid_sampler grid_sampler_2d grid_sampler_3d hinge_embedding_loss huber_loss inverse kl_div l1_loss linalg_cholesky
    linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex
    linalg_lstsq linalg_matrix_rank linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve lu_solve
    margin_ranking_loss max_pool3d_values max_unpool2d max_unpool3d mse_loss multi_margin_loss multilabel_margin_loss nanquantile nll_loss orgqr ormqr
    pinverse poisson_nll_loss polar prod qr quantile smooth_l1_loss soft_margin_loss stft svd trace triangular_solve triplet_margin_loss
    view_as_complex
"""

# Functions that join several tensors use the widest of their dtypes.
_WIDEST = "cat index_copy stack"

# Composites of products here that are one operator in PyTorch: nothing is cast, inside neither.
_KEEP = "linalg_matrix_exp matrix_exp"


def _policies(lists: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {name: policy for names, policy in lists for name in names.split()}


POLICIES = _policies(((_LOWER, LOWER), (_SINGLE, SINGLE), (_WIDEST, WIDEST), (_KEEP, KEEP)))

# ***** GPUs: float16 has a range of 6e-8 to 65504, so sums, powers, exponentials and norms are computed in float32 *****

_GPU_LOWER = """
    _addmm_activation addbmm addmm addmv addr affine_grid affine_grid_generator baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d conv_transpose3d einsum einsum_core gru_cell linalg_multi_dot linalg_vecdot linear lstm_cell matmul mm
    mv prelu rnn_relu_cell rnn_tanh_cell scaled_dot_product_attention
"""

_GPU_SINGLE = """
    acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity cross_entropy dist erfinv exp expm1
    frobenius_norm gaussian_nll_loss group_norm hinge_embedding_loss huber_loss kl_div l1_loss layer_norm linalg_norm log log10 log1p log2
    logsumexp margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss native_layer_norm nll_loss norm normalize nuclear_norm
    pairwise_distance pdist poisson_nll_loss pow reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss softmin softplus
    tan triplet_margin_loss upsample
"""

_GPU_SINGLE_DEFAULT = "cumprod cumsum linalg_matrix_norm linalg_vector_norm log_softmax prod softmax sum"

_GPU_WIDEST = "addcdiv addcmul atan2 bilinear cross dot grid_sample grid_sampler index_put inner scatter_add tensordot tensordot_core vdot"

GPU_POLICIES = _policies(
    (
        (_GPU_LOWER, LOWER), (_GPU_SINGLE, SINGLE), (_GPU_SINGLE_DEFAULT, SINGLE_DEFAULT), (_GPU_WIDEST, WIDEST), (_KEEP, KEEP),
        ("binary_cross_entropy", UNSAFE),
    )
)  # fmt: skip


class Casting(NamedTuple):
    """The policies of one function: on GPUs, and anywhere else."""

    usual: str | None
    gpu: str | None

    def on(self, place: str | None) -> str | None:
        """The policy for this type of device."""
        return None if place is None else self.gpu if place == "cuda" else self.usual


def casting_of(name: str) -> Casting:
    """The policies of a function by its name."""
    return Casting(POLICIES.get(name), GPU_POLICIES.get(name))


# ***** where it depends on the call *****


_Choices = Mapping[str, Callable[[Sequence[Any], Sequence[Any]], str | None]]


def _pad(template: Sequence[Any], shapes: Sequence[Any]) -> str | None:
    dims, mode = len(template[1]) // 2, template[2]
    return SINGLE if mode == "replicate" or (mode == "reflect" and dims < 3) else None


def _tensordot(template: Sequence[Any], shapes: Sequence[Any]) -> str | None:
    """A product of matrices, unless the result is one number: that is a dot product."""
    left, right = shapes
    _, _, dims_left, dims_right = template
    summed = prod(left[d] for d in dims_left) * prod(right[d] for d in dims_right)
    return None if dims_left and prod(left) * prod(right) == summed else LOWER


def _inner(template: Sequence[Any], shapes: Sequence[Any]) -> str | None:
    left, right = shapes
    return _tensordot((None, None, (-1,), (-1,)), shapes) if left and right else None


def _einsum(template: Sequence[Any], shapes: Sequence[Any]) -> str | None:
    """Two operands are a product of matrices if something is summed over, else they are multiplied element by element."""
    if len(shapes) != 2:
        return None
    (left, right), result = parse_equation(template[0], shapes)
    sizes = (dict(zip(labels, shape, strict=True)) for labels, shape in zip((left, right), shapes, strict=True))
    ours, theirs = sizes
    summed = [n for n in left if n in right and n not in result and ours[n] != 1 and theirs[n] != 1]
    return LOWER if summed else None


_CHOICES: _Choices = {"einsum_core": _einsum, "inner": _inner, "pad": _pad, "tensordot_core": _tensordot}


def _single_default(template: Sequence[Any], shapes: Sequence[Any]) -> str | None:
    """The dtype of these operators is their last argument."""
    return SINGLE if template[-1] is None else None


def _gpu_inner(template: Sequence[Any], shapes: Sequence[Any]) -> str | None:
    return WIDEST if all(shapes) else None


_GPU_CHOICES: _Choices = {"inner": _gpu_inner} | dict.fromkeys(_GPU_SINGLE_DEFAULT.split(), _single_default)


def choose(name: str, template: Sequence[Any], shapes: Sequence[Any], place: str) -> str | None:
    """The casting rule of this call on a type of device, given the shapes of its tensors and, by position, its other
    arguments.
    """
    choices, policies = (_GPU_CHOICES, GPU_POLICIES) if place == "cuda" else (_CHOICES, POLICIES)
    choice = choices.get(name)
    return policies.get(name) if choice is None else choice(template, shapes)
