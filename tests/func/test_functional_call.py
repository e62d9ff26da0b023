"""`functional_call`: what may be replaced for the time of a call, and what is left afterwards."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.func import functional_call


class Scaled(nn.Module):
    """A module with a plain tensor, a number, a buffer that it assigns, and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(2)
        self.number = 0.0
        self.count = nn.Buffer(torch.zeros(1))
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        self.count = self.count + 1
        return self.layer(x) * self.scale + getattr(self, "shift", 0.0)


def test_plain_attributes_are_replaced_too() -> None:
    module, x = Scaled(), torch.ones(2)
    plain = module(x)
    assert torch.equal(functional_call(module, {"scale": torch.full((2,), 3.0)}, x), plain * 3)
    assert torch.equal(functional_call(module, {"shift": torch.ones(2)}, x), plain + 1)
    assert torch.equal(functional_call(module, {"shift": nn.Parameter(torch.ones(2))}, x), plain + 1)
    assert module.scale.tolist() == [1.0, 1.0] and not hasattr(module, "shift") and "shift" not in module._parameters


def test_none_and_absent_parameters() -> None:
    layer, x = nn.Linear(2, 2, bias=False), torch.ones(2)
    assert torch.equal(functional_call(layer, {"bias": torch.ones(2)}, x), layer(x) + 1) and layer.bias is None
    biased = nn.Linear(2, 2)
    assert torch.equal(functional_call(biased, {"bias": None}, x), x @ biased.weight.T) and biased.bias is not None


def test_what_the_module_assigns_is_in_the_dict_afterwards() -> None:
    module, mine = Scaled(), torch.tensor([4.0])
    tensors = {"count": mine}
    functional_call(module, tensors, torch.ones(2))
    assert (tensors["count"].item(), mine.item(), module.count.item()) == (5.0, 4.0, 0.0)
    with pytest.raises(RuntimeError):
        functional_call(module, tensors, torch.ones(3))
    assert (tensors["count"].item(), module.count.item()) == (6.0, 0.0)


@pytest.mark.parametrize(("name", "value", "error", "text"), [
    ("number", torch.ones(1), TypeError, "attribute `number`: 0.0 is not an instance of torch.Tensor"),
    ("layer.weight", 3, TypeError, "3 is not an instance of torch.Tensor"),
    ("other.weight", torch.ones(1), AttributeError, "Scaled has no attribute `other`"),
    ("number.weight", torch.ones(1), TypeError, "submodule `number`: 0.0 is not an instance of torch.nn.Module"),
    ("", torch.ones(1), KeyError, "be empty string"),
])  # fmt: skip
def test_what_cannot_be_replaced(name: str, value: Any, error: type[Exception], text: str) -> None:
    module = Scaled()
    before = module.layer.bias
    with pytest.raises(error, match=text):
        functional_call(module, {"layer.bias": torch.zeros(2), name: value}, torch.ones(2))
    assert module.layer.bias is before


def test_a_circle_of_modules_and_compiled_ones() -> None:
    outer = nn.Sequential(nn.Linear(1, 1))
    outer[0].up = outer
    names = {"0.up.0.weight": torch.ones(1, 1), "0.bias": torch.zeros(1)}
    assert functional_call(outer, names, torch.ones(1), tie_weights=False).item() == 1.0
    with pytest.raises(RuntimeError, match="can't be used with Jitted modules"):
        functional_call(torch.jit.script(nn.Linear(1, 1)), {"bias": torch.ones(1)}, torch.ones(1))
