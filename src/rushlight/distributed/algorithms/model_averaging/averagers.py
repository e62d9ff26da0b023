"""`PeriodicModelAverager`: means of parameters after every so many steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import rushlight.distributed as dist
from rushlight.distributed.algorithms.model_averaging import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager(ABC):
    """Averages parameters over a group; `step` counts the calls."""

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = dist._get_default_group() if process_group is None else process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Any) -> None:
        """Count a step, and average where it is time to."""


class PeriodicModelAverager(ModelAverager):
    """Averages after every `period` steps, once `warmup_steps` have gone by: call `average_parameters` after each step."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        self.warmup_steps, self.period = warmup_steps, period

    def average_parameters(self, params: Any) -> None:
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
