"""Which parameters of a module are cut, and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from rushlight.distributed._shard.sharder import Sharder
from rushlight.distributed._shard.sharding_spec import ShardingSpec
from rushlight.nn import Module

__all__ = ["ShardingPlan", "ShardingPlanner"]


@dataclass
class ShardingPlan:
    """`plan`: parameters by name and how each is cut, or modules by name and who cuts them; `output_plan`: modules whose
    results are cut anew; `return_local_tensor`: modules whose results are this process's parts.
    """

    plan: dict[str, ShardingSpec | Sharder]
    output_plan: dict[str, ShardingSpec] | None = None
    return_local_tensor: list[str] | None = None


class ShardingPlanner(ABC):
    """Makes plans of modules."""

    @abstractmethod
    def build_plan(self, module: Module) -> ShardingPlan:
        """The plan of a module."""
