"""The record of a primitive: it holds every rule about it.

A record says, in one place: its meaning, the shape and dtype of its results, a NumPy reference, the rules of reverse
mode, forward mode and batching, its lowering to loops, and samples to test all of these with.  Primitives are strict:
equal shapes and dtypes, no defaults, no broadcasting, no promotion.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from rushlight._types.dtype import DType

__all__ = [
    "EFFECTS",
    "PRIMITIVES",
    "Aval",
    "Builder",
    "ByDecomposition",
    "Effect",
    "EffectPrimitive",
    "Namespace",
    "Primitive",
    "ProgramPrimitive",
    "Steps",
    "building",
    "never_batched",
    "not_differentiable",
    "prim",
]

Aval = tuple[tuple[int, ...], DType]
Rule = Callable[..., Any]

PRIMITIVES: dict[str, Primitive] = {}
# Those of whole programs, most with effects; they are no part of `PRIMITIVES`
EFFECTS: dict[str, ProgramPrimitive] = {}


class Namespace:
    """The primitives as attributes: bodies and rules write `prim.exp(x)`."""

    def __getattr__(self, name: str) -> Primitive:
        raise AttributeError(f"there is no primitive {name!r}; the table is rushlight._prims.PRIMITIVES")

    def __dir__(self) -> list[str]:
        return sorted(PRIMITIVES)


prim = Namespace()


class Builder(Protocol):
    """The receiver of primitive calls: a graph under construction, or an interpreter."""

    def bind(self, primitive: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any: ...

    def effect(self, primitive: EffectPrimitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any: ...


class Steps(Protocol):
    """The operations of a primitive's `steps`, over values of any kind."""

    def call(self, key: Any, function: Rule, *xs: Any) -> tuple[Any, ...]:
        """The results of `function(x...)`, which is written over primitives; equal keys promise equal functions."""

    def split(self, x: Any, sizes: Sequence[int]) -> Sequence[Any]:
        """Consecutive runs of `sizes` rows."""

    def join(self, parts: Sequence[Any]) -> Any:
        """The rows of all parts."""

    def numbers(self, x: Any) -> list[int]:
        """The elements of a vector of integers."""


class _Stack(threading.local):
    """The only ambient state of the inner rooms: the builder that receives the primitive calls of a thread."""

    def __init__(self) -> None:
        self.builders: list[Builder] = []


building = _Stack()


class not_differentiable:
    """Replaces a gradient rule where there is none, with the reason."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"not_differentiable({self.why!r})"


class ByDecomposition:
    """Replaces a derivative rule: transforms substitute the primitive's decomposition first."""

    __slots__ = ()

    def __call__(self, *args: Any, **params: Any) -> Any:
        raise RuntimeError(
            "this derivative is derived from the decomposition, which a transform substitutes for the primitive"
        )


