"""Function transforms in graphs for other backends: `vmap`, `grad`, `jvp`, `vjp` and the others are one node each, which
calls a module with the transform's options and a graph for the function.

The transform runs as it is on recorded tensors; what its function does meanwhile is written into a document of its own.
The functions that `vjp` and `linearize` give are values of the graph, and each of their calls is a node.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._base.pytree import tree_flatten, tree_unflatten
from rushlight._capture.trace import calls
from rushlight._capture.trace.documents.document import Part
from rushlight._capture.trace.outside import ABSENT, is_plain
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._types.symbols import is_symbolic

if TYPE_CHECKING:
    from rushlight._capture.trace.documents.documenting import DocumentingTracer

__all__ = ["Transform", "transformed"]

_OPTIONS = {
    "vmap": ("in_dims", "out_dims", "randomness", "chunk_size"), "grad": ("argnums", "has_aux"), "grad_and_value": ("argnums", "has_aux"),
    "jacrev": ("argnums", "has_aux", "chunk_size"), "jacfwd": ("argnums", "has_aux", "randomness"), "functionalize": ("remove",),
}  # fmt: skip
_AT_ONCE = ("jvp", "vjp", "linearize")  # these call the function that they are given, and give no function for later


class Nested(NamedTuple):
    """Nested values without their tensors: a place among these, or None and the value itself, for each leaf."""

    leaves: tuple[tuple[int | None, Any], ...]
    structure: Any

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The values with these tensors."""
        return tree_unflatten([v if k is None else tensors[k] for k, v in self.leaves], self.structure)


class Transform(NamedTuple):
    """A transform of `torch.func` with its options, the arguments of its call, and the results of its function."""

    name: str
    options: dict[str, Any]
    arguments: Nested
    results: Nested


@functools.cache
def _codes() -> dict[Any, str]:
    """The transforms by the code of the functions that they give."""
    found = {}
    for name in _OPTIONS:
        consts = getattr(HOOKS.public.func, name).__code__.co_consts
        found[next(c for c in consts if isinstance(c, types.CodeType) and c.co_name == "wrapped")] = name
    return found


def transformed(tracer: DocumentingTracer, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a transformed function, a transform like `jvp`, or a linear map that one returned; ABSENT for other functions."""
    if id(function) in tracer.linear:
        given, named = calls.real_arguments(tracer, tuple(args), kwargs)
        made = tracer.native(function, *given, **named)
        tracer.note_mode()
        tracer.use((given, named))
        tracer.document.function(operator.call, (function, *given), named, made)
        tracer.note_result(made)
        return made
    name = _at_once(function) or _codes().get(function.__code__, "")
    if not name:
        return ABSENT
    if tracer.outside.varying.sizes:
        raise Break(f"{name} in a graph with symbolic sizes", kind="sizes")
    given, named = calls.real_arguments(tracer, tuple(args), kwargs)
    public = getattr(HOOKS.public.func, name)
    if name in _AT_ONCE:
        body = _Body(tracer, given[0] if given else named.pop("func"))
        given, options, run = given[1:], {}, functools.partial(public, body)
    else:
        held = _variables(calls.opened(tracer, function) if id(function) in tracer.outside.sources else function)
        body, options = _Body(tracer, held["func"]), {key: held[key] for key in _OPTIONS[name]}
        run = public(body, **options)
    made = tracer.native(run, *given, **named)
    if body.part is None:
        raise Break(f"{name} does not call its function")
    operands, arguments = _taken_apart((given, named))
    results = [x for x in tree_flatten(made)[0] if isinstance(x, (Tensor, types.FunctionType))]
    tracer.note_transform(Transform(name, options, arguments, body.results), body.part, operands, results)
    for x in results:
        if isinstance(x, types.FunctionType):
            tracer.linear[id(x)] = x
            tracer.unbuildable[id(x)] = f"the function that {name}() gives, in a graph for another backend"
    return made


def _at_once(function: Any) -> str:
    """The name of a transform that calls its function at once."""
    return next((name for name in _AT_ONCE if function is getattr(HOOKS.public.func, name)), "")


class _Body:
    """The function of a transform: its first call becomes a part of the document, as all are alike."""

    def __init__(self, tracer: DocumentingTracer, function: Any) -> None:
        self.tracer = tracer
        self.function = function.function if isinstance(function, calls.Followed) else function
        self.__name__ = getattr(self.function, "__name__", "function")
        self.part: Part | None = None
        self.results = Nested((), None)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        tracer = self.tracer
        enabled, tracer.grad_enabled = tracer.grad_enabled, bool(STATE.word & GRAD)  # the transform sets it by itself
        try:
            outside = tracer.document.given
            with tracer.documented() as document:
                given = _taken_apart((args, kwargs))[0]
                document.known = {*document.known, *map(id, given)}
                document.given = {*outside, *map(id, given)}
                found = tracer.nested(self.function, args, kwargs)
                tensors, nested = _taken_apart(found)
                tracer.use(tensors)
        finally:
            tracer.grad_enabled = enabled
        if self.part is None:
            self.part = Part(document.calls, tuple(tensors), given)
            self.results = nested
        return found


def _variables(function: types.FunctionType) -> dict[str, Any]:
    """The variables of outer functions that a transformed function reads; of `grad` those of what it is made of."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells}
    both = found.pop("both", None)
    return found if both is None else found | _variables(both)


def _taken_apart(values: Any) -> tuple[list[Any], Nested]:
    """The different tensors among nested values, and the values without them."""
    leaves, structure = tree_flatten(values)
    tensors: list[Any] = []
    places: dict[int, int] = {}
    for x in leaves:
        if isinstance(x, Tensor) and id(x) not in places:
            places[id(x)] = len(tensors)
            tensors.append(x)
        elif not isinstance(x, Tensor) and (is_symbolic(x) or not is_plain(x)):
            raise Break(
                f"a function transform with a {type(x).__name__} among its values, in a graph for another backend"
            )
    held = tuple([(places[id(x)], None) if isinstance(x, Tensor) else (None, x) for x in leaves])
    return tensors, Nested(held, structure)
