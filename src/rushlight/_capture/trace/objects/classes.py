"""Classes that a traced function makes: class statements, `type()`, named tuples, data classes.

The class is made once, when the function is traced, and serves every call, so neither it nor an object of it may leave
the trace: where one does, the trace ends before the class statement.  What making a class would run of a user's
Python code, without the trace following it, ends the trace.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rushlight._base.own_names import own_module
from rushlight._capture.bytecode import Enter
from rushlight._capture.bytecode.inline import check_class_cell
from rushlight._capture.trace.outside import ABSENT, Lazy, is_plain, type_attribute
from rushlight._capture.trace.reports.events import Break

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["HANDLERS", "build", "by_type", "is_made", "open_cells", "without_memory"]

_PACKAGE = __name__.partition(".")[0]
# Of an enumeration's namespace: what its metaclass calls.
_CALLED = frozenset(("__new__", "__init__", "_generate_next_value_", "_missing_"))


def is_made(tracer: Tracer, value: Any) -> bool:
    """Whether a value is a class that the trace made."""
    return isinstance(value, type) and id(value) in tracer.made_classes


def build(
    tracer: Tracer, body: types.FunctionType, name: str, bases: tuple[Any, ...], kwargs: dict[str, Any]
) -> Enter:  # fmt: skip
    """A class statement: the frame of its body, then the class."""
    resolved = types.resolve_bases(bases)
    _check_bases(name, resolved, kwargs)
    kind, names, kwargs = types.prepare_class(name, resolved, kwargs)
    _check_metaclass(name, kind)

    def made(cell: Any) -> Any:
        if resolved is not bases:
            names["__orig_bases__"] = bases
        found = _made(tracer, kind, name, resolved, names)
        if cell is not None:
            check_class_cell(cell, found, name)
        return found

    return Enter(body, [], {}, then=made, names=names)


def by_type(tracer: Tracer, name: str, bases: tuple[Any, ...], names: dict[str, Any]) -> Any:
    """`type(name, bases, names)`."""
    _check_bases(name, bases, {})
    kind, _, _ = types.prepare_class(name, bases)
    _check_metaclass(name, kind)
    return _made(tracer, kind, name, bases, dict(names))


def open_cells(tracer: Tracer, value: Any) -> None:
    """Have real values in the variables over which methods of a made class close: native code will call them."""
    kind = value if isinstance(value, type) else type(value)
    for each in kind.__mro__ if is_made(tracer, kind) else ():
        for raw in [*vars(each).values()] if is_made(tracer, each) else ():
            function = getattr(raw, "__func__", raw)
            for cell in getattr(function, "__closure__", None) or ():
                _open(tracer, cell)


def _open(tracer: Tracer, cell: types.CellType) -> None:
    if id(cell) in tracer.outside.sources:
        raise Break("native code would call a method that closes over a variable from outside")
    try:
        held = cell.cell_contents
    except ValueError:  # empty
        return
    if type(held) is Lazy:
        cell.cell_contents = held.realise()


def _is_ours(function: Any) -> bool:
    root = own_module(getattr(function, "__module__", None)).partition(".")[0]
    return root == _PACKAGE or root in sys.stdlib_module_names


def _check_bases(name: str, bases: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if kwargs.keys() - {"metaclass"}:
        raise Break(f"makes the class {name} with arguments")
    for base in bases:
        hook = type_attribute(base, "__init_subclass__") if isinstance(base, type) else ABSENT
        if not isinstance(base, type) or not _is_quiet(hook):
            raise Break(f"makes the class {name}, which runs __init_subclass__")


def _is_quiet(hook: Any) -> bool:
    """Whether what native code would call is native itself, or of a library."""
    function = getattr(hook, "__func__", hook)
    return not isinstance(function, types.FunctionType) or _is_ours(function)


def _check_metaclass(name: str, kind: Any) -> None:
    if kind in (type, abc.ABCMeta) or (isinstance(kind, type) and issubclass(kind, enum.EnumMeta) and _is_ours(kind)):
        return
    called = [type_attribute(kind, each) for each in ("__new__", "__init__", "__prepare__", "mro", "__setattr__")]
    if not (isinstance(kind, type) and all(map(_is_quiet, called))):
        raise Break(f"makes the class {name}, whose metaclass is {getattr(kind, '__name__', kind)}")


def _made(tracer: Tracer, kind: Any, name: str, bases: tuple[Any, ...], names: Any) -> type:
    for key in list(names):
        value = names[key]
        if type(value) is Lazy:
            dict.__setitem__(names, key, value := value.realise())
        if not _is_quiet(type_attribute(type(value), "__set_name__")):
            raise Break(f"makes the class {name}, which runs __set_name__ of a {type(value).__name__}")
    if issubclass(kind, enum.EnumMeta):
        called = [names, *[vars(each) for base in bases for each in base.__mro__]]
        if any(not _is_quiet(each.get(key)) for each in called for key in _CALLED):
            raise Break(f"makes the class {name}, which runs methods of an enumeration")
    return adopt(tracer, tracer.native(kind, name, bases, names))


def adopt(tracer: Tracer, made: type) -> type:
    """Note a class that the trace made."""
    tracer.unkept = tracer.unkept or "it makes a class"
    tracer.made_classes[id(made)] = tracer.made_functions[id(made)] = made
    for raw in vars(made).values():
        function = getattr(raw, "__func__", raw)
        if isinstance(function, types.FunctionType):
            tracer.made_functions.setdefault(id(function), function)
    return made


# ***** functions of the standard library that make classes *****


def _namedtuple(tracer: Tracer, name: Any, fields: Any, **rest: Any) -> Any:
    """`collections.namedtuple`."""
    plain = (name, *([fields] if isinstance(fields, str) else fields))
    if not all(is_plain(x) for x in (*plain, rest.get("module"), rest.get("rename"))):
        raise Break("makes a named tuple of objects")
    caller = next(frame for frame in reversed(tracer.interpreters[-1].frames))
    rest.setdefault("module", caller.globals.get("__name__", "__main__"))
    return adopt(tracer, tracer.native(collections.namedtuple, name, fields, **rest))


def _data_class(tracer: Tracer, kind: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply `dataclasses.dataclass` to a class."""
    if not is_made(tracer, kind):
        raise Break(f"makes {getattr(kind, '__name__', kind)} a data class")
    made = tracer.native(_PROCESS, kind, *args, **kwargs)
    return adopt(tracer, made)


_PROCESS: Callable[..., Any] = dataclasses._process_class  # type: ignore[attr-defined]
HANDLERS: dict[Any, Callable[..., Any]] = {collections.namedtuple: _namedtuple, _PROCESS: _data_class}


def without_memory(tracer: Tracer, method: Any) -> Any:
    """A generic method that does not keep what it made for an object, as CPython 3.13 does."""
    made = object.__new__(functools.singledispatchmethod)
    for name in method.__dict__:
        made.__dict__[name] = None if name == "_method_cache" else tracer.real(tracer.load_attr(method, name))
    return made
