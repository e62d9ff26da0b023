"""Averages in small groups often, and in larger ones now and then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rushlight.distributed as dist
from rushlight.distributed.algorithms.model_averaging import averagers, utils

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(averagers.ModelAverager):
    """Averages over groups of several sizes: `period_group_size_dict` maps periods to sizes, both growing; the largest size
    is that of the whole group.

    Example: `HierarchicalModelAverager({4: 8, 16: 64})` averages 8 neighbours every 4 steps and all 64 every 16.
    """

    def __init__(
        self, period_group_size_dict: Mapping[int, int], warmup_steps: int = 0, process_group: Any = None
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        self._periods, sizes = list(period_group_size_dict), list(period_group_size_dict.values())
        if self._periods[0] <= 0 or sorted(set(self._periods)) != self._periods:
            raise ValueError("Periods must be positive numbers that grow.")
        if sizes[0] <= 1 or sorted(set(sizes)) != sizes:
            raise ValueError("Group sizes must be larger than 1 and grow with the periods.")
        if any(longer % shorter for shorter, longer in zip(self._periods, self._periods[1:], strict=False)):
            raise ValueError("Every period must be a multiple of the one before.")
        size = dist.get_world_size(self.process_group)
        if sizes[-1] != size:
            raise ValueError(
                f"The last value in arg ``period_process_group_dict`` {sizes[-1]} must be equal to the size of arg ``process_group`` {size}."
            )
        self.period_process_group_dict = {
            period: self.process_group if count == size else dist.new_subgroups(count, self.process_group)[0]
            for period, count in period_group_size_dict.items()
        }
        self.warmup_steps = warmup_steps

    def average_parameters(self, params: Any) -> None:
        """Count a step; average over the largest group whose period it ends."""
        if self.step >= self.warmup_steps:
            ended = [period for period in self._periods if self.step % period == 0]
            if ended:
                utils.average_parameters_or_parameter_groups(params, self.period_process_group_dict[ended[-1]])
        self.step += 1
