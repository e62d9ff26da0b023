"""Calls that have no plan which could tell observers: composites, factories, methods in plain Python, and ranges that
PyTorch names.

They are exchanged for telling ones when the first observer comes and put back when the last one has gone, so that
nobody pays for them in between.  What a program took hold of before (`from torch import zeros`) is called as it is and
not told.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._engine.dispatch.watch import Observer, observe, unobserve
from rushlight._interface.base import require
from rushlight._interface.dispatch import HOOKS, observed_call, on_observers
from rushlight._interface.tensors import OBSERVED, STATE
from rushlight.autograd import Function

__all__ = ["Observer", "observe", "range_of", "unobserve"]

_FACTORIES = (
    "arange", "as_tensor", "bernoulli", "empty", "eye", "from_numpy", "full", "linspace", "logspace", "multinomial", "normal", "ones",
    "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "tensor", "zeros",
)  # fmt: skip
_METHODS = (
    "bernoulli", "bernoulli_", "cauchy_", "contiguous", "detach", "detach_", "exponential_", "geometric_", "index_put", "index_put_", "item",
    "log_normal_", "multinomial", "normal_", "numpy", "random_", "resize_", "set_", "to", "type_as", "uniform_",
)  # fmt: skip
_QUIET = frozenset(("numpy", "tensor", "as_tensor", "from_numpy"))  # these are no operators in PyTorch
_NEXT = "enumerate(DataLoader)#{}.__next__"


def range_of(name: str, call: Callable[..., Any], *args: Any) -> Any:
    """`call(*args)` as a range of this name."""
    return observed_call("range", name, call, args)


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], list[tuple[str, Any]]]:
    return lambda: [*[("", a) for a in args], *kwargs.items()]


def _telling(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors in plain Python that tells of its calls."""
    word = "lift_fresh" if name in _QUIET else name

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        if not STATE.word & OBSERVED:
            return function(*args, **kwargs)
        return observed_call("operator", word, lambda: function(*args, **kwargs), (), _given(args, kwargs))

    return told


class _Composites:
    """Stands before the handler of overrides, which every composite asks first."""

    def __init__(self, handler: Callable[..., tuple[bool, Any]]) -> None:
        self.handler, self.passing = handler, threading.local()

    def __call__(self, function: Any, args: Any, kwargs: Any) -> tuple[bool, Any]:
        if getattr(self.passing, "function", None) is function:
            self.passing.function = None
            return self.handler(function, args, kwargs)
        handled, made = self.handler(function, args, kwargs)
        if handled or not STATE.word & OBSERVED or not hasattr(function, "__wrapped__"):
            return handled, made
        self.passing.function = function
        return True, observed_call(
            "operator", function.__name__, lambda: function(*args, **kwargs), (), _given(args, kwargs)
        )


def _tells(function: Any) -> bool:
    """Whether calls of a function come by where observers are told: operators, and composites that may be overridden."""
    return hasattr(function, "operator") or (
        hasattr(function, "__wrapped__") and getattr(function, "overridable", True)
    )


class _Swap:
    """A replaced attribute, and its former value."""

    def __init__(self) -> None:
        self.before: list[tuple[Any, str, Any]] = []
        self.hooks: list[Any] = []
        self.handler: Any = None
        self.steps: list[tuple[Any, Any]] = []

    def put(self, place: Any, name: str, value: Any) -> None:
        """Set an attribute, and remember what was there itself (None: nothing)."""
        self.before.append((place, name, vars(place).get(name)))
        setattr(place, name, value)

    def on(self) -> None:
        """Exchange."""
        self.handler, HOOKS.override = HOOKS.override, _Composites(HOOKS.override)
        for name in _FACTORIES:
            function = getattr(rushlight, name)
            if not _tells(function):
                self.put(rushlight, name, _telling(name, function))
        for name in _METHODS:
            function = vars(Tensor).get(name)
            if callable(function) and not _tells(function):
                self.put(Tensor, name, _telling(name, function))
        self._functions()
        self._custom_operators()
        self._loaders()
        self._optimizers()

    def _functions(self) -> None:
        """`Function.apply` of the user's own functions."""
        plain = Function.apply.__func__  # type: ignore[attr-defined]

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if not STATE.word & OBSERVED:
                return plain(cls, *args, **kwargs)
            return observed_call(
                "function", cls.__name__, lambda: plain(cls, *args, **kwargs), (), _given(args, kwargs)
            )

        if "apply" in vars(Function):
            self.put(Function, "apply", classmethod(apply))

    def _custom_operators(self) -> None:
        """Operators of `torch.library`."""
        module: Any = require("rushlight.library.operators")
        plain = module.OpOverload.run

        def run(self: Any, values: Any) -> Any:
            if not STATE.word & OBSERVED:
                return plain(self, values)
            names = [argument.name for argument in self._schema.arguments]
            given = lambda: list(zip(names, values, strict=False))
            return observed_call(
                "custom", self._schema.name, lambda: plain(self, values), (), given, self.overloadpacket
            )

        self.put(module.OpOverload, "run", run)

    def _loaders(self) -> None:
        """`__next__` of the iterators of data loaders."""
        module = require("rushlight.utils.data.dataloader")
        for cls in [v for v in vars(module).values() if isinstance(v, type)]:
            plain = vars(cls).get("__next__")
            if plain is None or cls.__module__ != module.__name__:
                continue

            def next_batch(self: Any, plain: Any = plain) -> Any:
                return range_of(_NEXT.format(type(self).__name__), plain, self)

            self.put(cls, "__next__", next_batch)

    def _optimizers(self) -> None:
        """`step` and `zero_grad` of every optimizer."""
        module: Any = require("rushlight.optim.optimizer")
        plain = module.Optimizer.zero_grad

        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
            name = type(self).__name__
            return range_of(f"Optimizer.zero_grad#{name}.zero_grad", lambda: plain(self, *args, **kwargs))

        self.put(module.Optimizer, "zero_grad", zero_grad)
        self.hooks = [
            module.register_optimizer_step_pre_hook(self._before_step),
            module.register_optimizer_step_post_hook(self._after_step),
        ]

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        name = type(optimizer).__name__
        marks = [(o, o.enter("range", f"Optimizer.step#{name}.step", list, None)) for o in STATE.observers]
        self.steps.append((optimizer, marks))

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        while self.steps:
            begun, marks = self.steps.pop()
            if begun is optimizer:
                for observer, mark in reversed(marks):
                    observer.leave(mark, None)
                return

    def off(self) -> None:
        """Put everything back."""
        HOOKS.override = self.handler
        for handle in self.hooks:
            handle.remove()
        for place, name, value in reversed(self.before):
            if value is None:
                delattr(place, name)
            else:
                setattr(place, name, value)
        self.before, self.hooks = [], []
        if not STATE.observers:  # else it is for the time of a compiled call only
            self.steps = []


_SWAP = _Swap()
on_observers(lambda on: _SWAP.on() if on else _SWAP.off())
