"""Programs that cut modules in their own way."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rushlight.nn import Module

__all__ = ["Sharder"]


class Sharder(ABC):
    """Makes a sharded module of a module; a value of a `ShardingPlan`."""

    @abstractmethod
    def shard(self, module: Module) -> Module:
        """The module that takes its place."""
