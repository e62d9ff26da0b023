"""Functions of the package, apart from `nn.functional`, that are more than a call of an operator, in the typed subset: read
by the compiler, never run as they stand.
"""

# mypy: ignore-errors
# The compiler of scripts checks these pages: their types are those of scripts.

from __future__ import annotations

from functools import partial

import rushlight as torch
from rushlight import Tensor
from rushlight.jit.frontend.library import flagged_form, function_form

tensor_form = partial(function_form, page="torch")

# ***** products and distances *****


@tensor_form("tensordot")
def tensordot_by_number(a: Tensor, b: Tensor, dims: int = 2, out: Tensor | None = None) -> Tensor:
    if dims < 0:
        raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
    if dims > min(a.dim(), b.dim()):
        raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return contracted(a, b, [i - dims for i in range(dims)], list(range(dims)), out)


@tensor_form("tensordot")
def tensordot_by_pair(a: Tensor, b: Tensor, dims: tuple[list[int], list[int]], out: Tensor | None = None) -> Tensor:
    return contracted(a, b, dims[0], dims[1], out)


@tensor_form("tensordot")
def tensordot_by_lists(a: Tensor, b: Tensor, dims: list[list[int]], out: Tensor | None = None) -> Tensor:
    return contracted(a, b, dims[0], dims[1], out)


@tensor_form("tensordot")
def tensordot_by_tensor(a: Tensor, b: Tensor, dims: Tensor, out: Tensor | None = None) -> Tensor:
    if dims.numel() > 1:
        pair: list[list[int]] = dims.tolist()
        return contracted(a, b, pair[0], pair[1], out)
    return tensordot_by_number(a, b, int(dims.item()), out)


def contracted(a: Tensor, b: Tensor, dims_a: list[int], dims_b: list[int], out: Tensor | None) -> Tensor:
    if out is None:
        return torch.ops.aten.tensordot(a, b, dims_a, dims_b)
    return torch.ops.aten.tensordot(a, b, dims_a, dims_b, out=out)


@tensor_form("cdist")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    if compute_mode == "use_mm_for_euclid_dist_if_necessary":
        return torch.ops.aten.cdist(x1, x2, p, None)
    if compute_mode == "use_mm_for_euclid_dist":
        return torch.ops.aten.cdist(x1, x2, p, 1)
    if compute_mode == "donot_use_mm_for_euclid_dist":
        return torch.ops.aten.cdist(x1, x2, p, 2)
    raise ValueError(f"{compute_mode} is not a valid value for compute_mode")


# ***** norms *****


def vector_norm_into(
    input: Tensor, order: float, dims: list[int] | None, keepdim: bool, out: Tensor | None, dtype: int | None
) -> Tensor:
    if out is None:
        return torch.ops.aten.linalg_vector_norm(input, order, dims, keepdim, dtype=dtype)
    return torch.ops.aten.linalg_vector_norm(input, order, dims, keepdim, dtype=dtype, out=out)


@tensor_form("norm", {"dim": ("int | None", "list[int] | None")})
def norm_by_name(
    input: Tensor, p: str = "fro", dim: list[int] | None = None, keepdim: bool = False, out: Tensor | None = None,
    dtype: int | None = None,
) -> Tensor:  # fmt: skip
    dims: list[int] | None = None
    if dim is not None:
        dims = dim if isinstance(dim, list) else [dim]
    if p == "fro":
        return vector_norm_into(input, 2.0, dims, keepdim, out, dtype)
    if p != "nuc":
        raise RuntimeError(f"only valid string values are 'fro' and 'nuc', found {p}")
    pair = [0, 1]
    if dims is None:
        assert input.dim() == 2, f"norm(): p='nuc' needs a matrix or two dims, got a tensor of {input.dim()} dims"
    else:
        pair = dims
    if out is None:
        return torch.ops.aten.linalg_matrix_norm(input, "nuc", pair, keepdim, dtype=dtype)
    return torch.ops.aten.linalg_matrix_norm(input, "nuc", pair, keepdim, dtype=dtype, out=out)


