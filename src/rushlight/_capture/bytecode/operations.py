"""What bytecode does to values: one method for each thing that an instruction asks for.

`Operations` does it as CPython does, on real values.  Whoever interprets a function for another purpose overrides methods: the tracer of
`compile` follows where values come from and writes calls on tensors down.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

__all__ = ["BINARY", "COMPARE", "INPLACE", "UNARY", "Enter", "Interrupt", "Operations"]

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
UNARY: dict[str, Callable[[Any], Any]] = {"+": operator.pos, "-": operator.neg, "~": operator.invert}


class Enter:
    """An answer of an operation: interpret this call in a frame of its own; `then`, if given, makes the result of what it returns."""

    __slots__ = ("args", "function", "kwargs", "then")

    def __init__(
        self,
        function: FunctionType,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        then: Callable[[Any], Any] | None = None,
    ) -> None:
        self.function, self.args, self.kwargs, self.then = function, args, kwargs, then


class Operations:
    """The operations of CPython.  Where the text says so, a method may give an `Enter` in the place of the result."""

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
            raise NameError(f"name '{name}' is not defined") from None

    def store_global(self, frame: Any, name: str, value: Any) -> None:
        """Bind a global name."""
        frame.globals[name] = value

    def delete_global(self, frame: Any, name: str) -> None:
        """Unbind a global name; NameError where there is none."""
        try:
            del frame.globals[name]
        except KeyError:
            raise NameError(f"name '{name}' is not defined") from None

    def load_cell(self, frame: Any, cell: Any) -> Any:
        """What a cell of a closure holds; ValueError where it is empty."""
        return cell.cell_contents

    def store_cell(self, frame: Any, cell: Any, value: Any) -> None:
        """Put a value into a cell."""
        cell.cell_contents = value

    # ***** attributes and items *****

    def load_attr(self, obj: Any, name: str) -> Any:
        """`obj.name`.  May give an `Enter` (of a property's getter)."""
        return getattr(obj, name)

    def store_attr(self, obj: Any, name: str, value: Any) -> Any:
        """`obj.name = value`.  May give an `Enter`, whose result is dropped."""
        setattr(obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> None:
        """`del obj.name`."""
        delattr(obj, name)

    def load_item(self, obj: Any, index: Any) -> Any:
        """`obj[index]`.  May give an `Enter`."""
        return obj[index]

    def store_item(self, obj: Any, index: Any, value: Any) -> Any:
        """`obj[index] = value`.  May give an `Enter`, whose result is dropped."""
        obj[index] = value

    def delete_item(self, obj: Any, index: Any) -> None:
        """`del obj[index]`."""
        del obj[index]

    # ***** operators *****

    def binary(self, op: str, a: Any, b: Any) -> Any:
        """`a + b` and the like, `op` a key of `BINARY`.  May give an `Enter`."""
        return BINARY[op](a, b)

    def inplace(self, op: str, a: Any, b: Any) -> Any:
        """The result of `a += b` and the like, `op` a key of `INPLACE`.  May give an `Enter`."""
        return INPLACE[op](a, b)

    def unary(self, op: str, a: Any) -> Any:
        """`-a` and the like, `op` a key of `UNARY`.  May give an `Enter`."""
        return UNARY[op](a)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        """`a < b` and the like, `op` a key of `COMPARE`.  May give an `Enter`."""
        return COMPARE[op](a, b)

    def contains(self, item: Any, container: Any) -> bool:
        """`item in container`."""
        return item in container

    def same(self, a: Any, b: Any) -> bool:
        """`a is b`."""
        return a is b

    def truth(self, value: Any) -> bool:
        """`bool(value)`: what a jump, `not`, `and` and `or` decide by."""
        return bool(value)

    # ***** iteration *****

    def iterate(self, obj: Any) -> Any:
        """`iter(obj)`.  An interpreted generator is its own iterator."""
        return iter(obj)

    def advance(self, iterator: Any) -> Any:
        """`next(iterator)`; StopIteration at its end."""
        return next(iterator)

    def unpack(self, obj: Any) -> Iterator[Any]:
        """An iterator for `a, b = obj` and `[*obj]`."""
        return iter(obj)

    # ***** calls *****

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`function(*args, **kwargs)`.  May give an `Enter`."""
        return function(*args, **kwargs)

    def enter_context(self, manager: Any) -> tuple[Any, Any]:
        """What `with manager` calls: `__exit__`, bound, and the result of `__enter__()` (which may be an `Enter`)."""
        kind = type(manager)
        try:
            enter, leave = kind.__enter__, kind.__exit__
        except AttributeError:
            raise TypeError(f"'{kind.__name__}' object does not support the context manager protocol") from None
        leave = leave.__get__(manager, kind)
        return leave, self.call(enter.__get__(manager, kind), (), {})

    # ***** making things *****

    def import_module(self, frame: Any, name: str, fromlist: Any, level: int) -> Any:
        """What `import` statements give."""
        load = frame.builtins.get("__import__", builtins.__import__)
        return load(name, frame.globals, None, fromlist, level)

    def import_from(self, module: Any, name: str) -> Any:
        """`from module import name`; ImportError where there is no such name."""
        try:
            return getattr(module, name)
        except AttributeError:
            raise ImportError(
                f"cannot import name '{name}' from '{getattr(module, '__name__', '<unknown module name>')}'"
            ) from None

    def format(self, value: Any, conversion: str, spec: str) -> str:
        """A part of an f-string; `conversion` is "", "s", "r" or "a"."""
        if conversion:
            value = {"s": str, "r": repr, "a": ascii}[conversion](value)
        return format(value, spec)

    def build_string(self, parts: Sequence[str]) -> str:
        """An f-string of its parts."""
        return "".join(parts)

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

    def make_function(self, function: FunctionType) -> Any:
        """A function that `def` or `lambda` made."""
        return function

    def build_class(
        self, frame: Any, body: FunctionType, name: str, bases: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A class statement."""
        return frame.builtins["__build_class__"](body, name, *bases, **kwargs)


class Interrupt(BaseException):
    """Ends interpretation at this instruction: no frame handles it, no `finally` runs, and it leaves `step` and `run` at once."""
