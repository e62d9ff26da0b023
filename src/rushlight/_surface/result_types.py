"""Which functions return named tuples, and with which fields: `rushlight.return_types` shows the types."""

from __future__ import annotations

from typing import Any

from rushlight._engine.dispatch.plans.results import OUT, result_name, result_type_of
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import SPACES

__all__ = ["result_type", "result_types"]

# Composites: their fields.  `linalg_svd` is `linalg.svd`.
_FIELDS: dict[str, tuple[str, ...]] = {
    "frexp": ("mantissa", "exponent"),
    "geqrf": ("a", "tau"),
    "histogram": ("hist", "bin_edges"),
    "histogramdd": ("hist", "bin_edges"),
    "linalg_cholesky_ex": ("L", "info"),
    "linalg_eig": ("eigenvalues", "eigenvectors"),
    "linalg_eigh": ("eigenvalues", "eigenvectors"),
    "linalg_inv_ex": ("inverse", "info"),
    "linalg_ldl_factor": ("LD", "pivots"),
    "linalg_ldl_factor_ex": ("LD", "pivots", "info"),
    "linalg_lstsq": ("solution", "residuals", "rank", "singular_values"),
    "linalg_lu": ("P", "L", "U"),
    "linalg_lu_factor": ("LU", "pivots"),
    "linalg_lu_factor_ex": ("LU", "pivots", "info"),
    "linalg_qr": ("Q", "R"),
    "linalg_slogdet": ("sign", "logabsdet"),
    "linalg_solve_ex": ("result", "info"),
    "linalg_svd": ("U", "S", "Vh"),
    "lu_unpack": ("P", "L", "U"),
    "mode": ("values", "indices"),
    "nanmedian": ("values", "indices"),
    "qr": ("Q", "R"),
    "slogdet": ("sign", "logabsdet"),
    "svd": ("U", "S", "V"),
    "triangular_solve": ("solution", "cloned_coefficient"),
}
_NO_OUT = frozenset(("histogramdd",))


def _fields() -> dict[str, tuple[str, ...]]:
    """Name -> fields, of all functions that are there."""
    torch, linalg = SPACES["torch"], SPACES["linalg"]

    def exists(name: str) -> bool:
        return name.removeprefix("linalg_") in linalg if name.startswith("linalg_") else name in torch

    found = {name: fields for name, fields in _FIELDS.items() if exists(name)}
    for op in OPERATORS.values():
        named = "(Tensor " in op.signature.rpartition("->")[2] and len(op.schema.results) > 1
        # Cores have results that users do not see
        if named and (op.spaces or op.name.endswith("_dim")) and exists(result_name(op)):
            found.setdefault(result_name(op), tuple(op.schema.results))
    return found


def result_types() -> list[str]:
    """Names of all types, with `_out` for results that were written to `out=`."""
    fields = _fields()
    return sorted([*fields, *[name + OUT for name in fields if name not in _NO_OUT]])


def result_type(name: str) -> Any:
    """The type of this name; None where no function returns it."""
    fields = _fields().get(name.removesuffix(OUT))
    if fields is None or name.endswith(OUT) and name.removesuffix(OUT) in _NO_OUT:
        return None
    return result_type_of(name, fields)
