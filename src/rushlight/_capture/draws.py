"""Random functions in a program that is recorded: primitives that draw from the stream of a generator.

Nothing is drawn while a program is recorded.  What is filled is filled in the order of its memory, as eager calls fill
it.  Functions of random numbers that are made of others (the dropouts) run as they are; those that nobody can record
yet are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.errors import MissingFeatureError
from rushlight._capture.traced import Recording, TracedTensor, outside, recording, write
from rushlight._engine.core.memory import empty_spec
from rushlight._engine.core.state import TRANSFORMS
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.functorch.random_batches import FORMS, plain_name
from rushlight._engine.functorch.transformed import LEVELS, rewrap
from rushlight._engine.random.random import Generator, default_generator, fill_order
from rushlight._graph.core import Value
from rushlight._prims import build
from rushlight._types.dtype import FLOAT32, FLOAT64
from rushlight._types.spec import Spec

__all__ = ["answer"]

_BODIES = frozenset((
    "dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout", "alpha_dropout_", "feature_alpha_dropout",
    "feature_alpha_dropout_", "dropout1d", "dropout2d", "dropout3d", "native_dropout", "gumbel_softmax",
))  # fmt: skip


def answer(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A random function while a program is recorded."""
    name = plain_name(function)
    if name in _BODIES:
        rec = recording()
        given = rewrap(lambda t: _taken(rec, t, name), (tuple(args), dict(kwargs)))
        return function.__wrapped__(*given[0], **given[1])
    handler = _FILLS.get(name) or _MAKERS.get(name)
    if handler is None or kwargs.get("out") is not None:
        raise MissingFeatureError(f"{name}() cannot be recorded yet: no primitive draws what it draws")
    return handler(function, *args, **kwargs)


def _taken(rec: Recording, x: Tensor, name: str) -> Tensor:
    """An argument as a traced tensor."""
    if isinstance(x, TracedTensor):
        return x
    if name.endswith("_"):
        rec.become_traced(x)
        return x
    return rec.traced(rec.constant(x), x._spec, (), x.requires_grad)


def noise(spec: Spec, keep: float, value: float) -> Any:
    """The noise of a dropout: `value` with probability `keep`, else 0.  NotImplemented where no program is recorded."""
    if not isinstance(LEVELS.stack[-1] if LEVELS.stack else None, Recording):
        return NotImplemented
    return _drawn(spec, None, "draw_bernoulli", p=keep, value=value)


# ***** drawing *****


def _numbers(spec: Spec, generator: Generator | None, name: str, *operands: Value, **params: Any) -> Value:
    """An array for a tensor of this spec, drawn in the order of its memory."""
    rec = recording()
    order = fill_order(spec.shape, spec.strides)
    stream = default_generator if generator is None else generator
    if operands:
        numbers = rec.builder.draw(
            stream, name, *[_ordered(rec, x, order) for x in operands], dtype=spec.dtype, **params
        )
    else:
        shape = tuple([spec.shape[d] for d in order])
        numbers = rec.builder.draw(stream, name, shape=shape, dtype=spec.dtype, **params)
    return _ordered(rec, numbers, sorted(range(len(order)), key=order.__getitem__))


def _ordered(rec: Recording, x: Value, order: Sequence[int]) -> Value:
    with rec.builder:
        found: Value = build.transpose(x, order)
    return found


def _drawn(spec: Spec, generator: Generator | None, name: str, **params: Any) -> TracedTensor:
    return recording().fresh(_numbers(spec, generator, name, **params), spec)


# ***** filling *****


def _check(function: Any, spec: Spec, generator: Any, *args: Any, **kwargs: Any) -> None:
    """The errors that the call has on a tensor like this one, but drawn from another generator."""
    outside(lambda: function(empty_spec(spec), *args, **kwargs, generator=Generator()))


def _filling(make: Callable[..., tuple[str, dict[str, Any]]]) -> Callable[..., Any]:
    """A fill: `make(spec, arguments)` gives the primitive and its parameters."""

    def fill(function: Any, x: Any, *args: Any, generator: Generator | None = None, **kwargs: Any) -> Any:
        rec = recording()
        if not isinstance(x, TracedTensor):
            rec.become_traced(x)
        if any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
            return _fill_each(function, x, generator, *args, **kwargs)
        _check(function, x._spec, generator, *args, **kwargs)
        name, params = make(x._spec, *args, **kwargs)
        write(x, rec.fresh(_numbers(x._spec, generator, name, **params), x._spec))
        return x

    return fill


def _fill_each(function: Any, x: TracedTensor, generator: Generator | None, p: Any) -> TracedTensor:
    """`bernoulli_` with a probability for each element."""
    rec = recording()
    if function.__name__ != "bernoulli_":
        raise MissingFeatureError(f"{function.__name__}() with tensors as its parameters cannot be recorded yet")
    with rec.builder:
        chances = build.convert(rec.value(p), FLOAT64 if p._spec.dtype is FLOAT64 else FLOAT32)
        chances = build.broadcast_to(chances, x._spec.shape)
    write(x, rec.fresh(_numbers(x._spec, generator, "draw_bernoulli_each", chances), x._spec))
    return x


