"""The short way from a call as it was written to its plan: one native lookup (see `_engine.native_plans`).

What is written decides the signature (specs of tensors, types of numbers, values of everything else); what the plan is called with is found
by `picks`, made once for a signature.  Whatever the lookup does not understand (subclasses, NumPy scalars, numbers beyond 60 bits) goes the
long way, through `bind`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.native_plans import (
    DYNAMIC,
    EITHER,
    LIST,
    STATIC,
    identity_plan,
    learn,
    make_dispatcher,
    readable,
)
from rushlight._engine.state import FUNCTION_MODE, OBSERVED, STATE
from rushlight._engine.tensor import Tensor
from rushlight._ops.table import Operator

__all__ = ["RUNS", "make_dispatch", "make_learner", "ran", "run_recorded", "unlearnt"]


def _kinds(op: Operator) -> list[int]:
    kinds = []
    for argument in op.schema.arguments:
        if argument.base == "Tensor" and argument.is_sequence:
            kinds.append(LIST)
        else:
            varies = argument.base in ("Tensor", "Scalar") and not argument.is_sequence
            fixed = EITHER if argument.base == "Tensor" else STATIC  # its numbers are part of a plan
            kinds.append(STATIC if not varies else fixed if argument.name in op.static else DYNAMIC)
    return kinds


def make_dispatch(
    op: Operator, prepare: Callable[..., Any], slow: Callable[..., Any], wrap: Any, check: Callable[..., None] | None = None
) -> Any:
    """A function that calls `op`: by a plan found with the raw arguments, else `slow(args, kwargs)`.

    `prepare(args, kwargs)` gives (plan, inputs) for plain arguments; `wrap` is the named tuple that users get, or None; `check(args)` may
    raise for what was not called before.
    """
    kinds = _kinds(op)
    count = len(kinds)
    arguments = op.schema.arguments
    last_static = op.schema.positional > 0 and kinds[op.schema.positional - 1] == STATIC

    def missed(*args: Any, **kwargs: Any) -> Any:
        if check is not None:
            check(args)
        if STATE.word & FUNCTION_MODE or (len(args) > count and not last_static) or not readable(call, args, kwargs):
            return slow(args, kwargs)
        if "out" in kwargs:
            return into(args, kwargs)
        plan, inputs = prepare(args, kwargs)
        picks = _picks(op, kinds, args, kwargs)
        same = _gather(picks, args, kwargs)
        if len(same) == len(inputs) and all(a is b for a, b in zip(same, inputs, strict=True)):
            learn(call, args, kwargs, plan, picks, wrap)
        made = plan(*inputs)
        return tuple.__new__(wrap, made) if wrap is not None else made

    def into(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        runs: list[tuple[Any, Sequence[Any], Any, Any]] = []
        before, RUNS[0] = RUNS[0], runs
        try:
            made = slow(args, dict(kwargs))
        finally:
            RUNS[0] = before
        if len(runs) == 1 and runs[0][2] is made:
            plan, inputs, _, _ = runs[0]
            picks = [*_picks(op, kinds, args, kwargs), "out"]
            same = _gather(picks, args, kwargs)
            if len(same) == len(inputs) and all(a is b for a, b in zip(same, inputs, strict=True)):
                learn(call, args, kwargs, plan, picks)
        return made

    defaults = [... if a.required else a.default for a in arguments]
    call = make_dispatcher(missed, [*kinds, DYNAMIC], [*defaults, ...], [*[a.name for a in arguments], "out"], count)
    return call


# While a call is being learnt: of every plan that runs for it the plan, its inputs, the result, and the named tuple that the result is (or None).
RUNS: list[list[tuple[Any, Sequence[Any], Any, Any]] | None] = [None]


def ran(plan: Any, inputs: Sequence[Any], made: Any, wrap: Any = None) -> Any:
    """Note that a plan was run, for a call that is being learnt; gives its result."""
    if RUNS[0] is not None:
        RUNS[0].append((plan, inputs, made, wrap))
    return made


def unlearnt(call: Callable[[], Any]) -> Any:
    """What `call()` gives; of a call that is being learnt, which depends on more than its signature here, no plan is kept but itself."""
    outer, RUNS[0] = RUNS[0], None
    try:
        return call()
    finally:
        RUNS[0] = outer
        if outer is not None:
            outer.append((None, (), RUNS, None))


def run_recorded(prepare: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], wrap: Any = None) -> Any:
    """Find a plan and run it, noting it."""
    plan, inputs = prepare(args, kwargs)
    made = plan(*inputs)
    return ran(plan, inputs, made if wrap is None else tuple.__new__(wrap, made), wrap)


def make_learner(function: Callable[..., Any], names: Sequence[str], tensors: int = 1) -> Any:
    """`function`, which is plain Python, with the plans of its calls kept.

    It must be of those that only choose: what it runs depends on the specs of its tensors and the types of its numbers (the first `tensors`
    arguments) and on the values of the others (`names` are all of them; one that ends in `?` may be a tensor too, one in `*` a tensor or a
    number), and what it returns is the result of the one plan that it runs (see `ran`) or its argument.
    """

    def missed(*args: Any, **kwargs: Any) -> Any:
        if STATE.word & (FUNCTION_MODE | OBSERVED) or not readable(call, args, kwargs):  # observers are told of the function too
            return function(*args, **kwargs)
        runs: list[tuple[Any, Sequence[Any], Any, Any]] = []
        before, RUNS[0] = RUNS[0], runs
        try:
            made = function(*args, **kwargs)
        finally:
            RUNS[0] = before
        if len(runs) == 1 and runs[0][2] is made:
            _learn_run(call, kinds, args, kwargs, runs[0])
            ran(*runs[0])  # for a call around this one
        elif not runs and args and made is args[0]:
            learn(call, args, kwargs, identity_plan(), (0,))
        else:
            _learn_itself(call, function, args, kwargs)
        return made

    endings = {"?": EITHER, "*": DYNAMIC}
    kinds = [DYNAMIC if i < tensors else endings.get(name[-1], STATIC) for i, name in enumerate(names)]
    call = make_dispatcher(missed, kinds, [...] * len(names), [name.rstrip("?*") for name in names])
    call.__name__ = call.__qualname__ = function.__name__
    call.__doc__, call.__module__ = function.__doc__, function.__module__
    call.__wrapped__ = function
    return call


def _learn_run(call: Any, kinds: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any], run: tuple[Any, ...]) -> None:
    """Keep the plan of a run whose inputs are all arguments of the call."""
    plan, inputs, _, wrap = run
    varying: dict[Any, Any] = {i: a for i, a in enumerate(args) if i < len(kinds) and (kinds[i] == DYNAMIC or isinstance(a, Tensor))}
    varying |= {n: a for n, a in kwargs.items() if isinstance(a, Tensor)}
    for i, a in enumerate(args[: len(kinds)]):
        if kinds[i] == EITHER and isinstance(a, (tuple, list)):
            varying |= {(i, k): item for k, item in enumerate(a) if isinstance(item, Tensor)}
    picks = [next((p for p, a in varying.items() if a is item), None) for item in inputs]
    if None in picks:
        _learn_itself(call, call.__wrapped__, args, kwargs)
    else:
        learn(call, args, kwargs, plan, picks, wrap)


def _learn_itself(call: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Keep the function as the plan of calls for which there is no other, so that they are not looked at again."""
    n, names = len(args), tuple(kwargs)
    plan = function if not names else lambda *values: function(*values[:n], **dict(zip(names, values[n:], strict=True)))
    learn(call, args, kwargs, plan, [*range(n), *names])


def _picks(op: Operator, kinds: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Where the plan's inputs are found: a position, a name, or (either, place in the list); tensors in schema order, then numbers."""
    tensors: list[Any] = []
    numbers: list[Any] = []
    for place, argument in enumerate(op.schema.arguments):
        if kinds[place] == STATIC:
            continue
        origin: Any = place if place < len(args) else argument.name
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if value is None or kinds[place] == EITHER and not isinstance(value, Tensor):
            continue
        if kinds[place] == LIST:
            tensors += [(origin, i) for i in range(len(value))]
        elif isinstance(value, Tensor):
            tensors.append(origin)
        elif argument.required or not (type(value) is type(argument.default) and value == argument.default):
            numbers.append(origin)
    return tensors + numbers


def _gather(picks: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    inputs = []
    for pick in picks:
        kind = type(pick)
        if kind is int:
            inputs.append(args[pick])
        elif kind is str:
            inputs.append(kwargs[pick])
        else:
            origin, i = pick
            inputs.append((args[origin] if type(origin) is int else kwargs[origin])[i])
    return inputs
