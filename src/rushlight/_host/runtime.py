"""The host runtime: one object file, loaded by the first use of `runtime()`, and the Python types it needs.

It holds the dispatcher, tensors, nodes, plans and the `Storage` type.  It knows no device: a device's memory and
kernels are reached through functions whose addresses stand in plans and storages (`device_records`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rushlight._base.errors import PACKAGE
from rushlight._base.lazy import LazyModule
from rushlight._host import (
    arguments_native,
    code_native,
    dispatch_native,
    dispatch_words,
    guard_native,
    node_native,
    numbers_native,
    storage_native,
    tensor_native,
)
from rushlight._host.plans import plan_native
from rushlight._native import jit, native
from rushlight._native.compiled import compile_native
from rushlight._native.objects import require_layouts

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = ["Runtime", "Unit", "runtime"]


@native("ptr()")
def host_table():
    """Where the host's table lies, which units of devices import."""
    return host_words


host_words = dispatch_words.HOST

_ROOTS = (
    host_table,
    storage_native.py_from_owner, storage_native.storage_dealloc, storage_native.storage_buffer,
    arguments_native.py_make_callable, arguments_native.handle_dealloc, arguments_native.rl_arg_int, arguments_native.rl_arg_ptr,
    arguments_native.rl_arg_f64, arguments_native.rl_count_error,
    dispatch_native.py_dispatcher, dispatch_native.py_guard, dispatch_native.py_cache_plan, dispatch_native.py_forget,
    dispatch_native.py_cached_plans,
    dispatch_native.py_shape_class, dispatch_native.py_find_plan, dispatch_native.py_describe,
    dispatch_native.dispatcher_get, dispatch_native.dispatcher_dealloc, dispatch_native.entry_dealloc,
    plan_native.py_cast, plan_native.py_plan, plan_native.py_kernel_address, plan_native.plan_dealloc,
    tensor_native.py_user_place, tensor_native.py_new_meta, tensor_native.py_data, tensor_native.size_item, tensor_native.py_over_array,
    tensor_native.py_array_form, numbers_native.py_measure, node_native.py_quick_backward,
    guard_native.py_guarded, guard_native.dict_changed, guard_native.use_dict_places, guard_native.py_own_table, guard_native.segment_stub,
    guard_native.find_stub, code_native.function_changed, code_native.tell_of_functions,
)  # fmt: skip

# what bound native functions of any unit may call in the host
_SHARED = ("rl_arg_int", "rl_arg_ptr", "rl_arg_f64", "rl_count_error")
# what Python calls: attributes of the runtime, each by its native function
_METHODS = {
    name: f"py_{name}"
    for name in (
        "from_owner", "dispatcher", "guard", "cache_plan", "forget", "cached_plans", "find_plan", "shape_class", "describe", "cast", "plan", "kernel_address", "user_place",
        "new_meta", "data", "over_array", "array_form", "measure", "quick_backward", "guarded", "own_table",
    )
}  # fmt: skip


def _require_main_interpreter() -> None:
    """NotImplementedError in a subinterpreter: NumPy cannot be loaded in one, so a program would fail somewhere on its
    way.
    """
    current = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyInterpreterState_Get", ctypes.pythonapi))
    number = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(("PyInterpreterState_GetID", ctypes.pythonapi))
    if number(current()) != 0:
        raise NotImplementedError("rushlight computes in the main interpreter of a process; this is a subinterpreter")


class Unit:
    """A loaded unit of native code.  Its `symbols` are addresses for other native code to link to."""

    symbols: dict[str, int]
    _loaded: Any
    make_callable: Callable[..., Any]

    def address(self, name: str) -> int:
        """The address of an exported native function."""
        found: int = self._loaded[name]
        return found

    def plain(self, name: str, *types: Any, result: Any = None) -> Any:
        """An exported function of C types (no Python objects) as a ctypes function; it runs without the GIL."""
        return ctypes.CFUNCTYPE(result, *types)(self._loaded[name])

    def method(self, symbol: str, name: str) -> Any:
        """An exported METH_FASTCALL function as a built-in function."""
        return self.make_callable(self._loaded[symbol], name.encode(), None, -1, 0)


