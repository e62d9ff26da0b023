"""A frame of an interpreted function: everything that is needed to go on with it, as an object that can be copied."""

from __future__ import annotations

import sys
from types import CodeType, FunctionType
from typing import Any

from rushlight._capture.bytecode.code import DecodedCode, decode

__all__ = ["NULL", "Frame"]


FRESH_LOCALS = sys.version_info >= (3, 13)
"""Whether each call of `locals()` in a function gives a dict of its own."""


class _Null:
    """The type of `NULL`, which stands in stacks and locals where CPython has a null pointer."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL"


NULL = _Null()


class Frame:
    """A call in progress.

    `ip` is the index of the next instruction in `decoded.program`; `locals` holds the fast locals, then the cells, then
    the free variables; `names` is the namespace of a class body or a module, else None.  `link` says what becomes of
    the frame's result in the frame below (see `interpreter.Link`); None: it is pushed on that frame's stack.
    """

    __slots__ = (
        "builtins", "code", "decoded", "function", "generator", "globals", "handled", "inherited", "ip", "link", "locals", "names", "own",
        "program", "stack", "visible",
    )  # fmt: skip

    builtins: dict[str, Any]
    code: CodeType
    decoded: DecodedCode
    function: Any
    generator: Any
    globals: dict[str, Any]
    handled: BaseException | None
    inherited: BaseException | None
    ip: int
    link: Any
    locals: list[Any]
    names: Any
    own: BaseException | None
    program: list[tuple[Any, Any]]
    stack: list[Any]
    visible: dict[str, Any] | None

    def __init__(
        self,
        code: CodeType,
        namespace: dict[str, Any],
        builtins: dict[str, Any],
        locals: list[Any],
        function: FunctionType | None = None,
        names: Any = None,
    ) -> None:
        self.code, self.globals, self.builtins, self.locals = code, namespace, builtins, locals
        self.function, self.names = function, names
        self.decoded = decoded = decode(code)
        self.program = decoded.program
        self.ip = 0
        self.stack = []
        self.link = self.generator = self.visible = None
        # The exception being handled here (`own`), where the frame was entered (`inherited`), and the innermost of the
        # two (`handled`).
        self.own = self.inherited = self.handled = None

    def __repr__(self) -> str:
        return f"<Frame of {self.code.co_qualname}, line {self.line}, instruction {self.ip}>"

    @property
    def line(self) -> int:
        """The line of the instruction executed last (of the first, before any)."""
        line: int = self.decoded.lines[max(self.ip - 1, 0)] or self.code.co_firstlineno
        return line

    def copy(self) -> Frame:
        """A frame in the same state: the lists are copied, what is in them is shared."""
        other = Frame.__new__(Frame)
        for name in Frame.__slots__:
            setattr(other, name, getattr(self, name))
        other.stack, other.locals = self.stack.copy(), self.locals.copy()
        return other

    def template(self) -> Frame:
        """A frame at the same instruction that holds no value of this call: others are made from it."""
        other = self.copy()
        other.locals, other.stack = [], []
        other.link = other.generator = other.visible = None
        return other

    def live_locals(self) -> frozenset[int]:
        """Indices into `locals` of those that may still be read, here or in a handler of an exception of the
        instruction in progress.
        """
        return self.decoded.live_at(self.code, self.ip)

    def visible_locals(self) -> Any:
        """The result of `locals()`: the namespace, or the dict of the frame, brought up to date."""
        if self.names is not None:
            return self.names
        found = None if FRESH_LOCALS else self.visible
        if found is None:
            found = self.visible = {}
        for name, value, is_cell in zip(self.decoded.local_names, self.locals, self.decoded.cells, strict=True):
            bound = value is not NULL
            if bound and is_cell and type(value) is _CELL:
                try:
                    value = value.cell_contents
                except ValueError:
                    bound = False
            if bound:
                found[name] = value
            else:
                found.pop(name, None)
        return found


_CELL = type((lambda x: lambda: x)(0).__closure__[0])  # type: ignore[index]
