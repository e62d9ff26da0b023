"""One graph into stages: what each computes, and what goes from one to the next."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from rushlight import Tensor, fx
from rushlight.distributed.pipelining.tracing import Splits, unchanged
from rushlight.utils._pytree import tree_flatten, tree_leaves

__all__ = ["split_graph"]


class _Values(fx.Interpreter):
    """Runs a graph, and keeps the kind of each value."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.kinds: dict[fx.Node, str] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.kinds[n] = "tensor"
        else:
            held = any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))
            self.kinds[n] = "container" if held else "plain"
        return value


class _Plan:
    """Which stage computes each node, and which values each stage takes."""

    def __init__(self, graph: fx.Graph, function: Callable[[], None], kinds: dict[fx.Node, str]) -> None:
        self.kinds, self.stage = kinds, dict[fx.Node, int]()
        count = 0
        for node in graph.nodes:
            if node.op == "call_function" and node.target is function:
                count += 1
                continue
            self.stage[node] = 0 if node.op == "placeholder" else count
            picks = node.op == "call_function" and node.target is operator.getitem
            if picks and isinstance(node.args[0], fx.Node) and kinds.get(node.args[0]) == "container":
                self.stage[node] = self.stage[node.args[0]]
        self.count = count + 1
        # Of each stage: tensors that come from before, in the order of the graph.
        self.inputs: list[list[fx.Node]] = [[] for _ in range(self.count)]
        wanted: list[set[fx.Node]] = [set() for _ in range(self.count)]
        for node, stage in self.stage.items():
            for needed in self._needs(node, stage):
                for k in range(self.stage[needed] + 1, stage + 1):
                    wanted[k].add(needed)
        for k in range(1, self.count):
            self.inputs[k] = [node for node in self.stage if node in wanted[k]]

    def again(self, node: fx.Node, stage: int) -> bool:
        """Whether a node of an earlier stage is computed again in this one: parameters, sizes, numbers."""
        return self.stage[node] < stage and (node.op == "get_attr" or self.kinds.get(node) == "plain")

    def _needs(self, node: fx.Node, stage: int) -> set[fx.Node]:
        """The tensors of earlier stages that a node needs."""
        found: set[fx.Node] = set()
        for each in node.all_input_nodes:
            if self.stage[each] == stage or (each.op == "get_attr" and self.stage[each] <= stage):
                continue
            if self.again(each, stage):
                found |= self._needs(each, stage) | ({each} if each.op == "placeholder" else set())
            elif self.kinds.get(each) == "container" and each.op != "placeholder":
                raise RuntimeError(
                    f"pipeline: `{each.name}`, a tuple, list or dict of tensors, goes from stage {self.stage[each]} to stage {stage}; only tensors can:"
                    " take it apart before the split"
                )
            else:
                found.add(each)
        return found


def split_graph(module: fx.GraphModule, function: Callable[[], None], splits: Splits) -> tuple[fx.GraphModule, int]:
    """A module that calls the stages one after the other, as its parts `submod_pp_0`, ..., and how many there are."""
    values = _Values(module)
    arguments = _arguments(module.graph, splits)
    with unchanged(module):
        values.run(*arguments)
    plan = _Plan(module.graph, function, values.kinds)
    graph, parts = fx.Graph(), {}
    made: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            made[node] = graph.node_copy(node)
    last: Any = None
    for k in range(plan.count):
        stage, given, results = _stage(module, plan, k)
        parts[f"submod_pp_{k}"] = stage
        call = graph.call_module(f"submod_pp_{k}", tuple(made[node] for node in given))
        if k == plan.count - 1:
            last = call
        elif len(results) == 1:
            made[results[0]] = call
        else:
            for number, node in enumerate(results):
                made[node] = graph.call_function(operator.getitem, (call, number))
    graph.output(_flat_outputs(graph, module.graph, last))
    return fx.GraphModule(parts, graph, "GraphModule"), plan.count


def _arguments(graph: fx.Graph, splits: Splits) -> list[Any]:
    """The example's value for each placeholder."""
    bound = splits.bound
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is kind.VAR_POSITIONAL:
            found.update({f"{name}_{k}": v for k, v in enumerate(value)})
        elif kind is kind.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return [found[str(node.target)] for node in graph.nodes if node.op == "placeholder"]


def _stage(module: fx.GraphModule, plan: _Plan, k: int) -> tuple[fx.GraphModule, list[fx.Node], list[fx.Node]]:
    """The module of a stage, the values that it takes, and those that it returns (none of the last stage)."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    if k == 0:
        given = [node for node in plan.stage if node.op == "placeholder"]
        for node in given:
            made[node] = graph.node_copy(node)
    else:
        given = plan.inputs[k]
        for node in given:
            made[node] = graph.placeholder(node.name)

    def here(node: fx.Node) -> fx.Node:
        if node not in made:  # of an earlier stage: computed again
            made[node] = graph.node_copy(node, here)
        return made[node]

    for node, stage in plan.stage.items():
        if stage == k and node.op not in ("placeholder", "output"):
            made[node] = graph.node_copy(node, here)
    if k == plan.count - 1:
        end = next(node for node in plan.stage if node.op == "output")
        graph.output(fx.node.map_arg(end.args[0], here))
        results = []
    else:
        results = plan.inputs[k + 1]
        outputs = [here(node) for node in results]
        graph.output(outputs[0] if len(outputs) == 1 else tuple(outputs))
    for node in [node for node in graph.nodes if node.op == "get_attr" and not node.users]:
        graph.erase_node(node)
    return fx.GraphModule(module, graph, f"submod_pp_{k}"), given, results


def _flat_outputs(graph: fx.Graph, whole: fx.Graph, last: fx.Node) -> tuple[Any, ...]:
    """What the whole returns: the leaves of the last stage's output, as a tuple."""
    end = next(node for node in whole.nodes if node.op == "output")
    output = end.args[0]
    if isinstance(output, fx.Node):
        return (last,)
    if isinstance(output, (tuple, list)) and all(not isinstance(x, (tuple, list, dict)) for x in output):
        return tuple(graph.call_function(operator.getitem, (last, number)) for number in range(len(output)))
    count = len(tree_flatten(output, is_leaf=lambda x: isinstance(x, fx.Node))[0])
    leaves = graph.call_function(tree_leaves, (last,))
    return tuple(graph.call_function(operator.getitem, (leaves, number)) for number in range(count))
