"""Modules of the emulated driver: object files of the host's processor, and how a kernel in one is called.

A kernel is the twin of one for GPUs: a symbol with the C signature

    int32 name(const Context *context, const int64_t *parameters, int64_t first_program, int64_t last_program)

which runs the blocks of the grid whose flat number (x fastest) is in that range, and returns 0, or the number of a CUDA
error.  Each parameter takes a word of 8 bytes; pointers are device addresses, which the twin reads at the address plus
`context->delta`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from rushlight._backends.cuda.driver.attributes import FUNCTION
from rushlight._backends.cuda.driver.errors import CODES, CudaError, fail
from rushlight._base.lazy import require
from rushlight._native.objectfiles.elf import ABSOLUTE, MAGIC, UNDEFINED, ObjectFile

__all__ = ["REPORT_BYTES", "Context", "Function", "Module"]

REPORT_BYTES = 1024
_NAMES = {code: name for name, (code, _) in CODES.items()}
_MOST_SHARED = 48 << 10  # bytes that a kernel gets without asking


class Context(ctypes.Structure):
    """State that a twin is given beside its parameters."""

    _fields_ = (
        ("delta", ctypes.c_int64),
        ("grid", ctypes.c_int32 * 3),
        ("pad", ctypes.c_int32),
        ("shared", ctypes.c_void_p),
        ("shared_bytes", ctypes.c_int64),
        ("races", ctypes.c_void_p),
        ("memory_base", ctypes.c_int64),
        ("memory_bytes", ctypes.c_int64),
        ("report", ctypes.c_void_p),
    )


_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Function:
    """A kernel of a module."""

    def __init__(self, module: Module, name: str, address: int) -> None:
        self.module, self.name, self.address = module, name, address
        self.call = _CALL(address)
        self.record = (ctypes.c_int64 * 3)(
            address, -1, 0
        )  # code, how many parameters there are, where that was said, and maps
        self.handle = ctypes.addressof(self.record)
        self.attributes = dict.fromkeys(FUNCTION.values(), 0)
        self.attributes[FUNCTION["max_threads_per_block"]] = 1024
        self.attributes[FUNCTION["max_dynamic_shared_bytes"]] = _MOST_SHARED

    def run(self, context: Context, parameters: Any, pieces: list[tuple[int, int]]) -> None:
        """Run the blocks of the grid, stretch by stretch; CudaError where one says that it failed.

        A kernel that has begun runs to its end: what a signal handler raises meanwhile is raised after it.
        """
        report = ctypes.create_string_buffer(REPORT_BYTES)
        context.report = ctypes.addressof(report)
        interruption: BaseException | None = None
        for first, last in pieces:
            code = 0
            try:
                code = self.call(ctypes.addressof(context), ctypes.addressof(parameters), first, last)
            except BaseException as raised:  # behind the call, whose answer is lost, but not what it reported
                interruption = raised
            if code or report.value:
                name = _NAMES.get(code, "CUDA_ERROR_LAUNCH_FAILED")
                told = report.value.decode("utf-8", "replace")
                raise CudaError(name, *CODES[name], f"kernel {self.name}", told and f": {told}") from interruption
        if interruption is not None:
            raise interruption


class Module:
    """An object file, loaded."""

    def __init__(self, image: bytes) -> None:
        if not image.startswith(MAGIC):
            what = "PTX" if b".version" in image[:4096] else "no object file"
            fail(
                "CUDA_ERROR_INVALID_IMAGE",
                "cuModuleLoadData",
                f"the emulated driver runs objects of the host; this is {what}",
            )
        parsed = ObjectFile(image)
        defined = {
            parsed.text(parsed.names, name)
            for name, section, _ in parsed.symbols
            if section not in (UNDEFINED, ABSOLUTE) and section in parsed.loaded
        }
        self.names = {name for name in defined if name and not name.startswith(".")}
        self.loaded = require("rushlight._native.jit").load(image, self.names)
        self.functions: dict[str, Function] = {}

    def function(self, name: str) -> Function:
        """A kernel by its name."""
        if name not in self.names:
            fail(
                "CUDA_ERROR_NOT_FOUND",
                "cuModuleGetFunction",
                f"the module has {', '.join(sorted(self.names))}, no {name}",
            )
        found = self.functions.get(name)
        if found is None:
            found = self.functions[name] = Function(self, name, self.loaded[name])
        return found
