"""What a user asks of a compiled function, and what other rooms tell the tracer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["HOOKS", "CompileSettings", "Hooks"]


@dataclass(slots=True)
class CompileSettings:
    """`backend` is None for our own, else a callable `(graph_module, example_inputs) -> callable`."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: Callable[..., Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    recompile_limit: int = 8
    suppress_errors: bool = True


class Hooks:
    """What public pages register.

    `document(calls)` makes an fx graph of recorded calls.  `breaks` and `disabled` tell by a function's identity why it is never followed.
    `constant` holds functions whose result is kept, `replaced` those in whose place another one is followed.  `inlined` are prefixes of our own
    modules that are followed like a user's.
    """

    def __init__(self) -> None:
        self.document: Callable[..., Any] | None = None
        self.breaks: dict[int, tuple[Any, str]] = {}
        self.constant: dict[int, Any] = {}
        self.replaced: dict[int, tuple[Any, Any]] = {}
        self.leaves: dict[int, Any] = {}
        self.compiling: list[Any] = []  # functions that tell whether code is being compiled
        self.inlined: tuple[str, ...] = (
            "rushlight.nn.modules.", "rushlight.nn.utils.", "rushlight.optim.", "rushlight.utils.checkpoint", "rushlight.distributions.",
            "rushlight.nn.init", "rushlight._engine.dispatch.modes", "rushlight.utils.hooks", "rushlight.ao.", "rushlight.utils._contextlib",
        )  # fmt: skip


HOOKS = Hooks()
