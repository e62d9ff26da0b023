"""Native functions to LLVM text.

Every local variable is an `alloca` (LLVM's mem2reg turns them into registers), every expression is either a `Val` (a
typed LLVM value) or a compile-time Python object; the latter are folded, and become values where a type is known.
"""

from __future__ import annotations

import ast
import linecache
import operator
import struct
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from rushlight._backends.native.function import NativeFunction
from rushlight._backends.native.intrinsics import Intrinsic
from rushlight._backends.native.types import (
    TYPES,
    Extern,
    ExternData,
    Signature,
    Static,
    Type,
    Words,
    f32,
    f64,
    i1,
    i64,
    ptr,
    u8,
    void,
)  # fmt: skip

__all__ = ["NativeError", "Unit", "Val", "compile_unit"]


class NativeError(TypeError):
    """A native function uses something outside the subset; the text shows the line."""


class Val:
    """A typed LLVM value."""

    __slots__ = ("text", "type")

    def __init__(self, type: Type, text: str) -> None:
        self.type, self.text = type, text

    def __str__(self) -> str:
        return f"{self.type.llvm} {self.text}"


_FOLD: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Pow: operator.pow,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_ARITH = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_BITS = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}

_TREES: dict[str, tuple[list[str], ast.Module]] = {}


def _definition(function: NativeFunction) -> ast.FunctionDef:
    """The syntax tree of a function, found by its file and first line."""
    code = function.python.__code__
    lines = linecache.getlines(code.co_filename, function.python.__globals__)
    if not lines:
        raise NativeError(f"the source of native function {function.symbol} ({code.co_filename}) cannot be read")
    cached = _TREES.get(code.co_filename)
    if cached is None or cached[0] is not lines:
        _TREES[code.co_filename] = cached = (lines, ast.parse("".join(lines)))
    for node in ast.walk(cached[1]):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    raise NativeError(f"native function {function.symbol} was not found in {code.co_filename}; did the file change?")


class Unit:
    """One module of LLVM text: the wanted functions, exported, and all they call, internal."""

    def __init__(self, roots: Iterable[NativeFunction], arch: str) -> None:
        self.arch = arch
        self.roots = list(roots)
        self._symbols: dict[int, str] = {}
        self._taken: set[str] = set()
        self._todo: list[NativeFunction] = []
        self._globals: dict[str, str] = {}
        self._keep: list[NativeFunction] = []
        self._strings: dict[bytes, str] = {}
        for root in self.roots:
            if root.symbol in self._taken:
                raise NativeError(f"two functions of one unit are called {root.symbol!r}; give one of them name=...")
            self.symbol(root)

    def symbol(self, function: NativeFunction) -> str:
        """The name of a function in this unit; asks for its compilation."""
        found = self._symbols.get(id(function))
        if found is None:
            found, n = function.symbol, 0
            while found in self._taken:
                n += 1
                found = f"{function.symbol}.{n}"
            self._taken.add(found)
            self._symbols[id(function)] = found
            self._todo.append(function)
            self._keep.append(function)
        return found

    def declare(self, symbol: str, text: str) -> str:
        """Add a declaration or global once; returns `@symbol`."""
        before = self._globals.setdefault(symbol, text)
        if before != text:
            raise NativeError(f"{symbol} is declared in two ways: {before!r} and {text!r}")
        return f"@{symbol}"

    def extern(self, symbol: str, signature: Signature) -> str:
        args = ", ".join([t.llvm for t in signature.args] + (["..."] if signature.varargs else []))
        return self.declare(symbol, f"declare {signature.result.llvm} @{symbol}({args})")

    def string(self, text: bytes) -> str:
        """A private zero-terminated constant."""
        name = self._strings.setdefault(text, f".str.{len(self._strings)}")
        data = "".join(f"\\{byte:02X}" for byte in text + b"\0")
        return self.declare(name, f'@{name} = private unnamed_addr constant [{len(text) + 1} x i8] c"{data}"')

    def text(self) -> str:
        """The whole module."""
        bodies, done = [], 0
        while done < len(self._todo):
            function = self._todo[done]
            bodies.append(FunctionCompiler(self, function, exported=done < len(self.roots)).text())
            done += 1
        return "\n".join([*self._globals.values(), *bodies, ""])


