"""Whole batches into micro-batches, and back.

>>> import rushlight as torch
>>> from rushlight.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks
>>> args, kwargs = split_args_kwargs_into_chunks((torch.arange(5), "mean"), {"w": torch.ones(5)}, 2)
>>> args
[(tensor([0, 1, 2]), 'mean'), (tensor([3, 4]), 'mean')]
>>> merge_chunks([first for first, _ in args], None)
tensor([0, 1, 2, 3, 4])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.utils import _pytree as pytree

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]


class TensorChunkSpec:
    """A tensor is divided along `split_dim`; chunks differ by at most one."""

    split_dim: int

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{self}".replace("rushlight.", "torch.", 1)

    def __str__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        """A spec for each dim in a tuple."""
        return pytree.tree_map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        """A spec for each dim in a dict."""
        return pytree.tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """Every micro-batch gets the whole value."""


class _CustomReducer:
    """Outputs of micro-batches are folded: `reduce_fn(so far, next)`, from `init_value`."""

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


class _LossReducer(_CustomReducer):
    """A `_CustomReducer` for losses."""


sum_reducer = _LossReducer(rushlight.tensor(0.0), lambda a, b: a + b)


def _leaf(value: Any) -> bool:
    return isinstance(value, (TensorChunkSpec, _Replicate, _CustomReducer))


def _chunks(value: Any, spec: Any, count: int) -> Sequence[Any]:
    """One value as `count` values."""
    if spec is _Replicate or isinstance(spec, _Replicate) or not isinstance(value, Tensor):
        return [value] * count
    if not isinstance(spec, TensorChunkSpec):
        raise AssertionError(f"Expected TensorChunkSpec, got {type(spec)}")
    return value.tensor_split(count, spec.split_dim)


def _specs_of(value: Any, spec: Any, where: str) -> tuple[list[Any], list[Any], Any]:
    """The leaves of a value, a spec for each, and the tree."""
    leaves, tree = pytree.tree_flatten(value)
    if spec is None:
        return leaves, [TensorChunkSpec(0) if isinstance(leaf, Tensor) else _Replicate() for leaf in leaves], tree
    found, _ = pytree.tree_flatten(spec, is_leaf=_leaf)
    if len(found) != len(leaves):
        raise ValueError(f"{where} holds {len(leaves)} values, but its spec is for {len(found)}: {spec}")
    return leaves, found, tree


def _divided(value: Any, spec: Any, count: int, where: str) -> list[Any]:
    leaves, specs, tree = _specs_of(value, spec, where)
    columns = [_chunks(leaf, each, count) for leaf, each in zip(leaves, specs, strict=True)]
    return [pytree.tree_unflatten([column[k] for column in columns], tree) for k in range(count)]


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: Any = None,
    kwargs_chunk_spec: Any = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """Arguments of a call as lists of positional and named arguments of `chunks` calls.

    Tensors are divided as a spec of the same structure says, by default along dim 0; other values go to each.  Fewer
    calls come back where a tensor is shorter.  ValueError for a spec of another structure.
    """
    kwargs = kwargs or {}
    pairs = [(args, args_chunk_spec, "args"), (kwargs, kwargs_chunk_spec, "kwargs")]
    for value, spec, where in pairs:
        leaves, specs, _ = _specs_of(value, spec, where)
        for leaf, each in zip(leaves, specs, strict=True):
            if isinstance(leaf, Tensor) and isinstance(each, TensorChunkSpec):
                if not leaf.ndim:
                    raise IndexError(f"Dimension specified as {each.split_dim} but tensor has no dimensions")
                chunks = min(chunks, max(leaf.shape[each.split_dim], 1))
    found = [_divided(value, spec, chunks, where) for value, spec, where in pairs]
    return found[0], found[1]


def merge_chunks(chunks: list[Any], chunk_spec: Any) -> Any:
    """The outputs of micro-batches as one: tensors are joined along the dim of their spec (by default 0), a replicated
    value must be the same for all, and a reducer folds.
    """
    if not chunks:
        raise ValueError("there are no chunks to merge")
    rows = [pytree.tree_flatten(chunk)[0] for chunk in chunks]
    _, specs, tree = _specs_of(chunks[0], chunk_spec, "output")
    merged = []
    for k, spec in enumerate(specs):
        values = [row[k] for row in rows]
        if isinstance(spec, TensorChunkSpec):
            merged.append(rushlight.cat(values, dim=spec.split_dim))
        elif isinstance(spec, _CustomReducer):
            total = spec.init_value
            for value in values:
                total = spec.reduce_fn(total, value)
            merged.append(total)
        else:
            if any(type(v) is not type(values[0]) or not _same(v, values[0]) for v in values):
                raise ValueError(f"Cannot merge chunks with different values: {values}")
            merged.append(values[0])
    return pytree.tree_unflatten(merged, tree)


def _same(a: Any, b: Any) -> bool:
    return bool(rushlight.equal(a, b)) if isinstance(a, Tensor) else bool(a == b)
