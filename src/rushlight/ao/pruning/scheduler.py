"""Schedules of how many weights are zero."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight.ao.pruning.sparsifier import BaseSparsifier

__all__ = ["BaseScheduler", "CubicSL", "LambdaSL"]


class BaseScheduler:
    """Base of schedules: `get_sl` gives the sparsity level of each group, `step` sets it."""

    def __init__(self, sparsifier: Any, last_epoch: int = -1, verbose: bool = False) -> None:
        if not isinstance(sparsifier, BaseSparsifier):
            raise TypeError(f"{type(sparsifier).__name__} is not an instance of torch.ao.pruning.BaseSparsifier")
        self.sparsifier, self.verbose, self.last_epoch = sparsifier, verbose, last_epoch
        self.base_sl = [group["sparsity_level"] for group in sparsifier.groups]
        self._step_count, self._get_sl_called_within_step = 0, False
        self._last_sl: list[float] = []
        self.step()

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the sparsifier."""
        return {k: v for k, v in self.__dict__.items() if k != "sparsifier"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""
        self.__dict__.update(state_dict)

    def get_last_sl(self) -> list[float]:
        """The levels that were set last."""
        return self._last_sl

    def get_sl(self) -> list[float]:
        """The levels of this epoch."""
        if not self._get_sl_called_within_step:
            warnings.warn(
                "To get the last sparsity level computed by the scheduler, please use `get_last_sl()`.", stacklevel=2
            )
        raise NotImplementedError

    def print_sl(self, is_verbose: bool, group: Any, sl: float, epoch: Any = None) -> None:
        """Show a level, where that is asked for."""
        if is_verbose:
            place = f"Epoch {epoch:5d}: adjusting" if epoch is not None else "Adjusting"
            print(f"{place} sparsity level of group {group} to {sl:.4e}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__} (\nSparsifier {self.sparsifier}\n    base_sl: {self.base_sl}\n)"

    def step(self, epoch: Any = None) -> None:
        """Set the levels of the next epoch."""
        self._step_count += 1
        self._get_sl_called_within_step = True
        try:
            self.last_epoch += 1
            levels = self.get_sl()
        finally:
            self._get_sl_called_within_step = False
        for k, (group, level) in enumerate(zip(self.sparsifier.groups, levels, strict=True)):
            group["sparsity_level"] = level
            self.print_sl(self.verbose, k, level, epoch)
        self._last_sl = [group["sparsity_level"] for group in self.sparsifier.groups]
        self.sparsifier.enable_mask_update = True


class LambdaSL(BaseScheduler):
    """The first level times a function of the epoch."""

    def __init__(self, sparsifier: Any, sl_lambda: Any, last_epoch: int = -1, verbose: bool = False) -> None:
        n = len(sparsifier.groups)
        self.sl_lambdas = list(sl_lambda) if isinstance(sl_lambda, (list, tuple)) else [sl_lambda] * n
        if len(self.sl_lambdas) != n:
            raise ValueError(f"Expected {n} lr_lambdas, but got {len(self.sl_lambdas)}")
        super().__init__(sparsifier, last_epoch, verbose)

    def get_sl(self) -> list[float]:
        """The levels of this epoch."""
        return [base * function(self.last_epoch) for function, base in zip(self.sl_lambdas, self.base_sl, strict=True)]


class CubicSL(BaseScheduler):
    """From `init_sl` to the group's level by a cubic curve of `total_t` steps of `delta_t` epochs (Zhu and Gupta, 2017)."""

    def __init__(
        self, sparsifier: Any, init_sl: Any = 0.0, init_t: Any = 0, delta_t: Any = 10, total_t: Any = 100, initially_zero: Any = False,
        last_epoch: int = -1, verbose: bool = False,
    ) -> None:  # fmt: skip
        self.sparsifier = sparsifier
        self.init_sl, self.init_t, self.delta_t, self.total_t, self.initially_zero = (
            list(v) if isinstance(v, (list, tuple)) else [v] * len(sparsifier.groups)
            for v in (init_sl, init_t, delta_t, total_t, initially_zero)
        )
        super().__init__(sparsifier, last_epoch, verbose)

    @staticmethod
    def sparsity_compute_fn(
        s_0: float, s_f: float, t: int, t_0: int, dt: int, n: int, initially_zero: bool = False
    ) -> float:
        """The level at epoch `t` of the curve from `s_0` to `s_f`."""
        if initially_zero and t < t_0:
            return 0
        found = s_f + (s_0 - s_f) * (1 - (t - t_0) / (dt * n)) ** 3
        low, high = sorted((s_0, s_f))
        return min(max(found, low), high)

    def get_sl(self) -> list[float]:
        """The levels of this epoch."""
        settings = zip(
            self.init_sl, self.base_sl, self.init_t, self.delta_t, self.total_t, self.initially_zero, strict=True
        )
        return [
            self.sparsity_compute_fn(first, last, self.last_epoch, start, dt, n, zero)
            for first, last, start, dt, n, zero in settings
        ]
