"""Effects of bytecode on values: one method for each operation of an instruction.

`Operations` does it as CPython does, on real values.  Whoever interprets a function for another purpose overrides
methods: the tracer of `compile` follows where values come from and writes calls on tensors down.
"""

from __future__ import annotations

import builtins
import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

from rushlight._capture.bytecode.real_frames import HERE, call_as, natively

__all__ = ["BINARY", "COMPARE", "INPLACE", "UNARY", "Enter", "Interrupt", "Operations", "in_python"]

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "&": operator.and_, "//": operator.floordiv, "<<": operator.lshift, "@": operator.matmul, "*": operator.mul,
    "%": operator.mod, "|": operator.or_, "**": operator.pow, ">>": operator.rshift, "-": operator.sub, "/": operator.truediv,
    "^": operator.xor,
}  # fmt: skip
INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd, "&=": operator.iand, "//=": operator.ifloordiv, "<<=": operator.ilshift, "@=": operator.imatmul, "*=": operator.imul,
    "%=": operator.imod, "|=": operator.ior, "**=": operator.ipow, ">>=": operator.irshift, "-=": operator.isub, "/=": operator.itruediv,
    "^=": operator.ixor,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}
UNARY: dict[str, Callable[[Any], Any]] = {"+": operator.pos, "-": operator.neg, "~": operator.invert}


PLAIN = frozenset((
    int, float, bool, complex, str, bytes, list, tuple, dict, set, frozenset, range, slice, type(None), type(Ellipsis), ModuleType, FunctionType,
    BuiltinFunctionType,
))  # fmt: skip
"""Types on which an operation does not look at the frame from which it is asked."""
_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # flags of types
_NATIVE_HEAP = frozenset(("itertools", "collections", "_collections", "_io", "decimal"))
NOTHING: Mapping[str, Any] = {}


def in_python(kind: type) -> bool:
    """Whether a class may be written in Python: its type is on the heap.  From 3.12 on native modules put theirs there
    too, some of which traces know.
    """
    flags = kind.__flags__
    return bool(flags & _HEAP) and not (flags & _IMMUTABLE and kind.__module__ in _NATIVE_HEAP)


class Interrupt(BaseException):
    """Ends interpretation at this instruction: no frame handles it, no `finally` runs, and it leaves `step` and `run`
    at once.
    """


class Enter:
    """An answer of an operation: interpret this call in a frame of its own.

    `link`, if set, is that of the frame, where there is nothing else to be done with the result.  `then`, if given,
    makes the result of what the call returns, `caught` of what it raises (or raises itself); both may give an `Enter`
    again.  `names` is the namespace of a class body.  `resume` is called with (interpreter, this) instead of a call's
    frame being pushed: generators go on so.
    """

    __slots__ = ("args", "caught", "function", "kwargs", "link", "names", "resume", "then")

    def __init__(
        self,
        function: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = NOTHING,
        then: Callable[[Any], Any] | None = None,
        caught: Callable[[BaseException], Any] | None = None,
        names: Any = None,
        resume: Callable[[Any, Enter], None] | None = None,
    ) -> None:
        self.function, self.args, self.kwargs, self.then = function, args, kwargs, then
        self.caught, self.names, self.resume = caught, names, resume
        self.link: Any = None


