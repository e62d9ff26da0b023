"""Nested tensors beside PyTorch: every expression and program of `cases.py` in both."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.nested.cases import EXPRESSIONS, PROGRAMS, names  # noqa: E402

import rushlight  # noqa: E402

pytestmark = pytest.mark.oracle


def shown(value: Any) -> str:
    """As printed, without what differs from run to run."""
    return re.sub(r"\bj\d+\b", "j", re.sub(" object at 0x[0-9a-f]+", "", repr(value)))


def outcome(text: str, module: Any) -> str:
    """What an expression gives, as printed."""
    try:
        return shown(eval(text, names(module)))  # noqa: S307
    except Exception as error:
        return f"raises {type(error).__name__}"


def notes(text: str, module: Any) -> list[str]:
    """What a program notes."""
    found: list[str] = []
    scope = names(module)
    scope["R"] = lambda *values: found.extend(map(shown, values))
    try:
        exec(text, scope)  # noqa: S102
    except Exception as error:
        found.append(f"raises {type(error).__name__}")
    return found


@pytest.mark.parametrize("run", [outcome, notes])
def test_as_pytorch(run: Any) -> None:
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in EXPRESSIONS if run is outcome else PROGRAMS:
            theirs, ours = run(text, torch), run(text, rushlight)
            if theirs != ours:
                wrong.append(f"{text}\n  PyTorch: {theirs}\n  rushlight: {ours}")
    assert not wrong, "\n".join(wrong)
