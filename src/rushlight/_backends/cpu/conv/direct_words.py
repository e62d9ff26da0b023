"""The words of direct convolutions: what all their kernels know of the numbers that come with a call."""

from __future__ import annotations

from rushlight._native import Type, Words, f32, f64

__all__ = ["D_BYTES", "REAL", "T_BYTES", "D", "T", "item_of"]

REAL: dict[str, Type] = {"f32": f32, "f64": f64, "f16": f32, "bf16": f32}

# ints[8 + ...]: the blocks; what there is, how it is cut; the geometry in three dims of space; strides in elements; rows that are kept ready;
# how many groups are given to the epilogue together; the last three as in `conv_words.W`, but that `given` counts from the first of the constants.
# together: lanes are channels, `mix` of them of one group; `x_g`, `y_g` and `bias_g` are strides of channels then, `groups` counts vectors.
# placed: rows of the input are read where they lie; then `edge` and `edge_last` are the blocks that may reach beyond a row (there may be no `tile`:
# 0), `extent` places of a row are read by a block, the first `shift` places before that of its results.
# pieces: how many this convolution has; one of a spread image is several, whose words follow one another.
# nothing: bytes of a row that stands for all that lie beyond an image.
D = Words(
    """tile last edge edge_last placed extent shift height_tile vectors vectors_last span lanes outs together mix blocks steps
batch groups depth chunk bands band singles
in_d in_h in_w out_d out_h out_w kernel_d kernel_h kernel_w
stride_d stride_h stride_w dilation_d dilation_h dilation_w pad_d pad_h pad_w spread_d spread_h spread_w
x_n x_g x_c x_d x_h x_w w_base w_g w_o w_c w_d w_h w_w
y_n y_g y_o y_d y_h y_w bias_g bias_o pitch phase lead rows nothing x_turn y_turn y_base pieces bundle operand after given""",
    first=8,
)
D_BYTES = 8 * (8 + len(D))

# What a block is told beside its rows (`DirectTile`).
T = Words("plane planes step steps phase unit place stride width channels row channel vector valid down along on")
T_BYTES = 8 * len(T)


def item_of(dtype: str) -> int:
    """Bytes of an element in memory: narrow ones are wider while they are summed (`REAL`)."""
    return 2 if dtype in ("f16", "bf16") else REAL[dtype].itemsize
