"""Files that a GPU reads and writes by itself (GPUDirect Storage, `libcufile`), as `torch.cuda.gds`: not here.

`torch.save`, `torch.load` and safetensors go through the memory of the host.
"""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight.cuda.access import gpu

__all__ = ["GdsFile", "gds_deregister_buffer", "gds_register_buffer"]


def _refuse(name: str) -> NoReturn:
    gpu(f"gds.{name}")
    raise RuntimeError(f"torch.cuda.gds.{name} is not supported: rushlight does not call libcufile")


def gds_register_buffer(s: Any) -> None:
    """RuntimeError: there is no libcufile to register the memory of a storage with."""
    _refuse("gds_register_buffer")


def gds_deregister_buffer(s: Any) -> None:
    """RuntimeError: no storage is registered."""
    _refuse("gds_deregister_buffer")


class GdsFile:
    """RuntimeError: a file that a GPU would read by itself."""

    def __init__(self, filename: str, flags: int) -> None:
        _refuse("GdsFile")
