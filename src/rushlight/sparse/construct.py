"""Making sparse tensors from their parts, and the checks of what the parts must satisfy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import SPARSE_LAYOUTS, Tensor
from rushlight._interface.operators import TypedTensor
from rushlight._interface.tensors import as_shape
from rushlight.sparse.parts import spots, with_values
from rushlight.sparse.tensors import WORDS, make_compressed, make_coo

__all__ = [
    "TypedSparseTensor", "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "check_sparse_tensor_invariants", "empty", "full", "older", "ones", "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor",
    "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor", "zeros",
]  # fmt: skip

_CHECKING = [False]


class check_sparse_tensor_invariants:
    """Whether constructors look at every index, which costs time and is off at first.

    A context manager, a decorator, or a switch (`enable`, `disable`).  `check_invariants=` of a constructor goes before
    it.

    >>> import rushlight as torch
    >>> with torch.sparse.check_sparse_tensor_invariants():
    ...     torch.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved_state: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Whether the checks are on."""
        return _CHECKING[0]

    @staticmethod
    def enable() -> None:
        """Check from now on."""
        _CHECKING[0] = True

    @staticmethod
    def disable() -> None:
        """Check no more."""
        _CHECKING[0] = False

    def __enter__(self) -> None:
        if self.saved_state is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Use a different context manager instance for context nesting."
            )
        self.saved_state = _CHECKING[0]
        _CHECKING[0] = self.state

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        assert self.saved_state is not None
        _CHECKING[0] = self.saved_state
        self.saved_state = None

    def __call__(self, mth: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(mth)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return mth(*args, **kwargs)

        return checked


# ***** coordinates *****


def _part(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A part as a tensor; one that is a tensor keeps the dtype and the device that are not given."""
    if isinstance(data, Tensor):
        return data.to(device=data.device if device is None else device, dtype=dtype or data.dtype)
    return rushlight.tensor(data, dtype=dtype, device=device)


# signature as PyTorch's
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Any:
    """A tensor with `values` (n, *dense) at the coordinates `indices` (sparse dims, n), zeros elsewhere.

    Coordinates may repeat: their values are added.  Without `size` every sparse dim is as large as its greatest index
    asks for.  A size alone gives a tensor of zeros.  Raises `RuntimeError` for parts that do not fit together.

    >>> import rushlight as torch
    >>> torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    tensor(indices=tensor([[0, 1],
                           [2, 0]]),
           values=tensor([3., 4.]),
           size=(2, 3), nnz=2, layout=torch.sparse_coo)
    """
    if values is None:
        return zeros(
            *[size if size is not None else indices],
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
            layout=SPARSE_LAYOUTS["sparse_coo"],
        )
    held = _part(values, dtype, device)
    where = _part(indices, rushlight.int64, held.device).detach()
    if held.dim() == 0:
        held = held.expand((1,))
    if where.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(where.shape)}")
    shape = _bounds(where, held) if size is None else as_shape((size,))
    _check_coo(where, held, shape)
    if _CHECKING[0] if check_invariants is None else check_invariants:
        _check_places(where, shape)
        if is_coalesced and rushlight.unique(where, dim=1).shape[1] != where.shape[1]:
            raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
    pattern = make_coo(where, held, shape, bool(is_coalesced))
    made = with_values(pattern, held, "SparseCooTensorWithDimsAndTensorsBackward0")
    return made.requires_grad_() if requires_grad and not made._rg else made


def _bounds(where: Tensor, held: Tensor) -> tuple[int, ...]:
    """The smallest size in which all coordinates lie."""
    rest = tuple(held.shape[1:])
    if not where.numel():
        return (*[0] * where.size(0), *rest)
    for dim, least in enumerate(where.amin(1).tolist()):
        if least < 0:
            raise RuntimeError(f"found negative index {least} for dim {dim}")
    return (*[m + 1 for m in where.amax(1).tolist()], *rest)


def _check_coo(where: Tensor, held: Tensor, shape: Sequence[int]) -> None:
    n, dense = where.size(0), held.dim() - 1
    if len(shape) != n + dense:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = {n}, dense_dim = {dense}"
        )
    if where.size(1) != held.size(0):
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {where.size(1)}, nnz from values: {held.size(0)}"
        )
    if tuple(held.shape[1:]) != tuple(shape[n:]):
        raise RuntimeError(f"values has incorrect size, expected {[held.size(0), *shape[n:]]}, got {list(held.shape)}")


