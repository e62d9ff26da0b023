"""Functions of neural networks as the package itself has them (`torch.batch_norm`): positional arguments, reductions as
numbers.

Each is a function of `nn.functional`, or a layer's run, in another order of arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.devices import backend_of
from rushlight._interface.operators import asking, casts
from rushlight.nn import functional as F
from rushlight.nn.composites.recurrence import CELLS, run_layers

__all__ = [
    "_weight_norm", "batch_norm", "batch_norm_backward_elemt", "batch_norm_backward_reduce", "batch_norm_elemt", "batch_norm_gather_stats",
    "batch_norm_gather_stats_with_counts", "batch_norm_stats", "batch_norm_update_stats", "binary_cross_entropy_with_logits",
    "convolution", "cosine_embedding_loss", "ctc_loss",
    "embedding", "embedding_bag", "embedding_renorm_", "frobenius_norm", "gru", "gru_cell", "hinge_embedding_loss", "instance_norm", "kaiser_window",
    "kl_div", "lstm", "lstm_cell", "margin_ranking_loss", "norm_except_dim", "nuclear_norm", "poisson_nll_loss", "rnn_relu", "rnn_relu_cell",
    "rnn_tanh", "rnn_tanh_cell", "triplet_margin_loss",
]  # fmt: skip

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def _word(reduction: int) -> str:
    if reduction not in _REDUCTIONS:
        raise RuntimeError(f"{reduction} is not a reduction: 0 is none, 1 the mean, 2 the sum")
    return _REDUCTIONS[reduction]


# ***** losses *****


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 0
) -> Tensor:
    """See `nn.functional.binary_cross_entropy_with_logits`; `reduction` is 0 (none), 1 (mean) or 2 (sum)."""
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=_word(reduction), pos_weight=pos_weight)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """See `nn.functional.cosine_embedding_loss`; `reduction` is 0 (none), 1 (mean) or 2 (sum)."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_word(reduction))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """See `nn.functional.ctc_loss`; `reduction` is 0 (none), 1 (mean) or 2 (sum)."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _word(reduction), zero_infinity)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """See `nn.functional.hinge_embedding_loss`; `reduction` is 0 (none), 1 (mean) or 2 (sum)."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_word(reduction))


def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """See `nn.functional.kl_div`; `reduction` is 0 (none), 1 (mean over all elements) or 2 (sum)."""
    losses = F.kl_div(input, target, reduction="none", log_target=log_target)
    return losses if _word(reduction) == "none" else getattr(losses, _word(reduction))()


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """See `nn.functional.margin_ranking_loss`; `reduction` is 0 (none), 1 (mean) or 2 (sum)."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_word(reduction))


@asking
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """See `nn.functional.poisson_nll_loss`; `reduction` is 0 (none), 1 (mean) or 2 (sum)."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_word(reduction))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """See `nn.functional.triplet_margin_loss`; `reduction` is 0 (none), 1 (mean) or 2 (sum)."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_word(reduction))


