"""Nested tensors: batches whose items differ in size (`torch.nested`)."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight import jagged as JAGGED
from rushlight.nested import operators
from rushlight.nested.operators import padded
from rushlight.nested.tensors import Jagged, Nested, StridedNested, from_items, make_jagged, offsets_of, with_values

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]

_LOADED = operators


def nested_tensor(
    tensor_list: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """A new leaf with copies of these items: tensors, or (nested) lists of numbers.

    `layout` is `torch.strided` (items of any sizes with one number of dims) or `torch.jagged` (items that differ in one
    dim).

    >>> import rushlight as torch
    >>> torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    nested_tensor([
      tensor([1., 1.]),
      tensor([1.])
    ])
    """
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError("Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor")
    if layout is JAGGED and not tensor_list:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    given = [t.detach() if isinstance(t, Tensor) else rushlight.tensor(t, dtype=dtype) for t in tensor_list]
    made = _joined([t.to(device=device, dtype=dtype) for t in given], layout, device)
    return made.detach().requires_grad_() if requires_grad else made.detach()


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """A nested tensor of these items (or of the slices of one tensor) that belongs to their graph.

    >>> import rushlight as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> torch.nested.as_nested_tensor([x, 2 * x], layout=torch.jagged).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """
    if isinstance(ts, Nested):
        if (
            (JAGGED if type(ts) is Jagged else None) is not (layout if layout is JAGGED else None)
            or type(ts) is StridedNested
            and layout is None
        ):
            raise RuntimeError("as_nested_tensor(): Converting between nested tensor layouts is not supported")
        return ts.to(device=device, dtype=dtype)
    if not isinstance(ts, (Tensor, list, tuple)):
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors ")
    if not isinstance(ts, Tensor) and not all(isinstance(t, Tensor) for t in ts):
        raise TypeError("as_nested_tensor(): Expected all elements of the list / tuple to be tensors")
    if isinstance(ts, Tensor) and ts.dim() < 2:
        raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    given = list(ts.unbind(0)) if isinstance(ts, Tensor) else list(ts)
    return _joined([t.to(device=device, dtype=dtype) for t in given], layout, device)


def _joined(given: list[Any], layout: Any, device: Any = None) -> Any:
    for k, t in enumerate(given):
        if t.dim() != given[0].dim():
            raise RuntimeError(
                "All Tensors given to nested_tensor must have the same dimension. "
                f"Found dimension {t.dim()} for Tensor at index {k} and dimension {given[0].dim()} for Tensor at index 0."
            )
        if t.dtype is not given[0].dtype:
            raise RuntimeError(
                f"All Tensors given to nested_tensor must have the same dtype, got {given[0].dtype} and {t.dtype}"
            )
    if layout is not JAGGED:
        return from_items(given, device=device)
    if not given[0].dim():
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    varying = [d for d in range(given[0].dim()) if len({t.shape[d] for t in given}) > 1]
    if len(varying) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout only represents "
            "shapes of the form (B, *_0, D_0, *_1, D_1, ..., *_N, D_N), with exactly one ragged dim."
        )
    ragged = varying[0] + 1 if varying else 1
    values = rushlight.cat(given, ragged - 1)
    made = make_jagged(values, offsets_of([t.shape[ragged - 1] for t in given], values.device), None, ragged)
    return with_values(made, values)


def nested_tensor_from_jagged(
    values: Any,
    offsets: Any = None,
    lengths: Any = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> Any:
    """A jagged tensor over `values`, whose items lie end to end along dim `jagged_dim - 1`.

    Item k begins at `offsets[k]`; it ends where the next begins, or is `lengths[k]` long. Without offsets the lengths
    alone place them.

    >>> import rushlight as torch
    >>> x = torch.nested.nested_tensor_from_jagged(torch.arange(5.0), lengths=torch.tensor([2, 3]))
    >>> x.unbind()
    (tensor([0., 1.]), tensor([2., 3., 4.]))
    """
    if offsets is None and lengths is None:
        raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
    if offsets is None:
        offsets = rushlight.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(rushlight.int64)
        lengths = None
    ragged = 1 if jagged_dim is None else jagged_dim
    return with_values(make_jagged(values, offsets, lengths, ragged), values)


def narrow(tensor: Any, dim: int, start: Any, length: Any, layout: Any = rushlight.strided) -> Any:
    """For each slice k of `tensor` along dim 0 its part from `start[k]`, `length[k]` long; jagged parts share the
    memory of `tensor`.

    >>> import rushlight as torch
    >>> torch.nested.narrow(torch.arange(6.0).reshape(2, 3), 1, 0, torch.tensor([1, 3]), layout=torch.jagged).unbind()
    (tensor([0.]), tensor([3., 4., 5.]))
    """
    if layout is not JAGGED:
        if not isinstance(start, int) or not isinstance(length, int):
            raise RuntimeError("start and length must be integers for the strided layout NT impl")
        return as_nested_tensor(list(rushlight.narrow(tensor, dim, start, length).unbind(0)))
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    if not isinstance(start, (int, Tensor)) or not isinstance(length, (int, Tensor)):
        raise RuntimeError("start and length must be Tensor or int")
    batch, width = tensor.shape[:2]
    indices: dict[str, Any] = {"dtype": rushlight.int64, "device": tensor.device}
    starts, lengths = (
        rushlight.full((batch,), given, **indices) if isinstance(given, int) else given.to(**indices)
        for given in (start, length)
    )
    begins = rushlight.arange(batch, **indices) * width + starts
    offsets = rushlight.cat([begins, (begins + lengths)[-1:] if batch else begins.new_zeros(1)])
    values = tensor.reshape(batch * width, *tensor.shape[2:])
    if bool((offsets.diff() == lengths).all()):  # end to end
        values, offsets, lengths = values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0], None
    return with_values(make_jagged(values, offsets, lengths, 1), values)


def masked_select(tensor: Any, mask: Any) -> Any:
    """For each slice of `tensor` along dim 0 the elements where `mask` is true, as a jagged tensor.

    >>> import rushlight as torch
    >>> torch.nested.masked_select(torch.arange(4).reshape(2, 2), torch.tensor([[True, False], [True, True]])).unbind()
    (tensor([0]), tensor([2, 3]))
    """
    if tensor.layout is not rushlight.strided or isinstance(tensor, Nested):
        raise RuntimeError(f"torch.nested.masked_select requires a strided tensor, given {tensor.layout}")
    if mask.layout is not rushlight.strided or isinstance(mask, Nested):
        raise RuntimeError(f"torch.nested.masked_select requires a strided mask, given: {mask.layout}")
    counts = (
        mask.expand(tensor.shape).flatten(1).sum(1)
        if tensor.dim() > 1
        else mask.expand(tensor.shape).to(rushlight.int64)
    )
    values = tensor.masked_select(mask)
    offsets = rushlight.cat([counts.new_zeros(1), counts.cumsum(0)])
    return with_values(make_jagged(values, offsets, None, 1), values)


def to_padded_tensor(input: Any, padding: float, output_size: Any = None, out: Any = None) -> Any:
    """A plain tensor with all items, filled up with `padding` to the largest sizes (or to `output_size`).

    >>> import rushlight as torch
    >>> torch.nested.to_padded_tensor(torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]), 0.0)
    tensor([[1., 1.],
            [1., 0.]])
    """
    return padded(input, padding, output_size)
