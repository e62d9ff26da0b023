"""`item()` and the like under `capture_scalar_outputs`: numbers of the program, with eager's bits and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import COUNTERS


@pytest.fixture(autouse=True)
def capturing() -> Iterator[None]:
    COUNTERS["graph_break"].clear()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        yield


def arithmetic(x):
    n, k = x.sum().item(), (x > 1).sum().item()
    x.add_(1)  # the number was read before
    more = [n, k, -n, abs(n - 10), 2 * n - 1.5, n / 3, 1 / n, k * 2 + 1, k // 2, k % 2, float(k), int(n), n > 2, k == 2]
    return x * n + k, x / (2 * n - 1.5), torch.clamp(x, max=k), more


def made(x):
    n, k = x.sum().item(), int(x[0])
    y = torch.zeros(2)
    y[1] = n
    filled = [torch.full((2,), k), torch.full((3,), n), torch.full_like(x, n), x.new_full((2,), k), torch.tensor(n)]
    return filled, x.masked_fill(x > 1, n), y, x.half().sum().item(), x.to(torch.uint8).max().item()


def step(x):
    x = x.clone().requires_grad_()
    loss = (x * x).mean()
    loss.backward()
    return loss.item(), x.grad * loss.item(), float(loss)


def checked(x):
    n, k = x.sum().item(), (x > 1).sum().item()
    torch._check(n > -100, lambda: "too small")
    torch._check_value(k >= 0)
    if x.isnan().any().item():
        raise ArithmeticError("no number")
    if n < -50.0:
        raise ValueError("small")
    return x * n + 1 / n


@pytest.mark.parametrize("function", [arithmetic, made, step, checked])
def test_numbers_of_one_graph(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function, fullgraph=True)
    for scale in (1.0, 1.7, -3.0):
        x = torch.tensor([3.0, 1.25, 2.0]) * scale
        assert repr(compiled(x.clone())) == repr(function(x.clone()))


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ([-1000.0], RuntimeError, "too small"),
        ([float("nan")], RuntimeError, "too small"),
        ([-60.0], ValueError, "small"),
        ([0.0], ZeroDivisionError, "division"),
    ],
)
def test_errors_are_those_of_eager_calls(values: list[float], error: type[Exception], words: str) -> None:
    compiled = torch.compile(checked, fullgraph=True)
    assert torch.equal(compiled(torch.ones(1)), checked(torch.ones(1)))
    for function in (checked, compiled):
        with pytest.raises(error, match=words):
            function(torch.tensor(values))


def test_what_needs_the_value_breaks() -> None:
    def shown(x):
        n = x.sum().item()
        text = f"{n:.1f}"
        try:
            made = torch.where(x > 1, x, n)  # not taken yet: no error of the program
        except TypeError:
            made = x
        return text, x[: int(n)], round(n, 1), made

    x = torch.tensor([0.5, 1.25])
    assert repr(torch.compile(shown)(x)) == repr(shown(x))
    assert COUNTERS["graph_break"]
    with pytest.raises(torch._dynamo.exc.Unsupported, match="asks for the value of a number"):
        torch.compile(shown, fullgraph=True)(x)


def test_without_the_setting_item_breaks() -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=False):
        assert torch.compile(step)(torch.ones(2000))[0] == 1.0
        assert any("element of a tensor" in reason for reason in COUNTERS["graph_break"])


def _listed(x):
    counts = (x > 1).long().cumsum(0)
    return counts.tolist(), (x.view(1, -1) * 2).tolist(), x.sum().tolist()


def _parts(x):
    return [part * 2 for part in x.split((x > 0).long().tolist())]


def _found(x):
    return x.nonzero(), x[x > 1] * 2, torch.ones(x.long().max().item())


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("function", [_listed, _parts, _found])
def test_one_graph_holds_what_elements_tell(function: Callable[..., Any], backend: str | None) -> None:
    x = torch.tensor([0.5, 1.25, 2.0])
    with torch._dynamo.config.patch(capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False):
        compiled = torch.compile(function, fullgraph=True, **({} if backend is None else {"backend": backend}))
        assert repr(compiled(x)) == repr(function(x))
        assert not COUNTERS["graph_break"]
        torch.compile(function)(x)
        assert COUNTERS["graph_break"]


def test_a_known_number_prints_as_on_the_cpu() -> None:
    def function() -> str:
        return str(torch.tensor(1.5) * 0 + 2.0)

    assert torch.compile(function)() == function() == "tensor(2.)"


def _divided(x: Any) -> Any:
    total = x.sum().item()
    return x / total, total


def _counted(x: Any) -> Any:
    count = x.long().sum().item()
    return x * (count // 2), count % 3, torch.full((2,), count)


def _required(x: Any) -> Any:
    total = x.sum().item()
    torch._check(total > 0)
    return x * (total + 1)


# name: (program, targets of its nodes, as PyTorch has them where they have no asserts)
GRAPHS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "divided": (_divided, ["sum", "item", "truediv", "scalar_tensor"]),
    "counted": (_counted, ["long", "sum", "item", "floordiv", "mul", "mod", "full"]),
    "required": (_required, ["sum", "item", "gt", "_check", "add", "mul"]),
    "int": (lambda x: x + int(x.sum()), ["sum", "item", "sym_int", "add"]),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("ahead", [False, True])
def test_graphs_for_other_backends_hold_numbers(name: str, ahead: bool) -> None:
    program, targets = GRAPHS[name]
    graphs: list[list[str]] = []

    def backend(graph_module: Any, example_inputs: Any) -> Any:
        calls = [node for node in graph_module.graph.nodes if node.op.startswith("call")]
        graphs.append([node.target if type(node.target) is str else node.target.__name__ for node in calls])
        return torch._dynamo.lookup_backend("aot_eager" if ahead else "eager")(graph_module, example_inputs)

    whole = not ahead or name in ("divided", "counted")  # conditions on floats break there
    compiled = torch.compile(program, backend=backend, fullgraph=whole)
    for x in (torch.tensor([1.0, 3.0, 2.0]), torch.tensor([2.0, 3.0, 4.0])):
        wanted, found = program(x), compiled(x)
        for a, b in zip(*[v if isinstance(v, tuple) else (v,) for v in (wanted, found)], strict=True):
            assert type(a) is type(b) and (torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b)
    assert graphs[0] == targets and (len(graphs) == 1) is whole
    if name == "required":
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            compiled(-torch.ones(3))


def test_a_branch_on_a_number_breaks_for_other_backends() -> None:
    def program(x: Any) -> Any:
        total = x.sum().item()
        if total < 0:
            raise ValueError("negative")
        return x * total if total > 5 else x

    compiled = torch.compile(program, backend="eager")
    for x in (torch.ones(3), torch.ones(3) * 4, torch.ones(3)):
        assert torch.equal(compiled(x), program(x))
    with pytest.raises(ValueError, match="negative"):
        compiled(-torch.ones(3))
