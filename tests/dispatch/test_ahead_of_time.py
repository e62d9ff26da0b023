"""`aot_function` and its kin: two graphs, what is kept between them, changes written back; decompositions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._decomp import core_aten_decompositions, get_decompositions
from rushlight._functorch.aot_autograd import (
    aot_export_joint_simple,
    aot_export_module,
    aot_function,
    aot_module,
    aot_module_simplified,
    make_boxed_func,
)
from rushlight._functorch.compilers import memory_efficient_fusion, nop
from rushlight._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from rushlight._subclasses.fake_tensor import FakeTensorMode, is_fake
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.fx.passes.fake_tensor_prop import FakeTensorProp
from rushlight.fx.passes.shape_prop import ShapeProp

PARTITIONS = [default_partition, min_cut_rematerialization_partition]


class Kept:
    """A compiler that keeps the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(graph)
        return make_boxed_func(graph.forward)


def names(graph: Any) -> list[str]:
    return [n.name for n in graph.graph.nodes]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_gradients_are_those_of_the_function(partition: Any) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.nn.functional.gelu(x @ w).sin().sum(1), x.sum()

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    compiled = aot_function(f, fw_compiler=nop, partition_fn=partition)
    out, wanted = compiled(x, w), f(x, w)
    assert all(torch.allclose(a, b) for a, b in zip(out, wanted, strict=True))
    got = torch.autograd.grad(out[0].sum() + out[1], (x, w))
    expected = torch.autograd.grad(wanted[0].sum() + wanted[1], (x, w))
    assert all(torch.allclose(a, b) for a, b in zip(got, expected, strict=True))


def test_the_cut_keeps_less_and_computes_again() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos().exp().sum()

    x = torch.randn(8, requires_grad=True)
    whole, cut = Kept(), Kept()
    aot_function(f, fw_compiler=whole)(x).backward()
    aot_function(f, fw_compiler=cut, partition_fn=min_cut_rematerialization_partition)(x).backward()
    kept = [len(k.graphs[0].graph.output_node().args[0]) - 1 for k in (whole, cut)]
    assert kept == [3, 1] and names(cut.graphs[1])[0] == "primals_1" and "sin" in "".join(names(cut.graphs[1]))
    assert names(whole.graphs[0]) == ["primals_1", "sin", "cos", "exp", "detach", "sum_1", "output"]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_network_trains_as_without(partition: Any) -> None:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Flatten(), torch.nn.Linear(64, 3),
    )  # fmt: skip
    plain = copy.deepcopy(net)
    compiled = aot_module(net, fw_compiler=nop, partition_fn=partition)
    x = torch.randn(2, 1, 6, 6)
    outs = []
    for each in (compiled, plain):
        torch.manual_seed(0)
        outs.append(each(x))
        outs[-1].sum().backward()
    assert torch.allclose(*outs, atol=1e-6)
    assert all(
        torch.allclose(a.grad, b.grad, atol=1e-5) for a, b in zip(net.parameters(), plain.parameters(), strict=True)
    )
    assert torch.equal(net[1].running_mean, plain[1].running_mean) and net[1].num_batches_tracked.item() == 1


def test_changes_of_arguments_are_written_back() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y = x * 2
        y.mul_(3)
        return y

    kept = Kept()
    compiled, x = aot_function(f, fw_compiler=kept), torch.ones(2)
    assert compiled(x).tolist() == [12.0, 12.0] and x.tolist() == [2.0, 2.0]
    assert compiled(x).tolist() == [18.0, 18.0] and len(kept.graphs) == 1
    assert not any(
        str(n.target).split(".")[1].endswith("_") for n in kept.graphs[0].graph.nodes if n.op == "call_function"
    )


