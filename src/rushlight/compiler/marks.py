"""Marks of a program for the compiler: which functions it should not look into, and which sizes vary.

Marks of functions are entries in tables of the tracer's (`HOOKS`); marks of sizes are attributes of tensors, with
PyTorch's names.  Nothing happens to a program that is not compiled.

>>> import rushlight as torch
>>> x = torch.ones(3, 4)
>>> torch._dynamo.mark_dynamic(x, 0, max=64)
>>> x._dynamo_dynamic_indices
{0}
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from rushlight import Tensor
from rushlight._interface.compiling import HOOKS

__all__ = [
    "allow_in_graph", "assume_constant_result", "disallow_in_graph", "forbid_in_graph", "graph_break", "innermost_function",
    "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic", "nested_compile_region", "nonstrict_trace",
    "skip_frame", "step_unsupported", "substitute_in_graph",
]  # fmt: skip

_Function = TypeVar("_Function", bound=Callable[..., Any])


# Reasons of breaks at functions that a program marked.
_DISALLOWED = "calls {name}(), which `disallow_in_graph` keeps out of graphs"
_CALLED = "Call to `torch._dynamo.{name}()`\n  Explanation: User-inserted graph break.\n  Hint: Remove the `torch._dynamo.{name}()` call."


def _keep(table: dict[int, Any], function: Any, *rest: Any) -> None:
    """Put a function into a table of the tracer's, and take it out when it dies: its number may come back."""
    number = id(function)
    try:
        table[number] = (weakref.ref(function, lambda _: table.pop(number, None)), *rest)
    except TypeError:
        table[number] = (function, *rest)


def innermost_function(function: Any) -> Any:
    """The function that a compiled or disabled one was made of; others as they are."""
    while getattr(function, "_torchdynamo_wrapper_id", None) == id(function):
        function = function._torchdynamo_orig_callable
    return function


