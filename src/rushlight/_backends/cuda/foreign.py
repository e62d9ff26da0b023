"""Machine code of other compilers on our devices: modules from cubins, launches with arguments of named types."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.driver.api import slots
from rushlight._backends.cuda.driver.attributes import FUNCTION
from rushlight._backends.cuda.kernels import double, single

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["ForeignKernels"]

_PLAIN_SHARED = 48 << 10  # bytes of shared memory that a kernel need not ask for


class ForeignKernels:
    """Kernels that another compiler made for the GPUs of a backend."""

    def __init__(self, backend: CudaBackend) -> None:
        self.backend = backend

    def load(self, name: str, image: bytes, shared: int, index: int) -> tuple[int, int, int, int, int]:
        """(module, function, registers, bytes of local memory, most threads of a block) of a kernel of a cubin.

        NotImplementedError on emulated GPUs, which run code of the host.
        """
        driver = self.backend.driver
        if driver.emulated:
            raise NotImplementedError(
                f"emulated GPUs run no machine code of real ones, so not the kernel '{name}' of the installed Triton: "
                "RUSHLIGHT_TRITON=own compiles Triton's language for them"
            )
        self.backend.devices.enter(index)
        facts = ("registers", "local_bytes", "max_threads_per_block")
        with self.backend.devices.unseen():
            module = driver.cuModuleLoadData(image)
            function = driver.cuModuleGetFunction(module, name)
            if shared > _PLAIN_SHARED:
                driver.cuFuncSetAttribute(function, FUNCTION["max_dynamic_shared_bytes"], shared)
            registers, local, threads = (driver.cuFuncGetAttribute(FUNCTION[fact], function) for fact in facts)
        return module, function, registers, local, threads

    def launch(
        self, function: int, grid: tuple[int, int, int], threads: int, shared: int, arguments: Sequence[tuple[str, Any]]
    ) -> None:
        """Run it on the current stream of the current device; arguments are (type, value) as `word` takes them."""
        if not all(grid):
            return
        index = self.backend.current_device()
        words = slots(*(word(type, value) for type, value in arguments))
        self.backend.launch(function, grid, (threads, 1, 1), shared, index, words, "a kernel of the installed Triton")


def word(type: str, value: Any) -> int:
    """The bits of an argument: an address ("*..."), an integer, or a float ("fp16", "bf16", "fp32", "fp64")."""
    if type == "fp64":
        return double(value)
    if type == "fp32":
        return single(value)
    if type == "bf16":
        return single(value) >> 16 & 0xFFFF
    if type == "fp16":
        return int.from_bytes(struct.pack("<e", value), "little")
    return int(value)
