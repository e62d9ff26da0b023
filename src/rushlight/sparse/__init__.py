"""Sparse tensors: `torch.sparse`.

Importing this package teaches the kinds in `_engine/kinds/sparse.py` what every operator means for them.
"""

from __future__ import annotations

from rushlight._types.dtype import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8
from rushlight.sparse import members, moving, pointwise, products, reductions
from rushlight.sparse.checking import as_sparse_gradcheck
from rushlight.sparse.construct import TypedSparseTensor, check_sparse_tensor_invariants
from rushlight.sparse.products import addmm, mm, sampled_addmm
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
    "BFloat16": BFLOAT16, "Byte": UINT8, "Char": INT8, "Double": FLOAT64, "Float": FLOAT32, "Half": FLOAT16, "Int": INT32, "Long": INT64, "Short": INT16,
}.items():  # fmt: skip
    globals()[f"{_word}Tensor"] = TypedSparseTensor(
        f"{_word}Tensor", (), {"dtype": _dtype, "__module__": "torch.sparse"}
    )

_LOADED = (members, moving, pointwise, products, reductions)
