"""Building packages and libraries of a function, or a module, and example arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from rushlight._backends.registry import backend_of
from rushlight._base.errors import PackageError
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import no_grad
from rushlight._packages.package_file import write_package
from rushlight._packages.program import Program, captured
from rushlight._packages.trees import built, packed_tree
from rushlight._types.device import CPU

__all__ = ["Built", "build"]


class Built(NamedTuple):
    """A program with its code: `in_trees` and `out_tree` say where its tensors stand among arguments and results."""

    name: str
    program: Program
    variants: list[Any]
    in_trees: tuple[Any, Any]
    out_tree: Any

    def library(self, embedded: bool = True) -> bytes:
        """The shared library, with or without the weights."""
        program = self.program
        made: bytes = backend_of(CPU).ahead.linked_library(
            self.name, self.variants, program.call, program.weights if embedded else None
        )
        return made

    def header(self) -> str:
        """The header of the library."""
        text: str = backend_of(CPU).ahead.header_text(self.name, self.program.call)
        return text

    def write(self, path: str | os.PathLike[str]) -> str:
        """Write the package; its path."""
        table = {
            "name": self.name, "levels": [v.level for v in self.variants],
            "inputs": [[t.name, t.dtype, list(t.shape)] for t in self.program.call.inputs],
            "outputs": [[t.name, t.dtype, list(t.shape)] for t in self.program.call.outputs],
            "in_trees": list(self.in_trees), "out_tree": self.out_tree,
        }  # fmt: skip
        write_package(os.fspath(path), table, self.library(embedded=False), self.program.weights)
        return os.fspath(path)

    def write_library(self, path: str | os.PathLike[str]) -> tuple[str, str]:
        """Write the shared library with its weights, and the header beside it; their paths."""
        header = Path(path).with_name(f"{self.name}.h")
        for place, content in ((Path(path), self.library()), (header, self.header().encode())):
            temporary = place.with_name(f"{place.name}.{os.getpid()}.part")
            temporary.write_bytes(content)
            temporary.replace(place)
        return os.fspath(path), os.fspath(header)


def build(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "model",
    levels: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    named: Mapping[int, str] | None = None,
) -> Built:
    """The program of `function(*args, **kwargs)` without gradients, compiled for some kinds of processors.

    Tensors among the arguments are its inputs, everything else stays as it is here; tensors that it reads otherwise are
    weights.  PackageError where that is not possible, with the reason.
    """
    if not name.isidentifier() or not name.isascii():
        raise PackageError(f"{name!r} is no name in C")
    ahead = backend_of(CPU).ahead
    usable = ahead.usable_levels()
    wanted = [level for level in usable if levels is None or level in levels]
    unknown = [level for level in levels or () if level not in usable]
    if unknown or not wanted:
        raise PackageError(
            f"no code can be made here for {', '.join(unknown) or 'no processor'}: this machine runs {', '.join(usable)}"
        )
    tensors: list[Tensor] = []
    in_trees = packed_tree(tuple(args), _is_tensor, tensors), packed_tree(dict(kwargs or {}), _is_tensor, tensors)
    out_trees: list[Any] = []

    def flat(*given: Tensor) -> list[Tensor]:
        leaves: list[Tensor] = []
        result = function(*built(in_trees[0], given), **built(in_trees[1], given))
        out_trees.append(packed_tree(result, _is_tensor, leaves))
        return leaves

    with no_grad():
        program = captured(flat, tensors, _names(function, in_trees, len(tensors)), None, named, options)
    return Built(name, program, ahead.make_variants(program.request, wanted), in_trees, out_trees[-1])


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
