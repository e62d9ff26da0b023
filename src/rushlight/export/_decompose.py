"""`ExportedProgram.run_decompositions`: a program over fewer operators, without changes in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._export.verifier import ATenDialectVerifier
from rushlight._functorch.functional_graphs import functionalized
from rushlight._interface.sizes import Undecided, is_symbolic
from rushlight._subclasses.fake_tensor import FakeTensorMode
from rushlight.export._assertions import CONDITIONS, assert_bounds, assert_required, is_bound
from rushlight.export._control import ControlFlowMode
from rushlight.export._core_rules import ALIASING, batch_norm, composite, default_rules
from rushlight.export._preserved import leaves_returned, renamed_calls
from rushlight.export._shapes import ExportShapeEnv
from rushlight.export._trace import argument_spec
from rushlight.export._tracing import hoist
from rushlight.export.decomp_utils import CustomDecompTable
from rushlight.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.interpreter import Interpreter
from rushlight.fx.node import Node
from rushlight.fx.passes.shape_prop import _extract_tensor_metadata
from rushlight.nn.modules.module import Module

__all__ = ["decomposed", "default_table"]

Table = Mapping[Any, Callable[..., Any]]
_KEPT = ("stack_trace", "nn_module_stack", "torch_fn")


def default_table() -> Any:
    """See `default_decompositions`."""
    return CustomDecompTable(default_rules())


def decomposed(program: Any, table: Table | None) -> Any:
    """See `ExportedProgram.run_decompositions`."""
    rules = dict((default_rules() if table is None else table).items())
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    pairs = _ordered(program, placeholders)
    with leaves_returned(program) as leaves:
        module = _retraced(program.graph_module, placeholders, [n for n, _ in pairs], rules, table is not None)
    specs = [spec for _, spec in pairs]
    found = functionalized(module)
    _check_constants([specs[place] for place in found.changed])
    if any(n.op == "call_function" and n.target in rules for n in module.graph.nodes):  # what changes in place became
        again = [n for n in module.graph.nodes if n.op == "placeholder"]
        module = _retraced(module, again, again, rules, table is not None)
        functionalized(module)
    if found.looks:
        raise NotImplementedError("run_decompositions: an input is made to look otherwise in place (transpose_, ...)")
    for name, inner in module.named_children():
        if isinstance(inner, GraphModule) and _changes_inputs(inner):
            raise NotImplementedError(f"run_decompositions: the graph {name} changes what it is given in place")
    calls = renamed_calls(program, leaves, module.graph, argument_spec)
    hoist(module.graph)
    _describe(module.graph)
    signature = _signature(module.graph, specs, found.changed)
    made = program._update(module, signature, verifiers=[ATenDialectVerifier])
    made._range_constraints.update(_new_ranges(program))
    made._module_call_graph = calls
    return made


def _check_constants(changed: list[InputSpec]) -> None:
    """RuntimeError where the program writes into a tensor that is a plain attribute of a module."""
    for spec in changed:
        if spec.kind is InputKind.CONSTANT_TENSOR:
            raise RuntimeError(
                f"Constant {spec.target} is mutated in the forward method. Please register it as a buffer, whose new value a program returns"
            )


def _new_ranges(program: Any) -> dict[Any, Any]:
    """Bounds of sizes without a value that this graph computes anew."""
    env = program._shape_env
    known = {str(key) for key in program.range_constraints}
    names = [] if env is None else [n for n in env.unbacked_names if n not in known and n in env._symbol_names]
    symbols = [env.symbols[env._symbol_names.index(n)] for n in names]
    return {s.node.expr: env.bounds_of(s.terms) for s in symbols}


def _changes_inputs(inner: GraphModule) -> bool:
    """Whether a graph in the graph changes what it is given; changes of its own values become new values."""
    output = inner.graph.output_node()
    single = isinstance(output.args[0], Node)
    if single:
        output.args = ((output.args[0],),)
    changed = bool(functionalized(inner).changed)
    if single and not changed:
        output = inner.graph.output_node()
        output.args = (output.args[0][0],)
        inner.recompile()
    return changed


class _Again(Interpreter):
    """Runs a program's graph; what is written down meanwhile has the lines of the node that runs."""

    def __init__(self, module: Any, mode: _Rules) -> None:
        super().__init__(module)
        self.mode = mode
        self.numbers: dict[Node, Any] = {}  # node -> its symbolic number

    def run_node(self, n: Node) -> Any:
        self.mode.source = n
        if n.target is rushlight.ops.aten._assert_scalar.default and isinstance(n.args[0], Node):
            if not is_bound(n.args[0].meta.get("val")):
                given = self._copied(n.args[0]), *n.args[1:]
                self.mode.graph.create_node("call_function", n.target, given, {}).meta["val"] = None
        env = self.mode.shape_env
        if not isinstance(env, ExportShapeEnv):
            return self._ran(n)
        before = env.by_program, env.asserting
        env.by_program = n.target in CONDITIONS  # not an operator, which takes unknown sizes to be large
        # What a rule requires beyond the program's own conditions, which were copied.
        checks = n.target is rushlight.ops.aten._assert_scalar.default
        env.asserting = None if env.by_program or checks else partial(assert_required, self.mode)
        try:
            return self._ran(n)
        finally:
            env.by_program, env.asserting = before

    def _ran(self, n: Node) -> Any:
        made = super().run_node(n)
        if is_symbolic(made):
            self.numbers[n] = made
        return made

    def _copied(self, node: Node) -> Any:
        """A condition as it was asked: what is known of its sizes by now would leave nothing to check."""
        if node.op != "call_function" or node.target not in CONDITIONS:
            return self.mode.node_of(self.numbers[node])
        args = tuple([self._copied(a) if isinstance(a, Node) else a for a in node.args])
        made = self.mode.graph.create_node("call_function", node.target, args, {})
        made.meta["val"] = node.meta["val"]
        return made


