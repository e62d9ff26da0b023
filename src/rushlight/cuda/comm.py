"""Copies between GPUs, as `torch.cuda.comm`; gradients flow through those of `torch.nn.parallel` that use them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import rushlight as torch
from rushlight.cuda.access import device_of, gpus, index_of, on_gpu

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _devices(devices: Any) -> list[Any]:
    return [device_of(d) for d in (range(gpus().device_count()) if devices is None else devices)]


@on_gpu
def broadcast(tensor: Any, devices: Any = None, *, out: Any = None) -> tuple[Any, ...]:
    """A copy of a tensor on each device, or in each tensor of `out`; the tensor itself where it is already."""
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )
    if out is None:
        return tuple(tensor.to(d, non_blocking=True) for d in _devices(devices))
    for target in out:
        target.copy_(tensor, non_blocking=True)
    return tuple(out)


@on_gpu
def broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[Any], buffer_size: int = 10485760) -> tuple[Any, ...]:
    """Copies of tensors on each device: a tuple a device."""
    return tuple(tuple(x.to(d, non_blocking=True) for x in tensors) for d in _devices(devices))


@on_gpu
def reduce_add(inputs: Sequence[Any], destination: Any = None) -> Any:
    """The sum of tensors of one shape on several devices, on `destination`, by default the current one."""
    place = device_of(index_of(destination))
    if not inputs:
        raise RuntimeError("reduce_add expects at least one tensor to reduce")
    for x in inputs:
        if not x.is_cuda:
            raise AssertionError("reduce_add expects all inputs to be on GPUs")
        if x.shape != inputs[0].shape:
            raise ValueError(f"got tensors of shapes {tuple(x.shape)} and {tuple(inputs[0].shape)}, expected the same")
    total = inputs[0].to(place)
    for x in inputs[1:]:
        total = total + x.to(place, non_blocking=True)
    return total


@on_gpu
def reduce_add_coalesced(
    inputs: Sequence[Sequence[Any]], destination: Any = None, buffer_size: int = 10485760
) -> tuple[Any, ...]:
    """`reduce_add` of the first tensors of all lists, of the second ones, ..."""
    return tuple(reduce_add(column, destination) for column in zip(*inputs, strict=True))


@on_gpu
def scatter(
    tensor: Any, devices: Any = None, chunk_sizes: Any = None, dim: int = 0, streams: Any = None, *, out: Any = None
) -> tuple[Any, ...]:  # fmt: skip
    """The pieces of a tensor along a dim, each on a device or in a tensor of `out`; `streams` copy, one a piece."""
    if out is not None:
        if devices is not None or chunk_sizes is not None:
            raise RuntimeError("'devices' and 'chunk_sizes' must not be specified when 'out' is specified")
        pieces = tensor.split([o.shape[dim] for o in out], dim)
        for target, piece in zip(out, pieces, strict=True):
            target.copy_(piece, non_blocking=True)
        return tuple(out)
    places = _devices(devices)
    pieces = tensor.chunk(len(places), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    made = []
    for k, (piece, place) in enumerate(zip(pieces, places, strict=False)):
        with torch.cuda.stream(streams[k] if streams is not None else None):
            made.append(piece.contiguous().to(place, non_blocking=True))
    return tuple(made)


@on_gpu
def gather(tensors: Sequence[Any], dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    """Tensors of several devices one behind the other, on `destination` ("cpu" or a GPU), or in `out`."""
    if out is not None:
        if destination is not None:
            raise RuntimeError(
                f"'destination' must not be specified when 'out' is specified, but got destination={destination}"
            )
        out.copy_(torch.cat([x.to(out.device) for x in tensors], dim))
        return out
    index = index_of(destination, others=True)
    if destination == -1:
        warnings.warn("-1 for the CPU is deprecated: give torch.device('cpu')", FutureWarning, stacklevel=2)
    place = torch.device("cpu") if index < 0 else device_of(index)
    return torch.cat([x.to(place) for x in tensors], dim)
