"""Calls from Python into kernels and bound native functions."""

from __future__ import annotations

import ctypes
import gc
import math

import numpy as np
import pytest

from rushlight._backends.cpu.runtime import storage, threads
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.stubs import bind, load_kernel, make_kernel_callable, native_address
from rushlight._native import atomic_add, extern, f32, f64, i1, i8, i64, jit, llvm_compiler, native, objects, u8, u64
from rushlight._native.compiled import cached_object, compile_native
from rushlight._native.objectfiles import loader
from rushlight._native.target import host_target

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


def constants(pieces, outputs=(), extra=(), flags=0):
    """A Storage for `ints`, with the kernel's own words from 8 on."""
    head = [pieces, flags, len(outputs), *outputs]
    words = (ctypes.c_int64 * 32)(*(head + [0] * (8 - len(head)) + list(extra)))
    return storage.from_owner(ctypes.addressof(words), ctypes.sizeof(words), words)


@native("i32(ptr, ptr, i64)")
def add_kernel(bufs, ints, piece):
    """o = a + scale * b; a piece is ints[8] numbers."""
    o, a, b, scale = bufs.ptr[0], bufs.ptr[1], bufs.ptr[2], f32(bufs.f64[3])
    n = ints.i64[8]
    for i in range(piece * n, piece * n + n):
        o.f32[i] = a.f32[i] + scale * b.f32[i]
    return 0


@native("i32(ptr, ptr, i64)")
def two_outputs(bufs, ints, piece):
    bufs.ptr[0].i64[0] = bufs.i64[2] + 1
    bufs.ptr[1].f64[0] = bufs.f64[3] * 2
    return 0


@native("i32(ptr, ptr, i64)")
def words_kernel(bufs, ints, piece):
    """Copies ints[8] words into the memory at the first one."""
    for i in range(ints.i64[8]):
        bufs.ptr[0].i64[i] = bufs.i64[i]
    return 0


@native("i32(ptr, ptr, i64)")
def checked_kernel(bufs, ints, piece):
    """Fails for index[piece] outside 0 .. ints[8]; counts the pieces that ran."""
    atomic_add(i64, bufs.ptr[1], 0, 1)
    v = bufs.ptr[0].i64[piece]
    if v < 0 or v >= ints.i64[8]:
        return rl_fail(bufs, piece, ints.i64[9], v, 2, ints.i64[8])
    return 0


def callable_of(kernel, words=-1):
    return make_kernel_callable(native_address(kernel), kernel.symbol, None, words)


def array_of(s, dtype):
    return np.frombuffer(s, dtype)


# ***** kernels *****


