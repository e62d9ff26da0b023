"""Python ints that change from call to call: positions and lengths are symbols, with the bits of eager at each value."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tests.compiler.test_sizes import assert_same, entry, traces

import rushlight as torch
from rushlight import nn

X = torch.arange(80.0).reshape(20, 4)


def gradient(x: Any, i: int) -> Any:
    x = x.clone().requires_grad_()
    (x[i:] * x.narrow(0, i, 3).sum()).sum().backward()
    return x.grad


def written(x: Any, i: int) -> Any:
    x = x.clone()
    x[i] = 7
    x[:, 1:3][i:].zero_()
    x[i - 1, 2] += i
    return x


# name: (program, values, traces with symbols, traces without)
PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any], int, int]] = {
    "index": (lambda x, i: x[i] * 2, [3, 5, 7, 9, 4, 11], 1, 1),
    "slice": (lambda x, i: x[i : i + 1] + x[:i].sum(0), [3, 5, 7, 9, 4, 11], 1, 1),
    "narrow": (lambda x, i: x.narrow(0, i, 2) * i, [3, 5, 7, 9, 4, 11], 1, 1),
    "view": (lambda x, i: x[i], [3, 5, 7, 9, 4, 11], 1, 1),
    "from the end": (lambda x, i: (x[-i:] * i, x[i - 20]), [3, 5, 7, 9, 4, 11], 1, 1),
    "negative": (lambda x, i: x[i:] + i, [-3, -5, -7, 9, -4, 11, 8], 2, 1),
    "arithmetic": (lambda x, i: (x[i * 2 - 5], x[i // 2] * (i / 3), torch.arange(i), torch.full((i, 2), i)), [6, 8, 7, 9, 12, 11], 1, 1),
    "numbers": (lambda x, i: (x[i], i + 1, {"i": i * 2, "l": [i]}), [3, 5, 7, 9, 4, 11], 1, 1),
    "joined": (lambda x, i: torch.cat([x[:i], x[i:] * 2]), [3, 5, 4, 9, 7, 11], 1, 1),
    "written": (written, [3, 5, 7, 9, 4], 1, 1),
    "gradient": (gradient, [3, 5, 7, 9, 4, 11], 1, 1),
    "branch": (lambda x, i: x[i] if i > 8 else x[:i], [3, 5, 7, 9, 4, 11, 12], 2, 1),
    "equal": (lambda x, i: x[i] if i == x.shape[1] else x[0] - i, [3, 5, 4, 9, 7, 11], 0, 3),
    "scalar alone": (lambda x, i: x * i, [3, 5, 7, 9, 4, 11], 0, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_trace_serves_the_values_after_the_second(name: str) -> None:
    program, values, symbolic, plain = PROGRAMS[name]
    compiled = torch.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in values:
            wanted, found = program(X, i), compiled(X, i)
            assert_same(wanted, found)
            if name == "view":
                assert found.data_ptr() == wanted.data_ptr()
    assert traces(compiled) == (symbolic, plain)


def test_small_values_are_burnt_in() -> None:
    compiled = torch.compile(lambda x, i: x[i])
    for i in (0, 1, 2, 3, 4, 5, 1, 0):
        assert torch.equal(compiled(X, i), X[i])
    assert traces(compiled) == (1, 3)


def test_values_that_decide_the_course_are_burnt_in() -> None:
    def program(x: Any, n: int) -> Any:
        for k in range(n):
            x = x + k
        return x

    compiled = torch.compile(program)
    for n in (3, 4, 5, 6):
        assert torch.equal(compiled(X, n), program(X, n))
    assert traces(compiled) == (0, 4)


def test_an_index_out_of_bounds_is_the_error_of_eager_and_burns_nothing_in() -> None:
    compiled = torch.compile(lambda x, i: x[i])
    for i in (3, 5, 30, 7, 9):
        if i < 20:
            assert torch.equal(compiled(X, i), X[i])
        else:
            with pytest.raises(IndexError, match="index 30 is out of bounds for dimension 0 with size 20"):
                compiled(X, i)
    assert entry(compiled).symbols


class Ring(nn.Module):
    """A module that counts its calls, and writes to the position that it is at."""

    def __init__(self) -> None:
        super().__init__()
        self.position, self.seen = 2, []  # type: ignore[var-annotated]
        self.register_buffer("rows", torch.zeros(20, 4))

    def forward(self, x: Any) -> Any:
        self.position += 1
        self.rows[self.position] = x
        self.seen.append(self.position)
        return self.rows[: self.position + 1].sum(0) * self.position


def test_a_position_of_a_module_goes_on() -> None:
    plain, ring = Ring(), Ring()
    compiled = torch.compile(ring)
    for k in range(12):
        x = torch.full((4,), k * 0.3)
        assert_same(plain(x), compiled(x))
        assert_same((plain.position, plain.seen, plain.rows), (ring.position, ring.seen, ring.rows))
        assert all(type(n) is int for n in (ring.position, *ring.seen))


def test_values_that_come_back_are_looked_up() -> None:
    """More of them than native code searches."""
    compiled = torch.compile(lambda x, i: x[i:].sum(0))
    for _ in range(2):
        for i in range(3, 20):
            compiled(X, i)
    (sized,) = entry(compiled).sized
    before = dict(sized.made)
    for i in range(3, 20):
        assert torch.equal(compiled(X, i), X[i:].sum(0))
    assert all(before[sizes] is made for sizes, made in sized.made.items())


DOCUMENTS = [
    (lambda x, i: x[i] + 1, ["l_x_", "l_i_", "select(l_x_, 0, l_i_)", "add(select, 1)"]),
    (lambda x, i: x + 1 if i > 2 else x, ["l_x_", "add(l_x_, 1)"]),
    (lambda x, i: x.narrow(0, i, 2) * i, ["l_x_", "l_i_", "narrow(l_x_, 0, l_i_, 2)", "mul(narrow, l_i_)"]),
    (lambda x, i: x[i : i + 3], ["l_i_", "l_x_", "add(l_i_, 3)", "getitem(l_x_, slice(l_i_, add, None))"]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(DOCUMENTS)))
def test_a_backend_gets_one_graph_with_the_number_as_an_input(number: int) -> None:
    """The nodes are those of PyTorch 2.13."""
    program, wanted = DOCUMENTS[number]
    graphs: list[Any] = []

    def backend(gm: Any, examples: list[Any]) -> Any:
        graphs.append((gm, examples))
        return gm.forward

    compiled = torch.compile(program, backend=backend)
    for i in (3, 4, 7, 9):
        assert torch.equal(compiled(X, i), program(X, i))
    assert len(graphs) == 2
    gm, examples = graphs[1]
    assert [isinstance(e, torch.SymInt) for e in examples] == [name == "l_i_" for name in wanted if name[:2] == "l_"]
    nodes = [n for n in gm.graph.nodes if n.op != "output"]
    texts = [n.name if n.op == "placeholder" else f"{n.name}({', '.join(map(str, n.args))})" for n in nodes]
    assert texts == wanted


def test_a_value_is_the_number_as_text_inside_containers_too() -> None:
    def program(x: Any, i: int) -> Any:
        return x[i], f"{(i,)} {[i * 2]} {i!r} { {'i': i / 2} } {(x.shape[0],)}"

    compiled = torch.compile(program)
    for i in (3, 5, 7, 9):
        assert_same(program(X[: i + 10], i), compiled(X[: i + 10], i))


def test_a_history_that_was_freed_stays_so_at_other_values() -> None:
    """It saves nothing, and yet its backward is an error the second time."""

    def program(x: Any, i: int) -> Any:
        y = x.clone()
        y.diagonal().mul_(2)
        return y, X[:i].sum()

    for function in (program, torch.compile(program)):
        for i in (3, 4, 5, 6):
            x = X.clone().requires_grad_()
            y, _ = function(x, i)
            y.sum().backward()
            with pytest.raises(RuntimeError, match="a second time"):
                y.sum().backward()


def test_a_part_that_is_recomputed_later_reads_nothing_new() -> None:
    """Its backward is made when it is first asked for, behind the trace."""

    def program(x: Any, i: int) -> Any:
        part = torch.utils.checkpoint.checkpoint(lambda k: (k * k).tanh(), x[i:], use_reentrant=False)
        return part, part * i, x[:i] * 2

    compiled = torch.compile(program)
    for i, dtype in ((3, torch.float32), (4, torch.float32), (5, torch.float32), (6, torch.float64)):
        found = []
        for function in (program, compiled):
            x = (X.to(dtype) / 80).requires_grad_()
            first, second, _ = function(x, i)
            (second if i % 2 else first).sum().backward()
            found.append((first, x.grad))
        assert_same(*found)


TAKES = {
    "full": lambda n: torch.full((3,), n), "arange": lambda n: torch.arange(n), "steps": lambda n: torch.arange(0, n * 3, n),
    "logspace": lambda n: torch.logspace(0, n, 5), "where": lambda n: torch.where(X > 3, X, n), "renorm": lambda n: X.renorm(n, 0, 1.0),
    "list": lambda n: torch.tensor([n, n + 1.0]), "cdist": lambda n: torch.cdist(X, X, n),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKES)
def test_functions_that_take_no_number_of_a_program_ask_for_its_value(name: str) -> None:
    """And raise nothing that the program's own `except` would catch."""

    def function(x: Any, n: int) -> Any:
        found = [x * n]
        try:
            found.append(TAKES[name](n))
        except (TypeError, RuntimeError) as error:
            found.append(str(error))
        return found

    compiled = torch.compile(function)
    for n in (3, 4, 5):
        found, wanted = compiled(X, n), function(X, n)
        assert torch.equal(found[0], wanted[0])
        assert isinstance(found[1], torch.Tensor) and torch.equal(found[1], wanted[1]), found[1]


