"""Kernels of loop nests made callable: known in this process, found on disk, or compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rushlight._backends.cpu.program.steps import KernelStep, symbol_of
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.stubs import load_kernel
from rushlight._backends.cpu.target import cpu_target
from rushlight._base.log import enabled, log
from rushlight._native.jit import COMPILER_SOURCES
from rushlight._native.objectcode import ahead, file_of, in_file, obtain, wanted
from rushlight._native.sources import generator_files, sources_digest
from rushlight._native.target import host_target
from rushlight._schedule.policy import Target

__all__ = ["OPT", "host", "kernel_address", "kernel_called", "kernel_names", "kernel_of", "kernels_ahead"]

# Kernels are written as they should be: LLVM's passes would take longer than instruction selection and find nothing.
OPT = "none"
_TARGET: list[Target] = []
_KERNELS: dict[str, Callable[..., Any]] = {}
_BY_SYMBOL: dict[str, Callable[..., Any]] = {}  # the same kernels, by what they are called in machine code
_GENERATOR: list[bytes] = []


def host() -> Target:
    """This machine, as the generator sees it."""
    if not _TARGET:
        _TARGET.append(cpu_target(host_target()))
    return _TARGET[0]


def generator_digest() -> bytes:
    """A digest of the code generator: kernels made by another version of it are not found again."""
    if not _GENERATOR:
        _GENERATOR.append(sources_digest((*generator_files(), *COMPILER_SOURCES)))
    return _GENERATOR[0]


def kernel_of(step: KernelStep) -> Callable[..., Any]:
    """The callable of a step's kernel: known in this process, or on disk, or compiled now."""
    key = step.key
    found = _KERNELS.get(key)
    if found is None and (found := _BY_SYMBOL.get(step.symbol)) is not None:
        _KERNELS[key] = found
    if found is None:
        data = obtain(OPT, step.llvm, *_parts(key))
        if enabled("loops"):
            log("loops", f"{step.symbol}\n{step.kernel.text()}")
        # Another thread may have been quicker; its kernel may be in use by its address, and must not be unloaded.
        found = _BY_SYMBOL.setdefault(step.symbol, load_kernel(data, step.symbol))
        _KERNELS[key] = found
    return found


def kernel_names(key: str) -> list[str]:
    """Names of a kernel with this key in machine code, and on disk: enough to find it again without its text
    (`kernel_called`).
    """
    return [symbol_of(key), file_of(*_parts(key)).hex()]


def kernel_called(symbol: str, file: bytes) -> Callable[..., Any] | None:
    """The kernel with these names, loaded from disk where this process has not met it; None where it is no longer
    there.
    """
    found = _BY_SYMBOL.get(symbol)
    if found is None:
        data = in_file(file)
        if data is None:
            return None
        found = _BY_SYMBOL.setdefault(symbol, load_kernel(data, symbol))
    return found


def _parts(key: str) -> tuple[str | bytes, ...]:
    return "kernel", OPT, generator_digest(), key


def kernels_ahead(steps: Iterable[KernelStep]) -> None:
    """Let workers compile the kernels that `kernel_of` will soon be asked for, but the first new one: that is compiled
    here meanwhile.
    """
    if wanted():
        new = [step for step in steps if step.key not in _KERNELS]
        for step in new[1:]:
            ahead(OPT, step.llvm, *_parts(step.key))


def kernel_address(step: KernelStep) -> int:
    """Where the machine code of a step's kernel lies, for other native code to call; it stays there."""
    handle = kernel_of(step).__self__  # type: ignore[attr-defined]
    address: int = runtime().kernel_address(handle)
    return address
