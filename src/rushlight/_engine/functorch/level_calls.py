"""Operators under a level of `vmap` or of forward mode, as dispatch modes and classes see them: one call each.

Modes lie below all levels, so they are told of the tensors inside.  The derived operator that would run has no name
among the operators that they know, and belongs to the sizes at hand; a `LevelCall` derives it anew when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.pytree import tree_flatten, tree_unflatten
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor, dispatch_classes
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.functorch.transformed import Transformed, root, tensors_in, top_level

__all__ = ["LevelCall", "are_looked_on", "level_call"]


def are_looked_on(values: Any) -> bool:
    """Whether a dispatch mode or class would be asked about a call with these arguments."""
    if STATE.dispatch_off:
        return False
    return bool(STATE.dispatch_modes) or bool(
        dispatch_classes and any(type(root(x)) in dispatch_classes for x in tensors_in(values))
    )


class _Row:
    """The fields of a table operator that dispatch reads."""

    spaces: tuple[str, ...] = ()

    class schema:
        arguments: tuple[Any, ...] = ()

    def __init__(self, name: str, kind: str) -> None:
        self.name = self.public = name
        self.kind = kind


class LevelCall:
    """A function under one level: `mask` marks the leaves of its arguments that belong to the level.

    A call takes the leaves in order, each batch with its items along the first dim; in forward mode the tangents of the
    marked leaves follow, and the results are values, then a tangent or None for each.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, kind: type[Transformed], mask: Sequence[bool], tree: Any
    ) -> None:
        self.function, self.kind, self.mask, self.tree = function, kind, mask, tree
        self.__name__, self.operator = name, _Row(name, getattr(getattr(function, "operator", None), "kind", ""))

    def __call__(self, *leaves: Any) -> Any:
        if not are_looked_on(leaves):
            return self.run(*leaves)
        top = top_level(leaves)
        if top is not None:  # the call is one of a level below
            return type(top).at_level(top.level, self, leaves, {})
        handled, made = HOOKS.below(self, leaves, {})
        return made if handled else self.run(*leaves)

    def run(self, *leaves: Any) -> Any:
        """Open a level, and call the function in it."""
        return self.kind.under_level(self, leaves)

    def with_leaves(self, leaves: Sequence[Any]) -> Any:
        """Call the function with arguments of these leaves."""
        args, kwargs = tree_unflatten(list(leaves), self.tree)
        return self.function(*args, **kwargs)

    def whole(self, *leaves: Any) -> Any:
        """Apply a view function to the whole batch; NotImplemented without a rule for it."""
        rule = _VIEWS.get(getattr(getattr(self.function, "operator", None), "name", ""))
        (x, *args), kwargs = tree_unflatten(list(leaves), self.tree)
        if rule is None or kwargs or not self.mask[0] or any(self.mask[1:]):
            return NotImplemented
        try:
            found = rule(x.ndim - 1, x.shape[0], *args)
        except (TypeError, ZeroDivisionError):  # arguments in another form
            return NotImplemented
        return NotImplemented if found is None else self.function(x, *found)

    def aligned(self, *leaves: Any) -> Any:
        """Apply a pointwise function to whole batches; NotImplemented where dtypes differ, since items without
        dims count less in promotion than their batch would.
        """
        pairs = [(x, m) for x, m in zip(leaves, self.mask, strict=False) if isinstance(x, Tensor)]
        if len(leaves) != len(self.mask) or len({x.dtype for x, _ in pairs}) > 1:
            return NotImplemented
        most = max(x.ndim - m for x, m in pairs)
        given = list(leaves)
        for i, (x, m) in enumerate(zip(leaves, self.mask, strict=True)):
            if m and x.ndim - 1 < most:
                given[i] = x.reshape((x.shape[0], *[1] * (most - x.ndim + 1), *x.shape[1:]))
        return self.with_leaves(given)


def _shifted(dim: int, rank: int) -> int:
    return dim % rank + 1


# How operators that show an item otherwise show the whole batch: by the tensor's rank as an item, their arguments.
_VIEWS: dict[str, Callable[..., tuple[Any, ...] | None]] = {
    "basic_index": lambda rank, size, items: ((("s", None, None, 1), *items),),
    "expand": lambda rank, size, sizes: ((size, *sizes),) if len(sizes) == rank else None,
    "narrow": lambda rank, size, dim, start, length: (_shifted(dim, rank), start, length),
    "permute": lambda rank, size, dims: ((0, *[_shifted(d, rank) for d in dims]),),
    "select": lambda rank, size, dim, index: (_shifted(dim, rank), index),
    "transpose": lambda rank, size, one, two: (_shifted(one, rank), _shifted(two, rank)),
    "unsqueeze": lambda rank, size, dim: (_shifted(dim, rank + 1),),
    "view": lambda rank, size, sizes: ((size, *sizes),),
}


_FUNCTIONS: dict[int, tuple[Any, Any]] = {}  # operators by identity, kept with their functions
_CALLS: dict[Any, LevelCall] = {}


def level_call(
    kind: type[Transformed], called: Any, args: Sequence[Any], kwargs: dict[str, Any], inside: Callable[[Any], Any]
) -> tuple[LevelCall, list[Any]]:
    """A call of an operator, or of another `LevelCall`, as one of a level; `inside(x)` is the tensor inside of an
    argument that belongs to the level, else None.  The leaves are those of the arguments, with what is inside.
    """
    leaves, tree = tree_flatten((tuple(args), dict(kwargs)))
    held = [inside(x) if isinstance(x, Tensor) else None for x in leaves]
    mask = tuple([x is not None for x in held])
    if isinstance(called, LevelCall):
        function, name = called, called.__name__
    else:
        if id(called) not in _FUNCTIONS:
            _FUNCTIONS[id(called)] = called, make_function(Caller(called))
        function, name = _FUNCTIONS[id(called)][1], called.name
    key = (function, kind, mask, repr(tree))
    made = _CALLS.get(key)
    if made is None:
        made = _CALLS[key] = LevelCall(function, f"{kind.level_name}_{name}", kind, mask, tree)
    return made, [x if v is None else v for x, v in zip(leaves, held, strict=True)]
