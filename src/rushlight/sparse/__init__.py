"""Sparse tensors: `torch.sparse`.

Importing this package says what each operator does with the types in `tensors.py`.
"""

from __future__ import annotations

import rushlight
from rushlight.sparse import matrix_products, members, moving, pointwise, reductions
from rushlight.sparse.checking import as_sparse_gradcheck
from rushlight.sparse.construct import TypedSparseTensor, check_sparse_tensor_invariants
from rushlight.sparse.matrix_products import addmm, mm, sampled_addmm
from rushlight.sparse.reductions import log_softmax, softmax, spdiags, spsolve, sum
from rushlight.sparse.semi_structured import (
    SparseSemiStructuredTensor,
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
    to_sparse_semi_structured,
)

__all__ = [
    "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS", "addmm", "as_sparse_gradcheck",
    "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "spsolve", "sum", "to_sparse_semi_structured",
]  # fmt: skip

# The classes of the first years: for isinstance, and files of then name them.
for _word, _dtype in {
    "BFloat16": rushlight.bfloat16,
    "Byte": rushlight.uint8,
    "Char": rushlight.int8,
    "Double": rushlight.float64,
    "Float": rushlight.float32,
    "Half": rushlight.float16,
    "Int": rushlight.int32,
    "Long": rushlight.int64,
    "Short": rushlight.int16,
}.items():
    globals()[f"{_word}Tensor"] = TypedSparseTensor(
        f"{_word}Tensor", (), {"dtype": _dtype, "__module__": "torch.sparse"}
    )

_LOADED = (members, moving, pointwise, matrix_products, reductions)
