"""Expressions of native functions: each is a typed LLVM value, or a compile-time Python object, which is folded."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from rushlight._native.emitter import Emitter, Val
from rushlight._native.function import NativeFunction
from rushlight._native.intrinsics import Intrinsic
from rushlight._native.types import (
    TYPES,
    Extern,
    ExternData,
    Field,
    Listed,
    Record,
    Signature,
    Static,
    Type,
    Words,
    f64,
    i1,
    i64,
    ptr,
    u8,
    void,
)

__all__ = ["Expressions"]

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


class Expressions(Emitter):
    """Expressions by `e_Name` methods, one for a kind of node."""

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
        if isinstance(owner, Type | Words | Record) and hasattr(owner, node.attr):
            return getattr(owner, node.attr)
        self.fail(
            "attributes exist on types (T.bits), on words (W.name), on records (R.name) and, indexed, on pointers (p.f32[i])"
        )

    def e_Subscript(self, node: ast.Subscript) -> Val:
        base_field = self.field(node)
        if base_field is not None:
            base, field = base_field
            address = self.offset(base, i64, field.place)
            if isinstance(field.type, Record):
                return address
            if isinstance(field.type, Listed):
                return self.offset(address, i64, self.load(i64, address))
            return self.load(field.type, address)
        type_, address = self.element(node)
        return self.load(type_, address)

    def field(self, node: ast.Subscript) -> tuple[Val, Field] | None:
        """Pointer and field of `p[R.name]`; None for other subscripts."""
        if not isinstance(node.slice, ast.Attribute) or not isinstance(node.slice.value, ast.Name):
            return None
        if node.slice.value.id in self.vars or not isinstance(self.e_Name(node.slice.value), Record):
            return None
        found = self.expr(node.slice)
        return self.typed(self.expr(node.value), ptr), found

    def element(self, node: ast.Subscript) -> tuple[Type, Val]:
        """Type and address of `p.T[i]`, and of `p[R.name]` where the field holds a value."""
        base_field = self.field(node)
        if base_field is not None:
            base, field = base_field
            if not isinstance(field.type, Type):
                self.fail(f"{field.name} is no value that can be written")
            return field.type, self.offset(base, i64, field.place)
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
                self.emit(f"store i1 {int(not is_and)}, ptr {slot}")
                break  # it decides: what follows is not even looked at
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
