"""Function transforms in compiled functions: part of the graphs of other backends, with eager's results and gradients."""

from __future__ import annotations

import operator
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.autograd import forward_ad
from rushlight.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)

LINEAR = nn.Linear(3, 2)
MADE_OUTSIDE = vmap(lambda row, scale: (row * scale, row.sum()), in_dims=(0, None), out_dims=(1, 0))


def _loss(parameters: Any, x: Any) -> Any:
    return functional_call(LINEAR, parameters, (x,)).square().sum()


def _with_aux(x: Any) -> Any:
    def loss(p: Any, *, scale: Any) -> Any:
        made = (p["w"] * scale).sin()
        return made.sum(), {"made": made}

    slopes, aux = grad(loss, has_aux=True)({"w": x}, scale=x.exp())
    return slopes["w"] + aux["made"]


def _appending(x: Any) -> Any:
    rows: list[int] = []
    found = vmap(lambda r: (rows.append(r.shape[0]), r * 2)[1])(x)
    return found + len(rows)


def _tenfold(x: Any) -> Any:
    made = x.clone()
    made[0].mul_(10)
    return made


def _pulled(function: Any, *primals: Any) -> Any:
    value, pull, aux = vjp(function, *primals, has_aux=True)
    slopes = pull(value)
    return slopes[0] + pull({"made": value["made"].cos()})[-1] + aux


def _pushed(function: Any, x: Any) -> Any:
    value, push = linearize(function, x)
    return vmap(push)(torch.stack([x, value])).sum(0)