def compile_unit(roots: Iterable[NativeFunction], arch: str) -> str:
    """LLVM text that defines `roots` (exported) and everything they call.  `arch` is the first part of the triple."""
    return Unit(roots, arch).text()


class FunctionCompiler:
    """Compiles one function: statements by `s_Name` methods, expressions by `e_Name` methods."""

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
        self.locals = {n.id for n in ast.walk(self.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

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

    # ***** expressions *****

    def expr(self, node: ast.expr) -> Any:
        """A `Val` or a compile-time Python object."""
        before, self.node = self.node, node
        method = getattr(self, "e_" + type(node).__name__, None)
        if method is None:
            self.fail(f"{type(node).__name__} expressions are not in the subset")
        result = method(node)
        self.node = before
        return result

    def e_Constant(self, node: ast.Constant) -> Any:
        if node.value is Ellipsis or isinstance(node.value, complex):
            self.fail(f"{node.value!r} is not in the subset")
        return node.value

    def e_Name(self, node: ast.Name) -> Any:
        if node.id in self.vars:
            type_, slot = self.vars[node.id]
            return self.op(type_, f"load {type_.llvm}, ptr {slot}")
        if node.id in self.locals:
            self.fail(f"{node.id!r} is read before it is assigned")
        try:
            return self.function.resolve(node.id)
        except (NameError, ValueError):
            self.fail(f"name {node.id!r} is not defined")

    def e_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.expr(node.value)
        if isinstance(owner, Type | Words) and hasattr(owner, node.attr):
            return getattr(owner, node.attr)
        self.fail("attributes exist on types (T.bits), on words (W.name) and, indexed, on pointers (p.f32[i])")

    def e_Subscript(self, node: ast.Subscript) -> Val:
        type_, address = self.element(node)
        return self.load(type_, address)

    def element(self, node: ast.Subscript) -> tuple[Type, Val]:
        """Type and address of `p.T[i]`."""
        target = node.value
        if not isinstance(target, ast.Attribute) or target.attr not in TYPES or isinstance(node.slice, ast.Slice):
            self.fail("an element is written p.f32[i], with p a ptr")
        base = self.typed(self.expr(target.value), ptr)
        type_ = TYPES[target.attr]
        return type_, self.offset(base, type_, self.expr(node.slice))

    def offset(self, base: Val, type_: Type, index: Any) -> Val:
        """The address of element `index` of an array of `type_` at `base`."""
        index = self.natural(index)
        if not index.type.is_int:
            self.fail(f"an index must be an integer, not {index.type}")
        if index.text == "0":
            return base
        if index.type.bits < 64:
            index = self.cast(index, i64)
        return self.op(ptr, f"getelementptr {u8.llvm if type_ is i1 else type_.llvm}, {base}, {index}")

    def load(self, type_: Type, address: Val) -> Val:
        if type_ is i1:  # a bool in memory is a byte
            return self.truth(self.load(u8, address))
        return self.op(type_, f"load {type_.llvm}, {address}, align {type_.itemsize}")

    def store(self, type_: Type, address: Val, value: Any) -> None:
        value = self.typed(value, type_)
        if type_ is i1:
            type_, value = u8, self.cast(value, u8)
        self.emit(f"store {value}, {address}, align {type_.itemsize}")

    def e_UnaryOp(self, node: ast.UnaryOp) -> Any:
        x = self.expr(node.operand)
        if not isinstance(x, Val):
            if isinstance(node.op, ast.USub):
                return -x
            if isinstance(node.op, ast.Invert):
                return ~x
            return not x if isinstance(node.op, ast.Not) else +x
        if isinstance(node.op, ast.Not):
            return self.op(i1, f"xor {self.truth(x)}, true")
        if isinstance(node.op, ast.Invert) and (x.type.is_int or x.type is i1):
            return self.op(x.type, f"xor {x}, {'true' if x.type is i1 else -1}")
        if isinstance(node.op, ast.USub) and x.type.is_float:
            return self.op(x.type, f"fneg {x}")
        if isinstance(node.op, ast.USub) and x.type.is_int:
            return self.op(x.type, f"sub {x.type.llvm} 0, {x.text}")
        self.fail(f"this operator is not defined on {x.type}")

    def e_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(type(node.op), self.expr(node.left), self.expr(node.right))

    def binary(self, kind: type, a: Any, b: Any) -> Any:
        if isinstance(a, (Static, ExternData)):
            a = self.pointer(a)
        if not isinstance(a, Val) and not isinstance(b, Val):
            try:
                return _FOLD[kind](a, b)
            except (KeyError, TypeError, ArithmeticError) as error:
                self.fail(f"cannot fold {a!r} and {b!r}: {error}")
        if isinstance(a, Val) and a.type is ptr and kind in (ast.Add, ast.Sub):
            return self.pointer_arithmetic(kind, a, b)
        a, b = self.pair(a, b)
        t = a.type
        if kind in _ARITH and (t.is_int or t.is_float):
            return self.op(t, f"{'f' if t.is_float else ''}{_ARITH[kind]} {a}, {b.text}")
        if kind is ast.Div and t.is_float:
            return self.op(t, f"fdiv {a}, {b.text}")
        if kind in _BITS and (t.is_int or t is i1):
            return self.op(t, f"{_BITS[kind]} {a}, {b.text}")
        if kind in (ast.LShift, ast.RShift) and t.is_int:
            word = "shl" if kind is ast.LShift else ("ashr" if t.kind == "i" else "lshr")
            return self.op(t, f"{word} {a}, {b.text}")
        if kind in (ast.FloorDiv, ast.Mod) and t.is_int:
            return self.floor_division(kind, a, b)
        hint = "; write a // b for integers" if kind is ast.Div else ""
        self.fail(f"operator {kind.__name__} is not defined on {t}{hint}")

    def pointer_arithmetic(self, kind: type, a: Val, b: Any) -> Val:
        """`p + n` and `p - n` in bytes; `p - q` is an i64."""
        if isinstance(b, Val) and b.type is ptr:
            if kind is not ast.Sub:
                self.fail("two pointers cannot be added")
            return self.op(i64, f"sub {self.cast(a, i64)}, {self.cast(b, i64).text}")
        if kind is ast.Sub:
            b = self.binary(ast.Sub, 0, b)
        return self.offset(a, u8, b)

    def floor_division(self, kind: type, a: Val, b: Val) -> Val:
        """Python's // and %: rounded down for signed operands.  (`sdiv` and `srem` are C's.)"""
        t = a.type
        if t.kind == "u":
            return self.op(t, f"{'udiv' if kind is ast.FloorDiv else 'urem'} {a}, {b.text}")
        rest = self.op(t, f"srem {a}, {b.text}")
        inexact = self.op(i1, f"icmp ne {rest}, 0")
        opposite = self.op(i1, f"icmp slt {self.op(t, f'xor {rest}, {b.text}')}, 0")
        fix = self.op(i1, f"and {inexact}, {opposite.text}")
        if kind is ast.Mod:
            return self.op(t, f"select {fix}, {self.op(t, f'add {rest}, {b.text}')}, {rest}")
        quotient = self.op(t, f"sdiv {a}, {b.text}")
        return self.op(t, f"add {quotient}, {self.op(t, f'sext {fix} to {t.llvm}').text}")

    def e_Compare(self, node: ast.Compare) -> Any:
        left = self.expr(node.left)
        if len(node.ops) == 1:
            return self.compare(type(node.ops[0]), left, self.expr(node.comparators[0]))
        slot, end = self.slot(i1, "chain"), self.label("chain")
        for i, (op, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = self.expr(right_node)
            result = self.truth(self.compare(type(op), left, right))
            self.emit(f"store {result}, ptr {slot}")
            if i + 1 < len(node.ops):
                more = self.label("more")
                self.branch(result, more, end)
                self.place(more)
            left = right
        self.place(end)
        return self.op(i1, f"load i1, ptr {slot}")

    def compare(self, kind: type, a: Any, b: Any) -> Any:
        if not isinstance(a, Val) and not isinstance(b, Val):
            return _FOLD[kind](a, b)
        if kind in (ast.Is, ast.IsNot):
            if (a is None or b is None) and (a if b is None else b).type is ptr:
                return self.compare(ast.Eq if kind is ast.Is else ast.NotEq, a, b)
            self.fail("is and is not compare a ptr with None, or compile-time objects")
        if kind not in _COMPARE:
            self.fail(f"{kind.__name__} is not in the subset")
        a, b = self.pair(a, b)
        word, t = _COMPARE[kind], a.type
        if t.is_float:
            return self.op(i1, f"fcmp {'une' if word == 'ne' else 'o' + word} {a}, {b.text}")
        prefix = "" if word in ("eq", "ne") else ("s" if t.kind == "i" else "u")
        return self.op(i1, f"icmp {prefix}{word} {a}, {b.text}")

    def e_BoolOp(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        slot, end, known = None, self.label("bool"), is_and
        for item in node.values:
            value = self.expr(item)
            if not isinstance(value, Val) and isinstance(value, (bool, int)):
                if bool(value) == is_and:  # a neutral operand
                    continue
                if slot is None:
                    return not is_and
            condition = self.truth(value)
            slot = slot or self.slot(i1, "bool")
            self.emit(f"store {condition}, ptr {slot}")
            more = self.label("more")
            self.branch(condition, *((more, end) if is_and else (end, more)))
            self.place(more)
        if slot is None:
            return known
        self.place(end)
        return self.op(i1, f"load i1, ptr {slot}")

    def e_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.expr(node.test)
        if not isinstance(condition, Val):
            return self.expr(node.body if condition else node.orelse)
        yes, no, end = self.label("yes"), self.label("no"), self.label("end")
        self.branch(self.truth(condition), yes, no)
        self.place(yes)
        a = self.expr(node.body)
        mark, dead = len(self.body), self.dead
        self.body.append("")  # the store of the first arm: its type may come from the second arm
        self.jump(end)
        self.place(no)
        b = self.expr(node.orelse)
        if not isinstance(a, Val) and not isinstance(b, Val) and isinstance(b, float):
            a = self.constant(a, f64)
        a, b = self.pair(a, b)
        slot = self.slot(a.type, "if")
        self.body[mark] = "" if dead else f"  store {a}, ptr {slot}"
        self.emit(f"store {b}, ptr {slot}")
        self.place(end)
        return self.op(a.type, f"load {a.type.llvm}, ptr {slot}")

    def e_Call(self, node: ast.Call) -> Any:
        if node.keywords:
            self.fail("keyword arguments are not in the subset")
        callee = self.expr(node.func)
        args = [self.expr(a) for a in node.args]
        if isinstance(callee, Intrinsic):
            return callee.emit(self, args)
        if isinstance(callee, Type):
            if len(args) != 1:
                self.fail(f"a cast takes one argument: {callee}(x)")
            return self.cast(args[0], callee)
        if isinstance(callee, NativeFunction):
            return self.call(self.pointer(callee).text, callee.signature, args)
        if isinstance(callee, Extern):
            return self.call(self.pointer(callee).text, callee.signature, args)
        if callee in (min, max):
            return self.extremum(callee is min, args)
        if callee is abs and len(args) == 1:
            return self.absolute(args[0])
        self.fail(f"{callee!r} cannot be called here")

    def call(self, target: str, signature: Signature, args: list[Any]) -> Val:
        """A direct or indirect call; the arguments must have the types of the signature."""
        n = len(signature.args)
        if len(args) < n or (len(args) > n and not signature.varargs):
            self.fail(f"the function has signature {signature.text!r} and was given {len(args)} arguments")
        values = [self.typed(a, t) for a, t in zip(args, signature.args, strict=False)]
        values += [self.natural(a) for a in args[n:]]
        type_ = signature.llvm if signature.varargs else signature.result.llvm
        text = f"call {type_} {target}({', '.join(map(str, values))})"
        if signature.result is void:
            self.emit(text)
            return Val(void, "")
        return self.op(signature.result, text)

    def extremum(self, smaller: bool, args: list[Any]) -> Any:
        """`min` and `max` of two operands; on floats as written in Python, so `min(a, b)` is `b if b < a else a`."""
        if len(args) != 2:
            self.fail("min and max take two arguments")
        if not isinstance(args[0], Val) and not isinstance(args[1], Val):
            return (min if smaller else max)(*args)
        a, b = self.pair(*args)
        better = self.compare(ast.Lt if smaller else ast.Gt, b, a)
        return self.op(a.type, f"select {better}, {b}, {a}")

    def absolute(self, x: Any) -> Any:
        if not isinstance(x, Val):
            return abs(x)
        if x.type.is_float:
            name = f"llvm.fabs.f{x.type.bits}"
            return self.op(x.type, self.intrinsic(name, x.type.llvm, x.type.llvm, str(x)))
        negative = self.op(i1, f"icmp slt {x}, 0")
        return self.op(x.type, f"select {negative}, {self.op(x.type, f'sub {x.type.llvm} 0, {x.text}')}, {x}")

    # ***** statements *****

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.node = statement
            method = getattr(self, "s_" + type(statement).__name__, None)
            if method is None:
                self.fail(f"{type(statement).__name__} statements are not in the subset")
            method(statement)

    def s_Pass(self, node: ast.Pass) -> None:
        pass

    def s_Expr(self, node: ast.Expr) -> None:
        if not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
            self.expr(node.value)

    def s_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.fail("a = b = c is not in the subset")
        target = node.targets[0]
        if isinstance(target, ast.Tuple):
            if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != len(target.elts):
                self.fail("a tuple assignment needs a tuple of the same length on the right")
            values = [self.natural(self.expr(e)) for e in node.value.elts]
            for t, v in zip(target.elts, values, strict=True):
                self.assign(t, v)
        else:
            self.assign(target, self.expr(node.value))

    def s_AnnAssign(self, node: ast.AnnAssign) -> None:
        """`x: u32 = 0` fixes the type of x."""
        type_ = self.expr(node.annotation)
        if not isinstance(type_, Type) or node.value is None:
            self.fail("an annotated assignment is written x: u32 = value")
        self.assign(node.target, self.typed(self.expr(node.value), type_))

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            type_, address = self.element(target)
            self.store(type_, address, value)
        elif isinstance(target, ast.Name):
            if target.id not in self.vars:
                type_ = self.natural(value).type
                if type_ is void:
                    self.fail("a void call has no value")
                self.vars[target.id] = (type_, self.slot(type_, target.id))
            type_, slot = self.vars[target.id]
            if isinstance(value, Val) and value.type is not type_:
                self.fail(f"variable {target.id!r} is {type_}, the value is {value.type}; cast with {type_}(...)")
            self.emit(f"store {self.typed(value, type_)}, ptr {slot}")
        else:
            self.fail("only names and elements p.T[i] can be assigned")

    def s_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            type_, address = self.element(node.target)
            result = self.binary(type(node.op), self.load(type_, address), self.expr(node.value))
            self.store(type_, address, result)
        elif isinstance(node.target, ast.Name):
            old = self.e_Name(ast.Name(node.target.id, ast.Load()))
            self.assign(node.target, self.binary(type(node.op), old, self.expr(node.value)))

    def s_Return(self, node: ast.Return) -> None:
        result = self.signature.result
        if node.value is None or result is void:
            if node.value is not None or result is not void:
                self.fail(f"the function returns {result}")
            self.emit("ret void")
        else:
            self.emit(f"ret {self.typed(self.expr(node.value), result)}")
        self.dead = True

    def s_If(self, node: ast.If) -> None:
        condition = self.expr(node.test)
        if not isinstance(condition, Val):  # known at compile time: the other arm is not even looked at
            self.block(node.body if condition else node.orelse)
            return
        yes, no, end = self.label("then"), self.label("else"), self.label("endif")
        self.branch(self.truth(condition), yes, no)
        self.place(yes)
        self.block(node.body)
        self.jump(end)
        self.place(no)
        self.block(node.orelse)
        self.place(end)

    def loop_body(self, statements: list[ast.stmt], next_: str, end: str) -> None:
        self.loops.append((next_, end))
        self.block(statements)
        self.loops.pop()

    def s_While(self, node: ast.While) -> None:
        if node.orelse:
            self.fail("else on a loop is not in the subset")
        head, body, end = self.label("while"), self.label("body"), self.label("done")
        self.place(head)
        condition = self.expr(node.test)
        if not isinstance(condition, Val) and condition:
            self.jump(body)
        else:
            self.branch(self.truth(condition), body, end)
        self.place(body)
        self.loop_body(node.body, head, end)
        self.jump(head)
        self.place(end)

    def s_For(self, node: ast.For) -> None:
        """`for i in range(...)`: bounds are read once; the step is a constant."""
        call = node.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if not is_range or node.orelse or not isinstance(node.target, ast.Name):
            self.fail("a for loop is written: for i in range(start, stop, step)")
        args = [self.expr(a) for a in call.args]  # type: ignore[attr-defined]
        start, stop = (0, args[0]) if len(args) == 1 else args[:2]
        step = args[2] if len(args) == 3 else 1
        if not isinstance(step, int) or step == 0:
            self.fail("the step of range must be a non-zero constant")
        start, stop = self.pair(start, stop)
        counter = self.slot(start.type, "count")
        self.emit(f"store {start}, ptr {counter}")
        head, body, next_, end = (self.label(x) for x in ("for", "body", "next", "done"))
        self.place(head)
        i = self.op(start.type, f"load {start.type.llvm}, ptr {counter}")
        self.branch(self.compare(ast.Lt if step > 0 else ast.Gt, i, stop), body, end)
        self.place(body)
        self.assign(node.target, i)
        self.loop_body(node.body, next_, end)
        self.place(next_)
        i = self.op(start.type, f"load {start.type.llvm}, ptr {counter}")
        i = self.op(start.type, f"add {i}, {self.constant(step, start.type).text}")
        self.emit(f"store {i}, ptr {counter}")
        self.jump(head)
        self.place(end)

    def s_Break(self, node: ast.Break) -> None:
        if not self.loops:
            self.fail("break outside a loop")
        self.jump(self.loops[-1][1])

    def s_Continue(self, node: ast.Continue) -> None:
        if not self.loops:
            self.fail("continue outside a loop")
        self.jump(self.loops[-1][0])

    # ***** the whole *****

    def text(self) -> str:
        """The LLVM definition."""
        node = self.node
        assert isinstance(node, ast.FunctionDef)
        params = []
        for arg, type_ in zip(node.args.args, self.signature.args, strict=True):
            params.append(f"{type_.llvm} %arg.{arg.arg}")
            slot = self.slot(type_, arg.arg)
            self.vars[arg.arg] = (type_, slot)
            self.emit(f"store {type_.llvm} %arg.{arg.arg}, ptr {slot}")
        self.block(node.body)
        if not self.dead:
            self.node = node
            if self.signature.result is not void:
                self.fail("the function can end without returning a value")
            self.emit("ret void")
        linkage = "" if self.exported else "internal "
        attributes = "nounwind" + (" alwaysinline" if self.function.inline and not self.exported else "")
        name = f"{self.signature.result.llvm} @{self.unit.symbol(self.function)}"
        head = f"define {linkage}{name}({', '.join(params)}) {attributes} {{"
        return "\n".join([head, "entry:", *self.entry, *self.body, "}"])
