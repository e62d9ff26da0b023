"""Traces inside of traces, and modes around them: each expected list of operators is what PyTorch 2.13 gives."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from rushlight.fx.experimental.proxy_tensor import (
    DecompositionInterpreter,
    disable_proxy_modes_tracing,
    get_isolated_graphmodule,
    get_proxy_mode,
    make_fx,
)
from rushlight.fx.experimental.symbolic_shapes import ShapeEnv
from rushlight.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

MODES = ("real", "fake", "symbolic")


def operators(graph: Any) -> list[str]:
    return [n.target._opname for n in graph.graph.nodes if n.op == "call_function"]


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func._opname)
        return func(*args, **(kwargs or {}))


class NegatedSines(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return torch.neg(made) if func is torch.ops.aten.sin.default else made


def filled() -> Any:
    value = torch.tensor(1.0)
    value.add_(2)
    return torch.full((2, 2), 3.0).sum()


@pytest.mark.parametrize("inner", MODES)
@pytest.mark.parametrize("outer", MODES)
def test_nothing_of_a_trace_is_in_the_trace_around_it(outer: str, inner: str) -> None:
    found: list[Any] = []

    def program(x: Any) -> Any:
        y = x.sin()
        found.append(make_fx(torch.sum, tracing_mode=inner)(y))
        found.append(make_fx(filled, tracing_mode=inner)())
        found.append(make_fx(lambda t: t.relu_() * 3, tracing_mode=inner)(y))
        return y * 2

    traced = make_fx(program, tracing_mode=outer)(torch.ones(3))
    assert operators(traced) == ["sin", "mul"]
    assert [operators(graph) for graph in found] == [
        ["sum"],
        ["lift_fresh_copy", "add_", "full", "sum"],
        ["relu_", "mul"],
    ]
    (node,) = [n for n in traced.graph.nodes if n.target is torch.ops.aten.mul.Tensor]
    assert node.args[0].target is torch.ops.aten.sin.default


@pytest.mark.parametrize("mode", MODES)
def test_a_graph_made_inside_of_a_trace_is_written_down_where_it_runs(mode: str) -> None:
    def program(x: Any) -> Any:
        graph = get_isolated_graphmodule(lambda y: y.sin().sum(), (x,), {})
        assert operators(graph) == ["sin", "sum"]
        return graph([x]).cos()

    assert operators(make_fx(program, tracing_mode=mode)(torch.ones(3))) == ["sin", "sum", "cos"]


@pytest.mark.parametrize("mode", MODES)
def test_tensors_of_the_trace_around_are_constants_inside_and_stay_its_own(mode: str) -> None:
    inside: list[Any] = []

    def program(x: Any) -> Any:
        y = x.sin()
        inside.append(make_fx(lambda t: t * y)(torch.ones(3)))
        return y + x

    traced = make_fx(program, tracing_mode=mode)(torch.ones(3))
    assert [n.op for n in inside[0].graph.nodes] == ["placeholder", "get_attr", "call_function", "output"]
    assert [n.op for n in traced.graph.nodes] == ["placeholder", *["call_function"] * 3, "output"]


def test_a_trace_that_fails_leaves_the_one_around_as_it_was() -> None:
    def program(x: Any) -> Any:
        number = torch.tensor(3.0)
        with pytest.raises(ZeroDivisionError):
            make_fx(lambda t, u: 1 / 0)(x, number)
        return x * number.item()

    traced = make_fx(program)(torch.ones(3))
    assert [n.args[1] for n in traced.graph.nodes if n.target is torch.ops.aten.mul.Tensor] == [3.0]
    assert [n.op for n in traced.graph.nodes if n.op != "call_function"] == ["placeholder", "get_attr", "output"]


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_users_see_calls_before_a_trace_does(mode: str) -> None:
    """Wherever they are entered: what they do is in the graph, and decompositions come later."""

    def program(x: Any) -> Any:
        return x.sin().cos()

    def negated(x: Any) -> Any:
        with NegatedSines():
            return program(x)

    rules = {torch.ops.aten.cos.default: torch.tan}
    x = torch.ones(3)
    with Names() as names:
        assert operators(make_fx(program, rules, mode)(x)) == ["sin", "tan"]
    assert names.seen == ["sin", "cos"]
    with NegatedSines():
        assert operators(make_fx(program, tracing_mode=mode)(x)) == ["sin", "neg", "cos"]
    assert operators(make_fx(negated, tracing_mode=mode)(x)) == ["sin", "neg", "cos"]


@pytest.mark.parametrize("mode", MODES)
def test_fake_tensors_made_inside_of_a_trace_are_in_its_graph(mode: str) -> None:
    def program(x: Any) -> Any:
        with FakeTensorMode(allow_non_fake_inputs=True):
            made = torch.ones(3).sin()
        assert isinstance(made, FakeTensor)
        return x * 2

    assert operators(make_fx(program, tracing_mode=mode)(torch.ones(3))) == ["ones", "sin", "mul"]
    assert operators(make_fx(program, pre_dispatch=True)(torch.ones(3))) == ["ones", "sin", "mul"]


def test_traces_above_autograd_beside_others() -> None:
    linear = torch.nn.functional.linear
    inside: list[Any] = []
    x = torch.ones(2, 2)

    def user(x: Any) -> Any:
        with Names() as names:
            made = linear(x, x, x[0])
        inside.append(names.seen)
        return made

    assert operators(make_fx(user, pre_dispatch=True)(x)) == ["select", "linear"]
    assert inside.pop() == ["select", "t", "addmm"]
    expected = {True: ["linear"], False: ["t", "mm"]}
    for outer in (True, False):
        for inner in (True, False):

            def program(x: Any, inner: bool = inner) -> Any:
                inside.append(make_fx(lambda t: linear(t, t), pre_dispatch=inner)(x))
                return linear(x, x)

            assert operators(make_fx(program, pre_dispatch=outer)(x)) == expected[outer]
            assert operators(inside.pop()) == expected[inner]


def test_infrastructure_lies_below_modes_of_users() -> None:
    def program(x: Any) -> Any:
        with Names(), FakeTensorMode() as first, FakeTensorMode() as second, second:
            kinds = [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]
            assert kinds == ["FakeTensorMode", "ProxyTorchDispatchMode", "Names", "Names"]
            assert first is not _get_current_dispatch_mode_stack()[0] is second
        return x

    with Names():
        make_fx(program, tracing_mode="fake")(torch.ones(3))
        assert len(_get_current_dispatch_mode_stack()) == 1
    assert not _get_current_dispatch_mode_stack()


@pytest.mark.parametrize("mode", MODES)
def test_one_kind_of_mode_is_off_alone(mode: str) -> None:
    def program(x: Any) -> Any:
        with disable_proxy_modes_tracing() as writer:
            assert get_proxy_mode() is None is not writer
            assert isinstance(torch.ones(2), FakeTensor) is (mode != "real")
        with unset_fake_temporarily() as fake:
            assert (fake is None) is (mode == "real")
            assert type(torch.zeros(2)) is torch.Tensor
        return x * 2

    assert operators(make_fx(program, tracing_mode=mode)(torch.ones(3))) == ["zeros", "mul"]


@pytest.mark.parametrize("mode", MODES)
def test_symbols_of_fake_arguments_stay_symbols(mode: str) -> None:
    x = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(5))
    graph = make_fx(lambda x: x.new_zeros(x.shape[0] * 2), tracing_mode=mode)(x)
    assert [n.name for n in graph.graph.nodes] == ["x_1", "sym_size_int", "mul", "new_zeros", "output"]


def test_symbolic_traces_need_symbols() -> None:
    x = FakeTensorMode().from_tensor(torch.ones(5))
    with pytest.raises(AssertionError, match="shape_env should be set if tracing with 'symbolic'"):
        make_fx(torch.sin, tracing_mode="symbolic")(x)


def test_fake_traces_have_numbers_that_elements_tell() -> None:
    x = torch.arange(3.0)
    graph = make_fx(lambda x: x * x.sum().item(), tracing_mode="fake")(x)
    assert operators(graph) == ["sum", "_local_scalar_dense", "mul"]
    assert torch.equal(graph(x + 1), (x + 1) * 6)


def test_casts_of_parameters_are_in_the_graph_though_autocast_has_made_them_before() -> None:
    layer, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x)
        graph = make_fx(layer)(x)
        assert torch.is_autocast_cache_enabled()
    with torch.no_grad():
        layer.weight.mul_(2)
        layer.bias.zero_()
    assert torch.equal(graph(x), (x.bfloat16() @ layer.weight.t().bfloat16()))


def test_names_are_those_of_the_function() -> None:
    def named(p: Any) -> Any:
        return p * 2

    assert make_fx(named).__name__ == "named"
    graph = make_fx(torch.nn.Linear(3, 3))(torch.ones(2, 3))
    assert next(iter(graph.graph.nodes)).name == "arg0_1"


def test_a_graph_is_written_again_with_decompositions() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor([2.0, 3.0, 5.0]))

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.gelu(x * self.scale), x

    x, module = torch.randn(4, 3), Scaled()
    traced, written = make_fx(module)(x), torch.fx.Graph()
    rules = {torch.ops.aten.gelu.default: lambda x: 0.5 * x * (1 + torch.erf(x * 0.5**0.5))}
    made = DecompositionInterpreter(traced, written, rules).run(x)
    graph = torch.fx.GraphModule(traced, written)
    assert operators(graph) == ["mul", "mul", "mul", "erf", "add", "mul"]
    for y in (x, x + 1):
        assert torch.allclose(graph(y)[0], module(y)[0], atol=1e-6)
        assert torch.equal(graph(y)[1], y)
    assert torch.allclose(made[0], module(x)[0], atol=1e-6)


def test_the_class_of_a_graph_has_the_name_of_the_function() -> None:
    def named(p: Any) -> Any:
        return p * 2

    x = torch.ones(2)
    kinds = [type(make_fx(f)(x)).__name__ for f in (named, torch.vmap(named), lambda x: x, torch.nn.ReLU(), torch.sin)]
    assert kinds == ["named", "named", "<lambda>", "<lambda>", "<lambda>"]
