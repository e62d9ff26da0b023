"""CPUs as the schedule and the code generator see them."""

from __future__ import annotations

from typing import Any

from rushlight._backends.cpu.library import CPU_LIBRARY, CPU_LIBRARY_AMX, CPU_LIBRARY_AVX2, CPU_LIBRARY_VNNI
from rushlight._backends.cpu.microkernels.dot_tile import has_byte_dots
from rushlight._backends.cpu.program.steps import MAX_FRESH
from rushlight._schedule.policy import Policy, Recompute, Target

__all__ = ["CPU_POLICY", "cpu_target"]

_COSTS = {
    "div": 4, "sqrt": 4, "rsqrt": 4, "exp": 10, "exp2": 8, "expm1": 14, "log": 12, "log2": 12, "log10": 12, "log1p": 14, "sin": 16,
    "cos": 16, "tan": 24, "asin": 16, "acos": 16, "atan": 16, "sinh": 20, "cosh": 20, "tanh": 16, "asinh": 20, "acosh": 20,
    "atanh": 20, "erf": 16, "erfc": 24, "erfinv": 24, "lgamma": 40, "digamma": 40, "pow": 30, "atan2": 24, "rem_trunc": 10,
    "div_trunc": 12, "gcd": 60,
}  # fmt: skip

# Measured on x86-64 with AVX2 and AVX-512, and on machines of 2 to 32 cores.
CPU_POLICY = Policy(
    piece=1 << 15, least_piece=1 << 12, max_pieces=1024, serial_work=1 << 16, many_rows=16, max_parts=512, scan_rows=3, scan_length=1 << 11,
    scan_parts=(256, 128, 64, 32, 16), scan_part=32,
    joined_nodes=160, joined_operands=32, joined_constant=16, joined_views=512, joined_work=1.25,
    recompute=Recompute(least_bytes=1 << 16, least_total=1 << 20, most_cost=24.0, far=8, near=3, depth=4, small=16),
    max_stores=MAX_FRESH, max_joined=16, max_reads=8, small_graph=24, large=1 << 15, short_run=64, long_column=1024, tall_column=128,
    repeated=64, repeats=4, expensive=8, expensive_reduction=4,
    line_bytes=64, row_ahead_bytes=1 << 14, least_tile=4, few_neighbours=64, interleaved=1 << 15, stride_costs={1: 1, 2: 2}, far_cost=8,
    costs=_COSTS, plain_cost=0.3,
)  # fmt: skip


def cpu_target(machine: Any) -> Target:
    """The target for a description of a machine (`arch`, `has(flag)`, `vector_bytes`, `l2_bytes`, `l3_bytes`)."""
    fma = machine.arch != "x86_64" or (machine.vector_bytes > 16 and machine.has("fma"))
    # Products of bytes read windows in place; with vectors of 64 bytes, register or matrix tiles multiply matrices.
    library = CPU_LIBRARY
    if machine.arch == "x86_64" and machine.vector_bytes == 32 and machine.has("avx2"):
        library = CPU_LIBRARY_AVX2
    elif machine.vector_bytes == 64 and has_byte_dots(machine):
        library = CPU_LIBRARY_AMX if machine.has("amx_bf16") else CPU_LIBRARY_VNNI
    dots = has_byte_dots(machine)
    return Target(machine.vector_bytes, machine.l2_bytes, machine.l3_bytes, fma, library, CPU_POLICY, dots)
