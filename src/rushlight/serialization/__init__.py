"""Saving and loading in PyTorch's file format, in both directions.

`save` and `load` are also found at the package root. Files are zip archives that real PyTorch reads, and files that
real PyTorch wrote are read here. Loading runs no code from a file unless `weights_only=False` is asked for.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import lazy_files

_PLACES = {
    **dict.fromkeys(("add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"), "allowed"),
    **dict.fromkeys(("MAP_LOCATION", "get_unsafe_globals_in_checkpoint", "load"), "loading"),
    **dict.fromkeys((
        "SourceChangeWarning", "check_module_version_greater_or_equal", "default_restore_location", "location_tag", "register_package",
        "validate_cuda_device", "validate_hpu_device",
    ), "locations"),
    **dict.fromkeys(("StorageType", "normalize_storage_type", "storage_to_tensor_type"), "names"),
    **dict.fromkeys((
        "LoadEndianness", "get_crc32_options", "get_default_load_endianness", "get_default_mmap_options", "set_crc32_options",
        "set_default_load_endianness", "set_default_mmap_options", "skip_data",
    ), "options"),
    "mkdtemp": "replacing",
    "save": "saving",
}  # fmt: skip

__all__ = list(_PLACES)
_PLACES["_get_layout"] = "rebuild"  # what pickles of layouts name
DEFAULT_PROTOCOL = 2  # of the pickles in files


_MODULES = ("gguf", "safetensors", "sharded")


__getattr__ = lazy_files(__name__, _PLACES, _MODULES)
