"""Functions that change memory, return views, or look at arguments that share memory, under `aot_function`: the same as
eager, from graphs that change nothing.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._functorch.aot_autograd import aot_function
from rushlight._functorch.compilers import nop
from rushlight._functorch.partitioners import default_partition, min_cut_rematerialization_partition

sys.path.insert(0, str(Path(__file__).parent))
import ahead_of_time_programs as ahead_of_time

T = torch.Tensor
STORED = json.loads(gzip.decompress(Path(__file__).with_name("ahead_of_time_graphs.json.gz").read_bytes()))


def of_a_view(x: T) -> Any:
    y = x * 2
    y[0].add_(x[1])
    z = y.view(-1)
    y.t()[1].mul_(3)
    return y, z.sum()


def of_parts(x: T) -> Any:
    y = x.clone()
    a, b = y.unbind(0)[:2]
    a.add_(b)
    p, q = y.split([1, 2], 1)
    q.mul_(a[0])
    y.diagonal().zero_()
    return y.permute(1, 0), p[:, 0]


def of_a_part(x: T) -> Any:
    y = x * 1
    y.narrow(1, 1, 2).mul_(x[0, 0])
    y.diagonal().zero_()
    y.permute(1, 0)[2].copy_(x[1])
    return y.t(), y.split(2, 1)[1] * 2


def of_an_argument(x: T) -> Any:
    x[1:].mul_(2)
    return x.sum(0)


def wider(x: T) -> Any:
    y = x.unsqueeze(0).expand(2, -1, -1).clone()
    y.squeeze(0)[1] += 1
    y.as_strided((2, 2), (4, 1), 1).fill_(7)
    return y


def looks_otherwise(x: T) -> Any:
    y = x * 1
    y.transpose_(0, 1)
    y[0] += 10
    return y, y.unsqueeze_(0).shape[0]


def casts(x: T) -> Any:
    y = x.to(torch.float64)
    z = x * 2
    z.add_(y[0])
    return z


PROGRAMS: list[Callable[..., Any]] = [
    of_a_view, of_a_part, of_an_argument, wider, looks_otherwise, casts, lambda x: x.view(-1), lambda x: (x, x * 2), lambda x: x.t()[0],
    lambda x: (x.sin().view(-1), x.cos()[0]), lambda x: x.add_(1).t(),
]  # fmt: skip


def run(f: Any, x: T, gradients: bool) -> list[Any]:
    """Results, the argument afterwards, and its gradient."""
    leaf = x.clone().requires_grad_(gradients)
    given = leaf * 1 if gradients else leaf
    outs = f(given)
    outs = [o for o in (outs if isinstance(outs, tuple) else (outs,)) if isinstance(o, torch.Tensor)]
    if gradients:
        (sum((o * o).sum() for o in outs) + given.sum()).backward()  # type: ignore[union-attr]
    return [*[o.detach() for o in outs], given.detach(), leaf.grad]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_changes_and_views_are_those_of_eager(number: int, gradients: bool) -> None:
    partition = [default_partition, min_cut_rematerialization_partition][number % 2]
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return nop(graph, inputs)

    f, x = PROGRAMS[number], torch.arange(1.0, 10.0).view(3, 3) / 4
    got = run(aot_function(f, fw_compiler=keep, partition_fn=partition), x, gradients)
    for a, b in zip(got, run(f, x, gradients), strict=True):
        assert a is b or torch.allclose(a, b) and a.shape == b.shape
    written = [n for g in graphs for n in g.graph.nodes if n.op == "call_function"]
    assert not [n for n in written if getattr(n.target, "_opname", "").endswith("_")]


def test_parts_of_several_views_change_without_gradients() -> None:
    x = torch.arange(1.0, 10.0).view(3, 3)
    assert all(torch.equal(a, b) for a, b in zip(aot_function(of_parts, fw_compiler=nop)(x), of_parts(x), strict=True))


@pytest.mark.parametrize("name", ahead_of_time.PROGRAMS)
def test_graphs_are_those_of_pytorch(name: str) -> None:
    """Kind, target, name and order of every node, forward and backward."""
    assert ahead_of_time.graphs(torch, name, aot_function, default_partition) == STORED[name]


def test_results_that_are_views_share_memory_with_arguments() -> None:
    x = torch.zeros(2, 2)
    view, same = aot_function(lambda x: (x.t()[0], x), fw_compiler=nop)(x)
    view.add_(1)
    assert same is x and x.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_arguments_that_share_memory_change_together() -> None:
    def f(a: T, b: T) -> T:
        a.add_(1)
        return b * 2

    memory = torch.zeros(6)
    compiled = aot_function(f, fw_compiler=nop)
    assert (
        compiled(memory[:4], memory[2:]).tolist() == [2.0, 2.0, 0.0, 0.0] and memory.tolist() == [1.0] * 4 + [0.0] * 2
    )
    assert compiled(memory[:3], torch.zeros(3)).tolist() == [0.0] * 3 and memory.tolist() == [2.0] * 3 + [1.0, 0.0, 0.0]
    leaf = torch.zeros(4, requires_grad=True) * 1
    with pytest.raises(NotImplementedError, match="share memory"):
        compiled(leaf[:2], leaf[1:3])


def test_an_argument_may_look_otherwise_afterwards() -> None:
    def f(x: T) -> T:
        x.mul_(2)
        x.t_()
        return x.sum(0)

    x, y = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    assert torch.equal(aot_function(f, fw_compiler=nop)(x), f(y)) and x.shape == (3, 2) and torch.equal(x, y)


def test_second_derivatives() -> None:
    def f(x: T, w: T) -> T:
        return (torch.sin(x @ w) ** 3).sum()

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    found = []
    for each in (aot_function(f, fw_compiler=nop), f):
        first = torch.autograd.grad(each(x, w), (x, w), create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), (x, w), create_graph=True)
        found.append([*first, *second, *torch.autograd.grad(sum(g.sum() for g in second), (x, w))])
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(*found, strict=True))
    drawn = aot_function(lambda x: torch.nn.functional.dropout(x * x).sum(), fw_compiler=nop)(x)
    with pytest.raises(NotImplementedError, match="random"):
        torch.autograd.grad(drawn, x, create_graph=True)


def test_what_has_no_functional_form_says_so() -> None:
    with pytest.raises(NotImplementedError, match="resize"):
        aot_function(lambda x: x.resize_(1).sum(), fw_compiler=nop)(torch.ones(2))
    with pytest.raises(NotImplementedError, match="expand"):
        aot_function(lambda x: x.clone().expand(2, 2)[0].add_(1), fw_compiler=nop)(torch.ones(2))


def test_custom_operators_are_one_node() -> None:
    @torch.library.custom_op("aot_tests::squared", mutates_args=())
    def squared(x: torch.Tensor) -> torch.Tensor:
        return x * x

    squared.register_fake(lambda x: torch.empty_like(x))
    squared.register_autograd(
        lambda ctx, g: g * 2 * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append([str(n.target) for n in graph.graph.nodes if n.op == "call_function"])
        return nop(graph, inputs)

    x = torch.arange(3.0, requires_grad=True)
    aot_function(lambda x: squared(x).sum(), fw_compiler=keep)(x).backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 2.0, 4.0]
    assert graphs[0] == ["aot_tests.squared.default", "aten.sum.default"] and "aot_tests" not in str(graphs[1])


def writes_in(where: str, kept: T) -> type[torch.autograd.Function]:
    """A function whose forward or backward writes into a tensor from outside."""

    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: T) -> T:
            if where in ("forward", "both"):
                kept[1:].add_(1)
                return x * kept
            return x * 3

        @staticmethod
        def backward(ctx: Any, grad: T) -> T:
            if where in ("backward", "both"):
                kept[1:].mul_(2)
                kept.add_(grad)
                return grad * kept
            return grad * 5

    return Writes


@pytest.mark.parametrize("partition", [default_partition, min_cut_rematerialization_partition])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_writes_into_tensors_from_outside(where: str, partition: Any) -> None:
    ours, plain = torch.ones(3), torch.ones(3)
    compiled = aot_function(writes_in(where, ours).apply, fw_compiler=nop, partition_fn=partition)
    for _ in range(3):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        made, wanted = compiled(x), writes_in(where, plain).apply(y)
        made.sum().backward()
        wanted.sum().backward()
        assert torch.equal(made, wanted) and torch.equal(ours, plain)
        assert x.grad is not None and y.grad is not None and torch.equal(x.grad, y.grad)


def test_writes_of_forward_and_backward_into_the_same_tensor_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="forward and backward both change"):
        aot_function(writes_in("both", torch.ones(3)).apply, fw_compiler=nop)(torch.ones(3, requires_grad=True))


def test_outputs_that_a_function_saves_are_nodes_in_the_backward() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: T) -> tuple[T, T]:
            slope = 3 * x**2
            ctx.save_for_backward(x, slope)
            return x**3, slope

        @staticmethod
        def backward(ctx: Any, grad: T, grad_slope: T) -> T:
            x, slope = ctx.saved_tensors
            return grad * slope + grad_slope * 6 * x

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    made, slope = aot_function(Cube.apply, fw_compiler=nop)(x)
    (made + slope).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [9.0, 24.0]


class Tripled(torch.autograd.Function):
    """A view whose gradient is three times what comes in."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.t()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad.t() * 3


