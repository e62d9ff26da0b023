"""Which parameters of a module are cut, and how."""

from __future__ import annotations

from rushlight.distributed._shard.sharding_plan.api import ShardingPlan, ShardingPlanner

__all__ = ["ShardingPlan", "ShardingPlanner"]
