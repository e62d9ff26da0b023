"""The native runtime: one object file, loaded by the first use of `runtime()`, and the Python types it needs.

It holds the memory pool, the `Storage` type, the thread pool and the stub of all kernels (`pool_native`,
`threads_native`, `stub_native`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._base.errors import OutOfMemoryError
from rushlight._base.lazy import LazyModule
from rushlight._host import (
    dispatch_native,
    dispatch_words,
    limits,
    node_native,
    plan_native,
    pool_native,
    stub_native,
    tensor_native,
    threads_native,
)
from rushlight._native import jit, native
from rushlight._native.function import NativeFunction, digest_of
from rushlight._native.jit import COMPILER_SOURCES
from rushlight._native.objectcode import ahead, obtain, wanted
from rushlight._native.objects import require_layouts
from rushlight._native.sources import generator_files, sources_digest
from rushlight._native.target import host_target

if TYPE_CHECKING:
    import ctypes

    from rushlight._native import compiler
else:
    ctypes = LazyModule("ctypes")
    compiler = LazyModule("rushlight._native.compiler")  # only when something is compiled: it needs `ast`

__all__ = [
    "Runtime", "cached_object", "compile_made", "compile_native", "is_loaded", "made_ahead", "native_ahead", "runtime", "text_ahead",
]  # fmt: skip


# ***** native functions to object code *****

_COMPILER = COMPILER_SOURCES
_LANGUAGE = (
    *_COMPILER,
    *(f"_native/{name}.py" for name in ("compiler", "emitter", "expressions", "intrinsics", "types")),
)


def cached_object(text: str, opt: str = "kernel") -> bytes:
    """Object code for LLVM text, from the disk cache or compiled now."""
    return obtain(opt, lambda: text, opt, sources_digest(_COMPILER), text)


def compile_native(functions: Iterable[NativeFunction], extra: str = "", opt: str = "native") -> bytes:
    """Object code that defines `functions`, and the LLVM text `extra`, from the disk cache or compiled now.

    A hit needs no parsing: the key is made from the functions' byte code and constants.  `opt` is one of `llvm_compiler.OPT_LEVELS`.
    """
    functions = list(functions)
    return obtain(opt, partial(_unit, functions, extra), *_native_parts(functions, extra, opt))


def native_ahead(functions: Iterable[NativeFunction], opt: str = "native") -> None:
    """Let a worker do what `compile_native` will be asked for."""
    if wanted():
        functions = list(functions)
        ahead(opt, partial(_unit, functions, ""), *_native_parts(functions, "", opt))


def _native_parts(functions: list[NativeFunction], extra: str, opt: str) -> tuple[str | bytes, ...]:
    return opt, sources_digest(_LANGUAGE), extra, digest_of(functions)


def _unit(functions: list[NativeFunction], extra: str) -> str:
    return compiler.compile_unit(functions, host_target().arch) + extra


def compile_made(name: str, make: Callable[[], str]) -> bytes:
    """Object code of the text that the generator's sources, and `name`, determine: a hit in the disk cache needs no text."""
    return obtain("kernel", make, *_made_parts(name))


def made_ahead(name: str, make: Callable[[], str]) -> None:
    """Let a worker do what `compile_made` will be asked for."""
    if wanted():
        ahead("kernel", make, *_made_parts(name))


def _made_parts(name: str) -> tuple[str | bytes, ...]:
    return "made", sources_digest((*generator_files(), *_COMPILER)), name


def compile_text(text: str) -> bytes:
    """Object code of LLVM text, from the disk cache or compiled now."""
    return obtain("kernel", lambda: text, "text", text)


def text_ahead(text: str) -> None:
    """Let a worker do what `compile_text` will be asked for."""
    ahead("kernel", lambda: text, "text", text)


# ***** the runtime *****


@native("void(ptr)")
def runtime_tables(out):
    """Where the runtime's tables lie."""
    out.ptr[0] = pool_state
    out.ptr[1] = threads_state
    out.ptr[2] = fast_state


pool_state = pool_native.STATE
threads_state = threads_native.THREADS
fast_state = dispatch_words.FAST

_ROOTS = (
    runtime_tables,
    pool_native.py_alloc, pool_native.py_alloc_zeroed, pool_native.py_from_owner, pool_native.py_empty_cache,
    pool_native.py_resize,
    pool_native.storage_dealloc, pool_native.storage_buffer, pool_native.block_alloc, pool_native.block_free,
    stub_native.py_make_callable, stub_native.handle_dealloc, stub_native.rl_fail, stub_native.rl_arg_int,
    stub_native.rl_arg_ptr, stub_native.rl_arg_f64, stub_native.rl_count_error, stub_native.rl_raise,
    threads_native.rl_parallel_for, threads_native.threads_hold, threads_native.threads_init, threads_native.threads_stop,
    threads_native.threads_forked, threads_native.flush_denormals, threads_native.spin_many,
    dispatch_native.py_dispatcher, dispatch_native.py_guard, dispatch_native.py_learn, dispatch_native.py_forget, dispatch_native.py_known,
    dispatch_native.py_family, dispatch_native.py_found, dispatch_native.py_describe, plan_native.py_cast,
    dispatch_native.dispatcher_get, dispatch_native.dispatcher_dealloc, dispatch_native.entry_dealloc,
    plan_native.py_plan, plan_native.py_kernel_address, tensor_native.py_user_place, tensor_native.py_new_meta,
    tensor_native.py_nested, tensor_native.py_data, tensor_native.py_measure, tensor_native.py_of_numbers, tensor_native.py_coordinates,
    tensor_native.size_item,
    tensor_native.py_over_array, tensor_native.py_array_form, node_native.py_quick_backward,
    plan_native.plan_dealloc,
)  # fmt: skip

