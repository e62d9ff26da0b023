"""torch.fx: signatures of operators, common subexpressions, constants computed once.  The values are what PyTorch gives for the same programs."""

from __future__ import annotations

import inspect
import numbers
import typing

import pytest

import rushlight as torch
from rushlight import fx, nn
from rushlight.fx.experimental.const_fold import get_unique_attr_name_in_module, split_const_subgraphs
from rushlight.fx.operator_schemas import (
    check_for_mutable_operation,
    create_type_hint,
    get_signature_for_torch_op,
    normalize_function,
    normalize_module,
    type_matches,
)
from rushlight.fx.passes.dialect.common.cse_pass import CSEPass, get_CSE_banned_ops


def test_signatures() -> None:
    assert str(get_signature_for_torch_op(torch.ops.aten.add.Tensor)[0]).replace(
        "rushlight._engine.core.tensor", "torch"
    ) == ("(input: torch.Tensor, other: torch.Tensor, *, alpha: numbers.Number = 1) -> torch.Tensor")
    linear = get_signature_for_torch_op(nn.functional.linear)[0]
    assert list(linear.parameters) == ["input", "weight", "bias"] and linear.parameters["bias"].default is None
    assert get_signature_for_torch_op(len) is None
    signatures, schemas = get_signature_for_torch_op(torch.relu, return_schemas=True)
    assert isinstance(signatures[0], inspect.Signature) and not schemas[0].is_mutable
    check_for_mutable_operation(torch.relu, (torch.ones(1),), {})
    with pytest.raises(RuntimeError, match="Tried to trace mutable operation"):
        check_for_mutable_operation(torch.ops.aten.add_.Tensor, (torch.ones(1), torch.ones(1)), {})


def test_calls_with_all_arguments() -> None:
    f = nn.functional
    assert normalize_function(f.linear, (1, 2), {"bias": 3}) == ((1, 2), {"bias": 3})
    assert normalize_function(f.linear, (1, 2), {"bias": 3}, normalize_to_only_use_kwargs=True) == (
        (),
        {"input": 1, "weight": 2, "bias": 3},
    )
    with pytest.raises(RuntimeError, match="torch.add but the schema match was ambiguous"):
        normalize_function(torch.add, (1, 2))
    assert normalize_function(lambda x, y=3: x, (1,)) == ((1,), {"y": 3})
    assert normalize_function(f.linear, (1, 2, 3, 4)) is None and normalize_function(lambda *x: x, (1,)) is None
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    assert normalize_module(traced, "0", (1,), normalize_to_only_use_kwargs=True) == ((), {"input": 1})
    with pytest.raises(RuntimeError, match="root did not have that target"):
        normalize_module(traced, "1", (1,))
    found = [node.normalized_arguments(traced) for node in traced.graph.nodes]
    assert found[0] is None and found[2] is None and found[1].args[0].name == "input_1"


def test_types() -> None:
    assert create_type_hint([int, int]) == list[int] and create_type_hint((int, bool)) == tuple[int, ...]
    assert create_type_hint([int, str]) == list[typing.Any] and create_type_hint(int) is int
    for wanted, given, answer in [
        (int, int, True), (int, float, False), (numbers.Number, float, True), (typing.Optional[int], int, True), (list[int], int, True),  # noqa: UP045
        (list[int], tuple[int, ...], True), (list[torch.Tensor], list[torch.Tensor], True), (list[torch.Tensor], list[int], False),
        (torch.Tensor, nn.Parameter, True), (int, torch.dtype, True),
    ]:  # fmt: skip
        assert type_matches(wanted, given) is answer, (wanted, given)


def test_common_subexpressions() -> None:
    def f(x):
        return (
            torch.cat([x.sin(), torch.add(x, 1)])
            + torch.cat([x.sin(), torch.add(x, 1)])
            + torch.add(x, 1.0).sum()
            + torch.add(x, True).sum()
        )

    traced = fx.symbolic_trace(f)
    result = CSEPass()(traced)
    assert result.modified and len(result.graph_module.graph.nodes) == len(traced.graph.nodes) - 3
    x = torch.randn(3)
    assert torch.equal(result.graph_module(x), f(x))
    assert not CSEPass()(result.graph_module).modified
    noise = fx.symbolic_trace(lambda x: torch.rand_like(x) + torch.rand_like(x))
    assert not CSEPass({torch.rand_like})(noise).modified and torch.ops.aten.rand_like in get_CSE_banned_ops()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3))

    def forward(self, x):
        return x @ (self.w.t() + 1) + self.b * 2 * self.w.sum()


def test_constants_are_computed_once() -> None:
    net, x = Net(), torch.randn(2, 3)
    folded = split_const_subgraphs(net)
    assert [node.op for node in folded.graph.nodes].count("call_function") == 4  # two items, the product, the sum
    assert torch.allclose(folded(x), net(x)) and folded.has_folding_been_run
    with torch.no_grad():
        net.w.zero_()
    assert not torch.allclose(folded(x), net(x))
    with pytest.raises(AssertionError, match="already been run"):
        folded.run_folding()
    kept = split_const_subgraphs(net, skip_folding_node_fn=lambda node: node.op != "get_attr")
    assert kept.const_subgraph_module is None and torch.allclose(kept(x), net(x))
    assert get_unique_attr_name_in_module(net, "w") == "w_1" and get_unique_attr_name_in_module(net, "2.x") == "_2_x"
