"""Exported programs beside PyTorch 2.13's: the printed form, node for node (`traces/`, written by `tools/export_traces.py`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import rushlight as torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from said import text_of  # noqa: E402
from table import PROGRAMS  # noqa: E402

# Programs whose graphs differ, each with its reason.
OTHERWISE = {
    "attention": "multi-head attention is made of other operators here",
    "transformer_layer": "likewise",
    "losses": "shapes that are equal are not broadcast first",
    "gpt_block": "attention's result has another layout: contiguous() copies",
    "integer_input": "the size of a row that a number makes has another least value",
    "reductions": "std() without arguments calls another overload",
    "derived": "the least size that the program needs is told",
    "data_dependent": "bounds of sizes that elements tell are not asserted in the graph",
    "control_flow": "bodies take what is around them in another order",
}


def test_every_difference_is_still_one() -> None:
    same = [
        name for name in OTHERWISE if text_of(torch, PROGRAMS[name]) == (HERE / "traces" / f"{name}.txt").read_text()
    ]
    assert not same, "these are as PyTorch's now: take them out of OTHERWISE"


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in OTHERWISE])
def test_a_program_prints_as_pytorch_prints_it(name: str) -> None:
    assert text_of(torch, PROGRAMS[name]) == (HERE / "traces" / f"{name}.txt").read_text()
