"""Functions that are compiled for other backends: gradients read, set and computed inside, and casts, as eager has them."""

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


def _hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y * y


def _hooked_later(x):
    y = x * 2
    z = y * 3
    y.register_hook(lambda g: g + 1)
    return z


def _hooked_part(x):
    first, rest = x[:1], x[1:]
    rest.register_hook(lambda g: g * 2)
    return torch.cat([first, rest]) * 2


def _unhooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 3).remove()
    return y * y


def _kept(x):
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad


def _of_an_intermediate(x):
    y = x * 2
    z = (y * y).sum()
    return torch.autograd.grad(z, y)[0]


_FUNCTIONS = [
    _backward, _grad, _read, _changed, _dropped, _set, _stepped, _leaf, _wanting, _switched, _data, _detached, _without, _filled, _hooked, _hooked_later, _hooked_part, _unhooked, _kept, _of_an_intermediate,
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


def _casting(a, b):
    with torch.autocast("cpu"):
        inside = a @ b
        with torch.autocast("cpu", enabled=False):
            off = a @ b
    return inside, off, a @ b


def _casting_with_a_break(a, b):
    with torch.autocast("cpu"):
        inside = a @ b
        torch._dynamo.graph_break()
        again = a @ b
    return inside, again, a @ b


@pytest.mark.filterwarnings("ignore:.*runs as it is")  # a break within a region
@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("go", [_casting, _casting_with_a_break])
def test_casts_inside_of_graphs(backend: str, go: Any) -> None:
    a, b = torch.rand(3, 3), torch.rand(3, 3)
    compiled = torch.compile(go, backend=backend)
    for _ in range(2):
        made, wanted = compiled(a, b), go(a, b)
        assert [x.dtype for x in made] == [x.dtype for x in wanted]
        assert all(map(torch.equal, made, wanted))
        assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu"):
        assert compiled(a, b)[2].dtype is torch.bfloat16


@pytest.mark.parametrize("backend", _BACKENDS)
def test_casts_of_parameters_follow_their_updates(backend: str) -> None:
    weight, x = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)

    def go(x):
        with torch.autocast("cpu"):
            return x @ weight

    compiled = torch.compile(go, backend=backend)
    for n in range(1, 4):
        assert compiled(x)[0, 0].item() == 2 * n
        with torch.no_grad():
            weight.add_(1)


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_casts_are_traced(mode: Any) -> None:
    def go(a, b):
        with torch.autocast("cpu"):
            return torch.nn.functional.linear(a, b)

    graph = make_fx(go, tracing_mode=mode)(torch.ones(2, 2), torch.ones(2, 2))
    names = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert names == ["aten._to_copy.default"] * 2 + ["aten.t.default", "aten.mm.default"]
    assert graph(torch.ones(2, 2), torch.ones(2, 2)).dtype is torch.bfloat16


def test_numbers_that_tensors_are_added_to() -> None:
    def go(x):
        total, scale, rest = 0, 2, 1.5
        for row in x:
            total += row.sum()
        scale *= x
        rest -= x
        return total, scale, rest

    counter = torch._dynamo.testing.CompileCounter()
    x = torch.arange(4.0).reshape(2, 2)
    assert str(torch.compile(go, backend=counter, fullgraph=True)(x)) == str(go(x))
    assert counter.frame_count == 1


def test_histories_that_are_freed_before_a_detached_use() -> None:
    def go(a, b):
        e = a @ a
        e.mean().backward()
        (b @ e.detach()).mean().backward()

    compiled = torch.compile(go, backend="aot_eager")
    grads = []
    for call in (go, compiled):
        a, b = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
        call(a, b)
        grads.append((a.grad.tolist(), b.grad.tolist()))
    assert grads[0] == grads[1]


def test_printed_graphs_keep_one_blank_line() -> None:
    # As PyTorch 2.13 gives them.
    for text, wanted in {
        "a\n\n\nb\n": "a\n\nb\n",
        "\n\n\na": "\na",
        "a \n\n\n# x\nb": "a\n\nb",
        "a\n\n\n": "a\n",
        "\n\n": "",
    }.items():
        assert torch._dynamo.testing.normalize_gm(text) == wanted


def test_decomposed_and_partitioned() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU(), torch.nn.LayerNorm(3)), torch.randn(2, 4)
    grads = []
    for call in (model, torch.compile(model, backend="aot_eager_decomp_partition")):
        model.zero_grad()
        (call(x) ** 3).sum().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*grads, strict=True))


