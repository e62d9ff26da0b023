"""What a traced program's nodes are and what they keep: operators as they were called, defaults, sources; each as
PyTorch 2.13 has it.
"""

from __future__ import annotations

import copy
import inspect
import io
import operator
from typing import Any, NamedTuple

import pytest

import rushlight as torch
from rushlight import fx
from rushlight.fx.experimental.const_fold import split_const_subgraphs
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.fx.node import _format_arg
from rushlight.fx.operator_schemas import get_signature_for_torch_op
from rushlight.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from rushlight.fx.passes.operator_support import OperatorSupport
from rushlight.fx.passes.shape_prop import ShapeProp
from rushlight.fx.passes.split_module import split_module
from rushlight.fx.passes.utils.matcher_utils import SubgraphMatcher
from rushlight.fx.subgraph_rewriter import replace_pattern
from rushlight.overrides import TorchFunctionMode

aten = torch.ops.aten


def called(program: Any) -> tuple[str, Any]:
    node = next(n for n in fx.symbolic_trace(program).graph.nodes if n.op == "call_function")
    return node.name, node.target


def test_operators_are_recorded_as_they_are_called() -> None:
    assert called(lambda a: aten.add.Tensor(a, a)) == ("add_tensor", aten.add.Tensor)
    assert called(lambda a: aten.add(a, a)) == ("add", aten.add)
    assert called(lambda a: aten.sum.dim_IntList(a, [0])) == ("sum_dim_int_list", aten.sum.dim_IntList)
    assert called(lambda a: aten.cat.default([a, a])) == ("cat_default", aten.cat.default)
    assert called(lambda a: torch.add(a, a)) == ("add", torch.add)
    with torch.library._scoped_library("kept_here", "DEF") as library:
        library.define("twice(Tensor a) -> Tensor")
        assert called(lambda a: torch.ops.kept_here.twice(a)) == ("twice", torch.ops.kept_here.twice)
        assert called(lambda a: torch.ops.kept_here.twice.default(a))[1] is torch.ops.kept_here.twice.default


def test_modes_and_classes_are_told_of_the_operator_that_is_called() -> None:
    class Told(torch.Tensor):
        seen: list[Any] = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    value = torch.ones(2).as_subclass(Told)
    assert [type(aten.add.Tensor(value, value)), type(aten.add(value, value))] == [Told, Told]
    assert Told.seen == [aten.add.Tensor, aten.add]
    with Mode():
        assert aten.mul(torch.ones(2), 3).tolist() == aten.mul.Tensor(torch.ones(2), 3).tolist() == [3, 3]
    assert [f for f in seen if f in (aten.mul, aten.mul.Tensor)] == [aten.mul, aten.mul.Tensor]


def test_patterns_of_operators_are_found_in_exported_programs() -> None:
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x + x)

    module = torch.export.export(Net(), (torch.ones(2),)).module()
    matches = replace_pattern(module, lambda a: aten.relu.default(a), lambda a: aten.neg.default(a))
    assert len(matches) == 1
    assert module(torch.ones(2)).tolist() == [-2, -2]

    def pool(x, kernel_size, stride):
        return aten.max_pool2d_with_indices.default(x, kernel_size, stride, padding=[0, 0])

    defaults = {a.name: a.default_value for a in aten.max_pool2d_with_indices.default._schema.arguments}
    assert defaults["stride"] == [] and defaults["padding"] == [0, 0] and defaults["ceil_mode"] is False
    traced = fx.symbolic_trace(lambda x: aten.max_pool2d_with_indices.default(x, [2, 2], stride=[2, 2]))
    assert len(replace_pattern(traced, pool, pool)) == 1  # the default of padding counts


def test_parts_of_operators() -> None:
    class Known(OperatorSupport):
        def is_node_supported(self, submodules, node):
            return node.op == "call_function" and node.target in {operator.add, operator.getitem, aten.std_mean}

    def program(a):
        deviation, _ = aten.std_mean(a)
        return deviation + 1.0

    (part,) = CapabilityBasedPartitioner(fx.symbolic_trace(program), Known(), True).propose_partitions()
    assert {node.name for node in part.nodes} == {"std_mean", "getitem", "getitem_1", "add"}


def test_defaults_of_keyword_only_parameters() -> None:
    def program(a, b=4, *args, c=5, **kwargs):
        return a + b + c

    nodes = [n for n in fx.symbolic_trace(program).graph.nodes if n.op == "placeholder"]
    assert [(n.target, n.args) for n in nodes] == [("a", ()), ("b", (4,)), ("c", (5,)), ("*args", ()), ("**kwargs", ())]


def test_inputs_of_variable_arguments() -> None:
    class Net(torch.nn.Module):
        def forward(self, *args, **kwargs):
            return args[0] - args[1]

    module = fx.symbolic_trace(Net(), concrete_args=(fx.PH, fx.PH))
    assert [n.name for n in module.graph.nodes][:2] == ["input_0", "input_1"]
    assert module(torch.tensor(5), torch.tensor(3)).item() == 2


def test_attributes_of_placeholders() -> None:
    marks = {"f": fx._symbolic_trace.PHWithMeta(ph_key="first"), "g": fx._symbolic_trace.PHWithMeta(ph_key="second")}
    graph = fx.symbolic_trace(lambda a: a["f"] + a["g"], concrete_args={"a": marks}).graph
    assert [n.ph_key for n in graph.nodes if n.op == "placeholder"] == ["first", "second"]


