"""From an exported program to the graph of an ONNX model: inputs, constants, nodes, results, names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.onnx.errors import OnnxExporterError
from rushlight.onnx.exporting.translator import Translator
from rushlight.onnx.exporting.values import Graph, Node, OnnxTensor, Value, shape_of
from rushlight.onnx.exporting.writer import Writer

__all__ = ["Model", "built"]


@dataclass(eq=False)
class Model:
    """A graph with what a file needs besides it."""

    graph: Graph
    opset: int
    domains: dict[str, int] = field(default_factory=dict)
    functions: dict[Any, Any] = field(default_factory=dict)
    dims: dict[str, str] = field(default_factory=dict)  # names of symbols
    metadata: dict[str, str] = field(default_factory=dict)


def built(
    program: Any,
    opset: int,
    custom: Mapping[Any, Callable[..., Any]],
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dims: Mapping[str, str] | None = None,
) -> Model:
    """Translate a program."""
    writer = Writer(opset)
    translator = Translator(writer, custom, program.graph_module)
    places = [n for n in program.graph.nodes if n.op == "placeholder"]
    names = iter(input_names or ())
    for node, spec in zip(places, program.graph_signature.input_specs, strict=True):
        translator.env[node] = _input(writer, program, node, spec, names)
    results = translator.run(list(program.graph.nodes))
    _outputs(writer, program, results, list(output_names or ()))
    return Model(writer.graph, opset, writer.domains, writer.functions, dict(dims or {}))


def _input(writer: Writer, program: Any, node: Any, spec: Any, names: Any) -> Any:
    """Kind of a placeholder: an input of the model, a constant, or a plain value."""
    kind = spec.kind.name
    if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
        held = program.state_dict if spec.target in program.state_dict else program.constants
        tensor = held[spec.target]
        if kind == "CONSTANT_TENSOR" and tensor.numel() <= 64 and tensor.dtype in _PLAIN:
            return writer.array(tensor.detach().numpy(), tensor.dtype)
        return writer.tensor(tensor, spec.target)
    if kind != "USER_INPUT":
        raise OnnxExporterError(f"the input {node.name} is a {kind}: models take tensors and numbers")
    value = node.meta.get("val")
    if isinstance(value, Tensor):
        made = writer.fresh(value.dtype, shape_of(value), next(names, None) or node.name)
        writer.graph.inputs.append(made)
        return made
    if type(value) in (int, float, bool, str, type(None)) or not hasattr(value, "shape_env"):
        return value
    made = writer.fresh(
        rushlight.float32 if isinstance(value, rushlight.SymFloat) else rushlight.int64,
        (),
        next(names, None) or node.name,
    )
    writer.graph.inputs.append(made)
    return writer.number("Reshape", made, writer.ints([1]))


_PLAIN = frozenset((rushlight.int64, rushlight.int32, rushlight.bool))


def _outputs(writer: Writer, program: Any, results: Any, names: list[str]) -> None:
    """Results of the user's; new values of buffers are no results of a model."""
    specs = program.graph_signature.output_specs
    count = 0
    writer.source = None
    for value, spec in zip(results, specs, strict=True):
        if spec.kind.name != "USER_OUTPUT" or value is None:
            continue
        if not isinstance(value, Value):
            value = writer.const(
                value,
                rushlight.bool
                if isinstance(value, bool)
                else rushlight.int64
                if isinstance(value, int)
                else rushlight.float32,
            )
        elif value.number:
            value = writer.scalar(value, value.dtype)
        name = names[count] if count < len(names) else None
        writer.graph.outputs.append(_result(writer, value, name))
        count += 1


def _result(writer: Writer, value: Value, name: str | None) -> Value:
    """A value of its own for a result: inputs, constants and results that were given before are copied."""
    graph = writer.graph
    if value.producer is None or value in graph.outputs:
        made = writer.fresh(
            value.dtype,
            value.shape,
            name or f"{value.name}_out" if value.producer is not None or name is None else name,
        )
        node = Node("Identity", "", [value], [made], {})
        made.producer = node
        graph.nodes.append(node)
        return made
    if name is not None:
        value.name = name
    return value


# ***** names *****


def named(model: Model) -> dict[Value, str]:
    """A name for each value: as it is asked for, with a number where it is taken."""
    taken: set[str] = set()
    names: dict[Value, str] = {}

    def give(value: Value) -> None:
        if value in names:
            return
        base = name = value.name or "value"
        count = 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        names[value] = name

    for value in (*model.graph.inputs, *model.graph.outputs, *model.graph.constants):
        give(value)

    def walk(graph: Graph) -> None:
        for value in graph.inputs:
            give(value)
        for node in graph.nodes:
            for attr in node.attrs.values():
                if isinstance(attr, Graph):
                    walk(attr)
            for value in node.outputs:
                give(value)

    walk(model.graph)
    return names


_WORD = re.compile(r"[A-Za-z_]\w*")


def dim_text(size: int | str, dims: Mapping[str, str]) -> int | str:
    """A size with the user's names in the place of symbols."""
    if isinstance(size, int) or not dims:
        return size
    return dims.get(size) or _WORD.sub(lambda found: dims.get(found[0], found[0]), size)


__all__ += ["OnnxTensor", "dim_text", "named"]
