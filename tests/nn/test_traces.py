"""Lazy modules, parametrizations, pruning, hooks, state dicts...: every step of a program is what PyTorch noted of it."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from tests.nn.traces import CASES, run

import rushlight

STORED = json.loads(pathlib.Path(__file__).with_name("traces.json").read_text())


def same(found: Any, wanted: Any, place: str) -> None:
    """Equal, numbers up to rounding."""
    if isinstance(wanted, list) and isinstance(found, list):
        assert len(found) == len(wanted), (place, found, wanted)
        for f, w in zip(found, wanted, strict=True):
            same(f, w, place)
    elif isinstance(wanted, dict) and isinstance(found, dict):
        same(list(found.items()), [list(pair) for pair in wanted.items()], place)
    elif isinstance(wanted, float) and isinstance(found, float):
        assert abs(found - wanted) <= 3e-5 * max(1.0, abs(wanted)), (place, found, wanted)
    else:
        assert (list(found) if isinstance(found, tuple) else found) == wanted, place


@pytest.mark.parametrize("name", CASES)
def test_trace(name: str) -> None:
    found = run(rushlight, name)
    assert [line[0] for line in found] == [line[0] for line in STORED[name]]
    for line, wanted in zip(found, STORED[name], strict=True):
        same(line, wanted, wanted[0])


@pytest.mark.oracle
def test_stored_traces_are_those_of_the_installed_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for name in CASES:
        for line, wanted in zip(run(torch, name), STORED[name], strict=True):
            same(json.loads(json.dumps(line)), wanted, f"{name}: {wanted[0]}")
