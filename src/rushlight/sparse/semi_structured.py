"""2:4 structured sparsity: names only. It is a format of NVIDIA's tensor cores, for which there is nothing here yet."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor

__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
]


def _absent(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"rushlight has no semi-structured (2:4) sparse tensors: {what} needs a GPU with sparse tensor cores"
    )


class SparseSemiStructuredTensor:
    """Two of four neighbours are zero. Cannot be made: raises `NotImplementedError`."""

    BACKEND = ""
    packed: Any = None
    meta: Any = None
    packed_t: Any = None
    meta_t: Any = None
    compressed_swizzled_bitmask: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _absent(type(self).__name__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _absent(cls.__name__)

    @classmethod
    def from_dense(cls, original_tensor: Tensor, alg_id: int = 0) -> Any:
        """Raises `NotImplementedError`."""
        raise _absent(f"{cls.__name__}.from_dense")

    def to_dense(self) -> Tensor:
        """Raises `NotImplementedError`."""
        raise _absent(f"{type(self).__name__}.to_dense")


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """With CUTLASS's kernels. Cannot be made: raises `NotImplementedError`."""

    BACKEND = "cutlass"

    @classmethod
    def prune_dense_static_sort(cls, original_tensor: Tensor, algorithm: str = "") -> Any:
        """Raises `NotImplementedError`."""
        raise _absent(f"{cls.__name__}.prune_dense_static_sort")


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """With cuSPARSELt's kernels. Cannot be made: raises `NotImplementedError`."""

    BACKEND = "cusparselt"

    @classmethod
    def prune_dense_static_sort(cls, original_tensor: Tensor, algorithm: str = "") -> Any:
        """Raises `NotImplementedError`."""
        raise _absent(f"{cls.__name__}.prune_dense_static_sort")


def to_sparse_semi_structured(original_tensor: Tensor, transposed: bool = False) -> Any:
    """Raises `RuntimeError` for tensors that are not on a GPU, as PyTorch does; there are no others here."""
    if original_tensor.device.type != "cuda":
        raise RuntimeError(
            f"Error original_tensor.device= {original_tensor.device} is not supported! Only CUDA tensors are currently supported."
        )
    raise _absent("to_sparse_semi_structured")
