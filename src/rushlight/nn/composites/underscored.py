"""Functions that PyTorch's native library has under names with an underscore, and that packages call: each is public functions in another form.

`torch._cast_Float(x)` and its kin, `torch._softmax` and its gradient, rows of sparse matrices compressed and back, products of scaled and of grouped
matrices.
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import functional as F

__all__ = [
    "_cast_Byte", "_cast_Char", "_cast_Double", "_cast_Float", "_cast_Half", "_cast_Int", "_cast_Long", "_cast_Short",
    "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_grouped_mm", "_log_softmax", "_log_softmax_backward_data", "_scaled_mm",
    "_segment_reduce", "_softmax", "_softmax_backward_data",
]  # fmt: skip


def _cast(name: str, dtype: Any) -> Any:
    def cast(input: Tensor, non_blocking: bool = False) -> Tensor:
        return input.to(dtype)

    cast.__name__ = cast.__qualname__ = f"_cast_{name}"
    cast.__doc__ = f"The tensor as {dtype}; itself where it has that dtype."
    return cast


_cast_Byte, _cast_Char = _cast("Byte", rushlight.uint8), _cast("Char", rushlight.int8)
_cast_Double, _cast_Float = _cast("Double", rushlight.float64), _cast("Float", rushlight.float32)
_cast_Half, _cast_Int = _cast("Half", rushlight.float16), _cast("Int", rushlight.int32)
_cast_Long, _cast_Short = _cast("Long", rushlight.int64), _cast("Short", rushlight.int16)


# ***** softmax *****


def _refuse_half_to_float(name: str, half_to_float: bool) -> None:
    if half_to_float:
        raise RuntimeError(f"{name} with half to float conversion is not supported on CPU")


def _softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """`torch.softmax(input, dim)`; RuntimeError for `half_to_float`, which is a form of other devices."""
    _refuse_half_to_float("softmax", half_to_float)
    return rushlight.softmax(input, dim)


def _log_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """`torch.log_softmax(input, dim)`; RuntimeError for `half_to_float`, which is a form of other devices."""
    _refuse_half_to_float("log_softmax", half_to_float)
    return rushlight.log_softmax(input, dim)


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of softmax from its result: (g - sum(g * y)) * y.

    >>> y = rushlight.tensor([0.25, 0.75])
    >>> rushlight._softmax_backward_data(rushlight.tensor([1.0, 0.0]), y, 0, rushlight.float32)
    tensor([ 0.1875, -0.1875])
    """
    weighted = grad_output * output
    return (weighted - output * weighted.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of log_softmax from its result: g - exp(y) * sum(g)."""
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


# ***** rows of sparse matrices *****


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` rows begins, and the last ends, in the sorted row numbers `input`: `size` + 1 numbers.

    >>> rushlight._convert_indices_from_coo_to_csr(rushlight.tensor([0, 0, 2]), 3)
    tensor([0, 2, 2, 3])
    """
    if input.dim() > 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {input.dim()} dimensional tensor.")
    return rushlight.searchsorted(input, rushlight.arange(size + 1, dtype=input.dtype), out_int32=out_int32)


def _convert_indices_from_csr_to_coo(crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False) -> Tensor:
    """Rows and columns of the elements of a compressed matrix, (2, nnz); with `transpose` columns first."""
    dtype = rushlight.int32 if out_int32 else rushlight.int64
    rows = rushlight.repeat_interleave(rushlight.arange(crow_indices.numel() - 1), crow_indices.diff()).to(dtype)
    pair = (col_indices.to(dtype), rows) if transpose else (rows, col_indices.to(dtype))
    return rushlight.stack(pair)


def _segment_reduce(
    data: Tensor, reduce: str, *, lengths: Any = None, indices: Any = None, offsets: Any = None, axis: int = 0, unsafe: bool = False,
    initial: Any = None,
) -> Tensor:  # fmt: skip
    """See `torch.segment_reduce`."""
    return rushlight.segment_reduce(
        data, reduce, lengths=lengths, indices=indices, offsets=offsets, axis=axis, unsafe=unsafe, initial=initial
    )


# ***** products *****


def _grouped_mm(input: Tensor, mat2: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """See `nn.functional.grouped_mm`."""
    return F.grouped_mm(input, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


def _scaled_mm(
    input: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """See `nn.functional.scaled_mm`: the scales are one number each, or one for each row of `input` and column of `mat2`."""
    if scale_result is not None:
        raise NotImplementedError("_scaled_mm: scale_result is of use for results of eight bits only, which CPUs do not have here")
    kinds = [F.ScalingType.TensorWise if scale.numel() == 1 else F.ScalingType.RowWise for scale in (scale_a, scale_b)]
    return F.scaled_mm(
        input, mat2, scale_a, kinds[0], scale_b, kinds[1], bias=bias, output_dtype=out_dtype, use_fast_accum=use_fast_accum
    )
