"""`@native`: a Python function that will be compiled, with the digest under which its machine code is cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from rushlight._base.digest import hasher
from rushlight._native.types import Extern, ExternData, Record, Signature, Static, Type, Words

__all__ = ["NativeFunction", "digest_of", "native"]

_MISSING: Any = object()


class NativeFunction:
    """A function of the subset, not compiled yet.  `rushlight._host.stubs.bind` makes it callable.

    Attributes: `signature`, `symbol` (its name in object code), `python` (the undecorated function).
    """

    __slots__ = ("doc", "inline", "python", "signature", "symbol")

    def __init__(self, python: FunctionType, signature: Signature, symbol: str, inline: bool) -> None:
        code = python.__code__
        if code.co_argcount != len(signature.args) or code.co_kwonlyargcount or code.co_flags & 0x0C:
            raise TypeError(
                f"{symbol}: signature {signature.text!r} has {len(signature.args)} arguments, "
                f"the function takes {code.co_argcount} (positional ones only)"
            )
        self.python, self.signature, self.symbol, self.inline = python, signature, symbol, inline
        self.doc = python.__doc__

    def __repr__(self) -> str:
        return f"<native {self.symbol}: {self.signature.text}>"

    def __call__(self, *args: object) -> object:
        raise TypeError(f"native function {self.symbol} is not bound; use rushlight._host.stubs.bind({self.symbol})")

    def resolve(self, name: str) -> Any:
        """The Python object that a free name of the function stands for: closure, then globals, then built-ins."""
        function = self.python
        if name in function.__code__.co_freevars:
            return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents  # type: ignore[index]
        value = function.__globals__.get(name, _MISSING)
        if value is _MISSING:
            builtins = function.__globals__["__builtins__"]
            table = builtins if isinstance(builtins, dict) else vars(builtins)
            if name not in table:
                raise NameError(name)
            value = table[name]
        return value

    def references(self) -> Iterator[tuple[str, Any]]:
        """The free names of the function and what they stand for (attribute names that match a global included)."""
        code = self.python.__code__
        for name in sorted({*code.co_names, *code.co_freevars}):
            try:
                yield name, self.resolve(name)
            except (NameError, ValueError):
                continue

    def own_parts(self) -> tuple[bytes, list[NativeFunction]]:
        """The inputs to this function's own machine code, and the functions that it calls; needs no parsing."""
        code = self.python.__code__
        parts: list[Any] = [
            self.symbol, self.signature.text, self.inline, code.co_code, code.co_consts, code.co_varnames, code.co_names,
        ]  # fmt: skip
        called = []
        for name, value in self.references():
            if isinstance(value, NativeFunction):
                called.append(value)
                parts.append((name, value.symbol))
            elif isinstance(value, _CONSTANTS):
                parts.append((name, value))
            elif isinstance(value, Words):  # places of the words it may name
                parts.append((name, [(word, getattr(value, word)) for word in value if word in code.co_names]))
            elif isinstance(value, Record):
                parts.append((name, [field for field in value if field.name in code.co_names]))
        return repr(parts).encode(), called


_CONSTANTS = (bool, int, float, str, Type, Extern, ExternData, Static)


def digest_of(functions: Iterable[NativeFunction]) -> bytes:
    """A digest of the code of these functions, of its constants and of everything they call, each looked at once."""
    h, seen = hasher(), set()
    todo = list(functions)
    h.update(repr([f.symbol for f in todo]).encode())
    while todo:
        function = todo.pop()
        if id(function) not in seen:
            seen.add(id(function))
            own, called = function.own_parts()
            h.update(own)
            todo += called
    return h.digest()


def native(
    signature: str, *, name: str | None = None, inline: bool = False
) -> Callable[[Callable[..., Any]], NativeFunction]:
    """Mark a function as native.

    `signature` names the result and argument types, as in `i64(ptr, i64)`.  `name` is the symbol (default: the
    function's name); functions made in a loop over types need different ones.  `inline=True` always inlines it.
    """

    def decorate(function: Callable[..., Any]) -> NativeFunction:
        assert isinstance(function, FunctionType)
        return NativeFunction(function, Signature(signature), name or function.__name__, inline)

    return decorate
