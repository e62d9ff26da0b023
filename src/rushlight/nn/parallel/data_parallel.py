"""A batch split among devices by one process, a thread each: on a machine without any, the module itself."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import rushlight as torch
from rushlight._utils import _get_available_device_type, _get_device_index
from rushlight.nn.modules.module import Module
from rushlight.nn.parallel.parallel_apply import parallel_apply
from rushlight.nn.parallel.replicate import replicate
from rushlight.nn.parallel.scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]

_EVEN = 0.75  # of the greatest device the least may have, before a program is warned


def _warn_of_uneven(devices: Sequence[int]) -> None:
    """Warn where one device has much less memory, or fewer multiprocessors, than another."""
    known = [torch.cuda.get_device_properties(d) for d in devices]
    for what in ("total_memory", "multi_processor_count"):
        values = [getattr(properties, what) for properties in known]
        if min(values) < _EVEN * max(values):
            least, most = (devices[values.index(extreme(values))] for extreme in (min, max))
            warnings.warn(
                f"There is an imbalance between your GPUs: GPU {least} has less than 75% of the {what} of GPU {most}, which waits for it. Leave it "
                "out by the argument device_ids of DataParallel, or by CUDA_VISIBLE_DEVICES.",
                stacklevel=4,
            )


def _check_place(module: Module, place: Any) -> None:
    for x in (*module.parameters(), *module.buffers()):
        if x.device != place:
            raise RuntimeError(
                f"module must have its parameters and buffers on device {place} (device_ids[0]) but found one of them on device: {x.device}"
            )


class DataParallel(Module):
    """Splits batches among `device_ids`, by default all GPUs, and joins the results on `output_device`, by default the
    first; without accelerators it calls `module`, whatever devices are named.

    The module lies on the first device.  Each call copies it to the others, and gradients flow back to it.  Parameters are
    found under `module.`.

        >>> import rushlight as torch
        >>> model = torch.nn.DataParallel(torch.nn.Linear(3, 2))
        >>> model(torch.ones(4, 3)).shape, list(model.state_dict())
        (torch.Size([4, 2]), ['module.weight', 'module.bias'])
    """

    device_ids: list[int]

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.device_ids = []
        self.dim = dim
        kind = _get_available_device_type()
        if kind is None:
            return
        self.device_ids = _indices(device_ids)
        self.output_device = self.device_ids[0] if output_device is None else _get_device_index(output_device, True)
        self.src_device_obj = torch.device(kind, self.device_ids[0])
        _warn_of_uneven(self.device_ids)
        if len(self.device_ids) == 1:
            self.module.to(self.src_device_obj)

    def replicate(self, module: Module, device_ids: Sequence[Any]) -> list[Module]:
        """The function `replicate`."""
        return replicate(module, device_ids, not torch.is_grad_enabled())

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> tuple[Any, Any]:
        """The function `scatter_kwargs`, along the dim of the batch."""
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(self, replicas: Sequence[Module], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        """The function `parallel_apply`."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """The function `gather`, along the dim of the batch."""
        return gather(outputs, output_device, self.dim)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The results of `module` on the pieces of its inputs, joined; RuntimeError unless it is on the first device."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _check_place(self.module, self.src_device_obj)
        given, named = self.scatter(inputs, kwargs, self.device_ids)
        if not given and not named:
            given, named = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*given[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(given)])
        return self.gather(self.parallel_apply(replicas, given, named), self.output_device)


def _indices(device_ids: Any) -> list[int]:
    """The numbers of devices, by default of all."""
    given = range(torch.accelerator.device_count()) if device_ids is None else device_ids
    return [_get_device_index(d, True) for d in given]


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """`module(*inputs)` with the batch split among GPUs, as `DataParallel` does it; RuntimeError without accelerators
    (PyTorch refuses here too, unlike `DataParallel`).
    """
    kind = _get_available_device_type()
    if kind is None:
        raise RuntimeError(
            "device type could not be determined: data_parallel needs accelerators, and there is none here; call the module itself"
        )
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    devices = _indices(device_ids)
    place = devices[0] if output_device is None else output_device
    _check_place(module, torch.device(kind, devices[0]))
    given, named = scatter_kwargs(inputs, module_kwargs, devices, dim)
    if not given and not named:
        given, named = ((),), ({},)
    if len(devices) == 1:
        return module(*given[0], **named[0])
    used = devices[: len(given)]
    return gather(parallel_apply(replicate(module, used), given, named, used), place, dim)
