"""Conditions: what they tell about types, and whether they are known while the function is compiled."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight.jit.frontend.errors import CompileError
from rushlight.jit.frontend.sugared import Simple
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Location, Value
from rushlight.jit.ir.passes.constants import constant_of, is_constant
from rushlight.jit.ir.types import Type

__all__ = ["Condition", "Conditions"]

_COMPARE = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Is: "__is__", ast.IsNot: "__isnot__", ast.In: "in",
    ast.NotIn: "notin",
}  # fmt: skip


class Condition:
    """A value, the types that variables have where it is true and where it is false, and what it is where that is known."""

    __slots__ = ("negative", "positive", "static", "value")

    def __init__(
        self, value: Value, positive: dict[str, Type], negative: dict[str, Type], static: bool | None = None
    ) -> None:
        self.value, self.positive, self.negative, self.static = value, positive, negative, static


class Conditions:
    """The part of the emitter that is about conditions."""

    graph: Any
    expr: Any
    sugared: Any
    at: Any
    compare: Any
    inside: Any
    set_variable: Any
    scope: Any
    operator: Any
    special_name: Any
    type_expression: Any

    def condition(self, node: ast.expr) -> Condition:
        """The meaning of an expression as a condition."""
        at = self.at(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            self.graph.location = at
            if inner.static is not None:
                value = self.graph.constant(not inner.static, T.BOOL)
                return Condition(value, inner.negative, inner.positive, not inner.static)
            value = self.operator(at, "aten::__not__", [inner.value], {})
            return Condition(value, inner.negative, inner.positive)
        if isinstance(node, ast.BoolOp):
            return self._logical(node, list(node.values))
        if isinstance(node, ast.Compare):
            found = self.comparison(node)
            if len(node.ops) == 1 and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                found.value = self.to_bool(found.value, at)
            return found
        if isinstance(node, ast.Call):
            found = self._asking(node)
            if found is not None:
                return found
        value = self.to_bool(self.expr(node), at)
        static = None
        if is_constant(value) and isinstance(constant_of(value), bool):
            static = constant_of(value)
        elif value.node is not None and value.node.kind_ == "aten::is_scripting":
            static = True
        return Condition(value, {}, {}, static)

    def to_bool(self, value: Value, at: Location) -> Value:
        """A value as bool."""
        self.graph.location = at
        self.graph.skip_number()  # the zero of a cast
        if value.type == T.BOOL:
            return value
        kind = value.type
        if kind in (T.INT, T.FLOAT, T.TENSOR, T.COMPLEX, T.NUMBER):
            if is_constant(value) and kind != T.TENSOR:
                return self.graph.constant(bool(constant_of(value)), T.BOOL)
            return self.operator(at, "aten::Bool", [value], {})
        if kind.name in ("List", "Dict"):
            count = self.operator(at, "aten::len", [value], {})
            return self.operator(at, "aten::ne", [count, self.graph.constant(0, T.INT)], {})
        if isinstance(kind, T.ClassType) and kind.find_method("__bool__") is not None:
            return Simple(value).attr(self, at, "__bool__").call(self, at, [], {}).value(self, at)
        raise CompileError(f"Could not cast value of type {kind.annotation} to bool", at)

    # ***** and, or *****

    def _logical(self, node: ast.BoolOp, values: list[ast.expr]) -> Condition:
        is_or = isinstance(node.op, ast.Or)
        first = self.condition(values[0])
        for each in values[1:]:
            first = self._joined(node, first, each, is_or)
        return first

    def _joined(self, node: ast.BoolOp, first: Condition, second: ast.expr, is_or: bool) -> Condition:
        at = self.at(node)
        # What decides by itself leaves the rest unlooked at.
        if first.static is not None:
            if first.static is is_or:
                return first
            with self.scope(), self.refined(first, not is_or):
                rest = self.condition(second)
            return self._merged(rest.value, first, rest, is_or, rest.static)
        self.graph.location = at
        made = self.graph.insert(self.graph.create("prim::If", [first.value], ()))
        short, long = (made.add_block(), made.add_block())
        if not is_or:
            short, long = long, short
        for block in made.blocks:  # in their order, which numbers of values follow
            if block is short:
                with self.inside(short):
                    self.graph.location = at
                    short.add_result(self.graph.constant(is_or, T.BOOL))
            else:
                with self.inside(long), self.refined(first, not is_or):
                    rest = self.condition(second)
                    long.add_result(rest.value)
        value = made.add_output(T.BOOL)
        static = is_or if rest.static is is_or else None
        if static is not None:
            value = self.graph.constant(static, T.BOOL)
        return self._merged(value, first, rest, is_or, static)

    def _merged(self, value: Value, a: Condition, b: Condition, is_or: bool, static: bool | None) -> Condition:
        both, either = (
            (a.negative, b.negative) if is_or else (a.positive, b.positive),
            ((a.positive, b.positive) if is_or else (a.negative, b.negative)),
        )
        all_of = {**both[0], **both[1]}
        common = {n: t for n, t in either[0].items() if either[1].get(n) == t}
        return Condition(value, common, all_of, static) if is_or else Condition(value, all_of, common, static)

    # ***** comparisons *****

    def comparison(self, node: ast.Compare) -> Condition:
        """The meaning of a comparison, or of several in a row."""
        at = self.at(node)
        if len(node.ops) > 1:
            parts: list[ast.expr] = []
            left = node.left
            for op, right in zip(node.ops, node.comparators, strict=True):
                parts.append(ast.copy_location(ast.Compare(left, [op], [right]), node))
                left = right
            joined = ast.copy_location(ast.BoolOp(ast.And(), parts), node)
            return self._logical(joined, parts)
        name = _COMPARE[type(node.ops[0])]
        left, right = self.expr(node.left), self.expr(node.comparators[0])
        if name in ("__is__", "__isnot__"):
            return self._is_none(node, name, left, right, at)
        return Condition(self.compare(name, left, right, at), {}, {})

    def _is_none(self, node: ast.Compare, name: str, left: Value, right: Value, at: Location) -> Condition:
        negated = name == "__isnot__"
        static: bool | None = None
        a, b = left.type, right.type
        if a == T.NONE and b == T.NONE:
            static = not negated
        elif T.NONE in (a, b):
            other = b if a == T.NONE else a
            if other.name not in ("Optional", "Any") and not (other.name == "Union" and T.NONE in other.inner):
                static = negated
        self.graph.location = at
        if static is not None:
            return Condition(self.graph.constant(static, T.BOOL), {}, {}, static)
        value = self.compare(name, left, right, at)
        some: dict[str, Type] = {}
        none: dict[str, Type] = {}
        for tested, kind, other in ((node.left, a, b), (node.comparators[0], b, a)):
            named = self._refinable(tested)
            if other != T.NONE or named is None:
                continue
            if kind.name == "Optional":
                some[named] = kind.inner[0]
            elif kind.name == "Union":
                some[named] = T.union([t for t in kind.inner if t != T.NONE])
        return Condition(value, some, none) if negated else Condition(value, none, some)

    def _refinable(self, node: ast.expr) -> str | None:
        return node.id if isinstance(node, ast.Name) else None

    # ***** isinstance, hasattr *****

    def _asking(self, node: ast.Call) -> Condition | None:
        name = self.special_name(node.func)
        if name == "isinstance" and len(node.args) == 2:
            return self._isinstance(node)
        if name == "hasattr" and len(node.args) == 2:
            found = self.has_attribute(node)
            self.graph.location = self.at(node)
            return Condition(self.graph.constant(found, T.BOOL), {}, {}, found)
        if name in ("is_scripting", "is_tracing", "is_compiling"):
            answer = name == "is_scripting"
            self.graph.location = self.at(node)
            return Condition(self.graph.constant(answer, T.BOOL), {}, {}, answer)
        return None

    def has_attribute(self, node: ast.Call) -> bool:
        """Whether an object has an attribute."""
        wanted = node.args[1]
        if not isinstance(wanted, ast.Constant) or not isinstance(wanted.value, str):
            raise CompileError("hasattr's second argument must be a string literal", self.at(node))
        base = self.sugared(node.args[0])
        if isinstance(base, Simple) and isinstance(base.inner.type, T.ClassType):
            kind = base.inner.type
            name = wanted.value
            return (
                name in kind.attributes or name in kind.constants or name in kind.overloads or name in kind.properties
                or kind.find_method(name) is not None or name in kind.raw
            )  # fmt: skip
        try:
            base.attr(self, self.at(node), wanted.value)
        except CompileError:
            return False
        return True

    def _isinstance(self, node: ast.Call) -> Condition:
        at = self.at(node)
        value = self.expr(node.args[0])
        wanted = self.tested_types(node.args[1])
        members = T.members_of(value.type)
        fit = [m for m in members if _fits(m, wanted)]
        if value.type.name == "Any":
            return self._any_isinstance(node, value, wanted, at)
        if len(fit) == len(members) or not fit:
            static = len(fit) == len(members)
            self.graph.location = at
            return Condition(self.graph.constant(static, T.BOOL), {}, {}, static)
        rest = [m for m in members if m not in fit]
        self.graph.location = at
        made = self.graph.op("prim::isinstance", [value], T.BOOL, types=wanted)
        named = self._refinable(node.args[0])
        if named is None:
            return Condition(made, {}, {})
        return Condition(made, {named: T.union(fit)}, {named: T.union(rest)})

    def _any_isinstance(self, node: ast.Call, value: Value, wanted: list[Type], at: Location) -> Condition:
        self.graph.location = at
        made = self.graph.op("prim::isinstance", [value], T.BOOL, types=wanted)
        named = self._refinable(node.args[0])
        exact = [t for t in wanted if t.name not in ("AnyListType", "AnyTupleType", "Dict")]
        positive = {named: T.union(exact)} if named is not None and len(exact) == len(wanted) else {}
        return Condition(made, positive, {})

    def tested_types(self, node: ast.expr) -> list[Type]:
        """The types of isinstance's second argument."""
        if isinstance(node, ast.Tuple):
            return [t for each in node.elts for t in self.tested_types(each)]
        if isinstance(node, ast.Name) and node.id in ("list", "tuple"):
            return [Type("AnyListType" if node.id == "list" else "AnyTupleType")]
        found = self.type_expression(node)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    # ***** what conditions tell *****

    @contextmanager
    def refined(self, condition: Condition, positive: bool) -> Iterator[None]:
        """Variables have the types that a condition tells."""
        for name, kind in (condition.positive if positive else condition.negative).items():
            self.refine(name, kind)
        yield

    def refine(self, name: str, kind: Type) -> None:
        """Give a variable a narrower type from here on."""
        held = self.lookup(name, self.graph.location)  # type: ignore[attr-defined]
        if not isinstance(held, Simple) or held.inner.type == kind or not T.is_subtype(kind, held.inner.type):
            return
        made = self.graph.op("prim::unchecked_cast", [held.inner], kind)
        self.set_variable(name, Simple(made), self.graph.location, refining=True)


def _fits(member: Type, wanted: list[Type]) -> bool:
    return any(T.is_subtype(member, t) or t.name == "Dict" and not t.inner and member.name == "Dict" for t in wanted)
