"""Copies between GPUs, as `torch.cuda.comm`; gradients flow through those of `torch.nn.parallel` that use them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import rushlight as torch
from rushlight._interface.tensors import wrap_dim
from rushlight.cuda.access import device_of, gpus, index_of, on_gpu

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _devices(devices: Any) -> list[Any]:
    return [device_of(d) for d in (range(gpus().device_count()) if devices is None else devices)]


def _check_on_gpu(what: str, tensors: Sequence[Any]) -> None:
    for k, x in enumerate(tensors):
        if not x.is_cuda:
            place = x.device
            raise RuntimeError(
                f"Expected all {what} tensors to be CUDA tensors, but {what} tensor at index {k} has device '{place}'"
            )


@on_gpu
def broadcast(tensor: Any, devices: Any = None, *, out: Any = None) -> tuple[Any, ...]:
    """A copy of a tensor on each device, or in each tensor of `out`; the tensor itself where it is already."""
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )
    if out is None:
        return tuple(tensor.to(d, non_blocking=True) for d in _devices(devices))
    _check_on_gpu("output", out)
    for k, target in enumerate(out):
        if target.shape != tensor.shape:
            raise RuntimeError(
                f"Expected all output tensors to have same shape as the source tensor {list(tensor.shape)}, but output tensor at index {k} has "
                f"shape {list(target.shape)}"
            )
    for target in out:
        target.copy_(tensor, non_blocking=True)
    return tuple(out)


@on_gpu
def broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[Any], buffer_size: int = 10485760) -> tuple[Any, ...]:
    """Copies of tensors on each device: a tuple a device."""
    return tuple(tuple(x.to(d, non_blocking=True) for x in tensors) for d in _devices(devices))


@on_gpu
def reduce_add(inputs: Sequence[Any], destination: Any = None) -> Any:
    """The sum of tensors of one shape on several devices, on `destination`, by default the current one, where one of
    them must be.
    """
    place = device_of(index_of(destination))
    if not inputs:
        raise RuntimeError("reduce_add expects at least one tensor to reduce")
    root = None
    for k, x in enumerate(inputs):
        if not x.is_cuda:
            raise AssertionError("reduce_add expects all inputs to be on GPUs")
        if x.device == place:
            root = k
        if x.shape != inputs[0].shape:
            got, expected = ("x".join(map(str, y.shape)) for y in (x, inputs[0]))
            raise ValueError(f"input {k} has invalid size: got {got}, but expected {expected}")
    if root is None:
        raise RuntimeError("reduce_add expects destination to be on the same GPU with one of the tensors")
    total = inputs[root]
    for k, x in enumerate(inputs):
        if k != root:
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
    """The pieces of a tensor along a dim, each on a device or in a tensor of `out`; `streams` copy, one a piece.

    A piece whose device is that of the tensor is a view.
    """
    if out is not None:
        for name, given in (("devices", devices), ("chunk_sizes", chunk_sizes)):
            if given is not None:
                raise RuntimeError(f"'{name}' must not be specified when 'out' is specified, but got {name}={given}")
        return _scatter_into(tensor, out, dim)
    places = _devices(devices)
    if not places:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is not None and len(chunk_sizes) != len(places):
        raise RuntimeError(
            f"Expected devices and chunk_sizes to be of same length, but got len(devices) = {len(places)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    pieces = tensor.chunk(len(places), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    made = []
    for k, (piece, place) in enumerate(zip(pieces, places, strict=False)):
        with torch.cuda.stream(streams[k] if streams is not None else None):
            made.append(piece.to(place, non_blocking=True))
    return tuple(made)


def _scatter_into(tensor: Any, out: Sequence[Any], dim: int) -> tuple[Any, ...]:
    if not out:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    _check_on_gpu("output", out)
    dim = wrap_dim(dim, tensor.dim())
    for k, target in enumerate(out):
        shape = list(tensor.shape)
        if target.dim() == tensor.dim():
            shape[dim] = target.shape[dim]
        if list(target.shape) != shape:
            raise RuntimeError(
                f"Output tensor at index {k} has incorrect shape: {list(target.shape)}, but expected {shape} (any size along scatter dim {dim})"
            )
    total = sum(target.shape[dim] for target in out)
    if total != tensor.shape[dim]:
        raise RuntimeError(
            f"Total size for output tensors along scatter dim {dim} does not match the input's: {total} and {tensor.shape[dim]}"
        )
    for target, piece in zip(out, tensor.split([o.shape[dim] for o in out], dim), strict=True):
        target.copy_(piece, non_blocking=True)
    return tuple(out)


@on_gpu
def gather(tensors: Sequence[Any], dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    """Tensors of several devices one behind the other, on `destination` ("cpu" or a GPU), or in `out`."""
    if out is not None and destination is not None:
        raise RuntimeError(
            f"'destination' must not be specified when 'out' is specified, but got destination={destination}"
        )
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    _check_on_gpu("input", tensors)
    _check_gathered(tensors, dim)
    if out is not None:
        out.copy_(torch.cat([x.to(out.device) for x in tensors], dim))
        return out
    index = index_of(destination, others=True)
    if destination == -1:
        warnings.warn("-1 for the CPU is deprecated: give torch.device('cpu')", FutureWarning, stacklevel=2)
    place = torch.device("cpu") if index < 0 else device_of(index)
    return torch.cat([x.to(place) for x in tensors], dim)


def _check_gathered(tensors: Sequence[Any], dim: int) -> None:
    first = tensors[0]
    dim = wrap_dim(dim, first.dim())
    for k, x in enumerate(tensors):
        if x.dim() != first.dim():
            raise RuntimeError(
                f"Expected all input tensors to have the same number of dimensions, but tensor at index {k} has {x.dim()} dimensions "
                f"(expected {first.dim()})"
            )
        expected = [x.shape[d] if d == dim else n for d, n in enumerate(first.shape)]
        if list(x.shape) != expected:
            raise RuntimeError(
                f"Input tensor at index {k} has invalid shape {list(x.shape)}, but expected {expected} (any size along gather dim {dim})"
            )
