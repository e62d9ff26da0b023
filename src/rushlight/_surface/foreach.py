"""`torch._foreach_*`: one operation for each tensor of a list.

A second operand may be a list of tensors or of numbers of the same length, or one number or tensor for all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.naming import no_name
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.dispatch.plans.native_lookup import make_cached
from rushlight._engine.functorch.transformed import LEVELS, Transformed, tensors_in, told_to_change
from rushlight._surface.registry import SPACES

__all__ = ["NAMES", "function"]

_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p",
    "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min", "pow", "mm")
_TERNARY = ("addcmul", "addcdiv", "lerp")
_NOT_IN_PLACE = ("clone", "mm")
_FORMS = (*_UNARY, *_BINARY, *_TERNARY)
NAMES = frozenset((
    *(f"_foreach_{name}" for name in _FORMS), *(f"_foreach_{name}_" for name in _FORMS if name not in _NOT_IN_PLACE),
    "_foreach_copy_", "_foreach_zero_", "_foreach_norm", "_foreach_max",
))  # fmt: skip


_ARGUMENTS = (
    "self*", "first*", "second*", "third*", "other*", "others*", "exponent*", "src*", "weight*", "scalar*", "scalars*", "tensors1*", "value*", "alpha*",
)  # fmt: skip


def _tensors(name: str, given: Any) -> Sequence[Tensor]:
    if not isinstance(given, (list, tuple)) or not (
        plain_classes.issuperset(map(type, given)) or all(isinstance(t, Tensor) for t in given)
    ):
        raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {type(given).__name__}")
    if not given:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return given


def _for_each(value: Any, count: int, tensors: bool = False) -> Sequence[Any]:
    """One operand for each of `count` tensors; an empty list is one of numbers, unless only `tensors` may stand there."""
    if isinstance(value, (list, tuple)):
        if len(value) == count:
            return value
        if tensors or (value and all(isinstance(v, Tensor) for v in value)):
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(value)}")
        raise RuntimeError("Tensor list must have same number of elements as scalar list.")
    if isinstance(value, Tensor) and value.dim():
        raise RuntimeError(
            f"scalar tensor expected to be 0 dim but it has {value.dim()} dimensions and {value.numel()} elements."
        )
    return [value] * count


def _one(name: str) -> Callable[..., Any]:
    """The operation on one tensor."""
    in_place, plain = name.endswith("_"), name.rstrip("_")
    if plain in ("maximum", "minimum", "clamp_max", "clamp_min"):
        bound = "max" if plain in ("minimum", "clamp_max") else "min"
        return lambda x, y: (x.clamp_ if in_place else x.clamp)(**{bound: y})
    return getattr(Tensor, name)


def _three(one: Callable[..., Any], xs: Sequence[Tensor], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """addcmul and addcdiv: two lists, and factors that are one number, a list, or the elements of a tensor."""
    args = [*args, *[kwargs[key] for key in ("tensor1", "tensor2") if key in kwargs]]
    first, second = (_for_each(given, len(xs), tensors=True) for given in args[:2])
    rest = args[2:]
    factors = rest[0] if rest else kwargs.get("value", kwargs.get("scalars", kwargs.get("tensor", 1)))
    if isinstance(factors, Tensor):
        if factors.dim() != 1:
            raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {factors.dim()} instead.")
        if factors.numel() != len(xs):
            raise RuntimeError(
                f"Expected length of scalars to match input of length {len(xs)} but got {factors.numel()} instead."
            )
        factors = factors.tolist()
    return [one(x, a, b, value=v) for x, a, b, v in zip(xs, first, second, _for_each(factors, len(xs)), strict=True)]


def function(full: str) -> Callable[..., Any]:
    """`torch._foreach_...` by its whole name."""
    name = full.removeprefix("_foreach_")
    plain = name.rstrip("_")
    one = SPACES["linalg"]["vector_norm"] if plain == "norm" else _one(name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if plain == "pow" and not isinstance(self, (list, tuple)):
            exponents = args[0] if args else kwargs["exponent"]
            return tuple(SPACES["torch"]["pow"](self, exponent) for exponent in exponents)
        xs = _tensors(full, self)
        if (
            name.endswith("_")
            and LEVELS.stack
            and not any(isinstance(t, Transformed) or t.requires_grad for t in tensors_in((xs, args, kwargs)))
        ):
            # As in PyTorch, whose transforms do not see lists of tensors in which nothing is differentiated
            with told_to_change():
                change(xs, args, kwargs)
            return self
        made = change(xs, args, kwargs)
        return self if name.endswith("_") else tuple(made)

    def change(xs: Sequence[Tensor], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        if plain in ("addcmul", "addcdiv"):
            return _three(one, xs, args, kwargs)
        if plain == "norm":
            order = args[0] if args else kwargs.get("ord", 2)
            dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
            return [one(x, order, dtype=dtype) for x in xs]
        others = [
            _for_each(value, len(xs), plain == "copy" or (plain == "lerp" and not i)) for i, value in enumerate(args)
        ]
        named = [
            kwargs.pop(key)
            for key in ("tensors1", "other", "others", "exponent", "src", "weight", "scalar", "scalars")
            if key in kwargs
        ]
        others += [_for_each(value, len(xs)) for value in named]
        return [one(*row, **kwargs) for row in zip(xs, *others, strict=True)] if kwargs else list(map(one, xs, *others))

    call.__name__ = call.__qualname__ = full
    call.__module__ = "rushlight"
    call.__doc__ = f"`{plain}` of each tensor of a list{', in place' if name.endswith('_') else ''}."
    cached = make_cached(call, _ARGUMENTS if plain != "norm" else ("self*", "ord", "dtype"), 0)
    if not name.endswith("_"):
        return cached

    def changed(
        *args: Any, **kwargs: Any
    ) -> Any:  # cached plans check each tensor themselves: a transform may forbid the change
        return call(*args, **kwargs) if LEVELS.stack else cached(*args, **kwargs)

    return functools.update_wrapper(changed, call)


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise no_name("rushlight", name)
    made = globals()[name] = function(name)
    return made
