"""Facts about the machine for reports of problems: versions, processor, packages.  `python -m
rushlight.utils.collect_env` prints it.

`python -m rushlight info` tells more of rushlight itself.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections import namedtuple
from typing import Any

import rushlight

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main", "pretty_str"]

SystemEnv = namedtuple(
    "SystemEnv",
    [
        "torch_version", "is_debug_build", "cuda_compiled_version", "gcc_version", "clang_version", "cmake_version", "os", "libc_version",
        "python_version", "python_platform", "is_cuda_available", "cuda_runtime_version", "cuda_module_loading", "nvidia_driver_version",
        "nvidia_gpu_models", "cudnn_version", "is_xpu_available", "pip_version", "pip_packages", "conda_packages", "hip_compiled_version",
        "hip_runtime_version", "miopen_runtime_version", "caching_allocator_config", "is_xnnpack_available", "cpu_info",
    ],
)  # fmt: skip

_MISSING, _ABSENT = "Could not collect", "N/A"
_PACKAGES = re.compile(r"^(rushlight|torch|numpy|llvmlite|mypy|flake8|triton|optree|onnx|nvidia-|scipy)", re.IGNORECASE)
_LINES = (
    ("PyTorch version", "torch_version"), ("Is debug build", "is_debug_build"), ("CUDA used to build PyTorch", "cuda_compiled_version"),
    ("ROCM used to build PyTorch", "hip_compiled_version"), None, ("OS", "os"), ("GCC version", "gcc_version"),
    ("Clang version", "clang_version"), ("CMake version", "cmake_version"), ("Libc version", "libc_version"), None,
    ("Python version", "python_version"), ("Python platform", "python_platform"), ("Is CUDA available", "is_cuda_available"),
    ("CUDA runtime version", "cuda_runtime_version"), ("CUDA_MODULE_LOADING set to", "cuda_module_loading"),
    ("GPU models and configuration", "nvidia_gpu_models"), ("Nvidia driver version", "nvidia_driver_version"),
    ("cuDNN version", "cudnn_version"), ("Is XPU available", "is_xpu_available"), ("HIP runtime version", "hip_runtime_version"),
    ("MIOpen runtime version", "miopen_runtime_version"), ("Is XNNPACK available", "is_xnnpack_available"),
    ("Caching allocator config", "caching_allocator_config"), None,
)  # fmt: skip


def _run(*command: str) -> str | None:
    """Output of a command; None where it is absent or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(pattern: str, *command: str) -> str | None:
    found = re.search(pattern, _run(*command) or "")
    return found[1] if found else None


def _system() -> str:
    names: dict[str, str] = {}
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]} ({platform.machine()})"
    try:
        names = platform.freedesktop_os_release()
    except OSError:
        return f"{platform.system()} ({platform.machine()})"
    return f"{names.get('PRETTY_NAME', platform.system())} ({platform.machine()})"


def _packages() -> str:
    from importlib.metadata import distributions

    found = {
        d.metadata["Name"]: d.version
        for d in distributions()
        if d.metadata["Name"] and _PACKAGES.match(d.metadata["Name"])
    }
    return "\n".join(f"{name}=={found[name]}" for name in sorted(found, key=str.lower))


def _processor() -> str:
    """`lscpu` where there is one, else what Python knows."""
    return _run("lscpu") or f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def get_env_info() -> SystemEnv:
    """All that is known, None for what is not there.

    >>> get_env_info().is_cuda_available
    'False'
    """
    bits = f"{sys.maxsize.bit_length() + 1}-bit runtime"
    return SystemEnv(
        torch_version=f"{rushlight.__version__} (rushlight)", is_debug_build="False", cuda_compiled_version=None,
        gcc_version=_version(r"(?s)^(?:\S+ )(.*?)(?:\n|$)", "gcc", "--version"), clang_version=_version(r"(\S+ version .*)", "clang", "--version"),
        cmake_version=_version(r"cmake (.*)", "cmake", "--version"), os=_system(), libc_version="-".join(platform.libc_ver()),
        python_version=f"{sys.version} ({bits})".replace("\n", " "), python_platform=platform.platform(), is_cuda_available="False",
        cuda_runtime_version=None, cuda_module_loading=_ABSENT, nvidia_driver_version=None, nvidia_gpu_models=None, cudnn_version=None,
        is_xpu_available="False", pip_version=_version(r"pip (\S+)", sys.executable, "-m", "pip", "--version"), pip_packages=_packages(),
        conda_packages=None, hip_compiled_version=_ABSENT, hip_runtime_version=_ABSENT, miopen_runtime_version=_ABSENT,
        caching_allocator_config=_ABSENT, is_xnnpack_available="False", cpu_info=_processor(),
    )  # fmt: skip


def pretty_str(envinfo: SystemEnv) -> str:
    """The report as text."""

    def value(name: str) -> Any:
        found = getattr(envinfo, name)
        return _MISSING if found is None or found == "" else found

    lines = ["" if line is None else f"{line[0]}: {value(line[1])}" for line in _LINES]
    lines += ["CPU:", str(value("cpu_info")), "", "Versions of relevant libraries:"]
    for prefix, name in (("[pip3] ", "pip_packages"), ("[conda] ", "conda_packages")):
        lines += [prefix + package for package in str(value(name)).split("\n")]
    return "\n".join(lines)


def get_pretty_env_info() -> str:
    """The report of this machine as text."""
    return pretty_str(get_env_info())


def main() -> None:
    """Print the report."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
