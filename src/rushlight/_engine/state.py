"""The dispatch state of a thread: one word that holds everything a dispatcher would look at.

It is part of every signature, so a plan is right for the state in which it was made and nothing is asked twice.
"""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["ANOMALY", "FUNCTION_MODE", "GRAD", "INFERENCE", "SAVED_HOOKS", "STATE", "clear_plans", "new_plan_table", "plan_counts"]

GRAD, INFERENCE, ANOMALY, SAVED_HOOKS, FUNCTION_MODE = 1, 2, 4, 8, 16


class _State(threading.local):
    """Per thread: `word` (bits above), hooks for saved tensors, and whether subclass overrides are switched off."""

    def __init__(self) -> None:
        self.word = GRAD
        self.saved_hooks: list[tuple[Any, Any]] = []
        self.overrides_off = 0
        self.function_modes: list[Any] = []
        self.anomaly_check_nan = True
        self.task: Any = None  # the backward call that is running
        self.current_node: Any = None


STATE = _State()

# Plans are kept while the table is small; a program that never repeats a signature must not grow without bound.
_MAX_PLANS = 1 << 16
_TABLES: list[dict[Any, Any]] = []


class PlanTable(dict[Any, Any]):
    """Signature -> plan.  Emptied when it has grown too large: plans are cheap to make again."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= _MAX_PLANS:
            self.clear()
        dict.__setitem__(self, key, value)


def new_plan_table() -> PlanTable:
    """A table that `clear_plans` knows of."""
    table = PlanTable()
    _TABLES.append(table)
    return table


def clear_plans() -> None:
    """Forget every plan, as when the default dtype changes."""
    for table in _TABLES:
        table.clear()


def plan_counts() -> int:
    """How many plans are held."""
    return sum(map(len, _TABLES))
