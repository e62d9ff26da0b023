"""Packages of exported programs, whose sizes are symbols with ranges, and of modules and functions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight._backends.ahead import SizeRange
from rushlight._base.errors import PackageError
from rushlight._packages.building import Built, Sizes, build

__all__ = ["build_program"]

_UNBOUNDED = 1 << 40
_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__, ast.FloorDiv: int.__floordiv__, ast.Mod: int.__mod__, ast.Pow: int.__pow__,
}  # fmt: skip


def build_program(
    program: Any,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    *,
    name: str,
    levels: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    limits: Mapping[str, tuple[int, int]] | None = None,
) -> Built:
    """Result of `build` for an exported program, which knows its arguments and sizes, and keeps nothing, or of a module or
    function.

    `limits` are narrower ranges for sizes of the program, by name: those that calls will have.
    """
    sizes, exported = None, hasattr(program, "graph_signature") and hasattr(program, "module")
    if exported:
        given, by_name = program.example_inputs
        args, kwargs = (given, by_name) if args is None else (args, kwargs)
        sizes = exported_sizes(program, limits or {})
        program = program.module()
    elif limits:
        raise PackageError("sizes vary in exported programs alone: torch.export.export(..., dynamic_shapes=...)")
    if args is None:
        raise TypeError("a module or a function is packaged with example arguments: give args")
    named: dict[int, str] = {}
    if hasattr(program, "named_parameters") and hasattr(program, "named_buffers"):
        named = {id(x): key for key, x in (*program.named_parameters(), *program.named_buffers())}
    return build(
        program, args, kwargs, name=name, levels=levels, options=options, named=named, sizes=sizes, keeps=not exported
    )


def exported_sizes(program: Any, limits: Mapping[str, tuple[int, int]]) -> Sizes | None:
    """The sizes of an exported program within limits; None where none varies.

    RuntimeError for a symbol without a greatest value, for formulas of inputs' sizes that are not arithmetic, and for limits
    of a size that is not there, or outside of its range.
    """
    names = set(program.graph_signature.user_inputs)
    inputs = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    shapes = [
        [_formula(n) for n in node.meta["val"].shape] for node in inputs if hasattr(node.meta.get("val"), "shape")
    ]
    used = sorted({name for shape in shapes for n in shape if not isinstance(n, int) for name in _names(n)})
    unknown = sorted(limits.keys() - set(used))
    if unknown:
        raise PackageError(
            f"the program has no size {', '.join(unknown)}: its sizes are {', '.join(used) or 'all fixed'}"
        )
    if not used:
        return None
    bounds = {str(symbol): bound for symbol, bound in program.range_constraints.items()}
    ranges = []
    for name in used:
        least, most = bounds[name].lower, bounds[name].upper
        if name in limits:
            lower, upper = limits[name]
            if not least <= lower <= upper <= most:
                raise PackageError(
                    f"the size {name} is from {least} to {most} in this program, not from {lower} to {upper}"
                )
            least, most = lower, upper
        if not most < _UNBOUNDED:
            raise PackageError(
                f"the size {name} has no greatest value, and a package is planned for each: give torch.export.Dim a max, or the "
                f"command --size {name}=LEAST:MOST"
            )
        ranges.append(SizeRange(name, int(least), int(most)))

    def shapes_at(choice: Sequence[int]) -> list[Sequence[int]]:
        values = dict(zip(used, choice, strict=True))
        return [[n if isinstance(n, int) else _value(n, values) for n in shape] for shape in shapes]

    return Sizes(ranges, shapes_at)


def _formula(size: Any) -> int | ast.expr:
    """A size as a number, or as an expression over symbols."""
    if type(size) is int:
        return size
    return ast.parse(str(size), mode="eval").body


def _names(expression: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(expression) if isinstance(node, ast.Name)]


def _value(expression: ast.expr, values: Mapping[str, int]) -> int:
    """The value of an expression."""
    if isinstance(expression, ast.Constant) and type(expression.value) is int:
        return expression.value
    if isinstance(expression, ast.Name):
        return values[expression.id]
    if isinstance(expression, ast.BinOp) and type(expression.op) in _OPERATIONS:
        return _OPERATIONS[type(expression.op)](_value(expression.left, values), _value(expression.right, values))
    raise PackageError(f"the size {ast.unparse(expression)} of an input is no arithmetic of sizes")
