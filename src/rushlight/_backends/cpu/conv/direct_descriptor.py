"""The descriptor of direct convolutions: the constants of a call, as all their kernels read them."""

from __future__ import annotations

from rushlight._native import Type, Words, f32, f64

__all__ = ["D_BYTES", "REAL", "T_BYTES", "D", "T", "item_of"]

REAL: dict[str, Type] = {"f32": f32, "f64": f64, "f16": f32, "bf16": f32}

# ints[8 + ...]: blocks; counts and blocking; geometry in three spatial dims; strides in elements; prepared rows; groups
# given to the epilogue together; the last three as in `conv_descriptor.W`, except that `epilogue_at` counts from the
# first constant.
# together: lanes are channels, `mix` of them of one group; `x_g`, `y_g` and `bias_g` are then strides of channels,
# `groups` counts vectors.
# placed: input rows are read in place; `edge` and `edge_last` are the blocks that may reach beyond a row (`tile` may be
# 0: none), a block reads `extent` positions of a row, the first of them `shift` before its results.
# pieces: pieces of this convolution; a dilated image is convolved as several, whose descriptors follow one another.
# nothing: bytes of a zero row that stands for all rows outside an image.
D = Words(
    """tile last edge edge_last placed extent shift height_tile vectors vectors_last span lanes outs together mix blocks steps
batch groups depth chunk bands band singles
in_d in_h in_w out_d out_h out_w kernel_d kernel_h kernel_w
stride_d stride_h stride_w dilation_d dilation_h dilation_w pad_d pad_h pad_w spread_d spread_h spread_w
x_n x_g x_c x_d x_h x_w w_base w_g w_o w_c w_d w_h w_w
y_n y_g y_o y_d y_h y_w bias_g bias_o pitch phase lead rows nothing x_transpose y_transpose y_base pieces bundle operand epilogue epilogue_at""",
    first=8,
)
D_BYTES = 8 * (8 + len(D))

# The descriptor of a block, beside its rows (`DirectTile`).
T = Words("plane planes step steps phase unit position stride width channels row channel vector valid down along on")
T_BYTES = 8 * len(T)


def item_of(dtype: str) -> int:
    """Bytes of an element in memory; narrow ones are summed in a wider dtype (`REAL`)."""
    return 2 if dtype in ("f16", "bf16") else REAL[dtype].itemsize
