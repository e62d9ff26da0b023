"""Expressions: from syntax to values of the graph."""

from __future__ import annotations

import ast
import copy
from typing import Any

from rushlight.jit.frontend.builtins import written
from rushlight.jit.frontend.conditions import Conditions
from rushlight.jit.frontend.errors import CompileError, NotSupportedError, UnsupportedNodeError
from rushlight.jit.frontend.matching import converted, default_constant
from rushlight.jit.frontend.sugared import Items, NoneValue, Simple, SliceParts, Sugared, builtin_call
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Location, Value
from rushlight.jit.ir.passes.constants import constant_of, is_constant
from rushlight.jit.ir.schemas import variants
from rushlight.jit.ir.types import Type

__all__ = ["Expressions"]

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "remainder", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.BitAnd: "__and__", ast.BitOr: "__or__", ast.BitXor: "__xor__", ast.LShift: "__lshift__", ast.RShift: "__rshift__",
}  # fmt: skip
_MAGIC = {
    "add": "__add__", "sub": "__sub__", "mul": "__mul__", "div": "__truediv__", "floordiv": "__floordiv__", "remainder": "__mod__", "pow": "__pow__",
    "matmul": "__matmul__", **{n: n for n in ("__and__", "__or__", "__xor__", "__lshift__", "__rshift__")}, "eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "gt": "__gt__", "le": "__le__", "ge": "__ge__", "neg": "__neg__",
}  # fmt: skip
_REVERSED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne", "add": "add", "mul": "mul"}


