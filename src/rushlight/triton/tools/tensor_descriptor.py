"""`triton.tools.tensor_descriptor`: a descriptor of an array that the host makes and a kernel reads and writes blocks of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["TensorDescriptor"]


@dataclass
class TensorDescriptor:
    """`base` with sizes and strides in elements; kernels read blocks of `block_shape`.

    AssertionError for what hardware that moves blocks does not take: an address or a stride that 16 bytes do not divide, a
    last stride other than 1.
    """

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        rank = len(self.shape)
        assert 0 < rank <= 5, f"a descriptor has 1 to 5 dims, not {rank}"
        assert len(self.strides) == len(self.block_shape) == rank, f"rank mismatch: {self}"
        assert self.base.data_ptr() % 16 == 0, "base must be 16-byte aligned"
        assert all(size > 0 and not size & (size - 1) for size in self.block_shape), "block sizes are powers of 2"
        size = self.base.dtype.itemsize
        assert all(stride * size % 16 == 0 for stride in self.strides[:-1]), "strides must be 16-byte aligned"
        assert self.strides[-1] == 1, "Last dimension must be contiguous"
        assert all(dim > 0 for dim in self.shape), "shape must be positive"
        assert self.padding in ("zero", "nan"), "Illegal value for padding"

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: list[int], padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """Of a whole tensor."""
        return TensorDescriptor(
            tensor, list(tensor.shape), list(tensor.stride()), block_shape, padding, round_f32_to_tf32
        )
