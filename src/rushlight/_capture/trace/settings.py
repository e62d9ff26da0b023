"""Options of compiled functions, and hooks that other rooms set for the tracer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rushlight._types.shape_env import ConstraintViolationError

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
    asked_backend: Callable[..., Any] | None = None
    """The backend where no stance forces another one."""
    own_limit: bool = False
    """Whether the limit is this function's own, not the one of the settings."""
    suppress_errors: bool = True
    budget: int = 1_000_000
    """How many instructions a trace has at most."""
    numbers: bool = True
    """Whether graphs may hold numbers that a program reads of its tensors: a backend that raises for one gets none."""
    captures: bool = False
    """Whether they do so, and hold sizes that only elements tell, whatever the process's settings say: one graph is asked for."""
    repeats: bool = True
    """Whether calls of objects that are alike, as layers of a model, are followed once."""
    source_names: dict[str, str] = field(default_factory=dict)
    """Other names of sources in fx graphs: a module's call has those of its `forward`."""

    def captures_elements(self) -> bool:
        """Whether elements of tensors that the program computes are numbers of it."""
        return self.numbers and (self.captures or HOOKS.captures_elements())

    def captures_sizes(self) -> bool:
        """Whether operators may have results whose sizes only elements tell."""
        return self.captures or HOOKS.captures_sizes()


class Hooks:
    """Hooks that public pages register.

    `document(tracer, outputs)` makes an fx graph of a trace's records.  `breaks` tells by a function's identity why it
    is never followed.  `constant` holds functions whose result is kept, `replaced` those in whose place another one is
    followed.  `inlined` are prefixes of our own modules that are followed like a user's.

    `handled` names what `control_flow` does in the place of a function, by its module and name.  `opaque(function)` is
    None, or an operator that must not run on recorded tensors: it is called between two segments.  `fake(env, operator,
    args, kwargs)` makes tensors like its results.  `sized_by_elements(env, function, args, kwargs)` gives, in a tuple,
    fake tensors like the results of a function whose sizes elements tell, or None.

    `dynamic(asked)` says whether sizes are symbols: True from the first trace on, None where they change, False where
    they are marked alone; `asked` is what the function was compiled with.

    `world()` is what knows the process groups, with the one that `default` names; `communicating` holds, by their
    modules, functions that depend on it: they run as they are, and are guarded by the groups that they are given.  An
    empty set stands for all functions of a module.

    `wrappers` are classes of tensors that are made of others, by module and name, with the attributes that say how (see
    `trace.wrappers`); `values` are modules whose objects never change, and are guarded by what they are equal to.

    `states` are lists about the whole process: a trace is used while their last items are the same objects.

    `public` is the package with the functions of tensors, by which functions of NumPy are computed where
    `follows_numpy()` says so.  `captures_elements()` says whether elements of tensors that a program computes can be
    numbers in it (`item`), `captures_sizes()` whether operators whose results have sizes that only elements tell may
    run between two programs.

    `allowed(compiled, again, why)` is asked before a function is traced; False lets it run as it is.  `limited(compiled,
    whole, why)` is told where that was as often as it may be, and raises where it must not run as it is.  `settled()` says
    whether nobody asks to be told where a function would be traced again.  `strict()` says,
    if not None, whether breaks are errors, of the class `unsupported`.  Errors of the classes `fatal` leave the
    compiler; others only end it.  `settings_text()` tells the settings that traces depend on.
    """

    def __init__(self) -> None:
        self.document: Callable[..., Any] | None = None
        self.allowed: Callable[[Any, bool, str], bool] = lambda compiled, again, why: True
        self.limited: Callable[[Any, bool, str], None] = lambda compiled, whole, why: None
        self.settled: Callable[[], bool] = lambda: True
        self.dynamic: Callable[[bool | None], bool | None] = lambda asked: asked
        self.public: Any = None
        self.follows_numpy: Callable[[], bool] = lambda: False
        self.captures_elements: Callable[[], bool] = lambda: False
        self.captures_sizes: Callable[[], bool] = lambda: False
        self.settings_text: Callable[[], str] = str
        self.again: Any = None  # the method that runs a function as it is, where a check fails
        self.strict: Callable[[], bool | None] = lambda: None
        self.opaque: Callable[[Any], Any] = lambda function: None
        self.fake: Callable[..., Any] | None = None
        self.sized_by_elements: Callable[..., Any] | None = None
        self.unsupported: type[Exception] = RuntimeError
        self.fatal: tuple[type[BaseException], ...] = (ConstraintViolationError,)
        self.breaks: dict[int, tuple[Any, str]] = {}
        self.constant: dict[int, Any] = {}
        self.replaced: dict[int, tuple[Any, Any]] = {}
        self.leaves: dict[int, Any] = {}
        self.handled: dict[tuple[Any, str], str] = {}
        self.world: Callable[[], Any] = lambda: None
        self.communicating: dict[str, frozenset[str]] = {}
        self.wrappers: dict[tuple[str, str], tuple[str, ...]] = {}
        self.values: set[str] = set()
        self.states: list[list[Any]] = []
        self.compiling: list[Any] = []  # functions that tell whether code is being compiled
        self.inlined: tuple[str, ...] = (
            "rushlight.nn.modules.", "rushlight.nn.utils.", "rushlight.optim.", "rushlight.utils.checkpoint", "rushlight.distributions.",
            "rushlight.nn.init", "rushlight._engine.dispatch.modes", "rushlight.utils.hooks", "rushlight.ao.", "rushlight.utils._contextlib",
        )  # fmt: skip


HOOKS = Hooks()
