"""Devices of one's own (`privateuseone`), and the stack of C++: neither is in a package that has no C++."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["generate_methods_for_privateuse1_backend", "get_cpp_backtrace", "rename_privateuse1_backend"]


def rename_privateuse1_backend(backend_name: str) -> NoReturn:
    """NotImplementedError: kernels for another device come from C++, which this package cannot load."""
    raise NotImplementedError(f"rename_privateuse1_backend({backend_name!r}): rushlight takes no devices from outside")


def generate_methods_for_privateuse1_backend(
    for_tensor: bool = True, for_module: bool = True, for_packed_sequence: bool = True, for_storage: bool = False, unsupported_dtype: object = None
) -> NoReturn:  # fmt: skip
    """NotImplementedError: kernels for another device come from C++, which this package cannot load."""
    raise NotImplementedError("generate_methods_for_privateuse1_backend: rushlight takes no devices from outside")


def get_cpp_backtrace(frames_to_skip: int = 0, maximum_number_of_frames: int = 64) -> NoReturn:
    """NotImplementedError: there is no C++ on the stack; `traceback.format_stack()` has all of it."""
    raise NotImplementedError(
        "get_cpp_backtrace: rushlight has no C++ on the stack; traceback.format_stack() shows all of it"
    )
