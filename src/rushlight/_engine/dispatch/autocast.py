"""Automatic casting: inside a region, operators convert the dtypes of their arguments first.

Whether casting is on, and to which dtype, is part of the state word and so of every signature: outside of regions it
costs nothing, and inside the plan made for that state casts.  Within an operator that casts (a composite that calls
others) it is off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backends
from rushlight._base.trace_marks import changes_later_calls
from rushlight._engine.core.state import AUTOCAST, GRAD, OBSERVED, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._ops.precision import KEEP, LOWER, SINGLE, SINGLE_DEFAULT, UNSAFE, Casting, casting_of, choose
from rushlight._types.device import Device
from rushlight._types.dtype import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType

__all__ = [
    "PLACES",
    "cast_call",
    "cast_where_listed",
    "casting_in",
    "casting_plan",
    "casts",
    "clear_casts",
    "dtype_of",
    "enter",
    "leave",
    "lowered",
    "place_of",
    "policy_for",
    "set_casting",
    "set_dtype",
    "set_enabled",
]

# Device types that may have a region, and their default dtype.
PLACES: dict[str, DType] = {
    "cpu": BFLOAT16, "cuda": FLOAT16, "xpu": FLOAT16, "mps": FLOAT16, "hpu": BFLOAT16, "xla": BFLOAT16, "ipu": FLOAT16, "mtia": FLOAT16,
    "maia": BFLOAT16, "privateuseone": FLOAT16,
}  # fmt: skip
# Cached casts of weights, by the identity of the weight; the weight is kept alive so that its identity stays unique.
_KEPT: dict[tuple[int, DType], tuple[Tensor, Tensor]] = {}
# All settings that were ever on: (type of device, dtype) pairs; the state word holds an index into this list.
_SETTINGS: list[tuple[tuple[str, DType], ...]] = []
# Products: they cast their operands while they pack or read them.
_PACKING = frozenset(("addbmm", "addmm", "baddbmm", "bmm", "linear", "matmul", "mm"))
_SHIFT = 11  # the first bit of AUTOCAST


@changes_later_calls
def set_enabled(place: str, enabled: bool) -> None:
    """Turn casting on or off for the tensors of this type of device, in this thread."""
    STATE.casts[place] = enabled
    _refresh()


def dtype_of(place: str) -> DType:
    """The dtype that is cast to on this type of device, in this thread: float16 for types from outside, until another
    is set.
    """
    return STATE.cast_dtypes.get(place) or PLACES.get(place) or FLOAT16


@changes_later_calls
def set_dtype(place: str, dtype: DType) -> None:
    """Choose the dtype that is cast to on this type of device, in this thread."""
    STATE.cast_dtypes[place] = dtype
    _refresh()


def _refresh() -> None:
    word = STATE.word & ~AUTOCAST
    here = backends()
    setting = tuple([(place, dtype_of(place)) for place in sorted(STATE.casts) if STATE.casts[place] and place in here])
    if setting:
        if setting not in _SETTINGS:
            _SETTINGS.append(setting)
        word |= (_SETTINGS.index(setting) + 1) << _SHIFT
    STATE.word = word


@changes_later_calls
def set_casting(place: str, enabled: bool, dtype: DType, keeps: bool) -> tuple[bool, DType, bool]:
    """Set the whole state of a region; returns the former state, with which to restore it."""
    state = STATE
    casts, dtypes = state.casts, state.cast_dtypes
    before = casts.get(place, False), dtype_of(place), state.cast_keeps
    casts[place], dtypes[place], state.cast_keeps = enabled, dtype, keeps
    if place in backends():
        _refresh()
    return before


def enter() -> int:
    """Count an entered region; returns how many are open."""
    STATE.cast_depth += 1
    return STATE.cast_depth


def leave() -> int:
    """Count a region that is left; returns how many are still open."""
    STATE.cast_depth -= 1
    return STATE.cast_depth


def clear_casts() -> None:
    """Forget the casts of weights."""
    _KEPT.clear()


def casting_in(name: str, spaces: Sequence[str] = ()) -> Casting:
    """The casting policies of the function with this name in these spaces."""
    for space in ("linalg", "fft"):
        if space in spaces:
            return casting_of(f"{space}_{name}")
    return casting_of(name)


# ***** which dtype, and the cast *****


def _type_of(tensor: Tensor) -> str:
    """The type of a tensor's device; a fake tensor of a GPU says it, its layout is that of "meta"."""
    found: str = tensor._spec.device.type
    return tensor.device.type if found == "meta" else found


def _eligible(tensor: Tensor) -> bool:
    dtype = tensor._spec.dtype
    return dtype.is_floating_point and dtype is not FLOAT64 and bool(STATE.casts.get(_type_of(tensor)))


def _place(tensors: Sequence[Tensor]) -> str | None:
    """The first type of device of these tensors for which casting is on."""
    casts = STATE.casts
    return next((place for place in map(_type_of, tensors) if casts.get(place)), None)


def policy_for(name: str, template: Sequence[Any], tensors: Sequence[Tensor]) -> str | None:
    """The casting policy of an operator's call; None where nothing is cast."""
    place = _place(tensors)
    return None if place is None else choose(name, template, [t._spec.shape for t in tensors], place)