def test_a_tensor_that_is_given_twice_is_one() -> None:
    kept = Kept()
    compiled = aot_function(lambda a, b: a * b, fw_compiler=kept)
    x, y = torch.ones(2, requires_grad=True), torch.full((2,), 3.0)
    compiled(x, x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
    assert compiled(x, y).tolist() == [3.0, 3.0] and len(kept.graphs) == 4


def test_structures_and_numbers_pass_through() -> None:
    compiled = aot_function(lambda d, k: {"out": d["a"] * k, "k": k}, fw_compiler=nop)
    assert compiled({"a": torch.ones(1)}, 3)["out"].tolist() == [3.0] and compiled({"a": torch.ones(1)}, 4)["k"] == 4
    net = torch.nn.Linear(2, 1)
    simple = aot_module_simplified(net, (torch.ones(1, 2),), nop)
    assert torch.equal(simple(torch.ones(1, 2)), net(torch.ones(1, 2)))
    x = torch.randn(5, requires_grad=True)
    memory_efficient_fusion(lambda x: torch.sigmoid(x).tanh().sum())(x).backward()
    (wanted,) = torch.autograd.grad(torch.sigmoid(x).tanh().sum(), x)
    assert x.grad is not None and torch.allclose(x.grad, wanted)
    with pytest.raises(NotImplementedError, match="dynamic"):
        aot_function(torch.neg, fw_compiler=nop, dynamic=True)


FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: torch.nn.functional.gelu(x), lambda x: torch.nn.functional.silu(x), lambda x: torch.tanh(torch.sigmoid(x)),
    lambda x: torch.softmax(x, 0) ** 2, lambda x: torch.log_softmax(x, 1) * x, lambda x: torch.nn.functional.layer_norm(x, (3,)) ** 2,
    lambda x: x[1:] * x[0], lambda x: torch.nn.functional.softplus(x), lambda x: torch.relu(x) + torch.nn.functional.hardtanh(x),
    lambda x: torch.addmm(x, x, x, beta=2, alpha=3), lambda x: torch.nn.functional.mse_loss(x, x * 2),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_decompositions_compute_the_same(number: int) -> None:
    f, table = FUNCTIONS[number], core_aten_decompositions()

    def slope(x: torch.Tensor) -> Any:
        out = f(x)
        return out, torch.autograd.grad(out.sum(), x)[0]

    x = torch.randn(3, 3, requires_grad=True)
    graph = make_fx(slope, table)(x)
    assert not {n.target for n in graph.graph.nodes} & {
        o for o in table if o._opname in ("gelu", "silu", "_softmax", "addmm")
    }
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(graph(x), slope(x), strict=True))


def test_the_table_of_decompositions_knows_what_it_has() -> None:
    found = get_decompositions([torch.ops.aten.silu, torch.ops.aten.convolution])
    assert set(found) == {torch.ops.aten.silu.default}


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)  # type: ignore[operator, union-attr]
        y = self.inner(x).relu()
        return y.sum(), y.detach()


def test_exported_modules_say_what_their_inputs_and_results_are() -> None:
    net = Counting()
    graph, signature = aot_export_module(net, (torch.ones(2, 3),), trace_joint=False)
    assert signature.parameters == ["inner.weight", "inner.bias"] and signature.buffers == ["calls"]
    assert signature.inputs_to_parameters == {"arg0_1": "inner.weight", "arg1_1": "inner.bias"}
    assert signature.buffers_to_mutate == {"add": "calls"} and signature.user_inputs == ["arg3_1"]
    made = graph(*net.parameters(), net.calls, torch.ones(2, 3))
    assert made[0].tolist() == [1.0] and torch.allclose(made[1], net(torch.ones(2, 3))[0])

    graph, signature = aot_export_module(net, (torch.ones(2, 3),), trace_joint=True, output_loss_index=0)
    assert signature.backward_signature is not None and signature.backward_signature.loss_output == "sum_1"
    assert list(signature.backward_signature.gradients_to_parameters.values()) == ["inner.weight", "inner.bias"]
    made = graph(*net.parameters(), net.calls, torch.ones(2, 3))
    wanted = torch.autograd.grad(net(torch.ones(2, 3))[0], list(net.parameters()))
    assert all(torch.allclose(a, b) for a, b in zip(made[3:5], wanted, strict=True))
    with pytest.raises(RuntimeError, match="output_loss_index"):
        aot_export_module(net, (torch.ones(2, 3),), trace_joint=True)


def test_exported_functions_change_and_alias_nothing() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    graph = aot_export_joint_simple(lambda x: ((x * x).sin(),), (x,), trace_joint=True)
    out, grad = graph(x.detach(), torch.ones(2, 3))
    assert torch.allclose(out, (x * x).sin()) and torch.allclose(grad, 2 * x * (x * x).cos())
    for f, word in ((lambda x: (x.t(),), "alias"), (lambda x: (x.add_(1).sum(),), "mutations")):
        with pytest.raises(RuntimeError, match=word):
            aot_export_joint_simple(f, (torch.ones(2, 3),), trace_joint=False)


def test_graphs_run_on_fake_tensors() -> None:
    module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
    made = FakeTensorProp(module).propagate(torch.ones(4, 2))
    assert is_fake(made) and [tuple(n.meta["val"].shape) for n in module.graph.nodes] == [
        (4, 2),
        (4, 3),
        (4, 3),
        (4, 3),
    ]
    assert is_fake(ShapeProp(module, FakeTensorMode()).propagate(torch.ones(5, 2)))
    assert [tuple(n.meta["tensor_meta"].shape) for n in module.graph.nodes][-1] == (5, 3)