class _Rules(ControlFlowMode):
    """Writes down operators; those with a rule as what the rule calls."""

    source: Any = None
    whole = False  # whether composites stay that have no rule and cannot alias their arguments

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._opname == "_assert_scalar":  # bounds are asserted again, of this graph's sizes; others were copied
            if isinstance(args[0], Undecided):
                args[0].require()
            return None
        before = self.graph._root._prev
        made = NotImplemented
        if func not in self.decompositions and (not self.whole or func._opname in ALIASING):
            made = self._decomposed(func, args, kwargs or {})
        if made is NotImplemented:
            made = super().__torch_dispatch__(func, types, args, kwargs)
        node = self.graph._root._prev
        while node is not before and node is not self.graph._root:
            for word in _KEPT:
                if word not in node.meta and word in self.source.meta:
                    node.meta[word] = self.source.meta[word]
            node = node._prev
        return made

    def node_of(self, value: Any) -> Any:
        """As in the base; inputs for what graphs around have."""
        found = super().node_of(value)
        return self.reached(found, value) if isinstance(found, Node) and isinstance(value, Tensor) else found

    def _decomposed(self, func: Any, args: Any, kwargs: Any) -> Any:
        rule = batch_norm if func._opname == "batch_norm" else composite(func)
        if rule is None:
            return NotImplemented
        with self:
            return rule(*args, **kwargs)


def _ordered(program: Any, placeholders: list[Node]) -> list[tuple[Node, Any]]:
    """Parameters, then buffers and constants in the order of modules (the program's own first), then inputs."""
    pairs = list(zip(placeholders, program.graph_signature.input_specs, strict=True))
    order: dict[str, int] = {}
    for _, spec in pairs:
        if spec.target is not None:
            parts = spec.target.split(".")[:-1]
            for depth in range(len(parts) + 1):
                order.setdefault(".".join(parts[:depth]), len(order))
    first = [p for p in pairs if p[1].kind is InputKind.PARAMETER]
    held = [p for p in pairs if p[1].kind not in (InputKind.PARAMETER, InputKind.USER_INPUT)]

    def place(pair: tuple[Node, Any]) -> Any:
        path = pair[1].target.rpartition(".")[0]
        parts = path.split(".") if path else []
        return [order[".".join(parts[:d])] for d in range(1, len(parts) + 1)]

    return [*first, *sorted(held, key=place), *[p for p in pairs if p[1].kind is InputKind.USER_INPUT]]


def _retraced(
    source: Any, placeholders: list[Node], order: list[Node], rules: dict[Any, Any], whole: bool
) -> GraphModule:
    """The graph of a module with rules applied; its inputs in a new order."""
    graph, root = Graph(), Module()
    mode = _Rules(graph, root, rules)
    fake = _fake_mode(placeholders)
    mode.shape_env, mode.whole = fake.shape_env, whole
    values: dict[Node, Any] = {}
    for node in order:
        made = graph.placeholder(node.name)
        value = node.meta["val"]
        if isinstance(value, Tensor):
            value = value.detach()
            mode.track(value, made)
        elif is_symbolic(value):
            mode.numbers.stand(value, made)
        made.meta["val"] = values[node] = value
    _same_memory(placeholders, values)
    again = _Again(source, mode)
    with rushlight.no_grad(), fake, mode, mode.watching():
        out = again.run(*[values[n] for n in placeholders])
    graph.output(tuple([mode.node_of(v) for v in out]))
    if mode.shape_env is not None:  # before numbers that nobody uses are left out
        assert_bounds(graph, mode.shape_env)
    mode.release()
    return GraphModule(root, graph)


def _fake_mode(placeholders: list[Node]) -> Any:
    found = [n.meta["val"] for n in placeholders if isinstance(n.meta.get("val"), Tensor)]
    return found[0].fake_mode if found else FakeTensorMode()


def _same_memory(placeholders: list[Node], values: dict[Node, Any]) -> None:
    """Two names of one parameter are one value: the last one stands for it, as in the trace."""
    known: dict[int, Any] = {}
    for node in placeholders:
        if isinstance(node.meta["val"], Tensor):
            known[id(node.meta["val"])] = values[node]
    for node in placeholders:
        if isinstance(node.meta["val"], Tensor):
            values[node] = known[id(node.meta["val"])]


def _describe(graph: Graph) -> None:
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            node.meta["tensor_meta"] = _extract_tensor_metadata(value)


def _signature(graph: Graph, specs: list[InputSpec], changed: list[int]) -> ExportGraphSignature:
    """The signature: new values of buffers and inputs come before the results."""
    named = [InputSpec(s.kind, s.arg, s.target, s.persistent) for s in specs]
    results = graph.output_node().args[0]
    outs = []
    for value, place in zip(results, changed, strict=False):
        spec = named[place]
        kind, target = _CHANGES.get(spec.kind, OutputKind.USER_INPUT_MUTATION), spec.target
        if kind is OutputKind.USER_INPUT_MUTATION:
            target = spec.arg.name
        outs.append(OutputSpec(kind, argument_spec(value.name, value.meta["val"]), target))
    for value in results[len(changed) :]:
        argument = (
            argument_spec(value.name, value.meta["val"]) if isinstance(value, Node) else ConstantArgument("", value)
        )
        outs.append(OutputSpec(OutputKind.USER_OUTPUT, argument, None))
    return ExportGraphSignature(named, outs)


_CHANGES = {InputKind.BUFFER: OutputKind.BUFFER_MUTATION, InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION}
