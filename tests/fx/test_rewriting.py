"""What rewriters of exported graphs ask of fx: purity, matching with defaults, sources, passes, where nodes come from."""

from __future__ import annotations

import copy
import warnings

import pytest

import rushlight as torch
from rushlight._inductor.pattern_matcher import CallFunction, KeywordArg, PatternMatcherPass, register_graph_pattern
from rushlight.fx.passes.infra.pass_manager import PassManager, PassResult, this_before_that_pass_constraint
from rushlight.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap
from rushlight.fx.passes.utils.source_matcher_utils import check_subgraphs_connected, get_source_partitions
from rushlight.fx.subgraph_rewriter import replace_pattern_with_filters
from rushlight.fx.traceback import NodeSource, NodeSourceAction, annotate

F, aten = torch.nn.functional, torch.ops.aten


class Counts(torch.nn.Module):
    """A buffer that counts calls, and noise that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        torch.rand_like(x)
        torch.neg(x)
        return x + 1


def test_what_changes_state_is_not_dead() -> None:
    module = torch.export.export(Counts(), (torch.ones(2),)).module()
    module.graph.eliminate_dead_code()
    module.recompile()
    names = [node.name for node in module.graph.nodes if node.op == "call_function"]
    assert names == ["add_", "rand_like", "add"]
    module(torch.ones(2))
    assert module.calls.item() == 1
    assert any(node.op == "call_module" for node in module.graph.nodes)  # the guards
    graph = torch.fx.symbolic_trace(lambda x: (torch.rand(2), x)[1]).graph
    assert not graph.eliminate_dead_code()


def test_erased_nodes_keep_their_constants() -> None:
    graph = torch.fx.symbolic_trace(lambda x: (torch.sum(x, 1, keepdim=True), x)[1]).graph
    node = next(n for n in graph.nodes if n.op == "call_function")
    graph.erase_node(node)
    assert node.args == (None, 1) and node.kwargs == {"keepdim": True}


def test_a_graph_belongs_to_the_module_that_took_it_last() -> None:
    first = torch.fx.symbolic_trace(lambda x: x + 1)
    second = torch.fx.GraphModule(first, first.graph)
    assert second.graph is first.graph and second.graph.owning_module is second


def _exported(function: object, *args: torch.Tensor) -> torch.fx.GraphModule:
    class Net(torch.nn.Module):
        def forward(self, *values: torch.Tensor) -> torch.Tensor:
            return function(*values)  # type: ignore[operator]

    return torch.export.export(Net(), args).module(check_guards=False)


def test_defaults_count_as_arguments() -> None:
    x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    net = _exported(lambda x, w: torch.relu(F.conv2d(x, w, None, 1, 1)), x, w)
    pattern = _exported(lambda x, w: torch.relu(F.conv2d(x, w)), x, w)
    replacement = _exported(lambda x, w: F.conv2d(x, w) * 2, x, w)
    assert not replace_pattern_with_filters(copy.deepcopy(net), pattern, replacement)
    found = replace_pattern_with_filters(net, pattern, replacement, ignore_literals=True)
    assert len(found) == 1 and torch.allclose(net(x, w), F.conv2d(x, w) * 2)


def test_names_of_a_pattern() -> None:
    class Pattern(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            y = torch.neg(x)
            return torch.relu(y), {"negated": y}

    pattern = torch.export.export(Pattern(), (torch.ones(2),)).module(check_guards=False)
    net = _exported(lambda x: torch.relu(torch.neg(x + 1)) * 2, torch.ones(2))
    (match,) = SubgraphMatcherWithNameNodeMap(pattern).match(net.graph)
    assert match.name_node_map["negated"].target is aten.neg.default


def test_parts_by_their_source() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = torch.nn.Conv2d(2, 2, 1), torch.nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.conv(x)) + x

    graph = torch.export.export(Net(), (torch.randn(1, 2, 3, 3),)).module().graph
    found = get_source_partitions(graph, [torch.nn.Conv2d, torch.nn.ReLU, "add"])
    (conv,), (relu,), (add,) = found[torch.nn.Conv2d], found[torch.nn.ReLU], found["add"]
    assert [n.name for n in conv.nodes] == ["conv2d"] and [n.name for n in conv.input_nodes] == ["x"]
    assert check_subgraphs_connected(conv, relu) and check_subgraphs_connected(relu, add)
    assert not check_subgraphs_connected(relu, conv)


def test_passes_in_order() -> None:
    seen: list[str] = []

    def first(gm: torch.fx.GraphModule) -> PassResult:
        seen.append("first")
        return PassResult(gm, len(seen) < 4)

    def second(gm: torch.fx.GraphModule) -> PassResult:
        seen.append("second")
        return PassResult(gm, False)

    module = torch.fx.symbolic_trace(lambda x: x)
    order = this_before_that_pass_constraint(first, second)
    assert PassManager([second, first], [order], steps=5)(module).modified
    assert seen == ["first", "second", "first", "second", "first", "second"]
    circle = [order, this_before_that_pass_constraint(second, first)]
    with pytest.raises(RuntimeError, match="Circular dependency"):
        PassManager([first, second], circle)(module)
    with pytest.raises(Exception, match="'_broken' pass after the following passes: \\['first'\\]"):
        PassManager([first, _broken])(module)


def _broken(gm: torch.fx.GraphModule) -> None:
    raise ValueError("no")


def test_patterns_with_handlers() -> None:
    passes = PatternMatcherPass()
    x = KeywordArg("x")

    @register_graph_pattern(CallFunction(torch.mul, x, CallFunction(torch.sigmoid, x)), pass_dict=passes)
    def silu(match: object, x: torch.fx.Node) -> None:
        node = match.output_node()  # type: ignore[attr-defined]
        with node.graph.inserting_before(node):
            node.replace_all_uses_with(node.graph.call_function(F.silu, (x,)))
        match.erase_nodes()  # type: ignore[attr-defined]

    module = torch.fx.symbolic_trace(lambda x, y: torch.mul(x, torch.sigmoid(x)) + torch.mul(x, torch.sigmoid(y)))
    a, b = torch.randn(3), torch.randn(3)
    wanted = module(a, b)
    assert passes.apply(module) == 1
    module.graph.lint()
    module.recompile()
    assert torch.allclose(module(a, b), wanted) and module.code.count("torch.sigmoid(") == 1


def test_annotations_and_sources() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with annotate({"a": 1}), annotate({"b": 2}):
                x = x + 1
            return x * 2

    nodes = [n for n in torch.export.export(Net(), (torch.ones(2),)).graph.nodes if n.op == "call_function"]
    assert [n.meta.get("custom") for n in nodes] == [{"a": 1, "b": 2}, None]
    source = NodeSource(nodes[0], "mine", NodeSourceAction.CREATE)
    nodes[1].meta["from_node"] = [source]
    outer = NodeSource(nodes[1], "next", [NodeSourceAction.CREATE, NodeSourceAction.REPLACE])
    assert NodeSource._from_dict(outer.to_dict()) == outer and outer.from_node == [source]
    assert "action=create+replace" in str(outer) and str(outer).count("\n") == 2


def test_operators_of_users_record_gradients_where_the_program_does() -> None:
    library = torch.library.Library("rewriting_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = _exported(lambda x: torch.ops.rewriting_test.twice(x) + 1, torch.ones(2))
    assert [n.name for n in net.graph.nodes if n.op == "call_function"] == ["twice", "add"]
    library._destroy()


def test_functions_of_the_package_in_lists_are_followed() -> None:
    def net(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if F.conv1d in [F.conv2d, F.conv1d] else x

    assert torch.equal(torch.compile(net, fullgraph=True)(torch.ones(2)), torch.full((2,), 2.0))