def test_tracers_are_copied_and_check_what_they_are_asked_for() -> None:
    tracer = fx.Tracer()
    tracer.trace(lambda x: x + 1)
    assert str(copy.deepcopy(tracer).graph) == str(tracer.graph)

    class Strict(fx.Tracer):
        check_mutable_operations = True

    with pytest.raises(RuntimeError, match=r"mutable operation aten::sigmoid\.out"):
        Strict().trace(lambda x: torch.sigmoid(x, out=torch.rand_like(x)))
    tracer.traced_func_name = "backwards"
    with pytest.raises(AssertionError, match="backwards doesn't exist in Linear"):
        tracer.trace(torch.nn.Linear(1, 1))


def test_transformed_nodes_keep_their_sources() -> None:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.weight + x

    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    module = fx.GraphModule(Net(), tracer.trace(Net()))
    for node in module.graph.nodes:
        node.meta["source_fn_stack"] = node.name
    made = {node.name: node for node in fx.Transformer(module).transform().graph.nodes}
    assert made["weight"].meta["source_fn_stack"] == "weight"
    assert "test_what_nodes_keep.py" in made["add"].stack_trace
    assert "val" not in made["add"].meta


def test_folded_constants_keep_the_metadata_of_their_nodes() -> None:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([[2.0]]))

        def forward(self, x):
            return x - (self.weight + self.weight)

    module = fx.symbolic_trace(Net())
    ShapeProp(module).propagate(torch.ones(1, 1))
    folded = split_const_subgraphs(module)
    (node,) = [n for n in folded.graph.nodes if n.op == "get_attr"]
    assert node.meta["tensor_meta"].shape == (1, 1)


def test_modules_are_split_without_a_root_and_loaded_with_all_they_had() -> None:
    module = fx.symbolic_trace(lambda x: x + 1)
    assert split_module(module, None, lambda node: 0)(torch.zeros(1)).item() == 1
    module.add_submodule("unused", torch.nn.Linear(1, 1))
    module.register_parameter("idle", torch.nn.Parameter(torch.ones(1)))
    module.register_buffer("extra", torch.ones(1), persistent=False)
    kept = io.BytesIO()
    torch.save(module, kept)
    loaded = torch.load(io.BytesIO(kept.getvalue()), weights_only=False)
    assert loaded.idle.item() == loaded.extra.item() == 1 and isinstance(loaded.unused, torch.nn.Linear)
    assert loaded.state_dict().keys() == module.state_dict().keys()


def test_occurrences_that_would_feed_themselves_are_none() -> None:
    def program(x, weight):
        product = torch.nn.functional.linear(x, weight)
        return torch.sum(product * torch.sigmoid(product), dim=1)

    def pattern(a, b, c):
        product = torch.nn.functional.linear(a, b)
        return product, product * c

    module = fx.symbolic_trace(program)
    assert replace_pattern(module, pattern, lambda a, b, c: (a, b)) == []
    assert SubgraphMatcher(fx.symbolic_trace(pattern).graph).match(module.graph) == []


def test_nested_arguments_are_traced_again() -> None:
    module = fx.symbolic_trace(lambda x: x[0] - x[1], concrete_args={"x": [fx.PH, fx.PH]})
    again = fx.symbolic_trace(module)
    assert sum(node.op == "placeholder" for node in again.graph.nodes) == 1
    assert again([torch.tensor(5), torch.tensor(3)]).item() == 2


def test_code_generators_that_take_the_value_alone() -> None:
    class Lists(fx.CodeGen):
        def generate_output(self, output_args):
            return f"return list({output_args!r})"

    module = fx.symbolic_trace(lambda a, b: (a + b, a))
    module.graph.set_codegen(Lists())
    module.recompile()
    assert module(2, 3) == [5, 2]


def test_names_of_code_and_of_arguments() -> None:
    def program(x):
        return x + 1

    module = fx.symbolic_trace(program)
    assert "test_what_nodes_keep.py" in module.forward.__code__.co_filename
    assert module.forward.__code__.co_filename.endswith("in program")
    assert "return add" in inspect.getsource(module.forward)

    class Pair(NamedTuple):
        x: Any

        def _custom_fx_repr_fn(self) -> str:
            return f"Pair(x={_format_arg(self.x)})"

    node = next(iter(module.graph.nodes))
    assert _format_arg([Pair(node)]) == "[Pair(x=%x)]"
    signatures = [str(each) for each in get_signature_for_torch_op(aten.random_) or ()]
    assert any("from: int, /" in each for each in signatures)


def test_sizes_that_a_traced_function_returns() -> None:
    traced = make_fx(lambda x: (x.shape, x.size(0)), tracing_mode="symbolic")(torch.ones(5, 3))
    assert traced(torch.ones(4, 6)) == ((4, 6), 4)
    traced = make_fx(lambda x, y: torch.broadcast_shapes(x.size(), y.size()), tracing_mode="symbolic")(
        torch.ones(3, 1), torch.ones(5)
    )
    assert tuple(traced(torch.ones(7, 1), torch.ones(6))) == (7, 6)