class Primitive:
    """One primitive with all its rules.

    Rules, where `x...` are values with `.shape` and `.dtype` and `**p` the static parameters:

    - `spec(x..., **p)` -> (shape, dtype), or a list of those with `multiple`; raises for invalid operands.
    - `reference(a..., **p)` -> NumPy array(s): the definition that tests compare with.
    - `vjp(ct, out, x..., **p)` -> tuple with one cotangent (or None) per input; `ct` and `out` are tuples with
      `multiple`.  An expensive cotangent may be a function without arguments, which is called only if it is needed.
    - `jvp(tangents, out, x..., **p)` -> tangent of the output (or None); `tangents` has None for constants.
      `ByDecomposition()` for either derives it from `decompose`.
    - `batch(batched, x..., **p)` -> output(s) with a new leading dim; `batched[i]` tells whether input i has that
      leading dim.
    - `lower`: its lowering for kernels, e.g. ("scalar", "exp"), ("index", ...), ("reduce", "add"), ("extern", ...).
    - `layout(shape, strides, offset, **p)` -> (shape, strides, offset) or None: for those that can be views.
    - `decompose(x..., **p)`: the same in simpler primitives, for backends that do not claim it.
    - `empty(x..., **p)`: likewise if an operand or the first result has no elements and the library is not called.
    - `steps(run, x..., **p)`: the same as many small calls of few kinds, for transforms that compute (and record) them
      one by one because the decomposition would be as long as an input; `run` is a `Steps`.
    - `samples()` -> iterator of (arrays, params) for the tests.
    """

    __slots__ = (
        "batch", "decompose", "doc", "empty", "family", "jvp", "layout", "lower", "multiple", "name", "reference", "samples", "spec", "steps",
        "vjp",
    )  # fmt: skip

    effect: Effect | None = None  # an `EffectPrimitive` has one

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        family: str,
        spec: Rule,
        reference: Rule,
        vjp: Rule | not_differentiable,
        jvp: Rule | not_differentiable,
        batch: Rule,
        lower: tuple[Any, ...],
        samples: Callable[[], Iterator[tuple[list[Any], dict[str, Any]]]],
        multiple: bool = False,
        layout: Rule | None = None,
        decompose: Rule | None = None,
        empty: Rule | None = None,
        steps: Rule | None = None,
    ) -> None:
        if name in PRIMITIVES or name in EFFECTS:
            raise ValueError(f"primitive {name!r} is declared twice")
        self.name, self.doc, self.family, self.multiple = name, doc, family, multiple
        self.spec, self.reference, self.vjp, self.jvp, self.batch = spec, reference, vjp, jvp, batch
        self.lower, self.samples, self.layout, self.decompose, self.empty = lower, samples, layout, decompose, empty
        self.steps = steps
        self._declare()

    def _declare(self) -> None:
        PRIMITIVES[self.name] = self
        prim.__dict__[self.name] = self

    def __call__(self, *inputs: Any, **params: Any) -> Any:
        """Emit this primitive to the current builder; returns its value, or a tuple of values with `multiple`."""
        if not building.builders:
            raise RuntimeError(f"primitive {self.name!r} was called outside of a trace")
        return building.builders[-1].bind(self, inputs, params)

    def __repr__(self) -> str:
        return f"prim.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_by_name, (self.name,))


def _by_name(name: str) -> Primitive:
    return PRIMITIVES.get(name) or EFFECTS[name]


# ***** effects *****


class Effect:
    """The effect of a primitive besides its results.

    `verb` is one of

    - "allocates": the result is new memory;
    - "reads": the operand is memory, and the result its contents at this point of the program;
    - "writes": the operand is memory, and the first result the same memory afterwards;
    - "draws": the operand is a random stream, and the first result the same stream afterwards.

    `reference` is the kind of reference: "memory" or "stream".  An effect that `replaces` its operand (the
    last two verbs) consumes it: nothing may read that version any more, so the data dependences of a graph are the
    order of its effects.  The operand comes first.
    """

    __slots__ = ("reference", "verb")

    def __init__(self, verb: str) -> None:
        self.verb, self.reference = verb, _REFERENCES[verb]

    @property
    def replaces(self) -> bool:
        """Whether the first result replaces the first operand."""
        return self.verb in ("writes", "draws")

    @property
    def makes_reference(self) -> bool:
        """Whether the first result is a reference, not an array."""
        return self.verb != "reads"

    @property
    def takes_reference(self) -> bool:
        """Whether the first operand is a reference, not an array."""
        return self.verb != "allocates"

    def __repr__(self) -> str:
        return f"Effect({self.verb!r})"


def never_batched(batched: Sequence[bool], *xs: Any, **params: Any) -> Any:
    """The batching rule of effects on memory: there is none."""
    raise RuntimeError("a graph that changes memory has no batched form; `functionalize` it first")


_REFERENCES = {"allocates": "memory", "reads": "memory", "writes": "memory", "draws": "stream"}


class ProgramPrimitive(Primitive):
    """A primitive that occurs in graphs of whole programs alone, not in those of operators."""

    __slots__ = ()

    def _declare(self) -> None:
        EFFECTS[self.name] = self
        prim.__dict__[self.name] = self


class EffectPrimitive(ProgramPrimitive):
    """A primitive with an effect.  `spec`, `reference`, `vjp`, `jvp` and `samples` are those of any primitive, with
    references as arrays.

    `reference` is a pure function: it returns the new contents of the changed reference, and does not modify its
    operands.
    """

    __slots__ = ("effect",)

    def __init__(self, name: str, doc: str, effect: Effect, **rules: Any) -> None:
        self.effect = effect
        super().__init__(name, doc, lower=("effect", effect.verb), **rules)

    def __call__(self, *inputs: Any, **params: Any) -> Any:
        if not building.builders:
            raise RuntimeError(f"primitive {self.name!r} was called outside of a trace")
        return building.builders[-1].effect(self, inputs, params)
