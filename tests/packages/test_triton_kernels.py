"""Kernels of Liger-Kernel and flash-linear-attention, unmodified, on the CPU: results and gradients beside formulas."""

import pytest
from tests.packages.environment import needs, runs_here

if runs_here():
    from tests.packages import triton_functions

    NAMES = list(triton_functions.TABLE)
else:
    NAMES = []


@needs("liger_kernel", "fla")
@pytest.mark.parametrize("name", NAMES)
def test_function(name: str) -> None:
    triton_functions.take_first_configurations()
    tolerance = triton_functions.TABLE[name][3]
    result, gradients = triton_functions.compare(name)
    assert result <= tolerance
    assert gradients is None or gradients <= tolerance
