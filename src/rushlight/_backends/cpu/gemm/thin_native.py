"""Products of a matrix and a vector, in the native language, where the numbers of each sum lie side by side in both.

They read the matrix once, at the speed of memory: `RowTile` does nothing else.  Which products are computed here depends on
sizes and strides alone.
"""

from __future__ import annotations

from rushlight._backends.cpu.gemm.blas_native import A_ROW, B_COL, C_COL, C_ROW, K, M, make_driver
from rushlight._backends.cpu.gemm.product_spec import ProductShape
from rushlight._backends.cpu.microkernels.row_tile import RowTile
from rushlight._native import Type, extern, native
from rushlight._native.function import NativeFunction

__all__ = ["is_thin", "make_thin", "suits_rows"]

SHORT = 16  # steps up to which sums are made faster side by side, from a transposed matrix (see `small_native`)


def is_thin(shape: ProductShape) -> bool:
    """Whether a product is computed here: a row times columns that lie side by side, or rows that do times a column."""
    (a, b, _), k = shape.strides, shape.k
    return 1 in shape.sizes[:2] and 0 not in shape.sizes and (k == 1 or a[1] == b[0] == 1)


def suits_rows(shape: ProductShape) -> bool:
    """Whether that is faster than blocks, where these could compute the product, too."""
    return is_thin(shape) and shape.k > SHORT


def make_thin(kind: str, real: Type, tile: RowTile) -> NativeFunction:
    """The kernel `rl_thin_{kind}` of such products, with the constants of `gemm_ints`."""
    rows_of = extern(tile.symbol, "void(ptr, i64, ptr, ptr, i64, i64, i64)")
    size = real.itemsize

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"thin_{kind}", inline=True)
    def thin(ints, c, a, b, rows, columns):
        k = ints.i64[K]
        if ints.i64[M] == 1:
            rows_of(b, size * ints.i64[B_COL], a, c, size * ints.i64[C_COL], columns, k)
        else:
            rows_of(a, size * ints.i64[A_ROW], b, c, size * ints.i64[C_ROW], rows, k)
        return 0

    return make_driver(f"rl_thin_{kind}", size, size, thin, None)
