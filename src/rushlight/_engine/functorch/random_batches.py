"""Random numbers inside of `vmap`: forbidden, one draw for every item, or one for all.

For "different", functions that fill element by element draw for the whole batch at once, in the order of its memory, as
PyTorch does; others run item by item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._engine.core.state import STATE, TRANSFORMS, VMAP
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.functorch.batched import BatchedTensor, batched, each_item, peeled, size_of, stacked
from rushlight._engine.functorch.dual import DualTensor, dual
from rushlight._engine.functorch.transformed import LEVELS, Level, rewrap, tensors_in, top_level
from rushlight._engine.random.random import keep_states

__all__ = ["ELEMENTWISE", "RANDOM"]

FORBIDDEN = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap or perform the "
    "randomness operation out of vmap"
)
FILLS = frozenset(
    ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_", "bernoulli_", "random_")
)
# These draw element by element: the whole batch is one ordinary call.
ELEMENTWISE = FILLS | frozenset(
    (
        "rand_like",
        "randn_like",
        "randint_like",
        "bernoulli",
        "dropout",
        "dropout_",
        "alpha_dropout",
        "alpha_dropout_",
        "rrelu",
        "rrelu_",
        "native_dropout",
    )
)
# Functions that draw only in training: the index of that argument, and its default.
TRAINING = {
    "dropout": (2, True), "dropout_": (2, True), "dropout1d": (2, True), "dropout2d": (2, True),
    "dropout3d": (2, True), "feature_dropout": (2, True), "alpha_dropout": (2, False), "feature_alpha_dropout": (2, False), "rrelu": (3, False),
    "rrelu_": (3, False), "native_dropout": (2, True),
}  # fmt: skip
# Their draws depend on the elements, so one draw cannot serve all items.
DRAWN_BY_VALUES = frozenset(("bernoulli", "multinomial", "poisson", "normal", "binomial"))
SIZED = frozenset(("rand", "randn"))
RANDOM = ELEMENTWISE | frozenset(
    (
        "normal",
        "poisson",
        "binomial",
        "multinomial",
        "feature_dropout",
        "feature_dropout_",
        "feature_alpha_dropout",
        "feature_alpha_dropout_",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "gumbel_softmax",
        "randperm",
        "randint",
        "rand",
        "randn",
    )
)


def plain_name(function: Any) -> str:
    """The name of a function, without the suffix of its form."""
    name: str = function.__name__
    return name.removeprefix("_").removeprefix("functional_")


def _innermost() -> Level:
    return next(level for level in reversed(LEVELS.stack) if level.kind in ("vmap", "program"))


def draw(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a random function while a batch is running."""
    name = plain_name(function)
    if name in TRAINING and not _trains(name, args, kwargs):
        given = args[0] if args else kwargs["input"]
        return given if "dropout" in name and name != "native_dropout" else function.__wrapped__(*args, **kwargs)
    level = _innermost()
    if level.kind == "program":
        return TRANSFORMS["recorded draw"](function, args, kwargs)
    if level.randomness == "error":
        raise RuntimeError(FORBIDDEN)
    top = top_level((args, kwargs))
    if top is not None and top.level > level.number:
        return type(top).at_level(top.level, function, args, kwargs)
    held = any(peeled(t, level.number) is not None for t in tensors_in((args, kwargs)))
    if level.randomness == "same":
        return _same(function, args, kwargs, level, held)
    return _different(function, args, kwargs, level, held)


def _trains(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    place, default = TRAINING[name]
    if "dropout" in name and name != "native_dropout" and (args[1] if len(args) > 1 else kwargs.get("p")) == 0:
        return False  # nothing is dropped
    return bool(args[place] if len(args) > place else kwargs.get("training", kwargs.get("train", default)))


def below(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run the call as the levels below the innermost batch see it."""
    number = _innermost().number
    hidden, LEVELS.stack = LEVELS.stack, [level for level in LEVELS.stack if level.number < number]
    before = STATE.word
    if not any(level.kind in ("vmap", "program") for level in LEVELS.stack):
        STATE.word = before & ~VMAP
    try:
        return function(*args, **kwargs)
    finally:
        LEVELS.stack, STATE.word = hidden, before


def _different(function: Any, args: Sequence[Any], kwargs: dict[str, Any], level: Level, held: bool) -> Any:
    name, number = plain_name(function), level.number
    if name in SIZED and not held:
        sizes = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
        rest = dict(kwargs)
        sizes = tuple(rest.pop("size", sizes))
        return batched(below(function, ((level.size, *sizes),), rest), number)
    if name.endswith("_") and (not args or peeled(args[0], number) is None):
        raise RuntimeError(
            "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. If this is necessary for "
            "your usage, please file an issue with functorch."
        )
    if name in ELEMENTWISE and held and sum(1 for _ in tensors_in((args, kwargs))) == 1:
        inner = [peeled(a, number) if isinstance(a, Tensor) else a for a in args]
        made = below(function, inner, kwargs)
        return args[0] if name.endswith("_") else rewrap(lambda t: batched(t, number), made)
    if held:
        return each_item(number, lambda *a, **k: below(function, a, k), args, kwargs)
    rows = [below(function, args, kwargs) for _ in range(level.size)]
    return stacked(rows, number)


def _same(function: Any, args: Sequence[Any], kwargs: dict[str, Any], level: Level, held: bool) -> Any:
    if not held:
        return below(function, args, kwargs)
    if plain_name(function) in DRAWN_BY_VALUES:
        raise RuntimeError(
            "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch"
        )
    restore, number = keep_states(), level.number

    def repeated(*a: Any, **k: Any) -> Any:
        restore()
        return below(function, a, k)

    if function.__name__.endswith("_") and size_of(number, args, kwargs):
        for k in range(size_of(number, args, kwargs)):
            repeated(*[a if peeled(a, number) is None else peeled(a, number)[k] for a in args], **kwargs)
        return args[0]
    return each_item(number, repeated, args, kwargs)


FORMS = tuple(form + name for name in sorted(RANDOM) for form in ("", "functional_", "_functional_"))


@BatchedTensor.implements(*FORMS)
def _random(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    return draw(function, args, kwargs)


@DualTensor.implements(
    *[form for form in FORMS if "dropout" in form and not form.endswith("_") and "native" not in form]
)
def _drop(level: int, function: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Dropout of a tangent.  Dropouts are affine, so the same draws on the tangent and on zeros give the linear part."""
    restore = keep_states()

    def again(x: Any) -> Any:
        restore()
        return function(x, *args, **kwargs)

    rest = again(input.tangent * 0)
    return dual(again(input.primal), again(input.tangent) - rest, level)


@DualTensor.implements(
    "normal_", "uniform_", "bernoulli_", "exponential_", "random_", "log_normal_", "cauchy_", "geometric_"
)
def _fill(level: int, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    function(x.primal, *args, **kwargs)
    x.tangent.zero_()
    return x


@DualTensor.implements("rand_like", "randn_like", "randint_like", "bernoulli", "multinomial", "poisson")
def _by_value(level: int, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return function(x.primal, *args, **kwargs)


TRANSFORMS["draw"] = draw