class Same(torch.autograd.Function):
    """The argument itself, the same way."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad * 3


def _in_place(x: Any) -> Any:
    y = x * 1
    apart = y.detach()
    return apart, y.mul_(2)


def _changed_argument(x: Any) -> Any:
    apart = x.detach()
    x.mul_(2)
    return apart, x


def _ends_without_gradients(x: Any) -> Any:
    y = x * 2
    with torch.no_grad():
        part = y[0].clone()
    return part, y


HISTORIES = {
    "view": Tripled.apply, "same": Same.apply, "view of the same": lambda x: Same.apply(x).view(-1), "same view": lambda x: Same.apply(x.view(-1)),
    "among others": lambda x: (x * 2, Tripled.apply(x)), "detached": _in_place, "detached argument": _changed_argument,
    "no_grad at the end": _ends_without_gradients,
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("way", ["aot_function", "aot_eager"])
def test_views_of_arguments_have_the_history_of_the_program(name: str, way: str) -> None:
    """A view that is made anew of an argument would lose the backward of the program's own Function."""
    function = HISTORIES[name]

    def seen(call: Any) -> Any:
        leaf = torch.arange(1.0, 7).reshape(2, 3).requires_grad_()
        outs = call(leaf + 1 if name == "detached argument" else leaf)
        outs = outs if isinstance(outs, tuple) else (outs,)
        sum((o * o).sum() for o in outs if o.requires_grad).backward()  # type: ignore[union-attr]
        assert leaf.grad is not None
        return [(o.tolist(), o.requires_grad) for o in outs], leaf.grad.tolist()

    compiled = torch.compile(function, backend="aot_eager") if way == "aot_eager" else aot_function(function, nop)
    assert seen(compiled) == seen(function)


@pytest.mark.parametrize("way", ["aot_function", "aot_eager"])
@pytest.mark.parametrize("function", [lambda x: (x.sin().view(-1),), lambda x: ((x * 2).t(), (x * 3).t())])
def test_views_of_what_a_graph_computed_may_be_changed_by_the_caller(function: Any, way: str) -> None:
    def seen(call: Any) -> Any:
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        outs = call(x)
        outs[0].mul_(3)
        sum((o * o).sum() for o in outs).backward()  # type: ignore[union-attr]
        assert x.grad is not None
        return [o.tolist() for o in outs], x.grad.tolist()

    compiled = torch.compile(function, backend="aot_eager") if way == "aot_eager" else aot_function(function, nop)
    assert seen(compiled) == seen(function)
