"""Calls of aten operators: composites above, a node for autograd, then the dispatch modes and classes, then the kernel.

Modes are asked first, the one entered last before the others; each is away while it is asked, so that it may call the
operator.  Then the classes of the arguments are asked, subclasses before their bases.  What runs below a node records
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight._interface.dispatch import DISPATCH_CLASSES, call_name, cast_first
from rushlight._interface.functorch import LEVELS, top_level
from rushlight._interface.tensors import AUTOCAST, FUNCTION_MODE, GRAD, INFERENCE, STATE, inherit
from rushlight.library.aten.schemas import Form, bind, choose, forms_of, is_default

functions: Any = LazyModule("rushlight.library.aten.functions")
nodes: Any = LazyModule("rushlight.library.aten.nodes")
kernels: Any = LazyModule("rushlight.library.aten.kernels")
fronts: Any = LazyModule("rushlight.library.aten.fronts")

__all__ = ["ABOVE", "asks", "below", "call", "own_below", "redispatch", "run_kernel", "shown"]


class _Above(threading.local):
    """Per thread: whether autograd has had its turn in the call that runs, and whether it recorded."""

    done = recorded = False
    body: Any = None  # of the function that runs as it is


ABOVE = _Above()
inherit(ABOVE)


# ***** who is asked *****


def _collect(values: Any, found: list[Any]) -> None:
    for value in values:
        if isinstance(value, (tuple, list)):
            _collect(value, found)
        elif type(value) in DISPATCH_CLASSES and all(type(v) is not type(value) for v in found):
            place = next((i for i, v in enumerate(found) if issubclass(type(value), type(v))), len(found))
            found.insert(place, value)


def asks(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments whose classes have a `__torch_dispatch__`, one of each class, subclasses before their bases."""
    found: list[Any] = []
    if DISPATCH_CLASSES and not STATE.dispatch_off:
        _collect(args, found)
        _collect(kwargs.values(), found)
    return found


@contextmanager
def without_modes() -> Iterator[None]:
    """A context in which no dispatch mode is asked."""
    held, word = STATE.dispatch_modes, STATE.word
    STATE.dispatch_modes = []
    if not STATE.function_modes:
        STATE.word = word & ~FUNCTION_MODE
    try:
        yield
    finally:
        STATE.dispatch_modes, STATE.word = held, word


# ***** from functions to operators *****

# Facts about tensors, and functions that run as they are: their Python calls operators.
_PLAIN = frozenset(
    "size stride dim ndimension numel nelement element_size is_floating_point is_complex is_signed is_same_size is_inference requires_grad_ register_hook"
    " register_post_accumulate_grad_hook retain_grad backward get_device is_shared __len__ __format__ __repr__ __hash__ is_contiguous storage_offset"
    " untyped_storage storage data_ptr get grad __get__ __set__ __delete__ is_conj is_neg is_tensor is_storage set_grad_enabled result_type can_cast"
    " promote_types finfo iinfo __reduce_ex__ __deepcopy__ __dir__ is_distributed manual_seed seed broadcast_shapes vmap _is_view is_set_to"
    " __dlpack__ __dlpack_device__ type data is_pinned nbytes itemsize is_leaf dense_dim sparse_dim is_sparse layout share_memory_ module_load"
    " set_default_dtype get_default_dtype as_subclass __array__ numpy tolist __iter__ __reversed__ __contains__ save load".split()
)


# Functions that make tensors from sizes: Python's forms name the device, and that memory is not pinned.
FACTORIES = frozenset(
    "zeros ones empty full rand randn randint randperm arange eye linspace logspace empty_strided empty_permuted tril_indices triu_indices scalar_tensor"
    " bartlett_window blackman_window hamming_window hann_window kaiser_window".split()
)


