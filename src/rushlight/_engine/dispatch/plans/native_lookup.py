"""The short way from a call as it was written to its plan: one native lookup (see
`_engine.dispatch.plans.native_plans`).

What is written decides the signature (specs of tensors, types of numbers, values of everything else); what the plan is
called with is found by `picks`, made once for a signature.  Whatever the lookup does not understand (subclasses, NumPy
scalars, numbers beyond 60 bits) goes the long way, through `bind`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._base.errors import WARNING_LISTENERS
from rushlight._engine.core.state import FUNCTION_MODE, NOTING_PLANS, OBSERVED, STATE, inherit
from rushlight._engine.core.tensor import Tensor, make
from rushlight._engine.dispatch.plans.native_plans import (
    DYNAMIC,
    EITHER,
    LIST,
    STATIC,
    cache_plan,
    cache_shape_class,
    cacheable,
    find_plan,
    identity_plan,
    make_dispatcher,
    sequence_plan,
)
from rushlight._ops.table import Operator
from rushlight._types.dtype import DType

__all__ = [
    "RUNS",
    "PlanSequence",
    "make_dispatch",
    "make_cached",
    "ran",
    "run_recorded",
    "not_cacheable",
    "uncached",
    "unwatched",
]


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
    op: Operator,
    prepare: Callable[..., Any],
    slow: Callable[..., Any],
    wrap: Any,
    check: Callable[..., None] | None = None,
    further: Callable[..., Any] | None = None,
    declines: bool = False,
) -> Any:
    """A function that calls `op`: by a plan found with the raw arguments, else `slow(args, kwargs)`.

    `prepare(args, kwargs)` gives (plan, inputs) for plain arguments; `wrap` is the named tuple that users get, or None;
    `check(args)` may raise for what was not called before; `further(plan)` says how plans for other sizes are made (see
    `cache_shape_class`).  A function that `declines` is one of Python's operators: it gives NotImplemented for what it
    raises a TypeError for.
    """
    kinds, arguments = _kinds(op), op.schema.arguments
    misses = _Misses(op, kinds, prepare, slow, wrap, check, further)
    defaults = [... if a.required else a.default for a in arguments]
    fallback = _declining(misses.called) if declines else misses.called
    names = [*[a.name for a in arguments], "out"]
    misses.call = make_dispatcher(fallback, [*kinds, DYNAMIC], [*defaults, ...], names, len(kinds))
    return misses.call


class _Misses:
    """Calls of an operator that have no plan yet; `make_dispatch` says what the fields are."""

    __slots__ = ("call", "check", "further", "kinds", "last_static", "op", "prepare", "slow", "wrap")

    def __init__(
        self,
        op: Operator,
        kinds: list[int],
        prepare: Callable[..., Any],
        slow: Callable[..., Any],
        wrap: Any,
        check: Callable[..., None] | None,
        further: Callable[..., Any] | None,
    ) -> None:
        self.op, self.kinds, self.prepare, self.slow = op, kinds, prepare, slow
        self.wrap, self.check, self.further = wrap, check, further
        self.last_static = op.schema.positional > 0 and kinds[op.schema.positional - 1] == STATIC
        self.call: Any = None  # the dispatcher, which keeps the plans

    def called(self, *args: Any, **kwargs: Any) -> Any:
        """The result of a call for which the dispatcher found no plan."""
        if self.check is not None:
            self.check(args)
        if STATE.word & NOTING_PLANS:
            return self._part(args, kwargs)
        if STATE.word & FUNCTION_MODE or not self._cacheable(args, kwargs):
            return self.slow(args, kwargs)
        if "out" in kwargs:
            return self._into(args, kwargs)
        plan, inputs = self._prepared(args, kwargs)
        made = plan(*inputs)
        return tuple.__new__(self.wrap, made) if self.wrap is not None else made

    def _cacheable(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        if len(args) > len(self.kinds) and not self.last_static:
            return False
        return cacheable(self.call, args, kwargs)

    def _part(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call within one whose plans are noted."""
        with unwatched():
            known = None if "out" in kwargs else find_plan(self.call, args, kwargs)
            if known is not None:
                plan, inputs = known
                made = plan(*inputs)
            unusual = known is None and ("out" in kwargs or not self._cacheable(args, kwargs))
            if unusual:
                made = self.slow(args, kwargs)
        if unusual:
            not_cacheable()
            return made
        if known is None:
            return run_recorded(self._prepared, args, kwargs, self.wrap, self.further)
        return ran(plan, inputs, made if self.wrap is None else tuple.__new__(self.wrap, made), self.wrap)

    def _prepared(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Sequence[Any]]:
        """As `prepare`; the plan is kept for calls like this one, and how plans for others of other sizes are made."""
        plan, inputs = self.prepare(args, kwargs)
        picks = _picks(self.op, self.kinds, args, kwargs)
        same = _gather(picks, args, kwargs)
        if len(same) == len(inputs) and all(a is b for a, b in zip(same, inputs, strict=True)):
            cache_plan(self.call, args, kwargs, plan, picks, self.wrap)
            specializer = None if self.further is None else self.further(plan)
            if specializer is not None:
                cache_shape_class(self.call, args, kwargs, picks, self.wrap, *specializer)
        return plan, inputs

    def _into(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call with `out=`; its plan is kept where one ran."""
        runs: list[tuple[Any, Sequence[Any], Any, Any]] = []
        before, RUNS.now = RUNS.now, runs
        try:
            made = self.slow(args, dict(kwargs))
        finally:
            RUNS.now = before
        if len(runs) == 1 and runs[0][2] is made:
            plan, inputs, _, _ = runs[0]
            picks = [*_picks(self.op, self.kinds, args, kwargs), "out"]
            same = _gather(picks, args, kwargs)
            if len(same) == len(inputs) and all(a is b for a, b in zip(same, inputs, strict=True)):
                cache_plan(self.call, args, kwargs, plan, picks)
        return made


def _declining(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as one of Python's operators: NotImplemented where it raises a TypeError, so that an operand of
    another class is asked.
    """

    def operator(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            if len({type(a) for a in args}) == 1:
                raise
            return NotImplemented

    return operator


class _Runs(threading.local):
    """`now`, while the plans of a call are noted in this thread: of every plan that runs for it the plan, its inputs,
    the result, and the named tuple that the result is (or None).  `last` is the plan that was found last, and what says
    how others are made for other sizes (see `cache_shape_class`).
    """

    now: Any = None
    last: Any = (None, None)


RUNS = _Runs()
inherit(RUNS)


class PlanSequence(list[Any]):
    """The plans that run while those of a function are noted.

    It knows how often memory was changed, and what the tensors were when they were noted, so that a change that was not
    noted is seen.
    """

    __slots__ = ("kept", "uncacheable", "tensors", "versions")

    def __init__(self, args: Sequence[Any]) -> None:
        super().__init__()
        self.uncacheable = False
        self.versions: dict[int, int] = {}
        self.kept: list[Any] = []  # storages, so that their identities stay theirs
        self.tensors: dict[int, tuple[Tensor, Any, Any, bool]] = {}
        for item in args:
            self._meet(item)

    def _meet(self, item: Any) -> None:
        if isinstance(item, Tensor):
            self.tensors[id(item)] = item, item._spec, item._node, item._rg
            storage = item._storage  # another thread may put another in its place
            if storage is not None and id(storage) not in self.versions:
                self.versions[id(storage)] = storage.version
                self.kept.append(storage)
        elif isinstance(item, (tuple, list)):
            for part in item:
                self._meet(part)

    def append(self, run: Any) -> None:
        """Note a run."""
        plan, inputs, made, _ = run
        list.append(self, run)
        if plan is None:
            self.uncacheable = True
            return
        changed = made if made is not None else inputs[0] if inputs else None
        if isinstance(changed, Tensor) and any(changed is item for item in inputs):
            storage = changed._storage
            if id(storage) in self.versions:  # of what was made elsewhere nothing is known, and no step can take it
                self.versions[id(storage)] = (
                    storage.version if storage.version <= self.versions[id(storage)] + 1 else -1
                )
                self._meet(changed)
        self._meet(made)

    def leaf(self, made: Tensor) -> bool:
        """Note that the tensor which was just made wants a gradient; False where that is not what ran last."""
        if not self or self[-1][2] is not made:
            return False
        plan, inputs, _, wrap = self[-1]
        self[-1] = (_leaf_plan(plan), inputs, made, wrap)
        self.tensors[id(made)] = made, made._spec, made._node, made._rg
        return True

    def whole(self) -> bool:
        """Whether nothing ran but what was noted."""
        if self.uncacheable or any(s.version != self.versions[id(s)] for s in self.kept):
            return False
        return all(
            t._spec is spec and t._node is node and t._rg is wants for t, spec, node, wants in self.tensors.values()
        )


def _leaf_plan(plan: Any) -> Callable[..., Tensor]:
    """A plan whose result wants a gradient."""

    def again(*inputs: Any) -> Tensor:
        made: Tensor = plan(*inputs)
        made._rg = True
        return made

    return again


def not_cacheable() -> None:
    """Not cacheable: the result of the call that runs depends on more than its signature and the plans noted."""
    if RUNS.now is not None:
        RUNS.now.append((None, (), RUNS, None))


WARNING_LISTENERS.append(not_cacheable)


@contextmanager
def unwatched() -> Iterator[None]:
    """A region in which nothing is noted."""
    word = STATE.word
    outer, RUNS.now = RUNS.now, None
    STATE.word = word & ~NOTING_PLANS
    try:
        yield
    finally:
        RUNS.now = outer
        STATE.word = word


def ran(plan: Any, inputs: Sequence[Any], made: Any, wrap: Any = None) -> Any:
    """Note that a plan was run, where plans are noted; gives its result."""
    if RUNS.now is not None:
        RUNS.now.append((plan, inputs, made, wrap))
    return made


def uncached(call: Callable[[], Any]) -> Any:
    """The result of `call()`, whose plans are not cached: it depends on more than its signature."""
    try:
        with unwatched():
            return call()
    finally:
        not_cacheable()


def run_recorded(
    prepare: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], wrap: Any = None, further: Any = None
) -> Any:
    """Find a plan and run it, noting it."""
    word, outer = STATE.word, RUNS.now
    RUNS.now, STATE.word = None, word & ~NOTING_PLANS  # as `unwatched`, which takes longer
    try:
        plan, inputs = prepare(args, kwargs)
        RUNS.last = plan, further
        made = plan(*inputs)
    finally:
        RUNS.now, STATE.word = outer, word
    if _reads_elements(args, kwargs, inputs):
        not_cacheable()
    return ran(plan, inputs, made if wrap is None else tuple.__new__(wrap, made), wrap)


def _reads_elements(args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[Any]) -> bool:
    """Whether a tensor stood for a number or a size (`alpha=`, `dim=`), whose value is in the plan or its inputs now."""
    taken = {id(x) for x in inputs}
    for value in (*args, *kwargs.values()):
        for x in value if type(value) in (list, tuple) else (value,):
            if isinstance(x, Tensor) and id(x) not in taken:
                return True
    return False


def make_cached(
    function: Callable[..., Any],
    names: Sequence[str],
    tensors: int = 1,
    sequences: bool = True,
    shortcut: Callable[..., Any] | None = None,
    alike: bool = False,
) -> Any:
    """`function`, which is plain Python, with the plans of its calls kept.

    It must be of those that only choose: what it runs depends on the specs of its tensors and the types of its numbers
    (the first `tensors` arguments) and on the values of the others (`names` are all of them; one that ends in `?` may
    be a tensor too, or tensors in a sequence, one in `*` one, tensors in a list, or a number, which goes into plans as
    it is), and what it returns is made by the plans that it runs (see `ran`; those of the operator table are noted by
    themselves) or is an argument.  Where it runs several they become a *plan sequence*: a native plan that runs them
    one after the other.  Whoever reads elements of tensors, or does what cannot be noted, says so (`not_cacheable`,
    `uncached`); then the function itself is the plan.  So it is of functions of any other kind, which want no
    `sequences`: what their arguments are is looked at once for a signature.

    `shortcut` is asked before anything is cached: where it does not give NotImplemented, a plan for this call would not
    be worth its cost.

    Of a function that is `alike` it is known that, where it runs one plan for some sizes, it runs the same for others
    of which that can be made: it looks at sizes to no other end, and tells the plan none but those that were written or
    are its tensors' (one that follows is -1).
    """

    def missed(*args: Any, **kwargs: Any) -> Any:
        word = STATE.word
        # Observers are told of the function too
        if word & (FUNCTION_MODE | OBSERVED | NOTING_PLANS) or not cacheable(call, args, kwargs):
            return function(*args, **kwargs)
        if shortcut is not None and not kwargs:
            made = shortcut(*args)
            if made is not NotImplemented:
                return made
        if not sequences:
            made = function(*args, **kwargs)
            _cache_itself(call, call.__wrapped__, args, kwargs)
            return made
        stands: dict[int, Tensor] = {}
        given, named = args, kwargs
        if _twice_among((*args, *kwargs.values())):
            given, named = _dealiased((args, kwargs), set(), stands)
        runs = PlanSequence((*given, *named.values()))
        before, RUNS.now = RUNS.now, runs
        STATE.word = word | NOTING_PLANS
        try:
            made = function(*given, **named)
        finally:
            RUNS.now = before
            STATE.word = word
        _cache_sequence(call, kinds, loose, given, named, runs, made, alike)
        if stands:
            if made is given[0]:
                made = args[0]
            elif isinstance(made, Tensor):
                made = stands.get(id(made), made)
            elif type(made) is tuple:
                made = tuple([stands.get(id(v), v) for v in made])
        return made

    endings = {"?": EITHER, "*": DYNAMIC}
    kinds = [DYNAMIC if i < tensors else endings.get(name[-1], STATIC) for i, name in enumerate(names)]
    loose = frozenset(name[:-1] for name in names if name[-1] == "*")
    call = make_dispatcher(missed, kinds, [...] * len(names), [name.rstrip("?*") for name in names])
    call.__name__ = call.__qualname__ = function.__name__
    call.__doc__, call.__module__ = function.__doc__, function.__module__
    call.__wrapped__ = function
    return call


def _twice_among(values: Sequence[Any]) -> bool:
    """Whether a tensor is there twice, be it in lists."""
    met: set[int] = set()
    for value in values:
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, Tensor):
                if id(item) in met:
                    return True
                met.add(id(item))
            elif isinstance(item, (tuple, list, dict)):
                return True  # perhaps: what is deeper is left to `_dealiased`
    return False


