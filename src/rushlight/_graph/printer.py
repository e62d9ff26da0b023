"""Graphs as Python source, and back.

The text is a function over `prim` that runs as it stands (under a builder), so a graph in a bug report can be pasted
into a test.  `parse` reads it without running anything.

    >>> from rushlight._graph.core import trace
    >>> from rushlight._graph.printer import parse, to_source
    >>> from rushlight._prims import prim
    >>> from rushlight._types.dtype import FLOAT32
    >>> text = to_source(trace(lambda x, y: prim.exp(x) * y, [((2, 3), FLOAT32), ((2, 3), FLOAT32)]))
    >>> print(text)
    def graph(x0: "float32[2, 3]", x1: "float32[2, 3]"):
        v0 = prim.exp(x0)  # float32[2, 3]
        v1 = prim.mul(v0, x1)  # float32[2, 3]
        return (v1,)
    >>> to_source(parse(text)) == text
    True
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph, GraphBuilder, Node, Reference, Value
from rushlight._prims.effects import EFFECTS
from rushlight._prims.record import PRIMITIVES
from rushlight._types.dtype import BY_NAME, DType

__all__ = ["describe", "literal", "parse", "to_source"]

KINDS = ("memory", "stream")  # of references


# ***** printing *****


def describe(value: Value) -> str:
    """`float32[2, 3]`, with ` weak` behind a Python number given at run time, and `memory ` (`stream `, `group `)
    before what effects change.
    """
    before = f"{value.kind} " if isinstance(value, Reference) else ""
    return f"{before}{value.dtype.name}[{', '.join(map(str, value.shape))}]" + (" weak" if value.weak else "")


def literal(value: Any) -> str:
    """A parameter as source: dtypes by their constant's name, floats so that they read back bit for bit."""
    if isinstance(value, DType):
        return value.name.upper()
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def name_values(graph: Graph) -> dict[Value, str]:
    """x0, x1... for the inputs, v0, v1... for the rest."""
    names = {v: f"x{i}" for i, v in enumerate(graph.inputs)}
    names.update((v, f"v{i}") for i, v in enumerate(v for node in graph.nodes for v in node.outputs))
    return names


def line(node: Node, names: dict[Value, str]) -> str:
    """One node as an assignment.  Values that nobody made print as `?`."""
    arguments = [names.get(v, "?") for v in node.inputs]
    arguments += [f"{key}={literal(item)}" for key, item in node.params.items()]
    targets = ", ".join(names.get(v, "?") for v in node.outputs)
    kinds = ", ".join(map(describe, node.outputs))
    return f"{targets} = prim.{node.prim.name}({', '.join(arguments)})  # {kinds}"


def to_source(graph: Graph, name: str = "graph") -> str:
    """The graph as a Python function."""
    names = name_values(graph)
    parameters = ", ".join(f'{names[v]}: "{describe(v)}"' for v in graph.inputs)
    body = [line(node, names) for node in graph.nodes]
    outputs = [names[v] for v in graph.outputs]
    body.append(f"return ({', '.join(outputs)}{',' if len(outputs) == 1 else ''})")
    return "\n    ".join([f"def {name}({parameters}):", *body])


# ***** parsing *****


def parse(text: str) -> Graph:
    """Read what `to_source` printed; nothing is executed.  ValueError, with the line, for anything else."""
    module = ast.parse(text)
    if len(module.body) != 1 or not isinstance(module.body[0], ast.FunctionDef):
        raise ValueError("expected one function")
    function = module.body[0]
    builder = _Plain()
    values: dict[str, Value] = {}
    for argument in function.args.args:
        kind, shape, dtype, weak = _parse_kind(argument)
        values[argument.arg] = builder.reference(kind, shape, dtype) if kind else builder.input(shape, dtype, weak)
    outputs: Sequence[Value] | None = None
    for statement in function.body:
        if outputs is not None:
            raise _fault(statement, "a statement after return")
        if isinstance(statement, ast.Return):
            outputs = [_lookup(item, values) for item in _items(statement.value)]
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            results = _parse_call(statement.value, builder, values)
            for target, value in zip(_items(statement.targets[0]), results, strict=True):
                if not isinstance(target, ast.Name) or target.id in values:
                    raise _fault(target, "expected a new name")
                values[target.id] = value
        else:
            raise _fault(statement, "expected `names = prim.name(...)` or `return`")
    if outputs is None:
        raise ValueError("the function does not return")
    return Graph(builder.inputs, builder.nodes, outputs)


class _Plain(GraphBuilder):
    """Keeps every node as it is written, duplicates too."""

    def bind(self, primitive: Any, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
        self._known.clear()
        return super().bind(primitive, inputs, params)


def _fault(node: ast.AST, why: str) -> ValueError:
    return ValueError(f"line {getattr(node, 'lineno', '?')}: {why}: {ast.unparse(node)}")


def _items(node: ast.AST | None) -> list[ast.expr]:
    if isinstance(node, ast.Tuple):
        return node.elts
    return [node] if isinstance(node, ast.expr) else []


def _lookup(node: ast.expr, values: dict[str, Value]) -> Value:
    if not isinstance(node, ast.Name) or node.id not in values:
        raise _fault(node, "expected a name defined above")
    return values[node.id]


def _parse_kind(argument: ast.arg) -> tuple[str, tuple[int, ...], DType, bool]:
    """(kind of a reference or "", shape, dtype, weak) of an input."""
    note = argument.annotation
    if not isinstance(note, ast.Constant) or not isinstance(note.value, str):
        raise _fault(argument, "expected an annotation like 'float32[2, 3]'")
    kind, text = next(
        ((k, note.value[len(k) + 1 :]) for k in KINDS if note.value.startswith(k + " ")), ("", note.value)
    )
    name, _, rest = text.partition("[")
    sizes, bracket, tail = rest.partition("]")
    if name not in BY_NAME or not bracket or tail not in ("", " weak"):
        raise _fault(argument, "expected an annotation like 'float32[2, 3]'")
    return kind, tuple(int(size) for size in sizes.split(",") if size.strip()), BY_NAME[name], bool(tail)


def _parse_call(node: ast.expr, builder: GraphBuilder, values: dict[str, Value]) -> Sequence[Value]:
    called = node.func if isinstance(node, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "prim" else ""
    primitive = PRIMITIVES.get(name) or EFFECTS.get(name)
    if primitive is None:
        raise _fault(node, "expected a call of a primitive")
    assert isinstance(node, ast.Call)
    inputs = [_lookup(item, values) for item in node.args]
    params = {keyword.arg or "": _parse_literal(keyword.value) for keyword in node.keywords}
    with builder:
        result = primitive(*inputs, **params)
    return result if primitive.multiple else [result]


def _parse_literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_parse_literal(item) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parse_literal(node.operand)
    if isinstance(node, ast.Name) and node.id.lower() in BY_NAME:
        return BY_NAME[node.id.lower()]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "complex"):
        maker: Any = float if node.func.id == "float" else complex
        return maker(*(_parse_literal(item) for item in node.args))
    raise _fault(node, "not a literal")
