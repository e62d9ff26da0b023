"""Fake results of operators whose sizes only elements tell: their lengths are symbols without a value."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.sizes import MOST, Integer, is_symbolic, require_between
from rushlight.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from rushlight.library.aten.calls import bound

__all__ = ["LEAST", "MASKS", "is_number", "is_whole", "made", "mean_of_windows", "slice_of_unknown"]

LEAST = -(1 << 62)  # a number of a tensor may be any integer
MASKS = (rushlight.bool, rushlight.uint8)


def is_whole(x: Tensor) -> bool:
    """Whether the elements of a tensor are integers."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype is rushlight.bool)


def is_number(x: Tensor) -> bool:
    """Whether the elements of a tensor are integers, floats or truth values."""
    return not x.is_complex()


def made(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Fake tensors with unknown sizes; None for an operator that nobody describes here, and without symbols."""
    rule = _RULES.get(func._opname)
    if rule is None or mode.shape_env is None and rule is not _put:
        return None
    return rule(mode, func, bound(func, args, kwargs))


def _row(mode: Any, like: Tensor, length: Any, dtype: Any = None) -> Any:
    return mode.sized((length,), (1,), dtype or like.dtype, like.device)


def _length(mode: Any, most: Tensor) -> Any:
    """An unknown length, at most as many as a tensor has elements."""
    return mode.number_of(most, "_length", lambda: _new_length(mode, most))


def _new_length(mode: Any, most: Tensor) -> Any:
    length = mode.shape_env.create_unbacked_symint()
    count = most.numel()
    greatest = count if type(count) is int else mode.shape_env.known_bounds(count.terms)[1]
    if greatest < MOST:
        require_between(length, 0, greatest)
    return length


def _nonzero(mode: Any, func: Any, given: Any) -> Any:
    x = given["self"]
    length = _length(mode, x)
    return mode.sized((length, x.dim()), (1, length), rushlight.int64, x.device)


def _masked_select(mode: Any, func: Any, given: Any) -> Any:
    return _row(mode, given["self"], _length(mode, given["mask"]))


def _repeats(mode: Any, func: Any, given: Any) -> Any:
    length = given.get("output_size")
    length = mode.shape_env.create_unbacked_symint() if length is None else length
    return _row(mode, given["repeats"], length)


def _bincount(mode: Any, func: Any, given: Any) -> Any:
    """Counts, or sums of weights: float32 ones stay so, others are float64."""
    weights, dtype = given.get("weights"), rushlight.int64
    if weights is not None:
        dtype = rushlight.float32 if weights.dtype is rushlight.float32 else rushlight.float64
    return _row(mode, given["self"], mode.shape_env.create_unbacked_symint(), dtype)


def _unique(mode: Any, func: Any, given: Any) -> Any:
    """Values, the place of each element among them, and how often each is there; without elements where not asked for."""
    x, dim = given["self"], given.get("dim")
    length = _new_length(mode, x)
    if dim is None:
        values = _row(mode, x, length)
        whole = x.shape
    else:
        shape = [length if d == dim % x.dim() else n for d, n in enumerate(x.shape)]
        values, whole = mode.sized(shape, None, x.dtype, x.device), (x.shape[dim],)
    inverse: Any = _row(mode, x, 0, rushlight.int64)
    if given.get("return_inverse"):
        inverse = rushlight.empty(whole, dtype=rushlight.int64, device=x.device)
    counts = _row(mode, x, length if given.get("return_counts") else 0, rushlight.int64)
    return values, inverse, counts


def _index(mode: Any, func: Any, given: Any) -> Any:
    """Masks are the places at which they are True, one row for each of their dims."""
    places: list[Any] = []
    for each in given["indices"]:
        if isinstance(each, Tensor) and each.dtype in MASKS:
            length = _length(mode, each)
            places += [_row(mode, each, length, rushlight.int64) for _ in range(each.dim())]
        else:
            places.append(each)
    return func(given["self"], places)


def _put(mode: Any, func: Any, given: Any) -> Any:
    """What is written into keeps its layout, or a new tensor gets it."""
    return given["self"] if func.in_place else rushlight.empty_like(given["self"])


def slice_of_unknown(mode: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a slice with the same result: one whose length nothing tells begins at 0 and has an unknown length.

    GuardOnDataDependentSymNode for one with steps.
    """
    env = mode.shape_env
    given = bound(func, args, kwargs)
    x, dim, step = given["self"], given["dim"], given["step"]
    size = x.shape[dim]
    numbers = (given["start"], given["end"], step, size)
    if not any(type(n) is Integer and env.is_unknown(n.terms) for n in numbers):
        return args, kwargs
    first = _place(env, 0 if given["start"] is None else given["start"], size)
    last = _place(env, size if given["end"] is None else given["end"], size)
    if first is not None and last is not None and env.known_sign(first - last, "<=") is not None:
        return args, kwargs
    if step != 1:
        raise GuardOnDataDependentSymNode(
            f"The length of a slice with the step {step} depends on elements; torch._check(...) says where it begins and ends"
        )
    length = _length_of_slice(given["start"] or 0, given["end"], size)
    if length is None:
        length = env.create_unbacked_symint()
        greatest = size if type(size) is int else env.known_bounds(size.terms)[1]
        if greatest < MOST:
            env.assume(length - int(greatest), "<=")
    env.assume(length - size, "<=")
    return (x, dim, 0, length, 1), {}


def _length_of_slice(start: Any, end: Any, size: Any) -> Any:
    """The length of a slice between the ends of its dim and one number; None for others."""
    whole = end is None or type(end) is int and end >= MOST
    if type(start) is int and start > 0 and whole:
        return rushlight.sym_max(size - start, 0)
    if type(start) is int and start == 0 and type(end) is int:
        return rushlight.sym_max(size + end, 0) if end < 0 else rushlight.sym_min(end, size)
    return None


def _place(env: Any, n: Any, size: Any) -> Any:
    """Where a slice begins or ends; None where nothing tells."""
    below = env.known_sign(n, "<")
    n = n + size if below else n
    if below is None or below and env.known_sign(n, "<") is not False:
        return None
    above = env.known_sign(size - n, "<")
    return None if above is None else size if above else n


def mean_of_windows(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an adaptive pooling of varying sizes in an export; None for other calls.

    Its own code asks whether the windows are of one length, on which no size of the result depends.
    """
    if func._opname not in _POOLINGS or not mode.export:
        return None
    given = bound(func, args, kwargs)
    x, sizes = given["self"], given["output_size"]
    varies = isinstance(x, Tensor) and any(is_symbolic(n) for n in x.shape)
    if not varies or len(sizes) != _POOLINGS[func._opname] or not all(type(n) is int and n > 0 for n in sizes):
        return None
    if x.dim() not in (len(sizes) + 1, len(sizes) + 2) or not x.is_floating_point() or not x.is_contiguous():
        return None
    return mode.sized([*x.shape[: -len(sizes)], *sizes], None, x.dtype, x.device)


_POOLINGS = {f"adaptive_avg_pool{n}d": n for n in (1, 2, 3)}
_RULES: dict[str, Any] = {
    "nonzero": _nonzero, "masked_select": _masked_select, "repeat_interleave": _repeats, "_unique2": _unique, "unique_consecutive": _unique,
    "unique_dim": _unique, "index": _index, "argwhere": _nonzero, "bincount": _bincount, "index_put": _put,
    "index_put_": _put, "_unsafe_index_put": _put, "_index_put_impl_": _put,
}  # fmt: skip
