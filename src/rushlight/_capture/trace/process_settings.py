"""Process state that a trace reads besides tensors: settings that functions tell, and methods of tensors that a program
replaced.

A function of ours that tells a setting runs while a function is traced, and its answer is part of the trace: it is
asked again before the trace is used.  What the state word and the lists of `process_states` hold is guarded by these.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from rushlight._base.own_names import own_module
from rushlight._capture.trace.package_code import PACKAGE, function_of, is_foreign, is_foreign_attribute
from rushlight._engine.core.hooks import HOOKS as ENGINE_HOOKS
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._types.device import Device
from rushlight._types.dtype import DType

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["REPLACED", "guard_setting", "replaced_operators"]

_TOLD = (bool, int, float, str, DType, Device)
# Their answers depend on arguments, or on what is guarded elsewhere and may be another inside of a region.
_STEADY = frozenset((
    "is_grad_enabled", "_is_grad_enabled", "is_inference_mode_enabled", "is_anomaly_enabled", "get_default_dtype", "get_default_device", "default_dtype",
    "are_deterministic_algorithms_enabled", "is_autocast_enabled", "is_autocast_cpu_enabled", "get_autocast_dtype", "get_autocast_cpu_dtype",
    "get_autocast_gpu_dtype", "is_autocast_cache_enabled", "is_exporting", "is_compiling", "is_dynamo_compiling", "promote_types", "can_cast",
    "result_type", "is_tensor", "is_storage", "typename", "is_available", "is_built", "device_count", "is_function", "is_tensor_like",
    "is_tensor_method_or_property", "is_autocast_available", "get_world_size", "get_rank", "is_initialized",
))  # fmt: skip


def guard_setting(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> None:
    """Require that a function of ours which was given plain values alone tells what it told, and that casts are as they
    were where something is asked about them.
    """
    name = getattr(function, "__qualname__", "")
    if "autocast" in f"{getattr(function, '__module__', '')}.{name}":
        place = tracer.reads.constant(STATE)
        tracer.reads.check(
            place, f"{tracer.constants.name(_casts)}({{}}) == {tracer.constants.name(tracer.begun_casts)}"
        )
    if (
        not isinstance(made, _TOLD)
        or not isinstance(function, types.FunctionType)
        or "." in name
        or name in _STEADY
        or name.startswith(("has_torch_function", "sym_"))
        or not all(x is None or isinstance(x, _TOLD) for x in (*args, *kwargs.values()))
    ):
        return
    told = tracer.constants.name
    given = ", ".join([*map(told, args), *[f"{key}={told(x)}" for key, x in kwargs.items()]])
    tracer.reads.check(tracer.reads.constant(function), f"{{}}({given}) == {told(made)}")


def casts_now() -> tuple[Any, ...]:
    """Where casts are on, to which dtypes they go, and whether those of weights are kept."""
    return _casts(STATE)


def _casts(state: Any) -> tuple[Any, ...]:
    on = sorted(place for place, on in state.casts.items() if on)
    return on, sorted((place, str(dtype)) for place, dtype in state.cast_dtypes.items()), state.cast_keeps


# ***** methods of tensors *****

# None, or an object that stands for what programs have put in the place of attributes of our classes of tensors.
REPLACED: list[Any] = [None]
_now: dict[tuple[str, str], tuple[Any, Any]] = {}  # what was there at first, and what is there now
_known: dict[Any, _Replacements] = {}


class _Replacements:
    """Replaced attributes, kept alive: their addresses are the key."""

    def __init__(self, held: list[Any], names: frozenset[str]) -> None:
        self.held, self.names = held, names


def replaced_operators() -> list[str]:
    """Special methods of tensors that a program replaced."""
    held = REPLACED[-1]
    return [] if held is None else sorted(name for name in held.names if name.startswith("__") and name.endswith("__"))


# Attributes that Python itself keeps in a class: slot names for copies and pickles, abstract methods, type parameters.
_OF_PYTHON = frozenset(
    ("__slotnames__", "__abstractmethods__", "__annotations__", "__doc__", "__parameters__", "_abc_impl")
)


def _attribute_changed(kind: type, name: str, before: Any, after: Any) -> None:
    """Called by the metaclass of tensors, which somebody's code has called; our own gives classes their members."""
    setter = own_module(sys._getframe(2).f_globals.get("__name__"))
    if name not in _OF_PYTHON and setter.partition(".")[0] != PACKAGE:
        _note_change(kind, name, before, after)


def _note_change(kind: type, name: str, before: Any, after: Any) -> None:
    if own_module(kind.__module__).partition(".")[0] != PACKAGE or before is after:
        return
    if kind is not Tensor and not hasattr(type(before), "__get__") and not hasattr(type(after), "__get__"):
        return  # data of a class of ours
    key = kind.__qualname__, name
    if key not in _now and (before is None or type(before).__name__ == "LazyMethod") and not _users(after):
        return  # a method of ours, made when it is first asked for
    new = before is None and not name.startswith("__") and not _is_inherited(kind, name)
    if key not in _now and (new or is_foreign_attribute(before)):
        return  # a program's own name, which is guarded by its value where it is read
    first = _now.pop(key, (before, before))[0]
    if first is not after:
        _now[key] = first, after
    if not _now:
        REPLACED[-1] = None
        return
    found = frozenset((key, id(now)) for key, (_, now) in _now.items())
    if found not in _known:
        _known[found] = _Replacements([now for _, now in _now.values()], frozenset(name for _, name in _now))
    REPLACED[-1] = _known[found]


def _is_inherited(kind: type, name: str) -> bool:
    return any(name in vars(base) for base in kind.__mro__[1:])


def _users(value: Any) -> bool:
    held = function_of(value)
    return (
        is_foreign(held)
        if isinstance(held, types.FunctionType)
        else own_module(type(held).__module__).partition(".")[0] != PACKAGE
    )


def _note_earlier() -> None:
    """Note special methods that were replaced before there was a compiler."""
    for name, value in list(Tensor.__dict__.items()):
        if name.startswith("__") and isinstance(value, types.FunctionType) and is_foreign(value):
            _note_change(Tensor, name, None, value)


ENGINE_HOOKS.attribute_changed = _attribute_changed
_note_earlier()
