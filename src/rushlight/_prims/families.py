"""Common parts of the primitives of a family: checks, batching rules, and constructors that turn a line of maths into a
record.

The constructors for pointwise primitives take rules of one form, `rule(t, c, out, *inputs)`: the change of the result
for a change `t` of one input.  Multiplying elements by elements is its own transpose, so the same rule serves forward
mode (`t` is a tangent, `c` is the identity) and reverse mode (`t` is the cotangent, `c` is complex conjugation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.errors import DTypeError, NotDifferentiableError
from rushlight._prims import build
from rushlight._prims.build import HALF
from rushlight._prims.record import PRIMITIVES, Aval, Primitive, Rule, not_differentiable
from rushlight._types.dtype import ALL_DTYPES, FLOAT8, DType

__all__ = ["HALF", "batch_items", "identity", "lift", "pointwise", "require", "require_equal", "size_of_batch"]

_KINDS = {"b": "bool", "u": "unsigned", "i": "integer", "f": "float", "c": "complex"}
_STORED = frozenset(d for d in ALL_DTYPES if d in FLOAT8 or d.kind not in _KINDS)


# ***** checks *****


def require(name: str, x: Any, kinds: str, half: bool = False) -> None:
    """TypeError unless the dtype of `x` is of one of `kinds`; narrow dtypes are allowed only in primitives that move
    data.

    NotImplementedError for storage-only dtypes, PyTorch's exception for its operators on them.
    """
    if x.dtype in _STORED and (x.dtype.kind not in kinds or not half):
        raise NotImplementedError(f"\"{name}\" not implemented for '{x.dtype.scalar}'")
    if x.dtype.kind not in kinds:
        raise DTypeError(f"prim.{name} takes {'/'.join(_KINDS[k] for k in kinds)} values, got {x.dtype.name}", x.dtype)
    if x.dtype.wide is not x.dtype and not half:
        raise DTypeError(
            f"prim.{name} does not compute in {x.dtype.name}: convert to {x.dtype.wide.name} before and back after",
            x.dtype,
        )


def require_equal(name: str, *xs: Any) -> None:
    """Check that all operands have one shape and one dtype: primitives are strict."""
    first = xs[0]
    for x in xs[1:]:
        if x.shape != first.shape:
            raise ValueError(f"prim.{name} takes operands of one shape, got {list(first.shape)} and {list(x.shape)}")
        if x.dtype is not first.dtype:
            raise TypeError(f"prim.{name} takes operands of one dtype, got {first.dtype.name} and {x.dtype.name}")


# ***** batching *****


def size_of_batch(batched: Sequence[bool], xs: Sequence[Any]) -> int:
    """The size of the new leading dim, from an operand that has it."""
    return next(int(x.shape[0]) for flag, x in zip(batched, xs, strict=True) if flag)


def lift(batched: Sequence[bool], xs: Sequence[Any]) -> list[Any]:
    """Give every operand the new leading dim; the others are broadcast."""
    size = size_of_batch(batched, xs)
    return [x if flag else build.broadcast_to(x, (size, *x.shape)) for flag, x in zip(batched, xs, strict=True)]


def batch_pointwise(name: str) -> Rule:
    """Only the shape changes."""
    return lambda batched, *xs, **p: PRIMITIVES[name](*lift(batched, xs), **p)


def batch_items(name: str) -> Rule:
    """One call for each item: a batch of its own would change what the primitive means."""

    def batch(batched: Sequence[bool], *xs: Any, **p: Any) -> Any:
        size, whole = size_of_batch(batched, xs), lift(batched, xs)
        made = []
        for n in range(size):
            ends = ((n, *[0] * (len(x.shape) - 1)) for x in whole), ((n + 1, *x.shape[1:]) for x in whole)
            items = (
                PRIMITIVES["slice"](x, starts=first, stops=last, steps=(1,) * len(x.shape))
                for x, first, last in zip(whole, *ends, strict=True)
            )
            found = PRIMITIVES[name](*(build.squeeze(x, (0,)) for x in items), **p)
            found = found if PRIMITIVES[name].multiple else (found,)
            made.append([build.expand_dims(x, (0,)) for x in found])
        parts = tuple(PRIMITIVES["cat"](*part, dim=0) for part in zip(*made, strict=True))
        return parts if PRIMITIVES[name].multiple else parts[0]

    return batch


# ***** pointwise primitives *****


def identity(x: Any) -> Any:
    """`c` in forward mode."""
    return x


def _vjp(rules: Sequence[Rule | not_differentiable | None]) -> Rule:
    def vjp(ct: Any, out: Any, *xs: Any, **p: Any) -> tuple[Any, ...]:
        return tuple(rule(ct, build.conj, out, *xs, **p) if callable(rule) else rule for rule in rules)

    return vjp


def _jvp(rules: Sequence[Rule | not_differentiable | None]) -> Rule:
    def jvp(tangents: Sequence[Any], out: Any, *xs: Any, **p: Any) -> Any:
        total = None
        for t, rule in zip(tangents, rules, strict=True):
            if t is None or rule is None:
                continue
            if isinstance(rule, not_differentiable):
                raise NotDifferentiableError(f"this derivative is not implemented: {rule.why}")
            total = build.add_any(total, rule(t, identity, out, *xs, **p))
        return total

    return jvp


def pointwise(
    name: str,
    doc: str,
    *,
    kinds: str,
    reference: Rule,
    samples: Callable[[], Any],
    rules: Sequence[Rule | not_differentiable | None] | not_differentiable,
    result: Callable[[DType], DType] = identity,
    family: str = "pointwise",
    half: bool = False,
    arity: int = 2,
    params: tuple[str, ...] = (),
) -> Primitive:
    """A primitive that works element by element on operands of one shape and dtype.

    `rules` has one entry per operand (None where the derivative is zero everywhere, `not_differentiable` where there is
    none); `arity` counts the operands if there are no rules; `result` gives the dtype of the result; `params` are the
    names of static parameters.
    """
    operands = arity if isinstance(rules, not_differentiable) else len(rules)

    def spec(*xs: Any, **given: Any) -> Aval:
        if len(xs) != operands or tuple(given) != params:
            raise TypeError(
                f"prim.{name} takes {operands} operands{''.join(f', {p}' for p in params)}, got {len(xs)}{given or ''}"
            )
        for x in xs:
            require(name, x, kinds, half)
        require_equal(name, *xs)
        return xs[0].shape, result(xs[0].dtype)

    vjp, jvp = (rules, rules) if isinstance(rules, not_differentiable) else (_vjp(rules), _jvp(rules))
    return Primitive(
        name,
        doc,
        family=family,
        spec=spec,
        reference=reference,
        lower=("scalar", name),
        samples=samples,
        vjp=vjp,
        jvp=jvp,
        batch=batch_pointwise(name),
    )
