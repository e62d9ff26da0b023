"""The table of groups, and how a group carries out a collective that a record describes.

Graphs name a group by its number.  `steps_of` is the one place that knows which call of a communicator a primitive is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from rushlight._distributed.engines.buffers import Buffer, Reduction, copy_bytes
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.group import GROUPS, Group
from rushlight._distributed.groups.operation import Operation

# Collectives that a communicator carries out in place.
IN_PLACE = ("all_reduce", "reduce_to", "broadcast_from")

__all__ = ["GROUPS", "IN_PLACE", "group_numbered", "operation_of", "steps_of"]


def group_numbered(number: int) -> Group:
    """The group of a number; DistBackendError where it has been destroyed."""
    found = GROUPS.get(number)
    if found is None:
        raise DistBackendError(f"a compiled program communicates in group {number}, which has been destroyed")
    return found


def operation_of(
    number: int, name: str, buffers: tuple[Buffer, Buffer], specs: tuple[Any, Any], params: Mapping[str, Any]
) -> Operation:
    """The collective `name` of group `number` from a buffer into another one; `specs` describe them.

    DistBackendError where the group is gone, or another one than the program was made for.
    """
    group = group_numbered(number)
    if group.size != params["size"] or params.get("place", group.rank) != group.rank:
        raise DistBackendError(
            f"a compiled program was made for place {params.get('place')} among {params['size']} processes of group "
            f"{number}, which now has {group.size}"
        )
    steps = steps_of(group, name, *buffers, params)
    return Operation(group, _name_of(group, name, params), steps, specs[:1], buffers[0].nbytes, specs[1:])


def _name_of(group: Group, name: str, params: Mapping[str, Any]) -> str:
    """The name of the function that does the same eagerly."""
    if name == "broadcast_from":
        return f"broadcast(from {group.ranks[params['root']]})"
    if name == "reduce_to":
        return f"reduce({params['reduce']}, to {group.ranks[params['root']]})"
    return f"{name}({params['reduce']})" if "reduce" in params else name.replace("permute_ranks", "all_to_all")


def steps_of(group: Group, name: str, x: Buffer, out: Buffer, params: Mapping[str, Any]) -> list[Any]:
    """The steps of a collective, whose parameters are those of the primitive.  Those in `IN_PLACE` may have `out` where
    `x` is.
    """
    communicator = group.communicator
    if name in ("all_reduce", "reduce_to", "reduce_scatter"):
        x, out = x.real_parts(), out.real_parts()
    if name in ("all_reduce", "reduce_to", "broadcast_from"):
        steps: list[Any] = []
        if x.address != out.address:
            steps.append(lambda: copy_bytes(out.address, x.address, x.nbytes))
        if name == "broadcast_from":
            return steps + communicator.broadcast(out, params["root"])
        reduction = Reduction(params["reduce"], params["factor"])
        if name == "all_reduce":
            return steps + communicator.all_reduce(out, reduction)
        steps += communicator.reduce(out, reduction, params["root"])
        return steps if params["root"] == group.rank else [*steps, lambda: ctypes.memset(out.address, 0, out.nbytes)]
    if name == "all_gather":
        parts = out.pieces(params["sizes"])
        return list(communicator.all_gather(x, parts, together=params["together"]))
    if name == "reduce_scatter":
        parts = x.pieces(params["sizes"])
        return list(communicator.reduce_scatter(out, parts, Reduction(params["reduce"], params["factor"]), True))
    if name == "all_to_all":
        got, sent = out.pieces(params["got"]), x.pieces(params["sent"])
        return list(communicator.all_to_all(got, sent, together=params["together"]))
    if name == "permute_ranks":
        to, ranks = params["to"], range(group.size)
        got = out.pieces([int(to[k] == group.rank) for k in ranks])
        return list(communicator.all_to_all(got, x.pieces([int(to[group.rank] == k) for k in ranks])))
    raise NotImplementedError(f"no communicator carries out prim.{name}")