def below(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """(True, result) where the call became calls of operators; (False, None) where the function is to run as it is."""
    state = STATE
    if state.dispatch_off or not state.dispatch_modes and not asks(args, kwargs):
        return False, None
    name = aten_name(function)
    if state.word & AUTOCAST:  # casting lies above autograd, which lies above what is asked here
        handled, made = cast_first(name, function, args, kwargs)
        if handled:
            return True, made
    name, args, kwargs = in_place(name, function, args, kwargs)
    if name in FACTORIES:
        kwargs = {"device": rushlight.get_default_device(), "pin_memory": False} | {
            k: v for k, v in kwargs.items() if v is not None
        }
    if state.dispatch_modes and state.dispatch_modes[-1].pre_dispatch and name not in _PLAIN:
        front = fronts.FRONTS.get(name)
        seen: tuple[Any, ...] = (name, args, kwargs) if front is None else front(*args, **kwargs)
        native, given, *named = seen
        found = choose(native, given, named[0] if named else {})
        if found is not None:
            form, values = found
            made = above(overload_of(form), *shown(form, values))
            return True, finish(function, named[1](made) if len(named) > 1 else made)
    handler = functions.HANDLERS.get(name)
    if handler is not None:
        made = handler(*args, **kwargs)
        if made is not NotImplemented:
            return True, made
    if name in _PLAIN:
        return False, None
    body = getattr(function, "__wrapped__", None)
    forms = forms_of(name)
    if forms and not (body is not None and all(f.composite for f in forms.values() if not f.writes_out)):
        found = choose(name, args, kwargs)
        if found is not None:
            form, values = found
            word = state.word
            state.word = word & ~AUTOCAST
            try:
                made = finish(function, chosen(overload_of(form), *shown(form, values)))
            finally:
                state.word = state.word & ~AUTOCAST | word & AUTOCAST
            return True, made.requires_grad_() if kwargs.get("requires_grad") else made
    if body is not None:
        if body is ABOVE.body:  # it asks by itself, and this is the question
            return False, None
        outer, ABOVE.body = ABOVE.body, body
        try:
            return True, body(*args, **kwargs)
        finally:
            ABOVE.body = outer
    if getattr(function, "operator", None) is None:
        return False, None
    return True, functions.opaque(function, args, kwargs)


def in_place(name: str, function: Any, args: Sequence[Any], kwargs: Any) -> tuple[str, Sequence[Any], Any]:
    """A call without `inplace`, the one argument that schemas do not have."""
    row = getattr(function, "operator", None)
    if row is not None and args and type(args[-1]) is bool and len(args) == len(row.schema.arguments) + 1:
        kwargs, args = {**kwargs, "inplace": args[-1]}, args[:-1]
    if "inplace" in kwargs:
        kwargs = dict(kwargs)
        name = f"{name}_" if kwargs.pop("inplace") else name
    return name, args, kwargs


def finish(function: Any, made: Any) -> Any:
    """Several results in the named tuple that the function returns."""
    wrap = functions.result_class(function) if isinstance(made, tuple) else None
    return made if wrap is None else wrap(made)


_NAMES: dict[Any, str] = {}


def aten_name(function: Any) -> str:
    """The name of a function of the package among the aten operators."""
    try:
        found = _NAMES.get(function)
    except TypeError:
        return call_name(function)
    if found is None:
        found = _NAMES[function] = functions.native_name(function)
    return found


def overload_of(form: Form) -> Any:
    """The overload as an object of `torch.ops.aten`."""
    if form.target is None:
        form.target = getattr(getattr(rushlight.ops.aten, form.name), form.overload)
    return form.target


def shown(form: Form, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as modes see them: by place as far as the schema has places, without defaults at the end; the
    others by name, without defaults.
    """
    arguments, count = form.parsed().arguments, form.arguments().count
    while count and is_default(arguments[count - 1], values[count - 1]):
        count -= 1
    if len(arguments) == form.arguments().count:
        return tuple(values[:count]), {}
    named = {a.name: v for a, v in zip(arguments, values, strict=True) if a.kwarg_only and not is_default(a, v)}
    return tuple(values[:count]), named


# ***** a call of an operator *****


def call(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an overload: above autograd, if that has not had its turn."""
    state = STATE
    if state.dispatch_off or not state.dispatch_modes and not asks(args, kwargs):
        return run_kernel(op, args, kwargs)
    if LEVELS.stack and top_level((args, kwargs)) is not None:  # modes see what the transform makes of the call
        return run_kernel(op, args, kwargs)
    if op.form is not None:
        values = bind(op.form, args, kwargs, strict=True)
        if values is not None:
            args, kwargs = shown(op.form, values)
    return chosen(op, args, kwargs)


def chosen(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an overload that somebody is asked about, with arguments as they are shown."""
    state, form = STATE, op.form
    if state.dispatch_modes and state.dispatch_modes[-1].pre_dispatch:
        return above(op, args, kwargs)
    if form is not None and form.composite:
        handler = functions.HANDLERS.get(form.name)
        if handler is not None:
            made = handler(*args, **kwargs)
            if made is not NotImplemented:
                return made
    if ABOVE.done or state.word & INFERENCE:
        return redispatch(op, args, kwargs)
    made = nodes.recorded(op, args, kwargs) if state.word & GRAD else redispatch(op, args, kwargs)
    return _changed(op, args, made)


def _changed(op: Any, args: Sequence[Any], made: Any) -> Any:
    """The tensor that an operator changed in place, whatever object its class or mode gave for it; else the result."""
    if not op.in_place or not isinstance(made, rushlight.Tensor):
        return made
    return args[0] if args and isinstance(args[0], rushlight.Tensor) else made


def followed(override: Any) -> Any:
    """An override of a user's that is about to be called; in a trace, what follows it."""
    return override if STATE.follow is None else STATE.follow(override)


def above(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Ask the innermost mode, which sees operators above autograd; it is away meanwhile."""
    state = STATE
    types = tuple(type(v) for v in asks(args, kwargs))
    mode = state.dispatch_modes.pop()
    word = state.word
    if not state.dispatch_modes and not state.function_modes:
        state.word = word & ~FUNCTION_MODE
    try:
        return followed(mode.__torch_dispatch__)(op, types, tuple(args), dict(kwargs))
    finally:
        state.dispatch_modes.append(mode)
        state.word = word


def redispatch(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an overload below autograd: the first mode or class that does not decline, else the kernel."""
    state = STATE
    found = asks(args, kwargs)
    if (
        not state.dispatch_modes
        and not found
        or state.dispatch_off
        or LEVELS.stack
        and top_level((args, kwargs)) is not None
    ):
        return run_kernel(op, args, kwargs)
    if (
        op._opname not in _CONJUGATES
        and not op.is_view
        and any(t.is_conj() for t in (*args, *kwargs.values()) if isinstance(t, rushlight.Tensor) and t._spec.conj)
    ):
        args = [
            redispatch(rushlight.ops.aten.clone.default, (t,), {})
            if isinstance(t, rushlight.Tensor) and t._spec.conj
            else t
            for t in args
        ]
    types = tuple(type(v) for v in found)
    declined = []
    with _below_autograd():
        if state.dispatch_modes:
            mode = state.dispatch_modes.pop()
            word = state.word
            if not state.dispatch_modes and not state.function_modes:
                state.word = word & ~FUNCTION_MODE
            try:
                rule = op.by_class.get(type(mode))
                given = (op, types, tuple(args), dict(kwargs))
                made = followed(mode.__torch_dispatch__)(*given) if rule is None else rule(mode, *given)
            finally:
                state.dispatch_modes.append(mode)
                state.word = word
            if made is not NotImplemented:
                return made
            declined.append(f"mode object {mode!r}")
        for value in found:
            cls = type(value)
            rule = op.by_class.get(cls)
            given = (op, types, tuple(args), dict(kwargs))
            made = followed(cls.__torch_dispatch__)(*given) if rule is None else rule(cls, *given)
            if made is not NotImplemented:
                return made
            declined.append(f"tensor subclass {type(value)!r}")
    raise TypeError(
        f"Multiple dispatch failed for '{op}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n  - "
        + "\n  - ".join(declined)
        + "\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


# Operators that take conjugated tensors as they are; for others they are made real copies first.
_CONJUGATES = frozenset(
    "clone copy_ _conj _conj_physical conj_physical detach alias dot vdot mm addmm addmm_ bmm baddbmm linalg_svd _linalg_svd resolve_conj zeros_like empty_like"
    " ones_like full_like new_zeros new_empty new_ones new_full is_same_size _local_scalar_dense view_as_real equal".split()
)


class _below_autograd:
    """Inside, nothing is recorded."""

    __slots__ = ("before", "word")

    def __enter__(self) -> None:
        self.before, self.word = ABOVE.done, STATE.word
        if not ABOVE.done:
            ABOVE.recorded = bool(self.word & GRAD)
        ABOVE.done = True
        STATE.word = self.word & ~GRAD

    def __exit__(self, *exc: object) -> None:
        ABOVE.done, STATE.word = self.before, self.word


def run_kernel(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run the package's own function of an operator."""
    if kwargs.get("pin_memory") is False:
        kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
    return op.kernel(*args, **kwargs)


# ***** gradients of leaves *****


def own_below(leaf: Any, grad: Any) -> Any:
    """The gradient that a leaf keeps: the tensor itself, detached, where nothing else refers to it, else a copy in the
    leaf's layout.
    """
    return nodes.own(leaf, grad)


def resolve(
    packet: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """The overload that takes a call of a packet, and its arguments as they are shown; None where none does."""
    found = choose(packet, args, kwargs)
    if found is None:
        return None
    form, values = found
    return overload_of(form), *shown(form, values)


def bound(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The value of every argument of an overload, by name; TypeError where they do not fit."""
    values = bind(op.form, args, kwargs, strict=True)
    if values is None:
        raise TypeError(f"{op}: arguments do not fit the schema {op.form.text}")
    return dict(zip([a.name for a in op.form.parsed().arguments], values, strict=True))


Handler = Callable[..., Any]
