"""Arguments that operators take, as `torch.fx.operator_schemas`: signatures with types, and calls with every argument
written out.

>>> import rushlight as torch
>>> normalize_function(torch.mm, (1, 2), normalize_to_only_use_kwargs=True)
ArgsKwargsPair(args=(), kwargs={'input': 1, 'mat2': 2})
"""

from __future__ import annotations

import inspect
import keyword
import numbers
import typing
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import rushlight
from rushlight.library.builtin import BuiltinOverload
from rushlight.library.operators import OpOverload, OpOverloadPacket
from rushlight.library.schema import Argument, FunctionSchema

__all__ = [
    "ArgsKwargsPair", "check_for_mutable_operation", "create_type_hint", "get_signature_for_torch_op", "normalize_function", "normalize_module", "type_matches",
]  # fmt: skip

_TYPES: dict[str, Any] = {
    "Tensor": rushlight.Tensor, "int": int, "SymInt": int, "float": float, "bool": bool, "str": str, "Scalar": numbers.Number, "complex": complex,
    "Device": rushlight.device, "ScalarType": int, "Layout": int, "MemoryFormat": int, "Generator": Any,
}  # fmt: skip
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ArgsKwargsPair(NamedTuple):
    """The arguments of a call, by place and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


# ***** signatures *****


def _hint(argument: Argument) -> Any:
    hint = _TYPES.get(argument.base, Any)
    for _ in range(argument.list_depth):
        hint = list.__class_getitem__(hint)
    return typing.Optional[hint] if argument.optional else hint  # noqa: UP045 - PyTorch's callers look at the origin of the type


def _signature(schema: FunctionSchema) -> inspect.Signature:
    """A schema as a signature; `self` is called `input`, as the functions of torch call it.  What has a
    keyword of Python as its name, and those before it, go by position alone.
    """
    last = max((place for place, each in enumerate(schema.arguments) if keyword.iskeyword(each.name)), default=-1)
    parameters = [
        inspect.Parameter(
            "input" if argument.name == "self" else argument.name,
            inspect.Parameter.POSITIONAL_ONLY if place <= last
            else inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.default if argument.has_default else inspect.Parameter.empty,
            annotation=_hint(argument),
        )
        for place, argument in enumerate(schema.arguments)
    ]  # fmt: skip
    results = [_hint(result) for result in schema.returns]
    return inspect.Signature(parameters, return_annotation=results[0] if len(results) == 1 else tuple(results))


def _schemas(op: Any) -> list[FunctionSchema] | None:
    if isinstance(op, (OpOverload, BuiltinOverload)):
        return [op._schema]
    packet = op if isinstance(op, OpOverloadPacket) else _packet_of(op)
    if packet is None:
        return None
    try:
        found = [getattr(packet, name)._schema for name in packet.overloads()]
    except NotImplementedError:  # an operator that is written in others has a Python signature alone
        return None
    return list({str(_signature(schema)): schema for schema in found}.values())  # one overload may go by several names


def _packet_of(function: Any) -> Any:
    """The operator that a function of torch's pages is; None for what is none."""
    name = getattr(function, "__name__", "")
    for page in (rushlight, rushlight.nn.functional, rushlight.linalg, rushlight.fft, rushlight.special):
        if getattr(page, name, None) is function:
            packet, written = getattr(rushlight.ops.aten, name, None), _python_signature(function)
            return packet if packet is not None and written is not None and _takes_the_same(packet, written) else None
    return None


