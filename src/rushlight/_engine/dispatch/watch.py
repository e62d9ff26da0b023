"""Observation of calls: `explain` records programs that run; observers (the profiler, counters of operations) are told
of calls of operators.

It costs nothing when unused.  While a recorder is set, every program that is built reports its runs; plans made before
and after do not.  While a thread has observers, a bit of its state word is set, so signatures differ, and the plans
found for them tell the observers of every call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from rushlight._base.errors import user_line
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import OBSERVED, STATE
from rushlight._engine.dispatch.lower import Literal, Slot

__all__ = [
    "Observer",
    "Recorder",
    "Run",
    "Watched",
    "observe",
    "observed",
    "observed_call",
    "observed_node",
    "observed_plan",
    "on_observers",
    "switch_sources",
    "unobserve",
]


class Run:
    """One run of a program: for which operator, from which line, and the seconds of every step."""

    __slots__ = ("exe", "name", "place", "seconds")

    def __init__(self, name: str, place: str, exe: Any, seconds: list[float]) -> None:
        self.name, self.place, self.exe, self.seconds = name, place, exe, seconds


class Recorder:
    """Collects runs."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def run(self, name: str, exe: Any, words: tuple[Any, ...]) -> Any:
        """Run the program step by step with a clock."""
        made, seconds = exe.timed(words, perf_counter)
        self.runs.append(Run(name, user_line(), exe, seconds))
        return made


class Watched:
    """A program that reports its runs; it has no direct kernel, so every call passes through it."""

    __slots__ = ("exe", "ints", "kernel", "name")

    def __init__(self, exe: Any) -> None:
        self.exe, self.name = exe, HOOKS.operator_name
        self.kernel, self.ints = None, 0

    def __call__(self, *words: Any) -> Any:
        recorder = HOOKS.recorder
        return self.exe(*words) if recorder is None else recorder.run(self.name, self.exe, words)


# ***** observers of calls *****


class Observer:
    """Is told of every call of an operator, of every node of backward, and of the ranges that a program names.

    `enter` begins one and `leave` ends the one begun last; what `enter` returns is given to `leave`.
    """

    takes_programs = False  # whether compiled functions run as programs, of whose calls it is told (kind "program")
    takes_spread = False  # whether `spread(name, tensors)` is called for operators of DTensors, before what they run

    def enter(self, kind: str, name: str, given: Callable[[], list[tuple[str, Any]]], subject: Any) -> Any:
        """`kind` is "operator", "custom" (of `torch.library`), "function" (of a user's class), "plan" (one is being
        made), "node", "range", "collective" or "program"; `given()` the arguments with their names; `subject` the node,
        the packet of a custom operator, the operation of a process group, or of an operator (row of the table, template,
        inputs of its plan), None for one in plain Python.
        """
        raise NotImplementedError

    def spread(self, name: str, tensors: Sequence[Any]) -> None:
        """An operator runs on DTensors: its name, and those."""

    def leave(self, mark: Any, made: Any) -> None:
        """`made` is what came out: the results of an operator, gradients of a node, None after an exception; of a
        program its kernels, as (name, nanoseconds, operations).
        """
        raise NotImplementedError


_SWITCHES: list[Callable[[bool], None]] = []
_count = 0


def on_observers(switch: Callable[[bool], None]) -> None:
    """Call `switch` with True when the first observer of the process comes, with False when the last one has gone."""
    _SWITCHES.append(switch)


def observe(observer: Observer) -> None:
    """Tell `observer` of every call in this thread from now on."""
    global _count
    STATE.observers = (*STATE.observers, observer)
    STATE.word |= OBSERVED
    _count += 1
    if _count == 1:
        switch_sources(True)


def unobserve(observer: Observer) -> None:
    """Stop telling it."""
    global _count
    left = tuple(o for o in STATE.observers if o is not observer)
    _count -= len(STATE.observers) - len(left)
    STATE.observers = left
    if not left:
        STATE.word &= ~OBSERVED
    if not _count:
        switch_sources(False)


def switch_sources(on: bool) -> None:
    """Let calls without plans tell observers, or not: see `on_observers`."""
    for switch in _SWITCHES:
        switch(on)


def _forget() -> None:
    """Remove all observers in a forked process: they belong to the parent."""
    STATE.observers = ()
    STATE.word &= ~OBSERVED


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _nothing() -> list[tuple[str, Any]]:
    return []


def observed_call(
    kind: str,
    name: str,
    call: Callable[..., Any],
    inputs: Sequence[Any],
    given: Callable[[], list[tuple[str, Any]]] = _nothing,
    subject: Any = None,
) -> Any:
    """Run `call(*inputs)` and tell the observers of this thread."""
    observers = STATE.observers
    marks = [o.enter(kind, name, given, subject) for o in observers]
    made = None
    try:
        made = call(*inputs)
    finally:
        for observer, mark in zip(reversed(observers), reversed(marks), strict=True):
            observer.leave(mark, made)
    return made


def observed(plan: Callable[..., Any], name: str, op: Any, template: tuple[Any, ...]) -> Callable[..., Any]:
    """The plan of an operator, wrapped so that observers are told of its calls."""

    def run(*inputs: Any) -> Any:
        return observed_call(
            "operator", name, plan, inputs, lambda: given_arguments(op, template, inputs), (op, template, inputs)
        )

    return run


def observed_plan(caller: Any, template: tuple[Any, ...], tensors: Sequence[Any]) -> Callable[..., Any]:
    """The plan that `caller.make` returns while there are observers: the usual plan, wrapped to tell of its calls."""
    word = STATE.word
    STATE.word = word & ~OBSERVED
    try:
        key: list[Any] = [template, STATE.word]
        for tensor in tensors:
            key += (tensor._spec, tensor._rg)
        plan = caller.plans.get(tuple(key))
        if plan is None:
            plan = caller.plans[tuple(key)] = observed_call("plan", caller.name, caller.make, (template, tensors))
    finally:
        STATE.word = word
    name = caller.op.name + "_" if caller.name.endswith("_") and not caller.op.name.endswith("_") else caller.op.name
    return observed(plan, name, caller.op, template)


def given_arguments(op: Any, template: tuple[Any, ...], inputs: Sequence[Any]) -> list[tuple[str, Any]]:
    """The declared arguments of a call with their values, from the template and the arguments of its plan."""
    count = sum(item.count for item in template if type(item) is Slot and item.kind in ("tensor", "list"))
    tensors, numbers = iter(inputs[:count]), iter(inputs[count:])
    found = []
    for argument, item in zip(op.schema.arguments, template, strict=True):
        value = item
        if type(item) is Slot:
            if item.kind == "list":
                value = [next(tensors) for _ in range(item.count)]
            else:
                value = next(tensors if item.kind == "tensor" else numbers)
        elif type(item) is Literal:
            value = item.value
        found.append((argument.name, value))
    return found


def observed_node(run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Run a node of backward and tell the observers.

    The node of an operator runs its plan as usual; calls that a node in Python makes are told too.
    """

    def watched(node: Any, grads: Any) -> Any:
        def given() -> list[
            tuple[str, Any]
        ]:  # refers to the list and not to its items: a leaf may take over an unshared gradient
            return [("grad", g) for g in grads]

        if not hasattr(type(node), "info"):
            return observed_call("node", node.name(), run, (node, grads), given, node)

        def quietly(node: Any, grads: Any) -> Any:
            word = STATE.word
            STATE.word = word & ~OBSERVED
            try:
                return run(node, grads)
            finally:
                STATE.word = word

        return observed_call("node", node.name(), quietly, (node, grads), given, node)

    return watched
