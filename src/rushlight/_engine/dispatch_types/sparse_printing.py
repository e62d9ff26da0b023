"""The printed form of sparse tensors, the same as PyTorch's to the character."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core.elements import elements_of
from rushlight._engine.core.memory import is_host_memory
from rushlight._engine.core.printing import OPTIONS, append_suffixes, contents
from rushlight._engine.core.tensor import Tensor
from rushlight._types.promotion import default_dtype

__all__ = ["describe_sparse"]


def describe_sparse(x: Any) -> str:
    """The `repr`: the parts one below the other, then size, number of entries, dtype, layout."""
    coordinates = x.layout.name == "sparse_coo"
    if coordinates:
        shown = [("indices", x._where), ("values", x._held)]
        count = x._where.size(1)
    else:
        names = (
            ("crow_indices", "col_indices")
            if x.layout.name in ("sparse_csr", "sparse_bsr")
            else ("ccol_indices", "row_indices")
        )
        shown = [(names[0], x._pointers), (names[1], x._others), ("values", x._held)]
        count = x._others.size(-1)
    opening = "tensor("
    indent = len(opening)
    text = opening + (",\n" + " " * indent).join(
        f"{name}=tensor({_part(part, indent + len(name) + 8)})" for name, part in shown
    )
    suffixes = [] if is_host_memory(x._spec) else [f"device={str(x.device)!r}"]
    suffixes += [f"size={tuple(x.shape)}", f"nnz={count}"]
    if (
        x.dtype is not default_dtype()
        and x.dtype.name not in ("int64", "bool")
        and x.dtype is not default_dtype().to_complex()
    ):
        suffixes.append(f"dtype={x.dtype!r}")
    suffixes.append(f"layout={x.layout!r}")
    if x._node is not None:
        suffixes.append(f"grad_fn=<{x._node.name()}>")
    elif x._rg:
        suffixes.append("requires_grad=True")
    whole = append_suffixes(text, suffixes, indent, OPTIONS.linewidth, coordinates)
    return "Parameter containing:\n" + whole if getattr(x, "_is_param", False) else whole


def _part(part: Tensor, indent: int) -> str:
    if not part._spec.numel:
        return f"[], size={tuple(part.shape)}"
    return contents(elements_of(part), part._spec.dtype, indent, OPTIONS)