def _layers(pre: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(2)])
    for layer in layers:
        if pre:
            layer.register_full_backward_pre_hook(lambda layer, grads: (grads[0] * 3,))
        else:
            layer.register_full_backward_hook(lambda layer, inside, outside: (inside[0] * 2,))
    return layers


def _node_hook(x: torch.Tensor, layers: torch.nn.Module) -> torch.Tensor:
    y = layers(x)
    first, second = torch.split(y * 2, 4, 1)
    second.grad_fn.register_hook(lambda inside, outside: (inside[0] * 5,))
    return first + second * 3


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager"])
@pytest.mark.parametrize("form", ["hook", "prehook", "node"])
def test_hooks_of_modules_and_nodes_run_behind_the_program(form: str, backend: str) -> None:
    """A node inside of a program is none that backward visits: the program ends before it is made."""
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8)) if form == "node" else _layers(form == "prehook")
    function = (lambda x: _node_hook(x, layers)) if form == "node" else (lambda x: layers(x).relu())
    wanted = None
    for call in (function, torch.compile(function, backend=backend)):
        for _ in range(2):
            x = torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
            layers.zero_grad()
            call(x).sum().backward()
            grads = [x.grad, *[p.grad for p in layers.parameters()]]
            wanted = wanted or grads
            assert all(torch.equal(a, b) for a, b in zip(grads, wanted, strict=True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "go", [lambda x, n: x.sub(x, alpha=n), lambda x, n: torch._foreach_add([x], [x * 2], alpha=n)[0] + 1]
)
def test_tensors_in_the_place_of_numbers_break(go: Any, backend: str) -> None:
    x, n = torch.tensor([1.0, 2.0]), torch.tensor(3.0)
    assert torch.equal(torch.compile(go, backend=backend)(x, n), go(x, n))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="in the place of a number"):
        torch.compile(go, backend=backend, fullgraph=True)(x, n)


def test_a_backward_that_writes_breaks_where_the_function_is_applied() -> None:
    calls = torch.zeros(())

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, grad):
            calls.add_(1)
            return grad * 3

    def go(x):
        return Counted.apply(x.sin()).cos()

    torch._dynamo.utils.counters.clear()
    x, compiled = torch.tensor([0.5, 2.0], requires_grad=True), torch.compile(go)
    (found,), (wanted,) = (torch.autograd.grad(f(x).sum(), x) for f in (compiled, go))
    assert torch.allclose(found, wanted) and calls.item() == 2
    assert [*torch._dynamo.utils.counters["graph_break"]] == ["the backward of the program changes a tensor in place"]
    with pytest.raises(torch._dynamo.exc.Unsupported, match="changes a tensor in place"):
        torch.compile(go, fullgraph=True)(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize(
    "decorator",
    [torch.autocast("cpu", dtype=torch.bfloat16), torch.profiler.record_function("inner"), torch.no_grad(), torch._dynamo.disable],
)  # fmt: skip
def test_functions_of_the_program_that_are_decorated_in_it(decorator: Any, breaks: bool, backend: str) -> None:
    def program(x: Any) -> Any:
        runs: list[int] = []

        def inner(a: Any) -> Any:
            runs.append(1)
            return torch.mm(a, a).sin() * len(runs)

        decorated = decorator(inner)
        if breaks:
            torch._dynamo.graph_break()
        return decorated(x).float() * 2 + torch.mm(x, x)

    x = torch.rand(3, 3)
    assert torch.equal(torch.compile(program, backend=backend)(x), program(x))


def test_a_graph_of_a_class_that_never_ends_an_override() -> None:
    """Writing the graph asks for sizes: that is no call of the program, whose class would hand it back for ever."""

    class Handing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    made = torch.compile(lambda x: (x + 1).as_subclass(Handing), backend="eager", fullgraph=True)(torch.ones(2))
    assert type(made) is Handing and made.as_subclass(torch.Tensor).tolist() == [2, 2]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_compiled_backward_reads_what_was_saved(backend: str) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            made = x + x
            ctx.save_for_backward(x, made)
            return made

        @staticmethod
        @torch.compile(backend=backend)
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            x, made = ctx.saved_tensors
            return grad * made + x

    x = torch.arange(3.0).requires_grad_()
    Doubled.apply(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 3, 6]
