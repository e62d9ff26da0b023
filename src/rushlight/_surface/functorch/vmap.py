"""`vmap`: a function for one item becomes a function for a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._base.tracebacks import shorten
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.functorch.batched import batched, in_front, peeled
from rushlight._engine.functorch.transformed import Level
from rushlight._engine.random.random import default_generators
from rushlight._surface.functorch.trees import name_of, prefix, spec_text, tree_flatten, tree_unflatten
from rushlight._surface.registry import SPACES

T = SPACES["torch"]

__all__ = ["over_tangents", "vmap"]


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that runs `func` on every item of a batch at once.

    - `in_dims`: the dim of each tensor argument along which the items lie, None for what all items share; one value for
      all, or nested like the arguments.  Keyword arguments are shared.
    - `out_dims`: where the batch stands in the results, one value or nested like the results.
    - `randomness`: "error" forbids random numbers, "different" draws for every item, "same" draws once for all.
    - `chunk_size`: so many items at a time, to save memory.

    Inside, tensors have no batch dim.  ValueError for dims that do not fit, RuntimeError for what cannot be batched:
    reading a value out (`item`, `if x > 0`), shapes that depend on the data (`nonzero`, masks as indices).

        >>> import rushlight as torch
        >>> torch.vmap(lambda row: row / row.sum())(torch.tensor([[1.0, 3.0], [2.0, 2.0]]))
        tensor([[0.2500, 0.7500],
                [0.5000, 0.5000]])
        >>> torch.vmap(torch.dot, in_dims=(0, None))(torch.eye(2), torch.tensor([5.0, 7.0]))
        tensor([5., 7.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            batch, call = _inputs(func, in_dims, args), _Call(func, kwargs, out_dims, randomness)
            if chunk_size is None or chunk_size >= batch.size:
                return call.run(batch)
            return call.run_chunks(batch, chunk_size)
        except BaseException as error:
            shorten(error)
            raise

    return wrapped


class _Batch(NamedTuple):
    """Arguments of a call: the leaves of `structure`, and where the items of each lie (None: all share it)."""

    leaves: list[Any]
    dims: list[int | None]
    structure: Any
    size: int  # number of items

    def part(self, start: int, length: int) -> _Batch:
        """`length` items from `start` on."""
        pairs = zip(self.leaves, self.dims, strict=True)
        leaves = [leaf if dim is None else leaf.narrow(dim, start, length) for leaf, dim in pairs]
        return self._replace(leaves=leaves, size=length)


class _Call(NamedTuple):
    """A function that is called once for a whole batch."""

    func: Callable[..., Any]
    kwargs: dict[str, Any]
    out_dims: Any
    randomness: str

    def run(self, batch: _Batch, uniform: bool = False) -> Any:
        """The results for all items; `uniform`: what is not batched is the same for every item."""
        with Level("vmap", batch.size, self.randomness, uniform) as level:
            pairs = list(zip(batch.leaves, batch.dims, strict=True))
            moved = [leaf.movedim(dim, 0) if dim else leaf for leaf, dim in pairs]
            given = [
                leaf if dim is None else batched(leaf, level.number)
                for leaf, dim in zip(moved, batch.dims, strict=True)
            ]
            made = self.func(*tree_unflatten(given, batch.structure), **self.kwargs)
        return _outputs(self.func, made, self.out_dims, level.number, batch.size)

    def run_chunks(self, batch: _Batch, chunk: int) -> Any:
        """The results for `chunk` items at a time, joined along the dims where the batch stands in them."""
        states = []
        if self.randomness == "same":
            devices = {leaf.device for leaf in batch.leaves if not leaf.is_meta}
            states = [(generator, generator.get_state()) for generator in default_generators(devices)]
        rows, shape = [], None
        for start in range(0, batch.size, chunk):
            for generator, state in states:
                generator.set_state(state)
            flat, shape = tree_flatten(self.run(batch.part(start, min(chunk, batch.size - start))))
            rows.append(flat)
        places = prefix(self.out_dims, tree_unflatten(rows[0], shape)) or [0] * len(rows[0])
        joined = [
            column[0] if dim is None else T["cat"](list(column), dim)
            for column, dim in zip(zip(*rows, strict=True), places, strict=True)
        ]
        return tree_unflatten(joined, shape)


def _inputs(func: Any, in_dims: Any, args: tuple[Any, ...]) -> _Batch:
    """The arguments as a batch."""
    where = f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{where}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no inputs. "
            "The latter is unsupported."
        )
    leaves, structure = tree_flatten(args)
    dims = prefix(in_dims, args)
    if dims is None:
        raise ValueError(
            f"{where}: in_dims is not compatible with the structure of `inputs`. in_dims has structure {spec_text(in_dims)} but inputs has structure "
            f"{spec_text(args)}."
        )
    for k, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
        dims[k] = _checked_dim(where, leaf, dim)
    sizes = [leaf.shape[dim] for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(s != sizes[0] for s in sizes):
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension"
        )
    return _Batch(leaves, dims, structure, sizes[0])


def _checked_dim(where: str, leaf: Any, dim: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(
            f"{where}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(leaf, Tensor):
        raise ValueError(
            f"{where}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over non-Tensor arguments, please use None "
            "as the respective in_dim"
        )
    if not -leaf.ndim <= dim < leaf.ndim:
        raise ValueError(
            f"{where}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.ndim} so expected in_dim to satisfy "
            f"-{leaf.ndim} <= in_dim < {leaf.ndim}."
        )
    return dim % leaf.ndim


def over_tangents(push: Callable[..., Any], tangents: Sequence[Tensor], randomness: str) -> Any:
    """`vmap` over tangents alone: all else that `push` sees is the same for every item, unless it draws other numbers
    for each.
    """
    size = tangents[0].shape[0]
    uniform = size > 0 and randomness != "different"
    batch = _Batch(list(tangents), [0] * len(tangents), tree_flatten(tuple(tangents))[1], size)
    return _Call(push, {}, 0, randomness).run(batch, uniform)


def _outputs(func: Any, made: Any, out_dims: Any, level: int, size: int) -> Any:
    leaves, structure = tree_flatten(made)
    name = name_of(func)
    if not isinstance(out_dims, int) and out_dims is not None and not isinstance(out_dims, (tuple, list, dict)):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints representing where in the outputs "
            "the vmapped dimension should appear."
        )
    dims = prefix(out_dims, made)
    if dims is None and isinstance(made, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        dims = list(out_dims)
    if dims is None:
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims has structure "
            f"{spec_text(out_dims)} but outputs has structure {spec_text(made)}."
        )
    return tree_unflatten(
        [_unbatched(name, leaf, dim, level, size) for leaf, dim in zip(leaves, dims, strict=True)], structure
    )


def _unbatched(name: str, leaf: Any, dim: int | None, level: int, size: int) -> Any:
    if dim is None:
        if isinstance(leaf, Tensor) and peeled(leaf, level) is not None:
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return leaf
    if not isinstance(leaf, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did you mean to set out_dims= to None for output?"
        )
    whole = in_front(leaf, level, size)
    return whole.movedim(0, dim) if dim else whole
