"""Building packages and libraries of a function, or a module, and example arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from rushlight._backends.ahead import CallLayout, SizeRange, TensorInfo
from rushlight._backends.registry import backend_of
from rushlight._base.errors import PackageError
from rushlight._engine.core.memory import empty_spec
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import no_grad
from rushlight._packages.package_file import write_package
from rushlight._packages.program import Names, WeightStore, captured
from rushlight._packages.trees import built, packed_tree
from rushlight._types.device import CPU
from rushlight._types.layout import contiguous_strides
from rushlight._types.spec import Spec

__all__ = ["Built", "SizeRange", "Sizes", "build"]


MOST_CHOICES = 1024  # of sizes


class Built(NamedTuple):
    """A program with its code: `calls` are those of each choice of sizes within the `ranges`; `in_trees` and `out_tree` say
    where tensors stand among arguments and results.
    """

    name: str
    calls: list[CallLayout]
    ranges: list[SizeRange]
    weights: bytes
    variants: list[Any]
    in_trees: tuple[Any, Any]
    out_tree: Any

    def library(self, embedded: bool = True) -> bytes:
        """The shared library, with or without the weights."""
        made: bytes = backend_of(CPU).ahead.linked_library(
            self.name, self.variants, self.calls, self.ranges, self.weights if embedded else None
        )
        return made

    def header(self) -> str:
        """The header of the library."""
        text: str = backend_of(CPU).ahead.header_text(self.name, self.calls, self.ranges)
        return text

    def write(self, path: str | os.PathLike[str]) -> str:
        """Write the package; its path."""
        table = {
            "name": self.name, "levels": [v.level for v in self.variants], "ranges": [list(r) for r in self.ranges],
            "inputs": _tensors([c.inputs for c in self.calls], self.ranges),
            "outputs": _tensors([c.outputs for c in self.calls], self.ranges),
            "in_trees": list(self.in_trees), "out_tree": self.out_tree,
        }  # fmt: skip
        write_package(os.fspath(path), table, self.library(embedded=False), self.weights)
        return os.fspath(path)

    def write_library(self, path: str | os.PathLike[str]) -> tuple[str, str]:
        """Write the shared library with its weights, and the header beside it; their paths."""
        header = Path(path).with_name(f"{self.name}.h")
        for place, content in ((Path(path), self.library()), (header, self.header().encode())):
            temporary = place.with_name(f"{place.name}.{os.getpid()}.part")
            temporary.write_bytes(content)
            temporary.replace(place)
        return os.fspath(path), os.fspath(header)


def _tensors(calls: Sequence[Sequence[TensorInfo]], ranges: Sequence[SizeRange]) -> list[Any]:
    """Tensors of all choices of sizes for the index: a dim is a number, the name of a size that it is, or "" for another
    formula of sizes.
    """
    choices = list(product(*[range(r.least, r.most + 1) for r in ranges]))
    rows = []
    for k, first in enumerate(calls[0]):
        shape: list[Any] = []
        for d, n in enumerate(first.shape):
            column = [call[k].shape[d] for call in calls]
            same = [
                r.name for j, r in enumerate(ranges) if all(c[j] == x for c, x in zip(choices, column, strict=True))
            ]
            shape.append(n if len(set(column)) == 1 and not (same and len(choices) > 1) else same[0] if same else "")
        rows.append([first.name, first.dtype, shape])
    return rows


def build(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "model",
    levels: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    named: Mapping[int, str] | None = None,
    sizes: Sizes | None = None,
    keeps: bool = True,
) -> Built:
    """The program of `function(*args, **kwargs)` without gradients, compiled for some kinds of processors.

    It is recorded; before, it runs once as it is where it may keep tensors from its first call (`keeps`).  Tensors among the
    arguments are its inputs, everything else stays as it is here; tensors that it reads otherwise are weights.  With
    `sizes` it is compiled for each choice of sizes within their ranges.  PackageError where that is not possible, with
    the reason.
    """
    if not name.isidentifier() or not name.isascii():
        raise PackageError(f"{name!r} is no name in C")
    ahead = backend_of(CPU).ahead
    wanted = _wanted(ahead.usable_levels(), levels)
    tensors: list[Tensor] = []
    in_trees = packed_tree(tuple(args), _is_tensor, tensors), packed_tree(dict(kwargs or {}), _is_tensor, tensors)
    out_trees: list[Any] = []

    def flat(*given: Tensor) -> list[Tensor]:
        leaves: list[Tensor] = []
        result = function(*built(in_trees[0], given), **built(in_trees[1], given))
        out_trees.append(packed_tree(result, _is_tensor, leaves))
        return leaves

    names, store = Names(_names(function, in_trees, len(tensors)), named or {}), WeightStore()
    requests, calls = [], []
    with no_grad():
        if keeps:
            function(*args, **(kwargs or {}))
        for given in [tensors] if sizes is None else _each(tensors, sizes):
            request, call = captured(flat, given, names, store, options)
            requests.append(request)
            calls.append(call)
    if any(tree != out_trees[0] for tree in out_trees):
        raise PackageError("the structure of the result depends on sizes")
    weights = bytes(store.data)
    ranges = [] if sizes is None else list(sizes.ranges)
    return Built(name, calls, ranges, weights, ahead.make_variants(requests, wanted), in_trees, out_trees[0])


class Sizes(NamedTuple):
    """Sizes that calls choose: `shapes` gives the shapes of all inputs for a choice."""

    ranges: Sequence[SizeRange]
    shapes: Callable[[Sequence[int]], list[Sequence[int]]]


def _wanted(usable: Sequence[str], levels: Sequence[str] | None) -> list[str]:
    """The levels to make code for, the best one first."""
    unknown = [level for level in levels or () if level not in usable]
    if unknown:
        raise PackageError(f"no code can be made here for {', '.join(unknown)}: this machine runs {', '.join(usable)}")
    return [level for level in usable if levels is None or level in levels]


def _each(tensors: Sequence[Tensor], sizes: Sizes) -> Iterator[list[Tensor]]:
    """The inputs of each choice of sizes, the last one fastest."""
    count = prod(r.most - r.least + 1 for r in sizes.ranges)
    if count > MOST_CHOICES:
        listed = ", ".join(f"{r.name} from {r.least} to {r.most}" for r in sizes.ranges)
        raise PackageError(
            f"a package is planned for each choice of sizes, of which it takes {MOST_CHOICES}: {listed} are {count} "
            "(torch.export.Dim takes min and max)"
        )
    for choice in product(*[range(r.least, r.most + 1) for r in sizes.ranges]):
        made = []
        for x, shape in zip(tensors, sizes.shapes(choice), strict=True):
            made.append(empty_spec(Spec.of(x._spec.dtype, x._spec.device, tuple(shape), contiguous_strides(shape))))
        yield made


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _names(function: Callable[..., Any], trees: tuple[Any, Any], count: int) -> list[str]:
    """A name for each tensor: the parameter that it stands at, and the place in it."""
    try:
        parameters = list(signature(getattr(function, "forward", function)).parameters)
    except (TypeError, ValueError):
        parameters = []
    names = [f"input{k}" for k in range(count)]

    def walk(tree: Any, text: str) -> None:
        if type(tree) is int:
            names[tree] = text
            return
        kind, items = tree
        if kind == "value":
            return
        for k, item in enumerate(items):
            key, inner = item if kind == "dict" else (k, item)
            walk(inner, f"{text}_{key}" if text else str(key))

    for k, item in enumerate(trees[0][1]):
        walk(item, parameters[k] if k < len(parameters) and parameters[k] != "args" else f"input{k}")
    walk(trees[1], "")
    return names
