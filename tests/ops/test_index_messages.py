"""What operators say of indices that they refuse: PyTorch 2.13's words, so that programs that match them go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
import rushlight.nn.functional as F

X = torch.arange(12.0).view(3, 4)
FLAT = torch.tensor([0, 1])
FLOATS = FLAT.float()
DOUBLES = torch.ones(2, 4, dtype=torch.float64)
WIDE = torch.zeros(4, 5, dtype=torch.int64)


def _set(index: Any, value: Any) -> None:
    X.clone()[index] = value


CASES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: X.take(FLOATS), RuntimeError, "take(): Expected a long tensor for index, but got Float"),
    (lambda: X.clone().put_(FLAT.int(), X[0, :2]), RuntimeError, "put_(): Expected a long tensor for index, but got Int"),
    (lambda: X.index_copy(0, FLOATS, X[:2]), RuntimeError, "index_copy_(): Expected a long tensor for index, but got Float"),
    (lambda: X.index_add(0, FLOATS, X[:2]), RuntimeError, "index_add_(): Expected dtype int32/int64 for index but got: Float"),
    (lambda: X.index_reduce(0, FLOATS, X[:2], "amax"), RuntimeError, "index_reduce_(): Expected dtype int32/int64 for index but got: Float"),
    (lambda: X.gather(0, FLOATS.view(1, 2)), RuntimeError, "gather(): Expected dtype int32/int64 for index"),
    (lambda: X.scatter_add(0, FLOATS.view(1, 2), X), RuntimeError, "scatter(): Expected dtype int32/int64 for index"),
    (lambda: torch.take_along_dim(X, FLAT.int().view(1, 2), 0), RuntimeError, "torch.take_along_dim(): dtype of indices should be Long but got Int"),
    (lambda: X.index_add(0, FLAT.view(1, 2), X[:2]), IndexError,
     "index_add_(): Index is supposed to be a vector, but got dim: 2 with type: Long and size: [1, 2]"),
    (lambda: X.index_add(0, FLAT, DOUBLES), RuntimeError, "index_add_(): self (Float) and source (Double) must have the same scalar type"),
    (lambda: X.index_reduce(0, FLAT, DOUBLES, "prod"), RuntimeError, "index_reduce_(): self (Float) and source (Double) must have the same scalar type"),
    (lambda: X.index_copy(0, FLAT, X[:2, 0]), IndexError,
     "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source dimensionality (1), destination dimensionality (2)"),
    (lambda: X.index_copy(0, FLAT, torch.ones(2, 5)), RuntimeError,
     "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: 4 at dimension 0 and source slice shape: 5 at dimension 0."),
    (lambda: X.scatter(0, WIDE, X), RuntimeError,
     "Expected index [4, 5] to be no larger than self [3, 4] apart from dimension 0 and to be no larger size than src [3, 4]"),
    (lambda: _set(X > 9, torch.ones(3, dtype=torch.int64)), RuntimeError,
     "shape mismatch: value tensor of shape [3] cannot be broadcast to indexing result of shape [2]"),
    (lambda: _set(FLAT, torch.ones(2, 4, dtype=torch.int64)), RuntimeError,
     "Index put requires the source and destination dtypes match, got Float for the destination and Long for the source."),
    (lambda: torch.repeat_interleave(X[:2], FLOATS, 0), NotImplementedError, "\"repeat_interleave_cpu\" not implemented for 'Float'"),
    (lambda: torch.repeat_interleave(X[:2], torch.tensor(2.0), 0), NotImplementedError, "\"repeat_interleave_cpu\" not implemented for 'Float'"),
    (lambda: torch.repeat_interleave(X[:2], FLAT.view(1, 2), 0), RuntimeError, "repeats must be 0-dim or 1-dim tensor"),
    (lambda: F.max_unpool1d(torch.ones(1, 1, 2), FLAT.int().view(1, 1, 2), 2), RuntimeError, "elements in indices should be type int64 but got: Int"),
    (lambda: F.max_unpool1d(torch.ones(1, 1, 2), torch.tensor([[[0, -9]]]), 2), RuntimeError,
     "Found an invalid max index: -9 (output volumes are of size 4x1)"),
    (lambda: F.max_unpool2d(torch.ones(1, 1, 1, 2), torch.tensor([[[[0, 90]]]]), 2), RuntimeError,
     "Found an invalid max index: 90 (output volumes are of size 2x4)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "words"), CASES, ids=range(len(CASES)))
def test_words(call: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).startswith(words)