def _uniform(spec: Spec, from_: float = 0.0, to: float = 1.0, **named: float) -> tuple[str, dict[str, Any]]:
    return "draw_uniform", {"low": float(named.get("from", from_)), "high": float(to)}


def _normal(spec: Spec, mean: float = 0.0, std: float = 1.0) -> tuple[str, dict[str, Any]]:
    return "draw_normal", {"mean": float(mean), "std": float(std), "serial": not spec.contiguous}


def _exponential(spec: Spec, lambd: float = 1.0) -> tuple[str, dict[str, Any]]:
    return "draw_exponential", {"rate": float(lambd)}


def _bernoulli(spec: Spec, p: float = 0.5) -> tuple[str, dict[str, Any]]:
    return "draw_bernoulli", {"p": float(p), "value": 1.0}


def _random(spec: Spec, *bounds: int, **named: int) -> tuple[str, dict[str, Any]]:
    if not spec.dtype.is_integer or not 1 <= len(bounds) <= 2 or named or bounds[-1] is None:
        raise MissingFeatureError("random_() is recorded for integers and with its upper bound given")
    return "draw_integers", {"low": bounds[0] if len(bounds) == 2 else 0, "high": bounds[-1]}


_FILLS: dict[str, Callable[..., Any]] = {
    "uniform_": _filling(_uniform),
    "normal_": _filling(_normal),
    "exponential_": _filling(_exponential),
    "bernoulli_": _filling(_bernoulli),
    "random_": _filling(_random),
}

# ***** making *****


def _made(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Spec:
    """The spec of what a factory makes, with all its errors; another generator is drawn from."""

    def plain(t: Any) -> Any:
        return empty_spec(t._spec) if isinstance(t, TracedTensor) else t

    given = rewrap(plain, (tuple(args), dict(kwargs)))
    made: Tensor = outside(lambda: function(*given[0], **{**given[1], "generator": Generator()}))
    if made.requires_grad:
        raise MissingFeatureError("a recorded program makes a random tensor that wants a gradient")
    return made._spec


def _making(name: str, **params: Any) -> Callable[..., Any]:
    def make(function: Any, *args: Any, generator: Generator | None = None, **kwargs: Any) -> Any:
        spec = _made(function, args, kwargs)
        if spec.dtype.is_complex:
            raise MissingFeatureError(f"complex numbers of {function.__name__}() cannot be recorded yet")
        serial = {"serial": not spec.contiguous} if name == "draw_normal" else {}
        return _drawn(spec, generator, name, **params, **serial)

    return make


def _randint(function: Any, *args: Any, generator: Generator | None = None, **kwargs: Any) -> Any:
    spec = _made(function, args, kwargs)
    like = isinstance(args[0], Tensor) if args else "input" in kwargs
    bounds = [a for a in args[1 if like else 0 :] if isinstance(a, int)]
    low = kwargs.get("low", bounds[0] if len(bounds) == 2 else 0)
    high = kwargs.get("high", bounds[-1] if bounds else None)
    if not spec.dtype.is_integer:
        raise MissingFeatureError("randint() is recorded for integers")
    return _drawn(spec, generator, "draw_integers", low=low, high=high)


def _bernoulli_of(function: Any, input: Any, p: Any = None, *, generator: Generator | None = None) -> Any:
    rec, spec = recording(), input._spec
    if p is not None and not isinstance(p, Tensor):
        return _drawn(Spec.of(spec.dtype, spec.device, spec.shape), generator, "draw_bernoulli", p=float(p), value=1.0)
    chances = input if p is None else p
    with rec.builder:
        held = build.convert(rec.value(chances), FLOAT64 if chances._spec.dtype is FLOAT64 else FLOAT32)
        held = build.broadcast_to(held, spec.shape)
    made_spec = Spec.of(spec.dtype, spec.device, spec.shape)
    return rec.fresh(_numbers(made_spec, generator, "draw_bernoulli_each", held), made_spec)


_MAKERS: dict[str, Callable[..., Any]] = {
    "rand": _making("draw_uniform", low=0.0, high=1.0),
    "rand_like": _making("draw_uniform", low=0.0, high=1.0),
    "randn": _making("draw_normal", mean=0.0, std=1.0),
    "randn_like": _making("draw_normal", mean=0.0, std=1.0),
    "randint": _randint,
    "randint_like": _randint,
    "randperm": _making("draw_permutation"),
    "bernoulli": _bernoulli_of,
}


@TracedTensor.implements(*FORMS, *_FILLS, "log_normal_", "cauchy_", "geometric_")
def _drawing(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    return answer(function, args, kwargs)


TRANSFORMS["recorded draw"] = answer
TRANSFORMS["noise"] = noise
