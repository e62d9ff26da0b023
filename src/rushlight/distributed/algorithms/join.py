"""Uneven inputs: processes that have run out of batches go on taking part in the collectives of the others."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

import rushlight
import rushlight.distributed as dist

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """The actions of a process that has no more input: `main_hook` for every iteration of the others, `post_hook` at
    the end.
    """

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all have joined; `is_last_joiner` on those who had most input."""


class _JoinConfig:
    """Whether an object is inside of `Join`, and what was asked of it."""

    def __init__(self, enable: bool, throw: bool, first: bool) -> None:
        self.enable, self.throw_on_early_termination, self.is_first_joinable = enable, throw, first

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        """Outside of `Join`."""
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """Something with collectives in every iteration; it calls `Join.notify_join_context(self)` before them."""

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook of a process that has joined."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of its tensors."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of its collectives."""


class Join:
    """A context for a loop over batches whose number differs among the processes.

    A process that leaves the loop answers the collectives of the others until all have left.  With
    `throw_on_early_termination=True` all raise RuntimeError instead, as soon as one has left.
    """

    def __init__(
        self, joinables: list[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        groups = {id(joinable.join_process_group) for joinable in joinables}
        if len(groups) > 1:
            raise ValueError("Using join context manager with multiple process groups")
        self._joinables, self._enable, self._throw = joinables, enable, throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables] if enable else []
        self._group, self._device = joinables[0].join_process_group, joinables[0].join_device
        for k, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, k == 0)  # type: ignore[attr-defined]

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        try:
            if self._enable and not kind:
                self._answer()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig.construct_disabled_join_config()  # type: ignore[attr-defined]

    def _answer(self) -> None:
        """Take part in iterations until nobody has one."""
        last, iterations = True, 0
        while True:
            if iterations == 1000:
                warnings.warn(
                    f"Detected uneven input skew of greater than {iterations}: rank {dist.get_rank(self._group)} has so many inputs less than others",
                    stacklevel=3,
                )
            left = rushlight.zeros(1, device=self._device)
            dist.all_reduce(left, group=self._group)
            if not left.item():
                break
            if self._throw:
                dist.all_reduce(rushlight.ones(1, device=self._device), group=self._group)
                raise RuntimeError(f"Rank {dist.get_rank(self._group)} exhausted all inputs.")
            last = False
            for hook in self._hooks:
                hook.main_hook()
            iterations += 1
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Say that this process has an iteration: a `Work` with the number of those that have, or None outside of
        `Join` and for all but the first of several objects.
        """
        config = getattr(joinable, "_join_config", None)
        if config is None or not config.enable or not config.is_first_joinable:
            return None
        group, device = joinable.join_process_group, joinable.join_device
        work = dist.all_reduce(rushlight.ones(1, device=device), group=group, async_op=True)
        if config.throw_on_early_termination:
            ended = rushlight.zeros(1, device=device)
            dist.all_reduce(ended, group=group)
            if ended.item():
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work