class Expressions(Conditions):
    """The part of the emitter that is about expressions."""

    lookup: Any
    find: Any
    module_getitem: Any
    iterable: Any
    assign: Any
    loop: Any

    def expr(self, node: ast.expr, hint: Type | None = None) -> Value:
        """The value of an expression."""
        at = self.at(node)
        return self.sugared(node, hint).value(self, at)

    def sugared(self, node: ast.expr, hint: Type | None = None) -> Sugared:
        """The meaning of an expression."""
        handler = getattr(self, f"_expr_{type(node).__name__}", None)
        if handler is None:
            raise UnsupportedNodeError(f"{type(node).__name__} aren't supported", self.at(node))
        self.graph.location = self.at(node)
        return handler(node, hint)

    # ***** names and literals *****

    def _expr_Name(self, node: ast.Name, hint: Type | None) -> Sugared:
        return self.lookup(node.id, self.at(node))

    def _expr_Constant(self, node: ast.Constant, hint: Type | None) -> Sugared:
        value = node.value
        if value is Ellipsis:
            raise NotSupportedError("'...' is only supported as an index", self.at(node))
        if isinstance(value, bytes):
            raise NotSupportedError("bytes aren't supported", self.at(node))
        kind = {int: T.INT, float: T.FLOAT, complex: T.COMPLEX}.get(type(value))
        if kind is not None:
            return Simple(self.graph.literal(value, kind))
        return Simple(default_constant(self.graph, value, T.ANY))

    def _expr_JoinedStr(self, node: ast.JoinedStr, hint: Type | None) -> Sugared:
        text, values = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                if part.conversion != -1:
                    raise NotSupportedError("Don't support conversion in JoinedStr", self.at(node))
                if part.format_spec is not None:
                    raise NotSupportedError("Don't support formatting in JoinedStr", self.at(node))
                text += "{}"
                values.append(self.expr(part.value))
        self.graph.location = self.at(node)
        constant = self.graph.constant(text, T.STR)
        return Simple(builtin_call(self, self.at(node), "aten::format", [constant, *values], {}))

    def _expr_List(self, node: ast.List, hint: Type | None) -> Sugared:
        at = self.at(node)
        hint = hint.inner[0] if hint is not None and hint.name == "Optional" else hint
        wanted = hint.inner[0] if hint is not None and hint.name == "List" else None
        values = self.many(node.elts, wanted)
        self.graph.location = at
        return Simple(self.list_of_values(values, wanted, at, hint))

    def list_of_values(self, values: list[Value], wanted: Type | None, at: Location, hint: Type | None = None) -> Value:
        """A list: its element type is the hint's, or that which all values have."""
        element = wanted
        if element is None:
            element = values[0].type if values else T.TENSOR
            for value in values[1:]:
                joined = T.unify(element, value.type)
                if joined is None:
                    joined = T.union((element, value.type))
                element = joined
        made = []
        for value in values:
            each = converted(self.graph, element, value, wanted is not None)
            if not T.is_subtype(each.type, element):
                raise CompileError(
                    f"Lists must contain only a single type: expected {element.annotation} but found {each.type.annotation}",
                    at,
                )
            made.append(each)
        return self.graph.op("prim::ListConstruct", made, T.list_of(element))

    def _expr_Tuple(self, node: ast.Tuple, hint: Type | None) -> Sugared:
        hints = hint.inner if hint is not None and hint.name == "Tuple" and len(hint.inner) == len(node.elts) else ()
        if any(isinstance(n, ast.Starred) for n in node.elts):
            values = self.many(node.elts, None)
        else:
            values = [self.expr(n, hints[i] if hints else None) for i, n in enumerate(node.elts)]
        self.graph.location = self.at(node)
        return Simple(self.graph.op("prim::TupleConstruct", values, T.tuple_of(*[v.type for v in values])))

    def many(self, nodes: list[ast.expr], hint: Type | None) -> list[Value]:
        """Values of expressions, of which some may be starred."""
        values = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                at = self.at(node)
                parts = self.sugared(node.value).items(self, at)
                if parts is None:
                    raise NotSupportedError(
                        "cannot unpack a value whose length is not known: only tuples may be starred", at
                    )
                values += [p.value(self, at) for p in parts]
            else:
                values.append(self.expr(node, hint))
        return values

    def _expr_Dict(self, node: ast.Dict, hint: Type | None) -> Sugared:
        at = self.at(node)
        hint = hint.inner[0] if hint is not None and hint.name == "Optional" else hint
        kind = hint if hint is not None and hint.name == "Dict" and len(hint.inner) == 2 else None
        values: list[Value] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise NotSupportedError("Dict expansion (e.g. `{**dict}`) is not supported", at)
            values.append(self.expr(key, kind.inner[0] if kind is not None else None))
            values.append(self.expr(value, kind.inner[1] if kind is not None else None))
        if kind is None:
            kind = T.dict_of(T.STR, T.TENSOR) if not values else self._dict_type(values, at)
        else:
            values = [
                self.convert(v, kind.inner[i % 2], at, "Dict entries must have the type of the annotation")
                for i, v in enumerate(values)
            ]
        self.graph.location = at
        return Simple(self.graph.op("prim::DictConstruct", values, kind))

    def _dict_type(self, values: list[Value], at: Location) -> Type:
        key, held = values[0].type, values[1].type
        for i, value in enumerate(values):
            joined = T.unify(held if i % 2 else key, value.type)
            if joined is None:
                which = "value" if i % 2 else "key"
                raise CompileError(
                    f"Dict {which}s must contain only a single type. Expected: {(held if i % 2 else key).annotation}",
                    at,
                )
            if i % 2:
                held = joined
        return T.dict_of(key, held)

    # ***** operators *****

    def _expr_BinOp(self, node: ast.BinOp, hint: Type | None) -> Sugared:
        at = self.at(node)
        left, right = self.expr(node.left), self.expr(node.right)
        return Simple(self.binary(_BINARY[type(node.op)], left, right, at))

    def binary(self, name: str, left: Value, right: Value, at: Location) -> Value:
        """An operator of two values."""
        self.graph.location = at
        if isinstance(left.type, T.ClassType) and name in _MAGIC:
            return Simple(left).attr(self, at, _MAGIC[name]).call(self, at, [right], {}).value(self, at)
        if name == "add" and left.type.name == "Tuple" and right.type.name == "Tuple":
            parts = [
                v
                for t in (left, right)
                for v in self.graph.insert(self.graph.create("prim::TupleUnpack", [t], t.type.inner)).outputs
            ]
            joined: Value = self.graph.op("prim::TupleConstruct", parts, T.tuple_of(*[p.type for p in parts]))
            return joined
        if name == "remainder" and left.type == T.STR:
            return builtin_call(self, at, "aten::percentFormat", [left, right], {})
        if right.type == T.TENSOR and left.type in (T.INT, T.FLOAT, T.BOOL, T.COMPLEX, T.NUMBER):
            made = self._number_first(name, left, right, at)
            if made is not None:
                return made
        if name == "floordiv" and T.TENSOR in (left.type, right.type):
            name = "floor_divide"
        return self.operator(at, f"aten::{name}", [left, right], {})

    def _number_first(self, name: str, left: Value, right: Value, at: Location) -> Value | None:
        """A number before a tensor, written with the operators for a tensor before a number."""
        if name in _REVERSED:
            return self.operator(at, f"aten::{_REVERSED[name]}", [right, left], {})
        if name == "sub":
            negative = self.operator(at, "aten::neg", [right], {})
            return self.operator(at, "aten::add", [negative, left], {})
        if name == "div":
            inverse = self.operator(at, "aten::reciprocal", [right], {})
            return self.operator(at, "aten::mul", [inverse, left], {})
        return None

    def _expr_UnaryOp(self, node: ast.UnaryOp, hint: Type | None) -> Sugared:
        at = self.at(node)
        if isinstance(node.op, ast.Not):
            return Simple(self.condition(node).value)
        value = self.expr(node.operand)
        self.graph.location = at
        if isinstance(node.op, ast.USub):
            if is_constant(value) and type(constant_of(value)) in (int, float, complex):
                self.graph.skip_number()  # `aten::neg`, which is computed at once
                return Simple(default_constant(self.graph, -constant_of(value), T.ANY))
            if isinstance(value.type, T.ClassType):
                return Simple(value).attr(self, at, "__neg__").call(self, at, [], {})
            return Simple(self.operator(at, "aten::neg", [value], {}))
        if isinstance(node.op, ast.Invert):
            if isinstance(value.type, T.ClassType):
                return Simple(value).attr(self, at, "__invert__").call(self, at, [], {})
            return Simple(self.operator(at, "aten::bitwise_not", [value], {}))
        if is_constant(value) or value.type in (T.INT, T.FLOAT):
            return Simple(value)
        raise NotSupportedError("unsupported unary operator: UAdd", at)

    def _expr_Compare(self, node: ast.Compare, hint: Type | None) -> Sugared:
        return Simple(self.comparison(node).value)

    def _expr_BoolOp(self, node: ast.BoolOp, hint: Type | None) -> Sugared:
        return Simple(self.condition(node).value)

    def compare(self, name: str, left: Value, right: Value, at: Location) -> Value:
        """A comparison of two values."""
        self.graph.location = at
        if name in ("in", "notin"):
            if isinstance(right.type, T.ClassType):
                found = Simple(right).attr(self, at, "__contains__").call(self, at, [left], {}).value(self, at)
            else:
                found = self.operator(at, "aten::__contains__", [right, left], {})
            return found if name == "in" else self.operator(at, "aten::__not__", [found], {})
        if name in ("__is__", "__isnot__"):
            return self.operator(at, f"aten::{name}", [left, right], {})
        if name in ("eq", "ne") and isinstance(left.type, T.EnumType) and right.type == left.type:
            return self.operator(at, f"aten::{name}", [left, right], {})
        if name in ("eq", "ne") and T.NONE in (left.type, right.type) and left.type != right.type:
            return self.operator(at, "aten::__is__" if name == "eq" else "aten::__isnot__", [left, right], {})
        return self.binary(name, left, right, at)

    def _expr_IfExp(self, node: ast.IfExp, hint: Type | None) -> Sugared:
        at = self.at(node)
        condition = self.condition(node.test)
        if condition.static is not None:
            with self.refined(condition, condition.static):
                return Simple(self.expr(node.body if condition.static else node.orelse, hint))
        self.graph.location = at
        made = self.graph.insert(self.graph.create("prim::If", [condition.value], ()))
        values = []
        for branch, positive in ((node.body, True), (node.orelse, False)):
            block = made.add_block()
            with self.inside(block), self.refined(condition, positive):
                values.append(self.expr(branch, hint))
                block.add_result(values[-1])
        joined = T.unify(values[0].type, values[1].type)
        if joined is None and hint is not None:
            joined = hint
        if joined is None:
            raise CompileError(
                f"if-expression's true branch has type {values[0].type.annotation} but false branch has type {values[1].type.annotation}",
                at,
            )
        return Simple(made.add_output(joined))

    # ***** attributes and subscripts *****

    def _expr_Attribute(self, node: ast.Attribute, hint: Type | None) -> Sugared:
        base = self.sugared(node.value)
        self.graph.location = self.at(node)
        return base.attr(self, self.at(node), node.attr)

    def _expr_Subscript(self, node: ast.Subscript, hint: Type | None) -> Sugared:
        at = self.at(node)
        base = self.sugared(node.value)
        if not isinstance(base, Simple) or isinstance(base.inner.type, T.ClassType) and base.inner.type.is_module:
            return self._subscript_sugared(base, node, at)
        return Simple(self.subscript(base.inner, node.slice, at))

    def _subscript_sugared(self, base: Sugared, node: ast.Subscript, at: Location) -> Sugared:
        chosen = self.slice_of(node.slice)
        if chosen is not None:
            parts = base.items(self, at)
            if parts is None:
                raise CompileError(f"'{base.kind}' object is not subscriptable", at)
            return Items(parts[self._static_slice(chosen, at)])
        if isinstance(base, Simple):
            return self.module_getitem(base.inner, self.expr(node.slice), at)
        return base.getitem(self, at, self.expr(node.slice))

    def slice_of(self, index: ast.expr) -> ast.Slice | SliceParts | None:
        """An index that is a slice: one in syntax, a call of `slice`, or a name for what it gave; None for another."""
        if isinstance(index, ast.Slice):
            return index
        if isinstance(index, ast.Name):
            found = self.find(index.id)
            return found[1] if found is not None and isinstance(found[1], SliceParts) else None
        if isinstance(index, ast.Call) and self.special_name(index.func) == "slice":
            made = self.sugared(index)
            assert isinstance(made, SliceParts)
            return made
        return None

    def _bounds(self, chosen: ast.Slice | SliceParts) -> list[Value | None]:
        given = chosen.lower, chosen.upper, chosen.step
        return [part if part is None or isinstance(part, Value) else self.expr(part) for part in given]

    def _static_slice(self, chosen: ast.Slice | SliceParts, at: Location) -> slice:
        parts = []
        for value in self._bounds(chosen):
            if value is not None and not (is_constant(value) and isinstance(constant_of(value), (int, type(None)))):
                raise CompileError("slices of tuples and of lists of modules must be integer constants", at)
            parts.append(None if value is None else constant_of(value))
        return slice(*parts)

    def subscript(self, base: Value, index: ast.expr, at: Location) -> Value:
        """`base[index]`."""
        kind = base.type
        if kind.name == "Tuple" or isinstance(kind, T.NamedTupleType):
            return self._tuple_index(base, index, at)
        if isinstance(kind, T.ClassType):
            argument = self.expr(index)
            return Simple(base).attr(self, at, "__getitem__").call(self, at, [argument], {}).value(self, at)
        if kind == T.TENSOR:
            return self.tensor_index(base, index, at)
        if kind.name == "Optional":
            raise CompileError(
                f"'Optional[{kind.inner[0].annotation}]' object is not subscriptable: test it with `is not None` first",
                at,
            )
        chosen = self.slice_of(index)
        if chosen is not None:
            parts = self._slice_values(chosen)
            self.graph.location = at
            return builtin_call(self, at, "aten::slice", [base, *parts], {})
        if isinstance(index, ast.Tuple):
            raise CompileError("Sliced expression not yet supported for subscripted list: only single index", at)
        argument = self.expr(index)
        self.graph.location = at
        return builtin_call(self, at, "aten::__getitem__", [base, argument], {})

    def _slice_values(self, chosen: ast.Slice | SliceParts) -> list[Value]:
        given = self._bounds(chosen)
        absent = (None, T.NONE), (None, T.NONE), (1, T.INT)
        return [
            self.graph.constant(*held).unplaced() if value is None else value
            for value, held in zip(given, absent, strict=True)
        ]

    def _tuple_index(self, base: Value, index: ast.expr, at: Location) -> Value:
        kinds = base.type.inner
        bounds = self.slice_of(index)
        if bounds is not None:
            chosen = range(len(kinds))[self._static_slice(bounds, at)]
            parts = self.graph.insert(self.graph.create("prim::TupleUnpack", [base], kinds)).outputs
            picked = [parts[i] for i in chosen]
            return self.graph.op("prim::TupleConstruct", picked, T.tuple_of(*[v.type for v in picked]))
        value = self.expr(index)
        self.graph.location = at
        if not is_constant(value) or type(constant_of(value)) is not int:
            if len(set(kinds)) != 1:
                raise CompileError(
                    "Cannot index into a tuple with a non-integer literal because we cannot resolve the output type", at
                )
            return self.graph.op("prim::TupleIndex", [base, value], kinds[0])
        held = constant_of(value)
        if not -len(kinds) <= held < len(kinds):
            raise CompileError(f"Tuple index out of range. Tuple is length {len(kinds)} and index is {held}", at)
        return self.graph.op("prim::TupleIndex", [base, value], kinds[held])

    def index_parts(self, base: Value, index: ast.expr, at: Location) -> tuple[Value, list[Value | None]]:
        """A tensor after its whole numbers, slices and None, and the index tensors that are left, by dim."""
        parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
        sugared: list[Any] = []
        for part in parts:
            if isinstance(part, ast.Name) and part.id == "Ellipsis" and self.find(part.id) is None:
                part = ast.copy_location(ast.Constant(...), part)
            if isinstance(part, ast.Constant) and part.value is Ellipsis:
                sugared.append(part)
                continue
            chosen = self.slice_of(part)
            sugared.append(self.expr(part) if chosen is None else chosen)
        if len(sugared) == 1 and isinstance(sugared[0], Value) and sugared[0].type.name == "Tuple":
            sugared = list(
                self.graph.insert(self.graph.create("prim::TupleUnpack", [sugared[0]], sugared[0].type.inner)).outputs
            )
        after = 0
        for place, part in enumerate(sugared):
            if isinstance(part, ast.Constant):
                rest = sugared[place + 1 :]
                after = sum(not (isinstance(p, Value) and p.type == T.NONE) for p in rest)
        return self._apply_parts(base, sugared, after, at)

    def _apply_parts(self, base: Value, parts: list[Any], after: int, at: Location) -> tuple[Value, list[Value | None]]:
        dim, seen = 0, False
        tensors: list[Value | None] = []
        dims: list[int] = []
        self.graph.location = at
        for part in parts:
            if isinstance(part, ast.Constant):
                dim, seen = -after, True
                continue
            if isinstance(part, (ast.Slice, SliceParts)):
                self.graph.location = at
                place = self.graph.constant(dim, T.INT)
                values = [base, place, *self._slice_values(part)]
                self.graph.location = at
                base = builtin_call(self, at, "aten::slice", values, {})
                dims.append(dim)
                tensors.append(None)
                dim += 1
            elif part.type == T.NONE:
                base = builtin_call(self, at, "aten::unsqueeze", [base, self.graph.constant(dim, T.INT)], {})
                tensors.append(None)
                dims.append(dim)
                dim += 1
            elif part.type == T.INT:
                base = builtin_call(self, at, "aten::select", [base, self.graph.constant(dim, T.INT), part], {})
                if dim < 0:
                    dim += 1
            elif part.type in (T.TENSOR, T.optional(T.TENSOR)) or part.type.name == "List" or part.type == T.BOOL:
                tensors.append(self._index_tensor(part, at))
                dims.append(dim)
                dim += 1
            else:
                raise CompileError(
                    f"Unsupported operation: indexing tensor with unsupported index type '{part.type.annotation}'. Only ints, slices, lists and tensors are supported",
                    at,
                )
        if seen and any(t is not None for t in tensors):
            return self._after_ellipsis(base, tensors, dims, at)
        return base, tensors

    def _after_ellipsis(
        self, base: Value, tensors: list[Value | None], dims: list[int], at: Location
    ) -> tuple[Value, list[Value | None]]:
        """Index tensors behind an ellipsis: the dims move to the front where they can be named."""
        raise CompileError(
            "Ellipses followed by tensor indexing is currently not supported: name the dims with colons", at
        )

    def _index_tensor(self, part: Value, at: Location) -> Value:
        if part.type == T.BOOL or part.type.name == "List":
            return builtin_call(self, at, "aten::tensor", [part], {})
        return part

    def tensor_index(self, base: Value, index: ast.expr, at: Location) -> Value:
        """`tensor[index]`."""
        made, tensors = self.index_parts(base, index, at)
        while tensors and tensors[-1] is None:
            tensors.pop()
        if not tensors:
            return builtin_call(self, at, "aten::alias", [made], {}) if made is base else made
        values = self._tensor_list(tensors)
        return builtin_call(self, at, "aten::index", [made, values], {})

    def _tensor_list(self, tensors: list[Value | None]) -> Value:
        values = [self.graph.constant(None, T.NONE) if t is None else t for t in tensors]
        return self.graph.op("prim::ListConstruct", values, T.list_of(T.optional(T.TENSOR)))

    def store_index(self, base: Value, index: ast.expr, value: Value, at: Location) -> None:
        """`tensor[index] = value`."""
        made, tensors = self.index_parts(base, index, at)
        while tensors and tensors[-1] is None:
            tensors.pop()
        self.graph.location = at
        if not tensors:
            name = "aten::copy_"
            if value.type != T.TENSOR:
                value = self._number_as_tensor(made, value, at)
            builtin_call(self, at, name, [made, value], {})
            return
        if value.type != T.TENSOR:
            value = self._number_as_tensor(made, value, at)
        builtin_call(self, at, "aten::index_put_", [made, self._tensor_list(tensors), value], {})

    def _number_as_tensor(self, like: Value, value: Value, at: Location) -> Value:
        dtype = builtin_call(self, at, "prim::dtype", [like], {})
        device = builtin_call(self, at, "prim::device", [like], {})
        made = builtin_call(self, at, "aten::tensor", [value], {"dtype": dtype, "device": device})
        for each in (dtype, device, made):
            each.unplaced()  # nothing of the source asked for it
        return made

    # ***** comprehensions *****

    def _own_target(self, node: Any, *parts: str) -> Any:
        """A comprehension whose variables are no variables of the function around it."""
        target = node.generators[0].target
        taken = {n.id for n in ast.walk(target) if isinstance(n, ast.Name) and self.find(n.id) is not None}
        if not taken:
            return node
        made = copy.deepcopy(node)
        for part in (made.generators[0].target, *(getattr(made, name) for name in parts)):
            for each in ast.walk(part):
                if isinstance(each, ast.Name) and each.id in taken:
                    each.id = f"{each.id}_inside"
        return made

    def _expr_ListComp(self, node: ast.ListComp, hint: Type | None) -> Sugared:
        at = self.at(node)
        node = self._own_target(node, "elt")
        if len(node.generators) != 1:
            raise NotSupportedError("Only a single generator is currently supported", at)
        generator = node.generators[0]
        if generator.ifs:
            raise NotSupportedError("Comprehension ifs are not supported yet", at)
        wanted = hint.inner[0] if hint is not None and hint.name == "List" else None
        iterable = self.iterable(generator.iter)
        if iterable.static is not None:
            values = []
            for item in iterable.static:
                with self.scope():
                    self.assign(generator.target, item)
                    values.append(self.expr(node.elt, wanted))
            return Simple(self.list_of_values(values, wanted, at))
        self.graph.location = at
        made = self.graph.op("prim::ListConstruct", [], T.list_of(wanted or T.TENSOR))

        def body() -> None:
            value = self.expr(node.elt, wanted)
            if wanted is None:
                made.type = T.list_of(value.type)
            else:
                value = self.convert(value, wanted, at, "element of another type")
            self.graph.location = at
            builtin_call(self, at, "aten::append", [made, value], {})

        self.loop(at, iterable, generator.target, body)
        return Simple(made)

    def _expr_DictComp(self, node: ast.DictComp, hint: Type | None) -> Sugared:
        at = self.at(node)
        node = self._own_target(node, "key", "value")
        if len(node.generators) != 1 or node.generators[0].ifs:
            raise NotSupportedError("Only a single generator without conditions is currently supported", at)
        generator = node.generators[0]
        kind = hint if hint is not None and hint.name == "Dict" else None
        self.graph.location = at
        made = self.graph.op("prim::DictConstruct", [], kind or T.dict_of(T.STR, T.TENSOR))

        def body() -> None:
            key, value = self.expr(node.key), self.expr(node.value)
            if kind is None:
                made.type = T.dict_of(key.type, value.type)
            self.graph.location = at
            builtin_call(self, at, "aten::_set_item", [made, key, value], {})

        iterable = self.iterable(generator.iter)
        if iterable.static is None:
            self.loop(at, iterable, generator.target, body)
        else:
            for item in iterable.static:
                with self.scope():
                    self.assign(generator.target, item)
                    body()
        return Simple(made)

    # ***** calls of operators *****

    def operator(self, at: Location, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A call of an operator by name, with what TorchScript writes in Python itself."""
        self.graph.location = at
        found = written(self, name, args, kwargs, at)
        return found if found is not None else builtin_call(self, at, name, args, kwargs)

    def convert(self, value: Value, wanted: Type, at: Location, message: str) -> Value:
        """`value` as `wanted`; CompileError with the message where it is not."""
        self.graph.location = at
        made = converted(self.graph, wanted, value, True)
        if not T.is_subtype(made.type, wanted):
            raise CompileError(f"{message}: expected {wanted.annotation} but found {made.type.annotation}", at)
        return made

    def constant(self, held: Any, kind: Type) -> Value:
        """A constant of a Python value: numbers, strings, None, and tuples, lists and dicts of such."""
        if held is None:
            return self.graph.constant(None, T.NONE)
        if isinstance(held, (tuple, list)) and kind.name in ("Tuple", "List"):
            kinds = kind.inner if kind.name == "Tuple" else kind.inner * len(held)
            parts = [self.constant(v, t) for v, t in zip(held, kinds, strict=True)]
            made = T.tuple_of(*kinds) if kind.name == "Tuple" else kind
            return self.graph.op(f"prim::{kind.name}Construct", parts, made)
        if isinstance(held, dict):
            parts = [self.constant(v, kind.inner[i]) for pair in held.items() for i, v in enumerate(pair)]
            return self.graph.op("prim::DictConstruct", parts, kind)
        return self.graph.constant(held, kind.inner[0] if kind.name == "Optional" else kind)


def known_operator(name: str) -> bool:
    """Whether there is an operator of this name."""
    return bool(variants(name))


_ = NoneValue
