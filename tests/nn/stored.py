"""Comparing what a case gives with what PyTorch gave, which lies in a JSON file."""

from __future__ import annotations

from typing import Any

import pytest


def same(found: Any, wanted: Any, rel: float, abs: float) -> None:
    """Dicts with the same keys in the same order, lists of the same length, floats as close as `rel` or `abs` says, all else equal."""
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            same(found[key], wanted[key], rel, abs)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            same(f, w, rel, abs)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=rel, abs=abs)
    else:
        assert found == wanted
