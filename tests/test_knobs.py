"""Knobs: where a value comes from, and names that settings had before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from rushlight._base.knobs import _FORGET, KNOBS, PLANNED, Knob, on_planned


@pytest.fixture
def knob() -> Iterator[Knob[int]]:
    made = Knob("example_of_tests", env="RUSHLIGHT_EXAMPLE", former="RUSHLIGHT_SAMPLE", kind=int, default=3, doc="One.")
    yield made
    del KNOBS["example_of_tests"]


def test_a_value_set_in_code_comes_first_then_the_environment(knob: Knob[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert knob.get() == 3
    knob.reset()
    monkeypatch.setenv("RUSHLIGHT_EXAMPLE", "5")
    assert knob.get() == 5
    with knob.scoped(7):
        assert knob.get() == 7
    assert knob.get() == 5


def test_a_former_name_is_read_and_says_what_it_is_called_now(knob: Knob[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUSHLIGHT_SAMPLE", "4")
    with pytest.warns(FutureWarning, match="RUSHLIGHT_SAMPLE is called RUSHLIGHT_EXAMPLE now"):
        assert knob.get() == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert knob.get() == 4  # once
        knob.reset()
        monkeypatch.setenv("RUSHLIGHT_EXAMPLE", "6")
        assert knob.get() == 6  # the name that counts


def test_what_cannot_be_read_names_the_variable(knob: Knob[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUSHLIGHT_SAMPLE", "many")
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="RUSHLIGHT_SAMPLE='many'"):
        knob.get()


def test_no_two_knobs_have_one_name() -> None:
    names = [name for knob in KNOBS.values() for name in (knob.env, knob.former) if name]
    assert len(names) == len(set(names))
    with pytest.raises(ValueError, match="registered twice"):
        Knob("log", env="RUSHLIGHT_LOG", kind=str, default="", doc="Twice.")


def test_plans_are_forgotten_when_a_knob_that_they_depend_on_changes() -> None:
    made = Knob("planned_of_tests", env="RUSHLIGHT_PLANNED", kind=int, default=3, doc="One.", planned=True)
    told: list[int] = []
    on_planned(lambda: told.append(PLANNED[-1]))
    try:
        begun = PLANNED[-1]
        made.set(3)
        assert not told
        with made.scoped(4):
            assert len(told) == 1 and told[0] != begun
            made.set(5)
        made.reset()
        made.set(4)
        assert len(told) == 4 and told[3] == told[0] and len({begun, *told[:2]}) == 3
    finally:
        _FORGET.pop()
        made.reset()
        del KNOBS["planned_of_tests"]
