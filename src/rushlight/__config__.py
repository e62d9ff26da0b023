"""The parts of this installation, as `torch.__config__`."""

from __future__ import annotations

import os
import platform

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Versions, compiler and processor, in lines.

    >>> "LLVM" in torch.__config__.show()
    True
    """
    import llvmlite
    import llvmlite.binding
    import numpy

    from rushlight._backends.cpu.gemm.blas import blas
    from rushlight._native.target import host_target
    from rushlight.version import rushlight as version

    target = host_target()
    llvm = ".".join(str(part) for part in llvmlite.binding.llvm_version_info)
    lines = [
        f"rushlight {version}, written in Python:",
        f"Python {platform.python_version()}",
        f"NumPy {numpy.__version__}",
        f"LLVM {llvm} (llvmlite {llvmlite.__version__})",
        f"BLAS: {os.path.basename(blas().path or 'none, loops of our own')}",
        f"CPU: {target.model}, vectors of {8 * target.vector_bytes} bits",
        "CUDA: not built",
    ]
    return "\n  - ".join(lines) + "\n"


def parallel_info() -> str:
    """Threads in use, and the settings that decide it."""
    from rushlight._native.target import usable_cores
    from rushlight._surface.settings import get_num_interop_threads, get_num_threads

    names = ("RUSHLIGHT_NUM_THREADS", "OMP_NUM_THREADS")
    settings = "\n".join(f"\t{name} : {os.environ.get(name, '[not set]')}" for name in names)
    return (
        f"Threads of kernels: {get_num_threads()}\nThreads between operators: {get_num_interop_threads()}\n"
        f"Usable cores: {usable_cores()}\nEnvironment variables:\n{settings}\nParallel backend: rushlight's own thread pool\n"
    )
