"""The memory of one random generator: 624 words of state, a few fields, and scratch for the kernels.

The constants are indices of elements of the type named beside them, counted from the start of the block.
"""

from __future__ import annotations

__all__ = [
    "DOUBLE_NORMAL", "DOUBLE_VALID", "FLOAT_NORMAL", "FLOAT_VALID", "HALF", "LEFT", "NEXT", "OFFSET", "SCRATCH", "SCRATCH_AT", "SEED",
    "SEEDED", "STATE_BYTES", "TAKE", "WORDS",
]  # fmt: skip

WORDS = 624  # u32, from index 0
LEFT = 624  # u32: draws until the next block of words, plus one
NEXT = 625  # u32: index of the next word
SEEDED = 626  # u32: 0 until the words have been made from the seed (that is left to the first draw)
FLOAT_VALID = 627  # u32: PyTorch's states carry a cached float32 normal; it is kept, nothing on the CPU uses it
DOUBLE_VALID = 628  # u32: whether a second normal number waits
SEED = 315  # u64
DOUBLE_NORMAL = 316  # f64: that second number
FLOAT_NORMAL = 634  # f32
TAKE = (
    318  # ptr: the compiled `mt_take`, through which all kernels draw (they would each contain a copy of it otherwise)
)
OFFSET = 319  # u64: of streams that are a seed and an offset (see `Backend.counted_streams`)

SCRATCH_AT = 2560  # byte offset
SCRATCH = 2048  # words that a kernel can take at a time
HALF = 1024
STATE_BYTES = SCRATCH_AT + 4 * SCRATCH
