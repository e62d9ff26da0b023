"""Bind the arguments of a call to an operator's signature: names, defaults, conversions of numbers and lists,
TypeErrors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.errors import warn_once
from rushlight._engine.core.creation import python_dtype, tensor
from rushlight._engine.core.integers import integer, is_numpy_scalar, number_in_range, numpy_number, too_large
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.lower import NUMBERS, TENSOR, Literal, Slot, ask_numbers
from rushlight._ops.schema import Argument, Schema
from rushlight._ops.table import Operator
from rushlight._types.device import as_device
from rushlight._types.dtype import DType
from rushlight._types.symbols import is_symbolic

__all__ = ["NUMPY_WORDS", "bind", "flatten", "is_native", "argument_error", "only_tensors"]

# NumPy's names of some arguments, which native functions of PyTorch also take.
NUMPY_WORDS = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "x2": "other", "a": "input"}
# Names of an argument in another form of an operator, the method or PyTorch's function in Python: -> the name in the schema.
_OTHER_WORDS = {("split", "split_size"): "split_size_or_sections", ("split", "tensor"): "input"} | {
    (name, word): "indices_or_sections" for name in ("hsplit", "vsplit", "dsplit") for word in ("indices", "sections")
}
# Functions that PyTorch writes in Python: they take only their own argument names.
_OF_PYTHON = frozenset((
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul", "einsum", "lu",
    "meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique", "unique_consecutive", "unravel_index",
))  # fmt: skip
# Functions of `nn.functional` that PyTorch does not write in Python.
_NATIVE = frozenset((
    "adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "gelu", "hardshrink", "linear", "logsigmoid", "native_channel_shuffle", "one_hot",
    "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "rrelu_", "scaled_dot_product_attention", "softplus", "softshrink",
))  # fmt: skip


def is_native(name: str, spaces: Sequence[str]) -> bool:
    """Whether PyTorch's native parser reads the arguments of a function: it takes NumPy's names and checks every type."""
    return (
        name in _NATIVE
        if tuple(spaces) == ("nn.functional",)
        else name not in _OF_PYTHON or tuple(spaces) == ("linalg",)
    )


# Python functions of PyTorch that read an attribute of an argument before its parser runs: function -> attribute,
# arguments.
_ASKED: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d_with_indices"), ("size", ("input",))),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"), ("size", ("input", "target"))),
    **dict.fromkeys(("glu", "group_norm", "local_response_norm", "stft"), ("dim", ("input",))), "margin_ranking_loss": ("dim", ("input1", "input2", "target")),
    "tensordot": ("dim", ("a", "b")), "lp_pool_core": ("pow", ("input",)), "normalize": ("norm", ("input",)), "softsign": ("abs", ("input",)),
    "tanhshrink": ("tanh", ("input",)), "norm": ("layout", ("input",)), "split": ("split", ("input",)), "unravel_index": ("is_complex", ("indices",)),
    "nn.functional.softmax": ("softmax", ("input",)), "nn.functional.log_softmax": ("log_softmax", ("input",)),
    **dict.fromkeys(("max_unpool1d", "max_unpool2d", "max_unpool3d"), ("size", ("input",))),
}  # fmt: skip


def argument_error(function: str, argument: str, value: Any, text: str) -> TypeError | AttributeError:
    """The error for an argument of a wrong type; an AttributeError if PyTorch's function reads an attribute that the
    value lacks.
    """
    ask_numbers((value,))
    attribute, places = _ASKED.get(function, ("", ()))
    if argument in places and not hasattr(value, attribute):
        return AttributeError(
            f"'{type(value).__name__}' object has no attribute '{attribute}'; {text}", name=attribute, obj=value
        )
    return TypeError(text)


def only_tensors(function: str, **given: Any) -> None:
    """TypeError if one of these arguments is not a tensor."""
    for argument, value in given.items():
        if not isinstance(value, Tensor):
            raise argument_error(
                function,
                argument,
                value,
                f"{function}(): argument '{argument}' must be Tensor, not {type(value).__name__}",
            )


# Legacy argument orders, with numbers before the tensors that they multiply; PyTorch still takes them.
_OLDER: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("add", "sub"), (("input", "alpha", "other"),)), "rsub": (("input", "other", "alpha"),),
    **dict.fromkeys(("addcmul", "addcdiv"), (("input", "value", "tensor1", "tensor2"),)),
    **{
        name: (("beta", "input", "alpha", *factors), ("beta", "input", *factors))
        for name, factors in {
            "addmm": ("mat1", "mat2"), "addmv": ("mat", "vec"), "addr": ("vec1", "vec2"), "addbmm": ("batch1", "batch2"), "baddbmm": ("batch1", "batch2"),
        }.items()
    },
}  # fmt: skip
_WORDS = {
    "Tensor": "Tensor",
    "Scalar": "Number",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "dtype": "torch.dtype",
    "ints": "int or tuple of ints",
}


def bind(op: Operator, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """One value per declared argument, in order.  TypeError, with PyTorch's meaning, for arguments that do not fit."""
    schema = op.schema
    arguments = schema.arguments
    left = dict(kwargs)
    if op.name in _LEFT_OUT and (None in args[1:] or any(left.get(word, 0) is None for word in ("dim", "axis"))):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: 'dim' may be left out, but not be None"
        )
    older = _older(op, name, args, left) if op.name in _OLDER and _unusual(schema, args, left) else None
    if older is not None:
        args = older
    elif len(args) > schema.positional:
        args = _gather(schema, name, args)
    values: list[Any] = list(args)
    for argument in arguments[len(values) :]:
        if argument.name in left:
            values.append(left.pop(argument.name))
            continue
        other = next((k for k in left if argument.name in (NUMPY_WORDS.get(k), _OTHER_WORDS.get((op.name, k)))), None)
        if other is not None and other in NUMPY_WORDS and not is_native(op.public, op.spaces):
            other = None
        if other is not None:
            values.append(left.pop(other))
        elif argument.required:
            position = f" (position {len(values) + 1})" if not argument.keyword_only else ""
            raise TypeError(
                f'{name}() missing 1 required argument: "{argument.name}"{position}; the signature is {schema.text}'
            )
        else:
            values.append(argument.default)
    if left:
        key = next(iter(left))
        if any(a.name == key for a in arguments[: len(args)]):
            raise TypeError(f"{name}() got multiple values for argument '{key}'")
        raise TypeError(f"{name}() got an unexpected keyword argument '{key}'; the signature is {schema.text}")
    found = [_convert(op, a, v, name, i) for i, (a, v) in enumerate(zip(arguments, values, strict=True))]
    if any(type(v) is complex for v in found):
        found = _real_numbers(op, found)
    if any(type(v) is int and v >= _SIGNED for v in found):
        found = _large_numbers(op, found)
    if op.numbers and not any(isinstance(v, Tensor) for v in found):
        if "numbers" in op.tags:  # of two numbers the first becomes a tensor
            place = next(i for i, a in enumerate(arguments) if a.name in op.numbers)
            return [*found[:place], tensor(found[place]), *found[place + 1 :]]
        given = ", ".join(type(v).__name__ for v in args)
        raise TypeError(
            f"{name}() received an invalid combination of arguments - got ({given}), but one of them must be a tensor: {schema.text}"
        )
    return found


