"""Worlds: a function of a tensor, and the ways to change what it reads.

`tools/compiled/changed_state.py` goes through them at random, `test_changed_state.py` through each of them once.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import math
import operator
import os
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rushlight as torch
from rushlight import nn
from rushlight.nn import functional as F

Change = Callable[[], Any]


@dataclasses.dataclass
class World:
    """A function, and what changes its state."""

    f: Callable[[Any], Any]
    changes: list[Change]


WORLDS: dict[str, Callable[[], World]] = {}
KEPT: list[Any] = []  # modules with worlds, whose globals that begin with `G_` they change


def world(make: Callable[[], Any]) -> Callable[[], Any]:
    """Declare a world: the function returns what it is called with and the changes."""
    WORLDS[make.__name__] = lambda: World(*(lambda f, *changes: (f, list(changes)))(*make()))
    return make


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """State of the process as it was, afterwards."""
    held = [{name: value for name, value in vars(each).items() if name.startswith("G_")} for each in KEPT]
    patched = [(torch, "sin"), (F, "relu"), (torch.Tensor, "double"), (nn.Linear, "forward"), (math, "sqrt"), (time, "time"),
               (builtins, "bin"), (os, "getpid")]  # fmt: skip
    functions = [
        (name in vars(owner) or isinstance(owner, types.ModuleType), getattr(owner, name)) for owner, name in patched
    ]
    environ, filters, modules = dict(os.environ), warnings.filters[:], dict(sys.modules)
    modes = torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    threads, anomaly = torch.get_num_threads(), torch.is_anomaly_enabled()
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    precision, printed = torch.get_float32_matmul_precision(), np.geterr()
    path, recursion, switch = sys.path[:], sys.getrecursionlimit(), sys.getswitchinterval()
    try:
        yield
    finally:
        for (owner, name), (own, function) in zip(patched, functions, strict=True):
            if own:
                setattr(owner, name, function)
            elif name in vars(owner):
                delattr(owner, name)
        for each, values in zip(KEPT, held, strict=True):
            for name in [n for n in vars(each) if n.startswith("G_")]:
                delattr(each, name)
            vars(each).update(values)
        os.environ.clear(), os.environ.update(environ)
        warnings.filters[:], sys.path[:] = filters, path
        for name in set(sys.modules) - set(modules):
            if name.startswith("made_"):
                del sys.modules[name]
        (
            torch.set_grad_enabled(modes[0]),
            torch.set_default_dtype(modes[1]),
            torch.use_deterministic_algorithms(modes[2]),
        )
        torch.set_num_threads(threads), torch.set_anomaly_enabled(anomaly)
        torch.set_autocast_enabled("cpu", autocast[0]), torch.set_autocast_dtype("cpu", autocast[1])
        torch.set_float32_matmul_precision(precision), np.seterr(**printed)
        sys.setrecursionlimit(recursion), sys.setswitchinterval(switch)


class Plain:
    """An object with attributes."""

    kind: Any = 1

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def go(self) -> Any:
        return self.v


def put(where: Any, **attributes: Any) -> Change:
    """Set attributes."""

    def change() -> None:
        for name, value in attributes.items():
            setattr(where, name, value)

    return change


def item(where: Any, key: Any, value: Any) -> Change:
    """Set an item."""
    return lambda: operator.setitem(where, key, value)
