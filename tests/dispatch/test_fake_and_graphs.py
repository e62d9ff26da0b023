"""Fake tensors, and graphs of aten operators: beside the graphs that PyTorch 2.13 makes of the same programs."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.programs import PROGRAMS, function_of, inputs, lines

import rushlight as torch
from rushlight._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    is_fake,
    unset_fake_temporarily,
)
from rushlight.fx.experimental.proxy_tensor import get_isolated_graphmodule, get_proxy_mode, make_fx

STORED = json.loads(gzip.decompress((Path(__file__).parent / "traces.json.gz").read_bytes()))["graphs"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_are_those_of_pytorch(name: str) -> None:
    """On real and on fake tensors; and the graph computes what the program does."""
    program, shapes = PROGRAMS[name]
    given = [t.detach() for t in inputs(torch, shapes)]
    function = function_of(torch, program, len(shapes))
    graph = make_fx(function)(*given)
    assert lines(graph.graph) == STORED[name]
    assert lines(make_fx(function, tracing_mode="fake")(*given).graph) == STORED[name]
    assert torch.equal(graph(*given), function(*given))


def test_graphs_of_gradients_and_of_modules() -> None:
    def slope(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(x.sin().sum(), x)[0]

    x = torch.tensor([0.5, 1.0], requires_grad=True)
    graph = make_fx(slope)(x)
    assert torch.equal(graph(x), x.cos()) and "torch.ops.aten.cos.default" in graph.code
    net = torch.nn.Linear(2, 1)
    made = make_fx(net)(torch.ones(1, 2))
    assert torch.equal(made(torch.ones(1, 2)), net(torch.ones(1, 2))) and made._param_constant0 is net.weight
    assert get_proxy_mode() is None


def test_decompositions_replace_operators() -> None:
    table = {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}
    graph = make_fx(lambda x: torch.nn.functional.silu(x), decomposition_table=table)(torch.ones(2))
    assert [n.name for n in graph.graph.nodes] == ["x_1", "sigmoid", "mul", "output"]


def test_graphs_above_autograd_stop_recording_where_the_program_does() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        with torch.no_grad():
            z = y.cos()
        return y + z.sin()

    graph = make_fx(program, pre_dispatch=True)(torch.ones(2))
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    graph(x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, x.detach().cos())
    calls = [n.args[0] for n in graph.graph.nodes if n.target is torch._C._set_grad_enabled]
    assert calls == [False, True] and torch.is_grad_enabled()


def test_graphs_take_and_give_nested_values() -> None:
    def program(state: dict[str, torch.Tensor], pair: tuple[torch.Tensor, list[torch.Tensor]]) -> dict[str, Any]:
        return {"sum": state["w"] * pair[0], "rest": (pair[1][0] + state["b"],)}

    one, two = torch.ones(2), torch.full((2,), 2.0)
    graph = make_fx(program)({"w": torch.ones(2), "b": torch.ones(2)}, (torch.ones(2), [torch.ones(2)]))
    made = graph({"w": two, "b": one}, (two, [two]))
    assert made["sum"].tolist() == [4.0, 4.0] and made["rest"][0].tolist() == [3.0, 3.0]
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    assert names == ["state_1", "state_2", "pair_1", "pair_2"]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_numbers_of_constants_are_constants_of_the_graph(mode: str) -> None:
    def filled() -> torch.Tensor:
        value = torch.tensor(1.0)
        value.add_(2)
        return torch.full((2,), value)

    def read() -> int:
        (item,) = torch.unbind(torch.tensor([2]), 0)
        return int(item.item())

    graph = make_fx(filled, tracing_mode=mode)()
    assert [graph().tolist() for _ in range(2)] == [[3.0, 3.0]] * 2
    assert graph.graph.find_nodes(op="call_function", target=torch.ops.aten.full.default)[0].args == ([2], 3.0)
    assert make_fx(read, tracing_mode=mode)()() == 2


def test_an_isolated_graph_leaves_the_trace_around_it_alone() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        inner = get_isolated_graphmodule(torch.sum, (x,), {})
        assert inner.graph.find_nodes(op="call_function", target=torch.ops.aten.sum.default)
        return x + torch.ones(x.shape)

    graph = make_fx(program)(torch.zeros(3))
    assert graph(torch.full((3,), 2.0)).tolist() == [3.0, 3.0, 3.0]


def test_writes_at_unknown_places_keep_the_layout() -> None:
    def program(images: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        kept = images[valid]
        kept[kept > 2] = 0
        return kept

    graph = make_fx(program, tracing_mode="symbolic")(torch.arange(4), torch.tensor([True, False, True, True]))
    assert graph(torch.arange(4), torch.tensor([False, True, True, True])).tolist() == [1, 2, 0]


def test_elements_of_fake_tensors_that_are_known() -> None:
    """They are followed through operators and views, until something unknown is written."""
    with FakeTensorMode():
        x = torch.tensor([1])
        view = x[:]
        view.add_(2)
        assert (x.item(), view.tolist(), bool(x.view(1, 1) == 3)) == (3, [3], True)
        view.copy_(torch.empty(1))
        for each in (x, view):
            with pytest.raises(DataDependentOutputException):
                each.item()
        drawn = torch.tensor(1.0)
        drawn.uniform_()
        with pytest.raises(DataDependentOutputException):
            drawn.item()
        y = torch.zeros(3)
        y[torch.ones(3, dtype=torch.bool)] = 1.0
        assert y.shape == (3,)


def test_graphs_hold_what_gives_a_tensor_another_shape_or_memory() -> None:
    def changed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = x * 2, x * 3
        a.as_strided_((2,), (2,))
        b.set_(y)
        return a + b

    x, y = torch.arange(4.0), torch.ones(2)
    graph = make_fx(changed)(x, y)
    named = {str(node.target) for node in graph.graph.nodes}
    assert {"aten.as_strided_.default", "aten.set_.source_Tensor"} <= named
    assert torch.equal(graph(x, y), changed(x, y))
    assert torch.Tag.inplace_view in torch.ops.aten.squeeze_.dim.tags


def test_what_changes_in_place_is_said_by_schemas() -> None:
    aten = torch.ops.aten
    for op in (aten.add_.Tensor, aten.__iand__.Tensor, aten.squeeze_.dim):
        assert torch.Tag.inplace in op.tags
    for op in (aten.__and__.Tensor, aten.add.out):
        assert torch.Tag.inplace not in op.tags


def test_what_a_graph_cannot_hold() -> None:
    with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
        make_fx(lambda x: x if x.sum() > 0 else -x)(torch.ones(2))
    assert len(list(get_isolated_graphmodule(torch.neg, (torch.ones(1),), {}).graph.nodes)) == 3


def test_fake_tensors_say_what_an_operator_would_give() -> None:
    with FakeTensorMode() as mode:
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
        )
        out = net(torch.randn(2, 3, 6, 6))
        out.sum().backward()
        assert isinstance(out, FakeTensor) and out.shape == (2, 64) and is_fake(net[0].weight.grad)
        assert repr(out.detach()) == "FakeTensor(..., size=(2, 64))"
        place = torch.empty(2, device="cuda")
        assert str(place.device) == "cuda:0" and str((place + 1).fake_device) == "cuda:0"
        with pytest.raises(RuntimeError, match="two different devices"):
            place + torch.empty(2)
        assert torch.tensor(3.0).item() == 3.0
        with unset_fake_temporarily() as held:
            assert held is mode and type(torch.ones(1)) is torch.Tensor
    real = torch.ones(3, 4, requires_grad=True)
    fake = mode.from_tensor(real)
    assert mode.from_tensor(real) is fake and fake.requires_grad and copy.deepcopy(fake).shape == (3, 4)
    assert fake.t().stride() == (1, 4) and fake.new_zeros(2).shape == (2,)
    with pytest.raises(AssertionError, match="convert all Tensors to FakeTensors first"):
        fake + real
    lenient = FakeTensorMode(allow_non_fake_inputs=True)
    assert (lenient.from_tensor(real) + real).shape == (3, 4)


def test_what_depends_on_elements_is_an_error_that_names_the_operator() -> None:
    with FakeTensorMode():
        x = torch.ones(3)
        with pytest.raises(DataDependentOutputException, match="aten._local_scalar_dense.default"):
            bool(x.sum() > 0)
        with pytest.raises(DataDependentOutputException):
            x.tolist()
        with pytest.raises(DynamicOutputShapeException, match="aten.nonzero.default"):
            x.nonzero()
    with pytest.raises(TypeError, match="shape_env"):
        FakeTensorMode(shape_env=object())
