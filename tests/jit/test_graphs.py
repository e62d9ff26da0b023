"""Printed graphs are PyTorch's, down to the numbers and names of values: stored ones, and those of a real PyTorch."""

from __future__ import annotations

import importlib.util
import json
import re
import warnings
from pathlib import Path

import pytest

import rushlight

FOLDER = Path(__file__).parent / "graphs"
# What differs, and why.
DIFFERENT = {
    "scripted while_loop": "copies of a condition skip two more numbers there",
    "scripted early": "early returns skip other numbers there",
    "scripted optional": "early returns skip other numbers there",
    "scripted indexing": "which None of a slice is kept",
    "scripted shapes": "`x.shape` is a function of PyTorch's own, whose lines it shows",
    "scripted broken": "loops with `break` are rewritten there into loops with a condition",
    "scripted printed": "texts of assertions are joined by a pass there",
    "traced sized": "sizes go through tensors there",
    "traced indexing": "x[:, 1] has a slice of everything there",
    **dict.fromkeys(
        ("traced Scale", *(f"traced {name}{kind}" for name in ("Outer", "Listed") for kind in ("", " inlined"))),
        "attributes of traced modules come first there, and calls have scopes",
    ),
}


def _programs():
    spec = importlib.util.spec_from_file_location("programs", FOLDER / "programs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _plain(text):
    """A printed graph with classes by their own names: numbers tell how many a process has compiled before."""
    return re.sub(r"___torch_mangle_\d+\.", "", text.replace(f"{FOLDER}/", ""))


def _made(framework):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: _plain(text) for name, text in _programs().made(framework)}


PRINTED = {name: _plain(text) for name, text in json.loads((FOLDER / "printed.json").read_text()).items()}


@pytest.fixture(scope="module")
def made():
    return _made(rushlight)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_a_graph_prints_as_pytorch_prints_it(made, name):
    if name in DIFFERENT:
        assert made[name] != PRINTED[name], f"{name} is the same now"
    else:
        assert made[name] == PRINTED[name]


@pytest.mark.oracle
def test_the_stored_graphs_are_pytorchs():
    torch = pytest.importorskip("torch")
    assert _made(torch) == PRINTED


def test_one_number_as_sizes_is_no_dtype():
    """`view` of a dtype came before `view` of a list of one size: the shape stayed as it was, without an error."""

    def flat(x):
        return x.view(x.size(0) * x.size(1)), x.view(6), x.view(3, 2)

    found = rushlight.jit.script(flat)(rushlight.ones(2, 3))
    assert [tuple(y.shape) for y in found] == [(6,), (6,), (3, 2)]