def allow_in_graph(fn: Any) -> Any:
    """A function (or a list of them) that the compiler should not look into: it becomes one node.  AssertionError for
    what cannot be called.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    HOOKS.breaks.pop(id(fn), None)
    _keep(HOOKS.leaves, fn)
    return fn


def disallow_in_graph(fn: Any) -> Any:
    """A function at which a graph ends."""
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("disallow_in_graph expects a callable")
    HOOKS.leaves.pop(id(fn), None)
    _keep(HOOKS.breaks, fn, _DISALLOWED.format(name=getattr(fn, "__qualname__", fn)))
    return fn


def forbid_in_graph(fn: Any) -> Any:
    """A function whose call within a compiled program is an error."""
    if isinstance(fn, (list, tuple)):
        return [forbid_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("forbid_in_graph applies only to callables")
    fn._dynamo_forbidden = True
    _keep(HOOKS.breaks, fn, f"calls {getattr(fn, '__qualname__', fn)}(), which is forbidden in graphs")
    return fn


def assume_constant_result(fn: _Function) -> _Function:
    """A function whose result the compiler keeps: it is called once, while the program is traced."""
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    _keep(HOOKS.constant, fn)
    return fn


def nonstrict_trace(traceable_fn: _Function) -> _Function:
    """A function whose operators are recorded without a look at its Python."""
    allow_in_graph(traceable_fn)
    return traceable_fn


def nested_compile_region(
    fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None
) -> Any:
    """A function that occurs many times in a program, to be compiled once; without one a decorator."""
    if fn is None:
        return functools.partial(
            nested_compile_region, options=options, max_reuse_entries=max_reuse_entries, reuse_hash_fn=reuse_hash_fn
        )

    @functools.wraps(fn)
    def region(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    region.__marked_compile_region_fn__ = fn  # type: ignore[attr-defined]
    return region


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Any:
    """A decorator for what the compiler should trace in the place of a native function; the function itself is
    returned.

    TypeError for what is no function, and for another signature (unless `skip_signature_check`).
    """
    if not inspect.isfunction(original_fn) and not inspect.isbuiltin(original_fn) and not _is_method(original_fn):
        raise TypeError(f"substitute_in_graph expects a function but got {type(original_fn)}")

    def wrapper(traceable_fn: _Function) -> _Function:
        if not inspect.isfunction(traceable_fn):
            raise TypeError(f"@substitute_in_graph(...) expects a function but got {type(traceable_fn)}")
        if not skip_signature_check:
            _check_signatures(original_fn, traceable_fn)
        HOOKS.replaced[id(original_fn)] = (original_fn, traceable_fn)
        return traceable_fn

    return wrapper


def _is_method(function: Any) -> bool:
    return inspect.ismethoddescriptor(function) or isinstance(function, type)


def _check_signatures(original: Callable[..., Any], substitute: Callable[..., Any]) -> None:
    """TypeError where parameters have other names or kinds, or other defaults."""
    try:
        asked = inspect.signature(original)
    except ValueError:
        return
    given = inspect.signature(substitute)

    def shape(signature: inspect.Signature) -> list[Any]:
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    if shape(asked) != shape(given):
        raise TypeError(f"Signature mismatch between {original} and {substitute}: {asked} != {given}")


# ***** ends of graphs *****


def graph_break(msg: str = "") -> None:
    """A graph ends here; nothing happens where the program is not compiled."""


def skip_frame(msg: str = "") -> None:
    """The function that calls this is not compiled."""


def step_unsupported(msg: str = "") -> None:
    """The function that calls this is not compiled from here on."""


# ***** sizes *****


class _DimRange(NamedTuple):
    """A dim that varies, and between which sizes."""

    dim: int
    min: int | None
    max: int | None


def _each(index: Any) -> tuple[int, ...] | list[int]:
    if isinstance(index, int):
        return (index,)
    if not isinstance(index, (list, tuple)):
        raise AssertionError(f"Expected index to be int, list, or tuple, got {type(index)}")
    return index


def mark_dynamic(
    t: Any,
    index: Any,
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: Any = None,
) -> None:
    """A dim (or several) of a tensor varies, between `min` and `max`: the compiler must not burn its size in.

    Where a program does so all the same, or asks for less than this range, compiling it is a ConstraintViolationError that
    names the dim and the line.
    """
    for dim in _each(index):
        if not hasattr(t, "_dynamo_dynamic_indices"):
            t._dynamo_dynamic_indices, t._dynamo_dynamic_range, t._dynamo_hint_overrides = set(), set(), {}
        if not hasattr(t, "_specialize_on"):
            t._specialize_on = {}
        if hint_override:
            t._dynamo_hint_overrides[dim] = hint_override
        t._dynamo_dynamic_indices.add(dim)
        t._dynamo_dynamic_range.add(_DimRange(dim, min, max))
        t._specialize_on[dim] = specialize_on if specialize_on is not None else []
        t._has_dynamo_dim_marking = True


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """A dim (or several) of a tensor may vary: it is a symbol until something burns it in."""
    for dim in _each(index):
        if not hasattr(t, "_dynamo_weak_dynamic_indices"):
            t._dynamo_weak_dynamic_indices = set()
        t._dynamo_weak_dynamic_indices.add(dim)
        t._has_dynamo_dim_marking = True


def mark_unbacked(
    t: Any, index: Any, hint_override: int | None = None, strict: bool = False, specialize_on: Any = None
) -> None:
    """A dim (or several) of a tensor varies; here as `maybe_mark_dynamic`, for each symbolic size has a value while it is
    traced.
    """
    for dim in _each(index):
        if not hasattr(t, "_dynamo_unbacked_indices"):
            t._dynamo_unbacked_indices = set()
        t._dynamo_unbacked_indices.add(dim)
        t._has_dynamo_dim_marking = True


def mark_static(t: Any, index: Any = None) -> Any:
    """A dim of a tensor, or all, does not vary; of a class of modules, that its integers are burnt in."""
    if not isinstance(t, Tensor):
        if not isinstance(t, type):
            raise TypeError("issubclass() arg 1 must be a class")
        t._dynamo_marked_static = True  # type: ignore[attr-defined]
        return t
    tensor: Any = t
    for dim in range(t.dim()) if index is None else _each(index):
        if not hasattr(tensor, "_dynamo_static_indices"):
            tensor._dynamo_static_indices = set()
        tensor._dynamo_static_indices.add(dim)
        tensor._has_dynamo_dim_marking = True
    return None


def mark_static_address(t: Any, guard: bool = False) -> None:
    """A tensor's memory stays where it is."""
    if not isinstance(t, Tensor):
        raise TypeError(f"mark_static_address expects a tensor but received {type(t)}")
    tensor: Any = t
    tensor._dynamo_static_input_type = "guarded" if guard else "unguarded"


for _function in (graph_break, skip_frame, step_unsupported):
    HOOKS.breaks[id(_function)] = (_function, _CALLED.format(name=_function.__name__))
for _function in (mark_dynamic, maybe_mark_dynamic, mark_unbacked, mark_static_address):
    HOOKS.breaks[id(_function)] = (_function, f"calls {_function.__name__}(), which belongs before a compiled program")
