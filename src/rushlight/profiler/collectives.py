"""Collectives in profiles: what a process group did, on the caller's thread or beside it."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

from rushlight.profiler.events import FunctionEvent

__all__ = [
    "collective_event",
    "collective_row",
    "communication_thread",
    "distributed_info",
    "functional_name",
    "operations_since",
]

_COMMUNICATION = "rushlight-communication"  # the name of the thread


def communication_thread() -> int | None:
    """The native number of the thread that runs asynchronous operations."""
    return next((t.native_id for t in threading.enumerate() if t.name == _COMMUNICATION), None)


def is_beside(operation: Any) -> bool:
    """Whether an operation did not run on its caller's thread."""
    return operation.event is not None


def span(operation: Any, end: int) -> tuple[int, int]:
    """When it ran, in nanoseconds; until `end` where it runs still."""
    began = int(1e9 * (operation.began or operation.created))
    return began, max(int(1e9 * operation.ended) if operation.ended else end, began)


def torch_name(operation: Any) -> str:
    """`gloo:all_reduce`, or the name that `record_comm` gave."""
    if operation.label is not None:
        return str(operation.label)
    name = operation.name.partition("(")[0]
    short = {
        "all_gather_into_tensor": "all_gather",
        "reduce_scatter_tensor": "reduce_scatter",
        "all_to_all_single": "all_to_all",
    }
    return f"gloo:{short.get(name, name)}"


def specs_in(operation: Any) -> Any:
    """The specs of its inputs, as far as they are known."""
    return () if callable(operation.inputs) else operation.inputs


def collective_event(operation: Any, began: int, end: int, number: int, shapes: bool) -> FunctionEvent:
    """The event of an operation; times in microseconds after `began`."""
    start, stop = span(operation, end)
    return FunctionEvent(
        id=number,
        name=torch_name(operation),
        trace_name=torch_name(operation),
        thread=2 if is_beside(operation) else 1,
        start_us=(start - began) / 1000,
        end_us=(stop - began) / 1000,
        overload_name="",
        input_shapes=[list(x.shape) for x in specs_in(operation)] if shapes else [],
        stack=[],
        is_async=is_beside(operation),
        is_user_annotation=True,
        activity_type="user_annotation",
    )


def collective_row(operation: Any, end: int, process: int, threads: tuple[int, int], number: int) -> dict[str, Any]:
    """The row of a trace; `threads` are the caller's and the one beside it."""
    start, stop = span(operation, end)
    group, inputs, outputs = operation.group, specs_in(operation), operation.outputs
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": torch_name(operation),
        "pid": process,
        "tid": threads[is_beside(operation)],
        "ts": start / 1000,
        "dur": (stop - start) / 1000,
        "args": {
            "External id": number + 1,
            "Ev Idx": number,
            "Collective name": operation.name.partition("(")[0],
            "Reduction": operation.name.partition("(")[2].rstrip(")"),
            "dtype": inputs[0].dtype.name if inputs else "",
            "In msg nelems": sum(math.prod(x.shape) for x in inputs),
            "Out msg nelems": sum(math.prod(x.shape) for x in outputs),
            "In bytes": operation.nbytes,
            "Input Dims": [list(x.shape) for x in inputs],
            "Group size": group.size,
            "Rank": group.rank,
            "Seq": operation.number,
            "Is asynchronized op": is_beside(operation),
            "Process Group Name": group.name,
            "Process Group Description": group.description,
            "Process Group Ranks": str(list(group.ranks)),
            "Blocked us": 1e6 * operation.blocked,
            "Called us": 1e6 * operation.created,
        },
    }


def functional_name(operation: Any) -> str:
    """The functional collective that an operation of a compiled program is, by PyTorch's name."""
    name = str(operation.name.partition("(")[0])
    return {
        "all_gather": "all_gather_into_tensor",
        "reduce_scatter": "reduce_scatter_tensor",
        "all_to_all": "all_to_all_single",
    }.get(name, name)


def operations_since(began: int, known: set[int]) -> list[Any]:
    """Operations of process groups that this process asked for since a time (nanoseconds), but those that are known (by
    `id`): what compiled programs communicate is told by nobody else.
    """
    module: Any = sys.modules.get("rushlight._distributed.groups.flight")
    found: list[Any] = []
    for operation in reversed(module.FLIGHT.operations() if module is not None else ()):
        if 1e9 * operation.created < began:
            break
        if id(operation) not in known:
            found.append(operation)
    return found[::-1]


def distributed_info() -> dict[str, Any]:
    """The key `distributedInfo` of a trace, in a process of a job; else nothing."""
    module: Any = sys.modules.get("rushlight.distributed.c10d.world")
    if module is None or module.WORLD.default is None:
        return {}
    world = module.WORLD
    configs = [
        {
            "pg_name": pg.group_name,
            "pg_desc": pg.group_desc,
            "backend_config": str(pg._config),
            "pg_size": pg.size(),
            "ranks": list(pg._group.ranks),
        }
        for pg in world.groups
    ]
    own = world.default
    info = {"backend": own._backend, "rank": own.rank(), "world_size": own.size(), "pg_count": len(configs)}
    return {"distributedInfo": {**info, "pg_config": configs}}
