"""Where public functions are collected: name spaces, and methods of Tensor.

    @composite("dropout", spaces=("nn.functional",))
    def dropout(input, p=0.5, training=True, inplace=False): ...

A composite is plain Python over tensors; everything with a body over primitives belongs into the operator table instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._engine.call import OVERRIDE, Caller, InplaceCaller, make_binary, make_function, make_inplace, make_unary
from rushlight._engine.tensor import Tensor
from rushlight._ops.table import OPERATORS, Operator

__all__ = ["SPACES", "composite", "function_of", "install_operators", "method_of"]

SPACES: dict[str, dict[str, Any]] = {"torch": {}, "nn.functional": {}, "linalg": {}, "special": {}, "fft": {}}
_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_INPLACE: dict[str, Callable[..., Any]] = {}


def composite(
    name: str, *, spaces: tuple[str, ...] = ("torch",), method: bool | str = False, overridable: bool = True, aliases: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a Python function over tensors under `name` in these spaces, and as a method (under another name if `method` is one)."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        public = _overridable(function, name) if overridable else function
        for each in (name, *aliases):
            for space in spaces:
                SPACES.setdefault(space, {})[each] = public
            if method:
                setattr(Tensor, method if isinstance(method, str) else each, public)
        return public

    return register


def _overridable(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Ask subclasses first."""
    handler = OVERRIDE

    def public(*args: Any, **kwargs: Any) -> Any:
        handled, made = handler[0](public, args, kwargs)
        return made if handled else function(*args, **kwargs)

    public.__name__ = public.__qualname__ = name
    public.__doc__ = function.__doc__
    public.__wrapped__ = function  # type: ignore[attr-defined]
    return public


def function_of(name: str) -> Callable[..., Any]:
    """The function of a table operator (made when first asked for)."""
    found = _FUNCTIONS.get(name)
    if found is None:
        found = _FUNCTIONS[name] = make_function(Caller(OPERATORS[name]))
    return found


def method_of(name: str) -> Callable[..., Any]:
    """The method form of a table operator."""
    op = OPERATORS[name]
    required = [a for a in op.schema.arguments if a.required]
    return make_unary(Caller(op)) if len(required) == 1 and required[0].base == "Tensor" and not required[0].is_sequence else function_of(name)


def inplace_of(name: str) -> Callable[..., Any]:
    """The in-place form of a table operator."""
    found = _INPLACE.get(name)
    if found is None:
        found = _INPLACE[name] = make_inplace(InplaceCaller(Caller(OPERATORS[name])))
    return found


def install_operators() -> None:
    """Give every row of the table its functions and methods."""
    for name, op in OPERATORS.items():
        _install(name, op)


def _install(name: str, op: Operator) -> None:
    public = op.schema.name
    names = [public, *[a for a in op.aliases if "." not in a]]
    for space in op.spaces:
        table = SPACES.setdefault(space, {})
        function = with_inplace_flag(name) if space == "nn.functional" and "inplace_flag" in op.tags else function_of(name)
        for word in names:
            table.setdefault(word, function)
    for dotted in op.aliases:
        space, dot, word = dotted.rpartition(".")
        if dot:
            SPACES.setdefault(space, {}).setdefault(word, function_of(name))
    if op.method:
        for word in [op.method] if isinstance(op.method, str) else names:
            if word not in Tensor.__dict__:
                setattr(Tensor, word, method_of(name))
    if op.inplace:
        for word in names:
            if word + "_" not in Tensor.__dict__:
                setattr(Tensor, word + "_", inplace_of(name))
            for space in op.inplace_spaces:
                SPACES.setdefault(space, {}).setdefault(word + "_", inplace_of(name))


def with_inplace_flag(name: str) -> Callable[..., Any]:
    """The `nn.functional` form with `inplace=False` as its last argument."""
    plain = function_of(name)
    count = OPERATORS[name].schema.positional

    def function(*args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if len(args) > count:
            *args, inplace = args  # type: ignore[assignment]
        return inplace_of(name)(*args, **kwargs) if inplace else plain(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = plain.__doc__
    return function


def binary_of(name: str) -> Callable[[Any, Any], Any]:
    """The form for Python's operators."""
    return make_binary(Caller(OPERATORS[name]))
