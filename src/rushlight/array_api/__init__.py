"""The Python array API standard, version 2024.12 (https://data-apis.org/array-api/2024.12), over `Tensor`.

Programs that are written against the standard get this namespace from the arrays themselves:

    >>> import rushlight as torch
    >>> def softmax(x):
    ...     xp = x.__array_namespace__()
    ...     e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    ...     return e / xp.sum(e, axis=-1, keepdims=True)
    >>> softmax(torch.tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])

Functions here follow the standard where PyTorch's of the same name do not; docs/array-api.md lists where tensors
themselves follow PyTorch.
"""

from __future__ import annotations

import rushlight
from rushlight.array_api import creation, dtypes, elementwise, fft, info, linalg, manipulation, searching, statistical
from rushlight.array_api.info import __array_namespace_info__

__array_api_version__ = "2024.12"
# Earlier versions are contained in it.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

e, inf, nan, pi, newaxis = rushlight.e, rushlight.inf, rushlight.nan, rushlight.pi, None

_CORE = [name for part in (creation, elementwise, manipulation, searching, statistical) for name in part.__all__]
_DTYPE_FUNCTIONS = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]
_ALSO_CORE = ["matmul", "matrix_transpose", "tensordot", "vecdot"]
_DTYPES = list(__array_namespace_info__().dtypes())

for _part in (creation, elementwise, manipulation, searching, statistical):
    globals().update({name: getattr(_part, name) for name in _part.__all__})
globals().update({name: getattr(dtypes, name) for name in _DTYPE_FUNCTIONS})
globals().update({name: getattr(linalg, name) for name in _ALSO_CORE})
globals().update(__array_namespace_info__().dtypes())
del _part

__all__ = [  # noqa: PLE0604
    "__array_api_version__", "__array_namespace_info__", "e", "fft", "inf", "linalg", "nan", "newaxis", "pi",
    *_CORE, *_DTYPE_FUNCTIONS, *_ALSO_CORE, *_DTYPES,
]  # fmt: skip
