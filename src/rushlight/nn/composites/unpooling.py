"""Unpooling: putting pooled values back where their maxima were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor, channels_last, int64
from rushlight._interface.operators import alert, casts, only_tensors, refuse_dtype
from rushlight._interface.tensors import suggests_channels_last
from rushlight.nn.modules.argument_shapes import spread

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


def _unpool(n: int, input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> Any:
    only_tensors(f"max_unpool{n}d", input=input, indices=indices)
    refuse_dtype(f"max_unpool{n}d", "buic", input._spec.dtype)
    alert(f"max_unpooling{max(n, 2)}d_forward_out")
    kernel, pads = spread(kernel_size, n), spread(padding, n)
    steps = kernel if stride is None else spread(stride, n)
    if len(kernel) != n:
        raise RuntimeError(
            f"max_unpool{n}d: kernel_size must be one int, or {n} of them, but got {len(kernel)} elements"
        )
    steps, pads = steps[:n], pads[:n]
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"Expected a {n + 1}D or {n + 2}D input for max_unpool{n}d, got {input.dim()}D")
    if indices.dtype is not int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices._spec.dtype.scalar}")
    if input.shape != indices.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) "
            f"but got indices tensor with shape: {list(indices.shape)}"
        )
    sizes = _output_sizes(input.shape[-n:], kernel, steps, pads, output_size)
    total = 1
    for size in sizes:
        total *= size
    lead = tuple(input.shape[:-n])
    readable = indices._storage is not None  # not those of `meta`, nor a batch inside of `vmap`
    if readable and indices.numel():
        fits = indices.ge(0).logical_and(indices.lt(total))
        volume = "x".join(str(size) for size in ([*sizes, 1] if n == 1 else sizes))
        what = lambda: f"Found an invalid max index: {int(indices[~fits][0])} (output volumes are of size {volume})"
        rushlight._check_tensor_all_with(RuntimeError, fits, what)
    flat = input.new_zeros((*lead, total))
    filled = flat.scatter(-1, indices.flatten(-n), input.flatten(-n))
    found = filled.reshape(*lead, *sizes)
    last = n == 2 and suggests_channels_last(input.shape, input.stride())
    return found.contiguous(memory_format=channels_last) if last else found


def _output_sizes(pooled: Any, kernel: Any, steps: Any, pads: Any, wanted: Any) -> list[int]:
    usual = [(size - 1) * s + k - 2 * p for size, k, s, p in zip(pooled, kernel, steps, pads, strict=True)]
    if wanted is None:
        return usual
    sizes = list(wanted)[-len(usual) :]
    if len(sizes) != len(usual):
        raise ValueError(
            f"output_size should be a sequence containing {len(usual)} or more elements, but it has {len(sizes)}"
        )
    for size, default, step in zip(sizes, usual, steps, strict=True):
        if not default - step < size < default + step:
            raise ValueError(f"invalid output_size {list(sizes)} (each must be within the stride of {usual})")
    return [int(size) for size in sizes]


@casts("single", None)
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Undo `max_pool1d` with `return_indices=True`: the maxima at their places, zeros elsewhere."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@casts("single", None)
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Undo `max_pool2d` with `return_indices=True`; `output_size` chooses among the sizes that pool to the input's."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@casts("single", None)
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Undo `max_pool3d` with `return_indices=True`."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
