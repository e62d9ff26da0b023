"""In-place operators whose result is rounded to the dtype of their target: gradients have the dtypes of the operands."""

from __future__ import annotations

import pytest

import rushlight as torch

HALF_UP = [(torch.float32, torch.float64), (torch.float16, torch.float32), (torch.bfloat16, torch.float16)]


@pytest.mark.parametrize(("narrow", "wide"), HALF_UP)
@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "copy_", "atan2_", "pow_"])
def test_gradients_are_those_of_the_wide_operator(name: str, narrow: torch.dtype, wide: torch.dtype) -> None:
    def change(target: torch.dtype, operand: torch.dtype) -> torch.Tensor:
        x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
        z, o = (x * 2).to(target), x.to(operand)
        assert getattr(z, name)(o) is z and z.dtype is target
        return torch.autograd.grad(z.double().sum(), x)[0]

    wanted = change(torch.float64, torch.float64)
    for _ in range(2):  # the second time by the plan
        assert torch.allclose(change(narrow, wide), wanted, rtol=0.05, atol=0.05)


def test_what_does_not_fit_is_refused_as_before() -> None:
    z = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="broadcast shape"):
        z.add_(torch.ones(2, 3, dtype=torch.float64, requires_grad=True))
    leaf = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        leaf.add_(torch.ones(3, dtype=torch.float64))
