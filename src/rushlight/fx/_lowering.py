"""From an fx graph to a program of primitives with effects.

An fx graph says which functions of PyTorch a module calls.  Its nodes have no shapes, and its effects are calls like
any other.  For tensors of given shapes and dtypes it lowers to a graph of primitives (`rushlight._graph`), in which
changed memory and random numbers are effects in order.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.programs import RecordedProgram, record_program
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.interpreter import Interpreter

__all__ = ["lower"]


def lower(module: GraphModule, *args: Any) -> RecordedProgram:
    """The program of a module's graph for arguments like these.  Parameters and buffers belong to the program, which
    changes them as the module does.

    An error says at which node of the graph it came up.

    >>> import rushlight as torch
    >>> from rushlight.fx._lowering import lower
    >>> traced = torch.fx.symbolic_trace(lambda x: (x * 2).relu_())
    >>> print(lower(traced, torch.ones(3)))
    def graph(x0: "float32[3]"):
        v0 = prim.full(shape=(3,), value=2.0, dtype=FLOAT32)  # float32[3]
        v1 = prim.mul(x0, v0)  # float32[3]
        v2 = prim.full(shape=(3,), value=0.0, dtype=FLOAT32)  # float32[3]
        v3 = prim.le(v1, v2)  # bool[3]
        v4 = prim.select(v3, v2, v1)  # float32[3]
        v5 = prim.allocate(v1)  # memory float32[3]
        v6 = prim.write(v5, v4, views=())  # memory float32[3]
        v7 = prim.read(v6)  # float32[3]
        return (v7,)
    """
    return record_program(module, *args, run=lambda module, given, named: Interpreter(module).run(*given))
