"""Weights of quantized layers in archives: objects of classes that no code of the archive defines.

Each is written as the tuple that PyTorch's class gives; convolutions have had three forms, all of which are read.
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.jit.ir import types as T
from rushlight.jit.ir.types import Type

__all__ = ["packed_object", "packed_state", "packed_type"]

recurrent, packed = (
    LazyModule("rushlight.ao.nn.quantized.dynamic.recurrent"),
    LazyModule("rushlight.ao.operators.packed"),
)

_QUANTIZED = "__torch__.torch.classes.quantized."
_CELL = "__torch__.torch.classes.rnn.CellParamsBase"
_CONV_VERSION = "2"  # which PyTorch reads and writes


def packed_object(name: str, state: Any) -> Any:
    """The weights of a class, of their state; RuntimeError for a state that is none."""
    short = name.rpartition(".")[2].removesuffix("PackedParamsBase")
    try:
        if name == _CELL:
            return _cell(*state)
        if short == "Linear":
            return _linear(*state)
        if short == "Embedding":
            _, tensors, _, _ = state
            return rushlight.ops.quantized.embedding_bag_prepack(tensors[0])
        return _conv(state, 3 if short == "Conv3d" else 2)
    except (TypeError, ValueError, IndexError, AttributeError, AssertionError) as error:
        raise RuntimeError(f"the archive holds damaged weights of a quantized layer ({error})") from None


def _linear(weight: Any, bias: Any) -> Any:
    ops = rushlight.ops.quantized
    if not isinstance(weight, rushlight.Tensor) or weight.dim() != 2:
        raise ValueError("a weight has two dims")
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:1]):
        raise ValueError("a bias has a number for each row of the weight")
    return (ops.linear_prepack if weight.is_quantized else ops.linear_prepack_fp16)(weight, bias)


def _cell(kind: str, biases: Any, doubles: Any, longs: Any, pair: Any) -> Any:
    if kind not in ("quantized_dynamic", "quantized_fp16"):
        raise RuntimeError(f"rushlight reads no recurrent cells of the kind {kind!r}")
    ih, hh = pair
    return recurrent.CellParameters(ih, hh, reduce_range=bool(longs[0]) if longs else False)


def _conv(state: Any, dims: int) -> Any:
    if isinstance(state[0], rushlight.Tensor):  # the first form
        weight, bias, stride, padding, dilation, groups = state
        stride, padding, dilation = ([int(each) for each in listed] for listed in (stride, padding, dilation))
        return _made_conv(weight, bias, (stride, padding, dilation, [0] * dims), int(groups), False)
    version, first, second = state
    if str(version) == "2":
        numbers, weight, bias = first[0].tolist(), first[1], second[0]
    elif version == 3:
        numbers, (_, weight, bias) = list(first), second
    else:
        raise ValueError(f"a convolution of the form {version!r}")
    if len(numbers) != 3 + 4 * dims or numbers[0] != dims or any(type(n) is not int for n in numbers):
        raise ValueError("the numbers of a convolution do not fit its class")
    geometry = tuple(numbers[1 + k * dims : 1 + (k + 1) * dims] for k in range(4))
    return _made_conv(weight, bias, geometry, numbers[-2], bool(numbers[-1]))


def _made_conv(weight: Any, bias: Any, geometry: tuple[Any, ...], groups: int, transposed: bool) -> Any:
    stride, padding, dilation, outer = geometry
    dims = len(stride)
    if not len(padding) == len(dilation) == len(outer) == dims == weight.dim() - 2:
        raise ValueError("the numbers of a convolution do not fit its weight")
    if min((*stride, *dilation, groups)) < 1 or min((*padding, *outer)) < 0 or weight.shape[0] % groups:
        raise ValueError("a number of a convolution is out of range")
    if bias is not None and bias.shape[0] != weight.shape[1 if transposed else 0] * (groups if transposed else 1):
        raise ValueError("a bias has a number for each channel")
    return packed.ConvPackedParams(weight, bias, stride, padding, dilation, groups, outer, transposed)


def packed_type(value: Any) -> Type | None:
    """The type of packed weights; None for anything else."""
    if isinstance(value, (int, float, str, tuple, list, dict, rushlight.Tensor)) or value is None:
        return None
    found = packed_state(value)
    return None if found is None else T.PACKED[found[0]]


def packed_state(value: Any) -> tuple[str, Any, Type] | None:
    """(name of its class, state, type of the state) of packed weights; None for anything else."""
    optional = T.optional(T.TENSOR)
    if isinstance(value, (packed.LinearPackedParams, packed.LinearHalfPackedParams)):
        return f"{_QUANTIZED}LinearPackedParamsBase", value.unpack(), T.tuple_of(T.TENSOR, optional)
    if isinstance(value, packed.ConvPackedParams):
        return _conv_state(value)
    listed = T.list_of(T.TENSOR), T.list_of(T.FLOAT), T.list_of(T.INT)
    if isinstance(value, packed.EmbeddingPackedParams):
        bits = 4 if value.weight.dtype is rushlight.quint4x2 else 8
        state: Any = (1, [value.unpack()], [], [bits])
        return f"{_QUANTIZED}EmbeddingPackedParamsBase", state, T.tuple_of(T.INT, *listed)
    if isinstance(value, recurrent.CellParameters):
        half = isinstance(value.ih, packed.LinearHalfPackedParams)
        biases = [part.unpack()[1] for part in (value.ih, value.hh)]
        state = (
            "quantized_fp16" if half else "quantized_dynamic",
            [rushlight.zeros(0) if b is None else b for b in biases],
            [],
            [] if half else [int(value.reduce_range)],
            [value.ih, value.hh],
        )
        cells = T.list_of(T.PACKED[f"{_QUANTIZED}LinearPackedParamsBase"])
        return _CELL, state, T.tuple_of(T.STR, *listed, cells)
    return None


def _conv_state(value: Any) -> tuple[str, Any, Type]:
    weight, bias = value.unpack()
    dims = weight.dim() - 2
    numbers = [list(each) for each in (value.stride, value.padding, value.dilation, value.outer)]
    if dims == 1:  # the class of two dims serves one
        weight, dims = weight.unsqueeze(2), 2
        numbers = [[first, *each] for first, each in zip((1, 0, 1, 0), numbers, strict=True)]
    config = [dims, *(n for each in numbers for n in each), value.groups, int(value.transposed)]
    state = _CONV_VERSION, [rushlight.tensor(config, dtype=rushlight.int16), weight], [bias]
    kind = T.tuple_of(T.STR, T.list_of(T.TENSOR), T.list_of(T.optional(T.TENSOR)))
    return f"{_QUANTIZED}Conv{dims}dPackedParamsBase", state, kind