# ***** normalisation *****


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """See `nn.functional.batch_norm`; there is no cuDNN to enable."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """See `nn.functional.instance_norm`; there is no cuDNN to enable."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@asking
def batch_norm_update_stats(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance of each channel (dim 1), which are mixed into the running ones in place, the variance
    unbiased.
    """
    if not input.numel():
        raise RuntimeError(f"input tensor must have at least one element, but got input_sizes = {list(input.shape)}")
    dims = [d for d in range(input.dim()) if d != 1]
    var, mean = rushlight.var_mean(input, dims, correction=0)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
    if running_var is not None:
        count = input.numel() // input.shape[1]
        running_var.mul_(1 - momentum).add_(var, alpha=momentum * count / (count - 1))
    return mean, var


def _on_gpus(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of distributed training, which PyTorch has for GPUs: NotImplementedError for tensors of the host."""

    @asking
    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        if backend_of(next(iter((*args, *kwargs.values()))).device).host_readable:
            raise NotImplementedError(
                f"Could not run 'aten::{function.__name__}' with arguments from the 'CPU' backend: it is a part of distributed GPU training."
            )
        return function(*args, **kwargs)

    return public


def _channels_of(x: Tensor) -> tuple[list[int], list[int]]:
    """The dims other than the channels' (dim 1), and the shape of one number for each channel."""
    return [0, *range(2, x.dim())], [1, -1, *[1] * (x.dim() - 2)]


def _widened(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (rushlight.float16, rushlight.bfloat16) else x


@_on_gpus
def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / sqrt(variance + eps) of each channel (dim 1), at least float32."""
    var, mean = rushlight.var_mean(_widened(input), _channels_of(input)[0], correction=0)
    return mean, rushlight.rsqrt(var + eps)


@_on_gpus
def batch_norm_elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """(input - mean) * invstd * weight + bias, for statistics of each channel; `eps` is in `invstd` already."""
    shape = _channels_of(input)[1]
    y = (_widened(input) - mean.view(shape)) * invstd.view(shape)
    y = y if weight is None else y * weight.view(shape)
    return (y if bias is None else y + bias.view(shape)).to(input.dtype)


@_on_gpus
def batch_norm_gather_stats_with_counts(
    input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float, eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and 1 / sqrt(variance + eps) over the batches of all processes, from those of each: `mean`, `invstd` [processes,
    channels], `counts` [processes].  The running statistics change in place, the variance unbiased.
    """
    counts = counts.to(mean.dtype).view(-1, 1)
    total = counts.sum()
    whole = (mean * counts).sum(0) / total
    each = invstd**-2 - eps
    var = ((each + (mean - whole) ** 2) * counts).sum(0) / total
    if running_mean is not None:
        running_mean.lerp_(whole.detach().to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((var * total / (total - 1)).detach().to(running_var.dtype), momentum)
    return whole, rushlight.rsqrt(var + eps)


@_on_gpus
def batch_norm_gather_stats(
    input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float, eps: float, count: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`batch_norm_gather_stats_with_counts` for processes of `count` values each."""
    counts = mean.new_full((mean.shape[0],), count)
    return batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts)


@_on_gpus
def batch_norm_backward_reduce(
    grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, input_g: bool, weight_g: bool, bias_g: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """(sum of grad_out, sum of grad_out * (input - mean), the weight's gradient, the bias's) of each channel; None for
    those that are not asked for.
    """
    dims, shape = _channels_of(input)
    grad = _widened(grad_out)
    sum_dy = grad.sum(dims)
    sum_dy_xmu = (grad * (_widened(input) - mean.view(shape))).sum(dims)
    kind = mean.dtype if weight is None else weight.dtype
    of_weight, of_bias = (sum_dy_xmu * invstd).to(kind) if weight_g else None, sum_dy.to(kind) if bias_g else None
    return sum_dy if input_g else None, sum_dy_xmu if input_g else None, of_weight, of_bias


@_on_gpus
def batch_norm_backward_elemt(
    grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, sum_dy: Tensor, sum_dy_xmu: Tensor, count: Tensor
) -> Tensor:  # fmt: skip
    """The input's gradient, from sums over all processes, whose numbers of values are `count` [processes]."""
    shape, total = _channels_of(input)[1], count.sum()
    along = (sum_dy / total).view(shape)
    across = (sum_dy_xmu / total * invstd**2).view(shape)
    scale = (invstd if weight is None else invstd * weight).view(shape)
    found = (_widened(grad_out) - along - (_widened(input) - mean.view(shape)) * across) * scale
    return found.to(input.dtype)


# ***** looking up *****


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Rows of `weight`; `padding_idx` -1 is none.  See `nn.functional.embedding`."""
    row = None if padding_idx < 0 else padding_idx
    return F.embedding(indices, weight, row, None, 2.0, scale_grad_by_freq, sparse)


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows of `input` at `indices` whose norm is larger down to `max_norm`, in place."""
    F.embedding(indices, input, None, max_norm, norm_type)
    return input


_BAG_MODES = {0: "sum", 1: "mean", 2: "max"}


@asking
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `nn.functional.embedding_bag`; `mode` is 0 (sum), 1 (mean) or 2 (max).

    Returns the bags, the bag of each index (empty for plain sums), the number of indices that count in each bag (0 for
    sums), and for "max" the index that each element came from.
    """
    if mode not in _BAG_MODES:
        raise RuntimeError(f"{mode} is not a mode: 0 is the sum, 1 the mean, 2 the maximum")
    out = F.embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq, mode=_BAG_MODES[mode], sparse=sparse, per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset, padding_idx=padding_idx,
    )  # fmt: skip
    starts = offsets.tolist()
    spans = list(zip(starts, starts[1:] if include_last_offset else [*starts[1:], indices.numel()], strict=False))
    held = indices.reshape(-1).tolist()
    bags = [[i for i in held[start:end] if i != padding_idx] for start, end in spans]
    plain = mode == 0 and padding_idx is None
    places = [] if plain else [bag for bag, (start, end) in enumerate(spans) for _ in range(end - start)]
    sizes = offsets.new_tensor([len(bag) if mode else 0 for bag in bags], dtype=rushlight.int64)
    largest = sizes
    if mode == 2:
        none = weight.new_zeros(weight.size(1), dtype=rushlight.int64)
        largest = rushlight.stack(
            [
                rushlight.tensor(bag, device=weight.device)[weight.detach()[bag].argmax(0)] if bag else none
                for bag in bags
            ]
        )
    return out, offsets.new_tensor(places, dtype=rushlight.int64), sizes, largest


# ***** convolution *****


@asking
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """`nn.functional.conv1d` to `conv3d`, or with `transposed` their transposes, by the number of dims of `weight`."""
    dims = weight.dim() - 2
    if transposed:
        made: Tensor = getattr(F, f"conv_transpose{dims}d")(
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )
        return made
    return getattr(F, f"conv{dims}d")(input, weight, bias, stride, padding, dilation, groups)


# ***** recurrent layers *****


def _grouped(params: Sequence[Tensor], has_biases: bool, projected: bool) -> list[list[Tensor | None]]:
    """The flat weights as [w_ih, w_hh, b_ih, b_hh, w_hr] for each layer and direction."""
    step = 2 + 2 * has_biases + projected
    found = []
    for start in range(0, len(params), step):
        part = list(params[start : start + step])
        biases = part[2:4] if has_biases else [None, None]
        found.append([*part[:2], *biases, part[-1] if projected else None])
    return found


def _recurrent(mode: str) -> Callable[..., Any]:
    @asking
    def run(input: Tensor, second: Any, third: Any, *rest: Any) -> Any:
        packed = isinstance(rest[0], (list, tuple))  # data, batch_sizes, hx, params, ...
        if packed:
            sizes, state, (params, has_biases, num_layers, dropout, train, bidirectional) = second.tolist(), third, rest
        else:
            state, params, (has_biases, num_layers, dropout, train, bidirectional, batch_first) = second, third, rest
            sequence = input.transpose(0, 1) if batch_first else input
            sizes = [sequence.size(1)] * sequence.size(0)
            input = sequence.reshape(-1, sequence.size(-1))
        parts = tuple(state) if mode == "LSTM" else (state,)
        directions = 2 if bidirectional else 1
        projected = len(params) == num_layers * directions * (3 + 2 * has_biases)
        out, last = run_layers(
            mode, input, sizes, parts, _grouped(params, has_biases, projected), directions, dropout, train
        )
        if not packed:
            out = out.reshape(len(sizes), sizes[0], -1)
            out = out.transpose(0, 1) if batch_first else out
        return (out, *last)

    run.__name__ = mode.lower()
    run.__doc__ = (
        f"The run of `nn.{mode.split('_')[0]}`: (input, state, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first), or\n    "
        "(data, batch_sizes, state, weights, has_biases, num_layers, dropout, train, bidirectional) for packed sequences.\n\n    "
        "Returns the outputs and the last state."
    )
    return run


def _cell(mode: str) -> Callable[..., Any]:
    @asking
    @casts(None, "lower")
    def step(
        input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Any:
        state = CELLS[mode](F.linear(input, w_ih, b_ih), tuple(hx) if mode == "LSTM" else (hx,), w_hh, b_hh, None)
        return state if mode == "LSTM" else state[0]

    step.__name__ = f"{mode.lower()}_cell"
    step.__doc__ = f"One step of `nn.{mode.split('_')[0]}Cell` with its weights: the next state."
    return step


lstm, gru, rnn_tanh, rnn_relu = (_recurrent(mode) for mode in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"))
lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell = (_cell(mode) for mode in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"))

# ***** norms *****


@asking
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The square root of the sum of squares over `dim`."""
    return rushlight.linalg.vector_norm(input, 2, dim, keepdim, out=out)


@casts(None, "single")
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The sum of the singular values of the matrices in two dims (a matrix's own by default)."""
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return rushlight.linalg.matrix_norm(input, "nuc", (-2, -1) if dim is None else tuple(dim), keepdim, out=out)


@asking
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dims but one, which keeps its place among dims of size 1; over all for `dim` -1."""
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return rushlight.linalg.vector_norm(v, pow, others, keepdim=True)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """`v` with the norms `g` in place of its own, for each index of `dim` (for all of it at once where that is -1)."""
    return v * (g / norm_except_dim(v, 2, dim))


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """The Kaiser window (zeroth-order modified Bessel function); the first `window_length` points of one longer window
    if periodic.
    """
    dtype = options.pop("dtype", None) or rushlight.get_default_dtype()
    if options.get("layout", rushlight.strided) is not rushlight.strided:
        raise RuntimeError(f"kaiser_window is not implemented for sparse types, got: {options['layout']!r}")
    if not dtype.is_floating_point:
        raise RuntimeError(f"kaiser_window expects floating point dtypes, got: {dtype!r}")
    if window_length < 0:
        raise RuntimeError(f"kaiser_window requires non-negative window_length, got window_length={window_length}")
    wide = rushlight.float32 if dtype in (rushlight.float16, rushlight.bfloat16) else dtype
    wants_grad = options.pop("requires_grad", False)
    made = rushlight.signal.windows.kaiser(window_length, beta=beta, sym=not periodic, dtype=wide, **options).to(dtype)
    return made.requires_grad_() if wants_grad else made
