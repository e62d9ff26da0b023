"""Dispatch types: tensors that are not one strided block of memory, such as sparse, nested, quantized, batched, dual.

A dispatch type is a subclass of Tensor that says what an operator means for it:

    class SparseTensor(DispatchType):
        backend = "SparseCPU"

    @SparseTensor.implements("add", "sub")
    def _(function, input, other, *, alpha=1): ...

The keys are the names of the operator table (`add`, in-place `add_`; where two spaces share a name, the table's own,
such as `linalg_norm`), and the names of composites and of plain methods.  An operator without a handler goes on
like this: a composite runs its own body on the tensor (so that it needs only what the body calls); a method that asks for
facts alone (`size`, `dim`, `numel`, ...) reads them from the spec; everything else raises `NotImplementedError` with
the names of the operator and the type.

The `_spec` holds the logical shape, dtype and device; `_storage` is None.  Modes and the user's own subclasses
are asked before dispatch types, and `has_torch_function` does not know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from rushlight._engine.core.state import AUTOCAST, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.autocast import cast_where_listed
from rushlight._ops.precision import casting_of
from rushlight._types.spec import Spec

__all__ = ["DispatchType", "ask_dispatch_types", "call_name", "cast_first", "make_dispatch_tensor"]

# Methods that work for every dispatch type: they read the spec and the graph, never memory.
FACTS = frozenset((
    "size", "dim", "ndimension", "numel", "nelement", "element_size", "is_floating_point", "is_complex", "is_signed", "is_same_size",
    "is_conj", "is_neg", "is_inference", "requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "backward",
    "get_device", "is_shared", "__hash__", "__len__", "__format__", "resolve_conj", "resolve_neg",
))  # fmt: skip


class DispatchType(Tensor):
    """Base of the dispatch types; see the module's text."""

    __slots__ = ()

    backend: ClassVar[str] = "DispatchType"
    handlers: ClassVar[dict[str, Callable[..., Any]]] = {}
    # Types of a higher rank are asked first: a batched sparse tensor is batched before it is sparse.
    rank: ClassVar[int] = 0
    above_modes: ClassVar[bool] = False  # whether a type answers before dispatch modes, which then see its parts

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.handlers = {}
        super().__init_subclass__(**kwargs)

    @classmethod
    def implements(cls, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare a handler of these operators for this type; it gets the function that the user called, then its
        arguments.
        """

        def register(handler: Callable[..., Any]) -> Callable[..., Any]:
            for name in names:
                cls.handlers[name] = handler
            return handler

        return register

    @classmethod
    def answer(cls, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a call in which this type takes part; NotImplemented lets the next one answer."""
        name, declined = call_name(function), False
        for each in cls.__mro__:
            handler = each.__dict__.get("handlers", {}).get(name) if issubclass(each, DispatchType) else None
            if handler is not None:
                made = handler(function, *args, **kwargs)
                if made is not NotImplemented:
                    return made
                declined = True
        return NotImplemented if declined else cls.otherwise(function, name, args, kwargs)

    @classmethod
    def otherwise(cls, function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call without a handler: a composite's body, a fact, or an error."""
        body = getattr(function, "__wrapped__", None)
        if body is not None and not hasattr(function, "touches_memory"):
            return body(*args, **kwargs)
        if name in FACTS:
            return function(*args, **kwargs)
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the '{cls.backend_among(args, kwargs)}' backend: "
            "rushlight has no such operator for this kind of tensor."
        )

    @classmethod
    def backend_among(cls, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The backend's name in errors about a call."""
        return cls.backend


def call_name(function: Any) -> str:
    """The key of a function in the tables of handlers."""
    name: str = getattr(function, "__name__", "")
    op = getattr(function, "operator", None)
    if op is None:
        return name
    return op.name + "_" if name.endswith("_") and not op.public.endswith("_") else str(op.name)


def make_dispatch_tensor(cls: type[DispatchType], spec: Spec) -> Any:
    """A tensor of a dispatch type, outside of any graph; the caller sets the attributes of its class."""
    made = object.__new__(cls)
    made._storage, made._spec, made._ptr = None, spec, 0
    made._rg, made._node, made._autograd_meta = False, None, None
    return made


def cast_first(name: str, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """(True, result) of a call whose arguments automatic casting converts first; (False, None) for others."""
    if STATE.word & AUTOCAST and "out" not in kwargs:
        return cast_where_listed(casting_of(name), function, args, kwargs)
    return False, None


def ask_dispatch_types(
    function: Any, found: Iterable[DispatchType], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """The answer of the dispatch types among the arguments, the highest rank first."""
    handled, made = cast_first(call_name(function), function, args, kwargs)
    if handled:
        return made
    for value in sorted(found, key=lambda v: -v.rank):
        made = type(value).answer(function, args, kwargs)
        if made is not NotImplemented:
            return made
    raise TypeError(
        f"{call_name(function)}(): no kind of tensor among the arguments knows what to do: {[type(v).__name__ for v in found]}"
    )
