"""Why functions are compiled again, in words that name the program's own variables."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight._dynamo.utils import counters

LEVEL = 1


def test_each_condition_says_what_changed() -> None:
    global LEVEL
    layer = torch.nn.Linear(3, 3)

    def f(x: Any, flag: bool, options: dict[str, int]) -> Any:
        return x * LEVEL + (1 if flag else 0) + options["a"]

    compiled = torch.compile(f, recompile_limit=20)
    torch._dynamo.reset()
    x = torch.ones(3)
    compiled(x, True, {"a": 1})
    told: list[str] = []

    def call(*arguments: Any) -> str:
        counters.clear()
        compiled(*arguments)
        [reason] = counters["recompiles"]
        told.append(reason)
        return reason

    assert call(x, False, {"a": 1}) == "flag is True, found False"
    assert call(x, False, {"a": 2}) == "options['a'] == 1, found 2"
    assert (
        call(x.double(), False, {"a": 2}) == "tensor 'x': dtype mismatch. expected torch.float32, actual torch.float64"
    )
    assert call(torch.ones(4).double(), False, {"a": 2}) == "tensor 'x': size mismatch at index 0. expected 3, actual 4"
    assert (
        call(torch.ones(8).double()[::2], False, {"a": 2})
        == "tensor 'x': stride mismatch at index 0. expected 1, actual 2"
    )
    assert (
        call(torch.ones(1, 4), False, {"a": 2})
        == "tensor 'x': dtype mismatch. expected torch.float64, actual torch.float32"
    )
    assert call(torch.ones(4), False, {"a": 2}) == "tensor 'x': rank mismatch. expected 2, actual 1"
    assert (
        call(torch.ones(4, requires_grad=True), False, {"a": 2})
        == "tensor 'x': requires_grad mismatch. expected False, actual True"
    )
    LEVEL = 2
    assert f"LEVEL of {__name__} == 1, found 2" == call(torch.ones(4), False, {"a": 2})
    with torch.no_grad():
        assert call(torch.ones(4, requires_grad=True), False, {"a": 2}).startswith("gradient mode, inference mode")

    counters.clear()
    trained = torch.compile(lambda x: layer(x))
    trained(x)
    layer.bias = torch.nn.Parameter(torch.ones(3, dtype=torch.float64).float().requires_grad_())
    assert torch.equal(trained(x), layer(x))
    layer.weight.requires_grad_(False)
    trained(x)
    [reason] = counters["recompiles"]
    assert reason == "tensor 'layer.weight': requires_grad mismatch. expected True, actual False"


def test_variables_of_closures_that_hold_tensors_of_several_shapes() -> None:
    weight, grad, index = torch.randn(5, 3, requires_grad=True), torch.randn(4, 2, 3), torch.randint(0, 5, (4, 2))

    def step() -> Any:
        weight.grad = None
        torch.nn.functional.embedding(index, weight).backward(grad)
        return weight.grad

    compiled, expected = torch.compile(step), step()
    weight.grad = None
    counters.clear()
    for _ in range(3):
        assert torch.equal(compiled(), expected)
    assert not counters["failures"]
    grad = grad * 2
    weight.requires_grad_(False)
    index = index[:2]
    grad = grad[:2]
    weight.requires_grad_()
    assert compiled().shape == expected.shape and not counters["failures"]
