"""PyTorch's own samples through the operators: values and gradients against PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # PyTorch's sample inputs need it

from tests.ops import oracle  # noqa: E402

import rushlight._ops.families  # noqa: E402, F401
from rushlight._ops.table import OPERATORS  # noqa: E402

pytestmark = pytest.mark.oracle

# Where another answer is right as well: the order of equals, roundings that PyTorch itself loses.
ANY_ORDER = {"sort", "argsort", "topk", "kthvalue", "msort", "median_dim"}
IMPRECISE_THERE = {"logcumsumexp"}
# op_db calls these with the arguments in another order, or through a function of its own.
OTHER_ORDER = {"where", "embedding"}
NAMES = sorted(key for key in OPERATORS if oracle.infos(OPERATORS[key]))


@pytest.mark.parametrize("key", [n for n in NAMES if n not in OTHER_ORDER])
def test_values_and_gradients_as_pytorch(key: str) -> None:
    op = OPERATORS[key]
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype is not torch.float32 and key in ANY_ORDER:
            continue
        _, wrong = oracle.check(op, dtype, 3, grad=key not in IMPRECISE_THERE)
        wrong = [
            line
            for line in wrong
            if "ZeroTensor" not in line and "stepping" not in line and "steps between" not in line
        ]
        assert not wrong, "\n".join(wrong)


def test_most_operators_are_in_the_oracle() -> None:
    assert len(NAMES) > 200