def _dealiased(value: Any, met: set[int], stands: dict[int, Tensor]) -> Any:
    """Arguments in which a tensor that is given twice is two tensors over the same memory, so that it can be seen which
    of them goes where.

    `stands` gets for whom those stand.  What has a history, or is a view, is left as it is.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        parts = [_dealiased(v, met, stands) for v in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else kind(parts)
    if kind is dict:
        return {name: _dealiased(v, met, stands) for name, v in value.items()}
    if not isinstance(value, Tensor):
        return value
    if id(value) in met and not value._rg and value._autograd_meta is None and kind is Tensor:
        other = make(value._storage, value._spec, value._ptr)
        stands[id(other)] = value
        return other
    met.add(id(value))
    return value


def _cache_sequence(
    call: Any,
    kinds: Sequence[int],
    loose: frozenset[str],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    runs: PlanSequence,
    made: Any,
    alike: bool,
) -> None:
    """Keep what ran for a call, or the function itself where that is not enough."""
    if runs.whole():
        if args and made is args[0] and not runs:
            cache_plan(call, args, kwargs, identity_plan(), (0,))
            return
        steps = runs if len(runs) == 1 and runs[0][2] is made else _needed(runs, made)
        varying = _varying(kinds, loose, args, kwargs)
        numbers = [a for a in varying.values() if not isinstance(a, Tensor) and a is not None]
        # Part of a plan, or of nothing
        baked = [n for n in numbers if not any(n is item for _, inputs, _, _ in steps for item in inputs)]
        if _twice(varying) or baked:
            _cache_itself(call, call.__wrapped__, args, kwargs)
            return
        if len(steps) == 1 and steps[0][2] is made:
            plan, inputs, _, wrap = steps[0]
            picks = [next((p for p, a in varying.items() if a is item), None) for item in inputs]
            if None not in picks:
                cache_plan(call, args, kwargs, plan, picks, wrap)
                last, further = RUNS.last
                specializer = further(plan) if alike and last is plan and further is not None else None
                if specializer is not None:
                    cache_shape_class(call, args, kwargs, picks, wrap, *specializer)
                return
        found = _sequence_of(steps, varying, args, made)
        if found is not None:
            cache_plan(call, args, kwargs, *found)
            return
    _cache_itself(call, call.__wrapped__, args, kwargs)


def _varying(
    kinds: Sequence[int], loose: frozenset[str], args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[Any, Any]:
    """The arguments that are no part of a signature by their values, by their picks; `loose` are the names of those
    that may be numbers.
    """
    numbers = (int, float, bool, complex)
    found: dict[Any, Any] = {}
    lists: list[Any] = []  # whose tensors come last
    for i, (kind, a) in enumerate(zip(kinds, args, strict=False)):
        if isinstance(a, Tensor) or kind == DYNAMIC and isinstance(a, numbers):
            found[i] = a
        elif isinstance(a, (tuple, list)):
            lists.append((i, a))
    for n, a in kwargs.items():
        if isinstance(a, Tensor) or n in loose and isinstance(a, numbers):
            found[n] = a
        elif isinstance(a, (tuple, list)):
            lists.append((n, a))
    for origin, a in lists:
        found |= {(origin, k): item for k, item in enumerate(a) if isinstance(item, Tensor)}
    return found


def _twice(varying: dict[Any, Any]) -> bool:
    """Whether a tensor is there twice, so that it cannot be said which one went where."""
    tensors = [id(a) for a in varying.values() if isinstance(a, Tensor)]
    return len(set(tensors)) < len(tensors)


def _tensors_in(value: Any) -> list[Any]:
    """The tensors that a plan or a function gives."""
    return [v for v in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(v, Tensor)]


def _needed(runs: Sequence[Any], made: Any) -> list[Any]:
    """The runs without those that only make what nobody reads."""
    read = {id(t) for t in _tensors_in(made)}
    steps = []
    for run in reversed(runs):
        _, inputs, given, _ = run
        tensors = [t for t in inputs if isinstance(t, Tensor)]
        changes = given is None or not tensors or any(given is t for t in tensors)
        made_here = _tensors_in(given)
        if changes or not made_here or any(id(t) in read for t in made_here):
            steps.append(run)
            read |= {id(t) for t in tensors}
    return steps[::-1]


_FIXED = (int, float, bool, complex, str, type(None), DType)  # constants of a plan sequence


class SequenceBuilder:
    """Writes a plan sequence down, in places: those of its inputs, then one for each tensor that a plan gives.

    A plan that changes a tensor gives that tensor, which is in the place of the result from then on.
    """

    def __init__(self, numbers: bool) -> None:
        """`numbers`: Python numbers are among the inputs, and those of plans are looked for there."""
        self._numbers = numbers
        self._places: dict[int, int] = {}
        self._constants: list[Any] = []
        self._steps: list[tuple[Any, list[int], int, int]] = []
        self._outputs: list[int] = []
        self._inputs = self._total = 0

    def input(self, value: Any) -> None:
        """The next input."""
        self._places.setdefault(id(value), self._total)
        self._inputs = self._total = self._total + 1

    def constant(self, value: Any) -> int | None:
        """The place of a number, a name or a dtype that the sequence holds; None for any other object."""
        if type(value) not in _FIXED:
            return None
        self._constants.append(value)
        return -len(self._constants)

    def _place(self, value: Any) -> int | None:
        """Where a value is found; None where it comes from elsewhere."""
        if isinstance(value, (Tensor, list)) or (self._numbers and type(value) in (int, float, bool, complex)):
            return self._places.get(id(value))
        return self.constant(value)

    def call(self, plan: Any, operands: Sequence[Any], given: Any) -> bool:
        """Run a plan, which gave `given`; False where it cannot be run again."""
        several = isinstance(given, (tuple, list))
        sources = [place for item in operands if (place := self._place(item)) is not None]
        if len(sources) < len(operands) or (several and not (given and all(isinstance(v, Tensor) for v in given))):
            return False
        self._steps.append((plan, sources, len(given) if several else 0, self._total))
        for item in given if several else (given,):
            self._places[id(item)] = self._total
            self._total += 1
        return True

    effect = call  # a plan that changes a tensor is run like any other, and all run in order

    def output(self, value: Any, last: bool = False) -> bool:
        """Return a value, or what the `last` plan read; False where it is not known."""
        place = self._places.get(id(value)) if last else self._place(value)
        if place is not None:
            self._outputs.append(place)
        return place is not None

    def finish(self, several: bool) -> Any:
        """The native plan; None where there is none."""
        last = {s: k for k, (_, sources, _, _) in enumerate(self._steps) for s in sources}

        def done(k: int, sources: list[int]) -> list[int]:
            """Slots that no later step reads."""
            made = [s for s in dict.fromkeys(sources) if s >= self._inputs]
            return [s for s in made if last[s] == k and s not in self._outputs]

        steps = [(plan, sources, n, at, done(k, sources)) for k, (plan, sources, n, at) in enumerate(self._steps)]
        return sequence_plan(steps, self._inputs, self._total, self._constants, self._outputs, several)


def _sequence_of(
    steps: Sequence[Any], varying: dict[Any, Any], args: Sequence[Any], made: Any
) -> tuple[Any, list[Any], Any] | None:
    """(plan, picks, wrap) of a plan sequence; None where something comes from elsewhere, or a number is neither an
    argument nor fixed.
    """
    inputs = {p: a for p, a in varying.items() if a is not None}
    builder = SequenceBuilder(any(not isinstance(a, Tensor) for a in inputs.values()))
    for value in inputs.values():
        builder.input(value)
    picks = [*inputs]
    if isinstance(made, list):  # one that was given
        if not args or made is not args[0]:
            return None
        picks.append(0)
        builder.input(made)
    if not all(builder.call(plan, operands, given) for plan, operands, given, _ in steps):
        return None
    several = isinstance(made, tuple)
    if steps and made is steps[-1][2] and not isinstance(made, (Tensor, tuple, list)):
        known = builder.output(made, last=True)  # an element that was read
    else:
        known = all(builder.output(item) for item in (made if several else (made,)))
    sequence = builder.finish(several) if known else None
    return None if sequence is None else (sequence, picks, type(made) if several and type(made) is not tuple else None)


def _cache_itself(call: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Keep the function as the plan of calls for which there is no other, so that they are not looked at again."""
    n, names = len(args), tuple(kwargs)
    plan = function if not names else lambda *values: function(*values[:n], **dict(zip(names, values[n:], strict=True)))
    cache_plan(call, args, kwargs, plan, [*range(n), *names])


def _picks(op: Operator, kinds: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Where the plan's inputs are found: a position, a name, or (either, place in the list); tensors in schema order,
    then numbers.
    """
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
