"""Values, operations, regions and kernels of the block IR.

The form is structured SSA: an operation has operands, results, attributes, and for control flow regions.  A region has
parameters, and ends with `yield`.  A value is visible in the region that defines it and in the regions within.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .types import Tile

__all__ = ["Kernel", "Line", "Op", "Region", "Value"]

Line = tuple[str, int]  # the file and the line of the program's source


class Value:
    """A tile: the result of an operation, or a parameter of a region.  `name` is a hint for readers."""

    __slots__ = ("name", "op", "type")

    def __init__(self, type: Tile, op: Op | None = None, name: str = "") -> None:
        self.type, self.op, self.name = type, op, name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type!r}"


class Op:
    """One operation; `kind` is a name in `OPS`, which says what operands, attributes and regions mean."""

    __slots__ = ("attributes", "kind", "line", "operands", "regions", "results")

    def __init__(
        self,
        kind: str,
        operands: Sequence[Value],
        results: Sequence[Tile],
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[Region] = (),
        line: Line | None = None,
    ) -> None:
        self.kind, self.operands, self.attributes = kind, list(operands), dict(attributes or {})
        self.regions, self.line = list(regions), line
        self.results = [Value(type, self) for type in results]

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def __repr__(self) -> str:
        return f"Op({self.kind!r}, {self.operands!r})"


class Region:
    """Operations in order; the last is `yield`, whose operands are what the region gives."""

    __slots__ = ("ops", "params")

    def __init__(self, params: Sequence[Value] = (), ops: Sequence[Op] = ()) -> None:
        self.params, self.ops = list(params), list(ops)

    @property
    def yielded(self) -> list[Value]:
        """The operands of the final `yield`."""
        return self.ops[-1].operands

    def walk(self) -> Iterator[Op]:
        """All operations, those of inner regions after the operation that holds them."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


class Kernel:
    """A kernel: `body.params` are its arguments, scalars (numbers or pointers).

    `divisible` gives for parameters a number that divides their value (an address in bytes, or an integer): emitters may
    count on it, and launchers check it.  `warps` is a wish for GPUs; the emitter for x86 takes no notice of it.
    """

    __slots__ = ("body", "divisible", "line", "name", "stages", "warps")

    def __init__(
        self,
        name: str,
        body: Region,
        *,
        divisible: Mapping[int, int] | None = None,
        warps: int = 4,
        stages: int = 2,
        line: Line | None = None,
    ) -> None:
        self.name, self.body, self.divisible = name, body, dict(divisible or {})
        self.warps, self.stages, self.line = warps, stages, line

    @property
    def params(self) -> list[Value]:
        return self.body.params
