"""`torch._utils_internal`: where files of an installation lie, and what PyTorch's builds put in its place."""

from __future__ import annotations

import os
import tempfile

__all__ = [
    "get_file_path",
    "get_file_path_2",
    "get_writable_path",
    "is_fb_unit_test",
    "justknobs_check",
    "prepare_multiprocessing_environment",
    "resolve_library_path",
    "signpost_event",
]

_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def get_file_path(*path_components: str) -> str:
    """A path below the folder that holds the package."""
    return os.path.join(_PARENT, *path_components)


def get_file_path_2(*path_components: str) -> str:
    """The components joined."""
    return os.path.join(*path_components)


def get_writable_path(path: str) -> str:
    """The path itself where it may be written, else a new temporary folder."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))


def resolve_library_path(path: str) -> str:
    """The path without links."""
    return os.path.realpath(path)


def prepare_multiprocessing_environment(path: str) -> None:
    """Nothing: processes need no preparation."""


def justknobs_check(name: str, default: bool = True) -> bool:
    """The default: there is no service that decides otherwise."""
    return default


def signpost_event(category: str, name: str, parameters: dict[str, object]) -> None:
    """Nothing: no events leave the machine."""


def is_fb_unit_test() -> bool:
    """Always False."""
    return False
