"""`torch._decomp`: aten operators as functions of simpler ones, for `make_fx` and `aot_function`.

>>> import rushlight as torch
>>> table = get_decompositions([torch.ops.aten.silu, torch.ops.aten.addmm])
>>> sorted(map(str, table))
['aten.addmm.default', 'aten.silu.default']
"""

from __future__ import annotations

from rushlight._decomp.decompositions import (
    core_aten_decompositions,
    decomposition_table,
    get_decompositions,
    register_decomposition,
    remove_decompositions,
)

__all__ = [
    "core_aten_decompositions",
    "decomposition_table",
    "get_decompositions",
    "register_decomposition",
    "remove_decompositions",
]
