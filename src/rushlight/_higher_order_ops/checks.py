"""Checks of functions given to `cond`, `while_loop`, `scan`, `map`: no changes of their arguments, results that
share no memory with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import rushlight
from rushlight._interface.functorch import BatchedTensor, root
from rushlight._interface.tensors import STATE
from rushlight.compiler import is_compiling
from rushlight.compiler.errors import UncapturedHigherOrderOpError
from rushlight.utils._pytree import tree_flatten

__all__ = [
    "batched",
    "differ",
    "holds_for_any",
    "kept_to",
    "leaves_of",
    "refuse_uncaptured",
    "same_metadata",
    "writing",
]

_FIRST = "This higher order operator doesn't work unless it is captured completely with torch.compile. Got graph break/error:"


def refuse_uncaptured(operator: str, title: str, explanation: str) -> NoReturn:
    """Raise the error of a function that such an operator cannot take."""
    raise UncapturedHigherOrderOpError(
        f"{_FIRST}\n\n{title}\n  Higher Order Operator: {operator}\n  Explanation: {explanation}"
    )


def writing(name: str) -> Any:
    """The mode that writes down this kind of control flow as an operator with graphs; None for none."""
    return next((m for m in reversed(STATE.dispatch_modes) if name in getattr(m, "controls", ())), None)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts."""
    return list(tree_flatten(tree)[0])


def batched(value: Any) -> bool:
    """Whether a tensor has a batch of values here, one for each item of a `vmap`."""
    if not isinstance(value, rushlight.Tensor):
        return False
    bottom = root(value)
    while value is not bottom:
        if isinstance(value, BatchedTensor):
            return True
        value = value.below
    return False


def holds_for_any(value: Any) -> bool:
    """Whether a condition holds for any item of the batches that it has."""
    return bool(root(value).any())


def kept_to(operator: str, function: Callable[..., Any], arguments: Sequence[Any], others: Sequence[Any] = ()) -> Any:
    """Result of a checked function; `UncapturedHigherOrderOpError` where it changed an argument, or gives one or a view of
    one.

    Where the program is being captured nothing is checked: there the graph says it.
    """
    if is_compiling():
        return function(*arguments)
    given = [leaf for leaf in leaves_of((arguments, others)) if isinstance(leaf, rushlight.Tensor)]
    versions = [None if batched(leaf) or leaf.is_inference() else leaf._version for leaf in given]
    found = function(*arguments)
    for leaf, version in zip(given, versions, strict=True):
        if version is not None and leaf._version != version:
            refuse_uncaptured(
                operator,
                "Encountered input mutation during higher order op tracing",
                "Higher order ops do not support input mutation.",
            )
    owners = {_address(leaf) for leaf in given} - {None}
    for leaf in leaves_of(found):
        if isinstance(leaf, rushlight.Tensor) and _address(leaf) in owners:
            refuse_uncaptured(
                operator,
                "Encountered aliasing during higher order op tracing",
                "Higher order ops do not support aliasing: a result is an argument or a view of one. Consider using the debug context to change "
                "user code to avoid aliasing (return a clone).",
            )
    return found


def _address(leaf: Any) -> int | None:
    """Where a tensor's memory is; None for batches and tensors without elements."""
    if leaf.numel() == 0 or batched(leaf) or leaf.layout != rushlight.strided:
        return None
    try:
        return leaf.untyped_storage().data_ptr()
    except RuntimeError:
        return None


def differ(one: Any, two: Any) -> str:
    """In which of shape, dtype, device two tensors differ, as text; empty where they agree."""
    words = []
    for word in ("shape", "dtype", "device"):
        mine, theirs = getattr(one, word), getattr(two, word)
        if mine != theirs:
            words.append(f"'{word}: {mine} vs {theirs}'")
    return ", ".join(words)


def same_metadata(operator: str, first: str, one: Sequence[Any], second: str, two: Sequence[Any]) -> None:
    """`UncapturedHigherOrderOpError` unless two lists of values have the same length and agree in shapes, dtypes and
    devices.
    """
    if len(one) != len(two):
        raise UncapturedHigherOrderOpError(
            f"Expected {first} and {second} to have same number of outputs but got lhs:{list(one)} and rhs:{list(two)}\n"
            f"  Higher Order Operator: {operator}"
        )
    pairs = []
    for index, (mine, theirs) in enumerate(zip(one, two, strict=True)):
        tensors = isinstance(mine, rushlight.Tensor) and isinstance(theirs, rushlight.Tensor)
        if tensors and (text := differ(mine, theirs)):
            pairs.append(
                f"pair[{index}] differ in {text}, where lhs is {_described(mine)} and rhs is {_described(theirs)}"
            )
    if pairs:
        raise UncapturedHigherOrderOpError(
            f"Expected {first} and {second} to have same metadata but found:\n"
            + "\n".join(pairs)
            + f"\n  Higher Order Operator: {operator}"
        )


def _described(x: Any) -> str:
    return f"Tensor(size={tuple(x.shape)}, dtype={x.dtype})"
