"""A driver for an installed Triton: its compiler's kernels run on our GPUs and tensors, by our CUDA driver.

Triton's own driver compiles a launcher in C and asks PyTorch for devices and streams; this one needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import rushlight
from rushlight._interface.devices import backend_of

from ..testing import do_bench

__all__ = ["InstalledDriver", "Launcher", "activate"]


def activate(triton: Any) -> None:
    """Let the installed package use this driver."""
    triton.runtime.driver.set_active(InstalledDriver(triton.backends.compiler.GPUTarget))


def _gpus() -> Any:
    """The backend of all GPUs; RuntimeError that says what would work where there is none."""
    reason = rushlight.cuda.unavailable_reason()
    if reason is not None:
        raise RuntimeError(
            f"the installed Triton compiles for GPUs, and there is none to use: {reason}; RUSHLIGHT_TRITON=own takes rushlight's "
            "Triton language, whose kernels run on the CPU, too"
        )
    return backend_of(rushlight.device("cuda", 0))


class _Utilities:
    """Facts of devices, and machine code on them."""

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        _gpus()
        found = rushlight.cuda.get_device_properties(device)
        return {
            "max_shared_mem": found.shared_memory_per_block_optin,
            "multiprocessor_count": found.multi_processor_count,
            "max_num_regs": found.regs_per_multiprocessor,
            "warpSize": found.warp_size,
            "sm_clock_rate": getattr(found, "clock_rate", 0),
            "mem_clock_rate": getattr(found, "memory_clock_rate", 0),
            "mem_bus_width": getattr(found, "memory_bus_width", 0),
        }

    @staticmethod
    def load_binary(name: str, kernel: bytes, shared: int, device: int, *more: Any) -> tuple[int, int, int, int, int]:
        """(module, function, registers, spills, most threads) of a kernel."""
        return _gpus().foreign.load(name, kernel, shared, device)

    @staticmethod
    def unload_module(module: int) -> None:
        _gpus().driver.cuModuleUnload(module)


class Launcher:
    """Launches one compiled kernel; NotImplementedError for a kernel that asks for more than a plain launch."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.types = list(_flat(list(src.signature.values())))
        wrong = next((t for t in self.types if t.startswith(("tensordesc", "nvTmaDesc"))), None)
        if wrong is not None:
            raise NotImplementedError(f"arguments of type {wrong} for the installed Triton: pass pointers")
        for name, plain in (
            ("num_ctas", 1),
            ("launch_cooperative_grid", False),
            ("launch_pdl", False),
            ("global_scratch_size", 0),
            ("profile_scratch_size", 0),
        ):
            found = getattr(metadata, name, plain)
            if found != plain:
                raise NotImplementedError(f"a kernel of the installed Triton with {name}={found}")

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, *more: Any) -> None:
        """Launch on the current stream; `more` is (warps, blocks of a cluster, bytes of shared memory), what hooks are
        told, hooks before and after, and the arguments.
        """
        packed, about, enter, leave, *args = more
        if enter is not None:
            enter(about)
        warps, _, shared = packed
        arguments = list(self.arguments(args))
        _gpus().foreign.launch(function, (x, y, z), 32 * warps, shared, [*arguments, ("*", 0), ("*", 0)])
        if leave is not None:
            leave(about)

    def arguments(self, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """(type, value) of what the kernel is passed; ValueError for a tensor that is not on a GPU."""
        for place, (type, value) in enumerate(zip(self.types, _flat(list(args)), strict=True)):
            if type == "constexpr":
                continue
            if type.startswith("*") and hasattr(value, "data_ptr"):
                if value.device.type != "cuda":
                    raise ValueError(
                        f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?): it is on {value.device}"
                    )
                value = value.data_ptr()
            yield type, 0 if value is None else value


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        else:
            yield value


class InstalledDriver:
    """The object `triton.runtime.driver.active`."""

    launcher_cls = Launcher

    def __init__(self, target: Any) -> None:
        self.utils, self._target = _Utilities(), target

    @staticmethod
    def is_active() -> bool:
        return bool(rushlight.cuda.is_available())

    def get_current_target(self) -> Any:
        """The architecture of the current GPU."""
        _gpus()
        major, minor = rushlight.cuda.get_device_capability()
        return self._target("cuda", 10 * major + minor, 32)

    @staticmethod
    def get_current_device() -> int:
        _gpus()
        return int(rushlight.cuda.current_device())

    @staticmethod
    def set_current_device(device: int) -> None:
        rushlight.cuda.set_device(device)

    @staticmethod
    def get_current_stream(device: int = 0) -> int:
        return int(rushlight.cuda.current_stream(device).cuda_stream)

    @staticmethod
    def get_device_capability(device: int = 0) -> tuple[int, int]:
        return rushlight.cuda.get_device_capability(device)

    @staticmethod
    def map_python_to_cpp_type(type: str) -> str:
        """Launchers are not in C: the type as it is."""
        return type

    @staticmethod
    def get_active_torch_device() -> Any:
        _gpus()
        return rushlight.device("cuda", rushlight.cuda.current_device())

    @staticmethod
    def get_device_interface() -> Any:
        return rushlight.cuda

    @staticmethod
    def get_benchmarker() -> Any:
        return do_bench

    @staticmethod
    def get_empty_cache_for_benchmark() -> Any:
        """256 MB, to be written between measurements."""
        return rushlight.empty(1 << 26, dtype=rushlight.int32, device=InstalledDriver.get_active_torch_device())

    @staticmethod
    def clear_cache(cache: Any) -> None:
        cache.zero_()
