"""Products of groups of matrices, and of matrices of eight-bit floats with scales: `grouped_mm`, `scaled_mm`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.devices import backend_of
from rushlight._interface.operators import function_of

__all__ = [
    "ScalingType",
    "SwizzleType",
    "_grouped_mm",
    "_scaled_grouped_mm",
    "_scaled_mm",
    "grouped_mm",
    "scaled_grouped_mm",
    "scaled_mm",
]

_ALIGNMENT = 16  # bytes: kernels for groups read and write rows at multiples of it


class ScalingType(enum.Enum):
    """How the scales of a matrix are laid out."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5

    def __int__(self) -> int:
        return int(self.value)


class SwizzleType(enum.Enum):
    """The order of scales in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1

    def __int__(self) -> int:
        return int(self.value)


# ***** groups *****


def grouped_mm(mat_a: Any, mat_b: Any, *, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Products of several pairs of matrices, as the experts of a mixture need them.

    A matrix of two dims holds the groups side by side: `offs` (int32) are the ends of the groups, along the rows of
    `mat_a` or the columns of `mat_b`, or along both contracted dims where both have two.  (M, K) x (G, K, N) gives (M,
    N), (G, M, K) x (K, N) gives (M, N), (M, K) x (K, N) and (G, M, K) x (G, K, N) give (G, M, N).  Rows or columns
    behind the last end are zero.  On a GPU one kernel reads the ends, and nothing waits for the device.

    RuntimeError for dtypes other than float32, bfloat16 and float16, and for rows that do not start at multiples of 16
    bytes.

    >>> a, b = rushlight.ones(3, 4), rushlight.ones(2, 4, 4)
    >>> rushlight.nn.functional.grouped_mm(a, b, offs=rushlight.tensor([1, 3], dtype=rushlight.int32)).shape
    torch.Size([3, 4])
    """
    _check_groups(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return _aligned(mat_a @ mat_b)
    if not backend_of(offs.device).host_readable:
        return _aligned(function_of("grouped_product")(mat_a, mat_b, offs))
    product = lambda group, a, b: a @ b
    return _aligned(_by_groups(mat_a, mat_b, offs, product))


def _by_groups(a: Any, b: Any, offs: Any, product: Callable[[int, Any, Any], Any]) -> Any:
    """`product(group, part of a, part of b)` of every group, put together; the ends of groups are read on the host."""
    ends = offs.tolist()
    pairs = list(zip([0, *ends[:-1]], ends, strict=True))
    if a.dim() == 2 and b.dim() == 2:
        return rushlight.stack([product(g, a[:, low:high], b[low:high]) for g, (low, high) in enumerate(pairs)])
    if a.dim() == 2:
        parts = [product(g, a[low:high], b[g]) for g, (low, high) in enumerate(pairs)]
        return _filled(parts, a.shape[0], 0)
    return _filled([product(g, a[g], b[:, low:high]) for g, (low, high) in enumerate(pairs)], b.shape[1], 1)


def _check_groups(mat_a: Any, mat_b: Any, offs: Any, bias: Any, out_dtype: Any) -> None:
    for name, matrix in (("mat_a", mat_a), ("mat_b", mat_b)):
        if matrix.dim() not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
        if matrix.dtype not in (rushlight.float32, rushlight.bfloat16, rushlight.float16):
            raise RuntimeError(f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {matrix.dtype}")
        _check_alignment(name, matrix)
    if mat_a.dtype is not mat_b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {mat_a.dtype} != {mat_b.dtype}")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    flat = 2 in (mat_a.dim(), mat_b.dim())
    if flat is (offs is None):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if not flat and mat_a.shape[0] != mat_b.shape[0]:
        raise RuntimeError("batched dimension has to match")
    if offs is not None:
        if offs.dim() != 1:
            raise RuntimeError("offs has to be 1D")
        if offs.dtype is not rushlight.int32:
            raise RuntimeError("Offsets have to be int32")
        if any(m.dim() == 3 and m.shape[0] != offs.shape[0] for m in (mat_a, mat_b)):
            raise RuntimeError("matrix batch sizes have to match")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype not in (None, mat_a.dtype):
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")


def _check_alignment(name: str, matrix: Any) -> None:
    per_row = _ALIGNMENT // matrix.element_size()
    row, column = matrix.stride()[-2:]
    if 1 not in (row, column):
        raise RuntimeError(
            f"grouped_mm(): {name} must be dense along its rows or its columns, got strides {list(matrix.stride())}"
        )
    if (row if column == 1 else column) % per_row:
        raise RuntimeError(
            f"grouped_mm(): strides of {name} should be multiple of {_ALIGNMENT} bytes, got strides {list(matrix.stride())}"
        )


def _filled(parts: Sequence[Any], size: int, dim: int) -> Any:
    """Parts one after another along a dim, and zeros up to a size."""
    whole = rushlight.cat(list(parts), dim)
    rest = size - whole.shape[dim]
    if rest <= 0:
        return whole.narrow(dim, 0, size)
    shape = [rest if d == dim else n for d, n in enumerate(whole.shape)]
    return rushlight.cat([whole, whole.new_zeros(shape)], dim)


def _aligned(found: Any) -> Any:
    """The same with rows that begin at multiples of 16 bytes."""
    step = _ALIGNMENT // found.element_size()
    width = -(-found.shape[-1] // step) * step
    if width == found.shape[-1]:
        return found
    return rushlight.nn.functional.pad(found, (0, width - found.shape[-1]))[..., : found.shape[-1]]


# ***** scales *****


def _only(value: Any, name: str) -> Any:
    """The one item of what may be a list."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(items) != 1:
        raise NotImplementedError(f"scaled_mm(): several values of {name} (two levels of scales)")
    return items[0]


def scaled_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    output_dtype: Any = rushlight.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Any:
    """(scale_a * mat_a) @ (scale_b * mat_b) + bias for matrices of eight-bit floats, computed in float32 and rounded
    once.

    Scales are one number each (`ScalingType.TensorWise`) or one for each row of `mat_a` (M, 1) and column of `mat_b`
    (1, N) (`RowWise`); ValueError for other scalings, which PyTorch's CPU does not have either, for sizes that do not
    fit, and on GPUs for two matrices of float8_e5m2, and for a bias of another 16-bit dtype than the result or with a
    float32 one.  `output_dtype` None means the dtype of `mat_a`.
    """
    dims = tuple(contraction_dim) or (-1, -2)
    if mat_a.dim() != 2 or mat_b.dim() != 2:
        raise ValueError(f"{'mat_a' if mat_a.dim() != 2 else 'mat_b'} must be a matrix")
    if mat_a.shape[dims[0]] != mat_b.shape[dims[1]]:
        raise ValueError(
            f"mat_a and mat_b shapes cannot be multiplied ({mat_a.shape[0]}x{mat_a.shape[1]} and {mat_b.shape[0]}x{mat_b.shape[1]}) "
            f"with contraction dims mat_a: {dims[0]}, mat_b: {dims[1]}"
        )
    left = mat_a if dims[0] in (-1, 1) else mat_a.t()
    right = mat_b if dims[1] in (-2, 0) else mat_b.t()
    first, second = _only(scale_a, "scale_a"), _only(scale_b, "scale_b")
    recipes = {_only(scale_recipe_a, "scale_recipe_a"), _only(scale_recipe_b, "scale_recipe_b")}
    if not _scales_fit(left, right, first, second, recipes):
        raise ValueError(
            "Invalid scaling configuration: mat_a and mat_b should be float8, scales float32; for TensorWise scaling singletons, for RowWise "
            f"scaling contiguous and of shapes ({left.shape[0]}, 1) and (1, {right.shape[1]}). Got {mat_a.dtype} and {mat_b.dtype}, scales "
            f"{first.dtype} {tuple(first.shape)} and {second.dtype} {tuple(second.shape)}, {', '.join(map(str, recipes))}."
        )
    if bias is not None and bias.numel() != right.shape[1]:
        raise ValueError(f"Bias must be size {right.shape[1]} but got {bias.numel()}")
    dtype = mat_a.dtype if output_dtype is None else output_dtype
    if left.is_cuda:
        _check_for_gpu(left, right, bias, dtype)
    return function_of("scaled_product")(left, right, first, second, bias, dtype)


def _check_for_gpu(left: Any, right: Any, bias: Any, dtype: Any) -> None:
    """The types that cuBLASLt multiplies, which programs for GPUs keep to; ValueError for others."""
    if left.dtype is right.dtype is rushlight.float8_e5m2:
        raise ValueError("Multiplication of two Float8_e5m2 matrices is not supported")
    if bias is None:
        return
    if dtype is rushlight.float32:
        raise ValueError("Bias is not supported when out_dtype is set to Float32")
    if bias.dtype not in (rushlight.bfloat16, rushlight.float16):
        raise ValueError(f"Bias must be either Half or BFloat16, but got {bias.dtype}")
    if dtype in (rushlight.bfloat16, rushlight.float16) and bias.dtype is not dtype:
        raise ValueError(f"Bias must be {dtype} to compute {dtype} output, but got {bias.dtype}")


def _scales_fit(left: Any, right: Any, first: Any, second: Any, recipes: set[Any]) -> bool:
    eight = all(str(m.dtype).startswith("torch.float8") for m in (left, right))
    if not eight or first.dtype is not rushlight.float32 or second.dtype is not rushlight.float32:
        return False
    if recipes == {ScalingType.TensorWise}:
        return bool(first.numel() == second.numel() == 1)
    shapes = tuple(first.shape) == (left.shape[0], 1) and tuple(second.shape) == (1, right.shape[1])
    return recipes == {ScalingType.RowWise} and shapes and first.is_contiguous() and second.is_contiguous()


def scaled_grouped_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    offs: Any = None,
    output_dtype: Any = rushlight.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Any:
    """`grouped_mm` of matrices of eight-bit floats with a scale for each row of `mat_a` and column of `mat_b` (RowWise).

    On every device, where PyTorch has it on GPUs alone.  NotImplementedError for other scalings.
    """
    recipes = {_only(scale_recipe_a, "scale_recipe_a"), _only(scale_recipe_b, "scale_recipe_b")}
    if recipes != {ScalingType.RowWise}:
        raise NotImplementedError(f"scaled_grouped_mm(): scalings {', '.join(map(str, recipes))}; RowWise can be")
    scales = _only(scale_a, "scale_a"), _only(scale_b, "scale_b")
    return _scaled_groups(mat_a, mat_b, scales, offs, bias, output_dtype)


def _scaled_groups(a: Any, b: Any, scales: tuple[Any, Any], offs: Any, bias: Any, dtype: Any) -> Any:
    """Scales are [M] and [N], [G, M] and [G, N] for matrices of three dims, and both where groups cut the inner dim."""
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    dtype = rushlight.bfloat16 if dtype is None else dtype
    eight = all(str(m.dtype).startswith("torch.float8") for m in (a, b))
    if not eight or any(s.dtype is not rushlight.float32 for s in scales):
        raise RuntimeError("scaled groups are matrices of eight-bit floats, with scales of float32")
    if (offs is None) is (2 in (a.dim(), b.dim())):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    count = a.shape[0] if offs is None else offs.shape[0]
    both = a.dim() == b.dim() == 2
    needed = []
    for name, matrix, scale, dim in (("scale_a", a, scales[0], -2), ("scale_b", b, scales[1], -1)):
        size = matrix.shape[dim]
        shape = (count * size,) if both else (size,) if matrix.dim() == 2 else (count, size)
        if tuple(scale.shape) != shape:
            raise RuntimeError(f"{name} must have the shape {shape}, got {tuple(scale.shape)}")
        needed.append(scale.reshape(count, size) if both or matrix.dim() == 3 else scale)
    if offs is not None and not backend_of(offs.device).host_readable:
        return _aligned(function_of("scaled_grouped_product")(a, b, offs, *needed, dtype))
    starts = [0, *offs.tolist()[:-1]] if offs is not None else []

    def product(group: int, x: Any, y: Any) -> Any:
        rows, columns = (s[group] if s.dim() == 2 else s for s in needed)
        rows = rows if rows.shape[0] == x.shape[0] else rows[starts[group] : starts[group] + x.shape[0]]
        columns = columns if columns.shape[0] == y.shape[1] else columns[starts[group] : starts[group] + y.shape[1]]
        return function_of("scaled_product")(x, y, rows, columns, None, dtype)

    if offs is None:
        return rushlight.stack([product(g, a[g], b[g]) for g in range(count)])
    return _aligned(_by_groups(a, b, offs, product))


# ***** the native forms, which packages call *****


def _grouped_mm(input: Tensor, mat2: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """See `nn.functional.grouped_mm`."""
    return grouped_mm(input, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


def _scaled_grouped_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """See `nn.functional.scaled_grouped_mm`."""
    if scale_result is not None:
        raise NotImplementedError("_scaled_grouped_mm: scale_result is of use for results of eight bits only")
    return _scaled_groups(input, mat2, (scale_a, scale_b), offs, bias, out_dtype)


def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """See `nn.functional.scaled_mm`: the scales are one number each, or one for each row of `input` and column of
    `mat2`.
    """
    if scale_result is not None:
        raise NotImplementedError(
            "_scaled_mm: scale_result is of use for results of eight bits only, which CPUs do not have here"
        )
    kinds = [ScalingType.TensorWise if scale.numel() == 1 else ScalingType.RowWise for scale in (scale_a, scale_b)]
    return scaled_mm(
        input,
        mat2,
        scale_a,
        kinds[0],
        scale_b,
        kinds[1],
        bias=bias,
        output_dtype=out_dtype,
        use_fast_accum=use_fast_accum,
    )
