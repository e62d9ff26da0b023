"""SciPy and scikit-learn work on tensors through the namespace, and give tensors back; Hypothesis draws them.

SciPy decides when it is imported whether it looks at array types, so these programs run in a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def run(name: str, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, *options, str(PROGRAMS / name)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.slow
def test_scipy() -> None:
    pytest.importorskip("scipy", minversion="1.16")
    run("with_scipy.py")


def test_scipy_in_programs_that_import_torch() -> None:
    pytest.importorskip("scipy", minversion="1.16")
    run("as_torch.py", "-m", "rushlight")


@pytest.mark.slow
def test_scikit_learn() -> None:
    pytest.importorskip("sklearn", minversion="1.7")
    pytest.importorskip("scipy", minversion="1.16")
    run("with_sklearn.py")


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_hypothesis_strategies() -> None:
    pytest.importorskip("hypothesis", minversion="6.75")
    from hypothesis import HealthCheck, given, settings
    from hypothesis.extra.array_api import make_strategies_namespace

    import rushlight.array_api as xp

    drawn = make_strategies_namespace(xp, api_version="2024.12")
    seen = []

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(drawn.arrays(drawn.scalar_dtypes() | drawn.complex_dtypes(), drawn.array_shapes(min_dims=0, min_side=0)))
    def draw(x: object) -> None:
        seen.append(xp.isfinite(x) if xp.isdtype(x.dtype, "numeric") else x)

    draw()
    assert len(seen) >= 60 and {x.ndim for x in seen} >= {0, 1, 2}
