"""First-class dims, as the package `functorch.dim`: dims are objects, and tensors are indexed by them.

>>> import rushlight as torch
>>> from rushlight._functorch.dim import dims
>>> def mm(a, b):
...     i, j, k = dims(3)
...     return (a[i, k] * b[k, j]).sum(k).order(i, j)
>>> a, b = torch.randn(3, 4), torch.randn(4, 5)
>>> torch.allclose(mm(a, b), a @ b)
True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight._functorch.dim import indexing
from rushlight._functorch.dim.naming import assigned_names
from rushlight._functorch.dim.objects import (
    Dim,
    DimensionBindError,
    DimensionMismatchError,
    DimList,
    FirstClass,
    Tensor,
    aligned,
    arranged,
    call,
    index,
    made,
    split,
)

__all__ = [
    "Dim",
    "DimList",
    "DimensionBindError",
    "DimensionMismatchError",
    "Tensor",
    "cat",
    "dimlists",
    "dims",
    "index",
    "softmax",
    "split",
    "stack",
]

_Tensor = FirstClass


def _several(n: int | None, sizes: Sequence[Any] | None, make: Callable[[str, Any], Any], word: str) -> Any:
    names = assigned_names(sys._getframe(2))
    wanted = n if n is not None else len(sizes) if sizes is not None else len(names)
    if not wanted and n is None and sizes is None:
        raise SyntaxError(f"{word}() must be assigned to a sequence of variable names or have argument n specified")
    if sizes is not None and len(sizes) != wanted:
        raise ValueError(f"expected {wanted} sizes but found {len(sizes)}")
    known = names if len(names) == wanted else []
    first_unknown = next((i for i, name in enumerate(known) if name is None), len(known))
    found = [
        make(str(known[i]) if i < first_unknown else f"d{i}", None if sizes is None else sizes[i])
        for i in range(wanted)
    ]
    return found[0] if wanted == 1 else tuple(found)


def dims(n: int | None = None, sizes: Sequence[int | None] | None = None) -> Any:
    """Dims named after the variables that they are assigned to: `i, j = dims()`; one alone is no tuple.  `sizes` binds
    them.
    """
    return _several(n, sizes, lambda name, size: Dim(name, -1 if size is None else size), "dims")


def dimlists(n: int | None = None, sizes: Sequence[Any] | None = None) -> Any:
    """Lists of dims; a size is a number of dims or a list of sizes."""
    return _several(n, sizes, lambda name, size: DimList(size, name), "dimlists")


def stack(tensors: Sequence[Any], new_dim: Any, dim: Any = 0) -> Any:
    """The tensors along `new_dim`, which is bound to how many they are."""
    if not len(tensors):
        raise ValueError("stack expects a non-empty sequence of tensors")
    if not isinstance(new_dim, Dim):
        return call(rushlight.stack, (list(tensors),), {"dim": new_dim})
    every = tuple(dict.fromkeys(d for each in tensors for d in arranged(each)[0]))
    if isinstance(dim, Dim) and dim not in set(every):
        raise TypeError(f"Dimension {dim} does not exist in inputs")
    new_dim.size = len(tensors)
    lying = [aligned(each, every) for each in tensors]
    shape = rushlight.broadcast_shapes(*(each.shape for each in lying))
    return made((new_dim, *every), rushlight.stack([each.expand(shape) for each in lying], 0))


def cat(tensors: Sequence[Any], dim: Any, new_dim: Dim) -> Any:
    """The tensors one after the other along `dim`, which is `new_dim` in the result."""
    along = Dim("n")
    return stack(tensors, along, dim).index([(along, dim)], [new_dim])


def softmax(input: Any, dim: Any, *args: Any, **kwargs: Any) -> Any:
    """See `torch.nn.functional.softmax`."""
    return call(rushlight.nn.functional.softmax, (input, dim, *args), kwargs)


def give_tensors_index() -> None:
    """Make `index` a method of plain tensors too, as `import functorch.dim` does."""
    rushlight.Tensor.index = index  # type: ignore[attr-defined]
