"""Functions of the package as aten operators: what is made of several, and what is called otherwise in Python.

A handler gets the arguments as the user wrote them and calls operators; NotImplemented lets the operator of the
function's own name take the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rushlight._interface.base import LazyModule
from rushlight._interface.dispatch import call_name
from rushlight.library.aten import composites
from rushlight.library.aten.composites import fourier, linalg, measures, networks, places, products, values
from rushlight.library.aten.handlers import HANDLERS
from rushlight.library.schema import FunctionSchema, named_in_place, parse

__all__ = ["HANDLERS", "native_name", "opaque", "result_class"]

calls: Any = LazyModule("rushlight.library.aten.calls")
kernels: Any = LazyModule("rushlight.library.aten.kernels")

# The modules that register handlers when they are loaded.
FILLED_BY = (composites, fourier, linalg, measures, networks, places, products, values)

# Names of functions of the package, and of PyTorch's operators.
_RENAMED = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_", "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_",
    "__truediv__": "div", "__itruediv__": "div_", "__rsub__": "rsub", "__pow__": "pow", "__ipow__": "pow_", "__neg__": "neg", "__abs__": "abs",
    "__matmul__": "matmul", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__invert__": "bitwise_not",
    "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__iand__": "bitwise_and_", "__ior__": "bitwise_or_", "__ixor__": "bitwise_xor_",
    "__mod__": "remainder", "__imod__": "remainder_", "__floordiv__": "floor_divide", "__lshift__": "__lshift__", "__rshift__": "__rshift__",
}  # fmt: skip


def native_name(function: Any) -> str:
    """The name of a function among the aten operators, with the prefix of its page."""
    row = getattr(function, "operator", None)
    name = str(getattr(function, "__name__", ""))
    if row is not None:
        name = row.public + ("_" if call_name(function).endswith("_") and not row.public.endswith("_") else "")
        page = (
            next((s for s in row.spaces if s in ("linalg", "special", "fft")), "") if "torch" not in row.spaces else ""
        )
    else:
        module = str(getattr(function, "__module__", "") or "")
        page = module.rpartition(".")[2] if module.startswith(("rushlight.", "torch.")) else ""
        page = page if page in ("linalg", "special", "fft", "init") else ""  # `init.uniform_` is no operator
    name = _RENAMED.get(name, name)
    if (
        name in ("unfold", "fold")
        and row is not None
        and "nn.functional" in row.spaces
        or (getattr(function, "__module__", None) or "").partition(".")[2] == "nn.functional"  # also as torch's
    ):
        name = {"unfold": "im2col", "fold": "col2im"}.get(name, name)
    return f"{page}_{name}" if page and not name.startswith(f"{page}_") else name


def result_class(function: Any) -> Any:
    """The named tuple that a function returns; None for plain tuples."""
    return None


class Opaque:
    """An operator of the package that has no counterpart among the aten operators: seen as one call, by its own name."""

    namespace = "rushlight"
    form = None
    tags: tuple[Any, ...] = ()
    is_view = False
    by_class: ClassVar[dict[type, Any]] = {}

    def __init__(self, function: Any, name: str) -> None:
        self.kernel, self._opname, self._overloadname = function, name, "default"
        self.in_place = named_in_place(name)
        self.__name__ = f"{name}.default"
        self.__module__ = "operators"  # code of graphs is given the object: nothing of this name can be imported

    @property
    def _schema(self) -> FunctionSchema:
        return parse(f"rushlight::{self._opname}(Any args) -> Any")

    def name(self) -> str:
        """`rushlight::name`."""
        return f"rushlight::{self._opname}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return calls.call(self, args, kwargs)

    def __str__(self) -> str:
        return f"rushlight.{self._opname}.default"

    def __repr__(self) -> str:
        return f"<OpOverload(op='rushlight.{self._opname}', overload='default')>"


_OPAQUE: dict[Any, Opaque] = {}


def opaque(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function of the table as one operator of the package's own; one of elements, or a view, under `vmap` as that of
    whole batches.
    """
    name = call_name(function)
    if name.startswith("vmap_") and hasattr(function, "whole"):
        of_elements = name[5:] in kernels.POINTWISE or name[5:] == "clone_core"
        made = function.aligned(*args) if of_elements else function.whole(*args)
        if made is not NotImplemented:
            return made
    found = _OPAQUE.get(function)
    if found is None:
        found = _OPAQUE[function] = Opaque(getattr(function, "run", function), name)
        found.is_view = getattr(getattr(function, "operator", None), "kind", "") == "view"
    return found(*args, **kwargs)
