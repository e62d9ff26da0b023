"""Random changes to what a trace read: where the words of a guard hold, its conditions in Python do.

`RUSHLIGHT_GUARD_CHANGES=20000 pytest tests/capture/guards/test_guards_random.py` looks at more of them.
"""

from __future__ import annotations

import os
import random
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._capture.trace import CompileSettings, compile_function
from rushlight._host.runtime import runtime
from rushlight._native.mutable_objects import supported

pytestmark = pytest.mark.skipif(not supported(), reason="this version of Python was not tried")
CHANGES = int(os.environ.get("RUSHLIGHT_GUARD_CHANGES", "200"))
NAMES = ("a", "b", "c", "d")


class Node:
    """An object with attributes."""

    kind = 1


class Other(Node):
    """One of another class."""

    kind = 2


class Slots:
    """One with slots."""

    __slots__ = ("a", "b", "c", "d")


class Part(nn.Module):
    """A module."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.weight = nn.Parameter(tensor(draw), requires_grad=draw.random() < 0.8)
        self.register_buffer("offset", tensor(draw))


def tensor(draw: random.Random) -> Any:
    """A tensor of few sizes, dtypes and layouts."""
    made = torch.ones(draw.choice((2, 2, 2, 3)), dtype=draw.choice((torch.float32, torch.float32, torch.float64)))
    if draw.random() < 0.1:
        made = torch.ones(2, 2)[:, 0]
    return made.requires_grad_() if draw.random() < 0.2 else made


def value(draw: random.Random, depth: int = 0) -> Any:
    """Something to be read."""
    kinds: list[Callable[[], Any]] = [
        lambda: draw.choice((0, 1, 2, 300, 70000)), lambda: draw.choice((0.0, -0.0, 1.5, 2.5)), lambda: "".join(draw.choices("xy", k=2)),
        lambda: draw.choice((True, False, None)), lambda: tensor(draw),
    ]  # fmt: skip
    if depth < 3:
        kinds += [
            lambda: [value(draw, depth + 1) for _ in range(draw.randrange(3))], lambda: tuple(value(draw, depth + 1) for _ in range(draw.randrange(3))),
            lambda: {name: value(draw, depth + 1) for name in draw.sample(NAMES, draw.randrange(3))},
            lambda: OrderedDict((name, value(draw, depth + 1)) for name in draw.sample(NAMES, draw.randrange(3))),
            lambda: defaultdict(list, {k: value(draw, depth + 1) for k in draw.sample(range(4), draw.randrange(3))}),
            lambda: filled(draw.choice((Node, Other, Slots))(), draw, depth), lambda: Part(draw), lambda: {draw.randrange(5)},
        ]  # fmt: skip
    return draw.choice(kinds)()


def filled(made: Any, draw: random.Random, depth: int) -> Any:
    """An object with some attributes."""
    for name in draw.sample(NAMES, draw.randrange(1, 4)):
        setattr(made, name, value(draw, depth + 1))
    return made


def read(held: Any, x: Any) -> Any:
    """A sum over everything in `held`."""
    if isinstance(held, torch.Tensor):
        return x + held.numel() * (2 if held.requires_grad else 1) + held.sum()
    if isinstance(held, bool) or held is None:
        return x + (3 if held else 1)
    if isinstance(held, (int, float)):
        return x + held % 7
    if isinstance(held, str):
        return x + len(held) + (5 if "x" in held else 0)
    if isinstance(held, dict):
        for key, each in held.items():
            x = read(each, x + (len(key) if isinstance(key, str) else key))
        return x
    if isinstance(held, (list, tuple)):
        for each in held:
            x = read(each, x * 1.5)
        return x
    if isinstance(held, set):
        return x + sum(held)
    if isinstance(held, nn.Module):
        return x + held.weight.sum() + held.offset.sum() + (1 if held.training else 2)
    for name in ("a", "b", "c"):
        if hasattr(held, name):
            x = read(getattr(held, name), x + 2)
    return x + held.kind if isinstance(held, Node) else x


def change(held: Any, draw: random.Random) -> None:
    """Change something in an object, or deeper."""
    inner = parts(held)
    deep = [x for x in inner if parts(x) or isinstance(x, (dict, list, Node, Slots, nn.Module, set, torch.Tensor))]
    if deep and draw.random() < 0.6:
        return change(draw.choice(deep), draw)
    new = value(draw, 2)
    if isinstance(held, torch.Tensor):
        draw.choice([
            lambda: held.data.fill_(draw.randrange(4)), lambda: held.requires_grad_(not held.requires_grad), lambda: setattr(held, "data", torch.ones(2)),
        ])()  # fmt: skip
    elif isinstance(held, dict):
        keys = [*held]
        if keys and draw.random() < 0.7:
            key = draw.choice(keys)
            draw.choice(
                [lambda: held.__setitem__(key, new), lambda: held.pop(key), lambda: held.update({key: held.pop(key)})]
            )()
        else:
            held[draw.choice(NAMES) if not isinstance(held, defaultdict) else draw.randrange(4)] = new
    elif isinstance(held, list):
        if held and draw.random() < 0.7:
            place = draw.randrange(len(held))
            draw.choice([lambda: held.__setitem__(place, new), lambda: held.pop(place), held.reverse])()
        else:
            held.append(new)
    elif isinstance(held, set):
        held.symmetric_difference_update({draw.randrange(5)})
    elif isinstance(held, nn.Module):
        draw.choice([
            lambda: held.train(not held.training), lambda: setattr(held, "weight", nn.Parameter(tensor(draw))), lambda: setattr(held, "offset", tensor(draw)),
            lambda: setattr(held, "extra", new), lambda: held.__dict__.update(training=held.training),
        ])()  # fmt: skip
    elif isinstance(held, (Node, Slots)):
        name = draw.choice(NAMES)
        if hasattr(held, name) and draw.random() < 0.3:
            delattr(held, name)
        elif isinstance(held, Node) and draw.random() < 0.2:
            held.__class__ = Other if type(held) is Node else Node
        elif isinstance(held, Node) and draw.random() < 0.2:
            held.__dict__ = dict(held.__dict__)
        else:
            setattr(held, name, new)
    return None


def parts(held: Any) -> list[Any]:
    """What an object holds."""
    if isinstance(held, dict):
        return list(held.values())
    if isinstance(held, (list, tuple)):
        return list(held)
    if isinstance(held, nn.Module):
        return [held.weight, held.offset]
    return [getattr(held, name) for name in NAMES if isinstance(held, (Node, Slots)) and hasattr(held, name)]


@pytest.mark.filterwarnings("ignore")
def test_words_never_hold_where_conditions_do_not() -> None:
    draw, ask, x = random.Random(5), runtime().guarded, torch.ones(())
    held = passed = failed = 0
    while held < CHANGES:
        root = {"root": [value(draw) for _ in range(4)], "more": filled(Node(), draw, 0)}
        compiled = compile_function(
            lambda given, x, root=root: read(root, read(given, x)), CompileSettings(dynamic=False)
        )  # type: ignore[misc]
        given = [value(draw) for _ in range(3)]
        for _ in range(2):
            for _ in range(3):
                compiled(given, x)
            for k in range(15):
                held += 1
                if k:  # what is the same in other objects, then what is not
                    change(draw.choice((root, given)), draw)
                else:
                    given = [*given]
                state = (given, x, root)
                for segment in compiled.entry.segments:
                    table = segment.guard.table[0]
                    if table is None:
                        continue
                    native = ask(table, state) is not None and (table[2] is None or table[2](state))
                    reason = segment.why(state)
                    passed += native
                    failed += not native and bool(reason)
                    assert not (native and reason), reason
    assert passed > CHANGES // 40 and failed > CHANGES // 4, (passed, failed)
