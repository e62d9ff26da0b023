"""Control flow of whole programs: one of two programs, and a program again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._prims.record import Aval, ProgramPrimitive, never_batched, not_differentiable, prim
from rushlight._prims.samples import Samples

__all__ = ["Part", "has_derivative"]


class Part:
    """A program within a program: `graph` over the operands `picks` of the primitive, whose results are row-major.

    `reference(graph, arrays)` runs it over NumPy arrays; `pull(part, xs, mask)` is the part that takes the operands `xs`
    and cotangents of the results that `mask` names, and gives those of all operands that have a derivative.
    """

    __slots__ = ("graph", "picks", "pull", "reference")

    def __init__(
        self, graph: Any, picks: Sequence[int], reference: Callable[..., list[Any]], pull: Callable[..., Part]
    ) -> None:
        self.graph, self.picks, self.reference, self.pull = graph, tuple(picks), reference, pull

    def __repr__(self) -> str:
        return f"<part of {len(self.graph.nodes)} nodes>"

    @property
    def avals(self) -> list[Aval]:
        """Shapes and dtypes of the results."""
        return [(v.shape, v.dtype) for v in self.graph.outputs]

    def over(self, arrays: Sequence[Any]) -> list[Any]:
        """The results for all operands of the primitive."""
        return self.reference(self.graph, [arrays[k] for k in self.picks])


def _conditional_spec(taken: Any, *xs: Any, parts: tuple[Part, Part]) -> list[Aval]:
    if taken.shape or taken.dtype.name != "bool":
        raise TypeError("prim.conditional takes one bool first")
    if parts[0].avals != parts[1].avals:
        raise ValueError("the parts of prim.conditional give results of other shapes or dtypes")
    return parts[0].avals


def _conditional_vjp(cts: Any, outs: Any, taken: Any, *xs: Any, parts: tuple[Part, Part]) -> tuple[Any, ...]:
    mask = [ct is not None for ct in cts]
    given = [ct for ct in cts if ct is not None]
    pulled = tuple(part.pull(part, xs, mask) for part in parts)
    found = iter(prim.conditional(taken, *xs, *given, parts=pulled))
    return None, *[next(found) if has_derivative(x) else None for x in xs]


def has_derivative(x: Any) -> bool:
    """Whether values of a dtype have derivatives."""
    return bool(x.dtype.is_floating_point or x.dtype.is_complex)


def _loop_spec(*xs: Any, count: int, parts: tuple[Part, Part]) -> list[Aval]:
    ahead, body = parts
    if [(x.shape, x.dtype) for x in xs[:count]] != body.avals or len(ahead.avals) != 1:
        raise ValueError("prim.loop carries results of other shapes or dtypes than it begins with")
    return body.avals


def _loop(*arrays: Any, count: int, parts: tuple[Part, Part]) -> tuple[Any, ...]:
    carried, rest = list(arrays[:count]), list(arrays[count:])
    while bool(parts[0].over([*carried, *rest])[0]):
        carried = parts[1].over([*carried, *rest])
    return tuple(carried)


def _none() -> Samples:
    """Samples would need programs, which this room does not have."""
    yield from ()


_BY_PARTS = not_differentiable("the derivative of control flow is recorded as a program of its own")

ProgramPrimitive(
    "conditional", "The results of parts[0] where the first operand is true, else those of parts[1]; only that one runs.", family="heavy",
    spec=_conditional_spec, multiple=True, reference=lambda taken, *xs, parts: tuple(parts[0 if taken else 1].over(xs)),
    samples=_none, lower=("extern", "program"), vjp=_conditional_vjp, jvp=_BY_PARTS, batch=never_batched,
)  # fmt: skip
ProgramPrimitive(
    "loop", "The first `count` operands, replaced by the results of parts[1] as long as that of parts[0] is true.", family="heavy",
    spec=_loop_spec, multiple=True, reference=_loop, samples=_none, lower=("extern", "program"), vjp=_BY_PARTS, jvp=_BY_PARTS,
    batch=never_batched,
)  # fmt: skip
