"""Runs twins of block kernels on arrays, and compares them with the reference interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from rushlight._codegen.blocks import BlockMemory, Kernel, interpret, verify
from rushlight._codegen.threads import lower, twin_text
from rushlight._codegen.threads.tile_maps import TileMap, record, window_record
from rushlight._native import jit

__all__ = ["TwinError", "compare", "run_twin"]

BASE = 0x7000_0000_0000  # where device memory is said to lie
GAP = 4096


class TwinError(RuntimeError):
    """What a twin reported; `code` is a CUDA error's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Context(ctypes.Structure):
    _fields_ = (
        ("delta", ctypes.c_int64), ("grid", ctypes.c_int32 * 3), ("pad", ctypes.c_int32), ("shared", ctypes.c_void_p),
        ("shared_bytes", ctypes.c_int64), ("races", ctypes.c_void_p), ("memory_base", ctypes.c_int64),
        ("memory_bytes", ctypes.c_int64), ("report", ctypes.c_void_p),
    )  # fmt: skip


@cache
def _loaded(text: str, name: str) -> Any:
    return jit.load(jit.compile_object(text), [name])


def run_thread_kernel(
    made: Any, grid: Sequence[int], arguments: Sequence[Any], types: Sequence[Any], text: str | None = None
) -> None:
    """Run a kernel of the thread form; arrays are copied to device memory and back.  TwinError for what it reports."""
    text = text or twin_text(made)
    code = _loaded(text, made.name)
    sizes = [-(-a.nbytes // GAP) * GAP + GAP for a in arguments if isinstance(a, np.ndarray)]
    memory = np.full(sum(sizes) + GAP, 0xA7, np.uint8)
    start = -memory.ctypes.data % 64
    words, at, places = [], start, []
    for argument, type in zip(arguments, types, strict=True):
        if isinstance(argument, np.ndarray):
            memory[at : at + argument.nbytes] = argument.reshape(-1).view(np.uint8)
            words.append(BASE + at - start)
            places.append((argument, at))
            at += sizes[len(places) - 1]
        else:
            words.append(_word(argument, type))
    report, shared = ctypes.create_string_buffer(1024), np.full(made.shared + 64, 0xA7, np.uint8)
    context = Context(
        memory.ctypes.data + start - BASE, (*grid, 1, 1)[:3], 0, shared.ctypes.data + -shared.ctypes.data % 64, made.shared, None, BASE,
        at - start, ctypes.addressof(report),
    )  # fmt: skip
    maps = b"".join(_record(m, words) for m in made.maps)
    words += np.frombuffer(maps, np.int64).tolist()
    parameters = (ctypes.c_int64 * max(len(words), 1))(*words)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        code[made.name]
    )
    found = call(ctypes.addressof(context), ctypes.addressof(parameters), 0, int(np.prod(grid)))
    if found:
        raise TwinError(found, report.value.decode())
    for argument, place in places:
        argument.reshape(-1).view(np.uint8)[:] = memory[place : place + argument.nbytes]


def _record(tile: TileMap, words: Sequence[int]) -> bytes:
    address, sizes, strides = tile.of(words)
    corners = tile.corners(words)
    if corners is not None:
        return window_record(address, sizes, strides, tile.box, corners, tile.itemsize)
    return record(address, sizes, strides, tile.box, tile.itemsize)


def _word(number: Any, dtype: Any) -> int:
    """A number in a slot of 8 bytes."""
    if dtype.kind == "f":
        kind = {"float16": np.float16, "float32": np.float32, "float64": np.float64}.get(dtype.name)
        raw = np.array([number], kind if kind else np.float32)
        data = raw.tobytes() if kind else (raw.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return int.from_bytes(data.ljust(8, b"\0"), "little")
    return int(number)


def run_twin(kernel: Kernel, grid: Sequence[int], arguments: Sequence[Any]) -> None:
    """Run the twin of a block kernel; arrays are changed in place."""
    verify(kernel)
    run_thread_kernel(lower(kernel, "sm_90a"), grid, arguments, [p.type.element for p in kernel.params])


def compare(kernel: Kernel, grid: Sequence[int], arguments: Sequence[Any], **close: Any) -> list[Any]:
    """Run interpreter and twin; equal bits, or close where tolerances are given.  The twin's arrays."""
    first, second = ([a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2))
    memory = BlockMemory()
    interpret(kernel, grid, [memory.add(a) if isinstance(a, np.ndarray) else a for a in first], memory)
    run_twin(kernel, grid, second)
    for a, b in zip(first, second, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(b, a, **close) if close else np.testing.assert_array_equal(b, a)
    return [b for b in second if isinstance(b, np.ndarray)]
