"""How each primitive is computed on CUDA devices: what docs/cuda-primitives.md shows.

>>> from rushlight._backends.cuda.reports.coverage import way_of
>>> from rushlight._prims import PRIMITIVES
>>> way_of(PRIMITIVES["exp"]).split(":")[0], way_of(PRIMITIVES["dot"]).split(":")[0]
('kernel', 'routine')
"""

from __future__ import annotations

from rushlight._backends.cuda import library  # noqa: F401  (fills the table of routines)
from rushlight._backends.cuda.externs import EXTERNS
from rushlight._backends.cuda.linalg.lapack import HOST_PARTS
from rushlight._backends.cuda.linalg.solver import ROUTINES
from rushlight._prims import PRIMITIVES
from rushlight._prims.record import Primitive

__all__ = ["table", "way_of"]

_KERNELS = {
    "scalar": "part of the kernel that reads it",
    "index": "an index expression of the kernel that reads it",
    "gather": "reads at indices, checked, in the kernel that reads it",
    "index_read": "reads at indices, checked, in the kernel that reads it",
    "reduce": "rows in registers or in tiles; few long rows in parts",
    "argreduce": "rows in tiles, values with their positions",
    "scan": "rows in tiles, with what is carried from tile to tile",
    "scatter": "one after another; many by sorted places, equal ones in order",
    "index_write": "one after another; many by sorted places, equal ones in order",
}


def way_of(primitive: Primitive) -> str:
    """Which way a primitive is computed, and how."""
    kind, routine = primitive.lower[0], EXTERNS.get(primitive.name)
    if kind != "extern":
        return f"kernel: {_KERNELS[kind]}"
    place = "" if routine is None else routine.build.__module__.removeprefix("rushlight.").replace(".", "/") + ".py"
    if routine is not None:
        rest = "; else its decomposition" if primitive.decompose is not None else ""
        if primitive.name in HOST_PARTS:
            also = "; cuSOLVER where it was measured to be faster" if primitive.name in ROUTINES else ""
            rest = f"; by the host's LAPACK: {HOST_PARTS[primitive.name]}{also}{rest}"
        return f"routine: `{place}`{rest}"
    if primitive.decompose is not None:
        return "decomposition"
    return "missing: NotImplementedError with its name"


def table() -> str:
    """The page's table."""
    rows = ["| primitive | family | on CUDA devices |", "| --- | --- | --- |"]
    rows += [f"| `{name}` | {p.family} | {way_of(p)} |" for name, p in sorted(PRIMITIVES.items())]
    return "\n".join(rows)
