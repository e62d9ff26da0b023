"""Modes and classes that see the operators of a call below autograd, as `torch.utils._python_dispatch`.

>>> import rushlight as torch
>>> class Names(TorchDispatchMode):
...     def __init__(self):
...         super().__init__()
...         self.seen = []
...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
...         self.seen.append(str(func))
...         return func(*args, **(kwargs or {}))
>>> x = torch.ones(2, requires_grad=True)
>>> with Names() as names:
...     (x * 2).sum().backward()
>>> names.seen
['aten.mul.Tensor', 'aten.sum.default', 'aten.ones_like.default', 'aten.expand.default', 'aten.mul.Tensor', 'aten.detach.default']
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import LazyModule, trace_marks
from rushlight._interface.dispatch import HOOKS, ITEMS
from rushlight._interface.tensors import FUNCTION_MODE, STATE

calls: Any = LazyModule("rushlight.library.aten.calls")

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "autograd_would_have_decomposed",
    "is_in_any_mode_without_ignore_compile_internals",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
    "transform_subclass",
]


class TorchDispatchMode:
    """A context in which every operator goes through `__torch_dispatch__(func, types, args, kwargs)`, below autograd.

    `func` is an operator with its overload (`torch.ops.aten.add.Tensor`), `args` and `kwargs` are in the form of its
    schema without defaults at the end.  The method gives the result, usually `func(*args, **kwargs)`; inside of it the
    mode is off.  NotImplemented asks the classes of the arguments.  Modes nest, the innermost sees a call first.
    Forward and backward are seen, gradients are recorded above.
    """

    supports_higher_order_operators = False
    pre_dispatch = False  # it sees operators above autograd, as they are called
    _mode_key: _ModeKey | None = None  # the slot of an infrastructure mode

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._dispatch_key = _dispatch_key

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_dispatch__")

    def __enter__(self) -> Any:
        calls.ABOVE  # noqa: B018  loads what answers calls
        _push_mode(self)
        return self

    def __exit__(self, *exc: object) -> Any:
        _pop_mode(self._mode_key)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance; entering an instance is the form to use."""
        warnings.warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`", stacklevel=2)
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether the mode belongs to the compiler."""
        return cls._mode_key is not None

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether the compiler's own work is hidden from the mode."""
        return False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As a decorator: every call of the function runs in this mode."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped


class InfraMode(TorchDispatchMode):
    """A mode of the compiler: one of each kind is on at a time, and modes of users see calls before it.

    Entering one takes the place of another of its kind, which is back at exit; entering one that is on changes nothing.
    """

    def __init__(self, _dispatch_key: Any = None) -> None:
        super().__init__(_dispatch_key)
        self._replaced: list[Any] = []

    def __enter__(self) -> Any:
        self._replaced.append(_unset_infra_mode(self._mode_key))
        return super().__enter__()

    def __exit__(self, *exc: object) -> Any:
        super().__exit__(*exc)
        before = self._replaced.pop()
        if before is not None:
            _push_mode(before)


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _ModeKey(IntEnum):
    """Slots of infrastructure modes, the last one asked first."""

    FAKE = 0
    PROXY = 1


def _rank(mode: Any) -> int:
    """The place of a mode among others: infrastructure below users' modes, what sees calls above autograd above them."""
    users = len(_ModeKey)
    if mode.pre_dispatch:
        return users + 1
    return users if mode._mode_key is None else mode._mode_key


def _push_mode(mode: Any) -> None:
    HOOKS.dispatch_modes += 1
    ITEMS.clear()
    modes, rank = STATE.dispatch_modes, _rank(mode)
    modes.insert(next((i for i, other in enumerate(modes) if _rank(other) > rank), len(modes)), mode)
    STATE.word |= FUNCTION_MODE


def _pop_mode(k: Any = None) -> Any:
    """Remove the mode in a slot; without one, the innermost mode below autograd."""
    modes = STATE.dispatch_modes
    places = reversed(range(len(modes)))
    if k is None:
        mode = modes.pop(next((i for i in places if not modes[i].pre_dispatch), -1))
    else:
        mode = modes.pop(next(i for i in places if modes[i]._mode_key is k))
    if not modes and not STATE.function_modes:
        STATE.word &= ~FUNCTION_MODE
    HOOKS.dispatch_modes -= 1
    return mode


def _unset_infra_mode(key: Any) -> Any:
    """Remove the mode in a slot; None where it is empty."""
    return None if _detect_infra_mode(key) is None else _pop_mode(key)


@contextlib.contextmanager
@trace_marks.changes_later_calls
def _disable_infra_mode(key: Any) -> Iterator[Any]:
    """A context with an empty slot; gives the mode that was in it."""
    mode = _unset_infra_mode(key)
    try:
        yield mode
    finally:
        if mode is not None:
            _push_mode(mode)


@contextlib.contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    """A context without the innermost mode."""
    mode = _pop_mode()
    try:
        yield mode
    finally:
        _push_mode(mode)


@contextlib.contextmanager
@trace_marks.changes_later_calls
def _disable_current_modes() -> Iterator[list[Any]]:
    """A context in which no mode is asked."""
    held = list(STATE.dispatch_modes)
    with calls.without_modes():
        yield held


def _get_current_dispatch_mode() -> Any:
    """The innermost mode; None for none."""
    return STATE.dispatch_modes[-1] if STATE.dispatch_modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """The modes, the outermost first."""
    return list(STATE.dispatch_modes)


def _len_torch_dispatch_stack() -> int:
    return len(STATE.dispatch_modes)


def _detect_infra_mode(key: Any) -> Any:
    """The innermost mode with this key."""
    return next((m for m in STATE.dispatch_modes if m._mode_key is key and key is not None), None)


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is on."""
    modes = STATE.dispatch_modes
    return any(include_infra_modes or not m.is_infra_mode() for m in modes)


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """Whether a mode is on that sees the compiler's own work."""
    return any(not m.ignore_compile_internals() for m in STATE.dispatch_modes)


def autograd_would_have_decomposed(func: Any, flat_args: Sequence[Any]) -> bool:
    """Whether the operator is one that is made of others above autograd, and an argument would have been recorded."""
    form = getattr(func, "form", None)
    return bool(
        form is not None and form.composite and any(isinstance(a, Tensor) and a.requires_grad for a in flat_args)
    )


# ***** wrapper subclasses *****


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether a class of tensors says how its objects are taken apart and put together: `__tensor_flatten__`,
    `__tensor_unflatten__`.
    """
    return (
        issubclass(t, Tensor)
        and t is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether an object is a tensor of such a class.

    >>> import rushlight as torch
    >>> is_traceable_wrapper_subclass(torch.ones(2))
    False
    """
    return is_traceable_wrapper_subclass_type(type(t))


def transform_subclass(
    t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """The same wrapper around other tensors: `callback(name, tensor)` gives the new inner tensor of each name."""
    outer_size = t.size() if outer_size is None else outer_size
    outer_stride = t.stride() if outer_stride is None else outer_stride
    names, context = t.__tensor_flatten__()
    made = type(t).__tensor_unflatten__(
        {n: callback(n, getattr(t, n)) for n in names}, context, outer_size, outer_stride
    )
    if made.shape != outer_size:
        raise AssertionError(
            f"Expected return value from {type(t)}__tensor_unflatten__() to have shape equal to {outer_size}, but got: {made.shape}"
        )
    return made


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The result that `__torch_dispatch__` of a wrapper class should return: the argument itself where the operator
    writes to it, else `out`.

    Wrappers have no memory of their own here, so a view needs no more than being returned.
    """
    schema = func._schema
    kwargs = kwargs or {}
    given = dict(zip([a.name for a in schema.arguments], args, strict=False)) | kwargs
    returned = []
    results = out if isinstance(out, (tuple, list)) else [out]
    if len(schema.returns) != len(results):
        return out
    written = {a.alias: given.get(a.name) for a in schema.arguments if a.written}
    for declared, value in zip(schema.returns, results, strict=True):
        returned.append(written.get(declared.alias, value) if declared.written else value)
    return type(out)(returned) if isinstance(out, (tuple, list)) else returned[0]


def any_torch_dispatch_mode_on_stack(*, include_infra_modes: bool = False) -> bool:
    """Whether a mode is on; the compiler's own are left out."""
    return is_in_torch_dispatch_mode(include_infra_modes)
