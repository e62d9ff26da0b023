"""Sizes that change: one trace serves many, with the bits of eager at each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn
from rushlight.fx.experimental.symbolic_shapes import ConstraintViolationError

Numbers = Sequence[int]


def parts(value: Any) -> list[Any]:
    return [p for v in value for p in parts(v)] if isinstance(value, (list, tuple)) else [value]


def assert_same(wanted: Any, found: Any) -> None:
    left, right = parts(wanted), parts(found)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
            assert all(type(n) is int for n in (*b.shape, *b.stride()))
            assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
        else:
            assert repr(a) == repr(b)


def entry(compiled: Any) -> Any:
    return compiled._compiled.entry


def traces(compiled: Any) -> tuple[int, int]:
    """How many traces there are with symbols, and without."""
    position = entry(compiled)
    return len(position.sized), sum(s.origin is None for s in position.segments)


def checked(function: Callable[..., Any], arguments: Callable[..., Any], sizes: Sequence[Any], **options: Any) -> Any:
    """The compiled function, after calls for all sizes that gave what eager gives."""
    compiled = torch.compile(function, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in sizes:
            given = arguments(*size) if isinstance(size, tuple) else arguments(size)
            given = given if isinstance(given, tuple) else (given,)
            copies = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x) for x in given]
            torch.manual_seed(1)
            wanted = function(*given)
            torch.manual_seed(1)
            assert_same(wanted, compiled(*copies))
            assert_same(given, tuple(copies))
    return compiled


def rows(n: int) -> Any:
    return torch.randn(n, 6)


def test_one_trace_serves_the_sizes_after_the_second() -> None:
    compiled = checked(lambda x: (x * 2 + 1).relu().sum(1), rows, [8, 5, 12, 33, 100, 8, 5])
    assert traces(compiled) == (1, 1)


def test_small_sizes_have_traces_of_their_own() -> None:
    compiled = checked(lambda x: x.softmax(0).sum(1), rows, [8, 5, 12, 2, 1, 0, 7])
    assert traces(compiled) == (1, 4)


def test_decisions_of_a_program_are_conditions() -> None:
    def go(x: Any) -> Any:
        if x.shape[0] > 16:
            return x * 2
        return x * 3 if x.shape[0] % 4 == 0 else x + 1

    compiled = checked(go, rows, [8, 5, 12, 33, 100, 7, 9, 16, 17, 20])
    assert traces(compiled)[1] == 1
    assert traces(compiled)[0] <= 3


@pytest.mark.parametrize("layout", ["transposed", "with gaps", "rows of columns"])
def test_layouts(layout: str) -> None:
    def arguments(n: int) -> Any:
        if layout == "transposed":
            return torch.randn(6, n).t()
        return torch.randn(n, 12)[:, :6] if layout == "with gaps" else torch.randn(3, 4, n).permute(2, 0, 1)

    checked(lambda x: (x * 2, x.contiguous(), x.sum(0), x[..., :2] + 1), arguments, [8, 5, 12, 1, 33, 100])


def test_gradients() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    compiled = torch.compile(model)
    for n in (8, 5, 12, 33, 100, 8):
        x = rows(n)
        found = []
        for call in (model, compiled):
            given = x.clone().requires_grad_()
            out = call(given)
            found.append((out, torch.autograd.grad(out.square().mean(), [given, *model.parameters()])))
        assert_same(*found)


def test_texts_and_tables_see_the_size_that_there_is() -> None:
    table = {8: "a", 12: "b", 33: "c"}

    def go(x: Any) -> Any:
        held = {x.shape[0]: 1}
        return x + 1, table.get(x.shape[0]), x.shape[0] in {5, 12}, held, f"{x.shape[0]}", str(x.shape), [0] * len(x)

    checked(go, rows, [8, 5, 12, 33, 7])


def test_numbers_of_sizes() -> None:
    def go(x: Any) -> Any:
        n = x.shape[0]
        made = (n, n * 2 + 1, n // 3, n % 4, -n, n / 2, min(n, 10), float(n), divmod(n, 3), n**2, n == 12, x.shape)
        return made, type(n) is int, isinstance(n, int), x / n, x.stride(), x.numel(), sorted([n, 3, 9])

    checked(go, rows, [8, 5, 12, 33, 7])


def test_loops_over_a_size_are_burnt_in() -> None:
    def go(x: Any) -> Any:
        total = x[0] * 0
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    compiled = checked(go, rows, [4, 5, 6, 7, 5])
    assert traces(compiled) == (0, 4)


def test_a_container_is_not_changed_by_looking_for_sizes() -> None:
    from collections import defaultdict

    def go(values: Any) -> Any:
        return sum(v * len(name) for name, v in values.items())

    compiled = torch.compile(go)
    for names, n in [("x yy", 5), ("x", 6), ("x yy", 7), ("x yy", 8), ("x", 9), ("yy", 9)]:
        values = defaultdict(float, {name: torch.ones(n) for name in names.split()})
        assert torch.equal(compiled(values), go(values))
        assert [*values] == names.split()


def test_dynamic_false_and_true() -> None:
    never = checked(lambda x: x * 2, rows, [8, 5, 12], dynamic=False)
    assert traces(never) == (0, 3)
    always = checked(lambda x: x * 2, rows, [8, 5, 12], dynamic=True)
    assert traces(always) == (1, 0)


def test_random_numbers() -> None:
    checked(lambda x: (F.dropout(x, 0.3), torch.randn_like(x)), rows, [8, 5, 12, 33])


def test_marks_and_settings() -> None:
    def marked(mark: Callable[..., Any]) -> Callable[[int], Any]:
        def arguments(n: int) -> Any:
            x = rows(n)
            mark(x, 0)
            return x

        return arguments

    def counted(arguments: Callable[[int], Any], **options: Any) -> tuple[int, int]:
        compiled = torch.compile(lambda x: x * 2, **options)
        for n in (8, 5, 12):
            assert torch.equal(compiled(x := arguments(n)), x * 2)
        return traces(compiled)

    for options in ({}, {"dynamic": False}, {"dynamic": True}):
        assert counted(marked(torch._dynamo.mark_dynamic), **options) == (1, 0)
        assert counted(marked(torch._dynamo.maybe_mark_dynamic), **options) == (1, 0)
    assert counted(marked(torch._dynamo.mark_static), dynamic=True) == (3, 0)  # the other dim is a symbol
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert counted(rows) == (0, 3)
        assert counted(marked(torch._dynamo.mark_dynamic)) == (1, 0)
    with torch._dynamo.config.patch(assume_static_by_default=False):
        assert counted(rows) == (1, 0)


def test_parameters_are_static() -> None:
    model = nn.Linear(6, 5)
    compiled = torch.compile(model, dynamic=True)
    for n in (8, 5, 12):
        assert_same(model(x := rows(n)), compiled(x))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (part.view(b, t, 2, c // 2).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))[:, -1]


def test_links_are_those_of_single_sizes() -> None:
    from rushlight._engine.dispatch.plans.shape_classes import CHECK

    model = Attention().eval()
    with CHECK.scoped(True), torch.no_grad():  # every program that is filled with numbers is linked anew and compared
        checked(model, lambda b, t: torch.randn(b, t, 16), [(2, 8), (2, 9), (2, 11), (2, 10), (3, 10), (4, 12)])


def test_a_cache_that_grows() -> None:
    def step(cache: Any, x: Any) -> Any:
        cache = torch.cat([cache, x], dim=1)
        return (x @ cache.transpose(1, 2)).softmax(-1) @ cache, cache

    compiled = torch.compile(step)
    left = right = torch.randn(2, 3, 8)
    for _ in range(12):
        x = torch.randn(2, 1, 8)
        (a, left), (b, right) = step(left, x), compiled(right, x)
        assert_same((a, left), (b, right))
    assert traces(compiled)[0] <= 2


def test_an_output_that_is_an_input() -> None:
    """An old gradient goes out as it came in, and a view of a tensor, beside a result that has a backward."""
    w, other = torch.ones(5), torch.arange(5.0)

    def step(x: Any) -> tuple[Any, Any, Any]:
        old, w.grad = w.grad, None
        return (x.sin() * w.sum()).exp(), old, other[1:].view(2, 2)

    found = []
    for function in (step, torch.compile(step)):
        found.append([])
        for n in (3, 4, 5, 6):
            w.grad, x = torch.full((5,), float(n)), torch.linspace(0, 1, n, requires_grad=True)
            result, *others = function(x)
            (grad,) = torch.autograd.grad(result.sum(), x, create_graph=True)
            found[-1].append([result, *others, grad, *torch.autograd.grad(grad.sum(), x)])
    assert_same(*found)


def test_whole_training_steps() -> None:
    import copy

    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(24), nn.Linear(24, 3))
    other = copy.deepcopy(model)

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled, optimizers = torch.compile(step), [torch.optim.AdamW(m.parameters()) for m in (model, other)]
    for n in (8, 8, 5, 12, 7, 33):
        x, y, found = rows(n), torch.randint(0, 3, (n,)), []
        for call, m, optimizer in zip((step, compiled), (model, other), optimizers, strict=True):
            torch.manual_seed(2)
            found.append((call(m, optimizer, x, y), list(m.parameters()), [p.grad for p in m.parameters()]))
        assert_same(*found)
    assert traces(compiled)[0] <= 2


def test_no_handler_of_a_program_sees_that_a_size_is_a_symbol() -> None:
    def go(x: Any) -> Any:
        try:
            y = x.view(3, -1)
        except RuntimeError as error:
            return x * 2, str(error)
        try:
            pattern = chr(x.shape[0])
        except Exception as error:
            return y, repr(error)
        return y, pattern, f"{x.shape[0]:d}", bytes(x.shape[0]), "ab" * x.shape[0], [*range(9)][x.shape[0] % 5 :]

    checked(go, lambda n: torch.randn(n, 7), [9, 12, 5, 33, 100, 6])


def test_what_was_said_of_a_dim_is_held() -> None:
    """The errors are PyTorch's: the dim, what is wrong with it, and the line that decided."""

    def rows(n: int = 8, **bounds: int) -> torch.Tensor:
        x = torch.randn(n, 3)
        torch._dynamo.mark_dynamic(x, 0, **bounds)
        return x

    def burnt(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 8 else x

    def more_than_four(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 4 else x

    specialized = (
        "Constraints violated (L['x'].size()[0])! For more information, run with TORCH_LOGS=\"+dynamic\".\n"
        "  - You marked L['x'].size()[0] as dynamic but your code specialized it to be a constant (8). If you're using mark_dynamic, either remove it "
        "or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO.\n\nUser stack:\n"
    )
    narrower = (
        "  - Not all values of L['x'].size()[0] = L['x'].size()[0] in the specified range L['x'].size()[0] <= 20 satisfy the generated guard "
        "5 <= L['x'].size()[0] and L['x'].size()[0] <= 20"
    )
    wrong: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
        (burnt, (rows(),), specialized + f'  File "{__file__}", line {burnt.__code__.co_firstlineno + 1}, in burnt\n'),
        (lambda x: x.view(8, 3), (rows(),), specialized),
        (lambda x, y: x + y, (rows(), torch.randn(8, 3)), specialized),
        (more_than_four, (rows(min=2, max=20),), narrower),
        (lambda x: x + 1, (rows(30, min=2, max=20),), "30 not in range [2, 20]"),
    ]
    for program, given, text in wrong:
        with pytest.raises(ConstraintViolationError) as found:
            torch.compile(program)(*given)
        assert text in str(found.value)
    right: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (more_than_four, (rows(),)),
        (more_than_four, (rows(min=5, max=20),)),
        (burnt, (rows(1),)),
        (lambda x, y: x + y, (rows(), rows())),
        (lambda x: sum(range(x.shape[0] % 2)) + x, (rows(),)),
        (lambda x: F.fold(F.unfold(x.view(1, 1, -1, 3), (2, 2)), (x.shape[0], 3), (2, 2)), (rows(),)),
    ]
    for program, given in right:
        assert torch.equal(torch.compile(program)(*given), program(*given))
    for mark in (torch._dynamo.maybe_mark_dynamic, torch._dynamo.decorators.mark_unbacked):
        x = torch.randn(8, 3)
        mark(x, 0)
        assert torch.equal(torch.compile(burnt)(x), x * 2)