def test_a_kernel_allocates_its_output():
    k = callable_of(add_kernel)
    a, b = np.arange(40, dtype=np.float32), np.ones(40, dtype=np.float32)
    for pieces in (1, 4, 40):
        ints = constants(pieces, [160], [40 // pieces])
        out = k(ints, a.ctypes.data, b.ctypes.data, 0.5)
        np.testing.assert_array_equal(array_of(out, np.float32), a + np.float32(0.5))
        assert type(out) is storage.Storage and out.nbytes == 160


def test_arguments_may_be_storages():
    k = callable_of(add_kernel)
    a, b, o = storage.alloc(40), storage.alloc(40), storage.alloc_zeroed(40)
    array_of(a, np.float32)[:], array_of(b, np.float32)[:] = 3, 4
    ints = constants(1, [], [10])
    assert k(ints, o, a, b, 2.0) is None
    assert (array_of(o, np.float32) == 11).all()


def test_several_outputs():
    k = callable_of(two_outputs)
    a, b = k(constants(1, [8, 8]), 41, 1.25)
    assert array_of(a, np.int64)[0] == 42 and array_of(b, np.float64)[0] == 2.5


def test_every_kind_of_word():
    class Index:
        def __index__(self):
            return 12345

    values = [0, 1, -1, 5, 2**30 - 1, 2**30, 2**60 - 1, 2**60, -(2**63), 2**63 - 1, 2**64 - 1, True, False,
              None, 1.5, -0.0, math.nan,
              np.int64(-7), np.uint8(200), np.float64(2.5), np.float32(0.1), Index()]  # fmt: skip
    k, out = callable_of(words_kernel), (ctypes.c_int64 * 40)()
    k(constants(1, [], [len(values) + 1]), ctypes.addressof(out), *values)
    for got, value in zip(list(out)[1 : 1 + len(values)], values, strict=True):
        if isinstance(value, (float, np.floating)):
            want = ctypes.c_int64.from_buffer(ctypes.c_double(value)).value
        else:
            number = 0 if value is None else value.__index__()
            want = ctypes.c_int64(number).value
        assert got == want, value


def test_many_words():
    k = callable_of(words_kernel)
    for n in (54, 55, 56, 57, 300):
        out = (ctypes.c_int64 * n)()
        k(constants(1, [], [n]), ctypes.addressof(out), *range(1, n))
        assert list(out)[1:] == list(range(1, n))


def test_wrong_arguments():
    k = callable_of(add_kernel)
    ints = constants(1, [160], [40])
    address = ints.ptr
    gc.collect()  # what others left in cycles goes before it is counted
    live = storage.memory_stats()["live"]
    with pytest.raises(TypeError, match="an argument of a kernel must be an int, a float, a Storage or None, not str"):
        k(address, "a", 1)
    with pytest.raises(TypeError, match="not list"):
        k([1])
    with pytest.raises(OverflowError):
        k(address, 1 << 70, 1)
    with pytest.raises(TypeError, match="add_kernel takes 1 arguments, 0 given"):
        k()
    with pytest.raises(TypeError, match="not 0"):
        k(0, 1)
    with pytest.raises(TypeError, match="no keyword"):
        k(address, a=1)
    with pytest.raises(TypeError, match="cannot allocate 6 outputs"):
        k(constants(1, [64] * 6), 1)
    with pytest.raises(ValueError, match="negative number of bytes"):
        k(constants(1, [64, -5]), 1, 1)
    assert storage.memory_stats()["live"] == live, "outputs made before the error are given back"


def test_counted_arguments():
    k = callable_of(add_kernel, words=3)
    with pytest.raises(TypeError, match="add_kernel takes 4 arguments, 2 given"):
        k(constants(1, [160], [40]), 1)


def test_no_pieces_run_nothing():
    k, counter = callable_of(checked_kernel), np.zeros(1, np.int64)
    k(constants(0, [], [5, 0]), 0, counter.ctypes.data)
    assert counter[0] == 0


@pytest.mark.parametrize("flags", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_bad_index_is_an_error(flags, count):
    before = threads.get_num_threads()
    threads.set_num_threads(count)
    try:
        k = callable_of(checked_kernel)
        index, counter = np.zeros(1000, np.int64), np.zeros(1, np.int64)
        index[[100, 500, 900]] = 7, -3, 5
        for code, kind, text in (
            (0, IndexError, r"^index 7 is out of bounds for dimension 2 with size 5$"),
            (1, RuntimeError, r"^index 7 is out of bounds"),
            (2, IndexError, "^index out of range in self$"), (3, RuntimeError, "^ZeroDivisionError$"),
            (4, MemoryError, None),
            (17, RuntimeError, "code 17, value 7"),
        ):  # fmt: skip
            counter[:] = 0
            ints = constants(1000, [], [5, code], flags)
            with pytest.raises(kind, match=text):  # always the lowest piece's failure
                k(ints, index.ctypes.data, counter.ctypes.data)
            assert counter[0] >= 101
            assert count > 1 or counter[0] == 101, "what comes after a failure is not started"
        index[:] = 4
        counter[:] = 0
        assert k(constants(1000, [], [5, 0], flags), index.ctypes.data, counter.ctypes.data) is None
        assert counter[0] == 1000
    finally:
        threads.set_num_threads(before)


def test_code_is_unloaded_with_its_callable():
    class Probe:
        pass

    probe = Probe()
    import weakref

    alive = weakref.ref(probe)
    k = make_kernel_callable(native_address(add_kernel), "k", probe)
    del probe
    gc.collect()
    assert alive() is not None
    assert k.__name__ == "k"
    del k
    assert alive() is None


def test_kernels_from_llvm_text():
    text = """
    define i32 @triple(ptr %bufs, ptr %ints, i64 %piece) nounwind {
      %o = load ptr, ptr %bufs
      %p = getelementptr i64, ptr %bufs, i64 1
      %a = load i64, ptr %p
      %r = mul i64 %a, 3
      store i64 %r, ptr %o
      ret i32 0
    }"""
    for opt in llvm_compiler.OPT_LEVELS:
        k = load_kernel(cached_object(text, opt), "triple", words=1)
        assert array_of(k(constants(1, [8]), 14), np.int64)[0] == 42
    assert "@triple(" in jit.optimised_text(text)
    assert "triple:" in jit.compile_assembly(text)
    with pytest.raises(RuntimeError, match="expected"):
        jit.compile_object("define i32 @broken(")
    with pytest.raises(ValueError, match="unknown optimisation level"):
        jit.compile_object(text, "fast")
    with pytest.raises(RuntimeError, match=r"no_such_symbol|Failed to materialize"):
        jit.load(
            jit.compile_object(
                "declare void @no_such_symbol()\ndefine void @f() { call void @no_such_symbol() ret void }"
            ),
            ["f"],
        )


# ***** bound native functions *****


@native("f64(i8, u8, i64, u64, f32, f64, i1)")
def everything(a, b, c, d, e, f, g):
    return f64(a) + f64(b) + f64(c) + f64(d) + f64(e) + f + f64(g)


def identity(kind):
    @native(f"{kind}({kind})", name=f"identity_{kind}")
    def same(x):
        return x

    return bind(same)


@native("ptr(ptr)")
def same_pointer(p):
    return p


@native("void()")
def nothing():
    pass


def test_bound_functions_convert():
    assert bind(everything)(-1, 255, -5, 2**64 - 1, 0.5, 2, True) == -1 + 255 - 5 + 2.0**64 + 0.5 + 2 + 1
    assert bind(nothing)() is None
    assert bind(same_pointer)(None) == 0
    s = storage.alloc(64)
    assert bind(same_pointer)(s) == s.ptr
    assert identity(i1)(True) is True and identity(i1)(False) is False
    assert identity(u64)(2**64 - 1) == 2**64 - 1
    assert identity(i64)(-(2**63)) == -(2**63)
    assert identity(f32)(0.1) == np.float32(0.1)
    assert identity(f64)(np.float64(0.1)) == 0.1 and identity(f64)(3) == 3.0


def test_bound_functions_refuse():
    for kind, low, high in ((i8, -128, 127), (u8, 0, 255)):
        f = identity(kind)
        assert f(low) == low and f(high) == high
        for bad in (low - 1, high + 1):
            with pytest.raises(OverflowError, match="does not fit in 8 bits"):
                f(bad)
    with pytest.raises(TypeError, match="everything takes 7 arguments, 1 given"):
        bind(everything)(1)
    with pytest.raises(TypeError, match="float"):
        identity(i64)(1.5)
    with pytest.raises(TypeError):
        identity(i64)("1")
    with pytest.raises(TypeError):
        identity(f64)("1")


def test_bound_without_the_gil():
    @native("i64(i64)", name="busy")
    def busy(n):
        x = n
        for i in range(n):
            x = x * 31 + i
        return x

    assert bind(busy, nogil=True)(1000) == bind(busy)(1000)


def test_a_second_start_compiles_nothing(monkeypatch):
    compile_native([everything])

    def refuse(*args):
        raise AssertionError("compiled again")

    monkeypatch.setattr(jit, "compile_object", refuse)
    assert compile_native([everything])
    with pytest.raises(AssertionError, match="compiled again"):
        compile_native([everything, identity.__globals__["nothing"]])


def test_runtime_is_one():
    assert runtime() is runtime()


# ***** loading *****


TABLE = """
@.table = private unnamed_addr constant [3 x ptr] [ptr @one, ptr @two, ptr @labs]
@counter = internal global i64 40, align 64
@zeros = internal global [100000 x i8] zeroinitializer
@PyExc_ValueError = external global ptr
declare i64 @labs(i64)
declare double @log(double)
define internal i64 @one(i64 %x) nounwind noinline { %r = add i64 %x, 1 ret i64 %r }
define internal i64 @two(i64 %x) nounwind noinline { %r = add i64 %x, 2 ret i64 %r }
define i64 @pick(i64 %which, i64 %x) nounwind {
  %p = getelementptr ptr, ptr @.table, i64 %which
  %f = load ptr, ptr %p
  %r = call i64 %f(i64 %x)
  ret i64 %r
}
define i64 @count() nounwind {
  %c = load i64, ptr @counter
  %d = add i64 %c, 1
  store i64 %d, ptr @counter
  %z = getelementptr i8, ptr @zeros, i64 99999
  %y = load i8, ptr %z
  %w = zext i8 %y to i64
  %e = add i64 %d, %w
  ret i64 %e
}
define double @logarithm(double %x) nounwind { %r = call double @log(double %x) ret double %r }
define ptr @exception() nounwind { %r = load ptr, ptr @PyExc_ValueError ret ptr %r }
define i64 @switch(i64 %x) nounwind {
  switch i64 %x, label %no [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e ]
a: %r0 = call i64 @labs(i64 -10) ret i64 %r0
b: %r1 = call i64 @one(i64 20) ret i64 %r1
c: ret i64 33
d: %r3 = call i64 @labs(i64 -44) ret i64 %r3
e: ret i64 55
no: ret i64 -1
}
"""


@pytest.mark.parametrize("how", ["load", "Loaded"])
def test_objects_with_data_tables_and_outside_symbols(how):
    """Both loaders: our own, and LLVM's for what ours does not know."""
    if how == "Loaded" and host_target().arch == "aarch64":
        pytest.skip("LLVM's linker may place parts of an object too far from each other")
    names = ["pick", "count", "logarithm", "exception", "switch"]
    data = jit.compile_object(TABLE, "native")
    code = jit.load(data, names) if how == "load" else jit.Loaded(data, names, {})
    integer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    pick, switch = integer(code["pick"]), integer(code["switch"])
    assert [pick(0, 5), pick(1, 5), pick(2, -5)] == [6, 7, 5]
    assert [switch(i, 0) for i in range(-1, 6)] == [-1, 10, 21, 33, 44, 55, -1]
    count = ctypes.CFUNCTYPE(ctypes.c_int64)(code["count"])
    assert [count(), count()] == [41, 42]
    again = jit.load(data, names)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(again["count"])() == 41, "every load has its own data"
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code["logarithm"])(2.0) == math.log(2.0)
    assert ctypes.CFUNCTYPE(ctypes.c_void_p)(code["exception"])() == id(ValueError)


@pytest.mark.parametrize(
    ("kind", "before", "distance", "after"),
    [
        (283, 0x94000000, 8, 0x94000002),  # bl, forwards
        (282, 0x14000000, -4, 0x17FFFFFF),  # b, backwards
        (280, 0x54000000, 16, 0x54000080),  # b.eq
        (279, 0x36000000, 16, 0x36000080),  # tbz w0, #0
        (274, 0x10000000, 5, 0x30000020),  # adr x0
        (275, 0x90000000, 0x1000, 0xB0000000),  # adrp x0
        (311, 0x90000000, 0x4000, 0x90000020),
        (275, 0x90000000, -0x1000, 0xF0FFFFE0),
        (277, 0x91000000, 0xABC, 0x912AF000),  # add x0, x0
        (278, 0x39400000, 0x15, 0x39405400),  # ldrb w0, [x0]
        (285, 0xB9400000, 0x10, 0xB9401000),  # ldr w0, [x0]
        (312, 0xF9400000, 0x10, 0xF9400800),  # ldr x0, [x0]
        (299, 0x3DC00000, 0x20, 0x3DC00800),  # ldr q0, [x0]
    ],
)
def test_addresses_in_instructions_of_aarch64(kind, before, distance, after):
    """Encodings of the Arm architecture reference manual (C4, C6)."""
    at = 0x7F0000001000
    image = bytearray(before.to_bytes(4, "little"))
    loader._Arm64().relocate(image, 0, kind, at, at + distance)
    assert int.from_bytes(image, "little") == after
    if kind not in loader._Arm64.LOW:
        with pytest.raises(loader.Unsupported, match="too far"):
            loader._Arm64().relocate(image, 0, kind, at, at + (1 << 34))


def test_what_the_loader_does_not_know():
    for machine in (loader._X86(), loader._Arm64()):
        with pytest.raises(loader.Unsupported, match="relocation 1999"):
            machine.relocate(bytearray(8), 0, 1999, 0, 0)


def test_imports_come_before_the_process():
    data = jit.compile_object(TABLE, "native")
    source = jit.load(data, ["count"])
    code = jit.load(data, ["pick"], {"labs": source["count"]})
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code["pick"])(2, -5) == 41


def test_unloading_gives_the_memory_back():
    data = jit.compile_object(TABLE, "native")

    def pages():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0])

    if not jit.can_load(data):
        pytest.skip("LLVM's linker keeps some tables")
    jit.load(data, ["count"])
    before = pages()
    for _ in range(200):
        jit.load(data, ["count"])
    assert pages() - before < 50


