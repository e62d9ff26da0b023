"""The device `cuda` as a whole, on the emulated driver: what every device answers for, and every operator of the table.

A process has one driver, so these tests run in a process that was started with it: `make test-cuda-emulated`.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.devices.contract import DeviceTests
from tests.ops.test_eager import arguments, listed, same
from tests.ops.test_operators import CASES, ENGINE, results

import rushlight as torch
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import function_of

pytestmark = pytest.mark.cuda

DEVICE = "cuda"
FIRST = sorted({key for key, _ in CASES if key not in ENGINE})


class TestCuda(DeviceTests):
    DEVICE, NUMBER, DRAWS_AS_CPU = DEVICE, 1, False


def moved(value: Any) -> Any:
    """An argument with its tensors on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(DEVICE)
    return [moved(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("key", FIRST)
def test_an_operator_gives_the_references_values(key: str) -> None:
    op = OPERATORS[key]
    args, kwargs, leaves, bound = arguments(op, 0)
    with torch.device(DEVICE):
        made = function_of(key)(*map(moved, args), **{k: moved(v) for k, v in kwargs.items()})
    assert all(x.device.type == DEVICE for x in listed(made) if isinstance(x, torch.Tensor)) or not leaves
    same([x.cpu() for x in listed(made)], results(op, bound), key)


def _gradients(key: str, device: str) -> list[Any] | None:
    """Gradients of the sum of all results by all floating-point arguments, which lie transposed where they can."""
    args, kwargs, _, _ = arguments(OPERATORS[key], 0)
    leaves: list[Any] = []

    def leaf(value: Any) -> Any:
        if isinstance(value, list):
            return [leaf(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach().to(device)
        if value.dim() > 1:
            value = value.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)
        if value.is_floating_point() or value.is_complex():
            leaves.append(value.requires_grad_())
        return value

    with torch.device(device):
        made = function_of(key)(*map(leaf, args), **{k: leaf(v) for k, v in kwargs.items()})
        wanting = [x for x in listed(made) if isinstance(x, torch.Tensor) and x.requires_grad]
        if not wanting:
            return None
        found = torch.autograd.grad(
            wanting, leaves, [torch.ones_like(x) for x in wanting], allow_unused=True, materialize_grads=True
        )
    return [x.cpu() for x in found]


DIFFERENTIABLE = [key for key in FIRST if not OPERATORS[key].underivable]


@pytest.mark.parametrize("key", DIFFERENTIABLE)
def test_gradients_of_transposed_arguments_are_the_cpus(key: str) -> None:
    try:
        wanted = _gradients(key, "cpu")
    except (NotImplementedError, RuntimeError) as error:  # a constant argument, or a layout that `view` refuses
        pytest.skip(f"the CPU has none: {error}")
    if wanted is None:
        pytest.skip("nothing of the first sample wants a gradient")
    found = _gradients(key, DEVICE)
    assert found is not None
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5, equal_nan=True)