def _check_places(where: Tensor, shape: Sequence[int]) -> None:
    if not where.numel():
        return
    for dim, (least, most) in enumerate(zip(where.amin(1).tolist(), where.amax(1).tolist(), strict=True)):
        if least < 0:
            raise RuntimeError(f"found negative index {least} for dim {dim}")
        if most >= shape[dim]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {shape[dim]} but found index {most}"
            )


# ***** compressed *****


# signature as PyTorch's
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Any:
    """A tensor in the compressed layout `layout`.

    `compressed_indices` (*batch, lines + 1) say where each row (CSR, BSR) or column (CSC, BSC) begins in
    `plain_indices` (*batch, n) and `values` (*batch, n, *block, *dense).  Raises `RuntimeError` for parts that do not
    fit together.

    >>> import rushlight as torch
    >>> torch.sparse_compressed_tensor([0, 1, 2], [2, 0], [3.0, 4.0], (2, 3), layout=torch.sparse_csr).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if layout is None or layout.name not in SPARSE_LAYOUTS or layout.name == "sparse_coo":
        word = "none" if layout is None else WORDS[layout.name]
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {word}")
    held = _part(values, dtype, device)
    pointers, others = _index_part(compressed_indices, device, held), _index_part(plain_indices, device, held)
    shape = _compressed_size(layout, pointers, others, held) if size is None else as_shape((size,))
    if _CHECKING[0] if check_invariants is None else check_invariants:
        check_compressed(layout, pointers, others, held, shape)
    made = with_values(make_compressed(layout, pointers, others, held, shape), held, "SparseCompressedTensorBackward0")
    return made.requires_grad_() if requires_grad and not made._rg else made


def _index_part(data: Any, device: Any, held: Tensor) -> Tensor:
    """Indices on the device that is asked for; those that are no tensor yet beside the values `held`."""
    return _part(data, None, device if isinstance(data, Tensor) else held.device).detach()


def _compressed_size(layout: Any, pointers: Tensor, others: Tensor, held: Tensor) -> tuple[int, ...]:
    n, blocked = pointers.dim() - 1, layout.name in ("sparse_bsr", "sparse_bsc")
    if held.dim() < n + 1 + 2 * blocked:
        raise RuntimeError(
            f"values must have dimensionality > sum of batch and block dimensionalities (={n} + {2 * blocked}), but got {held.dim()}"
        )
    block = tuple(held.shape[n + 1 : n + 3]) if blocked else (1, 1)
    lines, across = pointers.size(-1) - 1, int(others.max()) + 1 if others.numel() else 0
    rows, columns = (lines, across) if layout.name in ("sparse_csr", "sparse_bsr") else (across, lines)
    return (*pointers.shape[:-1], rows * block[0], columns * block[1], *held.shape[n + 1 + 2 * blocked :])


def _constructor(name: str, first: str, second: str) -> Callable[..., Any]:
    layout = SPARSE_LAYOUTS[name]

    def make(
        pointers: Any,
        others: Any,
        values: Any,
        size: Any = None,
        *,
        dtype: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
        check_invariants: bool | None = None,
    ) -> Any:
        return sparse_compressed_tensor(
            pointers,
            others,
            values,
            size,
            dtype=dtype,
            layout=layout,
            device=device,
            requires_grad=requires_grad,
            check_invariants=check_invariants,
        )

    def named(*args: Any, **kwargs: Any) -> Any:
        for theirs, ours in ((first, "pointers"), (second, "others")):
            if theirs in kwargs:
                kwargs[ours] = kwargs.pop(theirs)
        return make(*args, **kwargs)

    named.__name__ = named.__qualname__ = name + "_tensor"
    named.__doc__ = f"`sparse_compressed_tensor({first}, {second}, values, size=None)` with `layout=torch.{name}`."
    return named


sparse_csr_tensor = _constructor("sparse_csr", "crow_indices", "col_indices")
sparse_csc_tensor = _constructor("sparse_csc", "ccol_indices", "row_indices")
sparse_bsr_tensor = _constructor("sparse_bsr", "crow_indices", "col_indices")
sparse_bsc_tensor = _constructor("sparse_bsc", "ccol_indices", "row_indices")


def part_names(layout: Any) -> tuple[str, str]:
    """Names of the compressed and the plain indices of a layout."""
    return (
        ("crow_indices", "col_indices")
        if layout.name in ("sparse_csr", "sparse_bsr")
        else ("ccol_indices", "row_indices")
    )


def check_compressed(layout: Any, pointers: Tensor, others: Tensor, held: Tensor, shape: Sequence[int]) -> None:
    """Raise `RuntimeError` unless the parts make a tensor of this layout and shape."""
    first, second = part_names(layout)
    n, blocked = pointers.dim() - 1, layout.name in ("sparse_bsr", "sparse_bsc")
    dense = held.dim() - n - 1 - 2 * blocked
    if pointers.dtype is not others.dtype:
        raise RuntimeError(
            f"{first} and {second} must have the same dtype, bot got {_word(pointers)} and {_word(others)}, respectively"
        )
    if pointers.dtype not in (rushlight.int32, rushlight.int64):
        raise RuntimeError(f"{first} and {second} dtype must be Int or Long, but got {_word(pointers)}")
    if len(shape) != n + 2 + dense:
        raise RuntimeError(
            f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={n} + 2 + {dense}) but got {len(shape)}"
        )
    block = tuple(held.shape[n + 1 : n + 3]) if blocked else (1, 1)
    if any(s % b if b else True for s, b in zip(shape[n : n + 2], block, strict=True)):
        raise RuntimeError(
            f"tensor shape[{n}] (={shape[n]}) must be divisible with blocksize[0] (={block[0]}) as defined by values shape"
        )
    rows, columns = shape[n] // block[0], shape[n + 1] // block[1]
    lines, across = (rows, columns) if layout.name in ("sparse_csr", "sparse_bsr") else (columns, rows)
    each = others.size(-1)
    words = ("rows", "nrows", "ncols") if first == "crow_indices" else ("columns", "ncols", "nrows")
    if pointers.size(-1) != lines + 1:
        raise RuntimeError(
            f"{first}.shape[-1] must be equal to the number of {words[0]} + 1 (={lines + 1}), but got {pointers.size(-1)}"
        )
    if held.size(n) != each:
        raise RuntimeError(
            f"{second}.shape[-1] must be equal to nnz (={held.size(n)}) as defined by values.shape[{n}], but got {each}"
        )
    _check_contents(pointers, others, each, across, (first, second), words)


def _check_contents(
    pointers: Tensor, others: Tensor, each: int, across: int, names: tuple[str, str], words: tuple[str, ...]
) -> None:
    first, second = names
    steps = pointers[..., 1:] - pointers[..., :-1]
    if not bool((pointers[..., 0] == 0).all()):
        raise RuntimeError(f"`{first}[..., 0] == 0` is not satisfied.")
    if not bool((pointers[..., -1] == each).all()):
        raise RuntimeError(f"`{first}[..., -1] == nnz` is not satisfied.")
    if not bool(((steps >= 0) & (steps <= across)).all()):
        raise RuntimeError(f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {words[2]}` is not satisfied.")
    if not bool(((others >= 0) & (others < across)).all()):
        raise RuntimeError(f"`0 <= {second} < {words[2]}` is not satisfied.")
    made = make_compressed(
        SPARSE_LAYOUTS["sparse_csr"], pointers, others, others, (*pointers.shape[:-1], pointers.size(-1) - 1, across)
    )
    batch, line, other = spots(made)
    places = (batch * (pointers.size(-1) - 1) + line) * max(across, 1) + other
    if places.numel() > 1 and not bool((places[1:] > places[:-1]).all()):
        raise RuntimeError(
            f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {words[1]} are sorted and distinct along the last "
            "dimension values` is not satisfied."
        )


def _word(x: Tensor) -> str:
    return str(x.type()).removeprefix("torch.").removesuffix("Tensor")


# ***** zeros *****


def zeros(
    *size: Any, dtype: Any = None, device: Any = None, layout: Any = None, requires_grad: bool = False, **options: Any
) -> Any:
    """A sparse tensor without any entry."""
    return empty_parts(as_shape(size), 0, dtype, layout, device, requires_grad)


def empty(
    *size: Any, dtype: Any = None, device: Any = None, layout: Any = None, requires_grad: bool = False, **options: Any
) -> Any:
    """A sparse tensor without any entry: nothing is there to be undefined."""
    return empty_parts(as_shape(size), 0, dtype, layout, device, requires_grad)


def ones(*size: Any, **options: Any) -> Any:
    """Raises: a sparse tensor of ones would be dense."""
    raise RuntimeError("full(...) is not implemented for sparse layout")


full = ones


def empty_parts(
    shape: Sequence[int], dense_dims: int, dtype: Any, layout: Any, device: Any = None, requires_grad: bool = False
) -> Any:
    """A tensor of zeros: `dense_dims` of its last dims are dense."""
    dtype = dtype or rushlight.get_default_dtype()
    n = len(shape) - dense_dims
    rest = tuple(shape[n:])
    values, indices = {"dtype": dtype, "device": device}, {"dtype": rushlight.int64, "device": device}
    if layout.name == "sparse_coo":
        made = make_coo(rushlight.zeros((n, 0), **indices), rushlight.zeros((0, *rest), **values), shape, True)
    elif layout.name in ("sparse_bsr", "sparse_bsc"):
        raise RuntimeError(
            f"empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got {WORDS[layout.name]}"
        )
    else:
        if n < 2:
            raise RuntimeError(
                f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {list(shape)}"
            )
        lines = shape[n - 2] if layout.name == "sparse_csr" else shape[n - 1]
        batch = tuple(shape[: n - 2])
        made = make_compressed(
            layout,
            rushlight.zeros((*batch, lines + 1), **indices),
            rushlight.zeros((*batch, 0), **indices),
            rushlight.zeros((*batch, 0, *rest), **values),
            shape,
        )
    return made.requires_grad_() if requires_grad else made


def emptied(x: Any, dtype: Any = None) -> Any:
    """Zeros of the shape and kind of `x`."""
    if x.layout.name == "sparse_coo":
        return empty_parts(x.shape, x._held.dim() - 1, dtype or x.dtype, x.layout, x.device)
    n = x._pointers.dim() - 1
    rest = tuple(x._held.shape[n + 1 :])
    lines = x._pointers.size(-1)
    batch = tuple(x._pointers.shape[:-1])
    return make_compressed(
        x._format,
        x._pointers.new_zeros((*batch, lines)),
        x._others.new_zeros((*batch, 0)),
        x._held.new_zeros((*batch, 0, *rest), dtype=dtype),
        x.shape,
    )


class TypedSparseTensor(TypedTensor):
    """`torch.sparse.FloatTensor` and its kin: constructors, by indices and values or by sizes, and classes for
    isinstance.
    """

    is_sparse = True

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return older(cls.dtype, args, cls.device_type, **kwargs)


def older(dtype: Any, args: tuple[Any, ...], device: Any = None, **kwargs: Any) -> Any:
    """Result of `torch.sparse.FloatTensor(...)` and of `new` of a sparse tensor: of sizes, or of indices and values."""
    if all(isinstance(a, int) for a in args) or len(args) == 1 and isinstance(args[0], (rushlight.Size, tuple, list)):
        args = (as_shape(args) if args else (0,),)
    elif len(args) == 1:
        raise TypeError(
            f"new() received an invalid combination of arguments - got ({type(args[0]).__name__}), but expected sizes, or indices, values and a size"
        )
    return sparse_coo_tensor(*args, dtype=dtype, device=device, **kwargs)


# ***** numbers of rows, compressed and back *****


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` rows begins, and the last ends, in the sorted row numbers `input`: `size` + 1 numbers.

    >>> rushlight._convert_indices_from_coo_to_csr(rushlight.tensor([0, 0, 2]), 3)
    tensor([0, 2, 2, 3])
    """
    if input.dim() > 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {input.dim()} dimensional tensor.")
    return rushlight.searchsorted(
        input, rushlight.arange(size + 1, dtype=input.dtype, device=input.device), out_int32=out_int32
    )


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Rows and columns of the elements of a compressed matrix, (2, nnz); with `transpose` columns first."""
    dtype = rushlight.int32 if out_int32 else rushlight.int64
    rows = rushlight.repeat_interleave(
        rushlight.arange(crow_indices.numel() - 1, device=crow_indices.device), crow_indices.diff()
    ).to(dtype)
    pair = (col_indices.to(dtype), rows) if transpose else (rows, col_indices.to(dtype))
    return rushlight.stack(pair)
