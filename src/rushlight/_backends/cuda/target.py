"""CUDA devices as the schedule sees them.

No number here is asked of a device: what is fused, and in which order sums are taken, is the same on all of them.
"""

from __future__ import annotations

from rushlight._backends.cuda.library import CUDA_LIBRARY
from rushlight._schedule.policy import Policy, Recompute, Target

__all__ = ["CUDA_POLICY", "CUDA_TARGET"]

# In the time that moving an element of four bytes takes; a multiprocessor computes some fifty operations in it.
_COSTS = {
    "div": 2, "sqrt": 2, "rsqrt": 2, "exp": 3, "exp2": 3, "expm1": 4, "log": 4, "log2": 4, "log10": 4, "log1p": 4, "sin": 6, "cos": 6,
    "tan": 8, "asin": 5, "acos": 5, "atan": 5, "sinh": 6, "cosh": 6, "tanh": 5, "asinh": 6, "acosh": 6, "atanh": 6, "erf": 5, "erfc": 8,
    "erfinv": 8, "lgamma": 30, "digamma": 30, "pow": 12, "atan2": 8, "rem_trunc": 4, "div_trunc": 4, "gcd": 40, "gammainc": 200,
    "gammaincc": 200, "zeta": 200, "polynomial": 60,
}  # fmt: skip

CUDA_POLICY = Policy(
    piece=1 << 12, least_piece=1 << 10, max_pieces=1 << 20, serial_work=1 << 12, many_rows=64, max_parts=512, scan_rows=32,
    scan_length=1 << 14, scan_parts=(1024, 512, 256, 128, 64, 32, 16), scan_part=64,
    joined_nodes=160, joined_operands=32, joined_constant=16, joined_views=512, joined_work=1.25,
    recompute=Recompute(least_bytes=1 << 20, least_total=1 << 24, most_cost=24.0, far=8, near=3, depth=4, small=16),
    max_stores=16, max_joined=16, max_reads=16, small_graph=24, large=1 << 15, short_run=32, long_column=1024, tall_column=1024,
    repeated=1 << 10, repeats=4, expensive=12, expensive_reduction=8,
    line_bytes=128, row_ahead_bytes=0, least_tile=8, few_neighbours=32, interleaved=1 << 15, stride_costs={1: 1, 2: 2}, far_cost=8,
    costs=_COSTS, plain_cost=0.1, whole_accesses=True, alike_rows=True,
)  # fmt: skip

CUDA_TARGET = Target(16, 32 << 20, 32 << 20, False, CUDA_LIBRARY, CUDA_POLICY)
