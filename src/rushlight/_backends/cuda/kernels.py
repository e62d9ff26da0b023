"""Block kernels as functions of a device: found in this process, found on disk, or compiled now.

On a real driver a kernel is PTX for the device's architecture; on the emulated one the object file of its twin for the
host's processor.  `RUSHLIGHT_CUDA_KERNELS=interpreted` has emulated devices run block kernels by the reference interpreter,
operation by operation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.driver.api import double, single, slots
from rushlight._backends.cuda.driver.attributes import FUNCTION
from rushlight._backends.cuda.driver.errors import fail
from rushlight._backends.cuda.tile_maps import TileMaps
from rushlight._base.knobs import Knob, one_of
from rushlight._base.lazy import numpy as np
from rushlight._base.lazy import require
from rushlight._codegen.blocks import BlockFault, BlockMemory, Kernel, Pointer, interpret, kernel_text, verify

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._types.device import Device

__all__ = ["DeviceKernel", "Kernels", "OrderedLaunch", "word_of"]


KERNELS = Knob(
    "cuda_kernels", env="RUSHLIGHT_CUDA_KERNELS", kind=one_of("compiled", "interpreted"), default="compiled",
    doc="How emulated GPUs run kernels: `compiled` for the host's processor, or `interpreted`, slowly, by the reference interpreter.",
)  # fmt: skip

_SHARED = 48 << 10  # bytes that a kernel gets without asking
Grid = tuple[int, int, int]


class DeviceKernel:
    """A kernel that a device can run."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def launch(self, stream: int, grid: Grid, words: Any) -> None:
        """Give a launch to a stream: `words` is an array of `c_int64`, one a parameter, which may change afterwards."""
        raise NotImplementedError

    def assembly(self) -> str:
        """The device's machine code, as text."""
        raise NotImplementedError


class OrderedLaunch:
    """A kernel whose launches go to the stream that is current (see `Backend.block_kernel`)."""

    checked = False

    def __init__(self, backend: CudaBackend, device: Device, made: DeviceKernel) -> None:
        self.backend, self.device, self.made = backend, device, made

    def launch(self, grid: Sequence[int], arguments: Sequence[Any], ranges: Sequence[tuple[int, int]] = ()) -> None:
        kernel = self.made.kernel
        if len(arguments) != len(kernel.params):
            raise TypeError(f"{kernel.name} takes {len(kernel.params)} arguments, got {len(arguments)}")
        for i, n in kernel.divisible.items():
            if arguments[i] % n:
                raise ValueError(f"argument {i} of {kernel.name} is {arguments[i]}, which {n} does not divide")
        x, y, z = (*grid, 1, 1)[:3]
        if x * y * z:
            pairs = zip(arguments, kernel.params, strict=True)
            words = slots(*(word_of(value, param.type.element) for value, param in pairs))
            stream, starts = self.backend.enter(self.device), self.backend.launch
            starts.note(kernel.name)
            self.made.launch(stream, (x, y, z), words)
            if starts.blocking:
                self.backend.driver.cuStreamSynchronize(stream)

    def report(self) -> str:
        """As `CudaExecutable.assembly` has it."""
        return self.backend.kernels(self.device).report(self.made.kernel)

    def texts(self) -> dict[str, str]:
        """PTX, or the block IR where it was compiled further."""
        return {"ptx": self.made.assembly()}


class CompiledKernel(DeviceKernel):
    """A kernel in a module of the driver."""

    __slots__ = ("driver", "function", "maps", "shared", "text", "threads")

    def __init__(self, kernel: Kernel, driver: Any, image: Any) -> None:
        super().__init__(kernel)
        self.driver, self.threads, self.shared, self.text = driver, (image.threads, 1, 1), image.shared, image.data
        self.maps = TileMaps(driver, image.maps) if image.maps else None
        self.function = driver.cuModuleGetFunction(driver.cuModuleLoadData(image.data), kernel.name)
        driver.cuFuncGetAttribute(
            FUNCTION["local_bytes"], self.function
        )  # loads its code, which the first launch else does
        if image.shared > _SHARED:
            driver.cuFuncSetAttribute(self.function, FUNCTION["max_dynamic_shared_bytes"], image.shared)
        declare = getattr(driver, "declare_parameters", None)  # of the emulated driver, whose modules do not tell
        if declare is not None:
            declare(self.function, len(kernel.params), len(image.maps))

    def launch(self, stream: int, grid: Grid, words: Any) -> None:
        maps = 0
        if self.maps is not None:
            words, maps = self.maps.appended(words), len(self.maps.maps)
        self.driver.cuLaunchKernel(self.function, grid, self.threads, self.shared, stream, words, maps)

    def assembly(self) -> str:
        return self.text.decode("utf-8", "replace") if self.text[:4] != b"\x7fELF" else kernel_text(self.kernel)


