"""Emitter of a native function: values, types and casts, blocks and jumps, and errors that show the
user's line.
"""

from __future__ import annotations

import ast
import linecache
import struct
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from rushlight._native.function import NativeFunction
from rushlight._native.types import Extern, ExternData, Static, Type, f32, f64, i1, i64, ptr

if TYPE_CHECKING:
    from rushlight._native.compiler import Unit

__all__ = ["Emitter", "NativeError", "Val"]


class NativeError(TypeError):
    """A native function uses something outside the subset; the text shows the line."""


class Val:
    """A typed LLVM value."""

    __slots__ = ("text", "type")

    def __init__(self, type: Type, text: str) -> None:
        self.type, self.text = type, text

    def __str__(self) -> str:
        return f"{self.type.llvm} {self.text}"


_TREES: dict[str, tuple[list[str], ast.Module]] = {}
_DEFINITIONS: dict[tuple[str, int, str], tuple[list[str], ast.FunctionDef]] = {}
_MOST_DEFINITIONS = 512  # small ones, most of which several units and types share


def _definition(function: NativeFunction) -> ast.FunctionDef:
    """The syntax tree of a function, found by its file and first line."""
    code = function.python.__code__
    lines = linecache.getlines(code.co_filename, function.python.__globals__)
    if not lines:
        raise NativeError(f"the source of native function {function.symbol} ({code.co_filename}) cannot be read")
    key = code.co_filename, code.co_firstlineno, code.co_name
    known = _DEFINITIONS.get(key)
    if known is not None and known[0] is lines:
        return known[1]
    found = _named(_stretch(lines, code.co_firstlineno), code)
    if found is None:  # whole files take a hundred times as long
        cached = _TREES.get(code.co_filename)
        if cached is None or cached[0] is not lines:
            _TREES[code.co_filename] = cached = (lines, ast.parse("".join(lines)))
        found = _named(cached[1], code)
    if found is None:
        raise NativeError(
            f"native function {function.symbol} was not found in {code.co_filename}; did the file change?"
        )
    if len(_DEFINITIONS) >= _MOST_DEFINITIONS:
        _DEFINITIONS.clear()
    _DEFINITIONS[key] = lines, found
    return found


def _named(tree: ast.Module | None, code: CodeType) -> ast.FunctionDef | None:
    """The definition in a tree that has a code object's name and first line."""
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno:
                return node
    return None


def _stretch(lines: list[str], first: int) -> ast.Module | None:
    """The lines of one definition as a tree with the file's line numbers; None where they cannot be told from others."""
    if not 0 < first <= len(lines):
        return None
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    end, inside = first, False
    for line in lines[first - 1 :]:
        text = line.lstrip()
        if text and len(line) - len(text) <= indent and text[0] not in "#)]}":
            if inside:
                break
            inside = text.startswith("def ")
        end += 1
    before = "\n" * (first - 2) + "if True:\n" if indent else "\n" * (first - 1)
    try:
        return ast.parse(before + "".join(lines[first - 1 : end - 1]))
    except SyntaxError:
        return None


