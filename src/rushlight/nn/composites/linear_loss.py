"""Cross entropy of a linear layer's output, which may be computed a few rows at a time."""

from __future__ import annotations

import warnings
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import casts
from rushlight.autograd import Function
from rushlight.autograd.function import once_differentiable
from rushlight.nn import functional as F
from rushlight.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

__all__ = ["linear_cross_entropy"]

_HALF = (rushlight.float16, rushlight.bfloat16)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target)` for `input` (N, F) or (F) and `linear_weight`
    (C, F) or (C, *, F).

    `target` holds classes (N, *) or probabilities (N, C, *). With `options` (an `nn.LinearCrossEntropyOptions`) the
    batch is taken in chunks and gradients are computed on the way forward, so that the logits (N, C) never exist as a
    whole: for classes as targets, weights of two dims and no label smoothing; else a warning says that they are
    ignored.  RuntimeError for sizes that do not fit.

    >>> x, w, y = rushlight.ones(2, 3), rushlight.zeros(4, 3), rushlight.tensor([0, 3])
    >>> rushlight.nn.functional.linear_cross_entropy(x, w, y)
    tensor(1.3863)
    """
    _check(input, linear_weight, linear_bias)
    classes, *places = linear_weight.shape[:-1]
    if target.shape == (*input.shape[:-1], classes, *places) and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignore = -100 if ignore_index is None else ignore_index
    if options is not None:
        known = reduction in ("mean", "sum", "none")
        if known and label_smoothing == 0.0 and target.dtype is rushlight.int64 and not places:
            return _chunked(input, linear_weight, target, linear_bias, weight, reduction, ignore, options)
        warnings.warn(
            "linear_cross_entropy: `options` are ignored, because chunks need reduction 'mean', 'sum' or 'none', label_smoothing == 0, targets of "
            f"int64 and a weight of two dims; got reduction={reduction!r}, label_smoothing={label_smoothing}, target.dtype={target.dtype}, "
            f"linear_weight.shape={tuple(linear_weight.shape)}.",
            stacklevel=2,
        )
    flat = linear_weight.reshape(-1, linear_weight.shape[-1]) if places else linear_weight
    logits = F.linear(input, flat, linear_bias.reshape(-1) if places and linear_bias is not None else linear_bias)
    logits = logits.reshape(*input.shape[:-1], classes, *places)
    return F.cross_entropy(
        logits, target, weight=weight, ignore_index=ignore, reduction=reduction, label_smoothing=label_smoothing
    )


def _check(input: Any, linear_weight: Any, linear_bias: Any) -> None:
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != tuple(linear_weight.shape[:-1]):
        raise RuntimeError(
            f"expected linear_bias shape {tuple(linear_weight.shape[:-1])}, got {tuple(linear_bias.shape)}"
        )
    if linear_weight.dim() > 2 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {input.shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )


@casts("keep", "keep")
def _chunked(
    input: Any, linear_weight: Any, target: Any, bias: Any, weight: Any, reduction: str, ignore: int, options: Any
) -> Any:
    batched = input.dim() == 2
    rows, classes = (input, target) if batched else (input.unsqueeze(0), target.unsqueeze(0))
    if classes.shape != rows.shape[:1]:
        raise RuntimeError(f"expected target of shape {list(rows.shape[:1])}, got {list(classes.shape)}")
    if linear_weight.dtype is not input.dtype:
        raise RuntimeError(
            f"expected input and linear_weight to have the same dtype, but got: {input.dtype} != {linear_weight.dtype}"
        )
    found = LinearCrossEntropyOptions._adjust(
        options, rows.shape[0], rows.shape[1], linear_weight.shape[0], input.dtype, input.device
    )
    if found.acc_dtype is not input.dtype and not (found.acc_dtype is rushlight.float32 and input.dtype in _HALF):
        raise RuntimeError(
            f"linear_cross_entropy supports float32 acc_dtype with float16/bfloat16 inputs, but got {found.acc_dtype} acc_dtype and "
            f"{input.dtype} inputs."
        )
    call = _Losses if reduction == "none" else _Total
    loss = call.apply(rows, linear_weight, bias, classes, weight, reduction, ignore, found)
    return loss if batched or reduction != "none" else loss.squeeze(0)


class _Chunk:
    """A few rows of the batch: their losses, and the gradients of a weighted sum of these."""

    def __init__(self, rows: Any, matrix: Any, bias: Any, target: Any, weight: Any, ignore: int) -> None:
        self.rows, self.matrix, self.has_bias = rows, matrix, bias is not None
        counts = target != ignore
        self.classes = rushlight.where(counts, target, 0)
        if target.numel() and not 0 <= int(self.classes.min()) <= int(self.classes.max()) < matrix.shape[0]:
            raise IndexError(f"Target {int(self.classes.max())} is out of bounds: there are {matrix.shape[0]} classes.")
        self.shares = (
            counts.to(rows.dtype)
            if weight is None
            else rushlight.where(counts, weight.to(rows.dtype)[self.classes], 0.0)
        )
        self.logits = F.linear(rows, matrix, bias)
        self.norm = rushlight.logsumexp(self.logits, 1)

    def losses(self) -> Any:
        """-log p of each row's class times the weight of the class; 0 where it is ignored."""
        own = self.logits.gather(1, self.classes.unsqueeze(1)).squeeze(1)
        return rushlight.where(self.shares == 0, 0.0, (self.norm - own) * self.shares)

    def gradients(self, scale: Any) -> tuple[Any, Any, Any]:
        """Of the sum of losses times `scale` (one number or one a row): to rows, matrix, bias."""
        share = (self.shares * scale).unsqueeze(1)
        slope = (self.logits - self.norm.unsqueeze(1)).exp_().mul_(share)
        slope.scatter_add_(1, self.classes.unsqueeze(1), -share)
        return slope @ self.matrix, slope.t() @ self.rows, slope.sum(0) if self.has_bias else None


class _Sweep:
    """All chunks of a call, in the dtype of the sums."""

    def __init__(self, x: Any, matrix: Any, bias: Any, target: Any, weight: Any, ignore: int, options: Any) -> None:
        self.x, self.target, self.weight, self.ignore, self.size = x, target, weight, ignore, options.batch_chunk_size
        self.acc = options.acc_dtype
        self.matrix = matrix.to(self.acc)
        self.bias = None if bias is None else bias.to(self.acc)

    def __iter__(self) -> Any:
        for start in range(0, self.x.shape[0], self.size):
            part = slice(start, min(start + self.size, self.x.shape[0]))
            yield (
                part,
                _Chunk(self.x[part].to(self.acc), self.matrix, self.bias, self.target[part], self.weight, self.ignore),
            )

    def blank(self) -> list[Any]:
        """Where the gradients to rows, matrix and bias are added up."""
        to_bias = None if self.bias is None else rushlight.zeros_like(self.bias)
        return [self.x.new_empty(self.x.shape), rushlight.zeros_like(self.matrix), to_bias]


def _add(into: list[Any], part: slice, more: tuple[Any, Any, Any]) -> None:
    into[0][part] = more[0].to(into[0].dtype)
    into[1].add_(more[1])
    if more[2] is not None:
        into[2].add_(more[2])


def _finished(grads: list[Any], like: Any) -> list[Any]:
    return [None if g is None else g.to(like.dtype) for g in grads]


class _Total(Function):
    """The mean or the sum. Gradients are computed beside the loss, chunk by chunk, and wait for the backward."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, matrix: Any, bias: Any, target: Any, weight: Any, reduction: str, ignore: int, options: Any
    ) -> Any:
        """The loss; x (N, F), matrix (C, F), target (N)."""
        sweep = _Sweep(x, matrix, bias, target, weight, ignore, options)
        total, shares = x.new_zeros((), dtype=sweep.acc), x.new_zeros((), dtype=sweep.acc)
        wanted = any(ctx.needs_input_grad[:3])
        grads = sweep.blank() if wanted else None
        if reduction == "mean":
            counts = target != ignore
            shares = (
                counts.sum()
                if weight is None
                else rushlight.where(counts, weight[rushlight.where(counts, target, 0)], 0.0).sum()
            )
        divisor = shares.to(sweep.acc) if reduction == "mean" else x.new_ones((), dtype=sweep.acc)
        for part, chunk in sweep:
            total = total + chunk.losses().sum()
            if grads is not None:
                _add(grads, part, chunk.gradients(1.0 / divisor))
        ctx.grads = None if grads is None else _finished(grads, x)
        ctx.keep = options.allow_retain_graph
        return (total / divisor).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        """The waiting gradients, scaled in place unless they must stay."""
        if ctx.grads is None:
            raise RuntimeError(
                "linear_cross_entropy: the gradients of the chunked form were used up by an earlier backward; "
                "LinearCrossEntropyOptions(allow_retain_graph=True) keeps them"
            )
        grads = ctx.grads
        if ctx.keep:
            scaled = [None if g is None else g * grad for g in grads]
        else:
            ctx.grads = None
            scaled = [None if g is None else g.mul_(grad) for g in grads]
        return (*scaled, None, None, None, None, None)


class _Losses(Function):
    """The loss of each row. The backward computes the chunks again."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, matrix: Any, bias: Any, target: Any, weight: Any, reduction: str, ignore: int, options: Any
    ) -> Any:
        """The losses (N)."""
        ctx.save_for_backward(x, matrix, bias, target, weight)
        ctx.rest = (ignore, options)
        found = x.new_empty(x.shape[:1])
        for part, chunk in _Sweep(x, matrix, bias, target, weight, ignore, options):
            found[part] = chunk.losses().to(x.dtype)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of the losses, weighted with `grad` (N)."""
        x = ctx.saved_tensors[0]
        sweep = _Sweep(*ctx.saved_tensors, *ctx.rest)
        grads = sweep.blank()
        for part, chunk in sweep:
            _add(grads, part, chunk.gradients(grad[part].to(sweep.acc)))
        return (*_finished(grads, x), None, None, None, None, None)
