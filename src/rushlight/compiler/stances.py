"""How compiled functions behave when they are called: `torch.compiler.set_stance`.

>>> import rushlight as torch
>>> with torch.compiler.set_stance("force_eager"):
...     torch.compile(lambda x: x + 1)(torch.ones(2))
tensor([2., 2.])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from rushlight._interface.base import trace_marks
from rushlight._interface.compiling import look_again, reset, show_segments

__all__ = ["Stance", "current_stance", "set_stance"]

STANCES = (
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile",
)  # fmt: skip
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Stance(NamedTuple):
    """A stance: its name, whether guards are skipped but for those that tell programs apart, and a backend that takes
    the place of others.
    """

    stance: str = "default"
    skip_guard_eval_unsafe: bool = False
    backend: Any = None


_current = [Stance()]


@trace_marks.changes_later_calls
def _set(stance: Stance) -> None:
    """Change the stance; where everything runs eagerly, compiled functions do not find their programs."""
    before, _current[0] = _current[0], stance
    look_again()
    if before.backend is not stance.backend:
        reset()
    if (before.stance == "force_eager") != (stance.stance == "force_eager"):
        show_segments(stance.stance != "force_eager")


def current_stance() -> Stance:
    """The stance in force."""
    return _current[0]


class set_stance:
    """Set the stance: as a call for the rest of the program, as a context, or as a decorator.

    - "default": compile, and compile again when guards fail
    - "force_eager": run eagerly what was compiled
    - "eager_on_recompile": run eagerly instead of compiling again
    - "fail_on_recompile": RuntimeError instead of compiling again
    - "eager_then_compile", "aot_eager_then_compile": the first call runs eagerly, and tells with the second which sizes
      change

    `force_backend` (with "default" only, RuntimeError otherwise) takes the place of every backend; what was compiled is
    compiled again.
    """

    @trace_marks.changes_later_calls
    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if force_backend is not None and stance != "default":
            raise RuntimeError("non-default stance cannot have force_backend set")
        new = Stance(stance, skip_guard_eval_unsafe, force_backend)
        # PyTorch takes any name, and every compiled call fails afterwards; here the name is refused at once.
        if stance not in STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{new}'")
        self.stance, self.before = new, _current[0]
        _set(new)

    @trace_marks.changes_later_calls
    def __enter__(self) -> None:
        _set(self.stance)

    @trace_marks.changes_later_calls
    def __exit__(self, *_: object) -> None:
        _set(self.before)

    @trace_marks.changes_later_calls
    def __call__(self, function: _Function) -> _Function:
        _set(self.before)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            before = _current[0]
            _set(self.stance)
            try:
                return function(*args, **kwargs)
            finally:
                _set(before)

        inside._dynamo_forbidden = True  # type: ignore[attr-defined]
        return inside  # type: ignore[return-value]
