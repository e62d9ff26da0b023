"""Dims as objects, and tensors that have them beside positional dims.

A `Tensor` here holds its `dims` and the memory of a plain tensor whose first dims they are, in this order; the
positional ones come behind.  Every function of torch runs over it as over a loop: `vmap` for each of the dims of its
arguments.  Where a function takes a dim, one of these objects may be given: it is made positional for the call, and is
taken back if it is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import rushlight
from rushlight._interface.base import tree_flatten, tree_map, tree_unflatten

__all__ = [
    "Dim",
    "DimList",
    "DimensionBindError",
    "DimensionMismatchError",
    "FirstClass",
    "Tensor",
    "aligned",
    "arranged",
    "call",
    "flat_dims",
    "made",
]


_PLAIN: Any = rushlight.Tensor  # whose methods are made when the table of operators is there


class DimensionMismatchError(Exception):
    """Dims do not fit each other."""


class DimensionBindError(Exception):
    """A dim or a list of dims was bound before, to another size."""


class FirstClass:
    """Common base of Dims and Tensors: the functions, methods and operators of tensors."""

    dims: tuple[Dim, ...]

    @property
    def data(self) -> Any:
        """The plain tensor: first the dims, then the positional ones."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(rushlight.Tensor, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = getattr(rushlight.Tensor, name)
        if callable(value):
            return lambda *args, **kwargs: call(value, (self, *args), kwargs)
        if name in _OF_THE_WHOLE:
            return getattr(self.data, name)
        return call(lambda tensor: getattr(tensor, name), (self,), {})

    @property
    def ndim(self) -> int:
        """How many positional dims there are."""
        return self.data.ndim - len(self.dims)

    def dim(self) -> int:
        """How many positional dims there are."""
        return self.ndim

    @property
    def shape(self) -> Any:
        """The sizes of the positional dims."""
        return self.data.shape[len(self.dims) :]

    def __bool__(self) -> bool:
        raise RuntimeError(f"a tensor with the dims {self.dims} has no single truth value")

    def __repr__(self) -> str:
        names = (*self.dims, *range(self.ndim))
        return f"{self.data}\nwith dims={names} sizes={tuple(self.data.shape)}"

    def __getitem__(self, index: Any) -> Any:
        return _OWN["__getitem__"](self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        _OWN["__setitem__"](self, index, value)

    def __mul__(self, other: Any) -> Any:
        return multiply(self, other)

    __hash__ = object.__hash__

    # ***** dims *****

    def order(self, *dims: Any) -> Any:
        """The dims as positional ones in this order, before the other positional ones; those in a tuple are flattened
        into one.
        """
        return _ordered(self, dims)

    def permute(self, *args: Any, dims: Any = None) -> Any:
        """The same as `order`."""
        given = args if dims is None else tuple(dims)
        return _ordered(self, tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given)

    def expand(self, *sizes: Any) -> Any:
        """Repeated along new dims; numbers are sizes of positional dims."""
        if not sizes or not all(isinstance(each, Dim) for each in sizes):
            return call(_PLAIN.expand, (self, *sizes), {})
        for each in sizes:
            if each in set(self.dims):
                raise DimensionBindError(f"expanding dimension {each} already exists in tensor with dims")
        wide = self.data.expand(*(each.size for each in sizes), *self.data.shape)
        return made((*sizes, *self.dims), wide)

    def split(self, split_size_or_sections: Any, dim: Any = 0) -> tuple[Any, ...]:
        """Parts along a dim; where the parts are Dims, each is the dim of one part."""
        return split(self, split_size_or_sections, dim)

    def index(self, dims: Any, indices: Any) -> Any:
        """The elements at `indices` of these dims (a tuple of dims counts as one, flattened)."""
        return index(self, dims, indices)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """See `torch.sum`."""
        return call(_PLAIN.sum, (self, *args), kwargs)


# What a tensor is as a whole.
_OF_THE_WHOLE = ("device", "dtype", "is_cuda", "is_leaf", "layout", "requires_grad")


class Dim(FirstClass):
    """A dim: unbound until it has a size.  As a tensor it is 0, 1, ..., size - 1 along itself."""

    def __init__(self, name: str, s: int = -1) -> None:
        self._name, self._size = name, s

    @property
    def size(self) -> int:
        """How long it is; ValueError while it is unbound.  It may be set once."""
        if self._size == -1:
            raise ValueError(f"dimension {self._name} is unbound")
        return self._size

    @size.setter
    def size(self, v: int) -> None:
        if self._size not in (-1, v):
            raise DimensionBindError(
                f"Dim '{self._name}' previously bound to a dimension of size {self._size} cannot bind to a dimension of size {v}"
            )
        self._size = v

    @property
    def is_bound(self) -> bool:
        """Whether it has a size."""
        return self._size != -1

    @property
    def dims(self) -> tuple[Dim, ...]:  # type: ignore[override]
        """Itself."""
        return (self,)

    @property
    def data(self) -> Any:
        """0, 1, ..."""
        return rushlight.arange(self.size)

    def __repr__(self) -> str:
        return self._name

    __format__ = object.__format__


class Tensor(FirstClass):
    """A tensor with first-class dims; made by indexing with them."""

    def __init__(self, dims: Sequence[Dim], data: Any) -> None:
        self.dims, self._data = tuple(dims), data

    @property
    def data(self) -> Any:
        """The plain tensor."""
        return self._data


class _Product(Tensor):
    """A product whose factors are multiplied when it is looked at; a sum over its dims is a product of matrices
    instead.
    """

    def __init__(self, left: FirstClass, right: FirstClass) -> None:
        super().__init__(_union((left, right)), None)
        self.factors = left, right

    @property
    def data(self) -> Any:
        """The product of the factors."""
        if self._data is None:
            left, right = (aligned(each, self.dims) for each in self.factors)
            self._data = left * right
        return self._data

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """Over dims of both factors: by `einsum`."""
        over = (
            args[0]
            if len(args) == 1 and not kwargs
            else kwargs.get("dim")
            if not args and kwargs.keys() == {"dim"}
            else None
        )
        over = (over,) if isinstance(over, Dim) else over
        if (
            self._data is not None
            or not isinstance(over, (tuple, list))
            or not all(isinstance(d, Dim) and d in set(self.dims) for d in over)
        ):
            return super().sum(*args, **kwargs)
        number = {each: at for at, each in enumerate(self.dims)}
        left = [d for d in self.dims if d not in set(over)]
        parts = [part for each in self.factors for part in (each.data, [number[d] for d in each.dims])]
        return made(left, rushlight.einsum(*parts, [number[d] for d in left]))


class DimList:
    """Several dims under one name; how many may be found out when it is bound."""

    def __init__(self, len_or_dims: int | Sequence[Any] | None = None, name: str | None = None) -> None:
        self._name, self._dims, self._bound = name, [], False  # type: tuple[str | None, list[Dim], bool]
        if isinstance(len_or_dims, int):
            self.bind_len(len_or_dims)
        elif len_or_dims is not None:
            self.bind_len(len(len_or_dims))
            for each, size in zip(self._dims, len_or_dims, strict=True):
                if size is not None:
                    each.size = size

    def bind_len(self, size: int) -> None:
        """So many dims; DimensionBindError if it has another number of them."""
        if self._bound and len(self._dims) != size:
            raise DimensionBindError(f"Dimlist has size {len(self._dims)} but it is being bound to size {size}")
        if not self._bound:
            self._bound, self._dims = True, [Dim(f"{self._name or 'dim'}{i}") for i in range(size)]

    def bind(self, sizes: Sequence[int]) -> None:
        """Dims of these sizes."""
        if not hasattr(sizes, "__len__") or not hasattr(sizes, "__getitem__"):
            raise ValueError("expected a sequence")
        self.bind_len(len(sizes))
        for each, size in zip(self._dims, sizes, strict=True):
            each.size = int(size)

    @property
    def is_bound(self) -> bool:
        """Whether the number of dims is known."""
        return self._bound

    def size(self) -> int:
        """How many dims there are."""
        return len(self)

    def __len__(self) -> int:
        if not self._bound:
            raise DimensionBindError("DimList not bound")
        return len(self._dims)

    def __getitem__(self, key: Any) -> Any:
        if not 0 <= (key if isinstance(key, int) else 0) < max(len(self), 1) or (
            isinstance(key, int) and not self._dims
        ):
            raise IndexError("index out of bounds")
        found = self._dims[key]
        return tuple(found) if isinstance(found, list) else found

    def __repr__(self) -> str:
        if self._bound:
            return f"({', '.join(map(repr, self._dims))})"
        return f"*{self._name}" if self._name is not None else "<unbound_dimlist>"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


# ***** moving dims *****


def made(dims: Sequence[Dim], data: Any) -> Any:
    """A tensor with these dims in front; a plain one where there are none."""
    for each, size in zip(dims, data.shape, strict=False):
        each.size = size
    return Tensor(dims, data) if dims else data


def arranged(value: Any) -> tuple[tuple[Dim, ...], Any]:
    """(dims, plain tensor) of a tensor with or without dims."""
    return (value.dims, value.data) if isinstance(value, FirstClass) else ((), value)


def _union(values: Iterable[Any]) -> tuple[Dim, ...]:
    return tuple(dict.fromkeys(each for value in values if isinstance(value, FirstClass) for each in value.dims))


def turned(value: Any, dims: Sequence[Dim]) -> Any:
    """The plain tensor of a value, with its dims in the order in which `dims` has them."""
    own, data = arranged(value)
    place = {d: at for at, d in enumerate(own)}
    return data.permute((*(place[d] for d in dims if d in place), *range(len(own), data.ndim)))


def aligned(value: Any, dims: Sequence[Dim], ndim: int | None = None) -> Any:
    """A plain tensor whose first dims are all of `dims` (of size 1 where the value lacks them); the positional ones are
    filled up to `ndim` on the left.
    """
    own, data = set(arranged(value)[0]), turned(value, dims)
    positional = data.ndim - len(own)
    fill = 0 if ndim is None else ndim - positional
    return data.reshape((*(d.size if d in own else 1 for d in dims), *[1] * fill, *data.shape[len(own) :]))


def flat_dims(dims: Iterable[Any]) -> list[Any]:
    """Lists of dims replaced by what is in them."""
    return [each for d in dims for each in (d._dims if isinstance(d, DimList) and len(d) >= 0 else [d])]


def _ordered(value: FirstClass, wanted: Sequence[Any]) -> Any:
    dims, data = value.dims, value.data
    positional, known = data.ndim - len(dims), {d: at for at, d in enumerate(dims)}

    def place(d: Any) -> int:
        if isinstance(d, Dim):
            if d not in known:
                raise ValueError(f"tensor does not contain dim {d} or it was specified twice")
            return known[d]
        at = d + positional if d < 0 else d
        if not 0 <= at < positional:
            raise ValueError(
                f"tensor has {positional} positional dimensions, but {d} specified, or it was specified twice"
            )
        return len(dims) + at

    groups = [
        [place(each) for each in flat_dims(d if isinstance(d, (tuple, list)) else [d])] for d in flat_dims(wanted)
    ]
    used = [at for group in groups for at in group]
    if len(set(used)) != len(used):
        raise ValueError("tensor does not contain a dim that was specified twice")
    left = [at for at in range(len(dims)) if at not in used]
    rest = [at for at in range(len(dims), data.ndim) if at not in used]
    sizes = [prod(data.shape[at] for at in group) for group in groups]
    turned = data.permute((*left, *used, *rest))
    if any(len(group) != 1 for group in groups):
        turned = turned.reshape((*(data.shape[at] for at in left), *sizes, *(data.shape[at] for at in rest)))
    return made([dims[at] for at in left], turned)


# ***** calling functions *****

# Functions that take a dim, by the place of that argument; the second kind leave the dim as it is.
_REDUCING = {
    **dict.fromkeys((
        "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "logsumexp", "max", "mean", "median", "min", "mode", "nanmean", "nanmedian",
        "nansum", "prod", "std", "sum", "unbind", "var",
    ), 1), "kthvalue": 2,
}  # fmt: skip
_KEEPING = {
    **dict.fromkeys((
        "argsort", "cummax", "cummin", "cumprod", "cumprod_", "cumsum", "cumsum_", "log_softmax", "logcumsumexp", "softmax", "softmin", "sort",
    ), 1), "renorm": 2, "chunk": 2,
}  # fmt: skip


def call(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function of torch over arguments with dims."""
    name = getattr(func, "__name__", "")
    own = _OWN.get(name)
    if own is not None:
        return own(*args, **kwargs)
    place = _REDUCING.get(name, _KEEPING.get(name))
    if place is not None:
        key = "dim" if "dim" in kwargs else None
        given = kwargs["dim"] if key else args[place] if len(args) > place else None
        wanted = flat_dims(given if isinstance(given, (tuple, list)) else [given])
        if any(isinstance(d, Dim) for d in wanted):
            return _along(func, name in _KEEPING, place, list(args), dict(kwargs), wanted)
    return _batched(func, args, kwargs)


def _along(func: Any, keeps: bool, place: int, args: list[Any], kwargs: dict[str, Any], wanted: list[Any]) -> Any:
    """A function along dims that are objects: they are positional while it runs."""
    moved = [d for d in wanted if isinstance(d, Dim)]
    if not keeps and kwargs.get("keepdim", False):
        raise ValueError(
            f"a dim that is an object ({moved[0]}) is gone after a reduction; keepdim needs positional dims"
        )
    value = args[0] if isinstance(args[0], FirstClass) else kwargs.get("input")
    if not isinstance(value, FirstClass) or not set(moved) <= set(value.dims):
        raise ValueError(f"Tensor with dimensions {list(arranged(args[0])[0])} does not contain {moved[0]}")
    args[0] = _ordered(value, moved)
    place_of = {d: at for at, d in enumerate(moved)}
    positions = [place_of[d] if isinstance(d, Dim) else d + len(moved) if d >= 0 else d for d in wanted]
    at: Any = positions[0] if len(positions) == 1 else tuple(positions)
    if "dim" in kwargs:
        kwargs["dim"] = at
    else:
        args[place] = at
    results = call(func, args, kwargs)
    return tree_map(lambda each: _bound_again(each, moved), results) if keeps else results


def _bound_again(value: Any, moved: list[Dim]) -> Any:
    if not isinstance(value, (rushlight.Tensor, FirstClass)):
        return value
    dims, data = arranged(value)
    front = range(len(dims), len(dims) + len(moved))
    rest = [at for at in range(data.ndim) if at not in front]
    return made((*moved, *dims), data.permute((*front, *rest)))


def _batched(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A loop over all dims of the arguments, done at once."""
    leaves, spec = tree_flatten((tuple(args), kwargs))
    dims = _union(leaves)
    if not dims:
        return func(*args, **kwargs)
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, FirstClass)]
    inputs = [turned(leaves[i], dims) for i in at]
    shown: list[Any] = []

    def run(*values: Any) -> Any:
        filled = list(leaves)
        for i, value in zip(at, values, strict=True):
            filled[i] = value
        given, named = tree_unflatten(filled, spec)
        results, shape = tree_flatten(func(*given, **named))
        shown[:] = [results, shape]
        return tuple(each for each in results if isinstance(each, rushlight.Tensor)) or values[0]

    looped: Callable[..., Any] = run
    for d in reversed(dims):
        looped = rushlight.func.vmap(
            looped, in_dims=tuple(0 if d in set(leaves[i].dims) else None for i in at), randomness="different"
        )
    made_of = iter(looped(*inputs))
    results, shape = shown
    return tree_unflatten(
        [made(dims, next(made_of)) if isinstance(each, rushlight.Tensor) else each for each in results], shape
    )


