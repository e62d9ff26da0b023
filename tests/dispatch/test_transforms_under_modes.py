"""Function transforms inside of what dispatch modes look at: graphs compute with what they are given, as eager does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._functorch.aot_autograd import aot_function
from rushlight._functorch.compilers import nop
from rushlight.autograd import forward_ad
from rushlight.func import functional_call, functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.utils._python_dispatch import TorchDispatchMode

LINEAR = nn.Linear(4, 2)


class Squared(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0]


def _loss(parameters: Any, x: Any) -> Any:
    return functional_call(LINEAR, parameters, (x,)).square().sum()


def _through_forward_mode(x: Any) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(forward_ad.make_dual(x, x + 1).sin()).tangent


def _in_place(x: Any) -> Any:
    made = x.clone()
    made[1:].mul_(2)
    return made.add_(x.sum())


PROGRAMS: dict[str, Any] = {
    "elements": lambda x: vmap(lambda r: r.sin() / r.sum())(x),
    "dims": lambda x: vmap(lambda a, b: a @ b, in_dims=(1, None), out_dims=1)(x, x),
    "outside": lambda x: vmap(lambda r: r + x.sum())(x),
    "nested": lambda x: vmap(vmap(lambda r: r.exp() * 2))(x),
    "pieces": lambda x: vmap(lambda r: r.softmax(0), chunk_size=2)(x),
    "views": lambda x: vmap(lambda r: r[1:].unsqueeze(0).t().reshape(-1) * r.view(2, 2)[0, 1])(x),
    "several": lambda x: vmap(lambda r: torch.stack(r.unbind(0)[::-1]) + r.max(0).values)(x),
    "promoted": lambda x: vmap(lambda r: r.double().sum() * r)(x),
    "normalised": lambda x: vmap(nn.functional.layer_norm, (0, None))(x, (4,)),
    "in place": lambda x: vmap(_in_place)(x),
    "grad": lambda x: grad(lambda r: (r * r * x.sum()).sum())(x),
    "per sample": lambda x: vmap(grad(_loss), (None, 0))(dict(LINEAR.named_parameters()), x)["weight"],
    "function": lambda x: vmap(grad(lambda r: Squared.apply(r).sum()))(x),
    "vjp": lambda x: vjp(torch.sin, x)[1](x)[0],
    "jvp": lambda x: jvp(lambda r: r.clone().mul_(r), (x,), (x.cos(),))[1],
    "linearize": lambda x: linearize(torch.sin, x)[1](x),
    "jacrev": lambda x: jacrev(lambda r: r * r)(x),
    "jacfwd": lambda x: vmap(jacfwd(lambda r: r.softmax(0)))(x),
    "hessian": lambda x: hessian(lambda r: (r.sin() * r.exp()).sum())(x[0]),
    "functionalize": lambda x: functionalize(lambda r: r.clone().add_(1) * 2)(x),
    "forward mode": _through_forward_mode,
}


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_of_transforms_compute_with_their_inputs(name: str, mode: str) -> None:
    torch.manual_seed(1)
    program, (x, y) = PROGRAMS[name], torch.randn(2, 3, 4)
    graph = make_fx(program, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
    assert torch.allclose(graph(y), program(y), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "linearize"])
def test_programs_with_transforms_ahead_of_time(name: str) -> None:
    torch.manual_seed(2)
    program, ahead = PROGRAMS[name], aot_function(PROGRAMS[name], nop)
    ahead(torch.randn(3, 4, requires_grad=True))
    x = torch.randn(3, 4, requires_grad=True)
    found, wanted = ahead(x), program(x)
    assert torch.allclose(found, wanted, atol=1e-5, rtol=1e-4) and found.requires_grad == wanted.requires_grad
    (slope,) = torch.autograd.grad(wanted.sin().sum(), x)
    assert torch.allclose(torch.autograd.grad(found.sin().sum(), x)[0], slope, atol=1e-4, rtol=1e-3)


def test_changes_of_views_of_a_batch_are_refused_ahead_of_time() -> None:
    def changed(row: Any) -> Any:
        made = row.clone()
        made.unfold(0, 2, 2).mul_(2)
        return made

    assert torch.equal(vmap(changed)(torch.ones(3, 4)), torch.full((3, 4), 2.0))
    with pytest.raises(NotImplementedError, match="vmap_unfold"):
        aot_function(vmap(changed), nop)(torch.ones(3, 4))


def test_modes_see_operators_on_whole_batches() -> None:
    seen: Counter[str] = Counter()

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert all(type(x) is torch.Tensor for x in args if isinstance(x, torch.Tensor))
            seen[str(func)] += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        found = vmap(lambda r, s: (r * s).sin())(torch.ones(2, 3), torch.ones(2))
    assert torch.equal(found, torch.ones(2, 3).sin()) and seen["aten.mul.Tensor"] == seen["aten.sin.default"] == 1


def test_a_trace_inside_of_a_batch_is_refused() -> None:
    """The graph would hold the batch as a constant."""
    with pytest.raises(NotImplementedError, match="inside of vmap"):
        vmap(lambda r: make_fx(torch.sin)(r)(r))(torch.ones(2, 3))


def test_second_derivatives_of_operators_without_a_formula() -> None:
    def slope(x: Any) -> Any:
        return torch.autograd.grad(vmap(lambda r: r.prod())(x).sum(), x, create_graph=True)[0]

    x = torch.tensor([[2.0, 3.0, 5.0]], requires_grad=True)
    ahead = aot_function(lambda x: vmap(grad(lambda r: r.prod()))(x), nop)
    (found,) = torch.autograd.grad(ahead(x)[0, 0], x)
    (wanted,) = torch.autograd.grad(slope(x)[0, 0], x)
    assert found.tolist() == wanted.tolist() == [[0.0, 5.0, 3.0]]
