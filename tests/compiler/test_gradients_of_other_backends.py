"""Gradients in functions that are compiled for other backends: read, set, computed inside, and kept from."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight.fx.experimental.proxy_tensor import make_fx

_BACKENDS = ("inductor", "eager", "aot_eager")


def _seen(go: Any, x: Any) -> Any:
    """What a call gives and leaves, and the gradients that its results have."""
    made = go(x)
    outs = made if isinstance(made, tuple) else (made,)
    wanting = [t for t in outs if t.requires_grad]
    grad = None if x.grad is None else x.grad.tolist()
    flags = [(t.requires_grad, t.is_leaf, t.tolist()) for t in outs]
    if wanting:
        sum((t * t).sum() for t in wanting).backward()
    return flags, grad, x.tolist(), None if x.grad is None else x.grad.tolist()


def _given() -> Any:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    x.grad = torch.tensor([5.0, 7.0])
    return x


def _backward(x):
    loss = (x * x).sum()
    loss.backward()
    return loss.detach()


def _grad(x):
    return torch.autograd.grad((x * x).sum(), x)[0] * 2


def _read(x):
    return x.grad * 2


def _changed(x):
    x.grad.mul_(3)
    return x + 1


def _dropped(x):
    x.grad = None
    return x + 1


def _set(x):
    x.grad = x.detach() + 1
    return x.detach() + x.grad


def _stepped(x):
    with torch.no_grad():
        x.sub_(x.grad, alpha=0.5)
    return x.detach()


def _leaf(x):
    made = torch.ones(2, requires_grad=True)
    return made, made * x


def _wanting(x):
    made = x.detach() + 1
    made.requires_grad_()
    return made, made * 2


def _switched(x):
    made = x.detach() + 1
    made.requires_grad = True
    return made * 2


def _data(x):
    y = x * x
    x.data.add_(1)
    return y + x


def _detached(x):
    return x.detach(), x.detach()[0], (x * 2).detach()


def _without(x):
    with torch.no_grad():
        y = x.view(2, 1)
    return y, x * 2


def _filled(x):
    y = x.detach() * 2
    y.copy_(1)
    return y + x


_FUNCTIONS = [
    _backward, _grad, _read, _changed, _dropped, _set, _stepped, _leaf, _wanting, _switched, _data, _detached, _without, _filled,
]  # fmt: skip


@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("go", _FUNCTIONS, ids=lambda go: go.__name__[1:])
def test_gradients_are_those_of_eager(backend: str, go: Any) -> None:
    compiled = torch.compile(go, backend=backend)
    for _ in range(2):
        assert _seen(compiled, _given()) == _seen(go, _given())


# How many graphs PyTorch 2.13 makes of each.
_GRAPHS: dict[Any, int] = {
    _backward: 2, _grad: 2, _read: 1, _changed: 1, _dropped: 1, _set: 1, _stepped: 1, _leaf: 1, _wanting: 2, _switched: 2, _data: 1,
}  # fmt: skip


@pytest.mark.parametrize("go", _GRAPHS, ids=lambda go: go.__name__[1:])
def test_graphs_end_where_those_of_pytorch_do(go: Any) -> None:
    counter = torch._dynamo.testing.CompileCounter()
    torch.compile(go, backend=counter)(_given())
    assert counter.frame_count == _GRAPHS[go]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_training_steps_through_aot_eager(kind: Any) -> None:
    results = []
    for backend in (None, "aot_eager"):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = kind(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        run = step if backend is None else torch.compile(step, backend=backend)
        losses = [run(torch.ones(2, 3)) for _ in range(3)]
        assert not any(loss.requires_grad for loss in losses)
        assert model.weight.grad is None
        results.append((losses, model.weight))
    assert str(results[0]) == str(results[1])


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_data_and_numbers_that_are_copied_are_traced(mode: Any) -> None:
    graph = make_fx(lambda x: x.data.mul_(2), tracing_mode=mode)(torch.zeros(2))
    assert [str(n.target) for n in graph.graph.nodes if n.op == "call_function"] == [
        "aten.detach.default",
        "aten.mul_.Tensor",
    ]
    assert graph(torch.ones(2)).tolist() == [2, 2]
    graph = make_fx(lambda x: x.copy_(1), tracing_mode=mode)(torch.zeros(2))
    assert [str(n.target) for n in graph.graph.nodes if n.op == "call_function"] == ["aten.copy_.default"]
    assert graph(torch.zeros(2)).tolist() == [1, 1]