def split(tensor: Any, split_size_or_sections: Any, dim: Any = 0) -> tuple[Any, ...]:
    """See `FirstClass.split`."""
    sizes = [split_size_or_sections] if isinstance(split_size_or_sections, (int, Dim)) else list(split_size_or_sections)
    if all(isinstance(each, int) for each in sizes):
        if isinstance(dim, Dim):
            raise TypeError("when dim is specified as a Dim object, split sizes must also be dimensions.")
        return _batched(_PLAIN.split, (tensor, split_size_or_sections), {"dim": dim})
    if not all(isinstance(each, Dim) for each in sizes):
        raise TypeError("split list must be ints or dims but got a mix")
    if isinstance(dim, Dim) and dim not in set(arranged(tensor)[0]):
        raise TypeError(f"tensor does not contain dimension {dim}")
    moved = _ordered(tensor, (dim,)) if isinstance(tensor, FirstClass) else tensor.movedim(dim, 0)
    dims, data = arranged(moved)
    pieces: list[Any] = sizes
    _share(pieces, data.shape[len(dims)])
    parts = data.split([each.size for each in pieces], len(dims))
    return tuple(made((*dims, each), part) for each, part in zip(pieces, parts, strict=True))


def _share(sizes: list[Dim], whole: int) -> None:
    """Give those that are unbound what the others leave, in equal parts."""
    left, open_ = (
        whole - sum(each.size for each in sizes if each.is_bound),
        [each for each in sizes if not each.is_bound],
    )
    if left < 0 and open_:
        raise TypeError(f"sizes of target dimensions add up to more ({whole - left}) than source dim ({whole})")
    if left and not open_:
        raise TypeError(f"sum of sizes of target dimensions ({whole - left}) do not match the source dim ({whole})")
    part = -(-left // len(open_)) if open_ else 0
    for each in open_:
        each.size = min(part, left)
        left -= each.size


def index(tensor: Any, dims: Any, indices: Any) -> Any:
    """See `FirstClass.index`; for plain tensors too."""
    wanted, places = ([dims], [indices])
    if isinstance(dims, (tuple, list)) and isinstance(indices, (tuple, list)):
        wanted, places = list(dims), list(indices)
        if len(wanted) != len(places):
            raise TypeError(f"dims ({len(wanted)}) and indices ({len(places)}) must have the same length")
    value = tensor if isinstance(tensor, FirstClass) else Tensor((), tensor)
    for d in flat_dims(each for some in wanted for each in (some if isinstance(some, (tuple, list)) else [some])):
        if isinstance(d, Dim) and d not in set(value.dims):
            raise TypeError(f"dimension {d} not in tensor")
    return _ordered(value, wanted)[tuple(places)]


def multiply(left: Any, right: Any) -> Any:
    """`left * right`; two floats of one dtype without positional dims wait for a sum."""
    both = (left, right)
    if (
        all(isinstance(each, Tensor) and each.ndim == 0 and each.dtype.is_floating_point for each in both)
        and left.dtype == right.dtype
    ):
        return _Product(left, right)
    return _batched(rushlight.mul, both, {})


_OWN: dict[str, Callable[..., Any]] = {"split": split}


def _operator(name: str) -> Callable[..., Any]:
    def run(self: Any, *args: Any) -> Any:
        return call(getattr(rushlight.Tensor, name), (self, *args), {})

    run.__name__ = run.__qualname__ = name
    return run


for _name in (
    "add", "sub", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
):  # fmt: skip
    for _form in (f"__{_name}__", f"__r{_name}__", f"__i{_name}__"):
        if hasattr(rushlight.Tensor, _form):
            setattr(FirstClass, _form, _operator(_form))
for _name in ("neg", "invert", "abs", "lt", "le", "gt", "ge", "ne", "eq", "imul", "rmul"):
    setattr(FirstClass, f"__{_name}__", _operator(f"__{_name}__"))
del _name, _form
