"""Random eager programs: every value, view, in-place change and gradient beside NumPy, and beside real PyTorch where it is installed.

A failure is a short program as a script (`eager_programs.Program.script`), made small by Hypothesis.  The same programs are drawn in every
run; `python tools/compiled/random_programs.py` draws others for as long as one likes.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests import eager_beside, eager_numpy

import rushlight

DRAWN = settings(
    derandomize=True, deadline=None, database=None, report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)  # fmt: skip


@settings(DRAWN, max_examples=60)
@given(st.data())
def test_programs_beside_numpy(data: st.DataObject) -> None:
    held = rushlight.get_default_dtype()
    rushlight.set_default_dtype(rushlight.float64)
    try:
        eager_numpy.write_and_compare(lambda s: data.draw(s), rushlight)
    finally:
        rushlight.set_default_dtype(held)


@pytest.mark.oracle
@settings(DRAWN, max_examples=60)
@given(st.data())
def test_programs_beside_pytorch(data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    eager_beside.write_and_compare(lambda s: data.draw(s), rushlight, torch)
