"""`torch.onnx.symbolic_helper`: what symbolic functions (`register_custom_op_symbolic`) read their arguments with.

Arguments that are constants come as Python values; tensors as values of the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight.onnx.errors import SymbolicValueError, UnsupportedOperatorError

__all__ = ["parse_args"]

_LISTS = {"is": int, "fs": float}


def _read(value: Any, kind: str, place: int, name: str) -> Any:
    if kind in ("v", "none") or value is None:
        return value
    if _is_value(value):
        const = value.const
        if const is None:
            raise SymbolicValueError(
                f"Failed to export: argument {place} of {name} is expected to be a constant", value
            )
        value = const.tolist() if const.ndim else const.item()
    try:
        if kind in _LISTS:
            return [_LISTS[kind](v) for v in value]
        convert: Any = {"i": int, "b": bool, "f": float, "s": str}.get(kind)
        return value if convert is None else convert(value)
    except (TypeError, ValueError) as error:
        raise SymbolicValueError(f"Failed to export: argument {place} of {name} is no {kind!r}: {value!r}") from error


def parse_args(*arg_descriptors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a symbolic function: says what each argument is after `g`.

    "v" a value as it is, "i" an int, "f" a float, "b" a bool, "s" a text, "is" and "fs" lists, "t" a tensor, "none" unused.
    SymbolicValueError where a value is no constant of that kind.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def parsed(g: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > len(arg_descriptors):
                raise TypeError(
                    f"{function.__name__} takes {len(arg_descriptors)} arguments, and {len(args)} were given"
                )
            given = [
                _read(a, d, i, function.__name__) for i, (a, d) in enumerate(zip(args, arg_descriptors, strict=False))
            ]
            return function(g, *given, **kwargs)

        return parsed

    return decorate


# ***** what a value is *****


def _is_value(x: Any) -> bool:
    return type(x).__name__ == "Value" and hasattr(x, "producer")


def _is_none(x: Any) -> bool:
    return x is None


def _is_constant(x: Any) -> bool:
    return not _is_value(x) or x.const is not None


def _is_tensor(x: Any) -> bool:
    return _is_value(x)


def _get_const(value: Any, desc: str, arg_name: str) -> Any:
    if not _is_constant(value):
        raise SymbolicValueError(
            f"ONNX symbolic expected a constant value of the '{arg_name}' argument, got '{value}'", value
        )
    return _read(value, desc, 0, arg_name)


def _maybe_get_const(value: Any, desc: str) -> Any:
    return _read(value, desc, 0, "argument") if _is_constant(value) else value


def _maybe_get_scalar(value: Any) -> Any:
    return value.const.item() if _is_value(value) and value.const is not None and value.const.size == 1 else value


def _unpack_list(list_value: Sequence[Any]) -> list[Any]:
    return list(list_value)


def _get_tensor_rank(x: Any) -> int | None:
    return None if x.shape is None else len(x.shape)


def _get_tensor_sizes(x: Any, allow_nonstatic: bool = True) -> list[int | None] | None:
    if x.shape is None:
        return None
    sizes = [s if isinstance(s, int) else None for s in x.shape]
    return sizes if allow_nonstatic or None not in sizes else None


def _get_tensor_dim_size(x: Any, dim: int) -> int | None:
    sizes = _get_tensor_sizes(x)
    return None if sizes is None else sizes[dim]


# ***** calls that many write *****


def _unsqueeze_helper(g: Any, input: Any, axes_i: Sequence[int]) -> Any:
    return g.call.unsqueeze(input, list(axes_i))


def _squeeze_helper(g: Any, input: Any, axes_i: Sequence[int]) -> Any:
    return g.call.squeeze(input, list(axes_i))


def _select_helper(g: Any, self: Any, dim: int, index: Any, apply_reshape: bool = True) -> Any:
    return g.call.gather(self, g.call.scalar(index, rushlight.int64), dim)


def _slice_helper(
    g: Any,
    input: Any,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int] | None = None,
) -> Any:
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        input = g.call.slice(input, axis, start, end, step)
    return input


def _reshape_helper(g: Any, input: Any, shape: Any, allowzero: int = 0) -> Any:
    return g.call.reshape(input, shape, allowzero=allowzero)


def _reducesum_helper(
    g: Any, input: Any, axes_i: Sequence[int] | None = None, keepdims_i: int = 1, noop_with_empty_axes_i: int = 0
) -> Any:
    return g.call.reduce("ReduceSum", input, axes_i, bool(keepdims_i))


def _unimplemented(op: str, msg: str, value: Any = None) -> None:
    raise UnsupportedOperatorError(f"Unsupported: ONNX export of operator {op}, {msg}")


def _onnx_unsupported(op_name: str, value: Any = None) -> None:
    raise UnsupportedOperatorError(f"Unsupported: ONNX export of operator {op_name}")


def _onnx_opset_unsupported(op_name: str, current_opset: int, supported_opset: int, value: Any = None) -> None:
    raise UnsupportedOperatorError(
        f"Unsupported: ONNX export of {op_name} in opset {current_opset}. Please try opset version {supported_opset}."
    )
