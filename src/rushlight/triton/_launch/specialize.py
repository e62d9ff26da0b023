"""Keys of a compiled kernel: a small one for each argument, and what the front end makes of it.

Numbers are specialised as in Triton: an int of 1 is a constant, ints and addresses that 16 divides are known to be so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from .._frontend.build import Argument, DescriptorArgument
from .._semantics.constants import constexpr
from .._semantics.dtypes import BY_TRITON_NAME, dtype, dtype_of, pointer_type
from ..tools.tensor_descriptor import TensorDescriptor

__all__ = ["KernelParam", "argument_of", "describe", "words_of"]

Key = Any


class KernelParam:
    """A parameter of a kernel."""

    def __init__(self, num: int, param: inspect.Parameter, do_not_specialize: bool, not_on_alignment: bool) -> None:
        self.num, self.name, self._param = num, param.name, param
        self.do_not_specialize, self.do_not_specialize_on_alignment = do_not_specialize, not_on_alignment
        annotation = param.annotation
        self.annotation = "" if annotation is inspect.Parameter.empty else _annotation_text(annotation)
        self.is_constexpr = "constexpr" in self.annotation
        self.is_const = self.annotation in ("tl.const", "const")
        self.type = None if self.is_constexpr or self.is_const else _annotated_type(self.annotation)
        self.has_default = param.default is not inspect.Parameter.empty
        self.default = param.default  # `inspect.Parameter.empty` where there is none, as in Triton
        self.key = self._key_function()

    def _key_function(self) -> Callable[[Any], Key]:
        """Function for the part of a kernel's key that depends on the value of this parameter."""
        specialize, align = not self.do_not_specialize, not self.do_not_specialize_on_alignment
        if self.is_constexpr:
            return _constexpr_key
        if self.type is not None:
            name = self.type.codegen_name()
            return lambda value: (
                ("typed", name, _divides(value, align))
                if isinstance(value, (bool, int, float))
                else describe(value, specialize, align)
            )
        if specialize and align:
            return describe
        return lambda value: describe(value, specialize, align)


def _constexpr_key(value: Any) -> Key:
    kind = type(value)
    return ("constexpr", (kind, value) if kind in _SIMPLE else _fixed(value))


_SIMPLE = frozenset((int, bool, float, str, type(None)))


def _annotation_text(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, dtype):
        return annotation.name
    return getattr(annotation, "__name__", str(annotation))


def _annotated_type(text: str) -> dtype | None:
    """The type that an annotation such as `tl.int64`, `"i64"` or `"u32"` asks for."""
    name = text.strip("'\"").rpartition(".")[2]
    short = {t.codegen_name(): t for t in BY_TRITON_NAME.values()} | {
        "float32": BY_TRITON_NAME["fp32"],
        "float64": BY_TRITON_NAME["fp64"],
    }
    short |= {"float16": BY_TRITON_NAME["fp16"], "bfloat16": BY_TRITON_NAME["bf16"], "u1": BY_TRITON_NAME["int1"]}
    return BY_TRITON_NAME.get(name) or short.get(name)


def _fixed(value: Any) -> Any:
    """A constexpr as part of a key: 1, 1.0 and True are different."""
    value = value.value if isinstance(value, constexpr) else value
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, tuple):
        return (type(value), *(_fixed(item) for item in value))
    return (type(value), value)


def _loose(fixed: Any) -> Any:
    kind, *values = fixed
    if issubclass(kind, tuple):
        items = [_loose(item) for item in values]
        return kind(*items) if hasattr(kind, "_fields") else tuple(items)
    return values[0]


def _divides(value: Any, align: bool) -> bool:
    return align and type(value) is int and value % 16 == 0


@lru_cache(maxsize=256)
def _pointer_keys(element: Any) -> tuple[Key, Key]:
    name = (element if isinstance(element, dtype) else dtype_of(element)).codegen_name()
    return ("*", name, False), ("*", name, True)


_INTEGERS = {(name, by): ("number", name, by) for name in ("i32", "i64", "u64") for by in (False, True)}
_ONE, _FLOAT, _BOOL, _NONE = ("one",), ("number", "fp32", False), ("number", "i1", False), ("none",)


def describe(value: Any, specialize: bool = True, align: bool = True) -> Key:
    """The key of an argument that is no constexpr."""
    if type(value) is int:
        if value == 1 and specialize:
            return _ONE
        name = "i32" if -0x80000000 <= value < 0x80000000 else "i64" if -(2**63) <= value < 2**63 else "u64"
        return _INTEGERS[name, specialize and align and value % 16 == 0]
    if type(value) is float:
        return _FLOAT
    if value is None:
        return _NONE
    pointer = getattr(value, "data_ptr", None)
    if pointer is not None:
        return _pointer_keys(value.dtype)[specialize and align and pointer() % 16 == 0]
    return _describe_rare(value, specialize, align)


def _describe_rare(value: Any, specialize: bool, align: bool) -> Key:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, (tuple, list)):
        kind = type(value) if hasattr(value, "_fields") else tuple
        return ("tuple", kind, *(describe(item, specialize, align) for item in value))
    if isinstance(value, TensorDescriptor):
        base = describe(value.base, True, True)
        return ("descriptor", base, tuple(value.block_shape), value.padding)
    if isinstance(value, (constexpr, dtype, str)) or hasattr(value, "__jit_source__") or callable(value):
        return ("constexpr", _fixed(value))
    if isinstance(value, int):  # a subclass of int
        return describe(int(value), specialize, align)
    if isinstance(value, float):
        return _FLOAT
    if hasattr(value, "__index__"):
        return describe(value.__index__(), specialize, align)
    raise TypeError(
        f"a kernel takes tensors, numbers, None, tuples and tensor descriptors, and got {type(value).__name__} ({value!r})"
    )


def argument_of(key: Key) -> Any:
    """The front end's description of an argument."""
    kind = key[0]
    if kind == "constexpr":
        return Argument(None, _loose(key[1]))
    if kind == "one":
        return Argument(None, 1)
    if kind == "none":
        return Argument(None, None)
    if kind == "*":
        return Argument(pointer_type(BY_SIGNATURE[key[1]]), None, 16 if key[2] else 1)
    if kind == "descriptor":
        wide = (Argument(BY_SIGNATURE["i64"]),) * len(key[2])
        return DescriptorArgument(argument_of(key[1]), wide, wide, key[2], key[3])
    if kind == "tuple":
        items = [argument_of(item) for item in key[2:]]
        return key[1](*items) if hasattr(key[1], "_fields") else tuple(items)
    return Argument(BY_SIGNATURE[key[1]], None, 16 if key[2] else 1)


BY_SIGNATURE: Mapping[str, dtype] = {t.codegen_name(): t for t in BY_TRITON_NAME.values()}


def words_of(key: Key, value: Any) -> list[tuple[str, Any]]:
    """(type, value) of what is passed to the compiled kernel for an argument."""
    kind = key[0]
    if kind == "*":
        return [("*", value)]
    if kind in ("number", "typed"):
        return [(key[1], value)]
    if kind == "descriptor":
        return [("*", value.base), *(("i64", number) for number in (*value.shape, *value.strides))]
    if kind == "tuple":
        return [word for item, one in zip(key[2:], value, strict=True) for word in words_of(item, one)]
    return []
