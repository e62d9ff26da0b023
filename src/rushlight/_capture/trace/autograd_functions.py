"""`autograd.Function` in a trace: `forward` is followed where it is called; `backward` may run when the trace is over.

So what `backward` reads of globals, closures and classes is guarded where the Function is applied, and one that changes
any of that ends the trace.
"""

from __future__ import annotations

import dis
import types
from typing import TYPE_CHECKING, Any

from rushlight._capture.trace.entering import guard_defaults, note_closure
from rushlight._capture.trace.objects import attributes
from rushlight._capture.trace.outside import CONTAINERS, is_plain, type_attribute
from rushlight._capture.trace.package_code import is_foreign, is_leaf
from rushlight._capture.trace.reports.events import Break
from rushlight._engine.autograd.function import Function

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["guard_function"]

_METHODS = ("forward", "setup_context", "backward", "vjp", "jvp", "vmap")
_WRITES = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR", "DELETE_SUBSCR"))
_CHANGES = frozenset((
    "append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "setdefault", "popitem", "add", "discard", "appendleft",
    "extendleft", "popleft", "rotate",
))  # fmt: skip


def guard_function(tracer: Tracer, kind: type[Function]) -> None:
    """Guard the methods of a Function, and what those read that run later."""
    for name in _METHODS:
        raw = type_attribute(kind, name)
        held = getattr(raw, "__func__", raw)
        if isinstance(held, types.FunctionType) and is_foreign(held):
            attributes.guard_class(tracer, kind, name, raw)
            if name in ("backward", "vjp"):
                _guard_reads(tracer, held, set())


def _guard_reads(tracer: Tracer, function: types.FunctionType, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    if id(function) not in tracer.made_functions:
        source = tracer.constant_source(function)
        tracer.reads.check(source, f"{{}}.__code__ is {tracer.constants.name(function.__code__)}")
        note_closure(tracer, function)
        guard_defaults(tracer, function)
    code = function.__code__
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    found: list[Any] = []
    operations = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    for operation, name in operations:
        if operation == "STORE_DEREF" and name in cells:
            raise Break(f"{code.co_qualname}() writes the variable '{name}'")
        if operation in ("LOAD_GLOBAL", "LOAD_NAME") and name in function.__globals__:
            found.append(tracer.wrap_global(function.__globals__, name, function.__globals__[name]))
    for name, cell in cells.items():
        if any(name == read for operation, read in operations if "DEREF" in operation or "CLASSDEREF" in operation):
            found.append(tracer.load_cell(None, cell))
    changes = _CHANGES.intersection(code.co_names) or _WRITES.intersection(operation for operation, _ in operations)
    for value in found:
        _guard_value(tracer, code, tracer.real(value), bool(changes), seen)


def _guard_value(tracer: Tracer, code: types.CodeType, value: Any, changes: bool, seen: set[int]) -> None:
    """Guard what the names of `code` are in a value."""
    if id(value) in seen or is_plain(value) or isinstance(value, (types.ModuleType, types.BuiltinFunctionType)):
        return
    if isinstance(value, types.FunctionType):
        if not is_leaf(value):
            _guard_reads(tracer, value, seen)
    elif isinstance(value, type):
        seen.add(id(value))
        for name in code.co_names:
            if attributes.is_users_class(tracer, value) and hasattr(value, name):
                _guard_value(tracer, code, tracer.real(tracer.load_attr(value, name)), changes, seen)
    elif type(value) in CONTAINERS:
        if changes:
            raise Break(f"{code.co_qualname}() may change a {type(value).__name__} from outside")
    elif tracer.is_user_object(value) and not _is_kernel(value):
        raise Break(f"{code.co_qualname}() reads a {type(value).__name__} from outside")


def _is_kernel(value: Any) -> bool:
    """Whether a value is a kernel of the Triton language, which launches change nothing of."""
    return hasattr(value, "arg_names") and hasattr(value, "run")
