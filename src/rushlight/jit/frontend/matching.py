"""Which overload a call means, and the conversions that its arguments get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.jit.frontend.errors import CompileError
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Graph, Location, Value
from rushlight.jit.ir.schemas import NO_DEFAULT, Argument, Schema, variants
from rushlight.jit.ir.types import Type

__all__ = ["Matched", "Mismatch", "converted", "match_schema", "match_schemas", "substitute"]


class Mismatch(Exception):
    """Arguments do not fit a schema."""


class Matched:
    """Inputs for a schema, and the types of the results."""

    __slots__ = ("inputs", "results", "schema")

    def __init__(self, schema: Schema, inputs: list[Value], results: list[Type]) -> None:
        self.schema, self.inputs, self.results = schema, inputs, results


def bind_type(formal: Type, actual: Type, bound: dict[str, Type]) -> bool:
    """Find what the type variables of `formal` stand for; whether the form fits."""
    if isinstance(formal, T.TypeVariable):
        known = bound.get(formal.name)
        if known is None:
            bound[formal.name] = actual
            return True
        if known == actual or T.is_subtype(actual, known):
            return True
        wider = T.unify(known, actual)
        if wider is None:
            return False
        bound[formal.name] = wider
        return True
    if not formal.inner or not _has_variable(formal):
        return True
    if formal.name == "Optional":
        if actual.name == "Optional":
            return bind_type(formal.inner[0], actual.inner[0], bound)
        return actual == T.NONE or bind_type(formal.inner[0], actual, bound)
    if formal.name == actual.name and len(formal.inner) == len(actual.inner):
        return all(bind_type(f, a, bound) for f, a in zip(formal.inner, actual.inner, strict=True))
    if formal.name == "List" and actual.name == "Tuple" and actual.inner:
        joined: Type | None = actual.inner[0]
        for kind in actual.inner[1:]:
            joined = T.unify(joined, kind) if joined is not None else None
        return joined is not None and bind_type(formal.inner[0], joined, bound)
    return False


def _has_variable(kind: Type) -> bool:
    return isinstance(kind, T.TypeVariable) or any(map(_has_variable, kind.inner))


def substitute(kind: Type, bound: dict[str, Type]) -> Type:
    """A type with what its variables stand for."""
    if isinstance(kind, T.TypeVariable):
        return bound.get(kind.name, kind)
    if not _has_variable(kind):
        return kind
    inner = [substitute(t, bound) for t in kind.inner]
    return T.optional(inner[0]) if kind.name == "Optional" else Type(kind.name, inner)


def _convertible_to_list(actual: Type, wanted: Type) -> bool:
    if actual.name != "Tuple" and not isinstance(actual, T.NamedTupleType):
        return False
    element = wanted.inner[0]
    return all(T.is_subtype(t, element) or element == T.FLOAT and t in (T.INT, T.FLOAT) and False for t in actual.inner)


def converted(graph: Graph, wanted: Type, value: Value, implicit: bool) -> Value:
    """`value`, converted to `wanted` where a call does that by itself: tuples to lists, and, if `implicit`, tensors to
    numbers, booleans to numbers, strings to devices.
    """
    if wanted.name == "Optional" and value.type.name != "Optional" and value.type != T.NONE:
        return converted(graph, wanted.inner[0], value, implicit)
    actual = value.type
    if actual.name == "Tuple" or isinstance(actual, T.NamedTupleType):
        if wanted.name == "List" and _convertible_to_list(actual, wanted):
            parts = graph.insert(graph.create("prim::TupleUnpack", (value,), actual.inner)).outputs
            return graph.op("prim::ListConstruct", parts, T.list_of(wanted.inner[0]))
        if wanted.name == "Tuple" and len(wanted.inner) == len(actual.inner) and not T.is_subtype(actual, wanted):
            parts = graph.insert(graph.create("prim::TupleUnpack", (value,), actual.inner)).outputs
            made = [converted(graph, w, v, implicit) for w, v in zip(wanted.inner, parts, strict=True)]
            return graph.op("prim::TupleConstruct", made, T.tuple_of(*[v.type for v in made]))
    if not implicit:
        return value
    if actual == T.TENSOR:
        name = {T.FLOAT: "Float", T.COMPLEX: "Complex", T.INT: "Int", T.NUMBER: "Scalar"}.get(wanted)
        return value if name is None else _conversion(graph, f"aten::{name}Implicit", value, wanted)
    if actual == T.NUMBER:
        name = {T.FLOAT: "Float", T.COMPLEX: "Complex", T.INT: "Int"}.get(wanted)
        return value if name is None else _conversion(graph, f"aten::{name}", value, wanted)
    if actual == T.BOOL:
        name = {T.FLOAT: "Float", T.COMPLEX: "Complex", T.INT: "Int", T.NUMBER: "Int"}.get(wanted)
        return (
            value
            if name is None
            else _conversion(graph, f"aten::{name}", value, T.INT if wanted == T.NUMBER else wanted)
        )
    if actual == T.STR and wanted == T.DEVICE:
        return _conversion(graph, "aten::device", value, T.DEVICE)
    return value


def _conversion(graph: Graph, name: str, value: Value, result: Type) -> Value:
    node = graph.create(name, [value], [result])
    node.schema = next(s for s in variants(name) if s.arguments and s.arguments[0].type == value.type)
    return graph.insert(node).outputs[0]


def _matched_argument(graph: Graph, argument: Argument, value: Value, implicit: bool, bound: dict[str, Type]) -> Value:
    if argument.N is not None and _broadcasts(argument, value):
        listed = argument.type.inner[0] if argument.type.name == "Optional" else argument.type
        return graph.op("prim::ListConstruct", [value] * argument.N, listed)
    if not bind_type(argument.type, value.type, bound):
        raise Mismatch(_wrong_type(argument, argument.type, value))
    wanted = substitute(argument.type, bound)
    if wanted.name == "Optional" and isinstance(wanted.inner[0], T.TypeVariable) and value.type == T.NONE:
        return value
    made = converted(graph, wanted, value, implicit)
    if not T.is_subtype(made.type, wanted) and not _optional_tensors(made.type, wanted):
        raise Mismatch(_wrong_type(argument, wanted, made))
    return made


def _optional_tensors(actual: Type, wanted: Type) -> bool:
    return str(actual) == "Tensor[]" and str(wanted) == "Tensor?[]"


def _broadcasts(argument: Argument, value: Value) -> bool:
    listed = argument.type.inner[0] if argument.type.name == "Optional" else argument.type
    return listed.name == "List" and value.type == listed.inner[0] and value.type in (T.INT, T.FLOAT, T.BOOL)


def _wrong_type(argument: Argument, wanted: Type, value: Value) -> str:
    text = (
        f"Expected a value of type '{wanted.annotation}' for argument '{argument.name}' but instead found type "
        f"'{value.type.annotation}'."
    )
    if value.type.name == "Optional" and T.is_subtype(value.type.inner[0], wanted):
        text += (
            f"\n(Did you mean to pass a value of type {wanted.annotation}? The value may be None here; test it with "
            "`is not None` first.)"
        )
    return text


def _constant_default(graph: Graph, argument: Argument) -> Value:
    value = argument.default
    listed = argument.type.inner[0] if argument.type.name == "Optional" else argument.type
    if isinstance(value, list) and listed.name == "List":
        parts = [graph.constant(v, listed.inner[0]).unplaced() for v in value]
        return graph.op("prim::ListConstruct", parts, listed)
    return default_constant(graph, value, argument.type).unplaced()


def default_constant(graph: Graph, value: Any, wanted: Type) -> Value:
    """A constant for a default value."""
    if value is None:
        return graph.constant(None, T.NONE)
    for python, kind in ((bool, T.BOOL), (int, T.INT), (float, T.FLOAT), (complex, T.COMPLEX), (str, T.STR)):
        if type(value) is python:
            if python is int and wanted in (T.FLOAT, T.optional(T.FLOAT)):
                return graph.constant(float(value), T.FLOAT)  # type: ignore[arg-type]
            return graph.constant(value, kind)
    if isinstance(value, tuple):
        inner = wanted.inner if len(wanted.inner) == len(value) and wanted.name == "Tuple" else [T.ANY] * len(value)
        parts = [default_constant(graph, v, t) for v, t in zip(value, inner, strict=True)]
        return graph.op("prim::TupleConstruct", parts, T.tuple_of(*[p.type for p in parts]))
    if isinstance(value, list):
        element = wanted.inner[0] if wanted.name == "List" else T.ANY
        parts = [default_constant(graph, v, element) for v in value]
        return graph.op("prim::ListConstruct", parts, wanted if wanted.name == "List" else T.list_of(parts[0].type))
    return graph.constant(value, wanted.inner[0] if wanted.name == "Optional" else wanted)


def match_schema(
    graph: Graph, schema: Schema, args: Sequence[Value], kwargs: dict[str, Value], implicit: bool = True
) -> Matched:
    """Inputs for a schema; Mismatch where the arguments do not fit.  Nodes are inserted into the graph."""
    bound: dict[str, Type] = {}
    inputs: list[Value] = []
    left = dict(kwargs)
    used = 0
    for place, argument in enumerate(schema.arguments):
        if used < len(args) and not argument.kwarg_only:
            value = args[used]
            if (
                _takes_rest(schema, place, argument)
                and value.type.name != "List"
                and not (value.type.name == "Tuple" and used == len(args) - 1)
            ):
                listed = argument.type
                rest = list(args[used:])
                parts = [_as_element(graph, listed.inner[0], v) for v in rest]
                inputs.append(graph.op("prim::ListConstruct", parts, listed))
                used = len(args)
                continue
            used += 1
            if argument.name in left:
                raise Mismatch(
                    f"argument {argument.name} specified twice in schema, submitted arg as positional and kwarg."
                )
        elif argument.name in left:
            value = left.pop(argument.name)
        elif argument.default is not NO_DEFAULT:
            inputs.append(_constant_default(graph, argument))
            continue
        else:
            raise Mismatch(f"Argument {argument.name} not provided.")
        inputs.append(_matched_argument(graph, argument, value, implicit, bound))
    if used < len(args):
        if not schema.is_vararg:
            raise Mismatch(
                f"Expected at most {_positional(schema)} arguments but found {len(args)} positional arguments."
            )
        inputs += args[used:]
    if left:
        raise Mismatch(f"Keyword argument {next(iter(left))} unknown.")
    return Matched(schema, inputs, [substitute(r.type, bound) for r in schema.returns])


def _positional(schema: Schema) -> int:
    return sum(not a.kwarg_only for a in schema.arguments)


def _takes_rest(schema: Schema, place: int, argument: Argument) -> bool:
    last = place + 1 == len(schema.arguments) or schema.arguments[place + 1].kwarg_only
    return (
        last
        and argument.type.name == "List"
        and argument.N is None
        and not isinstance(argument.type.inner[0], T.TypeVariable)
    )


def _as_element(graph: Graph, wanted: Type, value: Value) -> Value:
    made = converted(graph, wanted, value, True)
    if not T.is_subtype(made.type, wanted):
        raise Mismatch(
            f"Expected a value of type '{wanted.annotation}' but instead found type '{value.type.annotation}'."
        )
    return made


def match_schemas(
    graph: Graph, schemas: Sequence[Schema], args: Sequence[Value], kwargs: dict[str, Value], location: Location | None
) -> Matched:
    """The first schema that the arguments fit, without conversions before with; CompileError where none does."""
    if len(schemas) == 1:
        with _Undo(graph) as undo:
            try:
                return match_schema(graph, schemas[0], args, kwargs)
            except Mismatch as error:
                undo()
                raise CompileError(f"\n{schemas[0]}:\n{error}\n", location) from None
    failures = []
    for implicit in (False, True):
        for schema in schemas:
            with _Undo(graph) as undo:
                try:
                    return match_schema(graph, schema, args, kwargs, implicit)
                except Mismatch as error:
                    undo()
                    if implicit:
                        failures.append(f"  \n  {schema}:\n  {error}\n")
    raise CompileError(
        "Arguments for call are not valid.\nThe following variants are available:\n"
        + "".join(failures)
        + "\nThe original call is",
        location,
    )


class _Undo:
    """Takes out of a graph what was inserted since it was entered."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.count, self.block = graph, len(graph.at.nodes), graph.at

    def __enter__(self) -> _Undo:
        return self

    def __call__(self) -> None:
        while len(self.block.nodes) > self.count:
            self.block.nodes[-1].destroy()

    def __exit__(self, *exc: object) -> None:
        return None
