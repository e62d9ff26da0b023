"""Sparse tensors: `torch.sparse`.

Importing this package teaches the kinds in `_engine/sparse.py` what every operator means for them.
"""

from __future__ import annotations

from rushlight.sparse import members, moving, pointwise, products, reductions
from rushlight.sparse.checking import as_sparse_gradcheck
from rushlight.sparse.construct import check_sparse_tensor_invariants
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

_LOADED = (members, moving, pointwise, products, reductions)


