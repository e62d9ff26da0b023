"""Journeys: a world's function called in several places, with random changes in between, eagerly and compiled."""

from __future__ import annotations

import collections
import contextlib
import io
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tests.capture.changed.python_worlds
import tests.capture.changed.tensor_worlds  # noqa: F401
from tests.capture.changed.worlds import WORLDS, World, restored

import rushlight as torch

Call = Callable[..., Any]


# ***** places where the function is called *****


def direct(world: World) -> Call:
    f = world.f
    return lambda x: f(x)


def in_a_loop(world: World) -> Call:
    f = world.f

    def go(x: Any) -> Any:
        out = []
        for k in range(2):
            if k:
                x = x + 1
            out.append(f(x))
        return out

    return go


def in_a_generator(world: World) -> Call:
    f = world.f

    def parts(x: Any) -> Any:
        yield f(x)
        yield f(x * 2)

    return lambda x: list(parts(x))


def after_a_break(world: World) -> Call:
    f = world.f

    def go(x: Any) -> Any:
        y = x * 2
        torch._dynamo.graph_break()
        return y, f(x)

    return go


def before_a_break(world: World) -> Call:
    f = world.f

    def go(x: Any) -> Any:
        y = f(x)
        torch._dynamo.graph_break()
        return y, x * 3

    return go


def in_try(world: World) -> Call:
    f = world.f

    def go(x: Any) -> Any:
        try:
            with torch.no_grad():
                return f(x)
        except Exception as error:
            return type(error).__name__, str(error)
        finally:
            x.sum()

    return go


class Holder(torch.nn.Module):
    """A module whose forward calls a function."""

    def __init__(self, f: Call) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Any) -> Any:
        return {"out": self.f(x)}


def in_a_module(world: World) -> Call:
    return Holder(world.f)


def twice(world: World) -> Call:
    """Changed by the program, between two looks."""
    f, changes = world.f, world.changes

    def go(x: Any, k: int = 0) -> Any:
        first = f(x)
        changes[k]()
        return first, f(x)

    return go


PLACES: list[Callable[[World], Call]] = [
    direct, in_a_loop, in_a_generator, after_a_break, before_a_break, in_try, in_a_module, twice,
]  # fmt: skip


# ***** running *****

AS_IT_IS: collections.Counter[str] = collections.Counter()  # functions that the compiler gave up, in its words


def told(value: Any) -> Any:
    """A value that can be compared: tensors by bits and metadata."""
    if isinstance(value, torch.Tensor):
        held = value.detach()
        bits = held.contiguous().view(torch.uint8).tolist() if held.dim() and held.numel() else held.tolist()
        kind = type(value).__name__
        return kind, str(value.dtype), tuple(value.shape), value.stride(), value.requires_grad, str(bits)
    if isinstance(value, np.ndarray):
        return "ndarray", str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return type(value).__name__, [(told(k), told(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [told(v) for v in value]
    return type(value).__name__, repr(value)


def outcome(call: Call, *arguments: Any) -> Any:
    """What a call gives, raises, warns and prints."""
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            result = "returned", told(call(*arguments))
        except Exception as error:
            result = "raised", (type(error).__name__, str(error).split("\n")[0])
    own = [
        w for w in caught if "module_repr() is deprecated" not in str(w.message)
    ]  # Python's, where it shows a module
    said = [(w.category.__name__, str(w.message)) for w in own]
    AS_IT_IS.update(text for _, text in said if "runs as it is" in text)
    said = [each for each in said if "runs as it is" not in each[1]]
    return result, said, printed.getvalue()


def told_nothing(change: Call) -> None:
    """Change something; what that gives is of no interest."""
    change()


def inputs(draw: random.Random) -> Any:
    """A tensor of few kinds: more would make programs for sizes, which other tools look at."""
    x = torch.arange(6.0).reshape(2, 3) * (draw.randrange(3) + 1) / 4
    return x.requires_grad_() if draw.random() < 0.2 else x


def journey(name: str, place: Callable[[World], Call], seed: int, compiles: bool) -> list[Any]:
    """All outcomes of one world."""
    draw = random.Random(f"{name} {place.__name__} {seed}")
    torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
    with restored():
        world = WORLDS[name]()
        call = place(world)
        if compiles:
            torch._dynamo.reset()
            call = torch.compile(call)
        seen = []
        for _ in range(10):
            k = draw.randrange(len(world.changes))
            x = inputs(draw)
            for _ in range(draw.choice((1, 1, 3))):
                seen.append((k, outcome(call, x, k) if place is twice else outcome(call, x)))
            if draw.random() < 0.7:
                seen.append((k, "change", outcome(told_nothing, world.changes[k])))
        seen.append((torch.rand(1).item(), float(np.random.rand()), random.random()))
    return seen


def differs(name: str, place: Callable[[World], Call], seed: int) -> str | None:
    """The first difference, or None."""
    expected, got = journey(name, place, seed, False), journey(name, place, seed, True)
    for number, (a, b) in enumerate(zip(expected, got, strict=True)):
        if a != b:
            return f"step {number}\n    expected {a}\n    got      {b}"[:1200]
    return None