_LEFT_OUT = frozenset(("prod", "squeeze"))  # whose forms without and with a dim are two functions


def _unusual(schema: Schema, args: Sequence[Any], left: dict[str, Any]) -> bool:
    """Whether arguments may follow a legacy order: too many, given twice, or a number in the place of a tensor of a
    product.
    """
    if len(args) > schema.positional or any(a.name in left for a in schema.arguments[: len(args)]):
        return True
    return bool(args) and not isinstance(args[0], Tensor)


def _older(op: Operator, name: str, args: Sequence[Any], left: dict[str, Any]) -> Sequence[Any] | None:
    """The tensors of a call in a legacy order, its numbers put in `left`; None if the call has no such order."""
    for order in _OLDER[op.name]:
        # A method has its tensor first.
        for names in dict.fromkeys((order, ("input", *[n for n in order if n != "input"]))):
            given = dict(zip(names, args, strict=False))
            if (
                len(args) > len(names)
                or given.keys() & left.keys()
                or left.keys() - {*names, "out"}
                or {*names} - given.keys() - left.keys()
            ):
                continue
            whole = {**left, **given}
            numbers = [n for n in names if n in ("alpha", "beta", "value") or op.name == "rsub" and n == "other"]
            if all(_is_number(whole[n]) for n in numbers) and all(
                _fits_tensor(whole[n], n) for n in names if n not in numbers
            ):
                _warn_older(name, args)
                tensors = [n for n in ("input", *order) if n not in ("alpha", "beta", "value")]
                for n in names:
                    left.pop(n, None)
                left.update((n, whole[n]) for n in names if n not in tensors)
                return [whole[n] for n in dict.fromkeys(tensors)]
    return None


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (bool, int, float, complex))
        or is_numpy_scalar(value)
        or (isinstance(value, Tensor) and not value._spec.ndim)
    )