# what kernels and bound native functions may call in the runtime
_SHARED = ("rl_fail", "rl_raise", "rl_parallel_for", "rl_arg_int", "rl_arg_ptr", "rl_arg_f64", "rl_count_error")


def _require_main_interpreter() -> None:
    """NotImplementedError in a subinterpreter: NumPy cannot be loaded in one, so a program would fail somewhere on its way."""
    current = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyInterpreterState_Get", ctypes.pythonapi))
    number = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(("PyInterpreterState_GetID", ctypes.pythonapi))
    if number(current()) != 0:
        raise NotImplementedError("rushlight computes in the main interpreter of a process; this is a subinterpreter")


class Runtime:
    """The loaded runtime.  `state` and `threads` are its tables, as arrays of 64-bit integers.

    `alloc(nbytes)`, `alloc_zeroed(nbytes)` and `from_owner(address, nbytes, owner)` return a `Storage`; `empty_cache()`
    gives free memory back; `resize(storage, nbytes)` changes a Storage of the pool, keeping what
    fits; `make_callable` is described in `stub_native`; `symbols` are addresses for kernels to link to.
    """

    def __init__(self) -> None:
        _require_main_interpreter()
        require_layouts()
        self._keep: list[Any] = []
        self._loaded = jit.load(compile_native(_ROOTS), [f.symbol for f in _ROOTS])
        self._loaded.pin()  # worker threads live in it
        self.symbols = {name: self._loaded[name] for name in _SHARED}
        self.state, self.threads, self.fast = self._tables()
        self.Storage = self._storage_type()
        self._handle = self._heap_type("Handle", stub_native.HANDLE_BYTES, {52: self._loaded["handle_dealloc"]}, ())
        state = self.state
        self._dispatcher_types()
        for word, value in (
            (pool_native.STORAGE_TYPE, self.Storage), (pool_native.HANDLE_TYPE, self._handle),
            (pool_native.OOM_ERROR, OutOfMemoryError),
        ):  # fmt: skip
            self._keep.append(value)
            state[word] = id(value)
        self.make_callable = self._bootstrap()
        method = self._method
        self.alloc, self.alloc_zeroed = method("py_alloc", "alloc"), method("py_alloc_zeroed", "alloc_zeroed")
        self.from_owner = method("py_from_owner", "from_owner")
        self.empty_cache, self.resize = method("py_empty_cache", "empty_cache"), method("py_resize", "resize")
        self.dispatcher, self.learn = method("py_dispatcher", "dispatcher"), method("py_learn", "learn")
        self.guard = method("py_guard", "guard")
        self.shape_class, self.describe, self.cast = (
            method("py_family", "shape_class"),
            method("py_describe", "describe"),
            method("py_cast", "cast"),
        )
        self.found = method("py_found", "found")
        self.forget, self.known = method("py_forget", "forget"), method("py_known", "known")
        self.plan, self.kernel_address = method("py_plan", "plan"), method("py_kernel_address", "kernel_address")
        self.user_place, self.new_meta = method("py_user_place", "user_place"), method("py_new_meta", "new_meta")
        self.nested, self.quick_backward = method("py_nested", "nested"), method("py_quick_backward", "quick_backward")
        self.over_array, self.data = method("py_over_array", "over_array"), method("py_data", "data")
        self.array_form = method("py_array_form", "array_form")
        self.measure, self.of_numbers = method("py_measure", "measure"), method("py_of_numbers", "of_numbers")
        self.coordinates = method("py_coordinates", "coordinates")
        # native code points to all of this; it must outlive even the modules, which are emptied at exit
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._keep))

    def address(self, name: str) -> int:
        """The address of an exported native function of the runtime."""
        return self._loaded[name]

    def plain(self, name: str, *types: Any) -> Any:
        """An exported function of C types (no Python objects) as a ctypes function; it runs without the GIL."""
        return ctypes.CFUNCTYPE(None, *types)(self._loaded[name])

    def _tables(self) -> tuple[Any, Any, Any]:
        out = (ctypes.c_uint64 * 3)()
        self.plain("runtime_tables", ctypes.c_void_p)(ctypes.addressof(out))
        return (
            (ctypes.c_int64 * pool_native.STATE_WORDS).from_address(out[0]),
            (ctypes.c_int64 * 64).from_address(out[1]),
            (ctypes.c_int64 * dispatch_words.FAST_WORDS).from_address(out[2]),
        )

    def _text(self, text: str) -> int:
        buffer = ctypes.create_string_buffer(text.encode())
        self._keep.append(buffer)
        return ctypes.addressof(buffer)

    def _words(self, words: list[int]) -> int:
        buffer = (ctypes.c_int64 * len(words))(*words)
        self._keep.append(buffer)
        return ctypes.addressof(buffer)

    def _heap_type(
        self,
        name: str,
        nbytes: int,
        slots: dict[int, int],
        members: Iterable[tuple[str, int, int, int]],
        more: int = 1 << 8,
    ) -> Any:
        """Make a type that Python can neither call nor subclass.  `members`: (name, C type, offset, read only); `more`: flags."""
        rows = [w for n, kind, offset, read_only in members for w in (self._text(n), kind, offset, read_only, 0)]
        slots = {**slots, 72: self._words([*rows, 0, 0, 0, 0, 0])}
        table = self._words([w for slot, value in sorted(slots.items()) for w in (slot, value)] + [0, 0])
        flags = 1 << 7 | more  # no instances by calling the type; usually immutable; not a base type
        spec = self._words([self._text(f"rushlight._host.storage.{name}"), nbytes, flags, table])
        make = ctypes.pythonapi.PyType_FromSpec
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
        return make(spec)

    def _storage_type(self) -> Any:
        members = (
            ("ptr", 18, 16, 1), ("nbytes", 17, 24, 1), ("version", 11, 32, 0), ("relinked", 11, 36, 0),
            ("stamp", 17, 32, 0), ("owner", 6, 40, 1),
            ("__weaklistoffset__", 19, 56, 1), ("changed", 6, 64, 0), ("born", 17, 72, 0), ("lent", 17, 80, 0),
            ("windows", 17, 88, 1),
        )  # fmt: skip
        doc = (
            "Memory with an owner: `ptr` (address), `nbytes`, `version` (counts in-place writes), `relinked` (counts "
            "what autograd must know of and no write is: `detach_()`, `.data` in another layout), `stamp` (both as one word), `owner` (None: the "
            "pool), `changed` (where in a program it was last written to), `born` (which function transform was the latest when it was made), "
            "`lent` (whether an array looks at it, so that it may not move), `windows` (whether other storages show this one's memory).\n\n"
            "The memory goes back to its owner when the last reference dies.  Supports the buffer protocol."
        )
        slots = {52: self._loaded["storage_dealloc"], 1: self._loaded["storage_buffer"], 56: self._text(doc)}
        return self._heap_type("Storage", pool_native.STORAGE_BYTES, slots, members)

    def _dispatcher_types(self) -> None:
        """The types of dispatchers, of what they learnt, and of native plans."""
        d, exported = dispatch_words, ctypes.pythonapi
        vectorcall, methods, attributes = 1 << 11, 1 << 17, self._words([
            self._text("__dict__"), _address(exported.PyObject_GenericGetDict), _address(exported.PyObject_GenericSetDict), 0, 0, *[0] * 5,
        ])  # fmt: skip
        call = {50: _address(exported.PyVectorcall_Call)}
        at = ("__vectorcalloffset__", 19, 16, 1)
        places = (at, ("__dictoffset__", 19, 24, 1), ("__weaklistoffset__", 19, 32, 1))
        self.Dispatcher = self._heap_type("Dispatcher", d.DISPATCHER_BYTES, {
            **call, 52: self._loaded["dispatcher_dealloc"], 54: self._loaded["dispatcher_get"], 73: attributes,
        }, places, vectorcall | methods)  # fmt: skip
        entry = self._heap_type("Entry", d.ENTRY_BYTES, {52: self._loaded["entry_dealloc"]}, ())
        plan = {**call, 52: self._loaded["plan_dealloc"]}
        self.Plan = self._heap_type("Plan", plan_native.PLAN_BYTES, plan, (at, ("keep", 6, 32, 1)), vectorcall | 1 << 8)
        for word, value in ((d.DISPATCHER_TYPE, self.Dispatcher), (d.ENTRY_TYPE, entry), (d.PLAN_TYPE, self.Plan)):
            self._keep.append(value)
            self.fast[word] = id(value)

    def _bootstrap(self) -> Any:
        """The first built-in function, made by hand; it makes all others."""
        method = self._words(
            [self._text("make_callable"), self._loaded["py_make_callable"], stub_native.METH_FASTCALL, 0]
        )
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        return make(method, None, None)

    def _method(self, symbol: str, name: str) -> Any:
        return self.make_callable(self._loaded[symbol], name.encode(), None, -1, 1)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_RUNTIME: list[Runtime] = []


def runtime() -> Runtime:
    """The runtime of this process; the first call loads it (2 ms from the disk cache) and sets its limits."""
    if not _RUNTIME:
        made = Runtime()
        limits.configure(made)
        _RUNTIME.append(made)
    return _RUNTIME[0]


def is_loaded() -> bool:
    """Whether this process has its runtime already."""
    return bool(_RUNTIME)