def _takes_the_same(packet: Any, written: inspect.Signature) -> bool:
    """Whether a function takes what the operator takes: `nn.functional.relu` takes `inplace` too."""
    return any(list(_signature(schema).parameters) == list(written.parameters) for schema in _schemas(packet) or ())


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of an operator's overloads, None where they are not known; `return_schemas` gives (signatures,
    schemas).
    """
    schemas = _schemas(op)
    signatures = None if schemas is None else [_signature(schema) for schema in schemas]
    return (signatures, schemas) if return_schemas else signatures


def check_for_mutable_operation(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """RuntimeError where the one overload that takes these arguments changes one of them."""
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    fitting = [
        schema
        for signature, schema in zip(signatures or (), schemas or (), strict=True)
        if _takes(signature, args, kwargs)
    ]
    if len(fitting) == 1 and fitting[0].is_mutable:
        raise RuntimeError(
            f"Tried to trace mutable operation {fitting[0]}. FX only supports functional code, so operations that mutate operands in-place "
            "(e.g. via `out` arguments) are not supported"
        )


def _takes(signature: inspect.Signature, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


# ***** types *****


def create_type_hint(x: Any) -> Any:
    """The type of a list or tuple of types: `list[T]` or `tuple[T, ...]` with the widest of them, Any where none holds
    all others.
    """
    if not isinstance(x, (list, tuple)):
        return x
    try:
        widest = next((t for t in x if all(issubclass(other, t) for other in x)), Any)
    except TypeError:
        warnings.warn(f"We were not able to successfully create type hint from the type {x}", stacklevel=2)
        return x
    return list[widest] if isinstance(x, list) else tuple[widest, ...]  # type: ignore[valid-type]


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether an argument of one type may be given where a signature says another."""
    if signature_type is argument_type or signature_type is Any:
        return True
    origin, inner = typing.get_origin(signature_type), typing.get_args(signature_type)
    if origin is typing.Union:
        return any(type_matches(each, argument_type) for each in inner)
    if origin is list:
        if inner[0] is int and argument_type is int:  # a number stands for a list of one
            return True
        given = [each for each in typing.get_args(argument_type) if each is not Ellipsis]
        return typing.get_origin(argument_type) in (list, tuple) and all(type_matches(inner[0], each) for each in given)
    if signature_type is int and argument_type is rushlight.dtype:  # a dtype is a number in schemas
        return True
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    return (
        inspect.isclass(argument_type) and inspect.isclass(signature_type) and issubclass(argument_type, signature_type)
    )


# ***** calls with all arguments written out *****


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """A call's arguments with every default filled in; None where the signature is not known or does not take them.

    `arg_types` and `kwarg_types` choose among overloads.  RuntimeError where several take the arguments and no types
    are given.
    """
    kwargs = kwargs or {}
    signatures = get_signature_for_torch_op(target)
    if signatures is None:
        found = _python_signature(target)
        return None if found is None else _written_out(found, args, kwargs, normalize_to_only_use_kwargs)
    fitting = [signature for signature in signatures if _takes(signature, args, kwargs)]
    if len(fitting) > 1:
        if arg_types is None and kwarg_types is None:
            shown = "\n".join(map(str, fitting))
            raise RuntimeError(
                f"Tried to normalize arguments to {rushlight.typename(target)} but the schema match was ambiguous! Please provide argument types to "
                f"the normalize_arguments() call. Available schemas:\n{shown}"
            )
        fitting = [signature for signature in fitting if _types_fit(signature, arg_types or (), kwarg_types or {})]
    return _written_out(fitting[0], args, kwargs, normalize_to_only_use_kwargs) if fitting else None


def _types_fit(signature: inspect.Signature, arg_types: tuple[Any, ...], kwarg_types: dict[str, Any]) -> bool:
    if not _takes(signature, arg_types, kwarg_types):
        return False
    bound = signature.bind(*arg_types, **kwarg_types).arguments
    return all(type_matches(signature.parameters[name].annotation, given) for name, given in bound.items())


def _python_signature(target: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(inspect.unwrap(target))
    except (TypeError, ValueError):
        return None


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call of a submodule with every default filled in; None for modules that are not of `torch.nn`."""
    try:
        module = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from error
    if getattr(rushlight.nn, type(module).__name__, None) is not type(module):
        return None
    return _written_out(
        inspect.signature(inspect.unwrap(module.forward)), args, kwargs or {}, normalize_to_only_use_kwargs
    )


def _written_out(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], only_kwargs: bool
) -> ArgsKwargsPair | None:
    """Keep positional arguments positional, unless `only_kwargs`; pass all others by name.  None where a parameter has no
    name.
    """
    if any(p.kind not in _BY_NAME for p in signature.parameters.values()) or not _takes(signature, args, kwargs):
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    by_name = {name: bound.arguments[name] for name in signature.parameters}
    if only_kwargs:
        return ArgsKwargsPair((), by_name)
    return ArgsKwargsPair(args, dict(list(by_name.items())[len(args) :]))