def _fits_tensor(value: Any, name: str) -> bool:
    return isinstance(value, Tensor) or name == "other" and _is_number(value)


def _warn_older(name: str, args: Sequence[Any]) -> None:
    given = ", ".join("Tensor" if isinstance(a, Tensor) else "Number" for a in args)
    warn_once(f"This overload of {name} is deprecated: {name}({given}); give its numbers by name")


def _gather(schema: Schema, name: str, args: Sequence[Any]) -> Sequence[Any]:
    """`x.view(2, 3)`: trailing ints are collected into the list that is declared there."""
    n = schema.positional
    last = schema.arguments[n - 1] if n else None
    if last is not None and (last.repeat == 0 and last.base in ("int", "Tensor") or last.base == "ints"):
        return [*args[: n - 1], tuple(args[n - 1 :])]
    raise TypeError(
        f"{name}() takes {n} positional arguments but {len(args)} were given; the signature is {schema.text}"
    )


def _fail(op: Operator, argument: Argument, value: Any, name: str, place: int) -> TypeError | AttributeError:
    wanted = (
        ("tuple of " + _WORDS.get(argument.base, argument.base) + "s")
        if argument.is_sequence
        else _WORDS.get(argument.base, argument.base)
    )
    text = f"{name}(): argument '{argument.name}' (position {place + 1}) must be {wanted}, not {type(value).__name__}"
    return argument_error(op.public, argument.name, value, text)


def _number(value: Any) -> Any:
    """A plain Python number, or None.  NumPy scalars and 0-dim tensors count as numbers."""
    if type(value) in NUMBERS:
        return value if type(value) is not int or -_SIGNED <= value < 2 * _SIGNED else number_in_range(value)
    if isinstance(value, (bool, int, float, complex)) and not is_symbolic(value):
        return next(t(value) for t in (bool, int, float, complex) if isinstance(value, t))  # type: ignore[arg-type]
    if isinstance(value, Tensor):
        return value.item() if not value._spec.ndim and not value._rg else None
    return numpy_number(value)


def scalar(value: Any, name: str, argument: str, place: int) -> Any:
    """A plain Python number.  TypeError for anything else, and for a tensor that requires a gradient, which it would
    not get.
    """
    found = _number(value)
    if found is None:
        raise TypeError(
            f"{name}(): argument '{argument}' (position {place}) must be Number, not {type(value).__name__}"
        )
    return found


_SIGNED = 2**63


