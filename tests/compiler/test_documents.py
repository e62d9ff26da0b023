"""Fx graphs of compiled programs: op, target, name and order of every node as PyTorch's capture gives them."""

from __future__ import annotations

import builtins
import copy
import gzip
import json
import operator
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace.documents.document import Document
from rushlight._higher_order_ops import associative_scan, scan
from rushlight._higher_order_ops import map as map_
from rushlight.fx._document import graph_module

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools" / "compiled"), str(ROOT / "tests" / "compiler")]
from fx_documents import PROGRAMS, argument_text, target_text, with_parts  # noqa: E402

STORED = json.loads(gzip.decompress((ROOT / "tests" / "data" / "fx_documents.json.gz").read_bytes()))
F = torch.nn.functional


def nodes(module: Any) -> list[list[str]]:
    return [[n.op, target_text(torch, n.target), n.name, argument_text(n)] for n in module.graph.nodes]


# ***** whole programs *****

# PyTorch reads the input of a module with hooks before its parameters.
OTHER_ORDER = {"module_with_hook"}


def found(text: str) -> Any:
    """What a stored target is here: a function, or the name of a method or an input."""
    if text.startswith("operator."):
        return getattr(operator, text.removeprefix("operator."))
    if not text.startswith("torch."):
        return getattr(builtins, text.removeprefix("builtins."), text) if text.startswith("builtins.") else text
    value: Any = torch
    for part in text.split(".")[1:]:
        value = getattr(value, part)
    return value


