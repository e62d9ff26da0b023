"""Indexing with dims.

A dim in the place of an index binds the positional dim there; a tuple of dims splits it.  Tensors with dims are indices
for every step of the loop over their dims.  Both come down to one indexing of a plain tensor by plain tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

import rushlight
from rushlight._functorch.dim.objects import (
    _OWN,
    Dim,
    DimensionBindError,
    DimList,
    FirstClass,
    Tensor,
    aligned,
    arranged,
    made,
)

__all__ = ["get_item", "set_item"]


class TooManyIndicesError(IndexError, ValueError):
    """More indices than positional dims; both classes are in use for it."""


class _Place:
    """A positional dim behind the basic steps: `index` is a Dim or a tensor that stands there, None for a dim that
    stays.
    """

    def __init__(self, index: Any) -> None:
        self.index = index


class _Plan:
    """`view[indices]` holds the result: first `dims`, then the positional dims of the indices, then those that stay."""

    def __init__(
        self, view: Any, indices: tuple[Any, ...], dims: list[Dim], spread: list[Dim], wide: int, before: int
    ) -> None:
        self.view, self.indices = view, indices
        self.dims = dims  # of the result
        self.spread = spread  # those of them that indices bring: they come first
        self.wide = wide  # how many positional dims the indices have
        self.before = before  # how many of those that stay come before them

    def moved(self, result: Any) -> Any:
        """The result with its positional dims in order: what `view[indices]` gives has those of the indices behind
        their dims.
        """
        first, n, rest = len(self.spread), self.wide, len(self.dims) - len(self.spread)
        at = [*range(first), *range(first + n, first + n + rest)]
        stay = list(range(first + n + rest, result.ndim))
        return result.permute((*at, *stay[: self.before], *range(first, first + n), *stay[self.before :]))

    def turned(self, value: Any, ndim: int) -> Any:
        """The same backwards, for a value with `dims` in front and `ndim` positional dims."""
        first, n, rest = len(self.spread), self.wide, len(self.dims) - len(self.spread)
        positional = list(range(first + rest, first + rest + ndim))
        stay = positional[: self.before] + positional[self.before + n :]
        return value.permute(
            (*range(first), *positional[self.before : self.before + n], *range(first, first + rest), *stay)
        )


def get_item(tensor: Any, index: Any) -> Any:
    """`tensor[index]`."""
    plan = _plan(tensor, index)
    result = plan.moved(plan.view[plan.indices]) if plan.indices else plan.view
    return made(plan.dims, result)


def set_item(tensor: Any, index: Any, value: Any) -> None:
    """`tensor[index] = value`; the value has no dims but those of what is written to."""
    plan = _plan(tensor, index)
    value = (
        value
        if isinstance(value, (FirstClass, rushlight.Tensor))
        else rushlight.as_tensor(value, dtype=plan.view.dtype)
    )
    extra = [d for d in arranged(value)[0] if d not in set(plan.dims)]
    if extra:
        raise DimensionBindError(
            f"rhs of setitem contains dimension {extra[0]} which is not in the dimension on the left ({tuple(plan.dims)})"
        )
    target = plan.view[plan.indices] if plan.indices else plan.view
    ndim = target.ndim - len(plan.dims)
    lying = aligned(value, plan.dims, ndim)
    if plan.indices:
        plan.view[plan.indices] = plan.turned(lying, ndim).expand(target.shape).to(plan.view.dtype)
    else:
        plan.view.copy_(lying.expand(plan.view.shape))


_OWN["__getitem__"], _OWN["__setitem__"] = get_item, set_item


# ***** how *****


def _plan(tensor: Any, index: Any) -> _Plan:
    dims, data = arranged(tensor)
    several = isinstance(index, tuple) or (
        isinstance(index, list) and any(isinstance(each, (FirstClass, DimList)) for each in index)
    )
    items = _complete(tuple(index) if several else (index,), data.ndim - len(dims))
    data, places = _basic(data, len(dims), items)
    counts = Counter(place.index for place in places if isinstance(place.index, Dim))
    place_of = {d: at for at, d in enumerate(dims)}
    used = {
        d
        for place in places
        if place.index is not None and not isinstance(place.index, Dim)
        for d in arranged(place.index)[0]
    }
    for at, place in enumerate(places):
        if isinstance(place.index, Dim):
            place.index.size = data.shape[len(dims) + at]
    bound = [
        p
        for p in places
        if isinstance(p.index, Dim) and counts[p.index] == 1 and p.index not in place_of and p.index not in used
    ]
    chosen = [p for p in places if p.index is not None and p not in bound]
    stay = [p for p in places if p.index is None]
    where = {id(place): len(dims) + at for at, place in enumerate(places)}
    spread = list(dict.fromkeys(d for p in chosen for d in arranged(p.index)[0]))
    shared = [d for d in dims if d in set(spread)]
    rest = [d for d in dims if d not in set(spread)]
    view = data.permute((
        *(place_of[d] for d in shared), *(where[id(p)] for p in chosen), *(place_of[d] for d in rest),
        *(where[id(p)] for p in bound), *(where[id(p)] for p in stay),
    ))  # fmt: skip
    indices = [*shared, *(p.index for p in chosen)]
    wide = max((data.ndim - len(own) for own, data in map(arranged, indices)), default=0)
    plain = tuple(aligned(each, spread, wide) for each in indices)
    return _Plan(view, plain, [*spread, *rest, *(p.index for p in bound)], spread, wide, _before(places, chosen))


def _before(places: Sequence[_Place], chosen: Sequence[_Place]) -> int:
    """Positional dims of indices lie where the first of them stands, in front where others stand between them."""
    at = [i for i, place in enumerate(places) if any(place is each for each in chosen)]
    if not at or at != list(range(at[0], at[-1] + 1)):
        return 0
    return sum(place.index is None for place in places[: at[0]])


def _complete(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """The items with one for every positional dim; masks as the places where they are true, lists of dims as their
    dims.
    """
    flat: list[Any] = []
    for item in items:
        if isinstance(item, DimList) and item.is_bound:
            flat += item._dims
        elif isinstance(item, rushlight.Tensor) and item.dtype == rushlight.bool:
            flat += item.nonzero(as_tuple=True)
        else:
            flat.append(item)
    open_ = [at for at, item in enumerate(flat) if item is ... or isinstance(item, DimList)]
    if len(open_) > 1:
        raise DimensionBindError(
            f"at most one ... or unbound dimension list can exist in indexing list but found 2 at offsets {open_[0]} and {open_[1]}"
        )
    left = ndim - sum(item is not None for item in flat) + len(open_)
    if left < 0:
        raise TooManyIndicesError(
            f"at least {ndim - left} indices were supplied but the tensor only has {ndim} dimensions"
        )
    if not open_:
        return flat + [slice(None)] * left
    at = open_[0]
    filled: list[Any] = [slice(None)] * left
    if isinstance(flat[at], DimList):
        flat[at].bind_len(left)
        filled = flat[at]._dims
    return flat[:at] + filled + flat[at + 1 :]


def _basic(data: Any, skip: int, items: Sequence[Any]) -> tuple[Any, list[_Place]]:
    """Numbers, slices, new dims and splits are views; what is left to do is said of each positional dim behind them."""
    steps: list[Any] = [slice(None)] * skip
    places: list[_Place] = []
    packs: list[tuple[int, Sequence[Dim]]] = []
    for item in items:
        if isinstance(item, int) and not isinstance(item, bool):
            steps.append(item)
        elif item is None or isinstance(item, slice):
            steps.append(item)
            places.append(_Place(None))
        else:
            steps.append(slice(None))
            if isinstance(item, (tuple, list)) and item and all(isinstance(each, Dim) for each in item):
                packs.append((skip + len(places), item))
                places += [_Place(each) for each in item]
            else:
                places.append(_Place(_as_index(item)))
    view = data[tuple(steps)]
    for at, pack in packs:
        view = view.unflatten(at, _sizes(pack, view.shape[at]))
    return view, places


def _as_index(item: Any) -> Any:
    if isinstance(item, (Dim, Tensor, rushlight.Tensor)):
        return item
    if isinstance(item, (list, tuple)):
        return rushlight.tensor(item)
    raise TypeError(f"expected a dimension, a tensor, a slice or a number as an index, but found {item!r}")


def _sizes(pack: Sequence[Dim], whole: int) -> list[int]:
    """The sizes of dims that share one; one of them may be unbound."""
    known, open_ = prod(each.size for each in pack if each.is_bound), [each for each in pack if not each.is_bound]
    if len(open_) > 1:
        raise DimensionBindError(f"cannot infer the sizes of {len(open_)} dimensions at once {tuple(open_)}")
    if whole % known or (not open_ and known != whole):
        raise DimensionBindError(
            f"Dimension sizes to do not match ({known} != {whole}) when matching dimension pack {tuple(pack)}"
        )
    for each in open_:
        each.size = whole // known
    return [each.size for each in pack]