def _real_numbers(op: Operator, values: Sequence[Any]) -> list[Any]:
    """The arguments of a call with complex numbers made real, if a number takes no part in promotion and the tensors
    are real.

    RuntimeError for one with an imaginary part.
    """
    tensors = [
        v
        for value in values
        for v in (value if isinstance(value, (list, tuple)) else (value,))
        if isinstance(v, Tensor)
    ]
    if not tensors or any(t._spec.dtype.is_complex for t in tensors) or op.name in _LOOK_THEMSELVES:
        return list(values)
    joins = op.promote in ("same", "float") and op.name not in _WANT_REAL
    found = []
    for argument, value in zip(op.schema.arguments, values, strict=True):
        if (
            type(value) is complex
            and argument.base in ("Scalar", "Tensor")
            and not (joins and (op.promote_over is None or argument.name in op.promote_over))
        ):
            if value.imag != 0:
                raise RuntimeError(
                    f"value cannot be converted to type {tensors[0]._spec.dtype.name} without overflow: '{argument.name}' is {value}"
                )
            value = value.real
        found.append(value)
    return found


def _large_numbers(op: Operator, values: Sequence[Any]) -> list[Any]:
    """The arguments of a call with ints beyond 63 bits made floats, if the computation is in floats.

    RuntimeError beside bool tensors, which PyTorch does not promote with them.
    """
    tensors = [
        v
        for value in values
        for v in (value if isinstance(value, (list, tuple)) else (value,))
        if isinstance(v, Tensor)
    ]
    floats = any(t._spec.dtype.is_floating_point or t._spec.dtype.is_complex for t in tensors)
    if floats or op.promote == "float" or (op.name == "div" and None in values):
        return [float(v) if type(v) is int and v >= _SIGNED else v for v in values]
    joined = [
        v
        for a, v in zip(op.schema.arguments, values, strict=True)
        if a.base == "Tensor" and (op.promote_over is None or a.name in op.promote_over)
    ]
    if (
        op.promote == "same"
        and all(t._spec.dtype.name == "bool" for t in tensors)
        and any(type(v) is int and v >= _SIGNED for v in joined)
    ):
        raise RuntimeError(
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote Bool and UInt64"
        )
    return list(values)


# Operators that handle complex numbers themselves, and operators that want real ones although they take part in
# promotion.
_LOOK_THEMSELVES = frozenset(
    ("add", "sub", "rsub", "float_power", "hardtanh", "index_fill", "linalg_vector_norm", "norm")
)
_WANT_REAL = frozenset(("clamp", "clamp_min", "clamp_max", "lerp"))


def _convert(op: Operator, argument: Argument, value: Any, name: str, place: int) -> Any:
    if value is None:
        if argument.name == "reduction":
            raise ValueError("None is not a valid value for reduction")
        if argument.optional or argument.base == "any" or (not argument.required and argument.default is None):
            return None
        if argument.default == ():  # `amax(x, None)`: a list that may be empty may be left out by name too
            return ()
        raise _fail(op, argument, value, name, place)
    base = argument.base
    if (
        "index_tensor" in op.tags
        and isinstance(value, Tensor)
        and base == "int"
        and (value._spec.ndim or not value._spec.dtype.is_integer)
    ):
        raise RuntimeError(f"{argument.name} must be an 0-dim integral Tensor.")  # if another overload takes tensors
    try:
        if argument.is_sequence:
            return _sequence(argument, value)
        if base == "Tensor":
            if isinstance(value, Tensor):
                return value
            found = _number(value) if argument.name in op.numbers else None
        elif base == "Scalar":
            found = _number(value)
        elif base == "str" and argument.name == "reduction" and not isinstance(value, str):
            raise ValueError(f"{value} is not a valid value for reduction")
        elif base == "bool" and argument.optional and not isinstance(value, Tensor):
            # `size_average`, `reduce`: legacy arguments, handled in Python
            found = bool(value)
        else:
            found = _plain(base, value)
    except TypeError:
        raise _fail(op, argument, value, name, place) from None
    except ValueError as error:
        listed = isinstance(value, (tuple, list))
        if base in ("int", "ints") and (listed or argument.repeat == 0):  # `int[1]` takes one number as it is
            raise too_large(name, argument.name, value if listed else [value], error) from None
        raise
    if found is None:
        raise _fail(op, argument, value, name, place)
    return found


