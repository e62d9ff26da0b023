"""The description of a matrix product: sizes and strides, dtypes, and the work fused with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rushlight._backends.cpu.program.steps import RectangleStep
    from rushlight._types.dtype import DType

__all__ = ["Fusion", "ProductShape", "ProductTypes"]


class ProductShape(NamedTuple):
    """C = A @ B: A [*batch, m, k], B [*batch, k, n], C [*batch, m, n].

    Strides count elements; None means contiguous.  `?_batch` are those of the batch dims, 0 to broadcast.

    >>> ProductShape(2, 3, 4).strides
    ((4, 1), (3, 1), (3, 1))
    """

    m: int
    n: int
    k: int
    a_strides: tuple[int, int] | None = None
    b_strides: tuple[int, int] | None = None
    c_strides: tuple[int, int] | None = None
    batch: Sequence[int] = ()
    a_batch: Sequence[int] | None = None
    b_batch: Sequence[int] | None = None
    c_batch: Sequence[int] | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and steps."""
        return self.m, self.n, self.k

    @property
    def strides(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Row and column strides of A, B and C."""
        return self.a_strides or (self.k, 1), self.b_strides or (self.n, 1), self.c_strides or (self.n, 1)

    @property
    def transposed(self) -> ProductShape:
        """C transposed = B transposed @ A transposed, without batch dims."""
        a, b, c = self.strides
        return ProductShape(self.n, self.m, self.k, b[::-1], a[::-1], c[::-1])


class ProductTypes(NamedTuple):
    """The dtypes of A (`source`), C (`result`) and B (`other`, by default A's); `conjugated` operands are read as
    conjugates."""

    source: DType
    result: DType
    other: DType | None = None
    conjugated: tuple[bool, bool] = (False, False)


class Fusion(NamedTuple):
    """The work fused with a product: an `epilogue` on its sums, and `prologues` that compute A and B.

    `sizes`: bytes of the outputs of the epilogue; `more`: further arrays of the call; `pinned`: the operand (0 A, 1 B, -1 none)
    that may stay packed from call to call.
    """

    sizes: Sequence[int] = ()
    epilogue: RectangleStep | None = None
    prologues: Sequence[RectangleStep | None] = ()
    more: int = 0
    pinned: int = -1
