"""Images of block kernels that a driver loads: PTX of an architecture, or the object file of the kernel's twin.

Images are kept on disk by the kernel's text, the architecture (for twins the host's processor), and the sources of the
code generator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rushlight._base.lazy import require
from rushlight._codegen.blocks import Kernel
from rushlight._codegen.threads.tile_maps import TileMap, described
from rushlight._native import jit
from rushlight._native.cache import default_cache
from rushlight._native.sources import files_below, generator_files, sources_digest
from rushlight._native.target import host_target

__all__ = ["Image", "architecture_of", "image_of"]

_OPT = "kernel"  # of twins: how LLVM optimises them
_SUFFIXED = frozenset({(9, 0), (10, 0), (12, 0)})  # whose own instructions need an "a" behind the number


class Image(NamedTuple):
    """The bytes that the driver loads, the threads of a block, its bytes of shared memory, and the tensor maps that it takes."""

    data: bytes
    threads: int
    shared: int
    maps: tuple[TileMap, ...] = ()


def architecture_of(properties: Mapping[str, Any], known: tuple[str, ...]) -> str:
    """The architecture to compile for: the device's own, or the nearest older one whose PTX it runs.

    >>> architecture_of({"major": 9, "minor": 0}, ("sm_80", "sm_90", "sm_90a"))
    'sm_90a'
    >>> architecture_of({"major": 8, "minor": 7}, ("sm_75", "sm_80", "sm_86", "sm_90"))
    'sm_86'
    """
    major, minor = properties["major"], properties["minor"]
    own = f"sm_{major}{minor}" + ("a" if (major, minor) in _SUFFIXED else "")
    if own in known:
        return own
    older = [(int(name[3:]), name) for name in known if name[3:].isdigit() and int(name[3:]) <= 10 * major + minor]
    if not older:
        oldest = f"{known[0][3:-1]}.{known[0][-1]}"
        raise NotImplementedError(
            f"no code is generated for GPUs of compute capability {major}.{minor}: they must have {oldest} or newer"
        )
    return max(older)[1]


def image_of(kernel: Kernel, text: str, emulated: bool, properties: Mapping[str, Any]) -> Image:
    """The image of a kernel with this text, from disk or made now."""
    native = require("rushlight._native.nvidia.nvptx")
    architecture = architecture_of(properties, native.ARCHITECTURES)
    if emulated:
        return _kept(("twin", architecture, *jit.processor()), text, lambda: _twin(kernel, architecture))
    return _kept(("ptx", architecture), text, lambda: _ptx(kernel, architecture))


def _kept(kind: tuple[str, ...], text: str, make: Callable[[], Image]) -> Image:
    cache = default_cache()
    names = (*generator_files(), *files_below("_native"), "_backends/cuda/images.py")
    key = cache.key("cuda", *kind, sources_digest(names), text)
    data = cache.get(key)
    if data is not None:
        head, _, body = data.partition(b"\n")
        threads, shared, maps = json.loads(head)
        return Image(body, threads, shared, tuple(described(m) for m in maps))
    made = make()
    cache.put(key, json.dumps([made.threads, made.shared, made.maps]).encode() + b"\n" + made.data)
    return made


def _twin(kernel: Kernel, architecture: str) -> Image:
    threads = require("rushlight._codegen.threads")
    form = threads.lower(kernel, architecture)
    text = threads.twin_text(form, fma=host_target().has("fma"))
    return Image(jit.compile_object(text, _OPT), form.threads, form.shared, tuple(form.maps))


def _ptx(kernel: Kernel, architecture: str) -> Image:
    threads = require("rushlight._codegen.threads")
    form = threads.lower(kernel, architecture)
    ptx = require("rushlight._native.nvidia.nvptx").ptx_of(threads.nvptx_text(form), architecture)
    return Image(ptx.encode() + b"\0", form.threads, form.shared, tuple(form.maps))