@tensor_form("norm", {"dim": ("int | None", "list[int] | None")})
def norm_by_order(
    input: Tensor, p: float | None, dim: list[int] | None = None, keepdim: bool = False, out: Tensor | None = None,
    dtype: int | None = None,
) -> Tensor:  # fmt: skip
    order = 2.0 if p is None else p
    dims: list[int] | None = None
    if dim is not None:
        dims = dim if isinstance(dim, list) else [dim]
    return vector_norm_into(input, order, dims, keepdim, out, dtype)


@tensor_form("norm", {"dim": ("int | None", "list[int] | None")})
def norm_by_number(
    input: Tensor, p: int, dim: list[int] | None = None, keepdim: bool = False, out: Tensor | None = None,
    dtype: int | None = None,
) -> Tensor:  # fmt: skip
    dims: list[int] | None = None
    if dim is not None:
        dims = dim if isinstance(dim, list) else [dim]
    return norm_by_order(input, float(p), dims, keepdim, out, dtype)


# ***** values that occur *****


def unique_all(input: Tensor, sorted: bool = True, dim: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    if dim is None:
        return torch.ops.aten._unique2(input, sorted, True, True)
    return torch.ops.aten.unique_dim(input, dim, sorted, True, True)


def unique_inverse(input: Tensor, sorted: bool = True, dim: int | None = None) -> tuple[Tensor, Tensor]:
    values, inverse, _ = unique_all(input, sorted, dim)
    return values, inverse


def unique_counts(input: Tensor, sorted: bool = True, dim: int | None = None) -> tuple[Tensor, Tensor]:
    values, _, counts = unique_all(input, sorted, dim)
    return values, counts


def unique_values(input: Tensor, sorted: bool = True, dim: int | None = None) -> Tensor:
    return unique_all(input, sorted, dim)[0]


@flagged_form("unique", "torch", return_inverse=2, return_counts=3)
def unique(inverse, counts):
    if inverse and counts:
        return unique_all
    if inverse:
        return unique_inverse
    return unique_counts if counts else unique_values


def runs_all(input: Tensor, dim: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.unique_consecutive(input, True, True, dim)


def runs_inverse(input: Tensor, dim: int | None = None) -> tuple[Tensor, Tensor]:
    values, inverse, _ = torch.ops.aten.unique_consecutive(input, True, False, dim)
    return values, inverse


def runs_counts(input: Tensor, dim: int | None = None) -> tuple[Tensor, Tensor]:
    values, _, counts = torch.ops.aten.unique_consecutive(input, False, True, dim)
    return values, counts


def runs_values(input: Tensor, dim: int | None = None) -> Tensor:
    return torch.ops.aten.unique_consecutive(input, False, False, dim)[0]


@flagged_form("unique_consecutive", "torch", return_inverse=1, return_counts=2)
def unique_consecutive(inverse, counts):
    if inverse and counts:
        return runs_all
    if inverse:
        return runs_inverse
    return runs_counts if counts else runs_values


# ***** decompositions and transforms *****


def lu_with_infos(A: Tensor, pivot: bool = True, out: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    if out is not None:
        raise NotImplementedError("lu with out is not compiled: leave it out")
    return torch.ops.aten._lu_with_info(A, pivot, False)


def lu_without_infos(A: Tensor, pivot: bool = True, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    if out is not None:
        raise NotImplementedError("lu with out is not compiled: leave it out")
    factors, pivots, _ = torch.ops.aten._lu_with_info(A, pivot, True)
    return factors, pivots


@flagged_form("lu", "torch", get_infos=2)
def lu(infos):
    return lu_with_infos if infos else lu_without_infos


@tensor_form("stft")
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    if center:
        if align_to_window is not None:
            raise RuntimeError("stft align_to_window should only be set when center = false")
        dims, side = input.dim(), n_fft // 2
        wide = input.view([1] * (3 - dims) + input.size())
        padded = torch.ops.aten.pad(wide, [side, side], pad_mode)
        input = padded.view(padded.size()[-dims:])
    return torch.ops.aten.stft(
        input, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, align_to_window
    )


@tensor_form("_assert")
def _assert(condition: bool, message: str) -> None:
    assert condition, message