def _target(policy: str, tensors: Sequence[Tensor]) -> DType | None:
    if policy == KEEP:
        return None
    if policy == UNSAFE:
        raise RuntimeError(
            "binary_cross_entropy is unsafe to autocast: its input, a probability, loses too much in 16 bits. "
            "Use binary_cross_entropy_with_logits (BCEWithLogitsLoss) and leave the sigmoid away, or turn autocast off for this call."
        )
    lower: DType = dtype_of(_place(tensors) or "cpu")
    if policy == LOWER:
        return lower
    if policy in (SINGLE, SINGLE_DEFAULT):
        return FLOAT32
    found = lower
    for tensor in tensors:
        if not tensor._spec.dtype.is_floating_point or not STATE.casts.get(_type_of(tensor)):
            continue
        found = _wider(found, tensor._spec.dtype, lower)
    return found


def _wider(found: DType, other: DType, lower: DType) -> DType:
    """The wider of two dtypes that are joined; double stays out of it."""
    if other is FLOAT64:
        return found
    if FLOAT32 in (found, other):
        return FLOAT32
    if found is lower and other is lower:
        return lower
    raise RuntimeError(
        f"Unexpected floating ScalarType in at::autocast::prioritize: {other} among tensors that are joined while operators cast to {lower}"
    )


def _cast(tensor: Tensor, to: DType) -> Tensor:
    """A copy in another dtype; that of a weight is kept until the outermost region ends."""
    keep = (
        STATE.word & GRAD  # a cast without history cannot serve recorded calls
        and tensor._spec.dtype is FLOAT32
        and tensor._rg
        and tensor._node is None
        and STATE.cast_keeps
        and to is dtype_of(_type_of(tensor))
        and not tensor._is_view()
    )
    if not keep:
        return tensor.to(to)
    key = (id(tensor), to)
    found = _KEPT.get(key)
    if found is None:
        found = _KEPT[key] = (tensor, tensor.to(to))
    return found[1]


# ***** calls *****


def casts(usual: str | None, gpu: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates plain Python over tensors that changes the dtypes of its arguments first, by one policy on GPUs and one
    elsewhere; for None it stays what it is.
    """
    casting = Casting(usual, gpu)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if casting == (None, None):
            return function

        @functools.wraps(function)
        def body(*args: Any, **kwargs: Any) -> Any:
            if STATE.word & AUTOCAST and kwargs.get("out") is None:
                return cast_call(casting, function, args, kwargs)
            return function(*args, **kwargs)

        return body

    return decorate


def casting_plan(caller: Any, policy: str, template: tuple[Any, ...], tensors: Sequence[Tensor]) -> Callable[..., Any]:
    """The plan of an operator that casts first: which of its arguments, and to what, is decided here."""
    to = _target(policy, tensors)
    places = [] if to is None else [i for i, t in enumerate(tensors) if _eligible(t) and t._spec.dtype is not to]
    count = len(tensors)
    state = STATE
    recorded = state.word & GRAD and any(t._rg for t in tensors)
    if to is not None and caller.name in _PACKING and places and not recorded and not state.word & OBSERVED:
        found = caller.casting(template, tensors, places, to)
        if found is not None:
            return found

    def plan(*inputs: Any) -> Any:
        given = list(inputs)
        word = state.word
        state.word = word & ~AUTOCAST
        try:
            for i in places:
                given[i] = _cast(given[i], to)  # type: ignore[arg-type]  # there are no places without a dtype
            return caller.plan(template, given[:count])(*given)
        finally:
            state.word = word

    return plan


def lowered(tensor: Tensor) -> Tensor:
    """A result as a product leaves it: where operators cast, in the dtype that they cast to."""
    if STATE.word & AUTOCAST and _eligible(tensor):
        return tensor.to(dtype_of(_type_of(tensor)))
    return tensor


def cast_call(casting: Casting, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function of tensors, with its arguments cast, and without casts inside; as it is where its policy is none."""
    handled, made = cast_where_listed(casting, function, args, kwargs)
    return made if handled else function(*args, **kwargs)


def cast_where_listed(
    casting: Casting, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[bool, Any]:
    """(True, result) of a call that automatic casting has a policy for; (False, None) of others, which are not made."""
    tensors: list[Tensor] = []
    _gather((*args, *kwargs.values()), tensors)
    policy = casting.on(_place(tensors))
    if policy is None or (policy == SINGLE_DEFAULT and any(isinstance(a, DType) for a in (*args, *kwargs.values()))):
        return False, None
    to = _target(policy, tensors)
    word = STATE.word
    STATE.word = word & ~AUTOCAST
    try:
        return True, function(*[_converted(a, to) for a in args], **{k: _converted(v, to) for k, v in kwargs.items()})
    finally:
        STATE.word = STATE.word & ~AUTOCAST | word & AUTOCAST


def _gather(values: Sequence[Any], found: list[Tensor]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif type(value) in (list, tuple):
            _gather(value, found)


def _converted(value: Any, to: DType | None) -> Any:
    if to is None:
        return value
    if isinstance(value, Tensor):
        return _cast(value, to) if _eligible(value) and value._spec.dtype is not to else value
    if type(value) in (list, tuple):
        return type(value)(_converted(v, to) for v in value)
    return value


def place_of(device_type: Any) -> str:
    """The name of a device type as given by a user; TypeError for anything but a str."""
    if device_type.__class__ is str and device_type in PLACES:
        return device_type
    if not isinstance(device_type, str):
        raise TypeError(f"expected a device type as str, got {type(device_type).__name__}")
    return str(Device(device_type).type)
