"""`torch.fx.passes.pass_manager`: passes of any kind in an order that constraints check.

>>> PassManager([lambda x: x + 1, loop_pass(lambda x: x * 2, n_iter=3)])(1)
16
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from rushlight.fx.passes.infra.pass_manager import PassSchedule, this_before_that_pass_constraint

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "log_hook",
    "loop_pass",
    "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]

logger = logging.getLogger(__name__)
Pass = Callable[..., Any]
Constraint = Callable[[Pass, Pass], bool]


def inplace_wrapper(fn: Pass) -> Pass:
    """A function that changes its first argument, as one that returns it."""

    @wraps(fn)
    def wrapped(gm: Any, *args: Any, **kwargs: Any) -> Any:
        fn(gm, *args, **kwargs)
        return gm

    return wrapped


def log_hook(fn: Pass, level: int = logging.INFO) -> Pass:
    """Log what a function returns."""

    @wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value = fn(*args, **kwargs)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, value)
        return value

    return wrapped


def loop_pass(base_pass: Pass, n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None) -> Pass:
    """A pass repeated `n_iter` times, or as long as `predicate` holds of the result.

    AssertionError unless exactly one of the two is given; RuntimeError for fewer than one time, when it runs.
    """
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @wraps(base_pass)
    def repeated(source: Any) -> Any:
        if n_iter is not None and n_iter <= 0:
            raise RuntimeError(
                f"loop_pass must be given positive int n_iter (given {n_iter}) xor predicate (given {predicate})"
            )
        value, done = source, 0
        while done < n_iter if n_iter is not None else predicate is not None and predicate(value):
            value, done = base_pass(value), done + 1
        return value

    return repeated


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Constraint:
    """The constraint that `these` does not come after `those`, however they are wrapped."""

    def depends_on(a: Pass, b: Pass) -> bool:
        return inspect.unwrap(a) != those or inspect.unwrap(b) != these

    return depends_on


class PassManager(PassSchedule):
    """Runs functions one after another, each on what the one before returned.

    `constraints` are functions of two passes: whether the first may come before the second.
    """

    def __init__(self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None) -> None:
        super().__init__(passes or [], constraints or [])

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        """A manager without constraints."""
        return cls(passes)

    def remove_pass(self, _passes: list[str] | None) -> None:
        """Drop the passes of these names."""
        if _passes is not None:
            self.passes = [each for each in self.passes if each.__name__ not in _passes]
            self._validated = False

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Put another pass where passes of the name of `_target` are."""
        self.passes = [_replacement if each.__name__ == _target.__name__ else each for each in self.passes]
        self._validated = False

    def validate(self) -> None:
        """RuntimeError where the order of the passes violates a constraint."""
        self._check_order()

    def __call__(self, source: Any) -> Any:
        """Check the order and run the passes."""
        self.validate()
        for each in self.passes:
            source = each(source)
        return source
