"""Graphs cut into parts: for a backend, by tags, and by hand; random graphs give what PyTorch 2.13 gives."""

from __future__ import annotations

import importlib.util
import json
import operator
import typing
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.fx.annotate import annotate
from rushlight.fx.experimental.debug import set_trace
from rushlight.fx.experimental.merge_matmul import merge_matmul
from rushlight.fx.passes import graph_manipulation, param_fetch, pass_manager, split_utils, tools_common
from rushlight.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes
from rushlight.fx.passes.backends.cudagraphs import partition_cudagraphs
from rushlight.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from rushlight.fx.passes.operator_support import OperatorSupport, OpSupports, any_chain, chain
from rushlight.fx.passes.shape_prop import ShapeProp
from rushlight.fx.passes.utils import fuser_utils
from rushlight.fx.passes.utils.subgraphs import compare_graphs
from rushlight.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

_SPEC = importlib.util.spec_from_file_location("graph_programs", Path(__file__).with_name("graph_programs.py"))
assert _SPEC is not None and _SPEC.loader is not None
programs: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(programs)


@pytest.fixture(scope="module")
def found() -> Any:
    return programs.answers(torch)


@pytest.mark.parametrize("name", ["partitioned", "split", "together"])
def test_random_graphs_are_cut_as_in_pytorch(found: Any, name: str) -> None:
    stored = json.loads(programs.ANSWERS.read_text())[name]
    assert [seed for seed, (a, b) in enumerate(zip(found[name], stored, strict=True)) if a != b] == []


@pytest.mark.oracle
def test_the_stored_answers_are_those_of_the_installed_pytorch() -> None:
    assert programs.answers(pytest.importorskip("torch")) == json.loads(programs.ANSWERS.read_text())


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.Linear(4, 2))
        self.bias = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x).relu()) + self.bias


ADDS_AND_LINEAR = OperatorSupport({"_operator.add": None, "torch.nn.modules.linear.Linear": None, "relu": None,
    "rushlight.nn.modules.linear.Linear": None})  # fmt: skip


def test_a_fused_part_computes_what_its_nodes_did() -> None:
    net, x = Net(), torch.randn(5, 3)
    traced = torch.fx.symbolic_trace(net)
    partitioner = CapabilityBasedPartitioner(traced, ADDS_AND_LINEAR, allows_single_node_partition=True)
    (part,) = partitioner.propose_partitions()
    calls = [node for node in part.nodes if node.op.startswith("call")]
    fused = partitioner.fuse_partitions([Partition(0, calls)])
    assert [node.target for node in fused.graph.nodes if node.op == "call_module"] == ["fused_0"]
    assert sorted(name for name, _ in fused.fused_0.named_parameters()) == [
        "one.bias", "one.weight", "two.0.bias", "two.0.weight"
    ]  # fmt: skip
    np.testing.assert_array_equal(fused(x).detach().numpy(), net(x).detach().numpy())
    fused(x).sum().backward()
    assert net.one.weight.grad is not None


def test_supported_dtypes_and_rules() -> None:
    traced = torch.fx.symbolic_trace(lambda x, y: torch.add(x, y))
    nodes = list(traced.graph.nodes)
    add, name = nodes[2], tools_common.get_node_target({}, nodes[2])
    ShapeProp(traced).propagate(torch.ones(2), torch.ones(2, dtype=torch.int64))
    for dtypes, supported in (
        (([[torch.float32]], {}), True), (([None, [torch.float32]], {}), False), (([None, None, None], {}), True),
        (([[torch.int64]], {}), False), (([], {"alpha": [torch.int64]}), True),
    ):  # fmt: skip
        assert OperatorSupport({name: dtypes}).is_node_supported({}, add) is supported
    by_dtype, by_name = OpSupports.decline_if_input_dtype(torch.int64), OpSupports.decline_if_node_in_names({"mul"})
    assert not chain(by_dtype, by_name).is_node_supported({}, add)
    assert any_chain(by_dtype, by_name).is_node_supported({}, add)
    with pytest.raises(AssertionError, match="but found placeholder"):
        tools_common.get_node_target({}, nodes[0])


def test_parts_that_would_wait_for_themselves_are_refused() -> None:
    traced = torch.fx.symbolic_trace(lambda x: (x + 1).sin() + x)
    _, first, _, last, _ = traced.graph.nodes
    assert not fuser_utils.validate_partition([first, last])
    with pytest.raises(AssertionError, match="dependency cycles"):
        fuser_utils.fuse_as_graphmodule(traced, [first, last], "Part")
    other = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(AssertionError, match="doesn't belong"):
        fuser_utils.fuse_as_graphmodule(other, [first], "Part")
    assert compare_graphs(traced.graph, traced.graph) and not compare_graphs(traced.graph, other.graph)


def test_idle_nodes_at_the_border_of_a_part() -> None:
    traced = torch.fx.symbolic_trace(lambda x: torch.neg(torch.neg(x).sin().cos()))
    calls = [node for node in traced.graph.nodes if node.op.startswith("call")]
    idle = tools_common.get_node_target({}, calls[0])
    partitioner = CapabilityBasedPartitioner(traced, OperatorSupport(), non_compute_ops=[idle])
    part = Partition(0, calls)
    partitioner.remove_bookend_non_compute_ops([part])
    assert [node.name for node in part.nodes] == ["sin", "cos"]


