"""The dispatch state of a thread: one word that holds everything a dispatcher would look at.

It is part of every signature, so a plan is right for the state in which it was made and nothing is asked twice.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable, Collection
from typing import Any

from rushlight._engine.core.hooks import HOOKS
from rushlight._types.dtype import DType

__all__ = [
    "ANOMALY",
    "AUTOCAST",
    "FUNCTION_MODE",
    "GRAD",
    "INFERENCE",
    "beside",
    "followed",
    "inherit",
    "NOTING_PLANS",
    "OBSERVED",
    "PLAN_LISTENERS",
    "RECORDING",
    "SAVED_HOOKS",
    "STATE",
    "STREAMED",
    "SYMBOLIC",
    "TRANSFORMS",
    "VMAP",
    "PlanTable",
    "clear_plans",
    "count_plan",
    "forget_calls",
    "add_dispatcher",
    "in_thread",
    "new_plan_table",
    "plan_counts",
]

GRAD, INFERENCE, ANOMALY, SAVED_HOOKS, FUNCTION_MODE, VMAP = 1, 2, 4, 8, 16, 32
OBSERVED = 64  # somebody is told of every call: see `_engine.dispatch.watch`
NOTING_PLANS = 128  # what runs is noted, to be run again without the function around it: see `_engine.dispatch.plans.native_lookup`
RECORDING = 256  # calls are written down, by `STATE.recording`: see `_capture.recording`
# All bits above those: zero where nothing is cast by itself, else which dtype is cast to (see
# `_engine.dispatch.autocast`).
SYMBOLIC = 512  # sizes may be symbolic numbers, which native code does not read
STREAMED = 1024  # some device's current stream is not its default one: nodes note it (see `_engine.autograd.streams`)
AUTOCAST = -1 << 11


# How function transforms (`_engine.functorch.transformed`, once it is loaded) answer where the engine meets their
# tensors.
TRANSFORMS: dict[str, Any] = {}


class _State(threading.local):
    """Per thread: `word` (bits above), hooks for saved tensors, whether subclass overrides are switched off, and
    automatic casts.
    """

    def __init__(self) -> None:
        self.word = GRAD
        self.saved_hooks: list[tuple[Any, Any]] = []
        self.overrides_off = 0
        self.function_modes: list[Any] = []
        # They see operators below autograd; while there are some, FUNCTION_MODE is on
        self.dispatch_modes: list[Any] = []
        self.dispatch_off = 0  # classes and modes that see operators below autograd are not asked
        self.anomaly_check_nan = True
        self.task: Any = None  # the backward call that is running
        self.current_node: Any = None
        self.threaded_backward = True
        self.grads_like_leaves = True  # a leaf's gradient has its layout
        self.view_replay = False  # asked for, and without an effect on numbers
        self.told_to_change = 0  # how many `out=` are being written
        self.recording: Any = None  # who writes the calls of this thread down
        self.observers: tuple[Any, ...] = ()  # who is told of calls
        self.follow: Callable[[Any], Any] | None = None  # what a trace calls in the place of a user's function
        # Automatic casts: where they are on, to which dtypes they go, whether those of weights are kept, how many
        # regions are open.
        self.casts: dict[str, bool] = {}
        self.cast_dtypes: dict[str, DType] = {}
        self.cast_keeps = True
        self.cast_depth = 0


STATE = _State()


def followed(function: Any) -> Any:
    """A user's function that the engine is about to call; in a trace, what follows it."""
    return function if STATE.follow is None else STATE.follow(function)


