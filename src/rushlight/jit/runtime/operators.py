"""Operators of graphs: those of `torch.ops.aten`, and those over numbers, strings, lists and dicts."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import rushlight
from rushlight._awaits import _Await
from rushlight.jit.ir.graph import number_text
from rushlight.jit.ir.schemas import variants
from rushlight.jit.runtime.constants import dtype_of, format_of, layout_of, number_of
from rushlight.jit.runtime.objects import type_of_object
from rushlight.jit.runtime.quantized import RECURRENT, quantized_function
from rushlight.nn.composites.recurrence import run_cell

__all__ = ["CONVERSIONS", "TABLE", "evaluate", "function_of"]

CONVERSIONS: dict[str, Callable[[Any], Any]] = {"ScalarType": dtype_of, "Layout": layout_of, "MemoryFormat": format_of}


@cache
def _native(name: str, overload: str) -> Callable[..., Any]:
    """The package's function of an aten overload."""
    space, _, short = name.partition("::")
    packet = getattr(getattr(rushlight.ops, space), short)
    op = getattr(packet, overload or "default")
    kernel = getattr(op, "kernel", None)
    if kernel is None:
        return op
    if getattr(kernel, "__func__", None) is getattr(type(packet), "plain", None):
        return packet.function
    return kernel


def function_of(schema: Any) -> Callable[..., Any]:
    """The function of an overload: it takes the schema's arguments by place, and by name those that have none."""
    found = _own(schema)
    if found is not None:
        return found
    if schema.name.startswith("quantized::"):
        layer = quantized_function(schema.name.removeprefix("quantized::"))
        return _as_list(layer) if schema.returns[0].type.name == "List" else layer
    if schema.name.startswith(("prim::", "aten::")) and schema.form is None:
        raise NotImplementedError(f"rushlight cannot run the TorchScript operator {schema}")
    found = _native(schema.name, schema.overload_name)
    return _as_list(found) if len(schema.returns) == 1 and schema.returns[0].type.name == "List" else found