def test_tags() -> None:
    net, x = Net(), torch.randn(2, 3)
    traced = torch.fx.symbolic_trace(net)
    for node, tag in zip([n for n in traced.graph.nodes if n.op.startswith("call")], "aabb", strict=True):
        node.tag = tag
    cut, paths = split_utils.split_by_tags(traced, ["a", "b"], return_fqn_mapping=True)
    assert paths == {"one": "a.one", "two.0": "b.two.0", "bias": "b.bias"}
    np.testing.assert_array_equal(cut(x).detach().numpy(), net(x).detach().numpy())
    with pytest.raises(AssertionError, match="order must be >="):
        split_utils.split_by_tags(traced, ["b", "a"])
    assert split_utils.getattr_recursive(net, "two.0.weight") is net.two[0].weight
    assert split_utils.getattr_recursive(net, "two.5") is None
    split_utils.setattr_recursive(net, "two.0.bias", None)
    assert net.two[0].bias is None


def test_sizes_targets_and_attributes() -> None:
    traced = torch.fx.symbolic_trace(Net())
    graph_manipulation.get_size_of_all_nodes(traced, [torch.ones(5, 3)])
    sizes = {node.name: node.size_bytes for node in traced.graph.nodes if node.op != "output"}
    assert sizes["one"] == (80, 80 + 64) and sizes["relu"] == (80, 80) and sizes["bias"] == (8, 8)
    graph_manipulation.replace_target_nodes_with(traced, "call_method", "relu", "call_method", "sigmoid")
    assert "sigmoid()" in traced.code
    with pytest.raises(RuntimeError, match="shape propagation has run"):
        graph_manipulation.get_tensor_meta(next(iter(torch.fx.symbolic_trace(Net()).graph.nodes)))
    conv = param_fetch.extract_attrs_for_lowering(torch.nn.Conv2d(1, 2, 3, bias=False))
    assert list(conv) == [
        "name",
        "weight",
        "bias",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
    ]
    with pytest.raises(RuntimeError, match="not in the module_fetch_book"):
        param_fetch.lift_lowering_attrs_to_nodes(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.GELU())))


def test_the_simple_pass_manager() -> None:
    def add(x: int) -> int:
        return x + 1

    def twice(x: int) -> int:
        return x * 2

    rule = pass_manager.these_before_those_pass_constraint(add, twice)
    manager = pass_manager.PassManager([add, pass_manager.loop_pass(twice, predicate=lambda x: x < 20)], [rule])
    assert manager(2) == 24
    manager.replace_pass(add, pass_manager.inplace_wrapper(print))
    manager.remove_pass(["twice"])
    assert manager(5) == 5
    with pytest.raises(RuntimeError, match="constraint violated"):
        pass_manager.PassManager([pass_manager.log_hook(twice), add], [rule])(1)
    with pytest.raises(AssertionError, match="Exactly one"):
        pass_manager.loop_pass(add)
    with pytest.raises(RuntimeError, match="positive int"):
        pass_manager.loop_pass(add, n_iter=0)(1)


def test_types_of_values() -> None:
    Pair = namedtuple("Pair", "a b")
    Pair.__annotations__ = {"a": int, "b": torch.Tensor}
    for kind, index, item in (
        (tuple[int, str], 1, str), (typing.Tuple[int, ...], 5, int), (list[float], 3, float),  # noqa: UP006
        (Pair, 1, torch.Tensor), (torch.Tensor, 0, None), (None, 0, None),
    ):  # fmt: skip
        graph = torch.fx.Graph()
        x = graph.placeholder("x", type_expr=kind)
        node = graph.call_function(operator.getitem, (x, index))
        annotate_getitem_nodes(graph)
        assert node.type is item
    proxy = torch.fx.Proxy(graph.placeholder("y"))
    assert annotate(proxy, int) is proxy and proxy.node.type is int and annotate(3, int) == 3
    with pytest.raises(RuntimeError, match="already had a type"):
        annotate(proxy, str)
    full, part = TensorType((1, 2, 3)), TensorType[1, Dyn, 3]
    assert is_consistent(part, full) and is_more_precise(full, part) and not is_more_precise(part, full)
    assert (
        not is_consistent(full, TensorType((1, 2)))
        and is_consistent(int, Dyn)
        and repr(part) == "TensorType[(1, Dyn, 3)]"
    )


def test_products_with_one_right_hand_side() -> None:
    class Products(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.v = (torch.nn.Parameter(torch.randn(*shape)) for shape in ((2, 3), (4, 2)))

        def forward(self, x: Any, y: Any) -> Any:
            return (
                torch.matmul(x, self.w), torch.matmul(y, self.w), torch.matmul(self.v, self.w), torch.matmul(x, y)
            )  # fmt: skip

    module, x, y = Products(), torch.randn(5, 2), torch.randn(2, 2)
    merged = merge_matmul(module)
    assert [node.target for node in merged.graph.nodes].count(torch.matmul) == 2
    for found, expected in zip(merged(x, y), module(x, y), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    chain = torch.fx.symbolic_trace(lambda x: torch.matmul(torch.matmul(x, x), x))
    assert len(merge_matmul(chain).graph.nodes) == len(chain.graph.nodes)


def test_a_breakpoint() -> None:
    traced = set_trace(torch.fx.symbolic_trace(lambda x: x + 1))
    assert traced.code.strip().splitlines()[1].strip() == "import pdb; pdb.set_trace()"
    traced.recompile()
    assert "pdb" not in traced.code


def test_cuda_graphs_take_nothing_of_a_cpu() -> None:
    traced = torch.fx.symbolic_trace(lambda x: x.sin().cos())
    assert [node.op for node in partition_cudagraphs(traced, [torch.ones(2)]).graph.nodes].count("call_module") == 0
