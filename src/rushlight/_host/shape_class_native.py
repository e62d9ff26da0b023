"""Shape classes in the native language: call keys without the values of sizes (see `_engine.dispatch.plans.shape_classes`)."""

from __future__ import annotations

from rushlight._host.dispatch_words import (
    FLOAT,
    HOST,
    INT,
    ITEMS,
    ROOM,
    SIZE,
    SPEC,
    SPEC_CONJ,
    SPEC_CONTIGUOUS,
    SPEC_DEVICE,
    SPEC_DTYPE,
    SPEC_PLAIN,
    SPEC_RELEASED,
    SPEC_SHAPE,
    SPEC_STRIDES,
    TENSORS,
    TUPLE,
)
from rushlight._host.python_native import Py_IncRef, Py_True, PyTuple_New, PyTuple_SetItem, sequence_items, small_int
from rushlight._native import i64, native, ptr, stack
from rushlight._types.shape_env import FOLLOWS, LEAST

__all__ = ["describe", "shape_class_words", "specs_in"]


@native("i64(i64, ptr)")
def size_code(value, sizes):
    """A size from LEAST on as its index in `sizes` (count, capacity, sizes), smaller ones as they are.

    -1 where there is no room for another.
    """
    if value < LEAST:
        return value
    count = sizes.i64[0]
    for k in range(count):
        if sizes.i64[2 + k] == value:
            return k + LEAST
    if count == sizes.i64[1]:
        return -1
    sizes.i64[2 + count] = value
    sizes.i64[0] = count + 1
    return count + LEAST


@native("i64(ptr, ptr, i64)")
def followed(shape, strides, step):
    """The last dim whose size times stride is this stride; -1 where there is none."""
    found: i64 = -1
    for d in range(shape.i64[2]):
        n, each = small_int(sequence_items(shape).ptr[d]), small_int(sequence_items(strides).ptr[d])
        if n > 1 and each * n == step:
            found = d
    return found


@native("i64(ptr, ptr, i64, i64, ptr)")
def describe(spec, out, n, room, sizes):
    """Write a spec without the values of its sizes, which go to `sizes`.  Returns the number of words so far, -1 where
    there is no room.

    A dtype and a device; for every dim the code of its size; whether strides are those of a row-major tensor, and the
    flags `conj` and `released`.  Where strides are others, for every dim the code of its stride, or FOLLOWS and the dim
    whose size times stride it is.
    """
    shape, strides = spec.ptr[HOST.i64[SPEC_SHAPE] >> 3], spec.ptr[HOST.i64[SPEC_STRIDES] >> 3]
    count = shape.i64[2]
    if n + 2 * count + 3 > room:
        return -1
    out.ptr[n] = spec.ptr[HOST.i64[SPEC_DTYPE] >> 3]
    out.ptr[n + 1] = spec.ptr[HOST.i64[SPEC_DEVICE] >> 3]
    n += 2
    for d in range(count):
        code = size_code(small_int(sequence_items(shape).ptr[d]), sizes)
        if code < 0:
            return -1
        out.i64[n] = code
        n += 1
    plain = spec.ptr[HOST.i64[SPEC_PLAIN] >> 3] == Py_True
    how = (
        i64(spec.ptr[HOST.i64[SPEC_RELEASED] >> 3] == Py_True) << 3
        | i64(plain) << 2
        | i64(spec.ptr[HOST.i64[SPEC_CONTIGUOUS] >> 3] == Py_True) << 1
        | i64(spec.ptr[HOST.i64[SPEC_CONJ] >> 3] == Py_True)
    )
    out.i64[n] = -1 - how
    n += 1
    if plain:
        return n
    for d in range(count):
        step = small_int(sequence_items(strides).ptr[d])
        other: i64 = -1
        if step >= LEAST:
            other = followed(shape, strides, step)
        code = FOLLOWS + other if other >= 0 else size_code(step, sizes)
        if code < 0:
            return -1
        out.i64[n] = code
        n += 1
    return n


@native("i64(i64)", inline=True)
def is_spec(word):
    """Whether a word of a key is the address of a spec."""
    return i64((word & 14) == SPEC and word > 255)


@native("i64(i64)", inline=True)
def has_value(word):
    """Whether a value follows a word of a key."""
    return i64(word == INT or word == FLOAT or word == TUPLE or word == ITEMS or word == TENSORS)


@native("i64(i64, ptr, i64, ptr, ptr)")
def shape_class_words(sized, words, n, out, sizes):
    """Write a key without sizes, which go to `sizes`: those of specs and, if `sized`, ints.  Returns the number of
    words, or -1.
    """
    out.i64[0] = words.i64[0]
    out.i64[1] = words.i64[1]
    sizes.i64[0] = 0
    m: i64 = 2
    k: i64 = 2
    while k < n and m >= 0:
        word = words.i64[k]
        k += 1
        if m + 4 > ROOM:
            m = -1
        elif is_spec(word) != 0:
            out.i64[m] = word & 3
            m = describe(ptr(word & -4), out, m + 1, ROOM, sizes)
        else:
            out.i64[m] = word
            m += 1
            if has_value(word) != 0:
                value = words.i64[k]
                k += 1
                if sized == 0 or word != INT or value < LEAST:
                    out.i64[m] = value
                    m += 1
                else:
                    out.i64[m - 1] = SIZE
                    out.i64[m] = size_code(value, sizes)
                    m = m + 1 if out.i64[m] >= 0 else i64(-1)
    return m


@native("ptr(ptr, i64)")
def specs_in(words, n):
    """The specs in a key, as a tuple; null with an exception set."""
    found = stack(8 * ROOM)
    count: i64 = 0
    k: i64 = 2
    while k < n:
        word = words.i64[k]
        k += 1 + has_value(word)
        if is_spec(word) != 0 and count < ROOM:
            found.ptr[count] = ptr(word & -4)
            count += 1
    out = PyTuple_New(count)
    if out is not None:
        for j in range(count):
            Py_IncRef(found.ptr[j])
            PyTuple_SetItem(out, j, found.ptr[j])
    return out
