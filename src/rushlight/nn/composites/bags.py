"""Sums, means and maxima over bags of embedding vectors."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import function_of

__all__ = ["embedding_bag"]


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Look bags of indices up in `weight` and reduce each bag to one vector, by "sum", "mean" or "max".

    `input` is (bags, indices), or a vector of indices with `offsets`, where each bag begins (and, with
    `include_last_offset`, where the last one ends). Entries equal to `padding_idx` do not count; an empty bag gives
    zeros.  `per_sample_weights` scale the vectors, for "sum" only. Raises `ValueError` for arguments that do not go
    together.

    Example: `F.embedding_bag(torch.tensor([1, 2, 4]), torch.randn(5, 3), torch.tensor([0, 2])).shape  # (2, 3)`
    """
    if weight.dtype is rushlight.int64 and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        input, weight = weight, input
    _check(input, weight, offsets, mode, scale_grad_by_freq, sparse, per_sample_weights)
    if padding_idx is not None and not -weight.size(0) <= padding_idx < weight.size(0):
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, -{weight.size(0)} through {weight.size(0) - 1}, but got {padding_idx}"
        )
    if not (scale_grad_by_freq or sparse or max_norm is not None):
        with _named_index(input, weight):
            found = _in_one_pass(input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx)
        if found is not None:
            return found
    indices = input.reshape(-1)
    with _named_index(input, weight):
        vectors = rushlight.nn.functional.embedding(
            indices, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        )
    if padding_idx is None:  # the same bags, of the vectors that were looked up
        places = rushlight.arange(input.numel(), device=input.device).reshape(input.shape)
        found = _in_one_pass(places, vectors, offsets, mode, per_sample_weights, include_last_offset, None)
        if found is not None:
            return found
    if input.dim() == 2:
        starts = [i * input.size(1) for i in range(input.size(0))]
        include_last_offset = False
    else:
        starts = offsets.tolist()  # type: ignore[union-attr]  # checked above
        if include_last_offset and not starts:
            raise RuntimeError("include_last_offset: number of offset should be at least 1")
    total = input.numel()
    ends = starts[1:] if include_last_offset else [*starts[1:], total]
    starts, ends = starts[: len(ends)], ends[: len(starts)]
    _check_offsets(starts, ends, total)
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.size(0)
    kept = indices.tolist() if padding_idx is not None else None
    bags = [
        [j for j in range(start, end) if kept is None or kept[j] != padding_idx]
        for start, end in zip(starts, ends, strict=True)
    ]
    if per_sample_weights is not None:
        vectors = vectors * per_sample_weights.reshape(-1, 1)
    return _largest(vectors, bags) if mode == "max" else _summed(vectors, bags, mode == "mean")


@contextmanager
def _named_index(input: Any, weight: Any) -> Iterator[None]:
    """Says which entry of the input is out of range, where one is."""
    try:
        yield
    except IndexError:
        rows = weight.size(0)
        for place, value in enumerate(input.reshape(-1).tolist()):
            if not 0 <= value < rows:
                raise RuntimeError(
                    f"Index {place} of input takes value {value} which is not in the valid range [0, {rows})"
                ) from None
        raise


