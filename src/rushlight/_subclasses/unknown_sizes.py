"""Fake results of operators whose sizes only elements tell: their lengths are symbols without a value."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.sizes import MOST, is_unknown, require_between
from rushlight.library.aten.calls import bound

__all__ = ["LEAST", "MASKS", "is_number", "is_whole", "made", "settled_places"]

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


def _where(mode: Any, func: Any, given: Any) -> Any:
    """The columns of `nonzero`."""
    x = given["condition"]
    length = _length(mode, x)
    return [mode.sized((length,), (1,), rushlight.int64, x.device) for _ in range(x.dim())]


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
    """The tensor that is written into, or a new one of its layout."""
    return given["self"] if func.in_place else rushlight.empty_like(given["self"])


def settled_places(mode: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a call with a result of the same sizes, whose places in a dim are known.

    Views begin at 0 where only elements tell where they begin; the operator itself checks its places when it runs.
    """
    rule = _PLACES.get(func._opname)
    return (args, kwargs) if rule is None or mode.shape_env is None else rule(mode, func, args, kwargs)


def _slice(mode: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """A slice whose length nothing tells has an unknown length."""
    env = mode.shape_env
    given = bound(func, args, kwargs)
    x, dim, step = given["self"], given["dim"], given["step"]
    size = x.shape[dim]
    start, end = given["start"] or 0, given["end"]
    if not any(map(is_unknown, (start, end, step, size))):
        return args, kwargs
    first = _place(env, start, size)
    last = _place(env, size if end is None else end, size)
    if first is not None and last is not None and env.known_sign(first - last, "<=") is not None:
        return args, kwargs
    length = _length_of_slice(start, end, size)
    if length is None and first is not None and last is not None:
        length = rushlight.sym_max(last - first, 0)
    if type(step) is not int or step > 1:
        # Of every `step`-th element as many as there are: the sizes and strides of two slices.
        x = func(x, dim, 0, None, step)
        size = x.shape[dim]
        length = None if length is None else (length + step - 1) // step
    if length is None:
        length = _at_most(env, size)
    env.assume(length - size, "<=")
    return (x, dim, 0, length, 1), {}


def _at_most(env: Any, size: Any) -> Any:
    """A new unknown length, at most a size."""
    length = env.create_unbacked_symint()
    greatest = size if type(size) is int else env.known_bounds(size.terms)[1]
    if greatest < MOST:
        env.assume(length - int(greatest), "<=")
    return length


def _select(mode: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """One place that elements tell is like the first one."""
    given = bound(func, args, kwargs)
    if is_unknown(given["index"]):
        given["index"] = 0
        return tuple(given.values()), {}
    return args, kwargs


def _narrow(mode: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """A part whose length is given; it ends within the dim."""
    env = mode.shape_env
    given = bound(func, args, kwargs)
    x, dim, start, length = given["self"], given["dim"], given["start"], given["length"]
    if not is_unknown(start) and not is_unknown(length) or isinstance(start, Tensor):
        return args, kwargs
    size = x.shape[dim]
    if is_unknown(length):
        require_between(length, 0, float("inf"))
        if not is_unknown(start):
            start = start + size if start < 0 else start
            left = size - start - length
            if is_unknown(left):
                require_between(left, 0, float("inf"))
    env.assume(length - size, "<=")
    return (x, dim, 0, length), {}


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


_PLACES = {
    "slice": _slice, "select": _select, "select_scatter": _select, "narrow": _narrow, "narrow_copy": _narrow,
}  # fmt: skip
_RULES: dict[str, Any] = {
    "nonzero": _nonzero, "masked_select": _masked_select, "repeat_interleave": _repeats, "_unique2": _unique, "unique_consecutive": _unique,
    "unique_dim": _unique, "index": _index, "argwhere": _nonzero, "where": _where, "bincount": _bincount, "index_put": _put,
    "index_put_": _put, "_unsafe_index_put": _put, "_index_put_impl_": _put,
}  # fmt: skip
