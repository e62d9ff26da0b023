"""Attention by warpgroups (sm_90a): which calls, with which tiles.

Bulk copies bring tiles of queries, keys and values; scores stay in registers, where they become the left operand of the product
with values (see `_codegen/threads/warpgroups/find_chains`).  On other architectures the same kernels load by pointers and multiply by
`mma.sync`.  Nothing of this has been measured on a card, so `RUSHLIGHT_CUDA_PRODUCTS` asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cuda.attention.scores import AttentionForm, Sizes, padded
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._backends.cuda.program.steps import Operand
from rushlight._types.dtype import BFLOAT16, FLOAT16, DType

__all__ = ["group_sizes", "groups_attend"]

_NARROWEST, _WIDEST_BACKWARD, _LEAST_ROWS, _MOST_DIMS, _ALIGNMENT = 64, 128, 64, 5, 16


def groups_attend(
    form: AttentionForm, operands: Sequence[Operand], mask: Sequence[Operand], backward: bool = False
) -> bool:
    """Whether warpgroups are asked for, and can attend: numbers of 16 bits, wide heads, tiles that tensor maps describe.

    Masks and dropout move tiles between threads in each turn, for which there are neither registers nor bytes; so are the sums
    of two derivatives of heads wider than 128.
    """
    if PRODUCTS.get() != "wgmma" or mask or form.dropout is not None:
        return False
    widths = [padded(x.shape[-1]) for x in operands]
    if min(widths) < _NARROWEST or (backward and max(widths) > _WIDEST_BACKWARD):
        return False
    return all(x.dtype in (BFLOAT16, FLOAT16) and x.shape[-2] >= _LEAST_ROWS and _described(x) for x in operands)


def _described(x: Operand) -> bool:
    """Whether a tensor map describes an operand: rows of neighbours, all else in steps of 16 bytes."""
    steps = [s * x.dtype.itemsize for s, n in zip(x.strides[:-1], x.shape[:-1], strict=True) if n > 1 and s != 0]
    return (
        x.strides[-1] == 1 and x.strides[-2] > 0 and len(steps) < _MOST_DIMS and x.offset * x.dtype.itemsize % _ALIGNMENT == 0
        and all(s > 0 and s % _ALIGNMENT == 0 for s in steps)
    )  # fmt: skip


def group_sizes(dtype: DType, width: int, rows: int, backward: bool = False) -> Sizes:
    """Tiles by the padded width of a head: 64 rows for each warpgroup, so that what a turn needs fits into registers.

    Backward, a tile of a turn is read by products of the next one, too, and has a slot more.
    """
    held = 128 if rows > _LEAST_ROWS else 64
    return Sizes(held, 64 if backward or width > 128 else 128, held // 16, 3 if backward else 2)
