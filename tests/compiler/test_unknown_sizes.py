"""Graphs for other backends with sizes that only elements tell: PyTorch's nodes, its assertions, and its errors."""

from __future__ import annotations

import functools
import gzip
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import COUNTERS

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools" / "compiled"), str(ROOT / "tests" / "compiler")]
from fx_documents import argument_text, target_text  # noqa: E402
from unknown_size_programs import ROW, UNKNOWN, asserting, telling  # noqa: E402

STORED = json.loads(gzip.decompress((ROOT / "tests" / "data" / "fx_documents.json.gz").read_bytes()))


@pytest.fixture(autouse=True)
def _captured() -> Iterator[None]:
    torch._dynamo.reset()
    with (
        warnings.catch_warnings(),
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True),
    ):
        warnings.simplefilter("ignore", FutureWarning)  # `_check_is_size`
        yield


def compiled_with_nodes(program: Any) -> tuple[Any, list[list[list[str]]]]:
    """A program compiled for a backend that keeps the nodes it gets, and these."""
    graphs: list[list[list[str]]] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append([[n.op, target_text(torch, n.target), n.name, argument_text(n)] for n in gm.graph.nodes])
        return gm.forward

    return torch.compile(program, backend=backend, fullgraph=True), graphs


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return type(a) is type(b) and all(map(same, a, b))
    return type(a) is type(b) and (torch.equal(a, b) and a.dtype is b.dtype if isinstance(a, torch.Tensor) else a == b)


@pytest.mark.parametrize("name", UNKNOWN)
def test_nodes_are_those_of_pytorch(name: str) -> None:
    program = functools.partial(UNKNOWN[name], torch)
    compiled, graphs = compiled_with_nodes(program)
    for row in (ROW, [1, 1, 2], [2, 0, 0]):
        assert same(compiled(torch.tensor(row)), program(torch.tensor(row)))
    assert graphs == STORED[name]


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("checked_size", [5, 6, 7], "Runtime assertion failed for expression u0 <= 10 on node 'le'"),
        ("checked_size", [-1, 0, 0], "Runtime assertion failed for expression u0 >= 0 on node 'ge'"),
        ("checked_number", [0, 0, 1], "Runtime assertion failed for expression u0 >= 2 on node 'ge'"),
        ("checked_sum", [0, 0, 8], "Runtime assertion failed for expression u0 <= 7 on node 'le'"),
        ("checked_with_a_message", [0, 0, 1], "too few"),
        ("asserted", [0, 0, -1], "Expected Tensor with single nonzero value, but got zero"),
    ],
)
def test_assertions_fail_as_in_pytorch(name: str, row: list[int], message: str) -> None:
    compiled, _ = compiled_with_nodes(functools.partial(UNKNOWN[name], torch))
    compiled(torch.tensor(ROW))
    with pytest.raises(RuntimeError) as found:
        compiled(torch.tensor(row))
    assert message in str(found.value)


def test_a_branch_on_an_unknown_size_is_a_break() -> None:
    def program(x):
        found = x[x > 0]
        try:
            if found.shape[0] > 1:
                return found * 2
        except RuntimeError:
            return x - 100
        return x / found.shape[0]

    def halves(x):
        found = x[x > 0]
        return found * 2 if found.shape[0] / 2 > 0.5 else x

    for each in (program, halves):
        for x in (torch.tensor([1.0, 2.0]), torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0, 5.0])):
            assert same(torch.compile(each, backend="eager")(x), each(x))
        with pytest.raises(torch._dynamo.exc.Unsupported, match="data-dependent"):
            torch.compile(each, backend="eager", fullgraph=True)(torch.ones(2))


def test_other_shapes_and_backends_that_refuse_unknown_sizes() -> None:
    def program(x):
        return (x * 2)[x > 0] + 1, x.sum()

    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(program, backend=backend)
        for n in (3, 5, 8, 5):
            x = torch.arange(float(n)) - 2
            assert same(compiled(x), program(x))


def _slice(x):
    n = (x > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n].exp()


def _scaled(x):
    return x / x.abs().max().item(), torch.full((2,), x.sum().item())


def _positive(x):
    y = x[x > 0]
    return (y.view(-1, 1) * torch.ones(1, 2)).sum(1), y.mean(), y.shape, len(y)


def _written(x):
    y = x * 2
    y[x > 0] = 0.5
    return y, (x > 3).any().item(), (x * 0 > 1).any().item()


def _one_mask_twice(x):
    mask = x != 3
    return torch.nn.functional.mse_loss((x * 2)[mask], x[mask].exp())


def _joined(x):
    return torch.cat([x[x > 0], x[x <= 0]]).cumsum(0)


@pytest.mark.parametrize("program", [_slice, _scaled, _positive, _written, _one_mask_twice, _joined])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_graph_with_its_gradients(program: Any, backend: str) -> None:
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    for row in ([1.0, -2.0, 3.0, 4.0], [1.0, 2.0, 3.5, -4.0], [0.5, 7.0, 1.0, 2.0, -1.0]):
        results = []
        for function in (compiled, program):
            x = torch.tensor(row, requires_grad=True)
            found = function(x)
            found = found if isinstance(found, tuple) else (found,)
            sum(t.sum() for t in found if isinstance(t, torch.Tensor) and t.requires_grad).backward()
            results.append((*found, x.grad))
        assert same(*results)