def test_code_is_never_writable_and_executable():
    code = jit.load(jit.compile_object(TABLE, "native"), ["count"])
    if not isinstance(code, jit.Image):
        pytest.skip("another loader")
    with open("/proc/self/maps") as file:
        for line in file:
            low, _, rest = line.partition("-")
            high, mode = rest.split()[:2]
            if int(low, 16) <= code["count"] < int(high, 16):
                assert mode.startswith("r-x")


# ***** objects as they lie in memory *****


def changed_words(change):
    """A reader of memory that shows it to the runtime otherwise than it is: `change` maps (address, word) to a word."""
    return lambda address: change(address, ctypes.c_uint64.from_address(address).value)


def test_objects_lie_as_the_native_code_reads_them():
    assert objects.faults() == []
    objects.require_layouts()
    for value in (0, 1, 2**30 - 1, 2**30, 2**60 - 1, 2**62, 2**63 - 1, -1, -(2**30), -(2**62)):
        assert bind(passes)(value) == value


@native("i64(i64)")
def passes(value):
    """The number itself."""
    return value


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda a, w: w ^ (8 if a == id(1) + 16 else 0), ["ints"]),  # as if a tag counted digits from elsewhere
        (
            lambda a, w: w | 4 if a in (id(0) + 16, id(255) + 16) and objects.NEW_INTS else w,
            [],
        ),  # 3.14 marks those that never die
        (lambda a, w: w + 8 if a == id(objects._Slotted.__dict__["first"]) + 40 else w, ["slots"]),
        (lambda a, w: w + 1 if w == 3 else w, [*["ints"][objects.NEW_INTS :], "tuples", "lists"]),  # how much they hold
        (lambda a, w: w ^ 1 if w == id(float) else w, ["objects"]),
        (lambda a, w: w + 1 if w == 0x3FF8000000000000 else w, ["floats"]),
    ],
    ids=["ints", "immortal ints", "slots", "sizes", "types", "floats"],
)
def test_objects_that_lie_otherwise_are_noticed(change, wrong):
    assert objects.faults(changed_words(change)) == wrong
    if wrong:
        with pytest.raises(
            NotImplementedError, match=f"objects as they lie in memory from 3.11 on, and here {', '.join(wrong)} do not"
        ):
            objects.require_layouts(changed_words(change))
