"""A batch split among devices: on a machine without any, the module itself."""

from __future__ import annotations

from typing import Any

from rushlight.nn.modules.module import Module

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

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What `module` gives."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, module_kwargs: Any = None
) -> Any:
    """`module(*inputs)` on several accelerators: RuntimeError, since there are none (PyTorch refuses here too, unlike `DataParallel`)."""
    raise RuntimeError("device type could not be determined: data_parallel needs accelerators, and rushlight has the CPU alone; call the module itself")