def test_what_a_program_requires_is_asked_by_graphs_that_are_traced_ahead() -> None:
    compiled = torch.compile(_slice, backend="aot_eager", fullgraph=True)
    program = functools.partial(UNKNOWN["checked_size"], torch)
    checked = torch.compile(program, backend="aot_eager", fullgraph=True)
    assert same(checked(torch.tensor(ROW)), program(torch.tensor(ROW))) and compiled(torch.ones(3)).shape == (3,)
    with pytest.raises(RuntimeError, match="u0 <= 10"):
        checked(torch.tensor([5, 6, 7]))


@pytest.mark.parametrize("partition", ["default_partition", "min_cut_rematerialization_partition"])
def test_sizes_are_kept_for_the_backward(partition: str) -> None:
    from rushlight._functorch import partitioners
    from rushlight.compiler.aot_backends import aot_autograd

    graphs: list[list[str]] = []

    def keep(gm: Any, example_inputs: Any) -> Any:
        graphs.append([n.name for n in gm.graph.nodes])
        return gm.forward

    backend = aot_autograd(fw_compiler=keep, partition_fn=getattr(partitioners, partition))
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    torch.compile(lambda x: (x[x > 0] * 2).sum(), backend=backend, fullgraph=True)(x).backward()
    assert x.grad.tolist() == [2, 0, 2]
    assert graphs[1][:1] == ["sym_size_int"] and "tangents_1" in graphs[1] and len(graphs) == 2


def test_a_size_that_varies_beside_a_number_of_the_program() -> None:
    compiled = torch.compile(_slice, fullgraph=True)
    for row in ([1.0, -2.0, 3.0, 4.0], [1.0, 2.0, 3.5, -4.0, 3.0], [0.5, 7.0, 1.0, 2.0, -1.0, 1.0]):
        assert same(compiled(torch.tensor(row)), _slice(torch.tensor(row)))


def test_without_the_settings_and_fullgraph_they_are_breaks() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=False, capture_scalar_outputs=False):
        for name in ("nonzero", "mask", "checked_size"):
            COUNTERS["graph_break"].clear()
            torch.compile(functools.partial(UNKNOWN[name], torch), backend="eager")(torch.tensor(ROW))
            assert COUNTERS["graph_break"]


def test_gradients_go_through() -> None:
    def program(w, x):
        return (w * x)[x > 0].sum()

    compiled, graphs = compiled_with_nodes(program)
    gradients = []
    for function in (program, compiled):
        w = torch.ones(4, requires_grad=True)
        function(w, torch.arange(4.0) - 1).backward()
        gradients.append(w.grad)
    assert same(*gradients)
    assert len(graphs) == 1


def test_parts_of_lengths_that_only_elements_tell() -> None:
    def program(lengths, x):
        a, b = lengths.tolist()
        torch._check(a >= 0)
        torch._check(b >= 0)
        first, second = x.split([a, b])
        return first + 1, second * 2

    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(program, backend="eager", fullgraph=True, dynamic=dynamic)
        for lengths, n in (([3, 4], 7), ([0, 7], 7), ([1, 4], 5)):
            given = torch.tensor(lengths), torch.arange(float(n))
            assert same(compiled(*given), program(*given))
        with pytest.raises(RuntimeError):
            compiled(torch.tensor([1, 1]), torch.arange(5.0))


def test_transforms_under_the_settings_for_unknown_sizes() -> None:
    net = torch.nn.Linear(3, 2)

    def program(x):
        def loss(p, row):
            return torch.func.functional_call(net, p, (row,)).pow(2).sum()

        return torch.vmap(torch.func.grad(loss), (None, 0))(dict(net.named_parameters()), x)["bias"]

    compiled = torch.compile(program, backend="eager", fullgraph=True)
    assert same(compiled(torch.ones(4, 3)), program(torch.ones(4, 3)))


def test_an_assert_is_a_node_of_graphs_for_other_backends() -> None:
    graphs: list[Any] = []

    def keep(module: Any, examples: Any) -> Any:
        graphs.append(module)
        return module

    compiled = torch.compile(lambda x: asserting(torch, x), fullgraph=True, backend=keep)
    assert torch.equal(compiled(torch.zeros(3)), torch.zeros(3))
    targets = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert torch._assert_async in targets and torch._check in targets
    for x, text in ((torch.ones(3), "no"), (torch.tensor([5.0, -5.0, 0.0]), "cond")):
        with pytest.raises(RuntimeError, match=text):
            compiled(x)


def test_other_choices_of_elements_are_no_nodes() -> None:
    def raising(x):
        if x.max() > 3:
            raise ValueError("no")
        return x

    for function in (raising, lambda x: telling(torch, x)):
        with pytest.raises(torch._dynamo.exc.Unsupported, match="asks for the value of a number"):
            torch.compile(function, fullgraph=True, backend="eager")(torch.ones(2))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_views_of_an_argument_whose_sizes_are_elements(backend: str) -> None:
    """The graph alone knows the sizes: its results are the views, and lead to the argument's gradient."""

    @torch.compile(backend=backend, fullgraph=True)
    def function(x: Any, sizes: Any) -> Any:
        first, second = sizes.tolist()
        return torch.split(x, [first, second])

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        for sizes in ([7, 3], [4, 6]):
            x = torch.arange(10.0).requires_grad_()
            a, b = function(x, torch.tensor(sizes))
            assert a.tolist() == list(range(sizes[0]))
            (a.sum() * 2 + b.sum() * 3).backward()
            assert x.grad is not None and x.grad.tolist() == [2] * sizes[0] + [3] * sizes[1]
