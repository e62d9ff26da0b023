"""The primitives of whole programs, most of them with effects: importing this declares them.

They are apart from `PRIMITIVES`: a graph of an operator has none of them, and `import rushlight` does not load them.
"""

from rushlight._prims import borders, branches, collectives, draws, memory, stopping  # noqa: F401
from rushlight._prims.record import EFFECTS, Effect, EffectPrimitive, ProgramPrimitive, prim

__all__ = ["EFFECTS", "Effect", "EffectPrimitive", "ProgramPrimitive", "prim"]
