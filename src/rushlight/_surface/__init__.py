"""Public functions and methods: those made from the operator table, in-place and `out=` forms included, and those
written by hand.
"""

from __future__ import annotations

from typing import Any

import rushlight._engine.dispatch.override
import rushlight._engine.sharing.pickling
import rushlight._ops.families
from rushlight._surface import casts, factories, legacy, methods, settings, switches, to_python
from rushlight._surface.composites import register_composites
from rushlight._surface.engine_ops import provide_engine_operators
from rushlight._surface.operators import install_python_operators
from rushlight._surface.random import draws, dropout, gamma_draws, random
from rushlight._surface.registry import SPACES, SPARSE_FACTORIES, LazyMethod, install_operators

__all__ = ["SPACES", "SPARSE_FACTORIES", "LazyMethod", "nn_function", "nn_function_names"]

register_composites()
install_operators()
install_python_operators()
provide_engine_operators()
methods.name_methods()


def nn_function(name: str) -> Any:
    """The function of `nn.functional` with this name, or None."""
    return SPACES["nn.functional"].get(name)


def nn_function_names() -> list[str]:
    """Names in `nn.functional` that come from the operator table or from composites."""
    return list(SPACES["nn.functional"])
