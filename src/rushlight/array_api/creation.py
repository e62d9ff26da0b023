"""New arrays. Everything is on the default device and in the default dtype of its kind unless told otherwise."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.array_api.manipulation import stack

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones", "ones_like",
    "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array of an array, a number, a nested sequence of these, or anything with DLPack, the buffer protocol or
    NumPy's array interface.

    `copy`: True always copies, None only where it must, False raises ValueError where it must.

        >>> import rushlight.array_api as xp
        >>> xp.asarray([[1, 2], [3, 4]], dtype=xp.float32)
        tensor([[1., 2.],
                [3., 4.]])
    """
    if isinstance(obj, Tensor):
        made = obj.to(device=device, dtype=dtype)
        if made is obj:
            return obj.clone() if copy else obj
        if copy is False:
            raise ValueError("asarray: another dtype or device needs a copy, and copy=False forbids it")
        return made
    if isinstance(obj, (bool, int, float, complex, list, tuple)):
        if copy is False:
            raise ValueError(f"asarray: a {type(obj).__name__} has no memory to share, and copy=False forbids a copy")
        if isinstance(obj, (list, tuple)) and _holds_arrays(obj):
            return _stacked(obj, dtype, device)
        return rushlight.tensor(obj, dtype=dtype, device=device)
    return rushlight.asarray(obj, dtype=dtype, device=device, copy=copy)


def _holds_arrays(items: Any) -> bool:
    return any(isinstance(i, Tensor) or isinstance(i, (list, tuple)) and _holds_arrays(i) for i in items)


def _stacked(items: Any, dtype: Any, device: Any) -> Tensor:
    """A nested sequence with arrays among its items, of one shape."""
    parts = [asarray(item) for item in items]
    shapes = {p.shape for p in parts}
    if len(shapes) > 1:
        raise ValueError(f"asarray: expected items of one shape, found {sorted(tuple(s) for s in shapes)}")
    return stack(parts).to(device=device, dtype=dtype)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from `start` (0 where one bound is given) by `step` up to, not including, `stop`; none where `stop` lies
    behind.

    >>> import rushlight.array_api as xp
    >>> xp.arange(1, 8, 3), xp.arange(5, 0)
    (tensor([1, 4, 7]), tensor([], dtype=torch.int64))
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange: expected a step other than 0")
    if (stop > start) != (step > 0) or stop == start:
        whole = all(isinstance(v, int) for v in (start, stop, step))
        kind = dtype or (rushlight.int64 if whole else rushlight.get_default_dtype())
        return rushlight.empty((0,), dtype=kind, device=device)
    return rushlight.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """`num` numbers in equal steps from `start` to `stop`, with `stop` or, for `endpoint=False`, one step short of it.

    >>> import rushlight.array_api as xp
    >>> xp.linspace(0, 1, 5), xp.linspace(0, 1, 4, endpoint=False)
    (tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000]), tensor([0.0000, 0.2500, 0.5000, 0.7500]))
    """
    complex_ends = isinstance(start, complex) or isinstance(stop, complex)
    if dtype is not None and dtype.is_complex or complex_ends:
        part = None if dtype is None else rushlight.float64 if dtype is rushlight.complex128 else rushlight.float32
        start, stop = complex(start), complex(stop)
        ends = ((start.real, stop.real), (start.imag, stop.imag))
        parts = [linspace(a, b, num, dtype=part, device=device, endpoint=endpoint) for a, b in ends]
        return rushlight.complex(*parts)
    if dtype is None:
        dtype = rushlight.get_default_dtype()
    if endpoint:
        return rushlight.linspace(start, stop, num, dtype=dtype, device=device)
    return rushlight.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """A matrix with ones on diagonal `k` (0: main, above it positive), zeros elsewhere.

    >>> import rushlight.array_api as xp
    >>> xp.eye(2, 3, k=1, dtype=xp.int64)
    tensor([[0, 1, 0],
            [0, 0, 1]])
    """
    n_cols = n_rows if n_cols is None else n_cols
    k = _diagonal(k, n_rows, n_cols)
    rows = rushlight.arange(n_rows, device=device).unsqueeze(1)
    return (rows + k == rushlight.arange(n_cols, device=device)).to(dtype or rushlight.get_default_dtype())


def _diagonal(k: int, rows: int = 0, columns: int = 0) -> int:
    """The number of a diagonal, the nearest one beside the matrix for one that lies further out: it may have any number
    of bits.
    """
    return max(-rows, min(k, columns))


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array whose elements are undefined."""
    return rushlight.empty(_shape(shape), dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return rushlight.zeros(_shape(shape), dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return rushlight.ones(_shape(shape), dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of one value, in the default dtype of the value's kind."""
    return rushlight.full(_shape(shape), fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`empty` with the shape, dtype and device of `x`."""
    return rushlight.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`zeros` with the shape, dtype and device of `x`."""
    return rushlight.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`ones` with the shape, dtype and device of `x`."""
    return rushlight.ones_like(x, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`full` with the shape, dtype and device of `x`."""
    return rushlight.full_like(x, fill_value, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of matrices up to diagonal `k`; zeros above."""
    return rushlight.tril(x, _diagonal(k, *x.shape[-2:]))


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of matrices from diagonal `k` on; zeros below."""
    return rushlight.triu(x, _diagonal(k, *x.shape[-2:]))


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid, one array for each of the given one-dimensional ones, as views.

    `indexing="xy"` puts the first coordinate along the second dim (as in pictures), `"ij"` along the first.
    Raises ValueError for another `indexing`.

        >>> import rushlight.array_api as xp
        >>> xp.meshgrid(xp.asarray([1, 2, 3]), xp.asarray([10, 20]))[1]
        tensor([[10, 10, 10],
                [20, 20, 20]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: expected indexing 'xy' or 'ij', found {indexing!r}")
    places = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        places[:2] = 1, 0
    shape = [0] * len(arrays)
    for place, x in zip(places, arrays):
        shape[place] = x.numel()
    return tuple(
        x.reshape([size if d == place else 1 for d, size in enumerate(shape)]).expand(shape)
        for place, x in zip(places, arrays)
    )


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array over the memory of anything that speaks DLPack; `copy=True` makes it new, False raises ValueError where
    that must be.

    >>> import numpy, rushlight.array_api as xp
    >>> xp.from_dlpack(numpy.arange(3))
    tensor([0, 1, 2])
    """
    return rushlight.from_dlpack(x, device=device, copy=copy)