PROGRAMS: dict[str, Any] = {
    "vmap": lambda x: vmap(lambda r: r.sin() / r.sum(), in_dims=1, out_dims=1)(x) + 1,
    "grad": lambda x: grad(lambda r: (r * x.sum()).sin().sum())(x * 2),
    "value": lambda x: grad_and_value(lambda r, s: (r * s).sum(), argnums=(0, 1))(x, x.cos())[0][1],
    "aux": _with_aux,
    "per sample": lambda x: vmap(grad(_loss), (None, 0))(dict(LINEAR.named_parameters()), x)["weight"],
    "reads outside": lambda x: vmap(lambda r: LINEAR(r) + x.mean())(x),
    "made outside": lambda x: MADE_OUTSIDE(x, x.sum())[0],
    "jacrev": lambda x: jacrev(lambda r: r.softmax(0) * r, chunk_size=2)(x[0]),
    "jacfwd": lambda x: vmap(jacfwd(lambda r: r * r.sum()))(x),
    "hessian": lambda x: hessian(lambda r: (r.sin() * r.exp()).sum())(x[0]),
    "jvp": lambda x: jvp(lambda r: r.clone().mul_(r), (x,), (x.cos(),))[1],
    "steps": _appending,
    "vjp": lambda x: vjp(torch.sin, x * 2)[1](x)[0] + 1,
    "vjp of two": lambda x: _pulled(lambda a, b: ({"made": a * b.sin()}, a.exp()), x * 2, x),
    "vjp in a batch": lambda x: vmap(lambda r: vjp(torch.sin, r * 2)[1](r)[0])(x),
    "vjp in grad": lambda x: grad(lambda y: vjp(torch.sin, y)[1](y)[0].sum())(x),
    "vjp of vjp": lambda x: vjp(lambda y: vjp(torch.sin, y * x)[1](y)[0], x)[1](x)[0],
    "vjp of containers": lambda x: vjp(lambda d: {"o": d["a"] * d["b"]}, {"a": x, "b": x.exp()})[1]({"o": x})[0]["b"],
    "batched vjp": lambda x: vmap(vjp(lambda a: a * a.sum(), x[0])[1])(x)[0],
    "linearize": lambda x: _pushed(lambda r: r * r.sum(), x),
    "functionalize": lambda x: functionalize(_tenfold)(x) + functionalize(_tenfold, remove="mutations_and_views")(x),
    "functionalize grad": lambda x: functionalize(grad(lambda y: _tenfold(y).sin().sum()))(x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_transforms_are_part_of_one_graph(name: str, backend: str) -> None:
    torch.manual_seed(3)
    program = PROGRAMS[name]
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    compiled(torch.randn(4, 3, requires_grad=True))
    x = torch.randn(4, 3, requires_grad=True)
    found, wanted = compiled(x), program(x)
    assert torch.allclose(found, wanted, atol=1e-5, rtol=1e-4) and found.requires_grad == wanted.requires_grad
    (slope,) = torch.autograd.grad(wanted.sin().sum(), x)
    assert torch.allclose(torch.autograd.grad(found.sin().sum(), x)[0], slope, atol=1e-4, rtol=1e-3)


def test_backends_see_a_module_with_the_graph_of_the_function() -> None:
    seen = []

    def backend(module: Any, inputs: Any) -> Any:
        seen.append(module)
        return module.forward

    weight = torch.tensor([2.0, 3.0])
    compiled = torch.compile(lambda x: vmap(grad(lambda r: (r * weight).sum()))(x), backend=backend)
    assert compiled(torch.ones(4, 2)).tolist() == [[2.0, 3.0]] * 4
    (node,) = seen[0].graph.find_nodes(op="call_module", target="vmap_body_0")
    assert len(node.args) == 2  # what the function is given, and what it reads besides
    inner = seen[0].vmap_body_0.body
    assert [n.target for n in inner.graph.nodes if n.op == "call_module"] == ["grad_body_0"]
    assert "in_dims=0" in repr(seen[0].vmap_body_0)
    graph = inner.grad_body_0.body.graph
    assert [n.target for n in graph.nodes if n.op == "call_method"] == ["sum"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("transform", [vjp, linearize])
def test_linear_maps_live_within_one_graph(transform: Any, backend: str) -> None:
    def program(x: Any) -> Any:
        value, linear = transform(torch.sin, x * 2)
        torch._dynamo.graph_break()
        found = linear(value)
        return (found[0] if isinstance(found, tuple) else found) + 1

    x = torch.tensor([0.5, 2.0])
    assert torch.equal(torch.compile(program, backend=backend)(x), program(x))


def test_functionalize_writes_to_what_it_was_given() -> None:
    def program(x: Any) -> Any:
        made = x * 3
        total = functionalize(lambda y: y.mul_(2).sum())(made)
        return made + total

    x = torch.tensor([0.5, 2.0])
    assert torch.equal(torch.compile(program, backend="aot_eager", fullgraph=True)(x), x * 6 + x.sum() * 6)


def test_a_linear_map_is_called_by_a_node() -> None:
    seen = []

    def backend(module: Any, inputs: Any) -> Any:
        seen.append(module)
        return module.forward

    compiled = torch.compile(lambda x: vjp(torch.sin, x)[1](x)[0], backend=backend, fullgraph=True)
    assert torch.allclose(compiled(torch.ones(2)), torch.ones(2).cos())
    (made,) = seen[0].graph.find_nodes(op="call_module", target="vjp_body_0")
    (called,) = seen[0].graph.find_nodes(op="call_function", target=operator.call)
    assert called.args[0].args == (made, 1)


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager"])
@pytest.mark.parametrize("breaks", [False, True])
def test_levels_of_forward_mode(breaks: bool, backend: str) -> None:
    def program(x: Any) -> Any:
        y = x * 3
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(y, x.cos())
            if breaks:
                torch._dynamo.graph_break()
            tangent = forward_ad.unpack_dual(dual.sin()).tangent
        return tangent + 1

    x = torch.tensor([0.5, 2.0])
    compiled = torch.compile(program, backend=backend)
    for _ in range(2):
        assert torch.allclose(compiled(x), (x * 3).cos() * x.cos() + 1)


def test_tensors_of_a_level_that_the_program_keeps() -> None:
    def program(x: Any) -> Any:
        kept: list[Any] = []
        vmap(lambda r: (kept.append(r.shape), r)[1])(x)
        return x * len(kept)

    assert torch.compile(program, backend="eager", fullgraph=True)(torch.ones(2, 3)).tolist() == [[1.0] * 3] * 2
