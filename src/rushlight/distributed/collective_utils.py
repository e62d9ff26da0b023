"""`torch.distributed.collective_utils`: Python objects between ranks, where a failure of one rank fails all.

Without a process group there is one rank.

>>> broadcast(lambda: 3), all_gather(5)
(3, [5])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from rushlight import distributed as dist

__all__ = ["SyncPayload", "all_gather", "all_gather_object_enforce_type", "broadcast"]

T = TypeVar("T")


@dataclass
class SyncPayload(Generic[T]):
    """A message between ranks: the stage they are in, and a value or what was raised instead."""

    stage_name: str | None
    success: bool
    payload: T
    exception: Exception | None = None


def _payload(data_or_fn: Any, stage_name: str | None, success: bool = True) -> SyncPayload[Any]:
    if not callable(data_or_fn):
        return SyncPayload(stage_name, success, data_or_fn)
    try:
        return SyncPayload(stage_name, success, data_or_fn())
    except Exception as error:  # raised in every rank
        return SyncPayload(stage_name, False, None, error)


def broadcast(
    data_or_fn: T | Callable[[], T],
    *,
    success: bool = True,
    stage_name: str | None = None,
    rank: int = 0,
    pg: Any = None,
) -> T:
    """The value, or the result of the function, of one rank, in every rank.

    RuntimeError in every rank where the function raises, or where that rank passes `success=False` (and None).
    """
    if not success and data_or_fn is not None:
        raise AssertionError("Data or Function is expected to be None if not successful")
    mine = rank == 0 if pg is None else pg.rank() == rank
    found = _payload(data_or_fn, stage_name, success) if mine else SyncPayload(stage_name, success, None)
    if pg is not None:
        objects = [found]
        dist.broadcast_object_list(objects, src=rank, group=pg)
        found = objects[0]
    if not found.success:
        stage = "" if stage_name is None else f": stage {found.stage_name}"
        why = "" if found.exception is None else f": exception {found.exception}"
        raise RuntimeError(f"Rank {rank} failed{stage}{why}") from found.exception
    payload: Any = found.payload
    return cast("T", payload)


def all_gather(data_or_fn: T | Callable[[], T], stage_name: str | None = None, pg: Any = None) -> list[T]:
    """The values, or the results of the function, of all ranks, in every rank.

    RuntimeError in every rank where one raises, with the errors by rank; ranks in other stages are named and left out.
    """
    mine = _payload(data_or_fn, stage_name)
    if pg is None:
        if not mine.success:
            raise RuntimeError(f"all_gather failed with exception {mine.exception}") from mine.exception
        return [mine.payload]
    found: list[Any] = [None] * dist.get_world_size(pg)
    all_gather_object_enforce_type(pg, found, mine)
    stage = found[0].stage_name
    text = "".join(
        f"Unexpected stage name received from rank {rank}: {each.stage_name} "
        for rank, each in enumerate(found)
        if each.stage_name != stage
    )
    here = [(rank, each) for rank, each in enumerate(found) if each.stage_name == stage]
    errors = [(rank, each.exception) for rank, each in here if not each.success and each.exception is not None]
    if errors:
        raise RuntimeError(text, errors) from errors[0][1]
    return [each.payload for _, each in here]


def all_gather_object_enforce_type(
    pg: Any,
    object_list: list[Any],
    obj: Any,
    type_checker: Callable[[Any, Any], bool] = lambda x, y: type(x) is type(y),
) -> None:
    """`all_gather_object`, and a TypeError in every rank where `type_checker` of the first object and another is False."""
    dist.all_gather_object(object_list, obj, group=pg)
    for rank, each in enumerate(object_list[1:], 1):
        if not type_checker(object_list[0], each):
            raise TypeError(
                f"Object type at index {rank} is {type(each)}, while first object type is {type(object_list[0])}"
            )
