"""Backends by name: what `compile(backend=...)` may say.

A backend is a function `backend(gm, example_inputs)` that gets an `fx.GraphModule` and gives a function with the inputs
of `gm.forward` and its results.  `"inductor"`, the default, is rushlight's own compiler; it takes no fx graph.  Others
are registered here, or by packages through the entry point `torch_dynamo_backends`.

>>> import rushlight as torch
>>> torch.compiler.list_backends()
['inductor']
>>> torch._dynamo.lookup_backend("eager").__name__
'eager'
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight._interface.base import import_whole, refuse, trace_marks
from rushlight.compiler.errors import BackendCompilerFailed, InvalidBackend
from rushlight.compiler.settings import settings

__all__ = [
    "checked", "get_default_backend", "is_registered_backend", "list_backends", "lookup_backend", "register_backend", "register_debug_backend",
    "register_experimental_backend", "set_default_backend",
]  # fmt: skip

_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_ENTRY_POINTS: dict[str, Any] = {}
_default: list[Any] = ["inductor"]
OWN = "inductor"


def register_backend(
    compiler_fn: Callable[..., Any] | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Give a backend a name, by default the function's; without a function a decorator.  AssertionError for a name that
    is taken.

    `list_backends` leaves out those with the tags "debug" and "experimental".
    """
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    if not callable(compiler_fn):
        raise AssertionError(f"compiler_fn must be callable, got {type(compiler_fn)}")
    name = name or compiler_fn.__name__
    if name in _FUNCTIONS:
        raise AssertionError(f"duplicate name: {name}")
    _FUNCTIONS[name] = compiler_fn
    compiler_fn._tags = tuple(tags)  # type: ignore[attr-defined]
    return compiler_fn


register_debug_backend = functools.partial(register_backend, tags=("debug",))
register_experimental_backend = functools.partial(register_backend, tags=("experimental",))


@functools.cache
def _discover() -> None:
    """Learn of the backends that packages declare; a package is loaded when its backend is asked for."""
    metadata = import_whole("importlib.metadata")
    for point in metadata.entry_points(group="torch_dynamo_backends"):
        _ENTRY_POINTS.setdefault(point.name, point)


def lookup_backend(compiler_fn: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function of a backend by name; a function is given back.  `InvalidBackend` for an unknown name."""
    if not isinstance(compiler_fn, str):
        return compiler_fn
    if compiler_fn not in _FUNCTIONS:
        _discover()
        if compiler_fn not in _ENTRY_POINTS:
            raise InvalidBackend(compiler_fn)
        register_backend(_ENTRY_POINTS[compiler_fn].load(), name=compiler_fn)
    return _FUNCTIONS[compiler_fn]


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """Names for `compile(backend=...)`, without the backends that have one of the tags.

    >>> torch.compiler.list_backends(exclude_tags=None)
    ['aot_eager', 'aot_eager_decomp_partition', 'eager', 'eager_noexcept', 'inductor']
    """
    _discover()
    left_out = set(exclude_tags or ())
    names = [name for name, function in _FUNCTIONS.items() if not left_out.intersection(function._tags)]  # type: ignore[attr-defined]
    return sorted({*names, *(name for name in _ENTRY_POINTS if name not in _FUNCTIONS)})


def is_registered_backend(compiler_fn: Callable[..., Any]) -> bool:
    """Whether a function was given a name."""
    return compiler_fn in _FUNCTIONS.values()


@trace_marks.changes_later_calls
def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """The backend where `compile` is told none; None for rushlight's own."""
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"backend must be a string or callable, got {type(backend)}")
    _default[0] = OWN if backend is None else backend


def get_default_backend() -> str | Callable[..., Any]:
    """The backend where `compile` is told none."""
    return _default[0]


def checked(function: Callable[..., Any], extra: dict[str, Any]) -> Callable[..., Any]:
    """A backend with further keyword arguments; what goes wrong in it is `BackendCompilerFailed`."""

    def backend(gm: Any, example_inputs: Any) -> Callable[..., Any]:
        try:
            made = function(gm, example_inputs, **extra)
            if not callable(made):
                raise AssertionError("compiler_fn did not return callable")
        except Exception as error:
            failed = BackendCompilerFailed(function, error).with_traceback(error.__traceback__)
            if settings("torch._dynamo.config").get("suppress_errors"):
                raise RuntimeError(str(failed)) from error  # the function runs as it is, and says so
            raise failed from None
        return made

    return backend


# ***** backends that are always there *****


def _warn_of(backend: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        import_whole("logging").getLogger(__name__).warning("%s backend ignoring extra kwargs %s", backend, kwargs)


@register_debug_backend
def eager(gm: Any, fake_tensor_inputs: Any, **kwargs: Any) -> Callable[..., Any]:
    """The graph runs as it is, node by node."""
    _warn_of("eager", kwargs)
    return gm.forward


@register_debug_backend
def eager_noexcept(gm: Any, fake_tensor_inputs: Any, **kwargs: Any) -> Callable[..., Any]:
    """The same; an error in the graph is said to be one of the graph."""
    _warn_of("eager_noexcept", kwargs)

    def inner(*args: Any) -> Any:
        try:
            return gm(*args)
        except Exception as error:
            raise RuntimeError("Unexpected exception when running generated GraphModule") from error

    return inner


@register_debug_backend
def aot_eager(gm: Any, fake_tensor_inputs: Any, **kwargs: Any) -> Callable[..., Any]:
    """Forward and backward are traced ahead of time, and their graphs run as they are."""
    try:
        ahead_of_time = import_whole("rushlight._functorch.aot_autograd")
    except ModuleNotFoundError:
        refuse(
            "torch.compile(backend='aot_eager')",
            "backends that trace ahead of time are not there; 'eager' runs the graph as it is",
        )

    def graph(module: Any, inputs: Any) -> Any:
        return module.forward

    compilers = {"fw_compiler": graph, "bw_compiler": graph, **kwargs}
    return ahead_of_time.aot_module_simplified(gm, fake_tensor_inputs, **compilers)


@register_debug_backend
def aot_eager_decomp_partition(gm: Any, fake_tensor_inputs: Any, **kwargs: Any) -> Callable[..., Any]:
    """As `aot_eager`, with operators decomposed, and as little as possible kept for the backward pass."""
    options = {
        "decompositions": import_whole("rushlight._decomp").core_aten_decompositions(),
        "partition_fn": import_whole("rushlight._functorch.partitioners").min_cut_rematerialization_partition,
    }
    return aot_eager(gm, fake_tensor_inputs, **options, **kwargs)


@register_backend
def inductor(gm: Any, example_inputs: Any, **kwargs: Any) -> Callable[..., Any]:
    """An fx graph compiled by rushlight: for backends that hand their graph on."""
    compilation = import_whole("rushlight.compiler.compilation")
    return compilation.compile(gm, fullgraph=True, **kwargs)