class Emitter:
    """The text of one function while it grows."""

    def __init__(self, unit: Unit, function: NativeFunction, exported: bool) -> None:
        self.unit, self.function, self.exported = unit, function, exported
        self.arch = unit.arch
        self.signature = function.signature
        self.node: ast.AST = _definition(function)
        self.entry: list[str] = []
        self.body: list[str] = []
        self.vars: dict[str, tuple[Type, str]] = {}
        self.loops: list[tuple[str, str]] = []
        self.count = 0
        self.dead = False
        self.targets: set[str] = set()
        self.locals = {*function.python.__code__.co_varnames, *function.python.__code__.co_cellvars}

    # ***** errors and small emitters *****

    def fail(self, message: str) -> NoReturn:
        """Raise, showing the user's line."""
        line, column = getattr(self.node, "lineno", 0), getattr(self.node, "col_offset", 0)
        file = self.function.python.__code__.co_filename
        source = linecache.getline(file, line).rstrip("\n")
        raise NativeError(
            f"{file}:{line}: in native function {self.function.symbol}: {message}\n  {source}\n  {' ' * column}^"
        )

    def emit(self, line: str) -> None:
        if not self.dead:
            self.body.append("  " + line)

    def op(self, type_: Type, text: str) -> Val:
        """Emit `%n = text` and return it as a value of `type_`."""
        self.count += 1
        self.emit(f"%t{self.count} = {text}")
        return Val(type_, f"%t{self.count}")

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def place(self, label: str) -> None:
        """Start the block `label`, falling into it from the block before; what nothing reaches is not written."""
        self.jump(label)
        self.dead = label not in self.targets
        if not self.dead:
            self.body.append(f"{label}:")

    def jump(self, label: str) -> None:
        if not self.dead:
            self.emit(f"br label %{label}")
            self.targets.add(label)
        self.dead = True

    def branch(self, condition: Val, yes: str, no: str) -> None:
        if not self.dead:
            self.emit(f"br {condition}, label %{yes}, label %{no}")
            self.targets |= {yes, no}
        self.dead = True

    def value(self, type_: Type, text: str) -> Val:
        """A value that is already named."""
        return Val(type_, text)

    def slot(self, type_: Type, hint: str = "v") -> str:
        """Stack memory for one variable, zero at the start (reading before assigning gives 0, not garbage)."""
        self.count += 1
        name = f"%{hint}.{self.count}"
        zero = "null" if type_ is ptr else ("0.0" if type_.is_float else "0")
        self.entry += [f"  {name} = alloca {type_.llvm}", f"  store {type_.llvm} {zero}, ptr {name}"]
        return name

    def intrinsic(self, name: str, result: str, args: str, call: str) -> str:
        """Declare the LLVM intrinsic `name` and return the text of a call of it."""
        self.unit.declare(name, f"declare {result} @{name}({args})")
        return f"call {result} @{name}({call})"

    # ***** types *****

    def typed(self, value: Any, type_: Type) -> Val:
        """`value` as a value of `type_`: constants adapt, values must have the type already."""
        if isinstance(value, Val):
            if value.type is not type_:
                self.fail(f"expected {type_}, found {value.type}; cast with {type_}(...)")
            return value
        return self.constant(value, type_)

    def constant(self, value: Any, type_: Type) -> Val:
        if type_ is ptr:
            return self.pointer(value)
        if isinstance(value, (bool, int)) and type_ is i1 and value in (0, 1):
            return Val(i1, str(int(value)))
        if isinstance(value, int) and type_.is_int:
            low = -(1 << (type_.bits - 1)) if type_.kind == "i" else 0
            if not low <= value < 1 << (type_.bits - (type_.kind == "i")):
                self.fail(f"{value} does not fit {type_}")
            return Val(type_, str(int(value)))
        if isinstance(value, (int, float)) and type_.is_float:
            number = float(value)
            if type_ is f32:
                number = struct.unpack("<f", struct.pack("<f", number))[0] if abs(number) < 3.5e38 else number
            return Val(type_, f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}")
        self.fail(f"{value!r} cannot be used as {type_}")

    def pointer(self, value: Any) -> Val:
        """Compile-time objects that are addresses."""
        if value is None:
            return Val(ptr, "null")
        if isinstance(value, (str, bytes)):
            return Val(ptr, self.unit.string(value.encode() if isinstance(value, str) else value))
        if isinstance(value, NativeFunction):
            return Val(ptr, "@" + self.unit.symbol(value))
        if isinstance(value, Extern):
            return Val(ptr, self.unit.extern(value.symbol, value.signature))
        if isinstance(value, ExternData):
            return Val(ptr, self.unit.declare(value.symbol, f"@{value.symbol} = external global i8"))
        if isinstance(value, Static):
            if value.symbol in self.unit.imported:  # another unit's memory
                return Val(ptr, self.unit.declare(value.symbol, f"@{value.symbol} = external global i8"))
            text = f"@{value.symbol} = internal global [{value.nbytes} x i8] zeroinitializer, align 64"
            return Val(ptr, self.unit.declare(value.symbol, text))
        self.fail(f"{value!r} cannot be used as ptr")

    def natural(self, value: Any) -> Val:
        """A compile-time object as a value of its natural type: i64, f64, i1 or ptr."""
        if isinstance(value, Val):
            return value
        if isinstance(value, bool):
            return self.constant(value, i1)
        if isinstance(value, int):
            return self.constant(value, i64)
        return self.constant(value, f64 if isinstance(value, float) else ptr)

    def pair(self, a: Any, b: Any) -> tuple[Val, Val]:
        """Two operands brought to one type: a constant adapts to the other side."""
        if isinstance(a, Val) and isinstance(b, Val):
            if a.type is not b.type:
                self.fail(f"operands of different types {a.type} and {b.type}; cast one of them")
            return a, b
        if isinstance(a, Val):
            return a, self.constant(b, a.type)
        b = self.natural(b)
        return self.constant(a, b.type), b

    def truth(self, value: Any) -> Val:
        """A condition: i1 as it is, integers and pointers compared with zero."""
        value = self.natural(value)
        if value.type is i1:
            return value
        if value.type.is_int or value.type is ptr:
            return self.op(i1, f"icmp ne {value}, {'null' if value.type is ptr else 0}")
        self.fail(f"a {value.type} is not a condition; compare it with something")

    def cast(self, value: Any, to: Type) -> Val:
        """`T(x)`: C's conversions; float to integer is undefined outside the integer's range."""
        if not isinstance(value, Val):
            if isinstance(value, float) and (to.is_int or to is i1):
                value = int(value)
            if isinstance(value, int) and to.is_int:
                value &= (1 << to.bits) - 1
                value -= (value >> (to.bits - 1) << to.bits) if to.kind == "i" else 0
            if isinstance(value, int) and to is ptr:
                return self.op(ptr, f"inttoptr i64 {value} to ptr")
            return self.constant(value, to)
        source = value.type
        if source is to:
            return value
        if to is i1:
            return self.op(i1, f"fcmp une {value}, 0.0") if source.is_float else self.truth(value)
        if to is ptr or source is ptr:
            other = source if to is ptr else to
            if other.bits != 64 or not other.is_int:
                self.fail(f"cannot cast {source} to {to}")
            return self.op(to, f"{'inttoptr' if to is ptr else 'ptrtoint'} {value} to {to.llvm}")
        if source.is_float and to.is_float:
            return self.op(to, f"{'fpext' if to.bits > source.bits else 'fptrunc'} {value} to {to.llvm}")
        if source.is_float:
            return self.op(to, f"fpto{'s' if to.kind == 'i' else 'u'}i {value} to {to.llvm}")
        if to.is_float:
            return self.op(to, f"{'s' if source.kind == 'i' else 'u'}itofp {value} to {to.llvm}")
        if source.bits == to.bits:
            return Val(to, value.text)
        word = "trunc" if to.bits < source.bits else ("sext" if source.kind == "i" else "zext")
        return self.op(to, f"{word} {value} to {to.llvm}")
