"""`rearrange`: dims moved, merged and split as a pattern of names says."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["rearrange"]


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Tensor:
    """`tensor` with its dims as `pattern` says: `"b c h w -> b (c h) w"`.

    Names stand for dims, `( )` merges (or splits, on the left) dims, `...` stands for all others, `1` for a dim of size
    1.  `axes_lengths` gives sizes that a split leaves open.  A list of tensors is stacked first.  ValueError for
    patterns that do not fit.

        >>> import rushlight as torch
        >>> torch.func.rearrange(torch.arange(6).reshape(2, 3), "a b -> (b a)")
        tensor([0, 3, 1, 4, 2, 5])
    """
    x: Any = tensor if isinstance(tensor, Tensor) else rushlight.stack(list(tensor))
    left_text, arrow, right_text = pattern.partition("->")
    if not arrow or "->" in right_text:
        raise ValueError(f"rearrange: the pattern must have one '->': {pattern!r}")
    left, right = _parse(left_text, pattern), _parse(right_text, pattern)
    left = _spelled(left, x.ndim, pattern)
    held = [n for group in left for n in group if n.startswith("...")]
    right = (
        [[m for n in group for m in (held if n == "..." else [n])] for group in right]
        if ["..."] not in right
        else [
            part
            for group in right
            for part in (
                [[h] for h in held] if group == ["..."] else [[m for n in group for m in (held if n == "..." else [n])]]
            )
        ]
    )
    names = [n for group in left for n in group]
    kept = [n for group in right for n in group]
    if len(set(names)) != len(names) or len(set(kept)) != len(kept):
        raise ValueError(f"rearrange: a name stands twice on one side of {pattern!r}")
    if set(names) != set(kept):
        raise ValueError(
            f"rearrange: both sides must have the same names, but {sorted(set(names) ^ set(kept))} stand on one side of {pattern!r} alone"
        )
    if axes_lengths.keys() - set(names):
        raise ValueError(f"rearrange: {sorted(axes_lengths.keys() - set(names))} do not stand in {pattern!r}")
    sizes = _sizes(left, x.shape, axes_lengths, pattern)
    split = x.reshape([sizes[n] for n in names])
    moved = split.permute([names.index(n) for n in kept])
    shape = []
    for group in right:
        size = 1
        for n in group:
            size *= sizes[n]
        shape.append(size)
    return moved.reshape(shape)


def _parse(text: str, pattern: str) -> list[list[str]]:
    """One list of names for each dim."""
    groups: list[list[str]] = []
    inside: list[str] | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            if inside is not None:
                raise ValueError(f"rearrange: brackets in brackets: {pattern!r}")
            inside = []
        elif word == ")":
            if inside is None:
                raise ValueError(f"rearrange: a bracket is closed that was not opened: {pattern!r}")
            groups.append(inside)
            inside = None
        elif word == "1":
            if inside is None:
                groups.append([])
        elif word != "..." and not word.isidentifier():
            raise ValueError(f"rearrange: {word!r} is no name of a dim: {pattern!r}")
        elif inside is None:
            groups.append([word])
        else:
            inside.append(word)
    if inside is not None:
        raise ValueError(f"rearrange: a bracket is not closed: {pattern!r}")
    return groups


def _spelled(groups: list[list[str]], ndim: int, pattern: str) -> list[list[str]]:
    """The left side with a name of its own for each dim that `...` stands for."""
    rest = ndim - sum(group != ["..."] for group in groups)
    if any("..." in group and group != ["..."] for group in groups) or sum(group == ["..."] for group in groups) > 1:
        raise ValueError(f"rearrange: on the left '...' stands once, without brackets: {pattern!r}")
    if rest < 0 or (rest and ["..."] not in groups):
        raise ValueError(f"rearrange: the pattern {pattern!r} does not fit a tensor with {ndim} dims")
    return [part for group in groups for part in ([[f"...{k}"] for k in range(rest)] if group == ["..."] else [group])]


def _sizes(left: list[list[str]], shape: Any, given: dict[str, int], pattern: str) -> dict[str, int]:
    sizes = dict(given)
    for group, size in zip(left, shape, strict=True):
        known = 1
        for n in group:
            known *= given.get(n, 1)
        unknown = [n for n in group if n not in given]
        if len(unknown) > 1:
            raise ValueError(f"rearrange: the sizes of {unknown} in {pattern!r} are not known")
        if unknown:
            if not known or size % known:
                raise ValueError(f"rearrange: a dim of size {size} cannot be split as {pattern!r} and {given} say")
            sizes[unknown[0]] = size // known
        elif known != size:
            raise ValueError(f"rearrange: a dim of size {size} is not {group} with {given} in {pattern!r}")
    return sizes