def test_a_range_is_a_guard() -> None:
    x = torch.randn(8, 3)
    torch._dynamo.mark_dynamic(x, 0, min=4, max=10)
    compiled = torch.compile(lambda x: x * 2)
    for n, count in ((8, 1), (4, 1), (10, 1), (11, 2)):
        x = x if n == 8 else torch.randn(n, 3)
        assert torch.equal(compiled(x), x * 2) and len(compiled._compiled.entry.sized) == count  # type: ignore[attr-defined]


ONE_GRAPH: list[tuple[Callable[..., Any], list[tuple[int, ...]], list[str]]] = [
    (lambda x: x * 2, [(4, 3), (5, 3), (9, 3)], ["s77", "l_x_", "mul(l_x_, 2)"]),
    (lambda x: x * x.shape[0], [(4, 3), (5, 3), (9, 3)], ["s77", "l_x_", "mul(l_x_, s77)"]),
    (lambda x: x.view(x.shape[0] * 3), [(4, 3), (5, 3), (9, 3)], ["s77", "l_x_", "mul(s77, 3)", "view(l_x_, mul)"]),
    (
        lambda x, y: torch.cat([x, y]).reshape(-1, x.shape[0]) + x.size(1), [(4, 3), (5, 3), (9, 3)],
        ["s77", "l_x_", "s17", "l_y_", "cat([l_x_, l_y_])", "reshape(cat, -1, s77)", "add(reshape, 3)"],
    ),
    (lambda x: x[: x.shape[0] // 2], [(9, 5), (12, 5), (8, 5)], ["s77", "l_x_", "floordiv(s77, 2)", "getitem(l_x_, slice(None, floordiv, None))"]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ONE_GRAPH)))
def test_a_backend_gets_one_graph_for_all_sizes(number: int) -> None:
    """The nodes are PyTorch's, and example inputs say which are sizes."""
    program, shapes, wanted = ONE_GRAPH[number]
    graphs: list[Any] = []

    def backend(gm: Any, examples: list[Any]) -> Any:
        graphs.append(
            (
                gm,
                [isinstance(e, torch.SymInt) for e in examples],
                [str(e) for e in examples if isinstance(e, torch.SymInt)],
            )
        )
        return gm.forward

    compiled = torch.compile(program, backend=backend)
    for shape in shapes:
        given = [torch.randn(shape) for _ in range(program.__code__.co_argcount)]
        assert torch.equal(compiled(*given), program(*given))
    assert len(graphs) == 2
    gm, symbolic, names = graphs[1]
    nodes = [n for n in gm.graph.nodes if n.op != "output"]
    texts = [n.name if n.op == "placeholder" else f"{_plain(n.name)}({', '.join(map(str, n.args))})" for n in nodes]
    inputs = [n for n in nodes if n.op == "placeholder"]
    assert (
        texts == wanted
        and symbolic == [n.type is torch.SymInt for n in inputs]
        and names == [n.name for n in inputs if n.type]
    )
    at_once: list[Any] = []
    torch.compile(program, backend=lambda gm, _: at_once.append(gm) or gm.forward, dynamic=True)(*given)  # type: ignore[func-returns-value]
    assert "s77" in [n.name for n in at_once[0].graph.nodes]


def _plain(name: str) -> str:
    return name.rstrip("_0123456789")


def test_a_backend_without_symbols_gets_a_graph_for_each_shape() -> None:
    graphs = []

    def backend(gm: Any, examples: list[Any]) -> Any:
        graphs.append(gm)
        assert all(isinstance(e, torch.Tensor) for e in examples)
        return gm.forward

    compiled = torch.compile(lambda x: x * x.shape[0], backend=backend)
    for n in (4, 5, 6, 7, 5):
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), float(n)))
    assert len(graphs) == 5  # one with symbols, which it did not take


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_sums_over_windows_that_overlap(dim: int) -> None:
    """They add in the order that the windows' layout asks for, and serve all lengths."""

    def function(x: Any) -> Any:
        y = x.unfold(1, 6, 3)
        return y.sum(dim), y.var(dim)

    compiled = torch.compile(function)
    torch.manual_seed(0)
    for length in (20, 24, 31, 40):
        x = torch.rand(2, length, 4)
        assert_same(function(x), compiled(x))
    assert traces(compiled)[0] <= 2


def test_short_time_fourier_transforms_have_one_trace() -> None:
    def function(x: Any) -> Any:
        return torch.stft(x, 16, window=torch.ones(16), return_complex=True).abs()

    compiled = torch.compile(function)
    for length in (60, 70, 85, 100, 77):
        x = torch.linspace(-1, 1, length)
        assert_same(function(x), compiled(x))
    assert traces(compiled)[0] == 1
