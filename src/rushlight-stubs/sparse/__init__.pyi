"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from rushlight._engine.core.tensor import Tensor as _Tensor

class BFloat16Tensor(_Tensor): ...
class ByteTensor(_Tensor): ...
class CharTensor(_Tensor): ...
class DoubleTensor(_Tensor): ...
class FloatTensor(_Tensor): ...
class HalfTensor(_Tensor): ...
class IntTensor(_Tensor): ...
class LongTensor(_Tensor): ...
class ShortTensor(_Tensor): ...
from rushlight.sparse.semi_structured import SparseSemiStructuredTensor as SparseSemiStructuredTensor
from rushlight.sparse.semi_structured import SparseSemiStructuredTensorCUSPARSELT as SparseSemiStructuredTensorCUSPARSELT
from rushlight.sparse.semi_structured import SparseSemiStructuredTensorCUTLASS as SparseSemiStructuredTensorCUTLASS
from rushlight.sparse.construct import TypedSparseTensor as TypedSparseTensor
from rushlight.sparse.matrix_products import addmm as addmm
from rushlight.sparse.checking import as_sparse_gradcheck as as_sparse_gradcheck
from rushlight.sparse.construct import check_sparse_tensor_invariants as check_sparse_tensor_invariants
from rushlight.sparse import checking as checking
from rushlight.sparse import construct as construct
from rushlight.sparse import layouts as layouts
from rushlight.sparse.reductions import log_softmax as log_softmax
from rushlight.sparse import matrix_products as matrix_products
from rushlight.sparse import members as members
from rushlight.sparse.matrix_products import mm as mm
from rushlight.sparse import moving as moving
from rushlight.sparse import parts as parts
from rushlight.sparse import pointwise as pointwise
from rushlight.sparse import reductions as reductions
from rushlight.sparse.matrix_products import sampled_addmm as sampled_addmm
from rushlight.sparse import semi_structured as semi_structured
from rushlight.sparse.reductions import softmax as softmax
from rushlight.sparse.reductions import spdiags as spdiags
from rushlight.sparse.reductions import spsolve as spsolve
from rushlight.sparse.reductions import sum as sum
from rushlight.sparse import tensors as tensors
from rushlight.sparse.semi_structured import to_sparse_semi_structured as to_sparse_semi_structured
