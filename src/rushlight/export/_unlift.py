"""`ExportedProgram.module()`: a graph over parameters and inputs as a module that holds the parameters."""

from __future__ import annotations

import copy
import os
import sys
from typing import Any

import rushlight
from rushlight.export._guards import GuardsFn
from rushlight.export.graph_signature import InputKind, OutputKind
from rushlight.fx.codegen import PyTreeCodeGen, PyTreeInfo
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter

__all__ = ["assign", "unlifted"]


def assign(root: Module, path: str, value: Any, kind: InputKind, persistent: bool = True) -> None:
    """Let a module have a parameter, a buffer or a constant at a path; modules on the way are made."""
    *prefix, name = path.split(".")
    inner: Any = root
    for part in prefix:
        if not hasattr(inner, part):
            inner.add_module(part, Module())
        inner = getattr(inner, part)
    if kind is InputKind.PARAMETER:
        inner.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value, value.requires_grad))
    elif kind is InputKind.BUFFER:
        inner.register_buffer(name, value, persistent=persistent)
    elif isinstance(value, rushlight.Tensor):
        inner.__dict__[name] = value
    else:
        setattr(inner, name, value)


# Libraries that rewrite exported graphs and take them for their patterns; guards are no part of what they look for.
_REWRITERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("executorch", "modai", "on_device_ai", "torchao"))


def _for_rewriters() -> bool:
    """Whether code of a library that rewrites exported graphs asks."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if any(name in frame.f_code.co_filename for name in _REWRITERS):
            return True
        frame = frame.f_back
    return False


def unlifted(program: Any, check_guards: bool) -> GraphModule:
    """See `ExportedProgram.module`."""
    signature = program.graph_signature
    root, graph = Module(), Graph()
    for spec in signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            assign(root, spec.target, program._held(spec), spec.kind, bool(spec.persistent))
    for name, child in program.graph_module.named_children():
        root.add_module(name, copy.deepcopy(child))
    mapped: dict[Node, Node] = {}
    held: dict[str, Node] = {}
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    pairs = list(zip(placeholders, signature.input_specs, strict=True))
    for node, spec in pairs:
        if spec.kind is not InputKind.USER_INPUT:
            made = graph.create_node("get_attr", spec.target, name=_name(spec.target))
            made.meta = copy.copy(node.meta)
            mapped[node] = held[spec.target] = made
    users, named = [], []
    for node, spec in pairs:
        if spec.kind is InputKind.USER_INPUT:
            mapped[node] = graph.placeholder(node.name)
            mapped[node].meta = copy.copy(node.meta)
            users.append(mapped[node])
            named.append(node.name)
    if check_guards and program._guards is not None and not _for_rewriters():
        root.add_module("_guards_fn", GuardsFn(named, program._guards.conditions))
        graph.create_node("call_module", "_guards_fn", tuple(users), name="_guards_fn")
    results = graph.graph_copy(program.graph, mapped)
    _output(graph, program, results, held, mapped, placeholders)
    entry = program.module_call_graph[0].signature
    if entry is not None:
        names = entry.forward_arg_names or [n.name for n in users]
        graph.set_codegen(PyTreeCodeGen(PyTreeInfo(list(names), entry.in_spec, entry.out_spec)))
    made = GraphModule(root, graph)
    for spec in signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR:  # copied as buffers, which they are not
            _plain(made, spec.target)
        elif spec.kind is InputKind.BUFFER and not spec.persistent:
            assign(made, spec.target, program._held(spec), spec.kind, False)
    made.__dict__["_in_spec"], made.__dict__["_out_spec"] = entry.in_spec, entry.out_spec
    made.meta.update(program.graph_module.meta)
    return made


def _plain(root: Any, path: str) -> None:
    """Let a buffer be a plain attribute."""
    *prefix, name = path.split(".")
    for part in prefix:
        root = getattr(root, part)
    value = root._buffers.pop(name, None)
    root._non_persistent_buffers_set.discard(name)
    if value is not None:
        root.__dict__[name] = value


def _name(path: str) -> str:
    return path.replace(".", "_")


def _output(graph: Graph, program: Any, results: Any, held: dict[str, Node], mapped: Any, placeholders: Any) -> None:
    """Write new values of buffers and inputs, and return what is left."""
    left = []
    by_name = {n.name: mapped[n] for n in placeholders}
    for value, spec in zip(results, program.graph_signature.output_specs, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            graph.call_function(rushlight.ops.aten.copy_.default, (held[spec.target], value), name="copy_")
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            graph.call_function(rushlight.ops.aten.copy_.default, (by_name[spec.target], value), name="copy_")
        else:
            left.append(value)
    graph.output(tuple(left))