def leaves(value: Any) -> list[Any]:
    """The tensors in nested tuples (of whatever class), lists and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - OTHER_ORDER))
def test_graphs_have_the_nodes_of_pytorchs(name: str) -> None:
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.extend(with_parts(gm))
        assert [x.shape for x in example_inputs] == [
            n.meta["example_value"].shape for n in gm.graph.find_nodes(op="placeholder")
        ]
        return gm.forward

    torch.manual_seed(0)
    function, arguments = PROGRAMS[name](torch)
    copies = (
        copy.deepcopy((function, arguments))
        if isinstance(function, torch.nn.Module)
        else (function, copy.deepcopy(arguments))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.manual_seed(1)
        result = torch.compile(function, backend=backend)(*arguments)
    assert len(graphs) == len(STORED[name])
    for gm, stored in zip(graphs, STORED[name], strict=True):
        assert [(n.op, n.name) for n in gm.graph.nodes] == [(op, given) for op, _, given, _ in stored]
        for node, (_, target, _, _) in zip(gm.graph.nodes, stored, strict=True):
            assert node.target is found(target) or node.target == found(target)
    torch.manual_seed(1)
    expected = copies[0](*copies[1])
    for mine, other in zip(leaves((result, arguments)), leaves((expected, copies[1])), strict=True):
        assert torch.equal(mine, other)


def test_a_graph_that_chooses_can_be_compiled_again() -> None:
    def function(x, y):
        return torch.cond(x.sum() > 0, lambda x: (x * y, x + 1), lambda x: (x - y, x.sin()), (x,))

    def backend(gm: Any, example_inputs: Any) -> Any:
        return torch.compile(gm, fullgraph=True)

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for scale in (1.0, -1.0):
        x, y = torch.arange(3.0) * scale, torch.ones(3)
        for mine, other in zip(compiled(x, y), function(x, y), strict=True):
            assert torch.equal(mine, other)


# ***** from records to graphs *****


def named_results(d: Document) -> list[Any]:
    x = d.placeholder("L['x']", torch.eye(3))
    first = torch.max(x, 1)
    d.function(torch.max, (x, 1), {}, first)
    second = x.min(1)
    d.method("min", (x, 1), {}, second)
    made = first.values + second.indices
    d.function(operator.add, (first.values, second.indices), {}, made)
    return [made]


def item_assignment(d: Document) -> list[Any]:
    x = d.placeholder("L['x']", torch.ones(3, 2))
    y = x.clone()
    d.method("clone", (x,), {}, y)
    d.name("y", y)
    d.function(operator.setitem, (y, 0, 3.0), {}, operator.setitem(y, 0, 3.0))
    part = x[1:]
    d.function(operator.getitem, (x, slice(1, None)), {}, part)
    twice = part * 2
    d.function(operator.mul, (part, 2), {}, twice)
    d.function(operator.setitem, (y, slice(1, None), twice), {}, operator.setitem(y, slice(1, None), twice))
    return [y]


def sequential(d: Document) -> list[Any]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    x = torch.ones(3, 4)
    for number, layer in enumerate(model):
        if number == 1:
            y = F.relu(x)
            d.function(F.relu, (x,), {"inplace": False}, y)
        else:
            weight = d.placeholder(f"L['fn']._modules['{number}']._parameters['weight']", layer.weight)
            bias = d.placeholder(f"L['fn']._modules['{number}']._parameters['bias']", layer.bias)
            d.placeholder("L['args'][0]", x)
            y = F.linear(x, weight, bias)
            d.function(F.linear, (x, weight, bias), {}, y)
        d.name("input", y)
        x = y
    return [x]


def input_changed(d: Document) -> list[Any]:
    x, y = d.placeholder("L['x']", torch.ones(3)), d.placeholder("L['y']", torch.ones(3))
    before = x.clone()
    d.method("add_", (x, y), {}, x.add_(y))
    d.dropped(x)
    made = x * 2
    d.function(operator.mul, (x, 2), {}, made)
    x.copy_(before)
    return [made]


def in_place_method(d: Document) -> list[Any]:
    x = d.placeholder("L['x']", torch.ones(3))
    y = x.add(1)
    d.method("add", (x, 1), {}, y)
    d.method("mul_", (y, 2), {}, y.mul_(2))
    return [y]


@pytest.mark.parametrize("made", [named_results, item_assignment, sequential, input_changed, in_place_method])
def test_records_become_the_graphs_of_pytorch(made: Any) -> None:
    document = Document()
    results = made(document)
    document.output([*results, *results])
    graph = graph_module(document.calls)
    name = made.__name__
    [expected] = STORED[name if name in STORED else name.replace("_", " ")]
    assert nodes(graph.module) == expected
    given = graph.module(*(x.clone() for x in graph.inputs))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(given, results, strict=True))


def test_inputs_that_nobody_reads_are_left_out_and_strangers_refused() -> None:
    document = Document()
    x, y = document.placeholder("L['x']", torch.ones(2)), document.placeholder("L['y']", torch.ones(2))
    z = y + 1
    document.function(operator.add, (y, 1), {}, z)
    document.output([z])
    graph = graph_module(document.calls)
    assert [node.target for node in graph.module.graph.nodes if node.op == "placeholder"] == ["L_y_"]
    assert graph.inputs[0] is y and x is not y
    document.function(operator.add, (torch.ones(2), 1), {}, torch.ones(2))
    with pytest.raises(RuntimeError, match=r"a tensor of shape \(2,\) is used in a graph that has no record"):
        graph_module(document.calls)


W = torch.linspace(-1, 1, 4).reshape(2, 2)


def _looped(x: Any) -> Any:
    i, y = torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y @ W), (torch.tensor(0), x))
    return y * 2 + i


def _scanned(x: Any) -> Any:
    (total, sums), out = scan(
        lambda c, a: ((c[0] + a["x"], c[1] * 0.5 + W[0]), {"p": c[0] * a["y"] + c[1]}),
        (torch.zeros(3), x.sum() * torch.ones(2).sum() + torch.zeros(2)),
        {"x": x.T.reshape(2, 3), "y": x.new_ones(2, 3)},
    )  # fmt: skip
    return total.sum() + sums.sum() + out["p"].sum()


# name: (program, names of the nodes that PyTorch makes of the call)
HIGHER = {
    "while_loop": (_looped, "while_loop"),
    "scan": (lambda x: scan(lambda c, a: (c + a, c * a), x[0] * 2, x)[1], "scan"),
    "scan of another dim, from the end": (lambda x: scan(lambda c, a: (c + a, c * a), x[:, 0] * 2, x, dim=1, reverse=True)[1], "scan"),
    "map": (lambda x: map_(lambda a, b: a * b.sum() + W[0], x, x), "map_impl"),
    "map of several": (lambda x: map_(lambda a: {"s": a["x"] + a["y"], "p": a["x"] * a["y"]}, {"x": x, "y": x * 2})["p"], "map_impl"),
    "associative_scan": (lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"), "associative_scan"),
    "associative_scan from the end": (lambda x: associative_scan(lambda a, b: a + b, x, 1, reverse=True), "associative_scan"),
}  # fmt: skip


@pytest.mark.parametrize("name", HIGHER)
def test_functions_of_functions_are_nodes_of_other_backends(name: str) -> None:
    program, target = HIGHER[name]
    found: list[Any] = []

    def backend(graph_module: Any, example_inputs: Any) -> Any:
        found.append([node.target.__name__ for node in graph_module.graph.nodes if node.op == "call_function"])
        return graph_module.forward

    compiled = torch.compile(program, backend=backend, fullgraph=True)
    x, y = (torch.linspace(0.5, 2, 6).reshape(3, 2).requires_grad_() for _ in range(2))
    for _ in range(2):
        wanted, got = program(x), compiled(y)
        assert torch.equal(wanted, got)
    assert len(found) == 1 and found[0].count(target) == 1
    left, right = (torch.autograd.grad((r * r).sum(), v)[0] for r, v in ((wanted, x), (got, y)))
    assert torch.equal(left, right)


def test_what_no_node_stands_for_breaks() -> None:
    def program(x: Any) -> Any:
        return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (0, x))[1]

    x = torch.ones(3)
    assert torch.equal(torch.compile(program, backend="eager")(x), program(x))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="something else than tensors"):
        torch.compile(program, backend="eager", fullgraph=True)(x)
