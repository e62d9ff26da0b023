"""Collectives between the GPUs of one process, as `torch.cuda.nccl`: copies and sums in the order of the devices.

`torch.distributed` has those between processes, over NCCL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight as torch
from rushlight._interface.distributed import nccl_library
from rushlight.cuda.access import on_gpu

__all__ = ["all_gather", "all_reduce", "broadcast", "is_available", "reduce", "reduce_scatter", "version"]

SUM = 0
_REDUCTIONS = {0: torch.add, 1: torch.mul, 2: torch.maximum, 3: torch.minimum}


def is_available(tensors: Sequence[Any]) -> bool:
    """Whether the collectives here take some tensors: dense ones without gaps, each on a GPU of its own."""
    places = {x.device for x in tensors}
    return len(places) == len(tensors) and all(x.is_cuda and not x.is_sparse and x.is_contiguous() for x in tensors)


def version() -> tuple[int, int, int]:
    """The version of the NCCL that `torch.distributed` would load; RuntimeError where there is none."""
    try:
        number = nccl_library().version
    except ImportError as error:
        raise RuntimeError(str(error)) from None
    return number // 10000, number // 100 % 100, number % 100


def _check(tensors: Sequence[Any]) -> None:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError("Inputs should be a collection of tensors")
    if len({x.device for x in tensors}) != len(tensors) or not all(x.is_cuda for x in tensors):
        raise RuntimeError("NCCL's collectives take one tensor on each of several GPUs")


def _reduced(inputs: Sequence[Any], op: int, place: Any) -> Any:
    if op not in _REDUCTIONS:
        raise RuntimeError(f"there is no reduction {op}; 0: sum, 1: product, 2: maximum, 3: minimum")
    total = inputs[0].to(place)
    for x in inputs[1:]:
        total = _REDUCTIONS[op](total, x.to(place))
    return total


@on_gpu
def all_reduce(
    inputs: Sequence[Any], outputs: Any = None, op: int = SUM, streams: Any = None, comms: Any = None
) -> None:
    """Write the sum of all inputs to each output, by default to the inputs."""
    _check(inputs)
    total = _reduced(inputs, op, inputs[0].device)
    for out in inputs if outputs is None else outputs:
        out.copy_(total)


@on_gpu
def reduce(
    inputs: Sequence[Any], output: Any = None, root: int = 0, op: int = SUM, streams: Any = None, comms: Any = None, *, outputs: Any = None
) -> None:  # fmt: skip
    """Write the sum of all inputs to `output`, by default to the input of `root`."""
    _check(inputs)
    target = outputs[root] if outputs is not None else inputs[root] if output is None else output
    target.copy_(_reduced(inputs, op, target.device))


@on_gpu
def broadcast(inputs: Sequence[Any], root: int = 0, streams: Any = None, comms: Any = None) -> None:
    """Write the input of `root` to all."""
    _check(inputs)
    for k, x in enumerate(inputs):
        if k != root:
            x.copy_(inputs[root])


@on_gpu
def all_gather(inputs: Sequence[Any], outputs: Sequence[Any], streams: Any = None, comms: Any = None) -> None:
    """Write all inputs, one behind the other, to each output."""
    _check(inputs)
    for out in outputs:
        torch.cat([x.flatten().to(out.device) for x in inputs], out=out.view(-1))


@on_gpu
def reduce_scatter(
    inputs: Sequence[Any], outputs: Sequence[Any], op: int = SUM, streams: Any = None, comms: Any = None
) -> None:
    """Write the pieces of the sum of all inputs to the outputs, one each."""
    _check(inputs)
    pieces = _reduced(inputs, op, inputs[0].device).flatten().chunk(len(outputs))
    for out, piece in zip(outputs, pieces, strict=True):
        out.copy_(piece.view(out.shape))
