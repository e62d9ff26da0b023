"""`torch.testing._comparison`: the tolerances of `assert_close`, as test suites read them."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.testing.comparison import assert_allclose, assert_close
from rushlight.testing.comparison import default_tolerances as _of_names

__all__ = ["assert_allclose", "assert_close", "default_tolerances"]


def default_tolerances(
    *inputs: Any, dtype_precisions: dict[Any, tuple[float, float]] | None = None
) -> tuple[float, float]:
    """The largest `(rtol, atol)` among dtypes and tensors; (0, 0) for dtypes that are compared exactly.

    >>> torch.testing._comparison.default_tolerances(torch.float32, torch.float16)
    (0.001, 1e-05)
    """
    dtypes = [each.dtype if isinstance(each, rushlight.Tensor) else each for each in inputs]
    for each in dtypes:
        if not isinstance(each, rushlight.dtype):
            raise TypeError(f"Expected a torch.Tensor or a torch.dtype, but got {type(each)} instead.")
    if not dtype_precisions:
        return _of_names(*[each.name for each in dtypes])
    pairs = [dtype_precisions.get(each, (0.0, 0.0)) for each in dtypes]
    return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)
