"""Operations that interpret what they call: functions, methods, classes, properties written in Python get frames of
their own.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from types import FunctionType, MethodType
from typing import Any, TypeGuard

from rushlight._capture.bytecode.generators import Generator, proceed
from rushlight._capture.bytecode.operations import Enter, Operations, special

__all__ = ["Inlining"]

OURS = "rushlight._capture."


class Inlining(Operations):
    """Operations of CPython, in which Python code that is called is interpreted too.  Native code that calls back runs
    natively.
    """

    def enters(self, function: FunctionType) -> bool:
        """Whether a function of Python is interpreted: all but the interpreter's own."""
        return not (function.__module__ or "").startswith(OURS)

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        kind = type(function)
        if kind is FunctionType:
            return (
                Enter(function, args, kwargs) if self.enters(function) else self.call_natively(function, args, kwargs)
            )
        if kind is MethodType:
            return self._call_method(function, args, kwargs)
        if function is next and 0 < len(args) < 3 and self._mine(args[0]) and not kwargs:
            return proceed(args[0], None, *args[1:])
        if kind is functools.partial:
            return self.call(function.func, [*function.args, *args], {**function.keywords, **kwargs})
        if isinstance(function, type) and type(function).__call__ is type.__call__ and function is not type:
            return self._make(function, args, kwargs)
        method = special(function, "__call__")
        if type(method) is MethodType and type(method.__func__) is FunctionType:
            return self.call(method, args, kwargs)
        return self.call_natively(function, args, kwargs)

    def _call_method(self, method: MethodType, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        function, obj = method.__func__, method.__self__
        if self._mine(obj):
            if function is Generator.send and len(args) == 1:
                return proceed(obj, args[0])
            if function is Generator.__next__ and not args:
                return proceed(obj)
            return self.call_natively(method, args, kwargs)
        return self.call(function, [obj, *args], kwargs)

    def _mine(self, obj: Any) -> TypeGuard[Generator]:
        """Whether an object is a generator whose frame these operations interpret."""
        return type(obj) is Generator and obj.operations is self

    # ***** classes *****

    def _make(self, kind: type, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An instance of a class: `__new__` and `__init__` interpreted, where they are written in Python."""
        new, init = kind.__new__, kind.__init__  # type: ignore[misc]
        if type(init) is not FunctionType and type(new) is not FunctionType:
            return self.call_natively(kind, args, kwargs)

        def initialize(made: Any) -> Any:
            if not isinstance(made, kind):
                return made
            function = type(made).__init__
            if type(function) is FunctionType and self.enters(function):
                return Enter(function, [made, *args], kwargs, then=functools.partial(_initialized, made))
            return _initialized(made, function(made, *args, **kwargs))

        if type(new) is FunctionType and self.enters(new):
            return Enter(new, [kind, *args], kwargs, then=initialize)
        return initialize(object.__new__(kind) if new is object.__new__ else new(kind, *args, **kwargs))

    def build_class(
        self, frame: Any, body: FunctionType, name: str, bases: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        resolved = types.resolve_bases(bases)
        kind, names, kwargs = types.prepare_class(name, resolved, kwargs)

        def made(cell: Any) -> Any:
            if resolved is not bases:
                names["__orig_bases__"] = bases
            made = kind(name, resolved, names, **kwargs)
            if cell is not None and isinstance(made, type):
                check_class_cell(cell, made, name)
            return made

        return Enter(body, [], {}, then=made, names=names)

    # ***** attributes, iteration *****

    def load_attr(self, obj: Any, name: str) -> Any:
        kind = type(obj)
        if kind.__getattribute__ is object.__getattribute__:
            for base in kind.__mro__:
                if name in vars(base):
                    found = vars(base)[name]
                    if type(found) is property and type(found.fget) is FunctionType and self.enters(found.fget):
                        fallback = getattr(kind, "__getattr__", None)
                        return Enter(found.fget, [obj], {}, caught=self._fallback(obj, name, fallback))
                    break
        return super().load_attr(obj, name)

    def _fallback(self, obj: Any, name: str, fallback: Any) -> Any:
        """Catch a property's AttributeError, and call `__getattr__` instead."""
        if fallback is None:
            return None

        def caught(error: BaseException) -> Any:
            if not isinstance(error, AttributeError):
                raise error
            return self.call(fallback, [obj, name], {})

        return caught

    def iterate(self, obj: Any) -> Any:
        method = special(obj, "__iter__")
        if type(method) is MethodType and type(obj) is not Generator and type(method.__func__) is FunctionType:
            return (
                Enter(method.__func__, [obj], {}, then=_iterator)
                if self.enters(method.__func__)
                else super().iterate(obj)
            )
        return super().iterate(obj)

    def advance(self, iterator: Any) -> Any:
        method = special(iterator, "__next__")
        if type(method) is MethodType and type(iterator) is not Generator and type(method.__func__) is FunctionType:
            return self.call(method, [], {})
        return super().advance(iterator)


def _initialized(made: Any, result: Any) -> Any:
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    return made


def _iterator(found: Any) -> Any:
    if special(found, "__next__") is None:
        raise TypeError(f"iter() returned non-iterator of type '{type(found).__name__}'")
    return found


def check_class_cell(cell: Any, made: type, name: str) -> None:
    """TypeError where a metaclass did not hand `__classcell__` on to `type.__new__`."""
    try:
        found = cell.cell_contents
    except ValueError:
        text = f"__class__ not set defining {name!r} as {made!r}. Was __classcell__ propagated to type.__new__?"
        raise RuntimeError(text) from None
    if found is not made:
        raise TypeError(f"__class__ set to {found!r} defining {name!r} as {made!r}")