def _in_one_pass(
    input: Any, weight: Any, offsets: Any, mode: str, weights: Any, include_last_offset: bool, padding_idx: int | None
) -> Any:
    """All bags by one operator, each as long as the longest; None where that is much more than what is there, or
    nothing is.
    """
    padding = -1 if padding_idx is None else padding_idx + (weight.size(0) if padding_idx < 0 else 0)
    total, width = input.numel(), input.size(-1)
    if not total or not weight.numel():
        return None
    core = function_of("embedding_bag_core")
    if input.dim() == 2:
        return core(input, weight, None, None, weights, width, padding, mode)
    starts, ends = (offsets[:-1], offsets[1:]) if include_last_offset else (offsets, None)
    if not starts.numel():
        return None
    first, last, least, longest = _extent(offsets)
    if not include_last_offset:
        least, longest, last = min(least, total - last), max(longest, total - last), total
    # What does not begin at 0 and rise from there up to the input's length is left to those who say so.
    if longest <= 0 or least < 0 or first != 0 or last > total:
        return None
    step = max(1, 1 << longest.bit_length() >> 4)  # rounded up, so that not every batch has a plan of its own
    width = -(-longest // step) * step
    if width * starts.numel() > 2 * total + 4096:
        return None
    return core(input, weight, starts, ends, weights, width, padding, mode)


FEW = 256  # offsets that Python's own numbers compare sooner than a kernel is called


def _extent(offsets: Any) -> tuple[int, int, int, int]:
    """The first offset and the last, and the least and the greatest step between two (that of one alone is 0)."""
    if offsets.numel() <= FEW:
        marks = offsets.tolist()
        steps = [after - before for before, after in itertools.pairwise(marks)] or [0]
        return marks[0], marks[-1], min(steps), max(steps)
    least, longest = offsets.diff().aminmax()
    return int(offsets[0]), int(offsets[-1]), int(least), int(longest)


def _check(
    input: Any, weight: Any, offsets: Any, mode: str, by_freq: bool, sparse: bool, per_sample_weights: Any
) -> None:
    if per_sample_weights is not None and input.size() != per_sample_weights.size():
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, "
            f"then it must have the same shape as the input ({input.shape})"
        )
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. "
            f"However, found offsets of type {type(offsets)}"
        )
    if input.dim() == 1 and (offsets is None or offsets.dim() != 1):
        raise ValueError("offsets has to be a 1D Tensor" + (" but got None" if offsets is None else ""))
    if input.dim() not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    places = input.dtype if offsets is None else rushlight.promote_types(input.dtype, offsets.dtype)
    if places not in (rushlight.int32, rushlight.int64):
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got {input.to(places).type()} instead "
            "(while checking arguments for embedding_bag)"
        )
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights'; but type "
            f"{weight.type()} does not equal {per_sample_weights.type()} (while checking arguments for embedding_bag)"
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}')."
        )


def _check_offsets(starts: list[int], ends: list[int], total: int) -> None:
    if starts and starts[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
            f"However, got {starts[0]}"
        )
    if ends and max(starts + ends) > total:
        raise RuntimeError(f"offsets must not be greater than input's length {total}, but got {max(starts + ends)}")
    for start, end in zip(starts, ends, strict=True):
        if end < start:
            raise RuntimeError(f"offsets must not decrease, but {start} is followed by {end}")


def _summed(vectors: Any, bags: list[list[int]], mean: bool) -> Any:
    places = [j for bag in bags for j in bag]
    owners = [i for i, bag in enumerate(bags) for _ in bag]
    rows = vectors.index_select(0, vectors.new_tensor(places, dtype=rushlight.int64))
    zeros = vectors.new_zeros((len(bags), vectors.size(1)))
    total = zeros.index_add(0, vectors.new_tensor(owners, dtype=rushlight.int64), rows)
    if not mean:
        return total
    counts = vectors.new_tensor([max(len(bag), 1) for bag in bags])
    return total / counts.unsqueeze(1)


def _largest(vectors: Any, bags: list[list[int]]) -> Any:
    width = max((len(bag) for bag in bags), default=0)
    if not width:  # zeros with a history
        return _summed(vectors, bags, False)
    # Bags side by side, the short ones filled up with -inf; the gradient goes to the first maximum of each.
    places = vectors.new_tensor([bag + [0] * (width - len(bag)) for bag in bags], dtype=rushlight.int64)
    missing = vectors.new_tensor(
        [[False] * len(bag) + [True] * (width - len(bag)) for bag in bags], dtype=rushlight.bool
    )
    rows = vectors.index_select(0, places.reshape(-1)).reshape(len(bags), width, vectors.size(1))
    best = rows.masked_fill(missing.unsqueeze(-1), float("-inf")).max(1)[0]
    return best.masked_fill(missing.all(1).unsqueeze(-1), 0.0)
