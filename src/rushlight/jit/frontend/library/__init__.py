"""Functions and layers in the typed subset: what scripts compile where they call functions of `nn.functional` and layers
whose own Python is not in the subset.

Most functions are derived from their signatures and their operators (`derived`).  What is written here is read by the
compiler, and never run as it stands; operators are called by their schemas.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import rushlight
from rushlight.jit.frontend.errors import own_place
from rushlight.jit.frontend.library.derived import Flagged, Form, defaults, derived
from rushlight.jit.frontend.syntax import syntax_of

__all__ = ["flagged_form", "form_of", "function_form", "method", "method_of"]

# (the forms, whether they stand behind the derived one) by the page, `torch` or `nn.functional`, and the name
_FUNCTIONS: dict[tuple[str, str], tuple[Any, bool]] = {}
_METHODS: dict[str, Callable[..., Any]] = {}


def function_form(
    name: str, kinds: dict[str, tuple[str, ...]] | None = None, behind: bool = False, page: str = "nn.functional"
) -> Any:
    """Note a form of a function of `nn.functional` or of another page; with `kinds` of arguments a form for each choice,
    `behind` that which is derived.  Calls take the first that fits of all that were noted.
    """

    def note(function: Any) -> Any:
        kinds_ = kinds or {}
        forms = [_form(name, function, dict(zip(kinds_, c, strict=True))) for c in itertools.product(*kinds_.values())]
        noted, _ = _FUNCTIONS.get((page, name), ([], behind))
        _FUNCTIONS[page, name] = [*noted, *forms], behind
        return function

    return note


def flagged_form(name: str, page: str, **flags: int) -> Callable[[Any], Any]:
    """Note the forms of a function of a page whose flags, given with their places, choose what it returns: a
    function from the flags' values to what is compiled.
    """

    def note(choose: Any) -> Any:
        values = itertools.product((False, True), repeat=len(flags))
        forms = {v: _form(name, choose(*v), {}) for v in values}
        _FUNCTIONS[page, name] = Flagged(tuple(flags.items()), forms), False
        return choose

    return note


def _form(name: str, function: Any, kinds: dict[str, str]) -> Form:
    """A function as a form, with other types of some arguments."""
    node, source = syntax_of(function)
    for argument in node.args.args:
        if argument.arg in kinds:
            argument.annotation = ast.parse(kinds[argument.arg], mode="eval").body
    return Form(name, node, source, defaults(inspect.signature(function).parameters.values()), function)


def method(*names: str) -> Callable[[Any], Any]:
    """Note the form of methods of layers: `Class.method`."""

    def note(function: Any) -> Any:
        _METHODS.update(dict.fromkeys(names, function))
        return function

    return note


@cache
def _written() -> dict[Any, tuple[Any, bool]]:
    """The written forms by the functions of the package: each page notes its own."""
    for page in ("functional", "layers", "tensors"):
        import_module(f"rushlight.jit.frontend.library.{page}")
    pages = {"torch": rushlight, "nn.functional": rushlight.nn.functional}
    return {getattr(pages[p], n): f for (p, n), f in _FUNCTIONS.items() if hasattr(pages[p], n)}


@cache
def form_of(function: Any) -> Any:
    """Forms that a call of a function of the package compiles to: a list of forms, or those that flags choose from; None where the
    function needs none.
    """
    written = _written().get(function)
    if written is None:
        made = derived(function)
        return made if made is None or isinstance(made, Flagged) else [made]
    forms, behind = written
    return [derived(function, True), *forms] if behind else forms


def method_of(cls: type, name: str) -> Any:
    """The form of a layer's method, looked up along its bases; None where its own Python is compiled."""
    _written()
    for base in cls.__mro__:
        if own_place(base).startswith("rushlight.nn."):
            found = _METHODS.get(f"{base.__name__}.{name}")
            if found is not None:
                return found
        if name in vars(base):
            return None
    return None
