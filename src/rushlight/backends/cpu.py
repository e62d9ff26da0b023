"""Capabilities of the processor."""

from __future__ import annotations

from rushlight._interface.base import require

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """Which vector instructions the kernels use: "AVX512", "AVX2", "DEFAULT", or "NEON" on ARM.

    >>> torch.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT", "NEON", "SVE256")
    True
    """
    can = require("rushlight.cpu").get_capabilities()
    if "neon" in can:
        return "NEON"
    if all(can.get(name) for name in ("avx512_f", "avx512_vl", "avx512_bw", "avx512_dq", "fma3")):
        return "AVX512"
    return "AVX2" if can.get("avx2") and can.get("fma3") else "DEFAULT"
