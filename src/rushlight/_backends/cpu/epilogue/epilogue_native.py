"""Calls the kernel of an epilogue on a rectangle of complete sums, or that of a prologue on a rectangle of an operand,
in the native language.

The kernel is built by `rectangle.py`. Its words follow those of the product from `ints[AFTER]` on, in the order of
`E_...`. After them come, for each array that it touches, a word of the product's call, the bytes to its first element,
from one row and one column to the next, and from one matrix to the next in each dim of the batch; then the sizes of
these dims; then the kernel's own constants.
"""

from __future__ import annotations

from rushlight._backends.cpu.runtime.stub_native import F_CODE, F_DIM, F_SIZE, F_VALUE, HEADER
from rushlight._native import call_ptr, extern, i32, i64, memcpy, native, stack

__all__ = ["AFTER", "E_DIMS", "E_HEAD", "MOST_WORDS", "run_epilogue"]

AFTER = 28  # the word of a product that holds the offset of these words
# The kernel's address, the numbers of its constants, arrays and numbers, the call's word of the first number, the slots
# of rows, columns and the sums' pitch, and the number of dims of the batch.
E_KERNEL, E_WORDS, E_ARRAYS, E_NUMBERS, E_FIRST, E_ROWS, E_COLUMNS, E_PITCH, E_DIMS = range(9)
E_HEAD = 9
E_ARRAY = 4  # words of an array before those of the batch
MOST_WORDS = 96  # constants of a kernel
CALL_WORDS = 64  # words of a call: the record of a failure, sums, arrays, numbers

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


@native("i32(ptr, ptr, i64, ptr, i64, i64, i64, i64, i64, i64)")
def run_epilogue(bufs, given, piece, sums, pitch, batch, row, column, rows, columns):
    """Run the kernel with the words `given` on `rows` x `columns` sums, `pitch` apart, of matrix `batch` from `row`
    and `column` on.

    A prologue runs in the same way; `sums` is the memory that it writes.
    """
    own = stack(8 * CALL_WORDS) + 8 * HEADER
    for k in range(HEADER):
        own.i64[-1 - k] = 0
    own.i64[F_CODE] = -1
    own.ptr[0] = sums
    dims, count, numbers, first = given.i64[E_DIMS], given.i64[E_ARRAYS], given.i64[E_NUMBERS], given.i64[E_FIRST]
    arrays = given + 8 * E_HEAD
    sizes = arrays + 8 * (E_ARRAY + dims) * count
    for k in range(count):
        array = arrays + 8 * (E_ARRAY + dims) * k
        at = array.i64[1] + row * array.i64[2] + column * array.i64[3]
        rest = batch
        d = dims - 1
        while d >= 0:
            at += rest % sizes.i64[d] * array.i64[E_ARRAY + d]
            rest = rest // sizes.i64[d]
            d -= 1
        own.ptr[1 + k] = bufs.ptr[array.i64[0]] + at
    for k in range(numbers):
        own.i64[1 + count + k] = bufs.i64[first + k]
    words = stack(8 * MOST_WORDS)
    memcpy(words, sizes + 8 * dims, 8 * given.i64[E_WORDS])
    words.i64[given.i64[E_ROWS]] = rows
    words.i64[given.i64[E_COLUMNS]] = columns
    words.i64[given.i64[E_PITCH]] = pitch
    status = call_ptr("i32(ptr, ptr, i64)", given.ptr[E_KERNEL], own, words, i64(0))
    if status != 0:
        return rl_fail(bufs, piece, own.i64[F_CODE], own.i64[F_VALUE], own.i64[F_DIM], own.i64[F_SIZE])
    return i32(0)
