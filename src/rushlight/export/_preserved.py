"""Submodules whose calls keep their signatures: what a trace notes of a call, and how a call is written into graphs."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rushlight import Tensor
from rushlight.export.exported_program import ModuleCallEntry, ModuleCallSignature
from rushlight.export.graph_signature import ConstantArgument
from rushlight.fx._pytree import tree_flatten_spec
from rushlight.fx.experimental.symbolic_shapes import is_symbolic
from rushlight.fx.graph import Graph
from rushlight.fx.node import Node
from rushlight.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = [
    "Noted",
    "PreservedCalls",
    "entries",
    "flattened",
    "leaves_returned",
    "parent_call",
    "placeholders",
    "renamed_calls",
]


@dataclass
class Noted:
    """One call of a submodule: its leaves as nodes and constants, and its structures."""

    inputs: list[Any]
    in_spec: TreeSpec
    outputs: list[Any] = field(default_factory=list)
    out_spec: Any = None


class PreservedCalls:
    """Notes the calls of some submodules while a module is traced."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.calls: dict[str, list[Noted]] = {name: [] for name in names}

    def run(self, fqn: str, mode: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a submodule; AssertionError where its arguments have another structure than those of an earlier call."""
        leaves, spec = tree_flatten((args, kwargs))
        earlier = self.calls[fqn]
        if earlier and earlier[0].in_spec != spec:
            raise AssertionError(f"in_spec mismatch for {fqn}: {earlier[0].in_spec} != {spec}")
        call = Noted([_leaf(mode, v) for v in leaves], spec)
        earlier.append(call)
        made = forward(*args, **kwargs)
        results, call.out_spec = tree_flatten(made)
        if earlier[0].out_spec != call.out_spec:
            raise AssertionError(f"out_spec mismatch for {fqn}: {earlier[0].out_spec} != {call.out_spec}")
        call.outputs = [_leaf(mode, v) for v in results]
        return made


def _leaf(mode: Any, value: Any) -> Any:
    return mode.node_of(value) if isinstance(value, Tensor) or is_symbolic(value) else value


def entries(noted: PreservedCalls, names: list[str], spec_of: Callable[[str, Any], Any]) -> list[ModuleCallEntry]:
    """The entries of submodules in the order of `names`, then those of further calls, `name@1`, `name@2`...

    `spec_of`: the argument spec of a node's name and value.
    """

    def signature(call: Noted) -> ModuleCallSignature:
        rows = [[_spec(v, spec_of) for v in leaves] for leaves in (call.inputs, call.outputs)]
        return ModuleCallSignature(rows[0], rows[1], call.in_spec, call.out_spec)

    calls = noted.calls
    first = [ModuleCallEntry(name, signature(calls[name][0]) if calls.get(name) else None) for name in names]
    return first + [
        ModuleCallEntry(f"{name}@{number}", signature(call))
        for name, rows in calls.items()
        for number, call in enumerate(rows[1:], 1)
    ]


def _spec(value: Any, spec_of: Callable[[str, Any], Any]) -> Any:
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    if value._erased:  # a size that nobody reads
        return ConstantArgument("", None)
    return spec_of(value.name, value.meta["val"])


# ***** programs that are traced again *****


def _leaves(program: Any) -> Iterator[Any]:
    """The arguments and results of preserved calls that are nodes of the program."""
    for entry in program.module_call_graph[1:]:
        if entry.signature is not None:
            yield from (each for each in (*entry.signature.inputs, *entry.signature.outputs) if each.name)


@contextlib.contextmanager
def leaves_returned(program: Any) -> Iterator[list[str]]:
    """A context in which the program's graph returns the leaves of preserved calls too, after its results: their names."""
    output = program.graph.output_node()
    before = output.args
    known = {node.name: node for node in program.graph.nodes}
    names = list(dict.fromkeys(each.name for each in _leaves(program) if each.name in known))
    output.args = ((*before[0], *(known[name] for name in names)),)
    try:
        yield names
    finally:
        output.args = before


def renamed_calls(
    program: Any, names: list[str], graph: Graph, spec_of: Callable[[str, Any], Any]
) -> list[ModuleCallEntry]:
    """The program's entries with the names of a graph that was made of it in `leaves_returned`, which returns the leaves
    no more afterwards.
    """
    if not names:
        return list(program.module_call_graph)
    output = graph.output_node()
    results = list(output.args[0])
    made = dict(zip(names, results[-len(names) :], strict=True))
    output.args = (tuple(results[: -len(names)]),)

    def spec(each: Any) -> Any:
        return _spec(made.get(each.name), spec_of) if each.name else each

    first, *others = program.module_call_graph
    return [first] + [
        each if (s := each.signature) is None
        else ModuleCallEntry(each.fqn, ModuleCallSignature([spec(a) for a in s.inputs], [spec(a) for a in s.outputs], s.in_spec, s.out_spec))
        for each in others
    ]  # fmt: skip


# ***** graphs of such submodules and of their parents *****


def placed_spec(module: Any, graph: Graph, spec: TreeSpec) -> Node:
    """A node that reads a structure, which becomes an attribute of the graph's module."""
    number = 0
    while f"_spec_{number}" in module.__dict__:
        number += 1
    module.__dict__[f"_spec_{number}"] = spec
    return graph.create_node("get_attr", f"_spec_{number}", name=f"_spec_{number}")


def placeholders(module: Any, graph: Graph, signature: ModuleCallSignature) -> list[Node]:
    """The arguments of a submodule's own graph, and a node for each of their leaves, which is returned."""
    positional, named = signature.in_spec.children_specs
    given = tuple([graph.placeholder(f"_positional_arg_{place}") for place in range(positional.num_children)])
    words = {name: graph.placeholder(name) for name in named.context}
    leaves = graph.call_function(tree_flatten_spec, ((given, words), placed_spec(module, graph, signature.in_spec)))
    return [
        graph.create_node("call_function", operator.getitem, (leaves, place), name=each.name or f"_constant_{place}")
        for place, each in enumerate(signature.inputs)
    ]


def flattened(module: Any, graph: Graph, results: list[Any], signature: ModuleCallSignature) -> None:
    """The output of a submodule's own graph: its leaves in the structure of its result."""
    spec = placed_spec(module, graph, signature.out_spec)
    graph.output(graph.call_function(tree_unflatten, (results, spec)))


def parent_call(
    module: Any, graph: Graph, name: str, leaves: list[Any], signature: ModuleCallSignature
) -> tuple[Node, list[Node]]:
    """The call of a submodule with arguments made of leaves: its node, and a node for each leaf of its result."""
    tree = graph.call_function(tree_unflatten, (leaves, placed_spec(module, graph, signature.in_spec)))
    positional, named = signature.in_spec.children_specs
    args, kwargs = (graph.call_function(operator.getitem, (tree, place)) for place in (0, 1))
    given = tuple([graph.call_function(operator.getitem, (args, place)) for place in range(positional.num_children)])
    words = {word: graph.call_function(operator.getitem, (kwargs, word)) for word in named.context}
    call = graph.create_node("call_module", name, given, words, name=name.rpartition(".")[2].replace("@", "_"))
    flat = graph.call_function(tree_flatten_spec, (call, placed_spec(module, graph, signature.out_spec)))
    return call, [graph.call_function(operator.getitem, (flat, place)) for place in range(len(signature.outputs))]
