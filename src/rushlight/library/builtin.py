"""`torch.ops.aten`: the package's own operators under the names that PyTorch's native ones have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import rushlight
from rushlight._interface.base import LazyModule
from rushlight._interface.dispatch import DISPATCH_CLASSES, dispatch
from rushlight._interface.operators import OPERATORS, SPACES
from rushlight._interface.tensors import FUNCTION_MODE, STATE
from rushlight.library.aten.schemas import find_form, forms_of
from rushlight.library.operators import OpNamespace, OpOverloadPacket, find, overriding
from rushlight.library.schema import FunctionSchema, named_in_place, parse

calls: Any = LazyModule("rushlight.library.aten.calls")
kernels: Any = LazyModule("rushlight.library.aten.whole")

__all__ = ["BuiltinNamespace"]

# Prefixes under which operators of other pages are native.
_PREFIXES = {"linalg_": "linalg", "special_": "special", "fft_": "fft"}
# What the forms of native operators are called; all forms of an operator are one function here.
_FORMS = frozenset((
    "default", "Tensor", "Scalar", "out", "dim", "int", "self", "Tensor_Scalar", "Scalar_Tensor", "Tensor_Tensor", "Tensor_out", "Scalar_out",
    "dim_IntList", "IntList_out", "dim_max", "dim_min", "correction", "dim_dtype", "start", "start_step", "Tensor_mode", "Scalar_mode", "names",
    "memory_format", "generator", "dtype", "dtype_layout", "device", "other", "prim_Device", "sizes", "size", "vec", "ScalarOpt_dim",
    "p", "x", "ScalarSelf", "ScalarOther", "values", "grad_input", "Int", "src", "value", "reduce", "stable", "using_ints", "padding", "first",
)) - {"names", "first"}  # fmt: skip
_WORDS = {"dtype": "ScalarType", "device": "Device", "layout": "Layout", "memory_format": "MemoryFormat", "any": "Any"}


class BuiltinOverload:
    """One form of a native operator."""

    by_class: ClassVar[dict[type, Callable[..., Any]]] = {}  # rules for modes and classes: users' operators have some

    def __init__(self, packet: BuiltinPacket, name: str) -> None:
        self.overloadpacket, self._overloadname = packet, name
        self.namespace, self._opname = "aten", packet.__name__
        self.__name__ = self.__qualname__ = f"{packet.__name__}.{name}"
        self.__module__ = "torch._ops.aten"
        self.form = find_form(packet.__name__, name)
        self.kernel = kernel_of(packet, name)

    @property
    def _schema(self) -> FunctionSchema:
        if self.form is not None:
            return self.form.parsed()
        row = _row(self._opname.removesuffix("_"))
        if row is None:
            raise NotImplementedError(
                f"rushlight has no schema for aten::{self._opname}: it is a composite of other operators"
            )
        return _native_schema(row.schema, self._opname, "" if self._overloadname == "default" else self._overloadname)

    def name(self) -> str:
        """`aten::name`, with the form's name where it has one."""
        return f"aten::{self._opname}" + (f".{self._overloadname}" if self._overloadname != "default" else "")

    @property
    def in_place(self) -> bool:
        """Whether it changes its first argument and gives that (a list need not be given)."""
        return self.form.in_place if self.form is not None else named_in_place(self._opname)

    @property
    def is_view(self) -> bool:
        """Whether the result shares memory with an argument that is not changed."""
        return self.form is not None and self.form.is_view

    @property
    def op(self) -> Any:
        """Itself: what runs."""
        return self

    @property
    def tags(self) -> list[Any]:
        """Properties of the operator, as `torch.Tag`."""
        return tags_of(self)

    def overloads(self) -> list[str]:
        """The names of the packet's forms."""
        return self.overloadpacket.overloads()

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return find, (self.name(),)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        asked = overriding((*args, *kwargs.values()) if kwargs else args)
        if asked or STATE.function_modes and STATE.word & FUNCTION_MODE:
            return dispatch(self, asked, args, kwargs)
        if STATE.dispatch_modes or DISPATCH_CLASSES:
            return calls.call(self, args, kwargs)
        return self.kernel(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"aten.{self._opname}.{self._overloadname}"


def _row(name: str) -> Any:
    """The row of the table that has this public name, its own or another; None for none."""
    return next((op for op in OPERATORS.values() if name == op.public or name in op.aliases), None)


def _native_schema(schema: Any, name: str, overload: str) -> FunctionSchema:
    parts: list[str] = []
    changes = named_in_place(name)
    for place, argument in enumerate(schema.arguments):
        if argument.keyword_only and "*" not in parts:
            parts.append("*")
        kind = argument.type.replace(argument.base, _WORDS.get(argument.base, argument.base), 1)
        kind = kind.replace("Tensor", "Tensor(a!)", 1) if changes and place == 0 else kind
        shown = "self" if place == 0 and argument.name == "input" else argument.name
        default = (
            ""
            if argument.required
            else f"={list(argument.default) if isinstance(argument.default, tuple) else argument.default!r}"
        )
        parts.append(f"{kind} {shown}{default}")
    results = (
        "Tensor[]" if schema.returns_list else ", ".join(f"Tensor {r}".strip() for r in schema.results) or "Tensor"
    )
    results = "Tensor(a!)" if changes else results if len(schema.results) <= 1 else f"({results})"
    return parse(f"aten::{name}{'.' + overload if overload else ''}({', '.join(parts)}) -> {results}")


def _self_first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with `self`, which functions name otherwise, by its position."""
    if "self" not in kwargs:
        return args, kwargs
    return (kwargs["self"], *args), {k: v for k, v in kwargs.items() if k != "self"}


class BuiltinPacket(OpOverloadPacket):
    """A native operator: the function of its name."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__("aten", name)
        self.function = function

    def overloads(self) -> list[str]:
        """The names of the forms that were asked for, and of those that were added."""
        return list(forms_of(self.__name__) or dict.fromkeys(("default", *self.forms)))

    def __getattr__(self, name: str) -> Any:
        forms = self.__dict__.get("forms", {})
        known = forms_of(self.__dict__.get("__name__", ""))
        if name not in forms and (name in known or not known and name in _FORMS):
            forms[name] = BuiltinOverload(self, name)
        return super().__getattr__(name)

    def plain(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        args, kwargs = _self_first(args, kwargs)
        return self.function(*args, **kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _self_first(args, kwargs)
        asked = overriding((*args, *kwargs.values()) if kwargs else args)
        if asked or STATE.function_modes and STATE.word & FUNCTION_MODE:
            return dispatch(self, asked, args, kwargs)
        if STATE.dispatch_modes or DISPATCH_CLASSES:
            found = calls.resolve(self.__name__, args, kwargs)
            if found is not None:
                op, args, kwargs = found
                return op(*args, **kwargs)
        return self.function(*args, **kwargs)


def _to_copy(
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:
    return input.to(
        input.device if device is None else device,
        dtype or input.dtype,
        non_blocking,
        True,
        memory_format=memory_format or rushlight.preserve_format,
    )


def _slice(input: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return input[(slice(None),) * (dim % input.dim()) + (slice(start, end, step),)]


def _index(input: Any, indices: Any) -> Any:
    return input[tuple(slice(None) if index is None else index for index in indices)]


# Native operators that are written otherwise in Python.
_OTHERWISE: dict[str, Callable[..., Any]] = {
    "_to_copy": _to_copy, "slice": _slice, "index": _index, "alias": lambda input: input.view_as(input), "_pin_memory": lambda input: input.pin_memory(),
    "_sparse_addmm": lambda input, mat1, mat2, *, beta=1, alpha=1: rushlight.sparse.addmm(input, mat1, mat2, beta=beta, alpha=alpha),
}  # fmt: skip


def kernel_of(packet: BuiltinPacket, overload: str) -> Callable[..., Any]:
    """The kernel of a form: a kernel of its own, else the function of the packet's name."""
    found = kernels.KERNELS.get(f"{packet.__name__}.{overload}") if forms_of(packet.__name__) else None
    return packet.plain if found is None else found


def tags_of(overload: BuiltinOverload) -> list[Any]:
    """The tags of a native form that follow from its schema and its name."""
    return list(kernels.tags(overload))


def _function(name: str) -> Callable[..., Any] | None:
    if name in kernels.FUNCTIONS:
        return kernels.FUNCTIONS[name]
    if name in _OTHERWISE:
        return _OTHERWISE[name]
    for prefix, page in _PREFIXES.items():
        if name.startswith(prefix):
            return SPACES[page].get(name.removeprefix(prefix))
    if name in SPACES["torch"]:
        return SPACES["torch"][name]
    # The package's own function takes a reduction as a number, that of `nn.functional` as a word.
    # Its other private names are those that are found here.
    own = not name.startswith("_") or name.startswith("_foreach_") or name in dir(rushlight)
    found = getattr(rushlight, name, None) if own and not name.startswith("__") else None
    if callable(found) and not isinstance(found, (type, ModuleType)):
        return found
    if name in SPACES["nn.functional"]:
        return SPACES["nn.functional"][name]
    method = getattr(rushlight.Tensor, name, None)
    return method if callable(method) and (not name.startswith("__") or forms_of(name)) else None


class BuiltinNamespace(OpNamespace):
    """`torch.ops.aten`."""

    def __init__(self) -> None:
        super().__init__("aten")

    def __getattr__(self, name: str) -> Any:
        packets = self.__dict__.get("packets", {})
        if name not in packets and (not name.startswith("__") or forms_of(name)):
            function = _function(name)
            if function is None and forms_of(name):
                function = functools.partial(kernels.absent, name)
            if function is not None:
                packets[name] = BuiltinPacket(name, function)
        return super().__getattr__(name)