def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` in a thread of its own that has this thread's state, while this one waits: for a stack that is
    empty.
    """
    held = [(local, dict(local.__dict__)) for local in _INHERITED]
    context = contextvars.copy_context()
    made: list[Any] = []

    def run() -> None:
        try:
            for local, values in held:
                local.__dict__.update(values)
            made.append((context.run(function, *args), None))
        except BaseException as error:
            made.append((None, error))

    thread = threading.Thread(target=run, name="rushlight-backward", daemon=True)
    thread.start()
    thread.join()
    result, error = made[0]
    if error is not None:
        raise error
    return result


def beside(task: Callable[[], None]) -> None:
    """Run a task in a thread of its own that begins with this thread's state; here and now where a mode is active or
    calls are written down, which follow one thread.
    """
    if STATE.recording is not None or STATE.function_modes or STATE.dispatch_modes or STATE.observers:
        task()
        return
    held = [(local, {k: _copied(v) for k, v in local.__dict__.items()}) for local in _INHERITED]
    context = contextvars.copy_context()

    def run() -> None:
        for local, values in held:
            local.__dict__.update(values)
        context.run(task)

    threading.Thread(target=run, name="rushlight-task", daemon=True).start()


def saved_state() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """This thread's state, for `restore_state`."""
    return [(local.__dict__, {k: _copied(v) for k, v in local.__dict__.items()}) for local in _INHERITED]


def restore_state(saved: list[tuple[dict[str, Any], dict[str, Any]]], but: Collection[str] = ()) -> None:
    """Set what `saved_state` gave in this thread, but for some names; lists and dicts stay the same objects."""
    for values, before in saved:
        for name, value in before.items():
            if name in but:
                continue
            held = values[name]
            if type(value) is list and type(held) is list:
                held[:] = value
            elif type(value) is dict and type(held) is dict:
                held.clear()
                held.update(value)
            else:
                values[name] = value


def _copied(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value


_INHERITED: list[threading.local] = [STATE]


def inherit(local: threading.local) -> None:
    """Let a thread of backward take over what `local` holds in the thread that waits for it, as it takes over the
    state.
    """
    _INHERITED.append(local)


# Plans are kept while they are few; a program that never repeats a signature must not grow without bound (a plan takes
# about 6 kB).
MAX_PLANS = 1 << 15


class PlanTable(dict[Any, Any]):
    """Signature -> plan.  All tables are thinned out when they have grown too large together: plans are cheap to make
    again.
    """

    __slots__ = ("__weakref__",)

    def __setitem__(self, key: Any, value: Any) -> None:
        count_plan()
        dict.__setitem__(self, key, value)

    def thin(self) -> None:
        """Drop what can be made again at little cost: here all of it."""
        self.clear()


def count_plan() -> None:
    """Note that a plan is kept; where there are too many, tables are thinned out first."""
    global _made
    for told in PLAN_LISTENERS[:]:
        told()
    if _made >= MAX_PLANS:
        for table in list(_TABLES.values()):
            table.thin()
        forget_calls()
        _made = plan_counts()
        if _made > MAX_PLANS // 2:
            clear_plans()
    _made += 1


# Who is told when there is work of a kind that was not there before.
PLAN_LISTENERS: list[Callable[[], None]] = []
# Plans made since the tables were last thinned out, and those left then; those that went away with their table are
# counted too, so this errs on the safe side.
_made = 0
_TABLES: weakref.WeakValueDictionary[int, PlanTable] = weakref.WeakValueDictionary()
# Native dispatchers (see `_engine.dispatch.plans.native_plans`), which keep plans of their own.
_DISPATCHERS: list[Any] = []


def new_plan_table(kind: type[PlanTable] = PlanTable) -> PlanTable:
    """A table that `clear_plans` knows of, while it lives."""
    table = kind()
    _TABLES[id(table)] = table
    return table


def clear_plans() -> None:
    """Forget every plan, as when the default dtype changes."""
    global _made
    _made = 0
    for table in list(_TABLES.values()):
        table.clear()
    forget_calls()


def add_dispatcher(dispatcher: Any) -> None:
    """Let `clear_plans` know of a native dispatcher."""
    _DISPATCHERS.append(dispatcher)


def forget_calls() -> None:
    """Forget the plans that dispatchers cached."""
    for dispatcher in _DISPATCHERS:
        HOOKS.forget_calls_of(dispatcher)


def plan_counts() -> int:
    """How many plans are held."""
    return sum(map(len, list(_TABLES.values())))
