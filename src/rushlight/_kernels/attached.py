"""Groups that become part of a product: its epilogue where they read what it makes, its prologue where they make an operand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rushlight._kernels.convolution import places_apart, takes_epilogue
from rushlight._kernels.epilogue import epilogue_of, prologue_of, reads_of, stores_of
from rushlight._kernels.grouping import MAX_STORES
from rushlight._kernels.groups import Group
from rushlight._kernels.placing import Extern, Placing
from rushlight._kernels.products import takes_prologues
from rushlight._types.layout import contiguous_strides, numel

if TYPE_CHECKING:
    from rushlight._graph.core import Node
    from rushlight._types.dtype import DType

__all__ = ["fuse_epilogues", "fuse_prologues"]


# ***** what follows a product *****


def fuse_epilogues(schedule: Placing) -> None:
    """Groups that read a product element by element become its epilogue (see `epilogue.py`); the last products first."""
    for at in range(len(schedule.groups) - 1, 0, -1):
        group = schedule.groups[at]
        if isinstance(group, Group):
            for before in range(at - 1, -1, -1):
                product = schedule.groups[before]
                if (
                    isinstance(product, Extern)
                    and product.outputs[0].buffer in reads_of(group)
                    and _follows(schedule, product, before, group, at)
                ):
                    break


def _follows(schedule: Placing, product: Extern, before: int, group: Group, at: int) -> bool:
    """Put the group into the product, where that may run in the group's place and the group fits it."""
    sums = _sums_of(product.node)
    if sums is None or product.epilogue is not None:
        return False
    made = product.outputs[0]
    operands = {s.buffer for s in product.inputs}
    written = stores_of(group)
    rewritten = [
        (k, *schedule.overlaps.get(i, ())) for i, k in schedule.aliases.items() if schedule.targets[i].buffer in written
    ]
    shared = {schedule.input_buffers[j] for inputs in rewritten for j in inputs}
    if operands & (written | shared) or made.strides != contiguous_strides(product.node.outputs[0].shape):
        return False
    for other in schedule.groups[before + 1 : at]:
        if made.buffer in reads_of(other) or any(b.role == "input" for b in stores_of(other)):
            return False
    kept = made.buffer in schedule.outputs or any(made.buffer in reads_of(other) for other in schedule.groups[at + 1 :])
    found = epilogue_of(
        _matrices_of(product.node),
        made.buffer,
        group,
        sums,
        schedule.args,
        kept,
        schedule.target,
        places_apart(product.node),
    )
    if found is None or len(found.stored) > MAX_STORES:
        return False
    product.epilogue = found
    schedule.groups[at] = product
    del schedule.groups[before]
    schedule.notes.append(f"group {at} is done in rectangles of group {before}")
    return True


def _sums_of(node: Node) -> DType | None:
    """The dtype in which a product is computed; None for what is no product of matrices, or has no routine with an epilogue."""
    if node.prim.name == "conv_windows" and takes_epilogue(node):
        return node.outputs[0].dtype.wide
    if node.prim.name != "dot":
        return None
    dtype = node.outputs[0].dtype
    if dtype.kind in "iu" and dtype.itemsize < 4:
        return None
    return dtype.wide


def _matrices_of(node: Node) -> tuple[int, ...]:
    """The shape of what a product makes, as matrices: of a convolution channels x places for each image."""
    shape = node.outputs[0].shape
    return shape if node.prim.name != "conv_windows" else (shape[0], shape[1] * shape[2], numel(shape[3:]))


# ***** what comes before a product *****


def fuse_prologues(schedule: Placing) -> None:
    """Groups that make nothing but an operand of a large product become its prologue (see `epilogue.py`)."""
    for product in [
        g for g in schedule.groups if isinstance(g, Extern) and takes_prologues(g.node, schedule.target.vector_bytes)
    ]:
        for which in range(len(product.inputs)):
            _precedes(schedule, product, which)


def _precedes(schedule: Placing, product: Extern, which: int) -> None:
    """Put the group that makes an operand into the product, where it may run so late and fits."""
    source, at = product.inputs[which], schedule.groups.index(product)
    writers = [n for n, g in enumerate(schedule.groups) if source.buffer in stores_of(g)]
    if source.buffer.role != "temporary" or len(writers) != 1:
        return
    group = schedule.groups[writers[0]]
    if (
        not isinstance(group, Group)
        or sum(source.buffer in reads_of(g) for g in schedule.groups if g is not group) != 1
    ):
        return
    if [s.buffer for s in product.inputs].count(source.buffer) != 1:
        return
    if any(
        b.role == "input" for g in schedule.groups[writers[0] + 1 : at + 1] for b in stores_of(g)
    ):  # it may be what the group reads
        return
    found = prologue_of(source, product.node.inputs[which].shape, group, schedule.args, schedule.target)
    if found is not None:
        product.prologues[which] = found
        del schedule.groups[writers[0]]
        schedule.notes.append(f"group {writers[0]} is done while group {at} packs its operand {which}")