class InterpretedKernel(DeviceKernel):
    """A kernel that the reference interpreter runs on the memory of emulated devices."""

    __slots__ = ("driver",)

    def __init__(self, kernel: Kernel, driver: Any) -> None:
        super().__init__(kernel)
        self.driver = driver

    def launch(self, stream: int, grid: Grid, words: Any) -> None:
        region, given = self.driver.region, _numbers(self.kernel, list(words))

        def run() -> None:
            memory = BlockMemory()
            bytes_of = (ctypes.c_uint8 * region.total).from_address(region.alias)
            memory.add(np.frombuffer(bytes_of, np.uint8), address=region.base)
            try:
                interpret(self.kernel, grid, given, memory)
            except BlockFault as fault:
                illegal = "bytes at" in str(fault)
                name = "CUDA_ERROR_ILLEGAL_ADDRESS" if illegal else "CUDA_ERROR_ASSERT"
                fail(name, f"kernel {self.kernel.name}", str(fault))

        self.driver.cuLaunchHostFunc(stream, run)

    def assembly(self) -> str:
        return kernel_text(self.kernel)


def word_of(value: Any, element: Any) -> int:
    """The word of a parameter: an address, an integer, or the bits of a float."""
    if isinstance(element, Pointer) or element.kind != "f":
        return int(value)
    if element.itemsize == 2:
        raise NotImplementedError(f"parameters of {element} are given as float32")
    return single(value) if element.itemsize == 4 else double(value)


def _numbers(kernel: Kernel, words: Sequence[int]) -> list[Any]:
    """The arguments that words stand for."""
    found: list[Any] = []
    for param, word in zip(kernel.params, words, strict=True):
        element = param.type.element
        if isinstance(element, Pointer) or element.kind != "f":
            found.append(word)
        else:
            bits = np.array([word], np.int64).view(np.uint8)[: element.itemsize]
            found.append(bits.view(f"float{8 * element.itemsize}")[0])
    return found


class Kernels:
    """The kernels of one device."""

    def __init__(self, backend: CudaBackend, index: int) -> None:
        self.backend, self.index = backend, index
        self.known: dict[str, DeviceKernel] = {}

    def get(self, kernel: Kernel) -> DeviceKernel:
        """The kernel, ready to be launched."""
        text = kernel_text(kernel)
        found = self.known.get(text)
        if found is None:
            verify(kernel)
            self.backend.devices.enter(self.index)
            found = self.known[text] = self._made(kernel, text)
        return found

    def report(self, kernel: Kernel) -> str:
        """A report on a kernel on the device's architecture, whatever runs it: see `KernelReport.text`."""
        images, native = require("rushlight._backends.cuda.images"), require("rushlight._native.nvidia.nvptx")
        properties = self.backend.devices.properties(self.index)
        architecture = images.architecture_of(properties, native.ARCHITECTURES)
        report: str = (
            require("rushlight._backends.cuda.reports.inspection").inspect_kernel(kernel, architecture).text(asm=True)
        )
        return report

    def _made(self, kernel: Kernel, text: str) -> DeviceKernel:
        driver = self.backend.driver
        if driver.emulated and KERNELS.get() == "interpreted":
            return InterpretedKernel(kernel, driver)
        properties = self.backend.devices.properties(self.index)
        image = require("rushlight._backends.cuda.images").image_of(kernel, text, driver.emulated, properties)
        with self.backend.devices.unseen():
            return CompiledKernel(kernel, driver, image)


def empty_words(count: int) -> Any:
    """Room for the words of a launch."""
    return slots(*[0] * count)
