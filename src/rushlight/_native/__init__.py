"""A typed, restricted Python that compiles to machine code: for the sequential kernels and the runtime itself.

    >>> from rushlight._native import f32, i64, native
    >>> @native("f32(ptr, i64)")
    ... def total(p, n):
    ...     s = f32(0)
    ...     for i in range(n):
    ...         s += p.f32[i]
    ...     return s

`rushlight._host.stubs.bind(total)` compiles it (or takes it from the disk cache) and returns a built-in
function that Python calls in some 50 ns; `rushlight._native.jit` gives its plain address.

**Types**: i1 i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 ptr, and void as a result.  Nothing is promoted: both sides of an
operator have one type, and `T(x)` casts (C's rules).  Constants adapt to the other side; alone they are i64, f64, i1.
A variable gets its type from its first assignment, or from `x: u32 = 0`, and keeps it.  Integers wrap.

**Statements**: assignment (also `a, b = b, a` and augmented), `if`/`elif`/`else`, `while`, `for i in range(a, b,
CONST)`, `break`, `continue`, `return`, `pass`, calls, a docstring.

**Expressions**: `+ - * / // % << >> & | ^ ~`, comparisons (chained too), `and or not` (short-circuit), `x if c else y`,
`min(a, b)`, `max(a, b)`, `abs(x)`.  `//` and `%` round down as in Python (`sdiv`, `srem` are C's); `/` is for floats.
A shift by the width or more, an integer division by zero and a float too large for a cast to an integer are undefined.

**Memory**: `p.f32[i]` loads and stores element i; `load(T, p, i)` and `store(T, p, i, v)` do it for a type T that is a
name; an i1 in memory is a byte.  `p + n` moves a ptr by n bytes, `p - q` is an i64, `None` is the null pointer (`p is
None`). `stack(64)` is local memory; `static("name", nbytes)` declares zeroed memory of the unit at module level.

**Records**: `PAIR = Record("pair", ("size", i64, "in bytes"), ...)` names and types the words of a block of memory;
`p[PAIR.size]` reads or writes one of them with its type.  `p[R.items]` is the address of a list, or of a record within
(see `Record`).

**Calls**: other native functions, `extern("log", "f64(f64)")` (a C function declared at module level, `...` for
varargs), `call_ptr("i32(ptr)", f, p)` through a pointer, and the intrinsics of `intrinsics.py`: atomic_load/store/add/
xchg/cas, fence, pause, memcpy, memmove, memset, prefetch, set_bytes, store_chosen, store_places, subtract_products,
mulhi, funnel_left, popcount, clz, ctz, bswap, sdiv, srem, sqrt, floor, ceil, trunc, rint, fma, copysign, isnan, bits,
bitcast, select, unlikely, trap, float_control, set_float_control.  A native function's name, a string and
`extern_data("PyExc_ValueError")` are pointers where a ptr is expected.

**Compile time**: module-level and closure ints, floats, strings and types are constants; an `if` on such
(`if T is f32`, `if T.is_float`) drops the other arm, so one function made in a factory serves many types:

    >>> def make_fill(T):
    ...     @native("void(ptr, i64, f64)", name=f"fill_{T}")
    ...     def fill(p, n, value):
    ...         for i in range(n):
    ...             store(T, p, i, T(value))
    ...     return fill

Anything else raises `NativeError` with the line.  There are no objects, no exceptions and no bounds checks.
"""

from __future__ import annotations

from rushlight._native.function import NativeFunction, native
from rushlight._native.intrinsics import (
    Intrinsic,
    atomic_add,
    atomic_cas,
    atomic_load,
    atomic_store,
    atomic_xchg,
    bitcast,
    bits,
    bswap,
    call_ptr,
    ceil,
    clz,
    copysign,
    ctz,
    fence,
    float_control,
    floor,
    fma,
    funnel_left,
    isnan,
    load,
    memcpy,
    memmove,
    memset,
    mulhi,
    pause,
    popcount,
    prefetch,
    rint,
    sdiv,
    select,
    set_bytes,
    set_float_control,
    sqrt,
    srem,
    stack,
    store,
    store_chosen,
    store_places,
    subtract_products,
    ticks,
    trap,
    trunc,
    unlikely,
)
from rushlight._native.types import (
    TYPES,
    Extern,
    ExternData,
    Field,
    Listed,
    Record,
    Signature,
    Static,
    Type,
    Words,
    extern,
    extern_data,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    listed,
    ptr,
    pyobject,
    static,
    u8,
    u16,
    u32,
    u64,
    void,
)

__all__ = [
    "TYPES", "Extern", "ExternData", "Field", "Intrinsic", "Listed", "NativeFunction", "Record", "Signature", "Static", "Type", "Words", "atomic_add",
    "atomic_cas", "atomic_load", "atomic_store", "atomic_xchg", "bitcast", "bits", "bswap", "call_ptr", "ceil", "clz",
    "copysign", "ctz", "extern", "extern_data", "f32", "f64", "fence", "float_control", "floor", "fma", "funnel_left",
    "i1", "i8", "i16", "i32", "i64", "isnan", "listed", "load", "memcpy", "memmove", "memset", "mulhi", "native", "pause",
    "popcount", "prefetch", "ptr", "pyobject", "rint", "sdiv", "select", "set_bytes", "set_float_control", "sqrt", "srem", "stack", "static",
    "store", "store_chosen", "store_places", "subtract_products", "ticks", "trap", "trunc", "u8", "u16", "u32", "u64", "unlikely", "void",
]  # fmt: skip
