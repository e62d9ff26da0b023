"""Steps of a checkpoint: every process does its part, the coordinator its own, and an exception of one is one on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.checkpoint.api import CheckpointException, _is_wrapped_exception, _wrap_exception

__all__ = ["Steps"]


class Steps:
    """The processes of a checkpoint: `group` (all of the job), or this one alone where `use_dist` is false."""

    def __init__(self, group: Any, use_dist: bool, coordinator_rank: int) -> None:
        self.group = group
        self.use_dist = use_dist
        self.coordinator_rank = coordinator_rank
        self.rank = dist.get_rank(group) if use_dist else 0
        self.size = dist.get_world_size(group) if use_dist else 1
        self.is_coordinator = self.rank == coordinator_rank if use_dist else True

    def reduce_scatter(self, step: str, local: Callable[[], Any], together: Callable[[list[Any]], list[Any]]) -> Any:
        """Reduce with `together` the results of `local` on all processes; each gets its own part."""
        parts = self._gather(_tried(local))
        answers: list[Any] | None = None
        if self.is_coordinator:
            made = self._combined(step, parts, together)
            answers = made if isinstance(made, list) else [made] * self.size
        return _opened(step, self._scatter(answers))

    def all_reduce(self, step: str, local: Callable[[], Any], together: Callable[[list[Any]], Any]) -> Any:
        """Reduce with `together` the results of `local` on all processes; all get the result."""
        parts = self._gather(_tried(local))
        answer = self._combined(step, parts, together) if self.is_coordinator else None
        return _opened(step, self._broadcast(answer))

    def all_gather(self, step: str, local: Callable[[], Any]) -> list[Any]:
        """Gather the results of `local` on all processes; all get all of them."""
        mine = _tried(local)
        parts = [mine]
        if self.use_dist:
            parts = [None] * self.size
            dist.all_gather_object(parts, mine, group=self.group)
        failures = _failures(parts)
        if failures:
            raise CheckpointException(step, failures)
        return parts

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.use_dist:
            dist.barrier(group=self.group)

    def _combined(self, step: str, parts: list[Any], together: Callable[[list[Any]], Any]) -> Any:
        """The coordinator's result for all parts, or the exception of whoever failed."""
        failures = _failures(parts)
        if not failures:
            made = _tried(lambda: together(parts))
            if not _is_wrapped_exception(made):
                return made
            failures = {self.rank: made}
        return CheckpointException(step, failures)

    def _gather(self, value: Any) -> list[Any]:
        if not self.use_dist:
            return [value]
        found = [None] * self.size if self.is_coordinator else None
        dist.gather_object(value, found, group=self.group, group_dst=self.coordinator_rank)
        return found or []

    def _scatter(self, values: list[Any] | None) -> Any:
        if not self.use_dist:
            assert values is not None
            return values[0]
        found = [None]
        dist.scatter_object_list(found, values, group=self.group, group_src=self.coordinator_rank)
        return found[0]

    def _broadcast(self, value: Any) -> Any:
        if not self.use_dist:
            return value
        held = [value]
        dist.broadcast_object_list(held, group=self.group, group_src=self.coordinator_rank)
        return held[0]


def _tried(function: Callable[[], Any]) -> Any:
    """Result of a function; its exception as a value, so that the other ranks hear of it."""
    try:
        return function()
    except BaseException as error:
        return _wrap_exception(error)


def _failures(parts: list[Any]) -> dict[int, Any]:
    return {rank: part for rank, part in enumerate(parts) if _is_wrapped_exception(part)}


def _opened(step: str, value: Any) -> Any:
    """A value; raised if it is the exception of a step."""
    if isinstance(value, CheckpointException):
        raise value
    return value
