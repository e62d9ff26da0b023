"""Native functions as Python callables that cost some 50 ns.

>>> from rushlight._host.stubs import bind
>>> from rushlight._native import i64, native
>>> @native("i64(i64, i64)")
... def add(a, b):
...     return a + b
>>> f = bind(add)
>>> f(2, 40)
42
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._host.runtime import Unit, runtime
from rushlight._native import jit
from rushlight._native.compiled import compile_native, native_ahead
from rushlight._native.function import NativeFunction
from rushlight._native.types import Type

__all__ = ["bind", "bind_ahead"]


def bind(
    function: NativeFunction, *, nogil: bool = False, unit: Unit | None = None, opt: str = "native"
) -> Callable[..., Any]:
    """A built-in function that calls a native one.

    Arguments: an int for an integer type (OverflowError when it does not fit), anything that has `__float__` for a
    float type, a bool or int for i1, an address, a Storage or None for ptr.  `nogil` runs it with the GIL released.
    `unit` has the symbols that the function calls (None: the host, and what devices that are loaded have added).  `opt`
    is one of `llvm_compiler.OPT_LEVELS`.
    """
    linked = runtime() if unit is None else unit
    stub = f"{function.symbol}.stub"
    data = compile_native([function], _stub_text(function, stub, nogil), opt)
    loaded = jit.load(data, [stub], linked.symbols)
    return linked.make_callable(loaded[stub], function.symbol.encode(), loaded, -1, 0)


def bind_ahead(function: NativeFunction, *, nogil: bool = False, opt: str = "native") -> None:
    """Let a worker compile what `bind` will be asked for."""
    native_ahead([function], opt, extra=_stub_text(function, f"{function.symbol}.stub", nogil))


# ***** the wrapper of a bound function, as LLVM text *****

_DECLARE = {
    "rl_arg_int": "i32 @rl_arg_int(ptr, ptr, i64, i64)", "rl_arg_ptr": "i32 @rl_arg_ptr(ptr, ptr)",
    "rl_arg_f64": "i32 @rl_arg_f64(ptr, ptr)",
    "rl_count_error": "void @rl_count_error(ptr, i64, i64)", "PyLong_FromLongLong": "ptr @PyLong_FromLongLong(i64)",
    "PyLong_FromUnsignedLongLong": "ptr @PyLong_FromUnsignedLongLong(i64)",
    "PyFloat_FromDouble": "ptr @PyFloat_FromDouble(double)",
    "PyBool_FromLong": "ptr @PyBool_FromLong(i64)", "Py_IncRef": "void @Py_IncRef(ptr)",
    "PyEval_SaveThread": "ptr @PyEval_SaveThread()", "PyEval_RestoreThread": "void @PyEval_RestoreThread(ptr)",
}  # fmt: skip


def _stub_text(function: NativeFunction, stub: str, nogil: bool) -> str:
    args, result = function.signature.args, function.signature.result
    entry = ["entry:", "  %out = alloca i64"]
    lines = [f"  %right = icmp eq i64 %nargs, {len(args)}", "  br i1 %right, label %arg0, label %miscount"]
    values = []
    for k, type_ in enumerate(args):
        lines += [f"arg{k}:", f"  %p{k} = getelementptr ptr, ptr %args, i64 {k}", f"  %o{k} = load ptr, ptr %p{k}"]
        lines += _unpack(k, type_)
        values.append(f"{type_.llvm} %v{k}")
    lines.append(f"arg{len(args)}:")
    if nogil:
        lines.append("  %thread = call ptr @PyEval_SaveThread()")
    call = f"call {result.llvm} @{function.symbol}({', '.join(values)})"
    lines.append(f"  {call}" if result.kind == "v" else f"  %r = {call}")
    if nogil:
        lines.append("  call void @PyEval_RestoreThread(ptr %thread)")
    lines += [
        *_pack(result),
        "miscount:",
        f"  call void @rl_count_error(ptr %self, i64 %nargs, i64 {len(args)})",
        "  ret ptr null",
    ]
    lines += ["failed:", "  ret ptr null"] if args else []
    body = "\n".join(entry + lines)
    needed = [f"declare {text}" for name, text in _DECLARE.items() if f"@{name}(" in body]
    if "@_Py_NoneStruct" in body:
        needed.append("@_Py_NoneStruct = external global i8")
    return "\n".join([*needed, f'define ptr @"{stub}"(ptr %self, ptr %args, i64 %nargs) nounwind {{', body, "}", ""])


def _unpack(k: int, type_: Type) -> list[str]:
    """Argument k: call the converter, go to `failed` or on to the next one."""
    if type_.is_float:
        call = f"call i32 @rl_arg_f64(ptr %o{k}, ptr %out)"
    elif type_.kind == "p":
        call = f"call i32 @rl_arg_ptr(ptr %o{k}, ptr %out)"
    else:
        call = f"call i32 @rl_arg_int(ptr %o{k}, ptr %out, i64 {type_.bits}, i64 {int(type_.kind == 'i')})"
    lines = [
        f"  %s{k} = {call}",
        f"  %f{k} = icmp ne i32 %s{k}, 0",
        f"  br i1 %f{k}, label %failed, label %got{k}",
        f"got{k}:",
    ]
    memory = {"f": "double", "p": "ptr"}.get(type_.kind, "i64")
    narrow = {"f": "fptrunc"}.get(type_.kind, "trunc")
    if type_.bits == 64:
        lines.append(f"  %v{k} = load {memory}, ptr %out")
    else:
        lines += [f"  %w{k} = load {memory}, ptr %out", f"  %v{k} = {narrow} {memory} %w{k} to {type_.llvm}"]
    return [*lines, f"  br label %arg{k + 1}"]


def _pack(type_: Type) -> list[str]:
    """The result as a Python object."""
    if type_.kind == "v":
        return ["  call void @Py_IncRef(ptr @_Py_NoneStruct)", "  ret ptr @_Py_NoneStruct"]
    value, lines = "%r", []
    wide = {"f": "double", "p": "i64"}.get(type_.kind, "i64")
    if type_.llvm != wide:
        word = {"f": "fpext", "p": "ptrtoint", "i": "sext"}.get(type_.kind, "zext")
        lines, value = [f"  %wide = {word} {type_.llvm} %r to {wide}"], "%wide"
    maker = {"f": "PyFloat_FromDouble", "i": "PyLong_FromLongLong", "b": "PyBool_FromLong"}.get(
        type_.kind, "PyLong_FromUnsignedLongLong"
    )
    return [*lines, f"  %object = call ptr @{maker}({wide} {value})", "  ret ptr %object"]
