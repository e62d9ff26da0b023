"""Nested arguments of transforms: structures in words, prefixes, chosen arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.pytree import spec_text, tree_flatten, tree_unflatten
from rushlight._engine.core.tensor import Tensor

__all__ = [
    "check_argnums",
    "check_aux",
    "check_real",
    "chosen",
    "name_of",
    "prefix",
    "replaced",
    "spec_text",
    "tensors_of",
]


def name_of(function: Callable[..., Any]) -> str:
    """A function's name in messages."""
    return getattr(function, "__name__", None) or repr(function)


def prefix(dims: Any, tree: Any) -> list[Any] | None:
    """One of `dims` for each leaf of `tree`, where `dims` is a single value or nested like the outer part of `tree`;
    None where it is not.
    """
    if isinstance(tree, dict) and isinstance(dims, dict):
        if dims.keys() != tree.keys():
            return None
        pairs = [(dims[k], item) for k, item in tree.items()]
    elif isinstance(tree, (tuple, list)) and isinstance(dims, (tuple, list)):
        if len(dims) != len(tree) or type(dims) is not type(tree):
            return None
        pairs = list(zip(dims, tree, strict=True))
    elif isinstance(dims, (tuple, list, dict)):
        return None
    else:
        return [dims] * len(tree_flatten(tree)[0])
    found: list[Any] = []
    for one, item in pairs:
        part = prefix(one, item)
        if part is None:
            return None
        found += part
    return found


def check_argnums(argnums: Any, count: int) -> None:
    """RuntimeError where `argnums` names no arguments."""

    def check(n: Any) -> None:
        if not isinstance(n, int):
            raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(n)}")
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")

    if isinstance(argnums, tuple):
        if not argnums:
            raise RuntimeError("argnums must be non-empty")
        if len({n % count if isinstance(n, int) and count else n for n in argnums}) != len(argnums):
            raise RuntimeError(f"argnums elements must be unique, got {argnums}")
        for n in argnums:
            check(n)
    else:
        check(argnums)


def chosen(args: Sequence[Any], argnums: Any, as_tuple: bool = False) -> Any:
    """The arguments that `argnums` names: one, or a tuple."""
    check_argnums(argnums, len(args))
    if isinstance(argnums, int):
        return (args[argnums],) if as_tuple else args[argnums]
    return tuple(args[n] for n in argnums)


def replaced(args: Sequence[Any], argnums: Any, values: Any) -> list[Any]:
    """The arguments with others in the places that `argnums` names."""
    made = list(args)
    for n, value in zip(
        [argnums] if isinstance(argnums, int) else argnums,
        [values] if isinstance(argnums, int) else values,
        strict=True,
    ):
        made[n] = value
    return made


def check_real(what: str, leaves: Sequence[Any], side: str) -> None:
    """RuntimeError where one of the leaves is complex: a Jacobian is one of real numbers."""
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.dtype.is_complex:
            raise RuntimeError(
                f"{what}: Expected all {side}s to be real but received complex tensor at flattened {side} idx: {i}"
            )


def check_aux(aux: Any) -> None:
    """RuntimeError where what a function gives besides its result holds anything but tensors."""
    for leaf in tree_flatten(aux)[0]:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(leaf)}")


def tensors_of(tree: Any, what: str, *, whole: bool = True) -> tuple[list[Any], Any]:
    """Leaves and structure; RuntimeError naming `what` where a leaf is no tensor."""
    leaves, structure = tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{what}, got unsupported type {type(leaf)}")
    return leaves, structure


__all__ += ["tree_flatten", "tree_unflatten"]
