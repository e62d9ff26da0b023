"""`torch.jit.freeze`: a module as one graph with constants in place of parameters and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import rushlight
from rushlight.jit.frontend.python import UNIT
from rushlight.jit.ir import types as T
from rushlight.jit.ir.copying import copy_graph
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.graph import Graph, Node, Value
from rushlight.jit.ir.passes.constants import constant_of, fold_constants, is_constant, pool_constants
from rushlight.jit.ir.passes.inlining import inline_calls
from rushlight.jit.ir.passes.tuples import lower_simple_tuples
from rushlight.jit.ir.schemas import Argument, Schema
from rushlight.jit.modules import ScriptFunction, is_compiled, wrap_module

__all__ = ["freeze", "operator_names", "optimize", "optimize_for_inference"]


def freeze(module: Any, preserved: Any, numerics: bool, interfaces: bool = True) -> Any:
    """A frozen copy of a compiled module; without `interfaces` RuntimeError for one that holds a module as an interface."""
    if not is_compiled(module):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    if module.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing."
        )
    module = _cloned(module, {})
    kept = list(preserved or ())
    kind = module._type
    attributes: set[str] = set()
    read: set[tuple[int, str]] = set()
    for name in kept:
        *path, last = name.split(".")
        owner = _submodule(module, path)
        if owner is None or last not in owner._type.attributes and owner._type.find_method(last) is None:
            raise RuntimeError(f"could not find preserved attribute or method '{name}' in the module")
        if path or last in kind.attributes:
            attributes.add((*path, last)[0])
        if last in owner._type.attributes:
            read.add((id(owner), last))
            read.update((id(m), n) for m in _modules_below(owner._modules.get(last)) for n in m._type.attributes)
    methods = [n for n in ("forward", *kept) if kind.find_method(n) is not None]
    if not methods and "_python" in module.__dict__:  # a layer that stays an object of Python: nothing to freeze
        return module
    return _Freezer(module, methods, attributes, read, numerics, interfaces).run()


def _cloned(module: Any, memo: dict[int, Any]) -> Any:
    """A compiled module with the same tensors, and modules of its own: what is set in one does not show in the other."""
    if not is_compiled(module):
        return module
    made = memo.get(id(module))
    if made is None:
        made = memo[id(module)] = wrap_module(module._type)
        for name, value in module.__dict__.items():
            if name == "_modules":
                made._modules.update({n: _cloned(m, memo) for n, m in value.items()})
            elif name != "_methods":
                made.__dict__[name] = value.copy() if name.startswith("_") and isinstance(value, dict) else value
    return made


def _submodule(module: Any, path: Sequence[str]) -> Any:
    """The compiled module at a path; None where there is none."""
    for name in path:
        module = module._modules.get(name)
        if module is None or not is_compiled(module):
            return None
    return module


def _modules_below(module: Any) -> list[Any]:
    """A module and all below it; none of what is no compiled module."""
    if module is None or not is_compiled(module):
        return []
    return [module, *(m for child in module._modules.values() for m in _modules_below(child))]


class _Freezer:
    """`attributes` of the module stay; attributes in `read` (by module and name) are not folded into graphs."""

    def __init__(
        self, module: Any, methods: list[str], attributes: set[str], read: set[tuple[int, str]], numerics: bool,
        interfaces: bool,
    ) -> None:  # fmt: skip
        self.interfaces = interfaces
        self.module, self.methods, self.numerics = module, list(dict.fromkeys(methods)), numerics
        self.attributes, self.changed = attributes, read
        self.graphs: dict[str, Graph] = {}

    def run(self) -> Any:
        """The frozen module."""
        for name in self.methods:
            self.graphs[name] = inline_calls(copy_graph(self.module._type.find_method(name).graph))
            self._find_changed(self.graphs[name])
        for graph in self.graphs.values():
            while self._know_interfaces(graph):
                inline_calls(graph)
                self._find_changed(graph)
        for graph in self.graphs.values():
            self._constants(graph)
            lower_simple_tuples(graph)
            fold_constants(graph)
            if self.numerics:
                _fold_normalisation(graph)
                fold_constants(graph)
            pool_constants(graph)
        return self._made()

    # ***** which attributes change *****

    def _objects(self, graph: Graph) -> dict[Value, Any]:
        """The modules that values of a graph are."""
        found: dict[Value, Any] = {graph.block.inputs[0]: self.module}
        for node in graph.block.all_nodes():
            if node.kind_ == "prim::GetAttr" and node.inputs[0] in found:
                owner, name = found[node.inputs[0]], node.attributes["name"]
                if is_compiled(owner) and name in owner._modules:
                    found[node.outputs[0]] = owner._modules[name]
        return found

    def _find_changed(self, graph: Graph) -> None:
        objects = self._objects(graph)
        for node in graph.block.all_nodes():
            if node.kind_ == "prim::SetAttr" and node.inputs[0] in objects:
                self.changed.add((id(objects[node.inputs[0]]), node.attributes["name"]))
            schema = node.schema
            for argument, value in zip(getattr(schema, "arguments", ()), node.inputs, strict=False):
                source = value.node
                if (
                    argument.written
                    and source is not None
                    and source.kind_ == "prim::GetAttr"
                    and source.inputs[0] in objects
                ):
                    self.changed.add((id(objects[source.inputs[0]]), source.attributes["name"]))

    def _know_interfaces(self, graph: Graph) -> bool:
        """Give modules that are known as interfaces their classes, where nothing replaces them; whether there are any."""
        objects, known = self._objects(graph), False
        for value, module in objects.items():
            source = value.node
            if source is None or not isinstance(value.type, T.InterfaceType):
                continue
            if not self.interfaces:
                raise RuntimeError("attempted to freeze a module that uses interface attributes")
            if (id(objects[source.inputs[0]]), source.attributes["name"]) not in self.changed:
                value.type, known = module._type, True
        return known

    # ***** constants *****

    def _constants(self, graph: Graph) -> None:
        objects = self._objects(graph)
        for node in list(graph.block.all_nodes()):
            if node.kind_ != "prim::GetAttr" or node.inputs[0] not in objects or node.outputs[0] in objects:
                continue
            owner, name = objects[node.inputs[0]], node.attributes["name"]
            if (id(owner), name) in self.changed:
                continue
            held = getattr(owner, name)
            kind = node.outputs[0].type
            if not _can_be_constant(held, kind):
                continue
            self._replace(graph, node, held, kind)
        for value in reversed([v for v in objects if v.node is not None]):
            if not value.uses and value.node is not None and value.node.block is not None:
                value.node.destroy()

    def _replace(self, graph: Graph, node: Node, held: Any, kind: T.Type) -> None:
        if isinstance(held, rushlight.Tensor):
            held, kind = held.detach(), T.TENSOR
        elif isinstance(held, list):
            held = list(held)  # the module's own list may be changed later
        made = graph.create(
            "prim::Constant", (), (T.NONE if held is None else kind.inner[0] if kind.name == "Optional" else kind,)
        )
        if held is not None:
            made.attributes["value"] = held
        made.location = node.location
        made.insert_before(node)
        name = node.outputs[0].name
        node.outputs[0].replace_all(made.outputs[0])
        graph.forget(node.outputs[0])
        node.destroy()
        if name:
            made.outputs[0].set_name(f"self.{name.partition('.')[0]}")

    # ***** the module *****

    def _made(self) -> Any:
        old = self.module._type
        place, _, short = old.name.rpartition(".")
        kind = T.ClassType(UNIT.take(place, short, object()), is_module=True)
        kind.python = old.python
        made = wrap_module(kind)
        self._keep(made, kind, self.module)
        made.__dict__["_original_name"] = self.module.original_name
        for name in self.methods:
            graph = self.graphs[name]
            graph.block.inputs[0].type = kind
            self._retype(graph, kind)
            schema = old.find_method(name).schema
            arguments = [Argument("self", kind), *schema.arguments[1:]]
            function = Function(f"{kind.name}.{name}", schema=Schema(name, "", arguments, schema.returns))
            function.graph, function.owner = graph, kind
            kind.methods[name] = function
        made.training = False
        made.__dict__["_frozen"] = True
        return made

    def _keep(self, made: Any, kind: T.ClassType, module: Any) -> None:
        """Attributes that graphs still read or change, and those that were to be preserved."""
        names = {n for n in module._type.attributes if (id(module), n) in self.changed}
        if module is self.module:
            names |= self.attributes
        for graph in self.graphs.values():
            objects = self._objects(graph)
            names |= {
                n.attributes["name"]
                for n in graph.block.all_nodes()
                if n.kind_ in ("prim::GetAttr", "prim::SetAttr") and objects.get(n.inputs[0]) is module
            }
        for name, held in module._type.attributes.items():
            if name not in names:
                continue
            kind.attributes[name] = held
            for table, own in (("_parameters", kind.parameters), ("_buffers", kind.buffers)):
                if name in module.__dict__[table]:
                    own.add(name)
                    made.__dict__[table][name] = module.__dict__[table][name]
            if name in module._modules:
                made._modules[name] = module._modules[name]
            elif name in module.__dict__:
                made.__dict__[name] = module.__dict__[name]

    def _retype(self, graph: Graph, kind: T.ClassType) -> None:
        for node in graph.block.all_nodes():
            if node.kind_ == "prim::GetAttr" and node.inputs[0] is graph.block.inputs[0]:
                node.outputs[0].type = kind.attributes[node.attributes["name"]]


def _can_be_constant(held: Any, kind: T.Type) -> bool:
    if held is None or isinstance(held, (bool, int, float, str, rushlight.device)):
        return True
    if isinstance(held, rushlight.Tensor):
        return True
    if isinstance(held, (list, tuple)) and kind.name in ("List", "Tuple"):
        return all(isinstance(v, (bool, int, float, str)) for v in held)
    return False


# ***** numbers *****


def _is_convolution(node: Any) -> bool:
    if node.kind_ == "aten::_convolution":
        return is_constant(node.inputs[6]) and constant_of(node.inputs[6]) is False  # not transposed
    return node.kind_ in ("aten::conv1d", "aten::conv2d", "aten::conv3d")


def _fold_normalisation(graph: Graph) -> None:
    """Batch normalisation behind a convolution with constant weights becomes part of the weights."""
    for node in list(graph.block.all_nodes()):
        if node.kind_ != "aten::batch_norm" or node.block is None:
            continue
        source = node.inputs[0].node
        if (
            source is None
            or not _is_convolution(source)
            or any(
                user is not node and getattr(user, "kind_", "") not in ("aten::dim", "aten::size")
                for user, _ in node.inputs[0].uses
            )
        ):
            continue
        values = [*node.inputs[1:5], *node.inputs[5:8], source.inputs[1], source.inputs[2]]
        if not all(map(is_constant, values)) or constant_of(node.inputs[5]) is not False:
            continue
        weight, bias, mean, var, _, _, eps, kernel, offset = map(constant_of, values)
        if mean is None or var is None:
            continue
        scale = rushlight.rsqrt(var + eps) * (1 if weight is None else weight)
        shifted = (0 if offset is None else offset) - mean
        made = [
            kernel * scale.reshape([-1] + [1] * (kernel.dim() - 1)),
            shifted * scale + (0 if bias is None else bias),
        ]
        for at, tensor in zip((1, 2), made, strict=True):
            constant = graph.create("prim::Constant", (), (T.TENSOR,))
            constant.attributes["value"] = tensor
            constant.insert_before(source)
            source.set_input(at, constant.outputs[0])
        node.outputs[0].replace_all(node.inputs[0])
        node.destroy()


def optimize(module: Any, numerics: bool, preserved: Any) -> None:
    """Fold the graphs of a frozen module once more."""
    for name in ("forward", *(preserved or ())):
        function = module._type.find_method(name)
        graph = copy_graph(function.graph)
        if numerics:
            _fold_normalisation(graph)
        fold_constants(graph)
        function.graph = graph


def remove_dropout(module: Any, methods: Any) -> None:
    """Drop the calls of dropout of a frozen module, which change nothing in evaluation mode."""
    for name in ("forward", *methods):
        function = module._type.find_method(name)
        graph = copy_graph(function.graph)
        for node in list(graph.block.all_nodes()):
            if node.kind_ in ("aten::dropout", "aten::feature_dropout") and (
                is_constant(node.inputs[2]) and constant_of(node.inputs[2]) is False
            ):
                node.outputs[0].replace_all(node.inputs[0])
                node.destroy()
        function.graph = graph


def optimize_for_inference(module: Any, other_methods: Any) -> Any:
    """A frozen module."""
    if not is_compiled(module):
        raise RuntimeError(
            "optimize_for_inference expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    if "training" in module._type.attributes or not module.__dict__.get("_frozen"):
        module = freeze(module.eval(), other_methods, True)
    return module


def operator_names(module: Any) -> Iterator[str]:
    """The operators that a compiled module or function calls."""
    names: set[str] = set()
    if isinstance(module, ScriptFunction):
        graphs = [module.inlined_graph]
    else:
        graphs = [module._method(n).inlined_graph for n in module._method_names()]
    for graph in graphs:
        for node in graph.block.all_nodes():
            schema = node.schema
            if schema is not None:
                names.add(f"{node.kind_}.{schema.overload_name}" if schema.overload_name else node.kind_)
    return iter(sorted(names))
