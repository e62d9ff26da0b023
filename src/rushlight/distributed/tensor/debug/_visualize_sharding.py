"""`visualize_sharding`: a table of which rank has which part of a tensor."""

from __future__ import annotations

import itertools
from typing import Any

from rushlight._interface.sharding import Part
from rushlight.distributed.tensor.placement_types import Shard

__all__ = ["visualize_sharding"]

Block = tuple[tuple[int, int], tuple[int, int]]


def visualize_sharding(dtensor: Any, header: str = "", use_rich: bool = False) -> None:
    """Print which ranks have which rows and columns of a DTensor of one or two dims; the first rank of its mesh prints.

    RuntimeError for more dims.  `use_rich` is taken as PyTorch's; the table is text in any case.
    """
    if dtensor.numel() == 0:
        return
    if dtensor.ndim > 2 or not dtensor.ndim:
        raise RuntimeError("visualize sharding supports only 1D or 2D DTensor")
    mesh = dtensor.device_mesh
    if mesh.get_coordinate() is None or any(mesh.get_coordinate()):
        return
    if header:
        print(header)
    print(_table(dtensor))


def _table(dtensor: Any) -> str:
    mesh, held = dtensor.device_mesh, {}  # type: ignore[var-annotated]
    for coordinate in itertools.product(*map(range, mesh.shape)):
        rank = int(mesh.mesh[coordinate].item())
        block = _block(dtensor, coordinate)
        if block is not None:
            held.setdefault(block, []).append(rank)
    rows, columns = sorted({b[0] for b in held}), sorted({b[1] for b in held})
    kind = mesh.device_type
    table = [["", *(f"Col {a}-{b - 1}" for a, b in columns)]]
    for row in rows:
        cells = [", ".join(f"{kind}:{rank}" for rank in held.get((row, column), [])) for column in columns]
        table.append([f"Row {row[0]}-{row[1] - 1}", *cells])
    widths = [max(len(line[k]) for line in table) for k in range(len(columns) + 1)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _block(dtensor: Any, coordinate: tuple[int, ...]) -> Block | None:
    """The rows and columns of the process at a place of the mesh; None for one that has none."""
    spans = [(0, extent) for extent in dtensor.shape] + [(0, 1)] * (2 - dtensor.ndim)
    for axis, placement in enumerate(dtensor.placements):
        if isinstance(placement, Shard):
            first, last = spans[placement.dim]
            start, stop = Part(dtensor.device_mesh.shape[axis], coordinate[axis]).span(last - first)
            spans[placement.dim] = (first + start, first + stop)
    if any(a >= b for a, b in spans):
        return None
    return spans[0], spans[1]