class Decoder(nn.Module):
    """A layer that writes keys and values at a position, and reads what lies before it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("keys", torch.zeros(2, 96, 16))
        self.register_buffer("values", torch.zeros(2, 96, 16))

    def forward(self, x: Any, position: int) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys[:, position : position + 1], self.values[:, position : position + 1] = k, v
        keys, values = self.keys[:, : position + 1], self.values[:, : position + 1]
        scores = (q @ keys.transpose(1, 2)) / 4
        return x + self.out((scores - scores.amax(-1, keepdim=True)).exp() @ values.relu())


def test_further_values_change_words_of_a_linked_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is linked anew only where memory or launches are not those of one that is there."""
    from rushlight._backends.cpu.program.refilled import Template
    from rushlight._engine.dispatch.plans.shape_classes import CHECK

    copies = []
    refilled = Template.refilled

    def counted(*args: Any) -> Any:
        made = refilled(*args)
        copies.append(made)
        return made

    monkeypatch.setattr(Template, "refilled", counted)
    torch.manual_seed(0)
    eager = nn.ModuleList([Decoder()]).eval()
    other = copy.deepcopy(eager)

    @torch.no_grad()
    def step(layers: Any, x: Any, position: int) -> Any:
        for layer in layers:
            x = layer(x, position)
        return x

    compiled = torch.compile(step)
    with CHECK.scoped(True):  # each copy is compared with a program that is linked anew
        for position in [*range(3, 7), *range(17, 24), 90, 20]:
            x = torch.randn(2, 1, 16)
            assert_same(step(eager, x, position), compiled(other, x, position))
    assert_same([*eager.buffers()], [*other.buffers()])
    made = [each for each in copies if each is not None]
    assert len(made) > 4 and len(copies) - len(made) <= 3
    assert "launches in" in made[-1].explain() and len(made[-1].steps()) == len(made[0].steps())
    assert made[-1].memory_plan() and made[-1].clocked(lambda: None)[1]
