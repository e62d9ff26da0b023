"""The page that says how each primitive is computed on CUDA devices."""

from __future__ import annotations

import importlib

from tests.conftest import ROOT

from rushlight._backends.cuda.reports.coverage import way_of
from rushlight._prims import PRIMITIVES


def test_the_page_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    page = importlib.import_module("cuda_primitives")
    text = page.PAGE.read_text()
    assert text == page.written(text), "run tools/cuda_primitives.py"


def test_every_primitive_has_a_way():
    assert not {name for name, p in PRIMITIVES.items() if way_of(p).startswith("missing")}
