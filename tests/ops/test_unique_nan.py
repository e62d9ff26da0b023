"""Values and places of `unique`, `unique(dim=)` and `unique_consecutive` where NaN stands nowhere in the order."""

import pytest

import rushlight as torch

NAN = float("nan")


@pytest.mark.parametrize(("rows", "dim", "values", "inverse", "counts"), (
    ([[1.0, NAN], [1.0, NAN], [2.0, 3.0]], 0, [[1.0, NAN], [1.0, NAN], [2.0, 3.0]], [0, 1, 2], [1, 1, 1]),
    ([[1.0, NAN], [1.0, NAN], [2.0, 3.0]], 1, [[1.0, NAN], [1.0, NAN], [2.0, 3.0]], [0, 1], [1, 1]),
    ([[NAN, 1.0], [1.0, NAN], [NAN, 1.0]], 0, [[NAN, 1.0], [1.0, NAN], [NAN, 1.0]], [0, 1, 2], [1, 1, 1]),
    ([1.0, NAN, NAN, 1.0], 0, [1.0, NAN, NAN, 1.0], [0, 1, 2, 3], [1, 1, 1, 1]),
    ([NAN, 0.0, 0.0, NAN, NAN, 1.0], 0, [NAN, 0.0, NAN, NAN, 1.0], [0, 1, 1, 2, 3, 4], [1, 2, 1, 1, 1]),
    ([2.0, NAN, 1.0, 1.0], 0, [1.0, 2.0, NAN, 1.0], [1, 2, 0, 3], [1, 1, 1, 1]),
))  # fmt: skip
def test_unique_rows_with_nan_stand_where_pytorch_leaves_them(rows, dim, values, inverse, counts):
    found = torch.unique(torch.tensor(rows), dim=dim, return_inverse=True, return_counts=True)
    assert str(found[0].tolist()) == str(values) and found[1].tolist() == inverse and found[2].tolist() == counts
