"""Tensors of numbers, of arrays and of other tensors inside of a trace: a graph makes them anew at each run.

The lists of operators are those that PyTorch 2.13 shows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._subclasses.fake_tensor import FakeTensorMode
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.fx.experimental.symbolic_shapes import ShapeEnv
from rushlight.utils._python_dispatch import TorchDispatchMode

ONES = np.ones(2, dtype=np.float32)
MADE: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda x: torch.tensor([1.0, 1.0]),
    "as_tensor": lambda x: torch.as_tensor([1.0, 1.0]),
    "as_tensor of an array": lambda x: torch.as_tensor(ONES),
    "asarray": lambda x: torch.asarray([1.0, 1.0]),
    "asarray of an array": lambda x: torch.asarray(ONES, dtype=torch.float32),
    "from_numpy": lambda x: torch.from_numpy(ONES),
    "new_tensor": lambda x: x.new_tensor([1.0, 1.0]),
    "Tensor": lambda x: torch.Tensor([1.0, 1.0]),
    "FloatTensor": lambda x: torch.FloatTensor([1.0, 1.0]),
    "new": lambda x: x.new([1.0, 1.0]),
}
COPIED: dict[str, Callable[[Any], Any]] = {
    "tensor": torch.tensor,
    "new_tensor": lambda x: x.new_tensor(x),
    "stacked": lambda x: torch.stack([torch.tensor(item) for item in x]),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", MADE)
def test_a_graph_does_not_change_its_constants(name: str, mode: str) -> None:
    def program(x: Any) -> Any:
        made = MADE[name](x)
        made.add_(x)
        return made

    graph = make_fx(program, tracing_mode=mode)(torch.ones(2))
    for x in (torch.ones(2), torch.full((2,), 5.0)):
        assert torch.equal(graph(x), x + 1)
    assert ONES.tolist() == [1.0, 1.0]
    lifted = [n.target for n in graph.graph.nodes if n.op == "call_function"]
    assert lifted == [torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.add_.Tensor]


@pytest.mark.parametrize("name", COPIED)
@pytest.mark.filterwarnings("ignore:.*copy construct")
def test_copies_of_traced_tensors_are_computed_by_the_graph(name: str) -> None:
    def program(x: Any) -> Any:
        made = COPIED[name](x)
        made.mul_(3)
        return made + x

    graph = make_fx(program)(torch.ones(2))
    x = torch.tensor([2.0, 7.0])
    assert torch.equal(graph(x), x * 4)
    assert x.tolist() == [2.0, 7.0]


@pytest.mark.filterwarnings("ignore:.*copy construct")
def test_modes_see_what_lifts_and_what_copies() -> None:
    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func._opname)
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    x, array = torch.ones(2, requires_grad=True), np.ones(2)
    with Names():
        shared = torch.from_numpy(array)
        shared.add_(1)
        for made in (torch.as_tensor([1.0]), torch.asarray([1.0]), torch.Tensor([1.0]), x.detach().new([1.0])):
            assert made.tolist() == [1.0]
        copied = torch.tensor(x, requires_grad=True)
    assert array.tolist() == [2.0, 2.0]
    assert copied.is_leaf and copied.requires_grad
    names = [name for name in seen if name != "detach"]
    assert names == ["lift_fresh", "add_", *["lift_fresh"] * 4, "_to_copy"]


def test_a_trace_refuses_storages() -> None:
    def program(x: Any) -> Any:
        return torch.empty(0).set_(x.untyped_storage(), 0, (2,), (1,)) * 2

    with pytest.raises(NotImplementedError, match="storage"):
        make_fx(program)(torch.ones(2))


def test_numbers_that_a_trace_is_given_are_its_inputs() -> None:

    x = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(5))
    graph = make_fx(lambda n, x: x.new_zeros(n * 2), tracing_mode="symbolic")(x.shape[0], x)
    assert [n.name for n in graph.graph.nodes] == ["n_1", "x_1", "mul", "new_zeros", "output"]
    assert graph(3, torch.ones(5)).shape == (6,)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_fake_traces_take_no_real_tensors(mode: str) -> None:
    y = torch.ones(3)
    with pytest.raises(AssertionError, match="Please convert all Tensors to FakeTensors first"):
        make_fx(lambda x: x + y, tracing_mode=mode)(torch.ones(3))
    graph = make_fx(lambda x: x + y, tracing_mode=mode, _allow_non_fake_inputs=True)(torch.ones(3))
    assert torch.equal(graph(torch.full((3,), 4.0)), torch.full((3,), 5.0))
