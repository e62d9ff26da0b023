"""A model's graph for TensorBoard: the operators that run in one call, in the boxes of their modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import require, tree_flatten
from rushlight.nn.modules.hooks import register_module_forward_hook, register_module_forward_pre_hook
from rushlight.profiler.names import event_name
from rushlight.profiler.sources import Observer, observe, unobserve
from rushlight.utils.tensorboard.summaries import proto

__all__ = ["model_graph", "onnx_graph"]


def _node(name: str, op: str, inputs: Sequence[str], shape: Sequence[int] | None, text: str = "") -> Any:
    """One box: its name with the boxes around it, what it is, what goes into it, and the shape of what comes out."""
    attributes, shapes = proto("compat.proto.attr_value_pb2"), proto("compat.proto.tensor_shape_pb2")
    found = {}
    if shape is not None:
        made = shapes.TensorShapeProto(dim=[shapes.TensorShapeProto.Dim(size=n) for n in shape])
        found["_output_shapes"] = attributes.AttrValue(list=attributes.AttrValue.ListValue(shape=[made]))
    if text:
        found["attr"] = attributes.AttrValue(s=text.encode())
    return proto("compat.proto.node_def_pb2").NodeDef(name=name, op=op, input=list(inputs), attr=found)


class _Graph(Observer):
    """Notes what runs."""

    def __init__(self, model: Any) -> None:
        self.root = type(model).__name__
        self.names: dict[Any, str] = {model: self.root}
        for name, module in model.named_modules():
            if name:
                above, _, last = name.rpartition(".")
                self.names.setdefault(
                    module, f"{self.names[model.get_submodule(above)]}/{type(module).__name__}[{last}]"
                )
        self.scope = [self.root]
        self.nodes: list[Any] = []
        self.known: dict[int, tuple[Any, str]] = {}  # tensors are kept, so that no other gets their identity
        self.parameters = {id(p): (p, name) for name, p in [*model.named_parameters(), *model.named_buffers()]}
        self.owners = {
            id(p): module for module in self.names for p in [*module._parameters.values(), *module._buffers.values()]
        }
        self.used: dict[str, int] = {}
        self.depth = 0

    def name(self, stem: str) -> str:
        """A name that no other node has."""
        self.used[stem] = self.used.get(stem, 0) + 1
        return stem if self.used[stem] == 1 else f"{stem}.{self.used[stem] - 1}"

    def source(self, tensor: Any) -> str:
        """The node that a tensor comes from; one that comes from nowhere is a constant."""
        if id(tensor) in self.known:
            return self.known[id(tensor)][1]
        if id(tensor) in self.parameters:
            last = self.parameters[id(tensor)][1].rpartition(".")[2]
            name, op = f"{self.names[self.owners[id(tensor)]]}/{last}", "Parameter"
        else:
            name, op = f"{self.scope[-1]}/constant", "prim::Constant"
        name = self.name(name)
        self.nodes.append(_node(name, op, (), tuple(tensor.shape)))
        self.known[id(tensor)] = (tensor, name)
        return name

    def enter(self, kind: str, name: str, given: Callable[[], list[tuple[str, Any]]], subject: Any) -> Any:
        """An operator begins: what it calls itself is inside of it."""
        if kind not in ("operator", "function", "custom"):
            return None
        self.depth += 1
        if self.depth > 1:
            return ()
        values = given()
        inputs = [self.source(t) for t in tree_flatten([v for _, v in values])[0] if isinstance(t, Tensor)]
        rest = {key: value for key, value in values if not isinstance(value, Tensor) and key and value is not None}
        op = event_name(name, given) if kind == "operator" else name
        return op, inputs, str(rest).replace("'", " ") if rest else ""

    def leave(self, mark: Any, made: Any) -> None:
        """It has ended: its results come from it."""
        if mark is None:
            return
        self.depth -= 1
        results = [t for t in tree_flatten(made)[0] if isinstance(t, Tensor)] if mark else []
        if not results:
            return
        op, inputs, text = mark
        name = self.name(f"{self.scope[-1]}/{op.rpartition('::')[2]}")
        self.nodes.append(_node(name, op, inputs, tuple(results[0].shape), text))
        for tensor in results:
            self.known[id(tensor)] = (tensor, name)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, what runs is noted."""
        hooks = [
            register_module_forward_pre_hook(
                lambda module, args: self.scope.append(self.names.get(module, self.scope[-1]))
            ),
            register_module_forward_hook(lambda module, args, output: (self.scope.pop(), None)[1], always_call=True),
        ]
        observe(self)
        try:
            yield
        finally:
            unobserve(self)
            for hook in hooks:
                hook.remove()


def model_graph(model: Any, inputs: Any, verbose: bool = False) -> tuple[Any, Any]:
    """(graph, statistics) of one call of a model in evaluation mode, as protocol buffers."""
    args = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    graph = _Graph(model)
    for tensor in tree_flatten(list(args))[0]:
        if isinstance(tensor, Tensor):
            name = graph.name("input/input")
            graph.nodes.append(_node(name, "IO Node", (), tuple(tensor.shape)))
            graph.known[id(tensor)] = (tensor, name)
    training = model.training
    model.train(False)
    try:
        with graph.watching():
            outputs = model(*args)
    finally:
        model.train(training)
    for number, tensor in enumerate([t for t in tree_flatten(outputs)[0] if isinstance(t, Tensor)], 1):
        graph.nodes.append(_node(f"output/output.{number}", "IO Node", [graph.source(tensor)], tuple(tensor.shape)))
    if verbose:
        print("\n".join(f"{node.name} = {node.op}({', '.join(node.input)})" for node in graph.nodes))
    return _graph_def(graph.nodes), _run_metadata()


def _graph_def(nodes: Sequence[Any]) -> Any:
    version = proto("compat.proto.versions_pb2").VersionDef(producer=22)
    return proto("compat.proto.graph_pb2").GraphDef(node=nodes, versions=version)


def _run_metadata() -> Any:
    steps = proto("compat.proto.step_stats_pb2")
    stats = steps.StepStats(dev_stats=[steps.DeviceStepStats(device="/device:CPU:0")])
    return proto("compat.proto.config_pb2").RunMetadata(step_stats=stats)


def onnx_graph(path: str) -> Any:
    """The graph of an ONNX file, as a protocol buffer; needs the package onnx."""
    graph = require("onnx", "onnx").load(path).graph
    nodes = []
    for value in (*graph.input, *graph.output):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        nodes.append(_node(value.name, "IO Node", (), shape))
    for node in graph.node:
        for output in node.output:
            text = ", ".join(
                f"{a.name}={require('onnx', 'onnx').helper.get_attribute_value(a)}" for a in node.attribute
            )
            nodes.append(_node(output, node.op_type, list(node.input), None, text))
    return _graph_def(nodes)
