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
from rushlight._capture.trace.document import Document
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
