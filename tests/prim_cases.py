"""What the tests of primitives, graphs and transforms share: every sample of every primitive, and how to run its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tests.rows import each_row

from rushlight._backends.reference import run
from rushlight._base.errors import NotDifferentiableError
from rushlight._graph.core import Graph, trace
from rushlight._prims import PRIMITIVES, Primitive, not_differentiable
from rushlight._prims.numbers import holder
from rushlight._transforms.vjp import Gradient, carries_gradient, vjp
from rushlight._types.dtype import BY_NAME, DType


class Case:
    """One sample of one primitive."""

    def __init__(self, primitive: Primitive, number: int, arrays: list[Any], params: dict[str, Any]) -> None:
        self.primitive, self.number, self.params = primitive, number, params
        self.arrays = [np.asarray(a) for a in arrays]

    def __repr__(self) -> str:
        return f"{self.primitive.name}-{self.number}"

    def graph(self) -> Graph:
        return trace(lambda *xs: self.primitive(*xs, **self.params), [aval(a) for a in self.arrays])

    @property
    def double(self) -> bool:
        """Whether everything is computed in double precision."""
        return all(a.dtype.kind not in "fc" or a.dtype.name in ("float64", "complex128") for a in self.arrays) and all(
            v.dtype.name in ("float64", "complex128") for v in self.graph().outputs if carries_gradient(v.dtype)
        )

    @property
    def differentiable(self) -> bool:
        graph = self.graph()
        return (
            not isinstance(self.primitive.vjp, not_differentiable)
            and any(carries_gradient(v.dtype) for v in graph.inputs)
            and any(carries_gradient(v.dtype) for v in graph.outputs)
        )

    @property
    def wrt(self) -> list[int]:
        """The inputs that the result can be differentiated by: floats for which the primitive has a rule."""
        graph = self.graph()
        return [i for i, v in enumerate(graph.inputs) if carries_gradient(v.dtype) and _has_rule(graph, i)]


def _has_rule(graph: Graph, i: int) -> bool:
    try:
        vjp(graph, [i])
    except NotDifferentiableError:
        return False
    return True


def aval(array: Any) -> tuple[tuple[int, ...], DType]:
    return array.shape, BY_NAME[array.dtype.name]


def cases() -> list[Case]:
    return [Case(p, i, *sample) for p in PRIMITIVES.values() for i, sample in enumerate(p.samples())]


CASES = cases()


def each_case(cases: Iterable[Case]) -> Callable[[Any], Any]:
    """Runs a test with each of the samples; those of one primitive are one test."""
    return each_row((case.primitive.name, repr(case), (case,)) for case in cases)


def random(shape: tuple[int, ...], dtype: DType, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.is_complex:
        return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype.name)
    return np.asarray(rng.normal(size=shape)).astype(holder(dtype))


def inner(a: list[Any], b: list[Any]) -> float:
    """The real inner product of two lists of arrays."""
    return float(sum(np.real(np.vdot(x.astype(complex), y.astype(complex))) for x, y in zip(a, b, strict=True)))


def run_gradient(gradient: Gradient, arrays: list[Any], cotangents: list[Any]) -> tuple[list[Any], list[Any]]:
    """Results of the forward, and one gradient (or None) for each index that was asked for."""
    results = run(gradient.forward, arrays)
    count = len(results) - sum(kind == "residual" for kind, _ in gradient.saved)
    find = {"input": lambda i: arrays[i], "output": lambda i: results[i], "residual": lambda i: results[count + i]}
    grads = run(gradient.backward, [*(find[kind](i) for kind, i in gradient.saved), *cotangents])
    return results[:count], [None if i is None else grads[i] for i in gradient.grads]
