"""Pointwise groups that become part of a library call: the epilogue of its result, or the prologue of an operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._schedule.costs import facts_of
from rushlight._schedule.groups import Group
from rushlight._schedule.schedule import LibraryCall, Schedule

if TYPE_CHECKING:
    from rushlight._schedule.expressions import Buffer

__all__ = ["fuse_epilogues", "fuse_prologues"]


# ***** epilogues *****


def fuse_epilogues(schedule: Schedule) -> None:
    """Turn groups that read a product element by element into its epilogue, from the last group to the first (see
    `Library.epilogue`).
    """
    for at in range(len(schedule.groups) - 1, 0, -1):
        group = schedule.groups[at]
        if isinstance(group, Group):
            for before in range(at - 1, -1, -1):
                product = schedule.groups[before]
                if (
                    isinstance(product, LibraryCall)
                    and product.outputs[0].buffer in reads_of(group)
                    and _follows(schedule, product, before, group, at)
                ):
                    break


def _follows(schedule: Schedule, product: LibraryCall, before: int, group: Group, at: int) -> bool:
    """Make a group the epilogue of a product, where the product may run in the group's place.  Returns whether it did."""
    library = schedule.target.library
    if product.epilogue is not None or not library.has_epilogue(product.node):
        return False
    result = product.outputs[0]
    operands = {s.buffer for s in product.inputs}
    written = stores_of(group)
    rewritten = [
        (k, *schedule.overlaps.get(i, ())) for i, k in schedule.aliases.items() if schedule.targets[i].buffer in written
    ]
    shared = {schedule.input_buffers[j] for inputs in rewritten for j in inputs}
    if operands & (written | shared) or not library.epilogue_lies(product.node, result.strides):
        return False
    for other in schedule.groups[before + 1 : at]:
        if result.buffer in reads_of(other) or any(b.role == "input" for b in stores_of(other)):
            return False
    kept = result.buffer in schedule.outputs or any(
        result.buffer in reads_of(other) for other in schedule.groups[at + 1 :]
    )
    epilogue = library.epilogue(product.node, result, group, schedule.args, kept, schedule.target)
    if epilogue is None or len(epilogue.stored) > schedule.policy.max_stores:
        return False
    product.epilogue = epilogue
    schedule.groups[at] = product
    del schedule.groups[before]
    schedule.notes.append(f"group {at} is done in rectangles of group {before}")
    return True


# ***** prologues *****


def fuse_prologues(schedule: Schedule) -> None:
    """Turn groups that compute only an operand of a large product into its prologue (see `Library.prologue`)."""
    target = schedule.target
    for product in [
        g for g in schedule.groups if isinstance(g, LibraryCall) and target.library.has_prologue(g.node, target)
    ]:
        for which in range(len(product.inputs)):
            _precedes(schedule, product, which)


def _precedes(schedule: Schedule, product: LibraryCall, which: int) -> None:
    """Make the group that computes an operand the prologue of it, where the group may run that late."""
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
    # It may be what the group reads
    if any(b.role == "input" for g in schedule.groups[writers[0] + 1 : at + 1] for b in stores_of(g)):
        return
    target, shape = schedule.target, product.node.inputs[which].shape
    prologue = target.library.prologue(source, shape, group, schedule.args, target)
    if prologue is not None:
        product.prologues[which] = prologue
        del schedule.groups[writers[0]]
        schedule.notes.append(f"group {writers[0]} is done while group {at} packs its operand {which}")


# ***** buffers of groups *****


def reads_of(group: Any) -> set[Buffer]:
    """The buffers that a group reads or, but for library calls and copies, writes."""
    if hasattr(group, "inputs"):
        parts = [part for part in (group.epilogue, *group.prologues) if part is not None]
        operands = {s.buffer for s, before in zip(group.inputs, group.prologues, strict=True) if before is None}
        return operands.union(b for part in parts for b in part.touched)
    if hasattr(group, "source"):
        return {group.source.buffer}
    stages = group.stages if isinstance(group, Group) else group.group.stages
    return {buffer for buffer, _, _ in facts_of(stages).accesses}


def stores_of(group: Any) -> set[Buffer]:
    """The buffers that a group writes."""
    if hasattr(group, "outputs"):
        return {s.buffer for s in group.outputs} if group.epilogue is None else set(group.epilogue.stored)
    if hasattr(group, "source"):
        return {group.target.buffer}
    if isinstance(group, Group):
        return {s.buffer for stage in group.stages for s in stage.stores}
    return {s.buffer for s in group.targets}
