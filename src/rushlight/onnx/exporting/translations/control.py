"""Control flow: branches and loops as graphs in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Node, Value
from rushlight.onnx.exporting.writer import Writer


def _inlined(translator: Any, writer: Writer, module: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a graph that is run on operands, in the graph of a writer."""
    inner = type(translator)(writer, translator.custom, module)
    nodes = list(module.graph.nodes)
    places = [n for n in nodes if n.op == "placeholder"]
    inner.env.update(zip(places, operands, strict=True))
    made = inner.run(nodes)
    return list(made) if isinstance(made, (list, tuple)) else [made]


def _ended(writer: Writer, results: Sequence[Any], dtypes: Sequence[Any]) -> None:
    """Results of a graph: each from a node of its own."""
    for value, dtype in zip(results, dtypes, strict=True):
        given = value if isinstance(value, Value) else writer.const(value, dtype or rushlight.int64)
        writer.graph.outputs.append(_owned(writer, given))


def _owned(writer: Writer, value: Value) -> Value:
    if value.producer in writer.graph.nodes and value not in writer.graph.outputs:
        return value
    made = writer.fresh(value.dtype, value.shape)
    node = Node("Identity", "", [value], [made], {}, writer.source)
    made.producer = node
    writer.graph.nodes.append(node)
    return made


@translates("higher_order::cond")
def cond(
    call: Call, translator: Any, condition: Any, then: Any, otherwise: Any, operands: Sequence[Any] = ()
) -> list[Value]:
    if isinstance(condition, bool):
        return _inlined(translator, call.writer, then if condition else otherwise, operands)
    test = call.scalar(condition, rushlight.bool)
    if test.shape not in ((), None):
        test = call.op("Squeeze", test, shape=())
    branches = []
    for module in (then, otherwise):
        writer = call.writer.subgraph()
        made = _inlined(translator, writer, module, operands)
        _ended(writer, made, [d for d, _ in call.results])
        branches.append(writer.graph)
    return call.ops("If", test, results=call.results, then_branch=branches[0], else_branch=branches[1])


def _stand_ins(writer: Writer, values: Sequence[Value]) -> list[Value]:
    made = [writer.fresh(v.dtype, v.shape) for v in values]
    for value, outer in zip(made, values, strict=True):
        value.number = outer.number
    return made


@translates("higher_order::while_loop")
def while_loop(
    call: Call, translator: Any, test: Any, body: Any, carried: Sequence[Any], extra: Sequence[Any] = ()
) -> list[Value]:
    """Loop: the condition is computed before, and after each turn."""
    start = [c if isinstance(c, Value) else call.vector(c, _number(c)) for c in carried]
    first = _inlined(translator, call.writer, test, [*start, *extra])[0]
    writer = call.writer.subgraph()
    turn, going = writer.fresh(rushlight.int64, ()), writer.fresh(rushlight.bool, ())
    states = _stand_ins(writer, start)
    writer.graph.inputs += [turn, going, *states]
    made = _inlined(translator, writer, body, [*states, *extra])
    again = _inlined(translator, writer, test, [*made, *extra])[0]
    _ended(writer, [writer.scalar(again, rushlight.bool), *made], [rushlight.bool, *[s.dtype for s in start]])
    results = [(s.dtype, shape) for s, (_, shape) in zip(start, call.results, strict=True)]
    return call.ops("Loop", None, call.scalar(first, rushlight.bool), *start, results=results, body=writer.graph)


def _number(item: Any) -> Any:
    return rushlight.bool if isinstance(item, bool) else rushlight.int64 if isinstance(item, int) else rushlight.float32


@translates("higher_order::scan")
def scan(
    call: Call,
    translator: Any,
    body: Any,
    init: Sequence[Value],
    xs: Sequence[Value],
    extra: Sequence[Any] = (),
    *_: Any,
) -> list[Value]:
    """Scan over the first dim."""
    writer = call.writer.subgraph()
    states = _stand_ins(writer, init)
    slices = [writer.fresh(x.dtype, (x.shape or ("n",))[1:]) for x in xs]
    writer.graph.inputs += [*states, *slices]
    made = _inlined(translator, writer, body, [*states, *slices, *extra])
    _ended(writer, made, [v.dtype for v in made])
    return call.ops("Scan", *init, *xs, results=call.results, body=writer.graph, num_scan_inputs=len(xs))


@translates("higher_order::map_impl")
def map_impl(call: Call, translator: Any, body: Any, xs: Sequence[Value], extra: Sequence[Any] = ()) -> list[Value]:
    return scan(call, translator, body, [], xs, extra)


@translates("higher_order::invoke_subgraph")
def invoke_subgraph(call: Call, translator: Any, module: Any, name: Any, *operands: Any) -> list[Any]:
    return _inlined(translator, call.writer, module, operands)


@translates("higher_order::wrap_with_autocast")
def autocast(
    call: Call, translator: Any, device: Any, dtype: Any, enabled: bool, cache: Any, module: Any, *operands: Any
) -> list[Any]:
    if enabled:
        raise call.refuse("autocast", "convert the model, or export it without autocast")
    return _inlined(translator, call.writer, module, operands)


@translates("higher_order::wrap_with_set_grad_enabled")
def wrapped(call: Call, translator: Any, *args: Any) -> list[Any]:
    """A part of the program with another grad mode: the same numbers."""
    place = next(i for i, a in enumerate(args) if hasattr(a, "graph"))
    return _inlined(translator, call.writer, args[place], args[place + 1 :])
