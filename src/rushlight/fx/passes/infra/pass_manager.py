"""`torch.fx.passes.infra.pass_manager`: passes in an order that meets constraints, run until nothing changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from rushlight.fx.graph_module import GraphModule
from rushlight.fx.passes.infra.pass_base import PassResult
from rushlight.nn.modules.module import Module

__all__ = ["PassManager", "PassSchedule", "pass_result_wrapper", "this_before_that_pass_constraint"]

Pass = Callable[..., Any]
Constraint = Callable[[Any, Any], bool]


def pass_result_wrapper(fn: Pass | None) -> Pass | None:
    """A pass that returns a module, or nothing after changing the one given, as one that returns a `PassResult`."""
    if fn is None:
        return None

    @wraps(fn)
    def wrapped(gm: Module) -> PassResult | None:
        found = fn(gm)
        if isinstance(found, PassResult):
            return found
        if isinstance(found, Module):
            return PassResult(found, True)  # type: ignore[arg-type]
        return PassResult(gm, True) if found is None else None  # type: ignore[arg-type]

    if not inspect.isfunction(fn):
        wrapped.__name__ = str(type(fn))
    return wrapped


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """The constraint that `this` does not come after `that`."""

    def depends_on(a: Any, b: Any) -> bool:
        return a != that or b != this

    return depends_on


def _check_schedule(constraint: Constraint, passes: Sequence[Any]) -> None:
    for place, first in enumerate(passes):
        for later, second in enumerate(passes[place + 1 :], place + 1):
            if not constraint(first, second):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {first} before {second} but found {first} at index {place} and {second} at "
                    f"index {later} in pass list."
                )


def _sorted(passes: Sequence[Any], constraints: Sequence[Constraint]) -> list[Any]:
    """The passes in an order that every constraint allows; RuntimeError where they go in a circle."""
    before = {p: [q for q in passes if q is not p and not all(c(p, q) for c in constraints)] for p in passes}
    done: list[Any] = []
    while len(done) < len(passes):
        ready = next((p for p in passes if p not in done and all(q in done for q in before[p])), None)
        if ready is None:
            raise RuntimeError(
                f"Circular dependency detected within the following passes: {[p for p in passes if p not in done]}"
            )
        done.append(ready)
    return done


class PassSchedule:
    """Passes, and constraints that say of two passes whether the first may come before the second."""

    def __init__(self, passes: list[Any], constraints: list[Constraint]) -> None:
        self.passes, self.constraints = passes, constraints
        self._validated = False

    def add_pass(self, _pass: Pass) -> None:
        """One more pass, at the end."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """One more constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def _check_order(self) -> None:
        if self._validated:
            return
        for constraint in self.constraints:
            _check_schedule(constraint, self.passes)
        self._validated = True


class PassManager(PassSchedule):
    """Runs passes over a graph module.

    - `passes`: functions of a module that return a `PassResult`
    - `constraints`: functions of two passes: whether the first may stand before the second
    - `steps`: how often the list is run at most; it ends early where nothing changes
    - `run_checks_after_each_pass`: call the functions of `add_checks` after every pass
    - `suppress_check_failures`: a check that fails does not raise

    >>> import rushlight as torch
    >>> def clean(gm):
    ...     return PassResult(gm, gm.graph.eliminate_dead_code())
    >>> PassManager([clean])(torch.fx.symbolic_trace(torch.nn.ReLU())).modified
    False
    """

    def __init__(
        self,
        passes: Sequence[Any] | None = None,
        constraints: Sequence[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        super().__init__(list(passes or ()), list(constraints or ()))
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._checks: list[Callable[[Module], None]] = []

    def add_checks(self, check: Callable[[Module], None]) -> None:
        """A function of one argument that looks at the module, and raises where something is wrong."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self._checks.append(check)

    def check(self, module: Module) -> None:
        """Run the checks."""
        for each in self._checks:
            each(module)

    def validate_constraints(self) -> None:
        """RuntimeError where the order of the passes violates a constraint."""
        self._check_order()

    def solve_constraints(self) -> None:
        """Put the passes into an order that the constraints allow."""
        self.passes = _sorted(self.passes, self.constraints)
        self._validated = True

    def __call__(self, module: Module) -> PassResult:
        """Run the passes; the last module, and whether any pass changed something."""
        if not self._validated:
            self.solve_constraints()
        self._checked(module)
        ever = False
        for _ in range(self.steps):
            changed = False
            for place, each in enumerate(self.passes):
                found = self._run(each, module, place)
                module, changed = found.graph_module, changed or found.modified
                if isinstance(module, GraphModule):
                    module.recompile()
                if self.run_checks_after_each_pass:
                    self._checked(module)
            ever = ever or changed
            if not changed:
                break
        return PassResult(module, ever)  # type: ignore[arg-type]

    def _checked(self, module: Module) -> None:
        try:
            self.check(module)
        except Exception:
            if not self.suppress_check_failures:
                raise

    def _run(self, each: Any, module: Module, place: int) -> Any:
        name = each.__name__ if inspect.isfunction(each) else type(each).__name__
        try:
            found = each(module)
            if not isinstance(found, PassResult) and not (
                hasattr(found, "graph_module") and hasattr(found, "modified")
            ):
                raise TypeError(
                    f"The result of the pass {name} should be type PassResult. Please wrap it with pass_result_wrapper()"
                )
        except Exception as error:
            earlier = [p.__name__ if inspect.isfunction(p) else type(p).__name__ for p in self.passes[:place]]
            raise Exception(
                f"An error occurred when running the '{name}' pass after the following passes: {earlier}"
            ) from error
        return found
