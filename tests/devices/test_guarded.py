"""The seam: everything above the backends on a device whose memory nobody else can read (`guarded.py`).

A native read of an element ends the process, so these tests run in one process of their own, and each operator's first sample is one call there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.devices import guarded
from tests.devices.contract import DeviceTests
from tests.ops.test_eager import arguments, listed, same
from tests.ops.test_operators import CASES, ENGINE, results

import rushlight as torch
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import function_of

DEVICE = "guarded"
FIRST = sorted({key for key, _ in CASES if key not in ENGINE})


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    with guarded.registered():
        yield


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


class TestGuarded(DeviceTests):
    DEVICE = DEVICE

    def test_explain_shows_what_ran(self) -> None:
        report = torch.explain(lambda t: (t.exp() + 1).sum())(torch.ones(3, device=self.DEVICE))
        assert (
            report.operators == ["exp", "add", "sum"] and report.kernels == ["reference"] * 3 and "exp" in str(report)
        )
