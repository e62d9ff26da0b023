"""`torch.nn.parallel._functions`: copies between devices that gradients flow back through."""

from __future__ import annotations

import warnings
from typing import Any

import rushlight as torch
from rushlight._utils import _get_device_index
from rushlight.autograd.function import Function
from rushlight.cuda import comm

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


def _no_cpu(name: str, inputs: Any) -> None:
    if any(each.is_cpu for each in inputs):
        raise AssertionError(f"{name} function not implemented for CPU tensors")


class Broadcast(Function):
    """`apply(devices, *tensors)`: copies of the tensors on each device, one device after the other."""

    @staticmethod
    def forward(ctx: Any, target_gpus: Any, *inputs: Any) -> Any:
        _no_cpu("Broadcast", inputs)
        ctx.target_gpus = [_get_device_index(each, True) for each in target_gpus]
        if not inputs:
            return ()
        ctx.num_inputs, ctx.input_device = len(inputs), inputs[0].get_device()
        copies = comm.broadcast_coalesced(inputs, ctx.target_gpus)
        fixed = [place for place, wanted in enumerate(ctx.needs_input_grad[1:]) if not wanted]
        ctx.mark_non_differentiable(*(each[place] for place in fixed for each in copies))
        return tuple(copy for each in copies for copy in each)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return (None, *ReduceAddCoalesced.apply(ctx.input_device, ctx.num_inputs, *grad_outputs))


class ReduceAddCoalesced(Function):
    """`apply(device, n, *tensors)`: of `n` tensors of each device, the sums over the devices."""

    @staticmethod
    def forward(ctx: Any, destination: Any, num_inputs: int, *grads: Any) -> Any:
        groups = [grads[start : start + num_inputs] for start in range(0, len(grads), num_inputs)]
        ctx.target_gpus = [group[0].get_device() for group in groups]
        return comm.reduce_add_coalesced(groups, destination)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return (None, None, *Broadcast.apply(ctx.target_gpus, *grad_outputs))


class Gather(Function):
    """`apply(device, dim, *tensors)`: the tensors joined along `dim`; scalars become a vector, with a warning."""

    @staticmethod
    def forward(ctx: Any, target_device: Any, dim: int, *inputs: Any) -> Any:
        _no_cpu("Gather", inputs)
        ctx.dim, ctx.input_gpus = dim, tuple(each.get_device() for each in inputs)
        ctx.scalars = dim == 0 and all(each.dim() == 0 for each in inputs)
        if ctx.scalars:
            warnings.warn(
                "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze "
                "and return a vector.",
                stacklevel=2,
            )
            inputs = tuple(each.view(1) for each in inputs)
        ctx.input_sizes = tuple(each.size(dim) for each in inputs)
        return comm.gather(inputs, dim, target_device)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        pieces = Scatter.apply(ctx.input_gpus, ctx.input_sizes, ctx.dim, grad_output)
        return (None, None, *(piece[0] if ctx.scalars else piece for piece in pieces))


class Scatter(Function):
    """`apply(devices, sizes, dim, tensor)`: the pieces of a tensor along `dim`, each on a device."""

    @staticmethod
    def forward(ctx: Any, target_gpus: Any, chunk_sizes: Any, dim: int, input: Any) -> Any:
        devices = [_get_device_index(each, True) for each in target_gpus]
        ctx.dim, ctx.input_device = dim, input.device
        streams = None
        if input.is_cpu and torch.cuda.is_available():  # copies from the CPU run beside the computation
            streams = [_get_stream(torch.device("cuda", each)) for each in devices]
        pieces = comm.scatter(input, devices, chunk_sizes, dim, streams)
        for piece, device, stream in zip(pieces, devices, streams or (), strict=False):
            current = torch.cuda.current_stream(device)
            current.wait_stream(stream)
            piece.record_stream(current)
        return pieces

    @staticmethod
    def backward(ctx: Any, *grad_output: Any) -> Any:
        return None, None, None, Gather.apply(ctx.input_device, ctx.dim, *grad_output)


_streams: dict[int, Any] = {}


def _get_stream(device: Any) -> Any:
    """The stream of a GPU that copies from the CPU run on; None for the CPU."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    if device.index not in _streams:
        _streams[device.index] = torch.cuda.Stream(device)
    return _streams[device.index]