@cache
def _as_list(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results are a list: Python has a tuple where scripts have a list."""

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        return list(function(*args, **kwargs))

    return run


def takes_all(schema: Any) -> bool:
    """Whether the operator is one of this page, which take every argument by place."""
    return _own(schema) is not None


def _own(schema: Any) -> Callable[..., Any] | None:
    key = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    if schema.form is not None:
        return TABLE.get(key) if key in NATIVE else None
    return TABLE.get(key) or TABLE.get(schema.name)


def evaluate(node: Any, values: Sequence[Any]) -> Any:
    """The value of a node with these inputs."""
    schema = node.schema
    function = function_of(schema)
    if takes_all(schema) or schema.is_vararg:
        return function(*values)
    given, named = [], {}
    for argument, value in zip(schema.arguments, values, strict=True):
        convert = CONVERSIONS.get(argument.word)
        value = convert(value) if convert is not None else value
        if argument.kwarg_only:
            if value is not None:
                named[argument.name] = value
        else:
            given.append(value)
    return function(*given, **named)


# ***** numbers *****


def _int(x: Any) -> int:
    if isinstance(x, rushlight.Tensor):
        x = x.item()
    if isinstance(x, float) and not math.isfinite(x):
        raise RuntimeError(f"cannot convert {x} to int")
    return int(x)


def _float(x: Any) -> float:
    return float(x.item()) if isinstance(x, rushlight.Tensor) else float(x)


def _item(x: Any) -> Any:
    found = x.item()
    return int(found) if isinstance(found, bool) else found


def _implicit(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        if x.requires_grad:
            raise RuntimeError("Cannot input a tensor that requires grad as a scalar argument")
        if x.dim():
            raise RuntimeError("Cannot input a tensor of dimension other than 0 as a scalar argument")
        return convert(x)

    return run


def _div(a: Any, b: Any) -> Any:
    if b == 0:
        if isinstance(a, complex) or isinstance(b, complex):
            raise ZeroDivisionError("complex division by zero")
        a = float(a)
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _nonzero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        if b == 0 and isinstance(b, int) and isinstance(a, int):
            raise ZeroDivisionError("division by zero")
        if b == 0:
            return math.nan if function is operator.mod else _div(a, b)
        return function(a, b)

    return run


def _round(x: Any, digits: int | None = None) -> Any:
    if digits is not None:
        return round(x, digits)
    return x if isinstance(x, int) else float(round(x))


def _log(*args: Any) -> float:
    if len(args) == 2:
        return math.log(args[0]) / math.log(args[1])
    x = args[0]
    return -math.inf if x == 0 else math.nan if x < 0 else math.log(x)


def _guarded(function: Callable[..., float]) -> Callable[..., float]:
    def run(*args: Any) -> float:
        try:
            return function(*args)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return run


def _pow(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return float(a) ** b
    try:
        return a**b
    except OverflowError:
        return math.inf
    except ZeroDivisionError:
        return math.inf


def _range_length(start: int, stop: int, step: int) -> int:
    if step == 0:
        raise RuntimeError("range() arg 3 must not be zero")
    return len(range(start, stop, step))


# ***** lists, dicts, strings *****


def _getitem(items: Any, index: Any) -> Any:
    if not -len(items) <= index < len(items):
        raise IndexError("list index out of range")
    return items[index]


def _dict_getitem(items: Any, key: Any) -> Any:
    try:
        return items[key]
    except KeyError:
        raise KeyError(f"{key}") from None


def _set_item(items: Any, key: Any, value: Any) -> Any:
    if isinstance(items, list) and not -len(items) <= key < len(items):
        raise IndexError("list index out of range")
    items[key] = value
    return items


def _appended(items: list[Any], value: Any) -> list[Any]:
    items.append(value)
    return items


def _extended(items: list[Any], values: Any) -> list[Any]:
    items.extend(values)
    return items


def _deleted(items: Any, key: Any) -> None:
    if isinstance(items, list) and not -len(items) <= key < len(items):
        raise IndexError("list index out of range")
    del items[key]


def _returning_none(name: str) -> Callable[..., Any]:
    def run(items: Any, *args: Any) -> Any:
        getattr(items, name)(*args)
        return items

    return run


def _pop(items: Any, *args: Any) -> Any:
    if isinstance(items, list):
        if not items:
            raise IndexError("pop from empty list")
        at = args[0] if args else -1
        if not -len(items) <= at < len(items):
            raise IndexError("list index out of range")
    return items.pop(*args)


def _equal(a: Any, b: Any) -> Any:
    if isinstance(a, list) and isinstance(b, list) and any(isinstance(v, rushlight.Tensor) for v in a):
        return len(a) == len(b) and all(bool((x == y).all()) for x, y in zip(a, b, strict=True))
    return a == b


def _contains(items: Any, value: Any) -> bool:
    if isinstance(value, rushlight.Tensor):
        return any(bool((value == x).all()) for x in items)
    return value in items


def _slice(items: Any, start: Any, end: Any, step: int = 1) -> Any:
    return items[slice(start, end, step)]


def _sort(items: list[Any], reverse: bool = False) -> None:
    items.sort(key=_order(items), reverse=reverse)


def _order(items: list[Any]) -> Any:
    """The key by which a list is sorted: the numbers of tensors, the compiled `__lt__` of objects."""
    if items and isinstance(items[0], rushlight.Tensor):
        return lambda t: t.item()
    kind = type_of_object(items[0]) if items else None
    less = kind.find_method("__lt__") if kind is not None else None
    if less is None:
        return None
    return functools.cmp_to_key(lambda a, b: -1 if less.run(a, b) else int(less.run(b, a)))


def _min_max(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        if len(args) == 2 and isinstance(args[0], list):
            return function(args[0], args[1])
        if len(args) == 1:
            if not args[0]:
                raise RuntimeError("The list given to min or max must not be empty")
            return function(args[0])
        if isinstance(args[0], float) != isinstance(args[1], float):
            return float(function(*args))
        return function(*args)

    return run


def text_of(value: Any) -> str:
    """A value as `str` of scripts gives it: strings have no quotes, not even in lists, and floats all their digits."""
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, complex):
        imag = number_text(value.imag)
        return f"{number_text(value.real)}{'' if imag[0] == '-' else '+'}{imag}j"
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(text_of, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(k)}: {text_of(v)}" for k, v in value.items()) + "}"
    return str(value)


def _format(text: str, *values: Any) -> str:
    out, at, used = [], 0, 0
    while True:
        found = text.find("{}", at)
        if found < 0:
            break
        if used >= len(values):
            raise RuntimeError("Too few arguments for format string: " + text)
        out += [text[at:found], text_of(values[used])]
        used, at = used + 1, found + 2
    if used < len(values):
        raise RuntimeError(f"Too many arguments for format string: {text}")
    return "".join(out) + text[at:]


def _percent(text: str, *values: Any) -> str:
    given = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
    return text % tuple(
        _Said(v) if isinstance(v, float) else v if isinstance(v, (int, str)) else text_of(v) for v in given
    )


class _Said(float):
    """A number whose text is that of scripts: `%s` writes it, `%d` and `%f` write the number."""

    def __str__(self) -> str:
        return number_text(float(self))


def _split(text: str, separator: str | None = None, count: int = -1) -> list[str]:
    return text.split(separator, count)


def _method(name: str) -> Callable[..., Any]:
    def run(text: str, *args: Any) -> Any:
        return getattr(text, name)(*args)

    return run


def _finding(name: str) -> Callable[..., int]:
    return lambda text, part, start=0, end=-1: int(getattr(text, name)(part, start, None if end == -1 else end))


def _list(value: Any) -> list[Any]:
    return list(value)


_SCALES = ("q_scale", "q_zero_point", "q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis")


def _quantized(x: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    return rushlight.quantize_per_tensor(x, scale, zero_point, dtype_of(dtype))


def _wait(future: Any) -> Any:
    return future.wait()


def _raise(message: str, name: Any = None) -> None:
    raise RaisedError(message, name)


class RaisedError(Exception):
    """`prim::RaiseException`: a message, and the name of the exception's class."""

    def __init__(self, message: str, class_name: str | None) -> None:
        super().__init__(message)
        self.message, self.class_name = message, class_name


def _warn(message: str, level: int = 2) -> None:
    import warnings

    warnings.warn(message, stacklevel=4)


# ***** tensors, where TorchScript has operators of its own *****


def _tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    return rushlight.tensor(data, dtype=dtype_of(dtype), device=device, requires_grad=requires_grad)


def _as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    return rushlight.as_tensor(data, dtype=dtype_of(dtype), device=device)


def _tolist(x: Any) -> Any:
    return x.tolist()


def _to_prim(x: Any, *args: Any) -> Any:
    *kinds, non_blocking, copy = args
    device = next((k for k in kinds if isinstance(k, (str, rushlight.device))), None)
    dtype = next((dtype_of(k) for k in kinds if isinstance(k, int) and not isinstance(k, bool)), None)
    made = x.to(device=device, dtype=dtype, non_blocking=bool(non_blocking), copy=bool(copy))
    return made


def _to_other(x: Any, other: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    named = {} if memory_format is None else {"memory_format": format_of(memory_format)}
    return x.to(other, non_blocking, copy, **named)


def _grad(
    outputs: Any, inputs: Any, grads: Any = None, retain: Any = None, create: bool = False, unused: bool = False
) -> Any:
    found = rushlight.autograd.grad(outputs, inputs, grads, retain, create, allow_unused=unused)
    return list(found)


def _interpolation(
    x: Any,
    size: Any = None,
    scale: Any = None,
    mode: str = "nearest",
    corners: Any = None,
    recompute: Any = None,
    antialias: bool = False,
) -> Any:
    return rushlight.nn.functional.interpolate(
        x, size, scale, mode, corners, recompute_scale_factor=recompute, antialias=antialias
    )


def _named_grad(x: Any) -> Any:
    return x.grad


def _get(attribute: str) -> Callable[[Any], Any]:
    return operator.attrgetter(attribute)


def _number(attribute: str) -> Callable[[Any], int]:
    return lambda x: number_of(getattr(x, attribute))


def _unwrapped(value: Any) -> Any:
    if value is None:
        raise RuntimeError("Unwrapping null optional")
    return value


def _sum_to_size(x: Any, size: Any) -> Any:
    return x if size is None else x.sum_to_size(size)


def _if_not_equal(own: Any, other: Any) -> Any:
    return None if own == other else own


def _listed_chunk(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda *args: list(function(*args))


def _sizes(x: Any) -> list[int]:
    return list(x.size())


def _cell(mode: str) -> Callable[..., Any]:
    """One step of a recurrent layer, as the layers themselves compute it."""

    def run(x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        made = run_cell(mode, x, tuple(state) if mode == "LSTM" else (state,), [w_ih, w_hh, b_ih, b_hh])
        return made if mode == "LSTM" else made[0]

    return run


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True) -> Any:
    return rushlight.nn.functional.layer_norm(x, shape, weight, bias, eps)


def _group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    return rushlight.nn.functional.group_norm(x, groups, weight, bias, eps)


def _nll(x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore: int = -100) -> Any:
    return rushlight.nn.functional.nll_loss(
        x, target, weight, ignore_index=ignore, reduction=("none", "mean", "sum")[reduction]
    )


_MODES = {
    "nearest": "nearest",
    "_nearest_exact": "nearest-exact",
    "linear": "linear",
    "bilinear": "bilinear",
    "trilinear": "trilinear",
    "bicubic": "bicubic",
}


def _upsample(mode: str, corners: bool, antialias: bool) -> Callable[..., Any]:
    """`aten::upsample_....vec`: a size or factors, as `interpolate` takes them."""

    def run(x: Any, size: Any, *rest: Any) -> Any:
        given, factors = (rest[0], rest[1]) if corners else (None, rest[0])
        if size is None and factors is not None and len(set(factors)) == 1:
            factors = factors[0]
        kind = given if corners else None
        return rushlight.nn.functional.interpolate(
            x, size, factors, mode, kind, recompute_scale_factor=False, antialias=antialias
        )

    return run


_UPSAMPLE = {
    f"aten::{'_' if mode[0] == '_' else ''}upsample{'' if mode[0] == '_' else '_'}{mode}{dims}d.vec": _upsample(
        spoken, mode not in ("nearest", "_nearest_exact"), False
    )
    for mode, spoken in _MODES.items()
    for dims in (1, 2, 3)
} | {f"aten::_upsample_{mode}2d_aa.vec": _upsample(mode, True, True) for mode in ("bilinear", "bicubic")}
_BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": _div, "floordiv": _nonzero(operator.floordiv), "remainder": _nonzero(operator.mod),
    "mathremainder": _guarded(math.remainder), "pow": _pow, "lt": operator.lt, "gt": operator.gt, "le": operator.le, "ge": operator.ge, "eq": _equal,
    "ne": lambda a, b: not _equal(a, b), "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__lshift__": operator.lshift,
    "__rshift__": operator.rshift, "fmod": _guarded(math.fmod), "atan2": math.atan2, "copysign": math.copysign, "gcd": math.gcd,
    "__round_to_zero_floordiv": lambda a, b: int(a / b) if abs(a) < 2**52 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1),
    "divmod": divmod, "ldexp": math.ldexp,
}  # fmt: skip
_UNARY = {
    "neg": operator.neg, "ceil": math.ceil, "floor": math.floor, "sqrt": _guarded(math.sqrt), "exp": _guarded(math.exp), "log": _log,
    "log10": _guarded(math.log10), "log1p": _guarded(math.log1p), "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": _guarded(math.asin),
    "acos": _guarded(math.acos), "atan": math.atan, "sinh": _guarded(math.sinh), "cosh": _guarded(math.cosh), "tanh": math.tanh, "asinh": math.asinh,
    "acosh": _guarded(math.acosh), "atanh": _guarded(math.atanh), "erf": math.erf, "erfc": math.erfc, "gamma": _guarded(math.gamma),
    "lgamma": _guarded(math.lgamma), "fabs": math.fabs, "degrees": math.degrees, "radians": math.radians, "expm1": _guarded(math.expm1),
    "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite, "factorial": math.factorial, "modf": math.modf, "frexp": math.frexp,
    "angle": lambda x: math.atan2(complex(x).imag, complex(x).real), "round": _round,
}  # fmt: skip
_SCALAR_FORMS = ("int", "float", "int_float", "float_int", "complex", "int_complex", "complex_int", "float_complex", "complex_float", "bool", "", "str", "t",
                 "str_list", "int_list", "float_list", "bool_list", "Tensor_list", "device", "enum", "Scalar_Scalar", "int_int", "float_float",
                 "int_to_int", "Scalar")  # fmt: skip


def _table() -> dict[str, Callable[..., Any]]:
    table: dict[str, Callable[..., Any]] = {}
    pages: tuple[dict[str, Any], ...] = (_BINARY, _UNARY)
    for rows in pages:
        for name, function in rows.items():
            for schema in variants(f"aten::{name}"):
                if schema.form is None and str(schema.arguments[0].type) != "Tensor":
                    key = f"aten::{name}.{schema.overload_name}" if schema.overload_name else f"aten::{name}"
                    table[key] = function
    return table | _OWN | _UPSAMPLE


_STRINGS = (
    "capitalize center count endswith expandtabs isalnum isalpha isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper"
    " ljust lower lstrip partition replace rjust rpartition rsplit rstrip splitlines startswith strip swapcase title upper zfill"
)
_OWN: dict[str, Callable[..., Any]] = {
    **{f"aten::{n}": _method(n) for n in _STRINGS.split() if n not in ("count",)},
    "aten::count": lambda items, value, *rest: items.count(value, *(r for r in rest if r != -1)),
    "aten::split.str": _split, "aten::join": lambda sep, parts: sep.join(parts), "aten::format": _format, "aten::percentFormat": _percent,
    "aten::find": _finding("find"), "aten::rfind": _finding("rfind"), "aten::rindex": _finding("rindex"),
    "aten::index.str": _finding("index"), "aten::str": text_of, "aten::ord": ord, "aten::chr": chr, "aten::hex": hex, "aten::oct": oct,
    "aten::bin": bin, "aten::hash": hash, "prim::StringIndex": operator.getitem, "aten::__getitem__.str": _getitem,
    "aten::len": len, "aten::append": _appended, "aten::append.t": _appended, "aten::extend": _extended, "aten::insert": _returning_none("insert"),
    "aten::insert.t": _returning_none("insert"), "aten::reverse": _returning_none("reverse"), "aten::remove": _returning_none("remove"),
    "aten::clear": _returning_none("clear"), "aten::pop": _pop, "aten::popitem": lambda d: d.popitem(), "aten::copy": lambda x: x.copy(),
    "aten::list": _list, "aten::dict": lambda *a: dict(*a), "aten::keys": lambda d: list(d.keys()), "aten::values.str": lambda d: list(d.values()),
    **{f"aten::values.{k}": lambda d: list(d.values()) for k in ("int", "bool", "float", "complex", "Tensor")},
    "aten::items": lambda d: list(d.items()), "aten::get": lambda d, k, default=None: d.get(k, default), "aten::setdefault": lambda d, k, v: d.setdefault(k, v),
    "aten::update": _returning_none("update"), "aten::Delete": _deleted, "aten::_set_item": _set_item, "aten::__contains__": _contains,
    "aten::__getitem__.t": _getitem, **{f"aten::__getitem__.Dict_{k}": _dict_getitem for k in ("str", "int", "bool", "float", "complex", "Tensor")},
    "aten::slice.t": _slice, "aten::slice.str": _slice, "aten::add.t": operator.add, "aten::add_.t": operator.iadd, "aten::mul.left_t": operator.mul,
    "aten::mul.right_": operator.mul, "aten::mul_.t": operator.imul, "aten::sorted": lambda items: sorted(items, key=_order(items)), "aten::add.str": operator.add, "aten::eq.str": operator.eq,
    "aten::ne.str": operator.ne, "aten::any.str": any, "aten::any.int": any, "aten::any.float": any, "aten::any.bool": any, "aten::all.int": all,
    "aten::all.float": all, "aten::all.bool": all, "aten::sum.int": sum, "aten::sum.float": sum, "aten::sum.complex": sum, "aten::sum.bool": sum,
    **{f"aten::sort.{k}": _sort for k in ("int", "float", "Tensor", "bool", "str", "any")},
    **{f"aten::index.list_{k}": lambda items, v: items.index(v) for k in ("int", "float", "bool", "Tensor", "str")},
    **{f"aten::remove.{k}": _returning_none("remove") for k in ("int", "float", "bool", "Tensor", "str")},
    "aten::__is__": operator.is_, "aten::__isnot__": operator.is_not, "aten::__not__": operator.not_, "aten::__derive_index": lambda i, s, d: s + i * d,
    "aten::__range_length": _range_length, "prim::rangelist": lambda n: list(range(n)),
    **{f"aten::Bool.{k}": bool for k in ("Tensor", "int", "float")}, **{f"aten::Int.{k}": _int for k in ("Tensor", "bool", "float", "Scalar", "str")},
    **{f"aten::Float.{k}": _float for k in ("Tensor", "Scalar", "int", "bool", "str")},
    **{f"aten::Complex.{k}": (lambda *a: complex(*(x.item() if isinstance(x, rushlight.Tensor) else x for x in a))) for k in (
        "Scalar", "Tensor_Tensor", "int_bool", "bool_int", "float_bool", "bool_float", "float_int", "int_float", "int_int", "bool_bool", "float_float",
        "Tensor_float", "float_Tensor", "Tensor_int", "int_Tensor", "Tensor_bool", "bool_Tensor")},
    "aten::IntImplicit": _implicit(_int), "aten::FloatImplicit": _implicit(_float), "aten::ScalarImplicit": _implicit(_item),
    "aten::ComplexImplicit": _implicit(lambda x: complex(x.item())), "aten::item": _item,
    "prim::min": _min_max(min), "prim::max": _min_max(max), "prim::abs": abs, "prim::id": id, "aten::round": _round,
    "aten::tensor": _tensor, "aten::as_tensor": _as_tensor, "prim::NumToTensor": lambda x: rushlight.scalar_tensor(x, dtype=rushlight.tensor(x).dtype),
    "aten::_list_to_tensor": rushlight.tensor, "aten::_tensor_to_list": _tolist, "prim::dtype": _number("dtype"), "prim::layout": _number("layout"),
    "prim::device": _get("device"), "prim::type": _get("type"), "prim::index": _get("index"), "prim::grad": _named_grad, "prim::data": _get("data"),
    "prim::requires_grad": _get("requires_grad"), "prim::is_cuda": _get("is_cuda"), "prim::is_cpu": _get("is_cpu"), "prim::is_sparse": _get("is_sparse"),
    "prim::is_sparse_csr": lambda x: x.layout is rushlight.sparse_csr, "prim::is_quantized": _get("is_quantized"), "prim::is_meta": _get("is_meta"),
    "prim::is_mkldnn": _get("is_mkldnn"), "prim::itemsize": _get("itemsize"), "prim::nbytes": _get("nbytes"), "prim::name": lambda x: None,
    **{f"prim::is_{k}": (lambda x: False) for k in ("xla", "xpu", "mtia", "ipu", "vulkan", "maia", "mps")},
    "aten::is_leaf": _get("is_leaf"), "aten::retains_grad": _get("retains_grad"), "aten::numpy_T": _get("T"), "aten::matrix_H": _get("H"), "aten::mT": _get("mT"), "aten::mH": _get("mH"),
    "aten::size": _sizes, "aten::size.int": lambda x, d: x.size(d), "aten::stride": lambda x: list(x.stride()), "aten::dim": lambda x: x.dim(),
    "aten::device": rushlight.device, "aten::device.with_index": lambda t, i: rushlight.device(t, i), "aten::to.prim_Device": _to_prim,
    "aten::to.prim_dtype": _to_prim, "aten::to.prim_other": lambda x, non_blocking=False, copy=False: x, "aten::to.other": _to_other,
    "aten::cpu": lambda x: x.cpu(), "aten::cuda": lambda x: x.cuda(), "aten::wait": _wait, "prim::awaitable_wait": _wait,
    "prim::awaitable_nowait": _Await.of_value, "aten::is_scripting": lambda: True,
    "aten::is_grad_enabled": lambda: rushlight.is_grad_enabled(), "aten::set_grad_enabled": lambda v: rushlight.set_grad_enabled(v) and None,
    "aten::warn": _warn, "prim::RaiseException": _raise, "prim::unchecked_cast": lambda x: x, "prim::unchecked_unwrap_optional": _unwrapped,
    "aten::_unwrap_optional": _unwrapped, "aten::manual_seed": lambda seed: rushlight.manual_seed(seed) and None, "aten::grad": _grad,
    "aten::seed": lambda *a: rushlight.seed(), "aten::initial_seed": lambda *a: rushlight.initial_seed(), "aten::has_torch_function": lambda *a: False,
    "aten::_grad_sum_to_size": _sum_to_size, "aten::_size_if_not_equal": _if_not_equal, "aten::__interpolate": _interpolation,
    "aten::element_size": lambda x: x.element_size(), "aten::storage_offset": lambda x: x.storage_offset(), "prim::EnumName": _get("name"),
    "prim::EnumValue": _get("value"), "aten::get_autocast_dtype": lambda d: number_of(rushlight.get_autocast_dtype(d)),
    "aten::is_autocast_enabled": lambda *a: rushlight.is_autocast_enabled(*a), "aten::is_autocast_cpu_enabled": lambda: rushlight.is_autocast_enabled("cpu"),
    "aten::broadcast_tensors": lambda *a: list(rushlight.broadcast_tensors(*a[0])),
    "aten::meshgrid": lambda a: list(rushlight.meshgrid(*a)), "aten::meshgrid.indexing": lambda a, indexing: list(rushlight.meshgrid(*a, indexing=indexing)),
    "aten::where": lambda c: list(rushlight.where(c)), "aten::broadcast_shapes": lambda a, b: list(rushlight.broadcast_shapes(a, b)),
    "aten::nonzero_numpy": lambda x: list(rushlight.nonzero(x, as_tuple=True)),
     "aten::backward": lambda x, *a: x.backward(*a), "aten::save": lambda v, f: rushlight.save(v, f),
    "aten::lstm_cell": _cell("LSTM"), "aten::gru_cell": _cell("GRU"), "aten::rnn_tanh_cell": _cell("RNN_TANH"), "aten::rnn_relu_cell": _cell("RNN_RELU"),
    "aten::layer_norm": _layer_norm, "aten::group_norm": _group_norm, "aten::log_sigmoid": lambda x: rushlight.nn.functional.logsigmoid(x),
    "aten::nll_loss_nd": _nll, "aten::nll_loss2d": _nll, "aten::one_hot": lambda x, n=-1: rushlight.nn.functional.one_hot(x, n),
    "aten::pad_sequence": lambda *a: rushlight.nn.utils.rnn.pad_sequence(*a), "aten::gelu_": lambda x, approximate="none": x.copy_(
        rushlight.nn.functional.gelu(x, approximate=approximate)),
    **{f"aten::{n}.{k}": f for n, f in (("__and__", operator.and_), ("__or__", operator.or_), ("__xor__", operator.xor), ("__lshift__", operator.lshift),
        ("__rshift__", operator.rshift), ("__iand__", operator.iand), ("__ior__", operator.ior), ("__ixor__", operator.ixor),
        ("__ilshift__", operator.ilshift), ("__irshift__", operator.irshift)) for k in ("Tensor", "Scalar")},
    "aten::quantize_per_tensor": _quantized, "aten::quantize_per_tensor.tensor_qparams": _quantized,
    "aten::quantize_per_channel": lambda x, s, z, axis, d: rushlight.quantize_per_channel(x, s, z, axis, dtype_of(d)),
    "aten::dequantize.self": lambda x: x.dequantize(), **{f"aten::{name}": operator.methodcaller(name) for name in _SCALES},
    **RECURRENT,
    "prim::IfThenElse": lambda c, a, b: a if c else b, "aten::_get_tracing_state": lambda: False, "aten::get_device": lambda x: x.get_device(),
}  # fmt: skip
# Operators of aten whose results have another form in scripts: lists for tuples, numbers for booleans.
NATIVE = frozenset((
    *_UPSAMPLE, "aten::item", "aten::size.int", "aten::size", "aten::stride", "aten::dim", "aten::is_leaf", "aten::retains_grad", "aten::numpy_T", "aten::matrix_H",
    "aten::mT", "aten::mH", "aten::broadcast_tensors", "aten::meshgrid", "aten::meshgrid.indexing", "aten::where", "aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell", "aten::layer_norm",
    "aten::group_norm", "aten::log_sigmoid", "aten::nll_loss_nd", "aten::nll_loss2d", "aten::one_hot", "aten::pad_sequence", "aten::gelu_",
    *(f"aten::{n}.{k}" for n in ("__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "__iand__", "__ior__", "__ixor__", "__ilshift__",
                                 "__irshift__") for k in ("Tensor", "Scalar")),
    "aten::quantize_per_tensor", "aten::quantize_per_tensor.tensor_qparams", "aten::quantize_per_channel", "aten::dequantize.self", *(f"aten::{name}" for name in _SCALES),
    "aten::nonzero_numpy", "aten::to.other", "aten::to.prim_Device",
))  # fmt: skip
TABLE: dict[str, Callable[..., Any]] = {}
TABLE.update(_table())
