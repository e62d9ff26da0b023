"""The common part of optimizers' steps over many parameters: the loop over rows, and counting.

A call gets a table with one row for each parameter: the words that a kernel expects as its buffers, then the address of
its constants.  The update of a row's elements is the kernel's (`rushlight._engine.dispatch.multi_tensor.Rule`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.kernels import kernel_address
from rushlight._backends.cpu.program.steps import KernelStep
from rushlight._backends.cpu.runtime.stubs import bind, make_kernel_callable, native_address
from rushlight._native import call_ptr, f32, f64, load, native
from rushlight._native import ptr as ptr_type

if TYPE_CHECKING:
    from rushlight._backends.cpu.program.steps import Program

__all__ = ["PIECES_AT", "PIECE_WORDS", "counting", "element_kernel", "update_rows"]

PIECES_AT = 8  # words before the pieces of a call, which are: first row, end row, part of their elements
PIECE_WORDS = 3
SLOTS = 2  # the last constants of a kernel: the size, the elements of a part


@native("i32(ptr, ptr, i64)")
def rl_update_rows(bufs, ints, piece):
    """Buffers: the table, the kernel, the number of the kernel's buffers."""
    table = load(ptr_type, bufs, 0)
    kernel = load(ptr_type, bufs, 1)
    buffers = bufs.i64[2]
    work = ints + (PIECES_AT + piece * PIECE_WORDS) * 8
    row = table + work.i64[0] * (buffers + 1) * 8
    end = table + work.i64[1] * (buffers + 1) * 8
    while row < end:
        status = call_ptr("i32(ptr, ptr, i64)", kernel, row, load(ptr_type, row, buffers), work.i64[2])
        if status != 0:
            return status
        row += (buffers + 1) * 8
    return 0


@native("void(ptr, ptr, i64)")
def rl_count_steps(counters, values, n):
    """Add one to each counter (an address of one float32), and store the new values."""
    for i in range(n):
        counter = load(ptr_type, counters, i)
        step = counter.f32[0] + f32(1.0)
        counter.f32[0] = step
        values.f64[i] = f64(step)


@cache
def counting() -> Callable[..., Any]:
    """`f(addresses of counters, address of the values, number of counters)`"""
    return bind(rl_count_steps)


@cache
def update_rows() -> Callable[..., Any]:
    """`f(constants, table, kernel, buffers of a row)`: see `rl_update_rows`."""
    return make_kernel_callable(native_address(rl_update_rows), rl_update_rows.symbol, rl_update_rows, 3)


def element_kernel(program: Callable[[int], Program]) -> int:
    """The address of the only kernel of a program over arrays of one dim and any size."""
    size = 1 << 20  # large enough to be divided into parts
    steps = program(size).steps
    first = steps[0]
    if (
        len(steps) != 1
        or not isinstance(first, KernelStep)
        or first.kernel.slot_values()[0] != size
        or len(first.kernel.slot_values()) != SLOTS
    ):
        raise AssertionError("a rule must change each element by itself")
    return kernel_address(first)
