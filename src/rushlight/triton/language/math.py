"""`triton.language.math`: elementary functions; beyond Triton's, those of libdevice that programs import from here."""

from __future__ import annotations

from typing import Any

from .._semantics.mathematics import (
    FUNCTIONS,
    abs,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
)

__all__ = [
    "abs",
    "ceil",
    "cos",
    "div_rn",
    "erf",
    "exp",
    "exp2",
    "fdiv",
    "floor",
    "fma",
    "log",
    "log2",
    "rsqrt",
    "sin",
    "sqrt",
    "sqrt_rn",
    "umulhi",
]


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(
        f"module 'triton.language.math' has no attribute {name!r}; there are {', '.join(sorted(FUNCTIONS))}"
    )
