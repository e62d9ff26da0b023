"""Floats that change from call to call, in graphs for other backends: elements of float64 tensors, as in PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._dynamo.testing import CompileCounter

VALUES = (0.1, 0.2, 0.3, 0.4, 0.55, 0.7)
GRAPHS: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    torch._dynamo.reset()
    GRAPHS.clear()


def keep(gm: Any, inputs: list[Any]) -> Any:
    GRAPHS.append((gm, inputs))
    return gm


def test_the_graph_takes_a_tensor_and_reads_it() -> None:
    state = {"g": 0.0}

    def f(x: Any, y: float) -> Any:
        return x * y + state["g"], y * 2

    compiled = torch.compile(f, backend=keep)
    for value in VALUES:
        state["g"] = value * 2
        found, double = compiled(torch.ones(3), value)
        wanted, _ = f(torch.ones(3), value)
        assert torch.equal(found, wanted)
        assert (type(double), double) == (float, value * 2)
    assert len(GRAPHS) == 2
    graph, inputs = GRAPHS[1]
    targets = [(node.op, node.name) for node in graph.graph.nodes]
    assert targets == [
        ("placeholder", "l_x_"), ("placeholder", "l_y_"), ("placeholder", "l_state_g_"), ("call_method", "item"), ("call_function", "mul"),
        ("call_method", "item_1"), ("call_function", "add"), ("call_function", "mul_1"), ("call_function", "scalar_tensor"), ("output", "output"),
    ]  # fmt: skip
    assert [(x.dtype, tuple(x.shape)) for x in inputs[1:]] == [(torch.float64, ())] * 2


FUNCTIONS: dict[str, tuple[Callable[[Any, float], Any], int]] = {
    "arithmetic": (lambda x, v: x / v + (1 - v) * 3.0 - (-v), 2),
    "alpha": (lambda x, v: torch.add(x, x, alpha=v), 2),
    "tensor": (lambda x, v: x * torch.tensor(v), 2),
    "in place": (lambda x, v: x.mul_(v).add_(v), 2),
    "written": (lambda x, v: [x * v, {"v": v}], 2),
    "compared": (lambda x, v: x * v if v > 0.25 else x / v, 3),
    "asked": (lambda x, v: x * math.sin(v), len(VALUES)),
    "hashed": (lambda x, v: x * {v: 2.0}[v], len(VALUES)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_eager(name: str) -> None:
    function, graphs = FUNCTIONS[name]
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter)
    for value in VALUES:
        torch.testing.assert_close(
            compiled(torch.ones(3), value), function(torch.ones(3), value), rtol=0, atol=0, check_dtype=True
        )
    assert counter.frame_count == graphs


def test_a_backend_that_takes_no_numbers_gets_their_values() -> None:
    def refuse(gm: Any, inputs: list[Any]) -> Any:
        if any(node.target == "item" for node in gm.graph.nodes):
            raise NotImplementedError("no numbers")
        return gm

    compiled = torch.compile(lambda x, v: x * v, backend=refuse)
    for value in VALUES[:4]:
        assert torch.equal(compiled(torch.ones(2), value), torch.ones(2) * value)


def test_native_code_that_takes_no_number_of_ours_is_no_error_of_the_program() -> None:
    import struct

    def f(x: Any, v: float) -> Any:
        try:
            return x * v, struct.pack("d", v)
        except struct.error:
            return x, b""

    compiled = torch.compile(f, backend="eager")
    for value in VALUES[:4]:
        found, text = compiled(torch.ones(2), value)
        assert text == struct.pack("d", value)
        assert torch.equal(found, torch.ones(2) * value)