class Runtime(Unit):
    """The loaded host runtime.  `words` is its table, as an array of 64-bit integers.

    `from_owner(address, nbytes, owner)` returns a `Storage`; `make_callable` is described in `arguments_native`.
    """

    def __init__(self) -> None:
        _require_main_interpreter()
        require_layouts()
        self._keep: list[Any] = []
        self._loaded = jit.load(compile_native(_ROOTS), [f.symbol for f in _ROOTS])
        self._loaded.pin()  # objects of its types may live as long as the process
        self.symbols = {name: self._loaded[name] for name in _SHARED}
        self.table: int = self.plain("host_table", result=ctypes.c_uint64)()
        self.words = (ctypes.c_int64 * dispatch_words.HOST_WORDS).from_address(self.table)
        self.Storage = self._storage_type()
        handle = self._heap_type("Handle", arguments_native.HANDLE_BYTES, {52: self._loaded["handle_dealloc"]}, ())
        self._note_objects({dispatch_words.STORAGE_TYPE: self.Storage, dispatch_words.HANDLE_TYPE: handle})
        self._dispatcher_types()
        self.make_callable = self._bootstrap()
        for name, symbol in _METHODS.items():
            setattr(self, name, self.method(symbol, name))
        # For `user_frame_code`
        self._note_objects({tensor_native.FILENAME: "co_filename", tensor_native.PREFIX: PACKAGE})
        # native code points to all of this; it must outlive even the modules, which are emptied at exit
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._keep))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _note_objects(self, types: dict[int, Any]) -> None:
        """Keep objects, and their addresses in words of the table."""
        for word, value in types.items():
            self._keep.append(value)
            self.words[word] = id(value)

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
        """Make a type that Python can neither call nor subclass.  `members`: (name, C type, offset, read only); `more`:
        flags.
        """
        rows = [w for n, kind, offset, read_only in members for w in (self._text(n), kind, offset, read_only, 0)]
        slots = {**slots, 72: self._words([*rows, 0, 0, 0, 0, 0])}
        table = self._words([w for slot, value in sorted(slots.items()) for w in (slot, value)] + [0, 0])
        flags = 1 << 7 | more  # no instances by calling the type; usually immutable; not a base type
        spec = self._words([self._text(f"rushlight._host.{name}"), nbytes, flags, table])
        make = ctypes.pythonapi.PyType_FromSpec
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
        return make(spec)

    def _storage_type(self) -> Any:
        members = (
            ("ptr", 18, 16, 1), ("nbytes", 17, 24, 1), ("version", 11, 32, 0), ("relinked", 11, 36, 0),
            ("stamp", 17, 32, 0), ("owner", 6, 40, 1),
            ("__weaklistoffset__", 19, 56, 1), ("changed", 6, 64, 0), ("born", 17, 72, 0), ("lent", 17, 80, 0),
            ("windows", 17, 88, 1), ("open", 17, 96, 1),
        )  # fmt: skip
        doc = (
            "Memory with an owner: `ptr` (address), `nbytes`, `version` (counts in-place writes), `relinked` (counts "
            "what autograd must know of and no write is: `detach_()`, `.data` in another layout), `stamp` (both as one word), `owner` (None: the "
            "pool), `changed` (where in a program it was last written to), `born` (which function transform was the latest when it was made), "
            "`lent` (whether an array looks at it, so that it may not move), `windows` (how many other storages have shown this one's memory), `open` (how many do "
            "now).\n\n"
            "The memory goes back to its owner when the last reference dies.  Supports the buffer protocol."
        )
        slots = {52: self._loaded["storage_dealloc"], 1: self._loaded["storage_buffer"], 56: self._text(doc)}
        return self._heap_type("Storage", storage_native.STORAGE_BYTES, slots, members)

    def _dispatcher_types(self) -> None:
        """The types of dispatchers, cache entries and native plans."""
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
        self._note_objects({d.DISPATCHER_TYPE: self.Dispatcher, d.ENTRY_TYPE: entry, d.PLAN_TYPE: self.Plan})

    def _bootstrap(self) -> Any:
        """The first built-in function, made by hand; it makes all others."""
        method = self._words(
            [self._text("make_callable"), self._loaded["py_make_callable"], arguments_native.METH_FASTCALL, 0]
        )
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        return make(method, None, None)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_RUNTIME: list[Runtime] = []


def runtime() -> Runtime:
    """The host runtime of this process; the first call loads it (2 ms from the disk cache)."""
    if not _RUNTIME:
        _RUNTIME.append(Runtime())
    return _RUNTIME[0]
