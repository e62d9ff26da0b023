"""Modules that change their parameters by swapping: `torch.__future__.set_swap_module_params_on_conversion(True)`."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.nn.utils import parametrize
from rushlight.utils._python_dispatch import return_and_correct_aliasing


@pytest.fixture(autouse=True)
def swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


class Marked(torch.Tensor):
    """A subclass that decides what it becomes when it is loaded."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.module_load and isinstance(args[0], cls):
            return (args[1].detach() * 2).as_subclass(cls)
        return super().__torch_function__(func, types, args, kwargs or {})


class Careless(torch.Tensor):
    """A subclass whose `module_load` gives back what it was given."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.module_load:
            return args[1]
        return super().__torch_function__(func, types, args, kwargs or {})


def test_the_switch_is_read_back() -> None:
    assert torch.__future__.get_swap_module_params_on_conversion() is True
    torch.__future__.set_swap_module_params_on_conversion(False)
    assert torch.__future__.get_swap_module_params_on_conversion() is False


@pytest.mark.parametrize("overwrite", [False, True])
def test_conversions_keep_parameters_and_gradients(overwrite: bool) -> None:
    layer = nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    weight, bias = layer.weight, layer.bias
    grad, values = weight.grad, weight.tolist()
    layer.bias.requires_grad_(False)
    torch.__future__.set_overwrite_module_params_on_conversion(overwrite)  # swapping goes before it
    try:
        layer.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert layer.weight is weight and weight.grad is grad and type(weight) is nn.Parameter
    assert weight.dtype is grad.dtype is torch.float64 and weight.tolist() == values and grad.tolist() == [[1, 1]] * 2
    assert weight.requires_grad and weight.is_leaf and not bias.requires_grad and layer.bias is bias
    layer(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    assert weight.grad.tolist() == [[2, 2]] * 2 and bias.grad.tolist() == [1, 1]


def test_an_optimizer_made_before_trains_what_came_from_meta() -> None:
    layer = nn.Linear(2, 1, bias=False, device="meta")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    layer.to_empty(device="cpu")
    nn.init.ones_(layer.weight)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert layer.weight.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("kind", ["graph", "saved", "view", "weak", "weak gradient"])
def test_conversions_refuse_what_others_lead_to(kind: str) -> None:
    layer = nn.Linear(2, 2)
    x = torch.ones(1, 2, requires_grad=True)
    grad = layer.weight.grad = torch.ones(2, 2)
    if kind in ("graph", "saved"):
        y = layer.weight.sum() if kind == "graph" else layer(x).sum()
        layer.double()
        with pytest.raises(RuntimeError):
            y.backward()
        assert layer.weight.grad.tolist() == [[1, 1]] * 2 and x.grad is None
        return
    held = {
        "view": lambda: layer.weight.t(),
        "weak": lambda: weakref.ref(layer.weight),
        "weak gradient": lambda: weakref.ref(grad),
    }[kind]()
    name = "weight.grad" if kind == "weak gradient" else "weight"
    with pytest.raises(RuntimeError, match=rf"_apply\(\): Couldn't swap Linear.{name}$") as error:
        layer.double()
    assert isinstance(error.value.__cause__, RuntimeError)
    if name == "weight":
        assert layer.weight.dtype is torch.float32 and layer.weight.grad is grad
    del held


@pytest.mark.parametrize("assign", [False, True])
def test_loading_keeps_parameters_and_buffers(assign: bool) -> None:
    model, other = nn.BatchNorm1d(2), nn.BatchNorm1d(2).double()
    with torch.no_grad():
        other.weight.fill_(3)
    other.running_mean.fill_(4)
    model.bias.requires_grad_(False)
    before = model.state_dict(keep_vars=True)
    assert str(model.load_state_dict(other.state_dict(), assign=assign)) == "<All keys matched successfully>"
    after = model.state_dict(keep_vars=True)
    assert all(after[key] is before[key] for key in before)
    assert model.weight.tolist() == [3, 3] and model.running_mean.tolist() == [4, 4]
    assert model.weight.dtype is (torch.float64 if assign else torch.float32)
    assert (model.weight.data_ptr() == other.weight.data_ptr()) is assign
    assert model.weight.requires_grad and not model.bias.requires_grad and type(model.weight) is nn.Parameter
    assert type(model.running_mean) is torch.Tensor


def test_subclasses_say_how_they_are_loaded() -> None:
    layer = nn.Linear(2, 2, bias=False)
    layer.weight = nn.Parameter(torch.zeros(2, 2).as_subclass(Marked))
    weight = layer.weight
    layer.load_state_dict({"weight": torch.ones(2, 2)})
    assert layer.weight is weight and type(weight) is Marked and isinstance(weight, nn.Parameter)
    assert weight.tolist() == [[2, 2]] * 2 and weight.requires_grad
    layer.double()
    assert layer.weight is weight and type(weight) is Marked and weight.dtype is torch.float64


def test_what_cannot_be_loaded_is_reported() -> None:
    layer = nn.Linear(2, 2, bias=False)
    with pytest.raises(RuntimeError, match='While swapping the parameter named "weight".*module_load returned one of'):
        layer.load_state_dict({"weight": torch.ones(2, 2).as_subclass(Careless)})
    held = weakref.ref(layer.weight)
    with pytest.raises(RuntimeError, match="an exception occurred .*Cannot swap t1 because it has weakref"):
        layer.load_state_dict({"weight": torch.ones(2, 2)})
    assert held() is layer.weight


class Pair(torch.Tensor):
    """A tensor made of two others, on which every operator runs."""

    @staticmethod
    def __new__(cls, first: Any, second: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype, requires_grad=False)

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def __tensor_flatten__(self) -> Any:
        return ["first", "second"], None

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(parts["first"], parts["second"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first, second = (
            func(*(getattr(a, part) if isinstance(a, cls) else a for a in args), **(kwargs or {}))
            for part in ("first", "second")
        )
        return return_and_correct_aliasing(func, args, kwargs or {}, cls(first, second))


@pytest.mark.parametrize("swap", [False, True])
def test_parameters_made_of_tensors_are_always_swapped(swap: bool) -> None:
    torch.__future__.set_swap_module_params_on_conversion(swap)
    layer = nn.Linear(2, 2, bias=False)
    weight: Any = layer.weight
    layer._apply(lambda t: Pair(t.detach() * 0, t.detach() * 0 + 1))
    assert layer.weight is weight and type(weight) is Pair and isinstance(weight, nn.Parameter) and weight.requires_grad
    weight.grad = grad = Pair(torch.ones(2, 2), torch.ones(2, 2))
    layer.double()
    assert layer.weight is weight and weight.grad is grad
    assert {t.dtype for t in (weight, weight.first, weight.second, grad, grad.second)} == {torch.float64}
    layer.load_state_dict({"weight": Pair(torch.full((2, 2), 3.0), torch.full((2, 2), 4.0))})
    assert layer.weight is weight and (weight.first.tolist(), weight.second.tolist()) == ([[3, 3]] * 2, [[4, 4]] * 2)
    parametrize.register_parametrization(layer, "weight", Doubled())
    original: Any = layer.parametrizations.weight.original  # type: ignore[union-attr]
    assert original is weight and original.first.tolist() == [[1.5, 1.5]] * 2


class Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, x: Any) -> Any:
        return x / 2


def test_parametrizations_keep_the_parameter() -> None:
    layer = nn.Linear(2, 2)
    weight, values = layer.weight, layer.weight.tolist()
    parametrize.register_parametrization(layer, "weight", Doubled())
    original: Any = layer.parametrizations.weight.original  # type: ignore[union-attr]
    assert original is weight and layer.weight.tolist() == values
    layer.weight = torch.ones(2, 2)  # type: ignore[assignment]
    assert original.tolist() == [[0.5, 0.5]] * 2
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight is weight and weight.tolist() == [[1, 1]] * 2 and type(weight) is nn.Parameter
