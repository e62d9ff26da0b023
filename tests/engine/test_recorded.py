"""The programs of this folder against what PyTorch gave: stored for everyone, and run again where PyTorch is installed."""

from __future__ import annotations

import json

import pytest
from tests.engine.recording import FILE, differences, programs, run

import rushlight

PROGRAMS = dict(programs())
RECORDED = json.loads(FILE.read_text())


def test_every_program_is_recorded() -> None:
    assert list(PROGRAMS) == list(RECORDED)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    assert not list(differences(run(PROGRAMS[name], rushlight), RECORDED[name]))


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_record_is_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert not list(differences(run(PROGRAMS[name], torch), RECORDED[name]))
