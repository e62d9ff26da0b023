"""Every layer against stored results of real PyTorch: printed form, initial values, result, gradients, buffers."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from tests.nn.cases import LAYERS, run

import rushlight

EXPECTED = json.loads(pathlib.Path(__file__).with_name("expected.json").read_text())


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        assert f == w or (f != f and w != w) or abs(f - w) <= tolerance * max(1.0, abs(w)), (f, w)


def test_every_case_is_stored() -> None:
    assert list(LAYERS) == list(EXPECTED)


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    found, wanted = run(rushlight, name), EXPECTED[name]
    assert found["repr"] == wanted["repr"]
    assert list(found["start"]) == list(wanted["start"])
    for key, (shape, values) in wanted["start"].items():
        assert found["start"][key][0] == shape
        close(found["start"][key][1], values, 1e-7)
    assert found["shape"] == wanted["shape"]
    close(found["out"], wanted["out"])
    assert (found["grad"] is None) == (wanted["grad"] is None)
    if wanted["grad"] is not None:
        close(found["grad"], wanted["grad"])
    assert list(found["grads"]) == list(wanted["grads"])
    for key, values in wanted["grads"].items():
        close(found["grads"][key], values)
    for key, values in wanted["end"].items():
        close(found["end"][key], values)
    # The layer drew as many random numbers as PyTorch's, so what is drawn after it agrees as well.
    close(found["draw"], wanted["draw"], 0.0)


@pytest.mark.oracle
def test_stored_results_are_those_of_the_installed_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for name in LAYERS:
        found = run(torch, name)
        assert found["repr"] == EXPECTED[name]["repr"]
        close(found["out"], EXPECTED[name]["out"])


def test_a_missing_class_is_named() -> None:
    with pytest.raises(AttributeError, match=r"rushlight.nn has no 'NoSuchLayer' yet"):
        rushlight.nn.NoSuchLayer
    with pytest.raises(AttributeError, match=r"rushlight.nn.functional has no 'no_such_function' yet"):
        rushlight.nn.functional.no_such_function
