"""`embedding`, with the rescaling of long rows that the operator leaves to its caller."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import record
from rushlight._interface.operators import SPACES

__all__ = ["embedding"]

_operator = SPACES["nn.functional"]["embedding"]


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` (rows, size) named by the integers `input` (*); gives (*, size).

    The row `padding_idx` gets no gradient. With `max_norm`, rows that are looked up and longer than that (in the norm
    `norm_type`) are first shortened in place. With `sparse` the gradient of `weight` is a sparse tensor of the rows
    that were looked up. An index out of range raises `IndexError`.

    Example: `F.embedding(torch.tensor([[1, 2], [4, 3]]), torch.randn(10, 3)).shape  # (2, 2, 3)`
    """
    try:
        return _looked_up(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    except IndexError as error:
        if "is out of bounds for dimension" not in str(error):
            raise
        raise IndexError(f"index out of range in self: {error}") from None


def _looked_up(
    input: Any,
    weight: Any,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    by_freq: bool,
    sparse: bool,
) -> Any:
    if max_norm is not None:
        _shorten(weight.detach(), input, max_norm, norm_type)
    if not sparse or not weight.requires_grad:
        return _operator(input, weight, padding_idx, None, norm_type, by_freq, False)
    made = _operator(input, weight.detach(), padding_idx, None, norm_type, by_freq, False)
    shape, places = tuple(weight.shape), input.detach()
    return record(
        "EmbeddingBackward0", [weight], made, lambda grad: (_rows(grad, places, shape, padding_idx, by_freq),)
    )


def _rows(grad: Any, places: Any, shape: tuple[int, ...], padding_idx: int | None, scale_grad_by_freq: bool) -> Any:
    """The gradient of the rows that were looked up, as a sparse tensor; a row that was named twice is in it twice."""
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    places, rows = places.reshape(-1).to(rushlight.int64), grad.reshape(places.numel(), shape[1])
    if padding_idx is not None:
        kept = (places != padding_idx % shape[0]).nonzero().reshape(-1)
        places, rows = places[kept], rows[kept]
    return rushlight.sparse_coo_tensor(places.unsqueeze(0), rows, shape)


def _shorten(weight: Any, indices: Any, max_norm: float, norm_type: float) -> None:
    if not indices.numel():
        return
    with rushlight.no_grad():
        places = indices.unique().to(rushlight.int64)
        rows = weight.index_select(0, places)
        lengths = rows.norm(norm_type, dim=1, keepdim=True)
        shortened = rows * (max_norm / (lengths + 1e-7))
        weight.index_copy_(0, places, rushlight.where(lengths > max_norm, shortened, rows))
