"""The short way from a call as it was written to its plan: one pass over the arguments, one dict lookup.

What is written decides the key (specs of tensors, types of numbers, values of everything else); what the plan is called with is found by
`picks`, made once for a key.  Whatever this does not understand (subclasses, NumPy scalars, lists of ints, defaults by another name) goes the
long way, through `bind`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.state import FUNCTION_MODE, STATE, new_plan_table
from rushlight._engine.tensor import Tensor, plain_classes
from rushlight._ops.table import Operator
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.formats import Layout, MemoryFormat

__all__ = ["make_dispatch"]

_NUMBERS = frozenset((float, int, bool))
_PLAIN = frozenset((int, bool, str, float, type(None)))
_SETTINGS = frozenset((DType, Device, Layout, MemoryFormat))
STATIC, DYNAMIC, LIST = 0, 1, 2


def _kinds(op: Operator) -> list[int]:
    kinds = []
    for argument in op.schema.arguments:
        if argument.base == "Tensor" and argument.is_sequence:
            kinds.append(LIST)
        else:
            varies = argument.base in ("Tensor", "Scalar") and argument.name not in op.static and not argument.is_sequence
            kinds.append(DYNAMIC if varies else STATIC)
    return kinds


# long function: what varies per operator is bound once here, so that the function inside looks nothing up
def make_dispatch(op: Operator, prepare: Callable[..., Any], slow: Callable[..., Any], wrap: Any) -> Callable[..., Any]:
    """A function that calls `op`: by a plan found with the raw arguments, else `slow(args, kwargs)`.

    `prepare(args, kwargs)` gives (plan, inputs) for plain arguments; `wrap` is the named tuple that users get, or None.
    """
    table = new_plan_table()
    state = STATE
    kinds = _kinds(op)
    count = len(kinds)
    defaults = [None if a.required else a.default for a in op.schema.arguments]
    by_name = {a.name: (k, d) for a, k, d in zip(op.schema.arguments, kinds, defaults, strict=True)}
    last_static = op.schema.positional > 0 and kinds[op.schema.positional - 1] == STATIC

    pairs = list(zip(kinds, defaults, strict=True))
    plain = plain_classes

    def key_of(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        key: list[Any] = [state.word, len(args)]
        push = key.append
        for item, (kind, default) in zip(args, pairs):
            type_ = type(item)
            if kind == DYNAMIC:
                if type_ in plain:
                    push(item._spec)
                    push(item._rg)
                elif type_ in _NUMBERS:
                    push(type_)
                    push(type_ is type(default) and item == default)  # a default is part of the plan
                elif item is None:
                    push(None)
                else:
                    return None
            elif kind == STATIC:
                if type_ not in _PLAIN and not _hashable(item):
                    return None
                push(item)
            elif not _push_list(key, item):
                return None
        for item in args[count:]:
            if type(item) is not int:
                return None
            push(item)
        if kwargs and not push_named(key, kwargs):
            return None
        return tuple(key)

    def push_named(key: list[Any], kwargs: dict[str, Any]) -> bool:
        for name, item in kwargs.items():
            found = by_name.get(name)
            if found is None:
                return False
            key.append(name)
            type_ = type(item)
            if found[0] == STATIC:
                if type_ not in _PLAIN and not _hashable(item):
                    return False
                key.append(item)
            elif found[0] == LIST:
                if not _push_list(key, item):
                    return False
            elif type_ in plain:
                key.append(item._spec)
                key.append(item._rg)
            elif type_ in _NUMBERS or item is None:
                key.append(type_)
                key.append(type_ is type(found[1]) and item == found[1])
            else:
                return False
        return True

    def call(*args: Any, **kwargs: Any) -> Any:
        key = key_of(args, kwargs)
        found = table.get(key)
        if found is None:
            return missed(key, args, kwargs)
        plan, picks, names = found
        if names is None:
            made = plan(*_gather(picks, args, kwargs))
        elif names:
            made = plan(*[args[i] for i in picks], *[kwargs[n] for n in names])
        else:
            made = plan(*[args[i] for i in picks])
        return tuple.__new__(wrap, made) if wrap is not None else made

    def missed(key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if key is None or state.word & FUNCTION_MODE or "out" in kwargs or (len(args) > count and not last_static):
            return slow(args, kwargs)
        plan, inputs = prepare(args, kwargs)
        picks = _picks(op, kinds, args, kwargs)
        same = _gather(picks, args, kwargs)
        if len(same) == len(inputs) and all(a is b for a, b in zip(same, inputs, strict=True)):
            places = [p for p in picks if type(p) is int]
            names = [p for p in picks if type(p) is str]
            table[key] = (plan, places, names) if places + names == picks else (plan, picks, None)
        made = plan(*inputs)
        return tuple.__new__(wrap, made) if wrap is not None else made

    return call


def _hashable(item: Any) -> bool:
    """Whether a static argument may be part of a key: dtypes, formats and tuples of plain values."""
    kind = type(item)
    if kind is tuple:
        return all(type(v) in _PLAIN for v in item)
    return kind in _SETTINGS


def _push_list(key: list[Any], items: Any) -> bool:
    """Add a list of tensors to a key; False where the long way must be taken."""
    if type(items) is not tuple and type(items) is not list:
        return False
    key.append(len(items))
    for item in items:
        if type(item) not in plain_classes:
            return False
        key.append(item._spec)
        key.append(item._rg)
    return True


def _picks(op: Operator, kinds: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Where the plan's inputs are found: a position, a name, or (either, place in the list); tensors in schema order, then numbers."""
    tensors: list[Any] = []
    numbers: list[Any] = []
    for place, argument in enumerate(op.schema.arguments):
        if kinds[place] == STATIC:
            continue
        origin: Any = place if place < len(args) else argument.name
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if value is None:
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
