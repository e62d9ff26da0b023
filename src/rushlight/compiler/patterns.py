"""Patterns: what one function computes is replaced by another function, wherever a graph of primitives computes it.

>>> from rushlight._prims import prim
>>> from rushlight._types.dtype import FLOAT32
>>> from rushlight.compiler.patterns import Pattern
>>> exps = Pattern(lambda x, y: prim.exp(x) * prim.exp(y), lambda x, y: prim.exp(x + y), [((3,), FLOAT32), ((3,), FLOAT32)])
>>> exps.check()  # both functions, on random operands

`replaced(graph, patterns)` gives the graph with the replacements, and their number; `docs/compile/write-a-pass.md`
leads through it.
"""

from __future__ import annotations

from rushlight._interface.compiling import Match, Pattern, PatternError, replaced

__all__ = ["Match", "Pattern", "PatternError", "replaced"]