class Operations:
    """The operations of CPython.  Where the text says so, a method may give an `Enter` in the place of the result."""

    def real(self, value: Any) -> Any:
        """The value itself, where operations hand out placeholders for values that may never be looked at."""
        return value

    def check_error(self, error: BaseException) -> None:
        """An instruction raised this; an `Interrupt` in its place ends interpretation."""

    def interrupt(self, found: Interrupt) -> None:
        """A generator that was let go of could not run to its end."""

    def append(self, items: Any, value: Any) -> None:
        """Append to the list of a comprehension."""
        self.real(items).append(self.real(value))

    def never_awaited(self, name: str) -> None:
        """A coroutine was let go of before anybody awaited it."""
        warnings.warn(f"coroutine '{name}' was never awaited", RuntimeWarning, stacklevel=2)

    # ***** names *****

    def load_global(self, frame: Any, name: str) -> Any:
        """The value of a global or builtin name; NameError where there is none."""
        try:
            return frame.globals[name]
        except KeyError:
            pass
        found = frame.builtins
        try:
            return found[name]
        except KeyError:
            raise NameError(f"name '{name}' is not defined", name=name) from None

    def store_global(self, frame: Any, name: str, value: Any) -> None:
        """Bind a global name."""
        frame.globals[name] = value

    def delete_global(self, frame: Any, name: str) -> None:
        """Unbind a global name; NameError where there is none."""
        try:
            del frame.globals[name]
        except KeyError:
            raise NameError(f"name '{name}' is not defined", name=name) from None

    def load_name(self, frame: Any, names: Any, name: str) -> Any:
        """A name of the namespace of a class body or a module; KeyError where there is none."""
        return names[name]

    def store_name(self, frame: Any, names: Any, name: str, value: Any) -> None:
        """Bind a name in the namespace of a class body or a module."""
        names[name] = value

    def delete_name(self, frame: Any, names: Any, name: str) -> None:
        """Unbind a name in the namespace of a class body or a module; KeyError where there is none."""
        del names[name]

    def make_cell(self, *value: Any) -> Any:
        """A new cell, empty or with a value."""
        return CellType(*value)

    def load_cell(self, frame: Any, cell: Any) -> Any:
        """The contents of a closure's cell; ValueError where it is empty."""
        return cell.cell_contents

    def store_cell(self, frame: Any, cell: Any, value: Any) -> None:
        """Put a value into a cell."""
        cell.cell_contents = value

    def delete_cell(self, frame: Any, cell: Any) -> None:
        """Empty a cell."""
        del cell.cell_contents

    # ***** attributes and items *****

    def load_attr(self, obj: Any, name: str) -> Any:
        """`obj.name`.  May give an `Enter` (of a property's getter)."""
        return getattr(obj, name) if type(obj) in PLAIN else natively(getattr, obj, name)

    def store_attr(self, obj: Any, name: str, value: Any) -> Any:
        """`obj.name = value`.  May give an `Enter`, whose result is dropped."""
        natively(setattr, obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> None:
        """`del obj.name`."""
        natively(delattr, obj, name)

    def load_item(self, obj: Any, index: Any) -> Any:
        """`obj[index]`.  May give an `Enter`."""
        return obj[index] if type(obj) in PLAIN else natively(operator.getitem, obj, index)

    def store_item(self, obj: Any, index: Any, value: Any) -> Any:
        """`obj[index] = value`.  May give an `Enter`, whose result is dropped."""
        if type(obj) in PLAIN:
            obj[index] = value
        else:
            natively(operator.setitem, obj, index, value)

    def delete_item(self, obj: Any, index: Any) -> None:
        """`del obj[index]`."""
        natively(operator.delitem, obj, index)

    # ***** operators *****

    def binary(self, op: str, a: Any, b: Any) -> Any:
        """`a + b` and the like, `op` a key of `BINARY`.  May give an `Enter`."""
        function = BINARY[op]
        return function(a, b) if type(a) in PLAIN and type(b) in PLAIN else natively(function, a, b)

    def inplace(self, op: str, a: Any, b: Any) -> Any:
        """The result of `a += b` and the like, `op` a key of `INPLACE`.  May give an `Enter`."""
        function = INPLACE[op]
        return function(a, b) if type(a) in PLAIN and type(b) in PLAIN else natively(function, a, b)

    def unary(self, op: str, a: Any) -> Any:
        """`-a` and the like, `op` a key of `UNARY`.  May give an `Enter`."""
        return UNARY[op](a) if type(a) in PLAIN else natively(UNARY[op], a)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        """`a < b` and the like, `op` a key of `COMPARE`.  May give an `Enter`."""
        function = COMPARE[op]
        return function(a, b) if type(a) in PLAIN and type(b) in PLAIN else natively(function, a, b)

    def contains(self, item: Any, container: Any) -> bool:
        """`item in container`."""
        return item in container if type(container) in PLAIN else natively(operator.contains, container, item)

    def same(self, a: Any, b: Any) -> bool:
        """`a is b`."""
        return a is b

    def truth(self, value: Any) -> bool:
        """`bool(value)`: what a jump, `not`, `and` and `or` decide by."""
        return bool(value) if type(value) in PLAIN else natively(bool, value)

    def negate(self, value: Any) -> Any:
        """`not value`."""
        return not self.truth(value)

    def has_type_flag(self, value: Any, flag: int) -> bool:
        """Whether the type of a value is a sequence or a mapping to `match`: a bit of its `__flags__`."""
        return bool(type(value).__flags__ & flag)

    # ***** iteration *****

    def iterate(self, obj: Any) -> Any:
        """`iter(obj)`.  An interpreted generator is its own iterator."""
        return iter(obj) if type(obj) in PLAIN else natively(iter, obj)

    def advance(self, iterator: Any) -> Any:
        """`next(iterator)`; StopIteration at its end."""
        return natively(next, iterator) if in_python(type(iterator)) else next(iterator)

    def unpack(self, obj: Any) -> Iterator[Any]:
        """An iterator for `a, b = obj` and `[*obj]`."""
        return iter(obj)

    def unpack_mapping(self, obj: Any) -> Mapping[Any, Any]:
        """A mapping for `{**obj}` and `f(**obj)`; AttributeError where it is none."""
        if isinstance(obj, dict):
            return obj
        keys = obj.keys
        return {key: obj[key] for key in keys()}

    # ***** calls *****

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`function(*args, **kwargs)`.  May give an `Enter`."""
        return self.call_natively(function, args, kwargs)

    def call_natively(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call as from the interpreted frame: warnings and `sys._getframe(1)` find its module and line."""
        caller = HERE.frame
        return function(*args, **kwargs) if caller is None else call_as(caller, function, args, kwargs)

    def look_at_frames(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """A call is about to be made of a function that looks at its caller's frame: `super`, `locals`, `globals`,
        `warnings.warn`, ...

        Whether the interpreter makes it look at its own frames; else `call` is asked.
        """
        return True

    def special_method(self, obj: Any, name: str) -> Any:
        """A method looked up on the type of an object, bound; None where there is none."""
        return special(obj, name)

    def enter_context(self, manager: Any) -> tuple[Any, Any]:
        """Enter `with manager`: `__exit__`, bound, and the result of `__enter__()` (which may be an `Enter`)."""
        text = f"'{type(manager).__name__}' object does not support the context manager protocol"
        enter, leave = self.special_method(manager, "__enter__"), self.special_method(manager, "__exit__")
        if enter is None:
            raise TypeError(text)
        if leave is None:
            raise TypeError(f"{text} (missed __exit__ method)")
        return leave, self.call(enter, [], {})

    def enter_async_context(self, manager: Any) -> tuple[Any, Any]:
        """Enter `async with manager`: `__aexit__`, bound, and the awaitable of `__aenter__()` (which may be an
        `Enter`).
        """
        text = f"'{type(manager).__name__}' object does not support the asynchronous context manager protocol"
        enter, leave = self.special_method(manager, "__aenter__"), self.special_method(manager, "__aexit__")
        if enter is None:
            raise TypeError(text)
        if leave is None:
            raise TypeError(f"{text} (missed __aexit__ method)")
        return leave, self.call(enter, [], {})

    def make_exception(self, raised: Any) -> Any:
        """The exception that `raise raised` raises: an instance as it is, one made of a class.  May give an `Enter`."""
        if isinstance(raised, BaseException):
            return raised
        if not (isinstance(raised, type) and issubclass(raised, BaseException)):
            raise TypeError("exceptions must derive from BaseException")
        return self.call(raised, [], {})

    # ***** making things *****

    def import_module(self, frame: Any, name: str, fromlist: Any, level: int) -> Any:
        """The result of an `import` statement."""
        load = frame.builtins.get("__import__", builtins.__import__)
        return load(name, frame.globals, None, fromlist, level)

    def import_from(self, module: Any, name: str) -> Any:
        """`from module import name`; ImportError where there is no such name."""
        try:
            return getattr(module, name)
        except AttributeError:
            pass
        package = getattr(module, "__name__", None)
        found = sys.modules.get(f"{package}.{name}") if isinstance(package, str) else None
        if found is not None:
            return found
        raise cannot_import(module, name)

    def format(self, value: Any, conversion: str, spec: str) -> str:
        """A part of an f-string; `conversion` is "", "s", "r" or "a"."""
        if conversion:
            value = CONVERSIONS[conversion](value)
        return format(value, spec)

    def convert(self, value: Any, conversion: str) -> Any:
        """`value!r` and the like in an f-string; `conversion` is "s", "r" or "a"."""
        return CONVERSIONS[conversion](value)

    def build_string(self, parts: Sequence[str]) -> str:
        """An f-string of its parts."""
        return "".join(parts)

    def build_interpolation(self, value: Any, text: str, conversion: str | None, spec: str) -> Any:
        """A part of a template string."""
        kind: Any = import_module("string.templatelib").Interpolation  # since 3.14
        return kind(value, text, conversion, spec)

    def build_template(self, texts: tuple[str, ...], parts: tuple[Any, ...]) -> Any:
        """A template string of n + 1 texts and the n parts between."""
        kind: Any = import_module("string.templatelib").Template
        return kind(*[x for pair in zip(texts, (*parts, ""), strict=True) for x in pair])

    def build_list(self, items: list[Any]) -> Any:
        """A list display."""
        return items

    def build_tuple(self, items: tuple[Any, ...]) -> Any:
        """A tuple display."""
        return items

    def build_set(self, items: Sequence[Any]) -> Any:
        """A set display."""
        return set(items)

    def build_map(self, items: dict[Any, Any]) -> Any:
        """A dict display."""
        return items

    def build_slice(self, *parts: Any) -> Any:
        """A slice of start, stop and maybe step."""
        return slice(*parts)

    def make_generator(self, generator: Any) -> Any:
        """A generator that a call of its function made."""
        return generator

    def make_function(self, function: FunctionType) -> Any:
        """A function that `def` or `lambda` made."""
        return function

    def build_class(
        self, frame: Any, body: FunctionType, name: str, bases: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A class statement."""
        return frame.builtins["__build_class__"](body, name, *bases, **kwargs)


def special(obj: Any, name: str) -> Any:
    """A method looked up on the type of an object, bound; None where there is none."""
    for kind in type(obj).__mro__:
        if name in vars(kind):
            found = vars(kind)[name]
            bind = getattr(type(found), "__get__", None)
            return found if bind is None else bind(found, obj, type(obj))
    return None


def cannot_import(module: Any, name: str) -> ImportError:
    """The exception of `from module import name` where there is no such name."""
    package = getattr(module, "__name__", None)
    label = package if isinstance(package, str) else "<unknown module name>"
    path = getattr(module, "__file__", None)
    if not isinstance(path, str):
        return ImportError(f"cannot import name {name!r} from {label!r} (unknown location)", name=package)
    spec = getattr(module, "__spec__", None)
    partly = getattr(spec, "_initializing", False)
    text = f"cannot import name {name!r} from {label!r} ({path})"
    if partly:
        text = (
            f"cannot import name {name!r} from partially initialized module {label!r} "
            f"(most likely due to a circular import) ({path})"
        )
    return ImportError(text, name=package, path=path)
