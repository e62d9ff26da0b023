"""Backward calls that no compiled function holds, compiled: the gradients, hooks and errors of the engine."""

from __future__ import annotations

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._engine.core.hooks import HOOKS

counters = torch._dynamo.utils.counters
compiled_autograd = torch._dynamo.compiled_autograd


def _trained(model, shape):
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, 0.1)

    def step():
        optimizer.zero_grad()
        found = model(torch.randn(*shape))
        (found[0] if isinstance(found, tuple) else found).pow(2).mean().backward()
        optimizer.step()
        return [p.grad.clone() for p in parameters]

    return step


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0]


def _hooked():
    layer, seen = nn.Linear(3, 2), []
    layer.weight.register_hook(lambda g: g * 2)
    layer.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().detach()))

    def step():
        layer.zero_grad()
        y = layer(torch.randn(4, 3))
        y.register_hook(lambda g: (seen.append(g.shape[0]), g * 3)[1])
        y.pow(2).sum().backward()
        return [layer.weight.grad.clone(), *map(torch.as_tensor, seen)]

    return step


def _of_users():
    layer = nn.Linear(3, 3)

    def step():
        layer.zero_grad()
        y = Square.apply(layer(torch.randn(4, 3)).tanh())
        z = torch.utils.checkpoint.checkpoint(lambda a: layer(a).tanh(), y, use_reentrant=False)
        z.grad_fn.register_hook(lambda given, made: tuple(g if g is None else g * 2 for g in given))
        y.retain_grad()
        z.sum().backward()
        return [layer.weight.grad.clone(), y.grad]

    return step


def _asked():
    layer = nn.Linear(3, 2)

    def step():
        x = torch.randn(4, 3, requires_grad=True)
        y = layer(x).tanh()
        z = (y * x.sum()).sum()
        (second,) = torch.autograd.grad(torch.autograd.grad((x**3).sum(), x, create_graph=True)[0].sum(), x)
        return [*torch.autograd.grad(z, [x, y, layer.weight], retain_graph=True), *torch.autograd.grad(z, x), second]

    return step


def _changed_in_place():
    w = torch.randn(4, 4, requires_grad=True)

    def step():
        x = w * 1
        x[1].mul_(2)
        x[:, 2] = 0
        x.T.reshape(-1)[::2].exp().sum().backward()
        return [w.grad.clone()]

    return step


MAKERS = {
    "layers": lambda: _trained(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), (4, 3)),
    "images": lambda: _trained(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), (2, 1, 8, 8)),
    "attention": lambda: _trained(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "compiled": lambda: _trained(torch.compile(nn.Sequential(nn.Linear(3, 8), nn.Tanh())), (4, 3)), "recurrent": lambda: _trained(nn.LSTM(8, 4), (2, 5, 8)),
    "hooks": _hooked, "users": _of_users, "asked": _asked, "in place": _changed_in_place,
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_gradients_are_the_engines(name):
    found = []
    for on in (False, True):
        torch.manual_seed(0)
        step = MAKERS[name]()
        torch.manual_seed(1)
        torch._dynamo.reset()
        counters.clear()
        for _ in range(3):
            if on:
                with compiled_autograd._enable(torch.compile):
                    found.append(step())
            else:
                found.append(step())
    assert counters["compiled_autograd"]["captures"] >= 1
    for eager, compiled in zip(found[:3], found[3:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))


def test_one_walk_for_one_structure():
    walked = []

    def compiler(function):
        walked.append(function)
        return torch.compile(function, fullgraph=True)

    weight = torch.randn(3, requires_grad=True)
    with compiled_autograd._enable(compiler):
        for _ in range(4):
            (weight * weight).sum().backward()
        assert len(walked) == 1
        weight.sin().sum().backward()
        assert len(walked) == 2
        with compiled_autograd._disable():
            weight.cos().sum().backward()
        assert len(walked) == 2
    weight.exp().sum().backward()
    assert len(walked) == 2


def test_errors_are_the_engines():
    weight = torch.randn(3, requires_grad=True)
    with compiled_autograd._enable(torch.compile):
        y = (weight * weight).sum()
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
        z = weight.exp()
        product = (z * z).sum()
        z.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
        held = weight * 2
        held.register_hook(lambda g: g[:1])
        with pytest.raises(RuntimeError, match="has changed the size of value"):
            held.sum().backward()


def test_the_setting_switches_it():
    weight = torch.ones(2, requires_grad=True)
    counters.clear()
    with torch._dynamo.config.patch(compiled_autograd=True):
        (weight * weight).sum().backward()
    assert counters["compiled_autograd"]["captures"] == 1
    (weight * weight * 2).sum().backward()
    assert counters["compiled_autograd"]["captures"] == 1 and weight.grad.tolist() == [6.0, 6.0]


def test_structures_are_recognised_and_told_apart():
    """Calls of a plain structure are found without walking; a history that differs in one place is not taken for it."""
    torch.manual_seed(0)
    x, w, v = torch.randn(4, 3), torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    frozen = torch.randn(3, 3)

    def two(a, b):
        return ((x @ a).relu() @ b).sum()

    def hooked(a, b):
        y = (x @ a).relu()
        y.register_hook(lambda g: g * 3)
        return (y @ b).sum()

    def changed(a, b):
        y = (x @ a).relu()
        loss = (y @ b).sum()
        with torch.no_grad():
            y.mul_(2)
        return loss

    def gradients(make, a, b):
        w.grad = v.grad = None
        try:
            make(a, b).backward()
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return [None if p.grad is None else p.grad.clone() for p in (w, v)]

    cases = [
        (two, w, v),
        (two, w, v),
        (two, w, w),
        (two, v, w),
        (two, w, frozen),
        (hooked, w, v),
        (changed, w, v),
        (two, w, v),
    ]
    expected = [gradients(*case) for case in cases]
    with compiled_autograd._enable(torch.compile):
        walks = HOOKS.walk
        found = [gradients(*case) for case in cases]
        before = counters["compiled_autograd"]["captures"]
        w.register_hook(lambda g: g * 2)
        doubled = gradients(two, w, v)
    for a, b in zip(found, expected, strict=True):
        assert (
            a == b
            if isinstance(b, str)
            else all((p is None and q is None) or torch.equal(p, q) for p, q in zip(a, b, strict=True))
        )
    assert torch.equal(doubled[0], 2 * expected[0][0]) and counters["compiled_autograd"]["captures"] == before + 1
    assert walks._plain and torch.equal(expected[0][0], found[1][0])


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_backward_of_a_leaf(backend):
    def hook(x):
        x.mul_(x.grad)
        x.grad.mul_(5)

    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x.register_post_accumulate_grad_hook(hook)
    with compiled_autograd._enable(torch.compile(backend=backend)):
        for k in (1, 2):
            x.backward(torch.full((3,), float(k)))
    # gradients 1 and 5 + 2 reach the hook
    assert x.tolist() == [7.0, 14.0, 21.0] and x.grad.tolist() == [35.0, 35.0, 35.0]
