"""Results whose shape depends on the data, on an emulated GPU beside the host."""

from __future__ import annotations

import pytest
from tests.cuda.emulated import outcomes_of

from rushlight._backends.cuda.program.steps import Launch, Memory
from rushlight._backends.cuda.random.choices import multinomial_launch
from rushlight._backends.cuda.random.philox import Stream
from rushlight._backends.cuda.selection.kernels import rows_launch
from rushlight._types.dtype import FLOAT32

PRELUDE = """
import rushlight as torch
torch.manual_seed(0)
def same(f, *xs):
    mine, theirs = f(*[x.cuda() for x in xs]), f(*xs)
    for a, b in zip(*[v if isinstance(v, (tuple, list)) else [v] for v in (mine, theirs)], strict=True):
        assert a.device.type == "cuda"
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=0, equal_nan=True)
SHAPES = (0,), (7,), (5, 1000), (2, 3, 700)
"""
CASES = {
    "nonzero": """
for shape in SHAPES:
    same(torch.nonzero, torch.randint(0, 3, shape))
same(torch.nonzero, torch.zeros(5000)); same(torch.nonzero, torch.ones(4100))
""",
    "selected": """
for dtype in (torch.uint8, torch.float16, torch.float32, torch.float64):
    for shape in SHAPES:
        x = torch.randint(0, 9, shape).to(dtype)
        same(lambda x, m: x[m], x, x > 4)
""",
    "unique": """
for dtype in (torch.int64, torch.float32, torch.bool):
    for shape in SHAPES[1:]:
        x = torch.randint(0, 40, shape).to(dtype)
        same(lambda x: torch.unique(x, return_inverse=True, return_counts=True), x)
        same(lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), x)
""",
    "equal and not": """
x = torch.tensor([1.0, float("nan"), float("nan"), 2.0, -0.0, 0.0])
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    same(lambda x: torch.unique(x).shape[0] * torch.ones(1, device=x.device), x.to(dtype))
""",
    "rows": """
same(lambda *xs: torch.stack(xs), *[torch.randn(5, 3) for _ in range(4)])
same(lambda *xs: torch.cat(xs), *[torch.randint(0, 9, (7,)).to(torch.uint8) for _ in range(3)])
""",
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return outcomes_of(PRELUDE, CASES)


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_on_an_emulated_gpu(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == ""


def test_long_rows_and_many_samples_are_no_more_programs_than_a_grid_has() -> None:
    """A grid has 2**31 - 1 programs along x and 65,535 along the other axes."""
    x = Memory(1 << 32)
    for nbytes, aligned in (((1 << 31) + 1, False), (1 << 33, True)):
        assert rows_launch(x, Memory(24), 3, nbytes, aligned).grid[1:] == (1, 1)
    drawn = multinomial_launch(x, x, FLOAT32, 2, 10, 1 << 24, Stream(1, 0)).launch
    assert drawn.grid == (1 << 19, 1, 1)
    with pytest.raises(ValueError, match="the most is"):
        Launch(drawn.kernel, (1, 1 << 16), drawn.arguments)
