"""`@native`: a Python function that will be compiled, with the digest under which its machine code is cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from rushlight._backends.native.types import Extern, ExternData, Signature, Static, Type

__all__ = ["NativeFunction", "native"]

_MISSING: Any = object()


class NativeFunction:
    """A function of the subset, not compiled yet.  `rushlight._backends.cpu.stubs.bind` makes it callable.

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
        raise TypeError(
            f"native function {self.symbol} is not bound; use rushlight._backends.cpu.stubs.bind({self.symbol})"
        )

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

    def digest(self) -> bytes:
        """A digest of the function's code, its constants and everything it calls; needs no parsing."""
        h, seen = hashlib.sha256(), set()
        todo = [self]
        while todo:
            function = todo.pop()
            if id(function) in seen:
                continue
            seen.add(id(function))
            code = function.python.__code__
            parts = [
                function.symbol,
                function.signature.text,
                function.inline,
                code.co_code,
                code.co_consts,
                code.co_varnames,
                code.co_names,
            ]
            for name, value in function.references():
                if isinstance(value, NativeFunction):
                    todo.append(value)
                    parts.append((name, value.symbol))
                elif isinstance(value, (bool, int, float, str, Type, Extern, ExternData, Static)):
                    parts.append((name, value))
            h.update(repr(parts).encode())
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