def _plain(base: str, value: Any) -> Any:
    if base == "int":
        return integer(value)
    if base == "ints":
        return _ints(value) if isinstance(value, (tuple, list)) else integer(value)
    if base == "float":
        found = value if isinstance(value, int) else _number(value)
        if isinstance(found, complex) or found is None:
            raise TypeError
        return float(found)
    if base == "bool":
        if not isinstance(value, bool):
            raise TypeError
        return value
    if base == "str" and not isinstance(value, str):
        raise TypeError
    if base == "dtype" and not isinstance(value, DType):
        return python_dtype(value)
    if base == "device":
        return as_device(value)
    return _frozen(value) if base == "any" else value


def _frozen(value: Any) -> Any:
    """Lists as tuples, and 0-dim tensors as numbers: the parts of a call key must be hashable."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return tuple([_frozen(v) for v in value])
    if isinstance(value, Tensor) and not value._spec.ndim and not value._rg:
        return value.item()
    number = numpy_number(value)
    return value if number is None else number


def _sequence(argument: Argument, value: Any) -> tuple[Any, ...]:
    base = argument.base
    if base == "Tensor":
        items = tuple(value)
        if isinstance(value, Tensor):
            raise TypeError
        for item in items:
            if not isinstance(item, Tensor) and item is not None:
                raise TypeError
        return items
    if not isinstance(value, (tuple, list)):
        if argument.repeat or base == "int":
            item = integer(value, bool(argument.repeat)) if base == "int" else _plain(base, value)
            return (item,) * max(argument.repeat or 1, 1)
        else:
            value = tuple(value)
    if argument.holes:
        return tuple([v if v is None else _plain(base, v) for v in value])
    items = _ints(value) if base == "int" else tuple([_plain(base, v) for v in value])
    return items * argument.repeat if argument.repeat and len(items) == 1 else items


def _ints(values: Sequence[Any]) -> tuple[int, ...]:
    """PyTorch's parser checks the first item only: True may follow it."""
    return tuple([int(v) if place and isinstance(v, bool) else integer(v, True) for place, v in enumerate(values)])


def _is_default(argument: Argument, value: Any) -> bool:
    """Whether a number is the declared default (`alpha=1`); then it is part of the plan, and bodies can skip it."""
    return not argument.required and type(value) is type(argument.default) and value == argument.default


def flatten(op: Operator, values: Sequence[Any]) -> tuple[tuple[Any, ...], list[Tensor], list[Any]]:
    """(template, tensors, numbers): the hashable part that decides the plan, and the arguments that each call passes to
    it.
    """
    template: list[Any] = []
    tensors: list[Tensor] = []
    numbers: list[Any] = []
    for argument, value in zip(op.schema.arguments, values, strict=True):
        if isinstance(value, Tensor):
            template.append(TENSOR)
            tensors.append(value)
        elif argument.base == "Tensor" and argument.is_sequence and value is not None:
            if any(v is None for v in value):
                template.append(tuple(TENSOR if v is not None else None for v in value))
                raise TypeError(f"{op.name}(): expected a sequence of tensors without None")
            template.append(Slot("list", len(value)))
            tensors.extend(value)
        elif (
            argument.base in ("Scalar", "Tensor")
            and value is not None
            and argument.name not in op.static
            and not _is_default(argument, value)
        ):
            template.append(NUMBERS[type(value)])
            numbers.append(value)
        else:
            template.append(Literal(value) if type(value) in NUMBERS and value is not None else value)
    return tuple(template), tensors, numbers
