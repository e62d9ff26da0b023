"""Building extensions in C++ and CUDA against PyTorch: not possible here, as there is no C++ API to build against.

The names are here because programs import them before they decide whether to use them; calls raise NotImplementedError.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, NoReturn

__all__ = [
    "BuildExtension", "CUDAExtension", "CUDA_HOME", "CUDNN_HOME", "CppExtension", "IS_HIP_EXTENSION", "IS_WINDOWS", "ROCM_HOME", "ROCM_VERSION",
    "SYCL_HOME", "SyclExtension", "check_compiler_is_gcc", "check_compiler_ok_for_platform", "get_compiler_abi_compatibility_and_version",
    "get_cxx_compiler", "get_default_build_root", "include_paths", "is_ninja_available", "library_paths", "load", "load_inline",
    "remove_extension_h_precompiler_headers", "verify_ninja_availability",
]  # fmt: skip

CUDA_HOME: str | None = None
CUDNN_HOME: str | None = None
ROCM_HOME: str | None = None
ROCM_VERSION: tuple[int, int] | None = None
SYCL_HOME: str | None = None
IS_HIP_EXTENSION = False
IS_WINDOWS = sys.platform == "win32"


def _absent(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.utils.cpp_extension.{name}: rushlight has no C++ API to build extensions against; write operators in Python "
        "(torch.library.custom_op), they are compiled like its own"
    )


class BuildExtension:
    """setuptools' command that builds extensions: NotImplementedError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _absent("BuildExtension")

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """The class itself: the options are of no use."""
        return cls

    def finalize_options(self) -> None:
        """NotImplementedError."""
        _absent("BuildExtension.finalize_options")

    def build_extensions(self) -> None:
        """NotImplementedError."""
        _absent("BuildExtension.build_extensions")

    def get_ext_filename(self, ext_name: str) -> str:
        """NotImplementedError."""
        _absent("BuildExtension.get_ext_filename")

    def get_export_symbols(self, ext: Any) -> Any:
        """NotImplementedError."""
        _absent("BuildExtension.get_export_symbols")


def CppExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _absent("CppExtension")


def CUDAExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _absent("CUDAExtension")


def SyclExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _absent("SyclExtension")


def load(
    name: str,
    sources: Any,
    extra_cflags: Any = None,
    extra_cuda_cflags: Any = None,
    extra_sycl_cflags: Any = None,
    extra_ldflags: Any = None,
    extra_include_paths: Any = None,
    build_directory: Any = None,
    verbose: bool = False,
    with_cuda: Any = None,
    with_sycl: Any = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """NotImplementedError."""
    _absent("load")


def load_inline(
    name: str,
    cpp_sources: Any,
    cuda_sources: Any = None,
    sycl_sources: Any = None,
    functions: Any = None,
    extra_cflags: Any = None,
    extra_cuda_cflags: Any = None,
    extra_sycl_cflags: Any = None,
    extra_ldflags: Any = None,
    extra_include_paths: Any = None,
    build_directory: Any = None,
    verbose: bool = False,
    with_cuda: Any = None,
    with_sycl: Any = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:
    """NotImplementedError."""
    _absent("load_inline")


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Folders of headers: none."""
    return []


def library_paths(
    device_type: str = "cpu", torch_include_dirs: bool = True, cross_target_platform: str | None = None
) -> list[str]:
    """Folders of libraries: none."""
    return []


def get_cxx_compiler() -> str:
    """The C++ compiler that the environment names (`CXX`), `c++` by default."""
    return os.environ.get("CXX", "cl" if IS_WINDOWS else "c++")


def get_default_build_root() -> str:
    """Where PyTorch would keep what it builds."""
    return os.path.join(os.path.expanduser("~"), ".cache", "torch_extensions")


def is_ninja_available() -> bool:
    """Whether there is a `ninja` on the path."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """RuntimeError where there is no `ninja` on the path."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def check_compiler_is_gcc(compiler: str) -> bool:
    """NotImplementedError: nothing is built here."""
    _absent("check_compiler_is_gcc")


def check_compiler_ok_for_platform(compiler: str) -> bool:
    """NotImplementedError: nothing is built here."""
    _absent("check_compiler_ok_for_platform")


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple[bool, Any]:
    """NotImplementedError: nothing is built here."""
    _absent("get_compiler_abi_compatibility_and_version")


def remove_extension_h_precompiler_headers() -> None:
    """Nothing: no headers were compiled."""
