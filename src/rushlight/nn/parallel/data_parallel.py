"""A batch split among devices: on a machine without any, the module itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.nn.modules.module import Module
from rushlight.nn.parallel.parallel_apply import parallel_apply
from rushlight.nn.parallel.replicate import replicate
from rushlight.nn.parallel.scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Splits batches among `device_ids`; without accelerators it calls `module`, whatever devices are named.

    Parameters are found under `module.`, as in the state dicts of programs that ran on several devices.

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

    def replicate(self, module: Module, device_ids: Sequence[Any]) -> list[Module]:
        """The function `replicate`."""
        return replicate(module, device_ids)

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
        """The result of `module`."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """`module(*inputs)` on several accelerators: RuntimeError, since there are none (PyTorch refuses here too, unlike
    `DataParallel`).
    """
    raise RuntimeError(
        "device type could not be determined: data_parallel needs accelerators, and rushlight has the CPU alone; call the module itself"
    )
