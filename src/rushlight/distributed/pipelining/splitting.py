"""One graph into stages: what each computes, and what goes from one to the next."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import rushlight
from rushlight import Tensor, fx
from rushlight.utils._pytree import tree_flatten, tree_leaves

__all__ = ["split_graph"]


# What a later stage may compute again.
_NUMBERS = (
    bool,
    int,
    float,
    complex,
    str,
    type(None),
    type(...),
    slice,
    range,
    rushlight.dtype,
    rushlight.device,
    rushlight.Size,
)


def kind_of(value: Any) -> str:
    """Whether a value is a tensor, plain (numbers, sizes, devices), or something that may hold tensors."""
    if isinstance(value, Tensor):
        return "tensor"
    return "plain" if all(isinstance(leaf, _NUMBERS) for leaf in tree_leaves(value)) else "container"


class _Plan:
    """Which stage computes each node, and which values each stage takes."""

    def __init__(
        self, graph: fx.Graph, function: Callable[[], None], kinds: dict[fx.Node, str], checks: bool = True
    ) -> None:
        self.kinds, self.stage, self.checks = kinds, dict[fx.Node, int](), checks
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
            elif self.checks and self.kinds.get(each) == "container" and each.op != "placeholder":
                raise RuntimeError(
                    f"pipeline: `{each.name}`, an object that holds tensors, goes from stage {self.stage[each]} to stage {stage}; only tensors, and"
                    " tuples, lists and dicts of them, can: take it apart before the split"
                )
            else:
                found.add(each)
        return found


def split_graph(
    module: fx.GraphModule, function: Callable[[], None], values: dict[fx.Node, Any]
) -> tuple[fx.GraphModule, int]:
    """A module that calls the stages one after the other, as its parts `submod_pp_0`, ..., and how many there are.

    `values`: the example's value of each node.  A node that is not there was put in by a split policy, and is taken to
    give a tensor.
    """
    kinds = {node: kind_of(values[node]) for node in module.graph.nodes if node in values}
    _take_apart(module.graph, function, kinds, values)
    plan = _Plan(module.graph, function, kinds)
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


def _take_apart(
    graph: fx.Graph, function: Callable[[], None], kinds: dict[fx.Node, str], values: dict[fx.Node, Any]
) -> None:
    """Tuples, lists and dicts of tensors that go over a split go as their tensors."""
    plan = _Plan(graph, function, kinds, checks=False)
    for node in [node for node in graph.nodes if kinds.get(node) == "container" and node.op != "placeholder"]:
        later = [user for user in node.users if plan.stage[user] > plan.stage[node] and user.op != "output"]
        ends = [user for user in node.users if user.op == "output" and plan.stage[user] > plan.stage[node]]
        if not (later or ends) or not _plain(values[node]):
            continue
        with graph.inserting_after(node):
            parts = _parts(graph, node, values[node], kinds)
        for user in [*later, *ends]:
            user.args, user.kwargs = fx.node.map_arg((user.args, user.kwargs), partial(_replaced, node, parts))


def _replaced(node: fx.Node, parts: Any, found: fx.Node) -> Any:
    return parts if found is node else found


def _plain(value: Any) -> bool:
    """Whether a container is made of tuples, lists and dicts."""
    if isinstance(value, dict):
        return type(value) is dict and all(map(_plain, value.values()))
    if isinstance(value, (tuple, list)):
        return type(value) in (tuple, list) and all(map(_plain, value))
    return isinstance(value, (Tensor, *_NUMBERS))


def _parts(graph: fx.Graph, node: fx.Node, value: Any, kinds: dict[fx.Node, str]) -> Any:
    """The same structure with a node for each tensor."""
    if isinstance(value, Tensor):
        return node
    if not isinstance(value, (tuple, list, dict)):
        return value

    def part(key: Any, inner: Any) -> Any:
        if kind_of(inner) == "plain":
            return inner
        picked = graph.call_function(operator.getitem, (node, key))
        kinds[picked] = kind_of(inner)
        with graph.inserting_after(picked):
            return _parts(graph, picked, inner, kinds)

    if isinstance(value, dict):
        return {key: part(key, inner) for key, inner in value.items()}
    return type(value)(part(k, inner) for k, inner in enumerate(value))


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
    """Outputs of the whole module: the leaves of the last stage's output, as a tuple."""
    end = next(node for node in whole.nodes if node.op == "output")
    output = end.args[0]
    if isinstance(output, fx.Node):
        return (last,)
    if isinstance(output, (tuple, list)) and all(not isinstance(x, (tuple, list, dict)) for x in output):
        return tuple(graph.call_function(operator.getitem, (last, number)) for number in range(len(output)))
    count = len(tree_flatten(output, is_leaf=lambda x: isinstance(x, fx.Node))[0])
    leaves = graph.call_function(tree_leaves, (last,))
    return tuple(graph.call_function(operator.getitem, (leaves, number)) for number in range(count))
