"""Intrinsics of the native language: memory, atomics, bit tricks and machine instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._native.types import Signature, Type, f32, f64, i1, i64, ptr, u8, u32, u64, void

__all__ = [
    "Intrinsic", "atomic_add", "atomic_cas", "atomic_load", "atomic_store", "atomic_xchg", "bits", "bitcast", "bswap",
    "call_ptr", "ceil", "clz", "copysign", "ctz", "fence", "float_control", "floor", "fma", "funnel_left", "isnan",
    "load", "memcpy", "memmove", "memset", "mulhi", "pause", "popcount", "prefetch", "rint", "sdiv", "select",
    "set_bytes", "set_float_control", "sqrt", "srem", "stack", "store", "store_chosen", "store_places", "subtract_products", "ticks", "trap", "trunc",
    "unlikely",
]  # fmt: skip


class Intrinsic:
    """A built-in of the native language; `emit(compiler, args)` writes it out."""

    __slots__ = ("doc", "emit", "name")

    def __init__(self, name: str, emit: Callable[[Any, list[Any]], Any], doc: str) -> None:
        self.name, self.emit, self.doc = name, emit, doc

    def __repr__(self) -> str:
        return f"<native intrinsic {self.name}>"

    def __call__(self, *args: object) -> Any:
        raise TypeError(f"{self.name} is callable only inside a @native function")


def _intrinsic(count: int) -> Callable[[Callable[[Any, list[Any]], Any]], Any]:
    """Make an `Intrinsic` of `count` arguments (-1: any number)."""

    def decorate(emit: Callable[[Any, list[Any]], Any]) -> Any:
        name = emit.__name__

        def checked(c: Any, args: list[Any]) -> Any:
            if count >= 0 and len(args) != count:
                c.fail(f"{name} takes {count} arguments: {emit.__doc__}")
            return emit(c, args)

        return Intrinsic(name, checked, emit.__doc__ or "")

    return decorate


def _type(c: Any, value: Any) -> Type:
    if not isinstance(value, Type):
        c.fail(f"expected a type, found {value!r}")
    return value


# ***** memory *****


@_intrinsic(3)
def load(c: Any, args: list[Any]) -> Any:
    """load(T, p, i): element i of the array of T at p; p.f32[i] for a fixed type."""
    t = _type(c, args[0])
    return c.load(t, c.offset(c.typed(args[1], ptr), t, args[2]))


@_intrinsic(4)
def store(c: Any, args: list[Any]) -> Any:
    """store(T, p, i, v): set element i of the array of T at p; p.f32[i] = v for a fixed type."""
    t = _type(c, args[0])
    c.store(t, c.offset(c.typed(args[1], ptr), t, args[2]), args[3])


@_intrinsic(1)
def stack(c: Any, args: list[Any]) -> Any:
    """stack(nbytes): uninitialised memory of constant size, alive until the function returns, aligned to 64."""
    if not isinstance(args[0], int) or args[0] <= 0:
        c.fail("the size given to stack must be a positive constant")
    c.count += 1
    c.entry.append(f"  %stack.{c.count} = alloca [{args[0]} x i8], align 64")
    return c.value(ptr, f"%stack.{c.count}")


def _memory(name: str) -> Callable[[Any, list[Any]], Any]:
    def emit(c: Any, args: list[Any]) -> Any:
        second, type_ = ("i8", u8) if name == "memset" else ("ptr", ptr)
        suffix = "p0.i64" if name == "memset" else "p0.p0.i64"
        a, b, n = c.typed(args[0], ptr), c.typed(args[1], type_), c.typed(args[2], i64)
        c.emit(c.intrinsic(f"llvm.{name}.{suffix}", "void", f"ptr, {second}, i64, i1", f"{a}, {b}, {n}, i1 false"))

    emit.__name__ = name
    emit.__doc__ = f"{name}(p, {'byte' if name == 'memset' else 'q'}, nbytes), as in C."
    return emit


memcpy, memmove, memset = (_intrinsic(3)(_memory(n)) for n in ("memcpy", "memmove", "memset"))


@_intrinsic(1)
def prefetch(c: Any, args: list[Any]) -> Any:
    """prefetch(p): ask for the cache line at p."""
    c.emit(
        c.intrinsic("llvm.prefetch.p0", "void", "ptr, i32, i32, i32", f"{c.typed(args[0], ptr)}, i32 0, i32 3, i32 1")
    )


@_intrinsic(1)
def set_bytes(c: Any, args: list[Any]) -> Any:
    """set_bytes(p): one bit for each of the 64 bytes at p, as u64: whether the byte is not zero."""
    p = c.typed(args[0], ptr)
    c.count += 1
    n = c.count
    c.emit(f"%bytes.{n} = load <64 x i8>, {p}, align 1")
    c.emit(f"%set.{n} = icmp ne <64 x i8> %bytes.{n}, zeroinitializer")
    return c.op(u64, f"bitcast <64 x i1> %set.{n} to i64")


def _chosen(c: Any, lanes: int, element: str, value: str, mask: Any, target: Any) -> None:
    """Store the lanes of a vector whose bit is set, one after another, then whatever."""
    n, vector = c.count, f"<{lanes} x {element}>"
    c.emit(f"%few.{n} = trunc {mask} to i{lanes}" if lanes < 64 else f"%few.{n} = add {mask}, 0")
    c.emit(f"%lanes.{n} = bitcast i{lanes} %few.{n} to <{lanes} x i1>")
    words = f"{vector}, <{lanes} x i1>, {vector}"
    name = f"llvm.experimental.vector.compress.v{lanes}{element}"
    call = c.intrinsic(name, vector, words, f"{vector} {value}, <{lanes} x i1> %lanes.{n}, {vector} poison")
    c.emit(f"%chosen.{n} = {call}")
    c.emit(f"store {vector} %chosen.{n}, {target}, align 1")


@_intrinsic(4)
def store_chosen(c: Any, args: list[Any]) -> Any:
    """store_chosen(T, p, q, bits): of the 64 bytes of elements at q those whose bit is set go to p; the rest of 64
    bytes there is overwritten.
    """
    t, p, q, mask = _type(c, args[0]), c.typed(args[1], ptr), c.typed(args[2], ptr), c.typed(args[3], u64)
    c.count += 1
    lanes = 64 // t.itemsize
    c.emit(f"%from.{c.count} = load <{lanes} x {t.llvm}>, {q}, align 1")
    _chosen(c, lanes, t.llvm, f"%from.{c.count}", mask, p)


@_intrinsic(3)
def store_places(c: Any, args: list[Any]) -> Any:
    """store_places(p, first, bits): first + k for each of 8 bits that is set, as i64; the rest of 64 bytes there is
    overwritten.
    """
    p, first, mask = c.typed(args[0], ptr), c.typed(args[1], i64), c.typed(args[2], u64)
    c.count += 1
    n = c.count
    c.emit(f"%one.{n} = insertelement <8 x i64> poison, {first}, i64 0")
    c.emit(f"%all.{n} = shufflevector <8 x i64> %one.{n}, <8 x i64> poison, <8 x i32> zeroinitializer")
    c.emit(f"%places.{n} = add <8 x i64> %all.{n}, <" + ", ".join(f"i64 {k}" for k in range(8)) + ">")
    _chosen(c, 8, "i64", f"%places.{n}", mask, p)


@_intrinsic(4)
def subtract_products(c: Any, args: list[Any]) -> Any:
    """subtract_products(T, p, q, r): the 64 bytes of floats at p become p - q * r, element by element, each rounded
    twice.
    """
    t, *places = _type(c, args[0]), *(c.typed(a, ptr) for a in args[1:])
    c.count += 1
    n, vector = c.count, f"<{64 // t.itemsize} x {t.llvm}>"
    for name, p in zip("pqr", places, strict=True):
        c.emit(f"%{name}.{n} = load {vector}, {p}, align {t.itemsize}")
    c.emit(f"%product.{n} = fmul {vector} %q.{n}, %r.{n}")
    c.emit(f"%rest.{n} = fsub {vector} %p.{n}, %product.{n}")
    c.emit(f"store {vector} %rest.{n}, {places[0]}, align {t.itemsize}")


# ***** atomics, all sequentially consistent *****


def _atomic_address(c: Any, args: list[Any]) -> tuple[Type, Any]:
    t = _type(c, args[0])
    if not (t.is_int or t is ptr):
        c.fail(f"no atomic operations on {t}")
    return t, c.offset(c.typed(args[1], ptr), t, args[2])


@_intrinsic(3)
def atomic_load(c: Any, args: list[Any]) -> Any:
    """atomic_load(T, p, i)"""
    t, address = _atomic_address(c, args)
    return c.op(t, f"load atomic {t.llvm}, {address} seq_cst, align {t.itemsize}")


@_intrinsic(4)
def atomic_store(c: Any, args: list[Any]) -> Any:
    """atomic_store(T, p, i, v)"""
    t, address = _atomic_address(c, args)
    c.emit(f"store atomic {c.typed(args[3], t)}, {address} seq_cst, align {t.itemsize}")


@_intrinsic(4)
def atomic_add(c: Any, args: list[Any]) -> Any:
    """atomic_add(T, p, i, v): the value before."""
    t, address = _atomic_address(c, args)
    return c.op(t, f"atomicrmw add {address}, {c.typed(args[3], t)} seq_cst")


@_intrinsic(4)
def atomic_xchg(c: Any, args: list[Any]) -> Any:
    """atomic_xchg(T, p, i, v): store v, return the value before."""
    t, address = _atomic_address(c, args)
    return c.op(t, f"atomicrmw xchg {address}, {c.typed(args[3], t)} seq_cst")


@_intrinsic(5)
def atomic_cas(c: Any, args: list[Any]) -> Any:
    """atomic_cas(T, p, i, expected, v): store v if the element equals expected; the value before."""
    t, address = _atomic_address(c, args)
    c.count += 1
    c.emit(f"%cas{c.count} = cmpxchg {address}, {c.typed(args[3], t)}, {c.typed(args[4], t)} seq_cst seq_cst")
    return c.op(t, f"extractvalue {{ {t.llvm}, i1 }} %cas{c.count}, 0")


@_intrinsic(0)
def fence(c: Any, args: list[Any]) -> Any:
    """fence(): a full memory barrier."""
    c.emit("fence seq_cst")


@_intrinsic(0)
def pause(c: Any, args: list[Any]) -> Any:
    """pause(): tell the processor that this is a spin loop."""
    if c.arch in ("x86_64", "i686", "i386"):
        c.emit(c.intrinsic("llvm.x86.sse2.pause", "void", "", ""))
    elif c.arch in ("aarch64", "arm64"):
        c.emit(c.intrinsic("llvm.aarch64.hint", "void", "i32", "i32 1"))


# ***** integers *****


@_intrinsic(2)
def sdiv(c: Any, args: list[Any]) -> Any:
    """sdiv(a, b): integer quotient rounded towards zero (C's /)."""
    a, b = c.pair(*args)
    return c.op(a.type, f"{'sdiv' if a.type.kind == 'i' else 'udiv'} {a}, {b.text}")


@_intrinsic(2)
def srem(c: Any, args: list[Any]) -> Any:
    """srem(a, b): rest with the sign of a (C's %); on floats C's fmod."""
    a, b = c.pair(*args)
    return c.op(a.type, f"{'frem' if a.type.is_float else 'srem' if a.type.kind == 'i' else 'urem'} {a}, {b.text}")


@_intrinsic(2)
def mulhi(c: Any, args: list[Any]) -> Any:
    """mulhi(a, b): the upper half of the double-width product."""
    a, b = c.pair(*args)
    t, n = a.type, a.type.bits
    if not t.is_int:
        c.fail(f"mulhi is for integers, not {t}")
    word = "sext" if t.kind == "i" else "zext"
    wide = [c.op(t, f"{word} {v} to i{2 * n}").text for v in (a, b)]
    product = c.op(t, f"mul i{2 * n} {wide[0]}, {wide[1]}").text
    high = c.op(t, f"lshr i{2 * n} {product}, {n}").text
    return c.op(t, f"trunc i{2 * n} {high} to {t.llvm}")


@_intrinsic(3)
def funnel_left(c: Any, args: list[Any]) -> Any:
    """funnel_left(a, b, n): the upper half of (a:b) << n; with a = b a rotation."""
    a, b = c.pair(args[0], args[1])
    n = c.typed(args[2], a.type)
    t = a.type.llvm
    return c.op(a.type, c.intrinsic(f"llvm.fshl.{t}", t, f"{t}, {t}, {t}", f"{a}, {b}, {n}"))


def _bit_intrinsic(name: str, llvm: str, extra: str, doc: str) -> Any:
    def emit(c: Any, args: list[Any]) -> Any:
        x = c.natural(args[0])
        if not x.type.is_int:
            c.fail(f"{name} is for integers, not {x.type}")
        t = x.type.llvm
        return c.op(x.type, c.intrinsic(f"llvm.{llvm}.{t}", t, t + (", i1" if extra else ""), f"{x}{extra}"))

    emit.__name__, emit.__doc__ = name, doc
    return _intrinsic(1)(emit)


popcount = _bit_intrinsic("popcount", "ctpop", "", "popcount(x): number of set bits.")
clz = _bit_intrinsic("clz", "ctlz", ", i1 false", "clz(x): leading zero bits; the width for 0.")
ctz = _bit_intrinsic("ctz", "cttz", ", i1 false", "ctz(x): trailing zero bits; the width for 0.")
bswap = _bit_intrinsic("bswap", "bswap", "", "bswap(x): bytes reversed (16 bits and more).")


# ***** floats *****


def _float_intrinsic(name: str, llvm: str, count: int, doc: str) -> Any:
    def emit(c: Any, args: list[Any]) -> Any:
        known = next((a for a in args if hasattr(a, "type")), None)
        values = [c.typed(a, known.type) if known is not None else c.constant(a, f64) for a in args]
        t = values[0].type
        if not t.is_float:
            c.fail(f"{name} is for floats, not {t}")
        words = ", ".join([t.llvm] * count)
        return c.op(t, c.intrinsic(f"llvm.{llvm}.f{t.bits}", t.llvm, words, ", ".join(map(str, values))))

    emit.__name__, emit.__doc__ = name, doc
    return _intrinsic(count)(emit)


sqrt = _float_intrinsic("sqrt", "sqrt", 1, "sqrt(x)")
floor = _float_intrinsic("floor", "floor", 1, "floor(x), a float")
ceil = _float_intrinsic("ceil", "ceil", 1, "ceil(x), a float")
trunc = _float_intrinsic("trunc", "trunc", 1, "trunc(x), a float rounded towards zero")
rint = _float_intrinsic("rint", "rint", 1, "rint(x), half to even")
copysign = _float_intrinsic("copysign", "copysign", 2, "copysign(x, y)")
fma = _float_intrinsic("fma", "fma", 3, "fma(a, b, c): a * b + c rounded once")


@_intrinsic(1)
def isnan(c: Any, args: list[Any]) -> Any:
    """isnan(x)"""
    x = c.natural(args[0])
    return c.op(i1, f"fcmp uno {x}, {x.text}")


@_intrinsic(1)
def bits(c: Any, args: list[Any]) -> Any:
    """bits(x): the representation of an f32 as u32, of an f64 as u64."""
    x = c.natural(args[0])
    if not x.type.is_float:
        c.fail(f"bits is for floats, not {x.type}")
    to = u32 if x.type is f32 else u64
    return c.op(to, f"bitcast {x} to {to.llvm}")


@_intrinsic(2)
def bitcast(c: Any, args: list[Any]) -> Any:
    """bitcast(T, x): the bits of x read as T, which has the same size."""
    t, x = _type(c, args[0]), c.natural(args[1])
    if t.bits != x.type.bits or ptr in (t, x.type):
        c.fail(f"cannot bitcast {x.type} to {t}")
    return c.op(t, f"bitcast {x} to {t.llvm}")


# ***** control *****


@_intrinsic(3)
def select(c: Any, args: list[Any]) -> Any:
    """select(condition, a, b): a or b without a branch; both are evaluated."""
    condition = c.truth(args[0])
    a, b = c.pair(args[1], args[2])
    return c.op(a.type, f"select {condition}, {a}, {b}")


@_intrinsic(1)
def unlikely(c: Any, args: list[Any]) -> Any:
    """unlikely(condition): the condition, expected to be false."""
    return c.op(i1, c.intrinsic("llvm.expect.i1", "i1", "i1, i1", f"{c.truth(args[0])}, i1 false"))


@_intrinsic(-1)
def call_ptr(c: Any, args: list[Any]) -> Any:
    """call_ptr("i32(ptr, i64)", f, ...): call the function whose address is f."""
    if len(args) < 2 or not isinstance(args[0], str):
        c.fail('write call_ptr("i32(ptr, i64)", f, ...)')
    return c.call(c.typed(args[1], ptr).text, Signature(args[0]), args[2:])


@_intrinsic(0)
def float_control(c: Any, args: list[Any]) -> Any:
    """float_control(): the thread's floating point control word, as u64 (MXCSR, FPCR; 0 elsewhere)."""
    if c.arch == "x86_64":
        c.count += 1
        c.entry.append(f"  %control.{c.count} = alloca i32")
        p = f"%control.{c.count}"
        c.emit(c.intrinsic("llvm.x86.sse.stmxcsr", "void", "ptr", f"ptr {p}"))
        return c.cast(c.op(u32, f"load i32, ptr {p}"), u64)
    if c.arch in ("aarch64", "arm64"):
        return c.op(u64, c.intrinsic("llvm.aarch64.get.fpcr", "i64", "", ""))
    return c.value(u64, "0")


@_intrinsic(1)
def set_float_control(c: Any, args: list[Any]) -> Any:
    """set_float_control(word): set what float_control() reads."""
    word = c.typed(args[0], u64)
    if c.arch == "x86_64":
        c.count += 1
        c.entry.append(f"  %control.{c.count} = alloca i32")
        p = f"%control.{c.count}"
        c.emit(f"store {c.cast(word, u32)}, ptr {p}")
        c.emit(c.intrinsic("llvm.x86.sse.ldmxcsr", "void", "ptr", f"ptr {p}"))
    elif c.arch in ("aarch64", "arm64"):
        c.emit(c.intrinsic("llvm.aarch64.set.fpcr", "void", "i64", f"{word}"))


@_intrinsic(0)
def ticks(c: Any, args: list[Any]) -> Any:
    """ticks(): a counter of the processor that runs at a steady rate, as i64; 0 where none is known."""
    if c.arch == "x86_64":
        return c.op(i64, c.intrinsic("llvm.readcyclecounter", "i64", "", ""))
    if c.arch in ("aarch64", "arm64"):
        return c.op(i64, c.intrinsic("llvm.readsteadycounter", "i64", "", ""))
    return c.value(i64, "0")


@_intrinsic(0)
def trap(c: Any, args: list[Any]) -> Any:
    """trap(): stop the process; for states that cannot be."""
    c.emit(c.intrinsic("llvm.trap", "void", "", ""))
    return c.value(void, "")
